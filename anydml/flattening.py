"""Models without `If`, for devices that have none.

    flat, report = flatten("model.onnx", fixed={"sr": 16000})
    onnx.save(flat, "flat.onnx")

An If goes where its condition follows from what is known; where both branches do the same; and where both
can run, and one result is chosen. `Report` says what became of each.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import onnx
from onnx import ModelProto

from anydml.errors import InvalidInput, Problem, VerificationFailed, short_repr, translate_memory_error
from anydml.ir.dims import are_sizes
from anydml.ir.graph import Body, Constant, Graph, If, Node, TensorType, Type, Value
from anydml.ir.transforms import eliminate_dead_code, make_subgraph, replace_values
from anydml.onnx.if_conversion.convert import Conversion, Convert, Decision
from anydml.onnx.if_conversion.cost import Budget, graph_flops
from anydml.onnx.if_conversion.cost import time as time_of
from anydml.onnx.if_conversion.placeholders import safe_placeholders
from anydml.onnx.input_shapes import Shapes, sized, unknown_names
from anydml.onnx.ops.opinfo import Symbols
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.partial_eval.bodies import with_nodes_of
from anydml.onnx.partial_eval.evaluator import FoldedIf, specialize
from anydml.onnx.partial_eval.shape_inference import ShapeInference
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.rewrites.duplicates import merge_duplicates
from anydml.onnx.rewrites.fold_weights import fold_weights
from anydml.onnx.rewrites.pipeline import simplify
from anydml.onnx.serde.deserialize import Model, read_proto
from anydml.onnx.serde.local_functions import called, functions_about_ifs, functions_with_if, inline_functions
from anydml.onnx.serde.parse import ModelSource, parse
from anydml.onnx.serde.serialize import declares_types, model_proto
from anydml.onnx.subgraphs import in_order
from anydml.onnx.types import CODES
from anydml.onnx.verification import Verified
from anydml.onnx.verification import verify as _verify

Witnesses = Mapping[Value, tuple[int, ...]]
"""Sizes for inputs on which nothing fails."""


@dataclass(frozen=True)
class IfReport:
    """What became of one If.

    Attributes:
        path: the way through the branches to it, and its name.
        decision: `folded`, `merged`, `converted`, `guarded` or `kept`.
        because: why.
        extra_work: multiplications and additions that now run speculatively, about and at most.
        nodes: how many there are more than before, or fewer; those of Ifs in it are told with them.
    """

    path: str
    decision: str
    because: str
    extra_work: int = 0
    nodes: int = 0


@dataclass(frozen=True)
class Size:
    """What a model consists of. `work`: multiplications and additions of a run, about, once what is known is
    folded; of an If, those of its larger branch.
    """

    ifs: int
    nodes: int
    bytes: int
    work: int
    operators: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """What `flatten` did."""

    ifs: tuple[IfReport, ...]
    before: Size
    after: Size
    verified: Verified | None

    @property
    def left(self) -> int:
        """Ifs that are still there, in bodies of loops too."""
        return self.after.ifs

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        return asdict(self)


MAX_ROUNDS = 5
"""Of folding and converting, in case nothing settles."""
Attempt = tuple[ModelProto, Report]
MIN_VERIFY_SECONDS, MAX_THOROUGH_SECONDS = 0.5, 60.0


@translate_memory_error
def flatten(
    model: ModelSource,
    *,
    fixed: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
    convert: Convert = "auto",
    max_extra_cost: float = 0.2,
    witness: Mapping[str, Sequence[int]] | None = None,
    verify: bool | Literal["thorough"] = True,
    seed: int = 0,
    trials: int = 24,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ModelProto, Report]:
    """A model without Ifs, or with as few as may be.

    Args:
        model: a path, a file's bytes, or an `onnx.ModelProto`.
        fixed: contents of inputs, by name. They are no inputs of the result.
        shapes: sizes of inputs, by name: numbers; None for a size that stays open; names for sizes that are
            equal wherever they stand.
        convert: `always`: whatever it costs; `auto`: where it costs little; `never`: only fold.
        max_extra_cost: for `auto`: how much longer the model may take, about, where an If's shorter branch is
            taken: 0.2 is a fifth.
        witness: sizes of inputs on which no branch fails, where `always` does not find them itself.
        verify: whether to run both models on random inputs, and compare. That takes about as long as the
            rewriting, or half a second; "thorough": ten times as many inputs, and up to a minute.
        seed: of these inputs.
        trials: how many of them, if there is time.
        progress: is told how many trials of how many are done.

    Returns:
        The new model, and what became of each If. External data stays in its files: save the model in the
        original's folder (`anydml flatten` copies the data where that is not so).

    Raises:
        InvalidInput: an unknown input, a value or a shape that does not fit it.
        InvalidModel, Unsupported, OSError: as `load` does.
        VerificationFailed: the result does not do the same, whichever Ifs are kept: a fault of anydml.
    """
    start = time.monotonic()

    proto, folder, where = parse(model)
    proto = in_order(proto)
    if proto.functions:
        while in_the_way := functions_with_if(proto) or functions_about_ifs(proto):
            count, proto = len(proto.functions), inline_functions(proto, where, in_the_way)
            if len(proto.functions) == count:  # ONNX's inliner did not know one
                break
    read = read_proto(proto, folder, where)
    contents, types = check_request(read, fixed or {}, shapes or {}, witness or {}, convert)
    witnesses = {v: tuple(s) for v in read.graph.inputs if (s := (witness or {}).get(v.name)) is not None}

    def attempt(avoided: Mapping[str, str]) -> Attempt:
        work = _Flattening(read, proto, convert, max_extra_cost, avoided)
        graph = work.flattened(read.graph, types, contents, witnesses)
        if declares_types(proto.graph) or any(isinstance(n, If) for n in graph.walk(bodies=True)):
            # what it says of types is what follows, and not how it came to be
            graph = annotate_types(graph, read.opsets, OnnxRuntime())
        result = model_proto(graph, proto)
        sizes = _size(proto, work.flops_before), _size(result, graph_flops(graph))
        return result, Report(tuple(work.reports), *sizes, None)

    done = attempt({})
    if not verify:
        return done
    thorough = verify == "thorough"
    seconds = MAX_THOROUGH_SECONDS if thorough else max(time.monotonic() - start, MIN_VERIFY_SECONDS)
    given = {v.name: c.content for v, c in contents.items()}
    asked = {v: Value(v.name, types.get(v, v.type)) for v in read.graph.inputs}
    sized = replace_values(read.graph, asked)

    def verified(attempted: Attempt) -> Attempt:
        result, report = attempted
        count = trials * 10 if thorough else trials
        done = _verify(proto, result, sized, read.opsets, given, folder, seed, count, seconds, progress)
        return result, replace(report, verified=done)

    try:
        return verified(done)
    except VerificationFailed as failure:
        return _without_faults(done[1], failure, lambda avoided: verified(attempt(avoided)))


def _without_faults(
    report: Report, failure: VerificationFailed, attempt: Callable[[Mapping[str, str]], Attempt]
) -> Attempt:
    """The model with as few Ifs kept as make it do the same.

    Raises:
        VerificationFailed: it does not even where all of them are kept.
    """
    because = f"without it, the result would differ: {failure.problems[0].message}"
    kept = {one.path: because for one in report.ifs if one.decision in ("converted", "guarded", "merged")}
    try:
        best = attempt(kept)
    except VerificationFailed:
        raise failure from None
    part = -(-len(kept) // 2)
    while part and kept:  # give back halves, quarters, ... as long as it still does the same
        paths = list(kept)
        for begin in range(0, len(paths), part):
            fewer = {p: kept[p] for p in kept if p not in paths[begin : begin + part]}
            try:
                best, kept = attempt(fewer), fewer
            except VerificationFailed:
                continue
        part //= 2
    return best


class _Flattening:
    """One model on its way: main graph first, then the bodies of loops."""

    def __init__(
        self,
        model: Model,
        proto: ModelProto,
        convert: Convert,
        max_extra_cost: float,
        avoided: Mapping[str, str],
    ) -> None:
        self.avoided = avoided
        self.opsets, self.proto = model.opsets, proto
        self.convert, self.max_extra_cost = convert, max_extra_cost
        self.oracle = ShapeInference(model.opsets, OnnxRuntime())
        self.reports: list[IfReport] = []
        self.flops_before = 0
        self.integers: dict[Value, Symbols] = {}
        """What is known of integers in terms of symbols."""

    def flattened(
        self,
        graph: Graph,
        types: Mapping[Value, Type],
        contents: Mapping[Value, Constant],
        witnesses: Witnesses,
    ) -> Graph:
        """The flat graph, for inputs of these types and contents."""
        graph, _, kept = self._flatten_graph(graph, types, contents, witnesses)
        self.reports += kept
        return graph

    def _flatten_graph(
        self,
        graph: Graph,
        types: Mapping[Value, Type],
        contents: Mapping[Value, Constant],
        witnesses: Witnesses,
        inside: bool = False,
    ) -> tuple[Graph, tuple[Value, ...], list[IfReport]]:
        """The flat graph, what stands in it for the inputs, and what is to be said of the Ifs that are kept.

        What rewrites, flat bodies and what is made in the place of an If may be known, and so fold more: all
        is done again until nothing changes. `inside`: it is a body.
        """
        stood = graph.inputs
        kept: list[Decision] = []
        left: list[IfReport] = []
        for number in range(MAX_ROUNDS):
            special = specialize(graph, types, contents, self.opsets, self.oracle.provider, deep=True)
            self.reports += [_report_folded(f) for f in special.folded]
            self.integers |= special.integers
            new = dict(zip(graph.inputs, special.inputs, strict=True))
            stood = tuple(new.get(v, v) for v in stood)
            witnesses = {new[v]: sizes for v, sizes in witnesses.items()}
            folded = simplify(special.graph)
            if not inside and not number:
                self.flops_before = graph_flops(folded)
            if not number:
                budget = Budget(time_of(folded.nodes), self.max_extra_cost)
            result, decisions = self._convert(folded, witnesses, budget)
            kept = [d for d in decisions if d.what == "kept"]
            self.reports += [_report_decision(d) for d in decisions if d.what != "kept"]
            left = []
            looped = self._flatten_bodies(result, witnesses, left)
            before = [special.graph, graph] if number else [special.graph]
            settled = looped is result and _outline(result) in map(_outline, before)
            graph, types, contents = eliminate_dead_code(looped), {}, {}
            if settled:
                break
        origins = {n.origin for n in graph.walk() if isinstance(n, If)}
        for d in kept:
            gone = replace(d, what="merged", because="nothing needs what it gives")
            left.append(_report_decision(d if d.node.origin in origins else gone))
        return graph, stood, left

    def _convert(self, graph: Graph, witnesses: Witnesses, budget: Budget) -> tuple[Graph, list[Decision]]:
        """The graph with as few Ifs as may be, and what was decided of each that it has."""
        conversion = Conversion(
            self.opsets.get("", 1),
            self.convert,
            budget,
            self._infer,
            lambda branch: safe_placeholders(branch, self.oracle, witnesses, graph.constants),
            avoided=lambda node: self.avoided.get(path_to(node)),
        )
        converted = merge_duplicates(simplify(conversion.converted(graph)))
        return fold_weights(converted, self.oracle), conversion.decisions

    def _infer(self, branch: Graph, around: Mapping[Value, Constant]) -> Graph:
        """A branch, typed anew."""
        known = {v: around[v] for v in branch.inputs if v in around}
        provider = self.oracle.provider
        special = specialize(branch, {}, known, self.opsets, provider, integers=self.integers)
        graph = replace_values(special.graph, dict(zip(special.inputs, branch.inputs, strict=True)))
        own = {v: c for v, c in graph.constants.items() if v not in around}
        return simplify(make_subgraph(graph.name, graph.nodes, graph.outputs, own))

    def _flatten_bodies(self, graph: Graph, witnesses: Witnesses, kept: list[IfReport]) -> Graph:
        """The graph with its loops' bodies flattened, those in branches too; itself if nothing changed."""
        nodes = tuple(self._with_flat_bodies(n, graph, witnesses, kept) for n in graph.nodes)
        same = all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
        return graph if same else replace(graph, nodes=nodes)

    def _with_flat_bodies(
        self, node: Node | If, graph: Graph, witnesses: Witnesses, kept: list[IfReport]
    ) -> Node | If:
        """A node with its bodies flattened, or with its branches' loops'; itself if nothing changed."""
        if isinstance(node, If):
            then_branch, else_branch = (self._flatten_bodies(b, witnesses, kept) for _, b in node.branches)
            same = then_branch is node.then_branch and else_branch is node.else_branch
            return node if same else replace(node, then_branch=then_branch, else_branch=else_branch)
        if not node.contains_if:
            return node
        bodies = {n: self._flat_body(node, b, graph, witnesses, kept) for n, b in node.bodies.items()}
        same = all(a is b for a, b in zip(bodies.values(), node.bodies.values(), strict=True))
        return node if same else replace(node, bodies=bodies)

    def _flat_body(
        self, node: Node, body: Body, graph: Graph, witnesses: Witnesses, kept: list[IfReport]
    ) -> Body:
        known = {v: graph.constants[v] for v in body.inputs if v in graph.constants}
        types = {v: t for v in body.inputs if (t := v.type) is not None}
        if node.is_onnx("Loop"):  # runtimes hand on the shape of the condition that they are given
            types[body.parameters[1]] = TensorType("bool")
        inner = {v: witnesses[v] for v in body.inputs if v in witnesses}
        flat, stood, left = self._flatten_graph(body.standalone, types, known, inner, inside=True)
        kept += left
        if _outline(flat) == _outline(body):
            return body
        flat = replace_values(flat, dict(zip(stood, (*body.parameters, *body.inputs), strict=True)))
        return with_nodes_of(body, flat, known)


