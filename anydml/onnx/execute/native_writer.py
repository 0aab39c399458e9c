"""Graphs written as programs: node after node, with branches, loops, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.feeds import Input, Output
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.types import scalar_type
from anydml.dataclass import dataclass, replace
from anydml.directml.weights import row_axes
from anydml.errors import InvalidModel
from anydml.ir.graph import Body, Constant, Graph, If, Node, TensorType, Value
from anydml.onnx.execute.directml_lowering import lower_to_directml
from anydml.onnx.node_validation import check_types
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.fold import fold, has_rule
from anydml.onnx.ops.native import BOUNDED, MOVING, operand, truth
from anydml.onnx.ops.opinfo import KnownNode, NodeFailed, NotFoldable
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.providers.provider import Provider
from anydml.onnx.rewrites.trip_counts import always_goes_on
from anydml.ops.dtypes import BFLOAT16, BOOL, INT64, UINT8, UINT16
from anydml.ops.enums import TensorDataType

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.control import Iterated, Room
    from anydml.codegen.program.values import Memory, Register, Tensor

MAX_SPLITS = 16
"""Ifs of different shapes, of which each doubles what follows."""


def write_graph(
    graph: Graph,
    builder: Callable[[], ProgramBuilder],
    opsets: Mapping[str, int],
    provider: Provider,
    work: int = 1 << 62,
    most: Mapping[Value, Sequence[int]] = MappingProxyType({}),
) -> tuple[ProgramBuilder, list[Input], list[Output]]:
    """The code of a graph, the types of its inputs, and its outputs.

    Where it turns out that the branches of an If give other shapes, all is written anew with what follows
    in both of them; and anew with code that tells the sizes of outputs, where the data decides these.

    Args:
        builder: makes a new one.
        work: as many elements as it may compute.
        most: sizes up to which inputs may be that have one which is not fixed.

    Raises:
        NotNative: why there is none.
    """
    types = [type_of(v, most.get(v)) for v in graph.inputs]
    split: set[str] = set()
    rooms: dict[str, list[Room | None]] = {}
    tell = False
    while True:
        b = builder()
        writer = _Writer(b, opsets, provider, work, split, rooms)
        try:
            return b, types, _write(graph, b, types, writer, tell, not split)
        except _OpenSizes:
            tell = True
        except _ToSplit as found:
            if found.label in split or len(split) == MAX_SPLITS:
                raise
            split.add(found.label)
        except _ToBound as found:
            known = rooms.get(found.label, [None] * len(found.rooms))
            both = [program.wider(a, b) for a, b in zip(known, found.rooms, strict=True)]
            if both == known:
                raise
            rooms[found.label] = both  # it may be written several times, in branches of those that are split


def _write(
    graph: Graph,
    b: ProgramBuilder,
    types: Sequence[Input],
    writer: _Writer,
    tell: bool,
    once: bool,
) -> list[Output]:
    """`tell`, `once`: as of `write_outputs`."""
    outputs: list[Output] = []

    def end(results: Sequence[Tensor]) -> list[Tensor]:
        written = program.write_outputs(b, results, tell, once and not tell)
        before = outputs or written
        if [(o.dtype, o.rank) for o in before] != [(w.dtype, w.rank) for w in written]:
            raise NotNative("outputs of ranks that the data decides")
        if not tell and (
            [o.sizes for o in before] != [w.sizes for w in written]
            or any(isinstance(r, program.Bounded) for r in results)
        ):
            raise _OpenSizes("outputs of sizes that the data decides")
        outputs[:] = [replace(o, count=max(o.count, w.count)) for o, w in zip(before, written, strict=True)]
        return []

    writer.graph(graph, dict(zip(graph.inputs, program.read_inputs(b, types), strict=True)), end)
    return outputs


class _OpenSizes(NotNative):
    """Outputs have sizes that the data decides."""


def type_of(value: Value, most: Sequence[int] | None = None) -> Input:
    """`most`: sizes up to which it may be."""
    sizes = value.sizes
    if not isinstance(value.type, TensorType) or sizes is None:
        raise NotNative(f"{value.name!r} has no fixed sizes")
    known = [n if isinstance(n, int) else None for n in sizes]
    open = [k for k, n in enumerate(known) if n is None]
    if open and (most is None or len(open) > 1):
        raise NotNative(f"{value.name!r} has no fixed sizes")
    if 0 in known:
        raise NotNative(f"{value.name!r} has no elements")
    whole = tuple(n if n is not None else (most or ())[k] for k, n in enumerate(known))
    return Input(scalar_type(value.type.dtype), whole, open[0] if open else None)


class _ToBound(NotNative):
    """The branches of an If give what is as long as the data decides."""

    def __init__(self, label: str, rooms: Sequence[Room | None]) -> None:
        super().__init__("an If of results of which it is not known how long they are")
        self.label, self.rooms = label, rooms


class _ToSplit(NotNative):
    """The branches of an If give other shapes."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(why)
        self.label = label


