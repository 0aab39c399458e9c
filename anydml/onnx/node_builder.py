"""ONNX nodes that are made rather than read: choices between values, guards, stand-ins.

Nodes(...).choice(%y, %t, %e)(%c)    ->    %y = Where(%c, %t, %e)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anydml.ir.dims import Dim
from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, SequenceType, TensorType, Type, Value
from anydml.onnx.protos import make_attribute
from anydml.onnx.schema import INTERNAL_DOMAIN, allowed_types
from anydml.onnx.types import of_content, onnx_name

WHERE_TYPES = frozenset("float16 float32 float64 int8 int32 int64 uint8 uint32 string".split())
"""What onnxruntime's Where takes; all others are chosen by Gather, which moves any type."""
PAD_TYPES = frozenset("float32 float64 int8 int32 int64 uint8 uint32 uint64 bool".split())
"""What onnxruntime's Pad takes."""
Choice = Callable[[Value], None]
Chooser = Callable[["NodeBuilder", str, Value, Value, Value], Value]
"""(builder, name, one value, another, result) -> the result, which is one of the two."""


class NodeBuilder:
    """Nodes in the place of one, and the constants that came with them."""

    def __init__(self, constants: Mapping[Value, Constant], opset: int, own: bool) -> None:
        self.constants, self.opset, self.own = dict(constants), opset, own
        self.new_constants: dict[Value, Constant] = {}
        self._nodes: list[Node | If] = []
        self._path: tuple[str, ...] = ()

    def start(self, like: Node | If) -> None:
        self._nodes, self._path = [], like.path

    def taken(self) -> list[Node | If]:
        return self._nodes

    def mark(self) -> int:
        return len(self._nodes)

    def forget(self, mark: int) -> None:
        """Undo what was added since."""
        del self._nodes[mark:]

    def add(self, node: Node | If) -> None:
        self._nodes.append(node)

    def adopt(self, node: Node, constants: Mapping[Value, Constant]) -> None:
        """Add a node of a branch, and the branch's constants that it reads."""
        self._keep({v: constants[v] for v in node.reads if v in constants})
        self.add(node)

    def adopt_constant(self, value: Value, constants: Mapping[Value, Constant]) -> None:
        if value in constants:
            self._keep({value: constants[value]})

    def adopt_constants(self, constants: Mapping[Value, Constant]) -> None:
        self._keep(constants)

    def splice(self, branch: Graph) -> None:
        """Add all nodes of a branch."""
        self._keep(branch.constants)
        self._nodes += branch.nodes

    def _keep(self, constants: Mapping[Value, Constant]) -> None:
        self.constants |= constants
        self.new_constants |= constants

    def constant(self, name: str, content: Any) -> Value:
        """An array, or integers, as a constant."""
        array = content if isinstance(content, np.ndarray) else np.asarray(content, np.int64)
        value = Value(name, of_content(array))
        self._keep({value: Constant(array)})
        return value

    def op(self, name: str, inputs: Sequence[Value], result: Value, **attributes: Any) -> Value:
        return self._make(name, inputs, result, attributes, False)

    def nofail(self, name: str, inputs: Sequence[Value], result: Value, **attributes: Any) -> Value:
        """As `op`, of what cannot fail here, whatever the sizes are."""
        return self._make(name, inputs, result, attributes, True)

    def _make(
        self, name: str, inputs: Sequence[Value], result: Value, attributes: Mapping[str, Any], nofail: bool
    ) -> Value:
        protos = {n: make_attribute(n, a) for n, a in attributes.items()}
        domain = INTERNAL_DOMAIN if self.own and name == "Where" else ""
        op = OnnxOp(domain, name, self.opset)
        self.add(Node(op, tuple(inputs), (result,), protos, result.name, self._path, nofail=nofail))
        return result

    def pass_on(self, given: Value, value: Value) -> None:
        """`value` is another one."""
        self.nofail("Identity", [given], value)

    # ---- choices

    def sequence_choice(self, value: Value, a: Node, b: Node, loose: bool, anything: bool) -> Choice | None:
        """What makes one of two sequences, of which each node makes one of as many elements: by choosing what
        they are made of."""
        if not a.inputs or (a.op, len(a.inputs)) != (b.op, len(b.inputs)):
            return None
        if not (a.is_onnx("SequenceConstruct") or a.is_onnx("SequenceInsert")):
            return None
        items: list[Value] = []
        choices: list[Choice] = []
        for k, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)):
            if x is None or y is None:
                return None
            if x is y:
                items.append(x)
                continue
            items.append(Value(f"{value.name}~item{k}", x.type))
            choice = self.choice(items[-1], x, y, loose, anything)
            if choice is None:
                return None
            choices.append(choice)

        def choose(condition: Value) -> None:
            for choice in choices:
                choice(condition)
            self.op(a.op.name, items, value)

        return choose

    def choice(self, value: Value, a: Value, b: Value, loose: bool, anything: bool) -> Choice | None:
        """What makes a value that is `a` where a condition is true, else `b`; None if that cannot be.

        Args:
            loose: symbols in the types of a and b do not mean what they say.
            anything: whether their sizes may differ, and much may be done about it.
        """
        x, y = a.type, b.type
        if not isinstance(x, TensorType) or not isinstance(y, TensorType) or x.dtype != y.dtype:
            return None
        if not self.moves(x):
            return None
        if x.sizes is None or y.sizes is None or len(x.sizes) != len(y.sizes):
            return None
        known = x.known_sizes is not None or not (loose or None in x.sizes)
        if x.sizes == y.sizes and known:
            if x.dtype == "string" and self.opset < 9:
                return None  # onnxruntime loses strings on that way
            if self.own or (self.opset >= 9 and x.dtype in WHERE_TYPES):
                return lambda c: self._where(c, a, b, value)
            if x.dtype == "bool" and self.opset >= 7:
                return lambda c: self._logical(c, a, b, value)
            return lambda c: self._gather(c, a, b, value)
        differ = sum(n is None or n != m for n, m in zip(x.sizes, y.sizes, strict=True))
        if anything and differ < 2 and x.dtype in WHERE_TYPES & PAD_TYPES and self.opset >= 12:
            return lambda c: self._select_padded(c, a, b, value)
        if anything and self.opset >= 14:
            return lambda c: self._select_dynamic_shape(c, a, b, value)
        return None

    def moves(self, type: TensorType) -> bool:
        """Whether there are operators to choose with: ONNX has few for its smallest types."""
        concat = OnnxOp("", "Concat", max(self.opset, 4))  # the first was for floats, but took all
        return self.own or onnx_name(type) in allowed_types(concat)[0]

    def _where(self, condition: Value, a: Value, b: Value, value: Value) -> None:
        self.op("Where", [self._broadcasts(condition, a, value), a, b], value)

    def _broadcasts(self, condition: Value, a: Value, value: Value) -> Value:
        """A condition that broadcasts with `a`, and fails where it is not one element."""
        sizes = condition.known_sizes
        if sizes is None or len(sizes) > len(a.sizes or ()):
            return self.scalar(condition, value.name)
        return condition

    def _logical(self, condition: Value, a: Value, b: Value, value: Value) -> None:
        """Of bools, which Where lacks: in two nodes if one of them is known."""
        c, type, name = self._broadcasts(condition, a, value), a.type, value.name
        known = {
            v: set(self.constants[v].content.reshape(-1).tolist()) for v in (a, b) if v in self.constants
        }

        def opposite() -> Value:
            return self.nofail("Not", [c], Value(f"{name}~not", c.type))

        if known.get(b) == {False}:
            self.nofail("And", [c, a], value)
        elif known.get(a) == {True}:
            self.nofail("Or", [c, b], value)
        elif known.get(a) == {False}:
            self.nofail("And", [opposite(), b], value)
        elif known.get(b) == {True}:
            self.nofail("Or", [opposite(), a], value)
        else:
            then = self.nofail("And", [c, a], Value(f"{name}~then", type))
            other = self.nofail("And", [opposite(), b], Value(f"{name}~else", type))
            self.nofail("Or", [then, other], value)

    def _gather(self, condition: Value, a: Value, b: Value, value: Value) -> None:
        """For types that Where lacks, and for opsets that lack Where."""
        index = Value(f"{value.name}~index", TensorType("int64", ()))
        self.op("Cast", [self.scalar(condition, value.name)], index, to=7 if self.opset >= 6 else "INT64")
        both = self._stack([b, a], value)
        self.op("Gather", [both, index], value, axis=0)

    def _select_padded(self, condition: Value, a: Value, b: Value, value: Value) -> None:
        """Both as large as the larger of them, of which the right part is cut out: along one axis, so that it
        is no larger than that."""
        c, name, dtype = self.scalar(condition, value.name), value.name, _dtype(a)
        rank = len(a.sizes or ())
        zeros, shapes, large = self.constant(f"{name}~zeros", [0] * rank), [], []
        for word, v in (("then", a), ("else", b)):
            shapes.append(self.nofail("Shape", [v], _name_value(f"{name}~{word}_shape", "int64", (rank,))))
        most = self.nofail("Max", shapes, _name_value(f"{name}~most", "int64", (rank,)))
        for (word, v), shape in zip((("then", a), ("else", b)), shapes, strict=True):
            lacks = _name_value(f"{name}~{word}_lacks", "int64", (rank,))
            pads = _name_value(f"{name}~{word}_pads", "int64", (2 * rank,))
            self.nofail("Sub", [most, shape], lacks)
            self.nofail("Concat", [zeros, lacks], pads, axis=0)
            padded = _name_value(f"{name}~{word}", dtype, (None,) * rank)
            large.append(self.nofail("Pad", [v, pads], padded))
        chosen = self.nofail("Where", [c, *large], _name_value(f"{name}~chosen", dtype, (None,) * rank))
        size = self.nofail("Where", [c, *shapes], _name_value(f"{name}~shape", "int64", (rank,)))
        self.nofail("Slice", [chosen, zeros, size], value)

    def _select_dynamic_shape(self, condition: Value, a: Value, b: Value, value: Value) -> None:
        """One after the other, of which the right part is cut out: their sizes may differ."""
        c, name, dtype = self.scalar(condition, value.name), value.name, _dtype(a)
        all_of_it, zero = (
            self.constant(f"{name}~all", [-1]),
            self.constant(f"{name}~0", [0]),
        )
        flat, counts, shapes = [], [], []
        for word, v in (("then", a), ("else", b)):
            rank = len(v.sizes or ())
            flat.append(self.nofail("Reshape", [v, all_of_it], _name_value(f"{name}~{word}", dtype, (None,))))
            counts.append(
                self.nofail("Shape", [flat[-1]], _name_value(f"{name}~{word}_count", "int64", (1,)))
            )
            shapes.append(self.nofail("Shape", [v], _name_value(f"{name}~{word}_shape", "int64", (rank,))))
        total = self.nofail("Add", counts, _name_value(f"{name}~total", "int64", (1,)))
        start = self.nofail("Where", [c, zero, counts[0]], _name_value(f"{name}~start", "int64", (1,)))
        end = self.nofail("Where", [c, counts[0], total], _name_value(f"{name}~end", "int64", (1,)))
        both = self.nofail("Concat", flat, _name_value(f"{name}~both", dtype, (None,)), axis=0)
        part = self.nofail("Slice", [both, start, end], _name_value(f"{name}~part", dtype, (None,)))
        rank = len(a.sizes or ())
        shape = self.nofail("Where", [c, *shapes], _name_value(f"{name}~shape", "int64", (rank,)))
        self.nofail("Reshape", [part, shape], value, allowzero=1)

    # ---- guards and stand-ins

    def guard(self, condition: Value, a: Value, truth: bool, value: Value) -> None:
        """`value` is `a`; but where the condition is not `truth`, an index is out of range."""
        c = self.scalar(condition, value.name)
        good, bad = (
            self.constant(f"{value.name}~0", 0),
            self.constant(f"{value.name}~1", 1),
        )
        index = _name_value(f"{value.name}~index", "int64", ())
        self.op("Where", [c, good, bad] if truth else [c, bad, good], index)
        self.op("Gather", [self._stack([a], value), index], value, axis=0)

    def safe_placeholders(self, choose: Chooser, x: Value, witness: tuple[int, ...], name: str) -> Value:
        """`x`, or something of its type and of the sizes `witness`, as `choose` chooses."""
        dtype, rank = _dtype(x), len(witness)
        wanted = self.constant(f"{name}~witness", witness)
        zeros = self.constant(f"{name}~zeros", [0] * rank)
        sizes = self.nofail("Shape", [x], _name_value(f"{name}~sizes", "int64", (rank,)))
        missing = self.nofail("Sub", [wanted, sizes], _name_value(f"{name}~missing", "int64", (rank,)))
        lacks = self.nofail("Greater", [missing, zeros], _name_value(f"{name}~lacks", "bool", (rank,)))
        behind = self.nofail(
            "Where", [lacks, missing, zeros], _name_value(f"{name}~behind", "int64", (rank,))
        )
        pads = self.nofail(
            "Concat", [zeros, behind], _name_value(f"{name}~pads", "int64", (2 * rank,)), axis=0
        )
        larger = self.nofail("Pad", [x, pads], _name_value(f"{name}~larger", dtype, (None,) * rank))
        ends = _name_value(f"{name}~ends", "int64", (rank,))
        choose(self, name, sizes, wanted, ends)
        return self.nofail("Slice", [larger, zeros, ends], _name_value(name, dtype, (None,) * rank))

    def scalar(self, condition: Value, name: str) -> Value:
        """A condition as a scalar; `name`: what for."""
        if condition.sizes == ():
            return condition
        scalar = _name_value(f"{name}~condition", "bool", ())
        axes = list(range(len(condition.sizes or (1,))))
        if self.opset < 5 or (self.opset < 13 and condition.known_sizes is not None):
            return self.op("Squeeze", [condition], scalar, axes=axes)
        if condition.known_sizes is not None:  # some runtimes take an empty shape for none
            return self.op("Squeeze", [condition, self.constant(f"{name}~axes", axes)], scalar)
        return self.op("Reshape", [condition, self.constant(f"{name}~scalar", [])], scalar)

    def stack(self, values: Sequence[Value], axis: int, value: Value) -> None:
        """`value` is the values along a new axis."""
        parts = [self._part(v, axis, value.name, k, None) for k, v in enumerate(values)]
        self.op("Concat", parts, value, axis=axis)

    def _stack(self, values: Sequence[Value], value: Value) -> Value:
        """The values along a new first axis."""
        parts = []
        for k, v in enumerate(values):
            sizes = v.sizes
            type = TensorType(_dtype(v), None if sizes is None else (1, *sizes))
            parts.append(self._part(v, 0, value.name, k, type))
        if len(parts) == 1:
            return parts[0]
        sizes = values[0].sizes
        both = TensorType(_dtype(values[0]), None if sizes is None else (len(parts), *sizes))
        return self.op("Concat", parts, Value(f"{value.name}~both", both), axis=0)

    def hidden(self, value: Value) -> Value:
        """A value whose rank ONNX's inference does not know: one of two of a sequence that differ in it."""
        type, name = TensorType(_dtype(value)), value.name
        other = self._part(value, 0, name, 0, type)
        both = self.op("SequenceConstruct", [value, other], Value(f"{name}~both", SequenceType(type)))
        first = self.constant(f"{name}~first", np.array(0, np.int64))
        return self.op("SequenceAt", [both, first], Value(f"{name}~hidden", type))

    def _part(self, value: Value, axis: int, name: str, k: int, type: Type | None) -> Value:
        """A value with a new axis, the k-th of what becomes `name`."""
        part = Value(f"{name}~part{k}", type)
        if self.opset < 13:
            return self.op("Unsqueeze", [value], part, axes=[axis])
        return self.op("Unsqueeze", [value, self.constant(f"{name}~axes{k}", [axis])], part)


def _name_value(name: str, dtype: str, sizes: tuple[Dim, ...]) -> Value:
    return Value(name, TensorType(dtype, sizes))


def _dtype(value: Value) -> str:
    assert isinstance(value.type, TensorType)
    return value.type.dtype