# ---- what is asked for -------------------------------------------------------------------------------


def check_request(
    model: Model, fixed: Mapping[str, Any], shapes: Shapes, witness: Mapping[str, Sequence[int]], convert: str
) -> tuple[dict[Value, Constant], dict[Value, Type]]:
    """Contents and types of inputs, or all that is wrong with them."""
    problems: list[Problem] = []
    inputs = {v.name: v for v in model.graph.inputs}
    if convert not in ("auto", "always", "never"):
        problems.append(Problem("convert", f"expected auto, always or never, but got {short_repr(convert)}"))
    for word, given in (("fixed", fixed), ("shapes", shapes), ("witness", witness)):
        problems += unknown_names(word, given, inputs)
    problems += [
        Problem(f"witness {name!r}", f"expected sizes, but got {short_repr(asked)}")
        for name, asked in witness.items()
        if not are_sizes(asked)
    ]
    contents: dict[Value, Constant] = {}
    for name, value in inputs.items():
        if name in fixed:
            array, wrong = _content(fixed[name], value.type)
            if wrong is not None or array is None:
                problems.append(Problem(f"fixed {name!r}", wrong or ""))
            else:
                contents[value] = Constant(array)
    fixed_shapes = {v.name: c.content.shape for v, c in contents.items()}
    types, wrong_sizes = sized(inputs, {**shapes, **fixed_shapes})
    problems += wrong_sizes
    if problems:
        raise InvalidInput(*problems)
    return contents, types


