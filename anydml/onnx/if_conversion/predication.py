"""Predication: a node that may fail sees operands that it cannot fail on while its branch is not taken.

    If(%c) {then %y = Gather(%x, %i)}    ->    %j = Where(%c, %i, 0); %y = Gather(%x, %j)

Each operator says which operands those are (`OpInfo.safe`). What follows from their sizes is inferred anew,
since it holds while the branch is not taken, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from anydml.dataclass import dataclass, replace
from anydml.ir.graph import Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import make_subgraph
from anydml.onnx.arrays import zeros
from anydml.onnx.if_conversion.speculation import body_cannot_fail, speculation_hazard
from anydml.onnx.node_builder import PAD_TYPES, WHERE_TYPES, NodeBuilder
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, NotFoldable
from anydml.onnx.types import CODES

MAX_PASSES = 16
"""Of predicating and inferring: nodes of one pass do not depend on each other."""
_HALVES = ("float16", "bfloat16")
_FILLED = frozenset("bool float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
"""What onnxruntime's ConstantOfShape makes."""
Infer = Callable[[Graph, Mapping[Value, Constant]], Graph]
"""Types a branch anew; the constants are those of the graphs around it."""


@dataclass(frozen=True)
class Predicate:
    """What must be so for a branch to be taken: conditions of all Ifs that it lies in, and their truth."""

    parts: tuple[tuple[Value, bool], ...] = ()

    def and_if(self, condition: Value, truth: bool) -> Predicate:
        return Predicate((*self.parts, (condition, truth)))

    def choose(self, made: NodeBuilder, name: str, taken: Value, otherwise: Value, result: Value) -> Value:
        """`taken` where all of it is so, else `otherwise`."""
        if len(self.parts) == 1:
            ((condition, truth),) = self.parts
            choices = (taken, otherwise) if truth else (otherwise, taken)
            return made.nofail("Where", [made.scalar(condition, name), *choices], result)
        return made.nofail("Where", [self.value(made, name), taken, otherwise], result)

    def value(self, made: NodeBuilder, name: str) -> Value:
        """Whether all of it is so."""
        bools = []
        for k, (condition, truth) in enumerate(self.parts):
            part = made.scalar(condition, f"{name}~{k}")
            if not truth:
                part = made.nofail("Not", [part], _value(f"{name}~not{k}", "bool", ()))
            bools.append(part)
        result = bools[0]
        for k, part in enumerate(bools[1:]):
            result = made.nofail("And", [result, part], _value(f"{name}~and{k}", "bool", ()))
        return result


def predicate(
    branch: Graph, when: Predicate, around: Mapping[Value, Constant], opset: int, infer: Infer
) -> tuple[Graph, list[str]]:
    """The branch with operands that its nodes cannot fail on while it is not taken, where there are such.

    Also how messages call those nodes.
    """
    labels: list[str] = []
    branch = infer(branch, around)
    for _ in range(MAX_PASSES):
        known = {**around, **branch.constants}
        made = NodeBuilder(known, opset, False)
        nodes: list[Node | If] = []
        behind: set[Value] = set()
        operands: dict[object, Value] = {}
        count = len(labels)
        for node in branch.nodes:
            depends = any(v in behind for v in node.reads)
            changed = None
            if not depends and isinstance(node, Node) and speculation_hazard(node, known) is not None:
                made.start(node)
                changed = _predicated(node, known, _Operands(node, when, made, operands))
            if changed is not None:
                nodes += made.taken()
                labels.append(node.label)
                node = changed
            if depends or changed is not None:
                behind.update(node.writes)
            nodes.append(node)
        if len(labels) == count:
            break
        constants = {**branch.constants, **made.new_constants}
        branch = infer(make_subgraph(branch.name, nodes, branch.outputs, constants), around)
    return branch, labels


def without_predicates(graph: Graph) -> Graph:
    """A branch that stays one: its predicates hold in it only, not where it would be run in vain."""
    nodes: list[Node | If] = []
    for node in graph.nodes:
        if isinstance(node, If):
            then_branch, else_branch = (without_predicates(b) for _, b in node.branches)
            node = replace(node, then_branch=then_branch, else_branch=else_branch)
        elif node.predicated:
            node = replace(node, predicated="")
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _predicated(node: Node, constants: Mapping[Value, Constant], operands: _Operands) -> Node | None:
    """The node with other operands; None if it has none."""
    info = info_of(node.op)
    if info is None or info.safe is None or operands.made.opset < 11:
        return None
    try:
        safe = info.safe(KnownNode(node, constants), operands)
    except NotFoldable:
        return None
    if safe is None or (safe.runs_body and not body_cannot_fail(node, constants)):
        return None
    inputs = tuple(safe.operands.get(k, v) for k, v in enumerate(node.inputs))
    return replace(node, inputs=inputs, predicated="passes" if safe.passes else "safe")