Follow: TypeAlias = "Callable[[list[Tensor]], list[Tensor]]"
"""Writes what follows a graph, of its results, and answers with what that gives."""


@dataclass(frozen=True)
class _Scope:
    """A graph that is being written."""

    graph: Graph
    outside: set[Value]
    """What was there before."""
    uses: Mapping[Value, int]
    last: Mapping[Value, int]
    """The node, by number, that is the last one to read a value."""
    follow: Follow


class _Writer:
    """Writes graphs and what is in them, in the order in which they run."""

    def __init__(
        self,
        b: ProgramBuilder,
        opsets: Mapping[str, int],
        provider: Provider,
        work: int,
        split: Collection[str],
        rooms: Mapping[str, Sequence[Room | None]],
    ) -> None:
        """Args:
        work: as much as it may do.
        split: labels of Ifs whose branches hold what follows them, too.
        rooms: by label of an If what its results need, if the data decides how long they are.
        """
        self.rooms = rooms
        self.b, self.opsets, self.provider, self.work, self.split = b, opsets, provider, work, split
        self.tensors: dict[Value, Tensor] = {}
        """Those that somebody will still read."""
        self.constants: dict[Value, Constant] = {}

    def graph(
        self,
        graph: Graph,
        given: Mapping[Value, Tensor],
        follow: Follow = lambda results: results,
    ) -> list[Tensor]:
        """A graph, branch or body, and what follows; what it captures is there already."""
        outside = {*self.tensors}
        self.tensors |= given
        self.constants |= graph.constants
        uses: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for k, node in enumerate(graph.nodes):
            inside = isinstance(node, If) or bool(node.bodies)
            for value in node.reads:
                uses[value] = uses.get(value, 0) + (
                    2 if inside else 1
                )  # there it may be read again and again
                last[value] = k
        for value in graph.outputs:
            uses[value] = uses.get(value, 0) + 1
            last[value] = len(graph.nodes)
        return self._nodes(_Scope(graph, outside, uses, last, follow), 0)

    def _nodes(self, scope: _Scope, start: int) -> list[Tensor]:
        """Those of a graph from one on, and what follows."""
        for k, node in enumerate(scope.graph.nodes[start:], start):
            if isinstance(node, If) and node.label in self.split:
                return self._split(scope, k, node)
            self._keep(scope, k, self._results(node))
        results = [self.b.with_products(self.read(v, none=True)) for v in scope.graph.outputs]
        self._check_work()
        for value in [v for v in self.tensors if v not in scope.outside]:
            del self.tensors[value]
        return scope.follow(results)

    def _keep(self, scope: _Scope, k: int, results: Sequence[Tensor]) -> None:
        """The results of node k, and no longer what nobody reads any more."""
        node = scope.graph.nodes[k]
        for output, tensor in zip(node.outputs, results, strict=True):
            if output is not None and output in scope.uses:
                self.tensors[output] = self.b.use(tensor) if scope.uses[output] > 1 else tensor
        self._check_work()
        for value in node.reads:
            if scope.last[value] == k and value not in scope.outside:
                self.tensors.pop(value, None)
        self._free()

    def _split(self, scope: _Scope, k: int, node: If) -> list[Tensor]:
        """An If whose branches hold what follows them, too."""
        condition, before = truth(self.read(node.condition)), dict(self.tensors)

        def follow(results: list[Tensor]) -> list[Tensor]:
            self._keep(scope, k, results)
            return self._nodes(scope, k + 1)

        def write(branch: Graph) -> list[Tensor]:
            self.tensors = dict(before)
            return self.graph(branch, {}, follow)

        return program.choose(
            self.b, condition, [partial(write, branch) for _, branch in node.branches], last=True
        )

    def _check_work(self) -> None:
        if self.b.work > self.work:
            raise NotNative("more work than programs are for")

    def _free(self) -> None:
        """Memory of what nobody reads any more may be given out again."""
        kept: Iterable[Tensor] = (*self.tensors.values(), *self.b.held)
        self.b.arena.keep({id(buffer): buffer for t in kept for buffer in t.buffers}.values())

    def read(self, value: Value, none: bool = False) -> Tensor:
        """`none`: whether it may have no elements."""
        found = self.tensors.get(value)
        if found is None:
            content = self.constants[value].content
            if not isinstance(content, np.ndarray) or not (content.size or none):
                raise NotNative(f"{value.name!r} is no tensor with elements")
            found = program.Known.of(content)
        if not (found.count or none):
            raise NotNative(f"{value.name!r} has no elements")
        return found

    # ---- nodes

    def _results(self, node: Node | If) -> Sequence[Tensor]:
        """What a node gives. What is wrong with one is left to others to tell."""
        if any(prod(v.known_sizes or ()) > self.work for v in node.writes):
            raise NotNative("more work than programs are for")
        try:
            found = self._node(node)
        except (NotFoldable, NodeFailed, InvalidModel, ValueError, IndexError) as error:
            raise NotNative(f"{node.label}: {error}") from error
        if any(t.count == 0 for t in found):
            raise NotNative(f"{node.label} gives no elements")
        for value, tensor in zip(node.outputs, found, strict=False):
            type = value.type if value is not None else None
            if isinstance(type, TensorType) and scalar_type(type.dtype) is not tensor.dtype:
                raise NotNative(f"{node.label} gives {tensor.dtype.label} for {type.dtype}")
        return found

    def _node(self, node: Node | If) -> Sequence[Tensor]:
        self.b.node = node.label
        if isinstance(node, If):
            condition = truth(self.read(node.condition))
            branches = [lambda b=b: self.graph(b, {}) for _, b in node.branches]
            try:
                return program.choose(self.b, condition, branches, rooms=self.rooms.get(node.label))
            except program.BranchesDiffer as why:
                raise _ToSplit(node.label, str(why)) from why
            except program.BranchesBound as why:
                raise _ToBound(node.label, why.rooms) from why
        if node.fails:
            raise NotNative(f"{node.label} fails")
        check_types(node)
        if node.bodies:
            return self._iteration(node)
        shaped = node.is_onnx("Reshape") or node.is_onnx("Resize")
        inputs = [None if v is None else self.read(v, shaped and k > 0) for k, v in enumerate(node.inputs)]
        if (folded := _folded(node, inputs)) is not None:
            return folded
        known = {
            v: Constant(t.array)
            for v, t in zip(node.inputs, inputs, strict=True)
            if v is not None and isinstance(t, program.Known)
        }
        if (result := self._elementwise(node, inputs, known)) is not None:
            return [result]
        info = info_of(node.op)
        if info is None or info.native is None:
            raise NotNative(f"{node.op} in {node.label}")
        if info.native not in MOVING and any(t is not None and t.dtype is BFLOAT16 for t in inputs):
            raise NotNative(f"{node.op} of bfloat16")
        if info.native not in BOUNDED and any(isinstance(t, program.Bounded) for t in inputs):
            raise NotNative(f"{node.op} of rows of which it is not known how many there are")
        given = [None if t is None else self.b.with_products(t) for t in inputs]
        return info.native(self.b, KnownNode(node, known), given)

    def _elementwise(
        self, node: Node, inputs: Sequence[Tensor | None], known: Mapping[Value, Constant]
    ) -> Tensor | None:
        """By the DirectML operator that computes the same."""
        found = lower_to_directml(node, known)
        if found is None:
            return None
        operands = [program.seen_as(t, UINT16) if t.dtype is BFLOAT16 else t for t in inputs if t is not None]
        seen = [UINT8 if t.dtype is BOOL else t.dtype for t in operands]
        types = tuple(t for t in seen if isinstance(t, TensorDataType))
        if found.result not in _RESULTS or len(types) < len(seen):
            return None
        meaning = found.operator.expression(types, _RESULTS[found.result], found.attributes, 1)
        if row_axes(meaning):
            return None
        shapes = found.aligned(node, [t.sizes for t in operands])
        operands = [
            t if t.sizes == s else self.b.reshape(t, tuple(s)) for t, s in zip(operands, shapes, strict=True)
        ]
        operands, wrap = program.as_long_as_each_other(self.b, operands)
        result = wrap(self.b.elementwise(meaning, operands, truth=found.result == "bool"))
        return program.seen_as(result, BFLOAT16) if found.result == "bfloat16" else result

    def _iteration(self, node: Node) -> Sequence[Tensor]:
        typed = with_typed_bodies(node, self.constants, self.opsets, self.provider)
        body = typed.bodies.get("body")
        if body is None:
            raise NotNative(f"{node.op} in {node.label}")
        if node.is_onnx("Loop"):
            return self._loop(typed, body)
        if node.is_onnx("Scan") and node.op.version >= 9:
            return self._scan(typed, body)
        raise NotNative(f"{node.op} in {node.label}")

    def _loop(self, node: Node, body: Body) -> Sequence[Tensor]:
        given = [None if v is None else self.read(v) for v in (*node.inputs, None, None)]
        count, going = given[0], given[1]
        states = [t for t in given[2 : len(node.inputs)] if t is not None]
        if count is not None and (count.dtype is not INT64 or count.count != 1):
            raise NotNative("a trip count that is not one int64")
        ends = not always_goes_on(body, self.constants)
        if going is None:
            raise NotNative("a condition that begins with none")  # it was given one before
        always = isinstance(going, program.Known) and bool(going.array.all()) and not ends
        begins = None if always else truth(going)
        handed = going.sizes

        def write(number: Register, on: Register, current: list[Tensor]) -> Iterated:
            condition = program.Register(BOOL, handed, on.name)
            results = self.graph(body, dict(zip(body.parameters, (number, condition, *current), strict=True)))
            rows = 1 + len(states)
            return program.Iterated(truth(results[0]) if ends else None, results[1:rows], results[rows:])

        final, rows = program.repeat(self.b, count, begins, states, write)
        return [*final, *rows]

    def _scan(self, node: Node, body: Body) -> Sequence[Tensor]:
        n, b = KnownNode(node, {}), self.b
        given = [operand([None if v is None else self.read(v)]) for v in node.inputs]
        first = len(given) - n.int("num_scan_inputs")
        rows = len(node.outputs) - first

        def ways(what: str, count: int) -> list[tuple[int, int]]:
            """The axis and direction of each."""
            axes, directions = (
                n.ints(f"scan_{what}_{word}") or [0] * count for word in ("axes", "directions")
            )
            return list(zip(axes, directions, strict=True))

        turned: list[Memory] = []
        inputs = given[first:]
        for tensor, (axis, backward) in zip(inputs, ways("input", len(inputs)), strict=True):
            places = np.moveaxis(np.arange(tensor.count).reshape(tensor.sizes), axis, 0)
            turned.append(b.memory(b.rearrange(tensor, places[::-1] if backward else places)))
        if len({t.sizes[0] for t in turned}) != 1:
            raise NotNative("sequences of several lengths")
        b.held += turned

        def write(number: Register, on: Register, current: list[Tensor]) -> Iterated:
            items = []
            for t in turned:
                at = b.code.at(t.pointer, b.code.times(number.name, t.strides[0]), t.dtype)
                item = program.Memory(t.dtype, t.sizes[1:], at, t.strides[1:], t.lies_in)
                items.append(b.register(item) if item.small else item)
            results = self.graph(body, dict(zip(body.parameters, (*current, *items), strict=True)))
            return program.Iterated(None, results[:first], results[first:])

        count = program.Known.of(np.array(turned[0].sizes[0]))
        final, made = program.repeat(b, count, None, given[:first], write)
        del b.held[len(b.held) - len(turned) :]
        for tensor, (axis, backward) in zip(made, ways("output", rows), strict=True):
            places = np.arange(tensor.count).reshape(tensor.sizes)
            final.append(b.rearrange(tensor, np.moveaxis(places[::-1] if backward else places, 0, axis)))
        return final


_RESULTS = {dtype.label: dtype for dtype in TensorDataType if dtype.label != "bool"} | {
    "bool": UINT8,
    "bfloat16": UINT16,
}


def _folded(node: Node, inputs: Sequence[Tensor | None]) -> list[Tensor] | None:
    """What follows from what is known."""
    given = [t for t in inputs if t is not None]
    if not given or not has_rule(node.op) or not all(isinstance(t, program.Known) for t in given):
        return None
    try:
        results = fold(node, [t.array if isinstance(t, program.Known) else None for t in inputs])
    except (NotFoldable, NodeFailed):
        return None
    if not all(isinstance(r, np.ndarray) and r.size for r in results):
        raise NotNative(f"{node.label} gives no tensor with elements")
    return [program.Known.of(np.asarray(r)) for r in results]