def _content(value: Any, type: Type | None) -> tuple[np.ndarray | None, str | None]:
    """What an input is fixed to as an array of its type; or what is wrong with it."""
    if not isinstance(type, TensorType):
        return None, "expected an input that is a tensor"
    dtype = (
        onnx.helper.tensor_dtype_to_np_dtype(CODES[type.dtype])
        if type.dtype != "string"
        else np.dtype(object)
    )
    try:
        given = np.asarray(value) if type.dtype != "string" else np.asarray(value, object)
        array = given.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return None, f"expected {type.dtype}, but got {short_repr(value)}"
    if type.dtype != "string" and (
        given.dtype.kind in "OUS" or not np.array_equal(array.astype(given.dtype), given)
    ):
        return None, f"expected {type.dtype}, but got {short_repr(value)}"
    rank = None if type.sizes is None else len(type.sizes)
    if (
        rank is not None
        and array.ndim == 0
        and rank > 0
        and all(n == 1 or not isinstance(n, int) for n in type.sizes or ())
    ):
        array = array.reshape((1,) * rank)
    return array, None


# ---- the report --------------------------------------------------------------------------------------


def _outline(graph: Graph) -> object:
    """What a graph consists of, so that a change can be told."""
    return Counter(
        ("If", len(n.outputs), len(n.then_branch.nodes), len(n.else_branch.nodes))
        if isinstance(n, If)
        else (str(n.op), len(n.outputs))
        for n in graph.walk(bodies=True)
    )


def path_to(node: Node | If) -> str:
    """How a report calls a node: the way through branches and bodies to it."""
    own = node.name or ("If" if isinstance(node, If) else str(node.op))
    return "/".join((*node.path, own))


def _report_folded(folded: FoldedIf) -> IfReport:
    decision = "merged" if folded.taken is None else "folded"
    because = folded.because
    if folded.taken is not None:
        because = f"{'then' if folded.taken else 'else'}: {because}"
    gone = folded.node.branches if folded.taken is None else folded.node.branches[int(folded.taken) :][:1]
    saved = 1 + sum(len(list(b.walk())) for _, b in gone)
    return IfReport(path_to(folded.node), decision, because, nodes=-saved)


def _report_decision(decision: Decision) -> IfReport:
    return IfReport(
        path_to(decision.node), decision.what, decision.because, decision.extra_work, decision.nodes
    )


def _size(proto: ModelProto, work: int) -> Size:
    operators = Counter(name for _, name in called(proto.graph))
    nodes = sum(operators.values())
    return Size(operators["If"], nodes, proto.ByteSize(), work, dict(sorted(operators.items())))