class _Operands:
    """Operands of a node that are others while its branch is not taken: see `SafeOperands`."""

    def __init__(self, node: Node, when: Predicate, made: NodeBuilder, shared: dict[object, Value]) -> None:
        self.node, self.when, self.made, self._shared = node, when, made, shared

    def number(self, k: int, otherwise: float | Sequence[int]) -> Value:
        content = np.array(otherwise, self._dtype(k))
        return self._either(k, lambda name: self.made.constant(name, content), content.tobytes())

    def one_of(self, taken: int, otherwise: int) -> Value:
        name = f"{self._name}~number"
        a, b = (self.made.constant(f"{name}{n}", np.array(n, np.int64)) for n in (taken, otherwise))
        return self.when.choose(self.made, name, a, b, _value(name, "int64", ()))

    def sizes_of(self, k: int, other: int) -> Value:
        x = self._input(other)
        if self._dtype(k) != "int64":
            raise NotFoldable("sizes of another type")
        shape = _value(f"{self._name}~{k}~sizes", "int64", (x.rank,))
        return self._either(k, lambda name: self.made.nofail("Shape", [x], shape), ("sizes", x))

    def same_as(self, k: int, other: int) -> Value:
        x = self._input(other)
        self._dtype(k)
        return self._either(k, lambda name: x, ("same", x))

    def nonempty(self, k: int, axes: Iterable[int], least: int = 1) -> Value:
        x, rank = self._input(k), self._input(k).rank
        if rank is None or not isinstance(x.type, TensorType):
            raise NotFoldable("unknown rank")
        axes = sorted({axis % rank for axis in axes})
        key = ("nonempty", x, tuple(axes), least)
        if key not in self._shared:
            others = [n for axis, n in enumerate(x.sizes or ()) if axis not in axes]
            known = len(axes) == 1 and all(isinstance(n, int) for n in others)
            made = self._joined if known and x.type.dtype in _FILLED else self._padded
            self._shared[key] = made(x, f"{self._name}~{k}", axes, least)
        return self._shared[key]

    def _joined(self, x: Value, name: str, axes: Sequence[int], least: int) -> Value:
        """Something behind it, of known sizes, which those who infer shapes can follow."""
        made, (axis,), sizes = self.made, axes, list(x.sizes or ())
        none, some = (
            made.constant(f"{name}~{word}", [count if n == axis else size for n, size in enumerate(sizes)])
            for word, count in (("none", 0), ("some", least))
        )
        shape = _value(f"{name}~shape", "int64", (len(sizes),))
        self.when.choose(made, shape.name, none, some, shape)
        dtype, open = _dtype(x), tuple(None if n == axis else size for n, size in enumerate(sizes))
        zero = zeros(dtype, (1,))
        behind = made.nofail("ConstantOfShape", [shape], _value(f"{name}~behind", dtype, open), value=zero)
        return made.nofail("Concat", [x, behind], _value(f"{name}~longer", dtype, open), axis=axis)

    def _padded(self, x: Value, name: str, axes: Sequence[int], least: int) -> Value:
        dtype, rank, made = _dtype(x), x.rank or 0, self.made
        halves = dtype in _HALVES
        if not halves and dtype not in PAD_TYPES:
            raise NotFoldable(f"no Pad of {dtype}")
        pads = [0] * (2 * rank)
        for axis in axes:
            pads[rank + axis] = least
        none, some = made.constant(f"{name}~none", [0] * (2 * rank)), made.constant(f"{name}~some", pads)
        amounts = _value(f"{name}~pads", "int64", (2 * rank,))
        self.when.choose(made, amounts.name, none, some, amounts)
        sizes = tuple(None if axis in axes else n for axis, n in enumerate(x.sizes or ()))
        if not halves:
            return made.nofail("Pad", [x, amounts], _value(f"{name}~larger", dtype, sizes))
        wide = made.nofail("Cast", [x], _value(f"{name}~wide", "float32", x.sizes or ()), to=CODES["float32"])
        larger = made.nofail("Pad", [wide, amounts], _value(f"{name}~larger", "float32", sizes))
        return made.nofail("Cast", [larger], _value(f"{name}~padded", dtype, sizes), to=CODES[dtype])

    def at_most(self, x: Value, axes: Iterable[int], count: int) -> Value:
        rank = x.rank
        if not rank or not isinstance(x.type, TensorType):
            raise NotFoldable("no axes, or unknown rank")
        axes = sorted({axis % rank for axis in axes})
        key = ("at most", x, tuple(axes), count)
        if key in self._shared:
            return self._shared[key]
        name, made = f"{self._name}~{x.name}", self.made
        zero = made.constant(f"{name}~first", [0] * len(axes))
        most = made.constant(f"{name}~all", [(1 << 63) - 1] * len(axes))
        few = made.constant(f"{name}~few", [count] * len(axes))
        along = made.constant(f"{name}~axes", axes)
        end = _value(f"{name}~end", "int64", (len(axes),))
        self.when.choose(made, f"{name}~end", most, few, end)
        sizes = tuple(None if axis in axes else n for axis, n in enumerate(x.sizes or ()))
        part = made.nofail("Slice", [x, zero, end, along], _value(f"{name}~part", x.type.dtype, sizes))
        self._shared[key] = part
        return part

    def no_rows(self, k: int) -> Value:
        return self.at_most(self._input(k), [0], 0)

    @property
    def _name(self) -> str:
        return self.node.name or self.node.op.name

    def _dtype(self, k: int) -> str:
        type = self._input(k).type
        if not isinstance(type, TensorType) or type.dtype not in WHERE_TYPES - {"string"}:
            raise NotFoldable("a type that Where does not choose")
        return type.dtype

    def _input(self, k: int) -> Value:
        value = self.node.inputs[k] if k < len(self.node.inputs) else None
        if value is None:
            raise NotFoldable(f"no input {k}")
        return value

    def _either(self, k: int, other: Callable[[str], Value], what: Any) -> Value:
        """Input k where the branch is taken."""
        value = self._input(k)
        key = ("either", value, what)
        if key not in self._shared:
            name = f"{self._name}~{k}"
            otherwise = other(f"{name}~else")
            result = Value(f"{name}~safe", value.type)
            self._shared[key] = self.when.choose(self.made, name, value, otherwise, result)
        return self._shared[key]


def _dtype(value: Value) -> str:
    assert isinstance(value.type, TensorType)
    return value.type.dtype


def _value(name: str, dtype: str, sizes: tuple[Any, ...]) -> Value:
    return Value(name, TensorType(dtype, sizes))
