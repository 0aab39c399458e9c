"""Whether two models do the same: both run on random inputs, drawn to take different branches.

The integers that a model compares with are among those drawn (a sample rate, a flag), and sizes that are
free are drawn from small ones and from those given. A third of the inputs are wild: NaN and infinities,
integers below zero and out of range; but not where operators are a library's own. That both fail alike
counts as the same. What no output needs is left out of both: the original may fail in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from anydml.dataclass import dataclass, field
from anydml.errors import AnyDMLError, Problem, Unsupported, VerificationFailed, counted
from anydml.ir.dims import Affine, Dim, Symbol
from anydml.ir.graph import (
    Graph,
    If,
    Node,
    TensorType,
    Value,
)
from anydml.ir.transforms import replace_values
from anydml.onnx.closeness import (
    DEFAULT,
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
from anydml.onnx.providers.provider import Call, Provider, Region, RegionEnded, RegionFailed
from anydml.onnx.random_inputs import (
    MAX_ELEMENTS,
    Sizes,
    compared_with,
    drawn,
    elements_of,
    guess_sizes,
    shown,
)
from anydml.onnx.schema import is_foreign
from anydml.onnx.serde.prune import without_dead_nodes
from anydml.onnx.serde.region_model import wrong_optimisations
from anydml.onnx.serde.whole_model import whole_model
from anydml.onnx.subgraphs import all_nodes
from anydml.onnx.types import DTYPES, leaf

SIZES = (1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 288, 512, 576, 1024, 0)
MAX_ATTEMPTS_PER_TRIAL = 20
"""Attempts for each that is wanted: most random sizes fit no model."""
MIN_TRIALS = 3
"""That agree, however long they take: a model may take seconds for a run."""
MAX_SECONDS_WITHOUT_SUCCESS = 8.0
"""After which it is given up, if no input was accepted."""
MAX_RUN_SECONDS = 8.0
"""After which a run is ended."""
ROUNDED = Tolerance(of_largest=HALVES)
"""How far floats may be apart where both models round to few bits on the way."""
MAX_ENDED_RUNS = 4
"""After so many it is enough, if time is up."""
WARM_UP = 4
"""Runs that are not counted where times are compared."""


@dataclass(frozen=True)
class Verified:
    """How often both models ran, how often both refused, the seed, and what ran them.

    `time_ratio`: how long the new model took, of the original's time, on one thread of onnxruntime; None if
    another provider ran them, or too seldom. Random inputs are small: of a large one it may be another.
    `empty`: of those on which both ran, how many had no elements where they could have had some.
    """

    agreed: int
    refused: int
    seed: int
    provider: str
    time_ratio: float | None = field(default=None, compare=False)
    empty: int = 0

    @property
    def conclusive(self) -> bool:
        """Whether both ran on something: many models take what has no elements, and then do nothing."""
        return self.agreed > self.empty

    def __str__(self) -> str:
        refused = f", both refused {counted(self.refused, 'other')}" if self.refused else ""
        return f"{counted(self.agreed, 'random input')} with {self.provider}{refused} (seed {self.seed})"


def verify(
    original: ModelProto,
    result: ModelProto,
    graph: Graph,
    opsets: Mapping[str, int],
    fixed: Mapping[str, Any],
    folder: Path | None,
    seed: int,
    trials: int,
    seconds: float,
    progress: Callable[[int, int], None] | None = None,
    sizes: Sequence[int] = SIZES,
    tolerance: Tolerance = DEFAULT,
) -> Verified:
    """Compare a model with what was made of it.

    Args:
        graph: the original's, whose inputs say what is to be fed; and its `opsets`.
        fixed: contents of inputs that the result does not have.
        folder: where external data of both lies.
        trials: inputs that both are to run on, if that takes no more than `seconds`.
        tolerance: how far floats may be apart.

    Raises:
        VerificationFailed: an output differs, or only one of them failed, with the seed and the inputs; but
            the result may take inputs without elements that the original does not.
        Unsupported: no provider runs the original.
        InvalidModel: an input of a node is of a type that its operator does not have.
    """
    original, result = without_dead_nodes(original), without_dead_nodes(result)
    names = [v.name for v in graph.inputs]
    left = [i.name for i in result.graph.input if i.name in names]  # some files list weights there, too
    nodes = [n for n in graph.walk() if isinstance(n, Node)]
    if loops := any(n.bodies for n in nodes):
        _declare_sizes(original, graph)
    # a rank that nobody expects can end onnxruntime's process
    fast_too = all(leaf(v.type).sizes is not None for v in graph.inputs if v.type is not None)
    fast_too = fast_too and not any(map(nests_too_deep, graph.nodes))
    typed = annotate_types(graph, opsets, OnnxRuntime())
    worst = _worst(graph, typed, opsets)
    # nobody knows on what an operator of a library's own ends the process
    tame = any(is_foreign(n.op) for n in graph.walk(bodies=True) if isinstance(n, Node))
    if tame or worst == "empty":
        sizes = [n for n in sizes if n]
    dtypes = _dtypes(graph)
    literal, halves = _rounds(graph, dtypes), "float16" in dtypes
    without = list(wrong_optimisations(typed.nodes, typed.constants))
    first_region = partial(whole_model, original, names, folder, without)
    provider, declared, first = _compile(first_region, nodes, folder, fast_too and worst != "any", literal)
    second_region = whole_model(result, left, folder, without, declared)
    second = provider.compile(second_region, 1)
    close = ROUNDED if literal and not tolerance.given else tolerance

    @cache
    def exact() -> list[Call]:
        runtime = OnnxRuntime(literal=True)
        return [runtime.compile(r, 1) for r in (first_region(declared), second_region)]

    @cache
    def by_own_plans() -> Call | None:
        """The original, where onnxruntime refuses what ONNX allows, and the result has not any more."""
        try:
            return OwnPlans(folder, MAX_RUN_SECONDS).compile(first_region(True), 1)
        except AnyDMLError:
            return None

    def fused(a: list[Any] | None, b: list[Any] | None) -> bool:
        """Whether onnxruntime may have fused one and not the other: is it the same node by node?"""
        if a is None or b is None:
            return a is not None and not branches  # fused ones take fewer sizes
        return bool(unlike_at(a, b, close)) and not unlike_at(a, b, ROUNDED)

    def unlike_at(a: list[Any], b: list[Any], close: Tolerance) -> list[str]:
        """The names of outputs that differ; of those that chance decides, whose kinds do."""

        def alike(x: Any, y: Any) -> bool:
            return same(x, y, close) or (loops and both_without_rows(x, y))

        triples = zip(graph.outputs, a, b, strict=True)
        return [v.name for v, x, y in triples if not (same_kind if v in chance else alike)(x, y)]

    branches = any(isinstance(n, If) for n in graph.walk(bodies=True))
    chance = _decided_by_chance(graph, seeds=provider.name == "onnxruntime")
    numbers = compared_with(graph)
    always_empty = {v.name for v in graph.inputs if 0 in (v.sizes or ())}
    agreed = refused = ended = empty = 0
    good: list[Sizes] = []
    seconds_each: list[tuple[float, float]] = []
    start = time.monotonic()
    while agreed < trials and agreed + refused < MAX_ATTEMPTS_PER_TRIAL * trials:
        took = time.monotonic() - start
        if took > seconds and (agreed >= MIN_TRIALS or ended >= MAX_ENDED_RUNS):
            break
        if took > max(seconds, MAX_SECONDS_WITHOUT_SUCCESS) and not agreed:
            break
        rng = np.random.default_rng((seed, agreed + refused))
        shapes = good[rng.integers(len(good))] if good and rng.integers(2) else guess_sizes(graph, sizes, rng)
        if elements_of(graph, shapes) > MAX_ELEMENTS:  # may be declared so large that nothing has room
            refused += 1
            continue
        feeds = drawn(graph, fixed, numbers, shapes, rng, tame)
        try:
            began = time.perf_counter()
            a, why = _ran(first, [feeds[n] for n in names])
            middle = time.perf_counter()
            b, _ = _ran(second, [feeds[n] for n in left])
            took_both = middle - began, time.perf_counter() - middle
        except RegionEnded:  # a loop, perhaps, that only other inputs end
            refused, ended = refused + 1, ended + 1
            continue
        if not literal and fused(a, b):
            (a, why), (b, _) = (
                _ran(c, [feeds[n] for n in k]) for c, k in zip(exact(), (names, left), strict=True)
            )
        nothing = any(getattr(x, "size", 1) == 0 for x in feeds.values())
        if a is None and b is not None and nothing:
            refused += 1  # a Reshape may have to find out a size of nothing, that the result knows
            continue
        if a is None and b is not None and provider.name == "onnxruntime" and (again := by_own_plans()):
            first, a = again, _ran(again, [feeds[n] for n in names])[0]
        if a is None and b is not None and _is_left_out(why, original, result):
            refused += 1
            continue
        if (a is None) != (b is None):
            which = "only the original runs" if b is None else f"only the original fails ({why})"
            raise VerificationFailed(Problem("verification", f"{which} on {shown(feeds)}, seed {seed}"))
        if a is None or b is None:
            refused += 1
        else:
            unlike = unlike_at(a, b, close)
            if unlike and ((nothing and _wrong_on_nothing(typed)) or (halves and one_overflows(a, b))):
                refused += 1
                continue
            if unlike:
                where = f"verification: output {unlike[0]!r}"
                k = [v.name for v in graph.outputs].index(unlike[0])
                told = f"differs on {shown(feeds)}, seed {seed}{how_far(a[k], b[k], close)}"
                raise VerificationFailed(Problem(where, told))
            agreed += 1
            empty += any(getattr(x, "size", 1) == 0 for n, x in feeds.items() if n not in always_empty)
            if agreed > WARM_UP:
                seconds_each.append(took_both)
            good.append(shapes)
        if progress is not None:
            progress(agreed, trials)
    one, other = (sum(column) for column in zip(*seconds_each, strict=True)) if seconds_each else (0.0, 0.0)
    ratio = other / one if one and provider.name == "onnxruntime" and not literal else None
    return Verified(agreed, refused, seed, provider.name, ratio, empty)


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
