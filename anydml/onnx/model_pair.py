"""Two models beside each other: both are run on the same inputs, and their results are compared.

What the original's run ends the process with is kept from onnxruntime, and what onnxruntime is known to do
otherwise than ONNX says is not taken for a difference.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

from anydml.cached import cached_property
from anydml.dataclass import dataclass
from anydml.errors import AnyDMLError, Problem, Unsupported, VerificationFailed
from anydml.ir.dims import Affine, Dim, Symbol
from anydml.ir.graph import Graph, If, Node, TensorType, Value
from anydml.ir.transforms import replace_values
from anydml.onnx.closeness import (
    HALVES,
    Tolerance,
    both_without_rows,
    how_far,
    one_overflows,
    same,
    same_kind,
)
from anydml.onnx.execute.own_plans import OwnPlans
from anydml.onnx.node_validation import check_types
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.older_releases import nests_too_deep
from anydml.onnx.ops.opinfo import KnownNode, NodeView
from anydml.onnx.ops.quirks import quirks_in
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.protos import ModelProto
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import Call, Provider, Region, RegionFailed
from anydml.onnx.random_inputs import Feeds, shown
from anydml.onnx.schema import is_foreign
from anydml.onnx.serde.prune import without_dead_nodes
from anydml.onnx.serde.region_model import wrong_optimisations
from anydml.onnx.serde.whole_model import whole_model
from anydml.onnx.subgraphs import all_nodes
from anydml.onnx.types import DTYPES, leaf

MAX_RUN_SECONDS = 8.0
"""After which a run is ended."""
ROUNDED = Tolerance(of_largest=HALVES)
"""How far floats may be apart where both models round to few bits on the way."""


@dataclass(frozen=True)
class Ran:
    """What both gave on the same inputs, or None where one refused; why the original did; and the seconds."""

    first: list[Any] | None
    second: list[Any] | None
    why: str
    seconds: tuple[float, float]


class ModelPair:
    """A model and what was made of it.

    Args:
        graph: the original's, whose inputs say what is to be fed; and its `opsets`.
        folders: where external data of each lies.
        close: how far floats may be apart.

    Attributes:
        provider: what runs both.
        literal: whether it runs them node by node, since they round to few bits on the way.
        tame: whether neither is to be fed what is wild: nobody knows on what an operator of a library's own
            ends the process.
        takes_empty: whether inputs may have no elements.

    Raises:
        Unsupported: no provider runs the original.
        InvalidModel: an input of a node is of a type that its operator does not have.
    """

    def __init__(
        self,
        original: ModelProto,
        result: ModelProto,
        graph: Graph,
        opsets: Mapping[str, int],
        folders: tuple[Path | None, Path | None],
        close: Tolerance,
    ) -> None:
        self._original, self._result = without_dead_nodes(original), without_dead_nodes(result)
        self.graph = graph
        self._names = [v.name for v in graph.inputs]
        # some files list weights among the inputs, too
        self._left = [i.name for i in self._result.graph.input if i.name in self._names]
        self._folder, other = folders
        nodes = [n for n in graph.walk() if isinstance(n, Node)]
        self._loops = any(n.bodies for n in nodes)
        if self._loops:
            _declare_sizes(self._original, graph)
        self._typed = typed = annotate_types(graph, opsets, OnnxRuntime())
        worst = _worst(graph, typed, opsets)
        self.tame = any(is_foreign(n.op) for n in graph.walk(bodies=True) if isinstance(n, Node))
        self.takes_empty = not self.tame and worst != "empty"
        dtypes = _dtypes(graph)
        self.literal, self._halves = _rounds(graph, dtypes), "float16" in dtypes
        self._close = ROUNDED if self.literal and not close.given else close
        self._branches = any(isinstance(n, If) for n in graph.walk(bodies=True))
        without = list(wrong_optimisations(typed.nodes, typed.constants))
        self._first_region = partial(whole_model, self._original, self._names, self._folder, without)
        # a rank that nobody expects can end onnxruntime's process
        fast_too = all(leaf(v.type).sizes is not None for v in graph.inputs if v.type is not None)
        fast_too = fast_too and worst != "any" and not any(map(nests_too_deep, graph.nodes))
        compiled = _compile(self._first_region, nodes, self._folder, fast_too, self.literal)
        self.provider, self._declared, self._first = compiled
        self._second_region = whole_model(self._result, self._left, other, without, self._declared)
        its = OwnPlans(other, MAX_RUN_SECONDS) if isinstance(self.provider, OwnPlans) else self.provider
        self._second = its.compile(self._second_region, 1)
        self._by_chance = _decided_by_chance(graph, seeds=self._by_onnxruntime)

    @property
    def _by_onnxruntime(self) -> bool:
        return self.provider.name == "onnxruntime"

    def agrees(self, feeds: Feeds, seed: int) -> Ran | None:
        """What both give, if that is the same; None where both refuse, or the difference is another's fault.

        Raises:
            RegionEnded: a run took too long: a loop, perhaps, that only other inputs end.
            VerificationFailed: they do not do the same, with `seed` and the inputs.
        """
        ran = self._run(feeds, self._first, self._second)
        if not self.literal and self._may_be_fused(ran):
            ran = self._run(feeds, *self._node_by_node)
        nothing = any(getattr(x, "size", 1) == 0 for x in feeds.values())
        if ran.first is None and ran.second is not None:
            if nothing:  # a Reshape may have to find out a size of nothing, that the result knows
                return None
            if self._by_onnxruntime and (again := self._by_own_plans) is not None:
                self._first = again
                ran = self._run(feeds, self._first, self._second)
        a, b = ran.first, ran.second
        if a is None and (b is None or _is_left_out(ran.why, self._original, self._result)):
            return None
        if a is None or b is None:
            which = "only the original runs" if b is None else f"only the original fails ({ran.why})"
            raise VerificationFailed(Problem("verification", f"{which} on {shown(feeds)}, seed {seed}"))
        unlike = self._unlike(a, b, self._close)
        if not unlike:
            return ran
        if (nothing and _wrong_on_nothing(self._typed)) or (self._halves and one_overflows(a, b)):
            return None
        k = unlike[0]
        told = f"differs on {shown(feeds)}, seed {seed}{how_far(a[k], b[k], self._close)}"
        raise VerificationFailed(Problem(f"verification: output {self.graph.outputs[k].name!r}", told))

    def _run(self, feeds: Feeds, first: Call, second: Call) -> Ran:
        start = time.perf_counter()
        a, why = _ran(first, [feeds[n] for n in self._names])
        middle = time.perf_counter()
        b, _ = _ran(second, [feeds[n] for n in self._left])
        return Ran(a, b, why, (middle - start, time.perf_counter() - middle))

    def _unlike(self, a: list[Any], b: list[Any], close: Tolerance) -> list[int]:
        """Which outputs differ; of those that chance decides, whose kinds do."""

        def alike(value: Value, x: Any, y: Any) -> bool:
            if value in self._by_chance:
                return same_kind(x, y)
            return same(x, y, close) or (self._loops and both_without_rows(x, y))

        triples = zip(self.graph.outputs, a, b, strict=True)
        return [k for k, (v, x, y) in enumerate(triples) if not alike(v, x, y)]

    def _may_be_fused(self, ran: Ran) -> bool:
        """Whether onnxruntime may have fused one and not the other: is it the same node by node?"""
        a, b = ran.first, ran.second
        if a is None or b is None:
            return a is not None and not self._branches  # fused ones take fewer sizes
        return bool(self._unlike(a, b, self._close)) and not self._unlike(a, b, ROUNDED)

    @cached_property
    def _node_by_node(self) -> tuple[Call, Call]:
        runtime = OnnxRuntime(literal=True)
        regions = self._first_region(self._declared), self._second_region
        return runtime.compile(regions[0], 1), runtime.compile(regions[1], 1)

    @cached_property
    def _by_own_plans(self) -> Call | None:
        """The original, where onnxruntime refuses what ONNX allows, and the result has not any more."""
        try:
            return OwnPlans(self._folder, MAX_RUN_SECONDS).compile(self._first_region(True), 1)
        except AnyDMLError:
            return None


def _declare_sizes(proto: ModelProto, graph: Graph) -> None:
    """Have a file say what is known of its inputs' sizes, as the result does: where a loop has no iteration,
    onnxruntime takes the sizes of rows from what follows from those, and 0 for others."""
    asked = {v.name: v.type for v in graph.inputs}
    for given in proto.graph.input:
        type = asked.get(given.name)
        if not isinstance(type, TensorType) or type.sizes is None or not given.type.HasField("tensor_type"):
            continue
        shape = given.type.tensor_type.shape
        while len(shape.dim) < len(type.sizes):  # the file does not tell the rank
            shape.dim.add()
        for dim, n in zip(shape.dim, type.sizes, strict=True):
            if isinstance(n, int):
                dim.dim_value = n


def _compile(
    region: Callable[[bool], Region],
    nodes: Sequence[Node],
    folder: Path | None,
    fast_too: bool,
    literal: bool,
) -> tuple[Provider, bool, Call]:
    """The first provider that takes the model, and whether it did so with the types that the file declares:
    for that, `region` is told whether it is to have them.

    Some files declare what does not follow: onnxruntime infers it itself if it is not told. A model that can
    end its process is run by our own plans.
    """
    fast, own = OnnxRuntime(MAX_RUN_SECONDS, literal=literal), OwnPlans(folder, MAX_RUN_SECONDS)
    for declared in (True, False) if fast_too else ():
        try:
            return fast, declared, fast.compile(region(declared), 1)
        except Unsupported:
            continue
    for node in nodes:
        check_types(node)
    return own, True, own.compile(region(True), 1)


def _rounds(graph: Graph, dtypes: Set[str | None]) -> bool:
    """Whether it rounds to few bits on the way, as quantized models do: one operation more or less in a fused
    kernel shows in the results then. `dtypes`: of what is in it."""
    names = [n.op.name for n in graph.walk(bodies=True) if isinstance(n, Node)]
    quantizes = any("Quant" in n or "QLinear" in n or "Integer" in n for n in names)
    return quantizes or bool(dtypes & {"float16", "bfloat16"})


def _dtypes(graph: Graph) -> Set[str | None]:
    """The types of what is in a model, as far as they are known."""
    nodes = [n for n in graph.walk(bodies=True) if isinstance(n, Node)]
    made = {NodeView(n).attribute("to") for n in nodes if n.is_onnx("Cast")}
    values = [*graph.inputs, *(v for inner in graph.graphs() for v in inner.constants)]
    values += [v for n in nodes for v in n.writes]
    return {*map(DTYPES.get, made), *(leaf(v.type).dtype for v in values if v.type is not None)}


def _decided_by_chance(graph: Graph, seeds: bool) -> set[Value]:
    """What follows from random numbers that others draw, or that are others where nodes have other numbers.

    `seeds`: whether what has a seed in the file always draws the same.
    """
    found: set[Value] = set()
    for node in graph.nodes:
        inner = [n for body in node.subgraphs for n in body.walk(bodies=True)]
        drawing = any(isinstance(n, Node) and _draws(n, seeds) for n in (node, *inner))
        if drawing or not found.isdisjoint(node.reads):
            found.update(node.writes)
    return found


def _draws(node: Node, seeds: bool) -> bool:
    """Whether it draws random numbers that may be others."""
    if seeds and "seed" in node.attributes:
        return False
    info = info_of(node.op)
    return info is not None and info.draws is not None and info.draws(KnownNode(node, {}))


def _worst(graph: Graph, typed: Graph, opsets: Mapping[str, int]) -> str:
    """On which inputs onnxruntime might end the process, or do something else than with the result, which is
    written otherwise: on "none", on those of a size of 0, or on "any"."""

    def fatal(graph: Graph) -> bool:
        return any(q.fatal or q.unrolled or (q.mended and not q.empty) for q in quirks_in(graph))

    if not fatal(typed):
        return "none"
    positive: dict[Dim, Dim] = {}

    def at_least_one(value: Value) -> Value:
        if not isinstance(value.type, TensorType) or value.type.sizes is None:
            return value
        sizes = []
        for n in value.type.sizes:
            known = n if isinstance(n, int) else positive.get(n) if n is not None else None
            if known is None:
                known = Affine.of(Symbol(least=1))
                if n is not None:
                    positive[n] = known
            sizes.append(known)
        return Value(value.name, TensorType(value.type.dtype, tuple(sizes)))

    without_empty = replace_values(graph, {v: at_least_one(v) for v in graph.inputs})
    return "any" if fatal(annotate_types(without_empty, opsets, OnnxRuntime())) else "empty"


def _wrong_on_nothing(typed: Graph) -> bool:
    """Whether onnxruntime might do something else than ONNX says where there are no elements."""
    return any(q.empty for q in quirks_in(typed))


def _is_left_out(why: str, original: ModelProto, result: ModelProto) -> bool:
    """Whether an operator failed of which the result has fewer: one of which only sizes are needed, or what a
    loop writes over, is gone there, and so is what it refuses."""
    told = re.findall(r"running (\w+) node", why) or re.findall(r"^node '.*?' \((\w+)\)", why)
    return bool(told) and _count(result, told[-1]) < _count(original, told[-1])  # the innermost


def _count(model: ModelProto, op: str) -> int:
    nodes = (*model.graph.node, *(n for f in model.functions for n in f.node))
    return sum(n.op_type == op for n in all_nodes(nodes))


def _ran(call: Call, values: list[Any]) -> tuple[list[Any] | None, str]:
    try:
        return call(values), ""
    except RegionFailed as failure:
        return None, failure.message
