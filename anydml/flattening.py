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
from dataclasses import replace
from typing import Any, Literal

from anydml.errors import InvalidInput, Problem, VerificationFailed, short_repr, translate_memory_error
from anydml.flatten_report import (
    IfReport,
    Report,
    path_to,
    report_decision,
    report_folded,
    report_remaining,
    report_unrolled,
    size_of,
)
from anydml.ir.graph import Body, Constant, Graph, If, Node, OptionalType, TensorType, Type, Value
from anydml.ir.transforms import eliminate_dead_code, make_subgraph, replace_values
from anydml.onnx.closeness import Tolerance
from anydml.onnx.conditions import conditions
from anydml.onnx.if_conversion.convert import Conversion, Convert, Decision
from anydml.onnx.if_conversion.cost import Budget, graph_flops
from anydml.onnx.if_conversion.cost import time as time_of
from anydml.onnx.if_conversion.placeholders import safe_placeholders
from anydml.onnx.if_conversion.predication import without_predicates
from anydml.onnx.input_shapes import Shapes, check_request
from anydml.onnx.model_pair import ModelPair
from anydml.onnx.ops.opinfo import Symbols
from anydml.onnx.opsets import at_opset
from anydml.onnx.partial_eval.annotate import annotate_types, refused_inside, with_typed_bodies
from anydml.onnx.partial_eval.bodies import with_nodes_of
from anydml.onnx.partial_eval.evaluator import specialize
from anydml.onnx.partial_eval.shape_inference import ShapeInference
from anydml.onnx.protos import ModelProto
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.rewrites.duplicates import merge_duplicates
from anydml.onnx.rewrites.empty_constants import make_empty_constants
from anydml.onnx.rewrites.fold_weights import fold_weights
from anydml.onnx.rewrites.grown_sequences import lists_as_rows
from anydml.onnx.rewrites.hidden_sizes import hide_sizes
from anydml.onnx.rewrites.pipeline import around_quirks, simplify, with_known_shapes
from anydml.onnx.rewrites.sequences import follow_sequences
from anydml.onnx.rewrites.split_sequences import lists_as_tensors
from anydml.onnx.rewrites.trip_counts import with_trip_counts
from anydml.onnx.rewrites.unroll import longest
from anydml.onnx.rewrites.unroll import unroll as unroll_loops
from anydml.onnx.serde.deserialize import Model, read_proto
from anydml.onnx.serde.local_functions import functions_about_ifs, functions_with_if, inline_functions
from anydml.onnx.serde.parse import ModelSource, parse
from anydml.onnx.serde.serialize import declares_types, model_proto
from anydml.onnx.subgraphs import in_order
from anydml.onnx.verification import verify as _verify

Witnesses = Mapping[Value, tuple[int, ...]]
"""Sizes for inputs on which nothing fails."""


MAX_ROUNDS = 8
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
    unroll: int = 16,
    opset: int | None = None,
    verify: bool | Literal["thorough"] = True,
    seed: int = 0,
    trials: int = 24,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ModelProto, Report]:
    """A model without Ifs, or with as few as may be.

    Args:
        model: a path, a file's bytes, or an `onnx.ModelProto`.
        fixed: contents of inputs, by name. They are no inputs of the result. None: an optional input that
            never has content.
        shapes: sizes of inputs, by name: numbers; None for a size that stays open; names for sizes that are
            equal wherever they stand. An optional input of which they are given always has content: it is a
            tensor in the result.
        convert: `always`: whatever it costs; `auto`: where it costs little; `never`: only fold.
        max_extra_cost: for `auto`: how much longer the model may take, about, where an If's shorter branch is
            taken: 0.2 is a fifth.
        witness: sizes of inputs on which no branch fails, where `always` does not find them itself.
        opset: write the result at an older opset, from 13 on, where each of ONNX's operators means the same;
            where one does not, onnx's converter is tried.
        unroll: loops of a known count up to this are unrolled, Scan likewise; 0: none.
        verify: whether to run both models on random inputs, and compare. That takes about as long as the
            rewriting, or half a second; "thorough": ten times as many inputs, and up to a minute.
        seed: of these inputs.
        trials: how many of them, if there is time.
        rtol, atol: how far floats of outputs may be apart, as for `compare`.
        progress: is told how many trials of how many are done.

    Returns:
        The new model, and what became of each If. External data stays in its files: save the model in the
        original's folder, behind links, if it is one (`anydml flatten` copies the data where that is not so).

    Raises:
        InvalidInput: an unknown input, a value or a shape that does not fit it.
        InvalidModel, OSError: as `load` does.
        Unsupported: as `load` does; or some node means something else at the older opset.
        VerificationFailed: the result does not do the same, whichever Ifs are kept: a fault of anydml.
    """
    start = time.monotonic()
    close = Tolerance(rtol, atol)
    _check_limits(max_extra_cost, unroll)

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

    def attempt(avoided: Mapping[str, str], early: bool = convert == "always") -> Attempt:
        work = _Flattening(read, proto, convert, max_extra_cost, unroll, avoided, early)
        graph = work.flattened(read.graph, types, contents, witnesses)
        if work.made_more_ifs(graph):  # than there were in a loop
            return attempt(avoided, early=False)
        nested = any(isinstance(n, If) or n.bodies for n in graph.walk())
        if nested:
            refused = refused_inside(graph, read.opsets, OnnxRuntime())
            graph = hide_sizes(graph, refused, read.opsets.get("", 1))
        graph = _without_absent(graph)
        if declares_types(proto.graph) or nested:
            # what it says of types is what follows, and not how it came to be
            graph = annotate_types(graph, read.opsets, OnnxRuntime())
        graph = make_empty_constants(graph, read.opsets.get("", 1))
        result = at_opset(graph, proto, opset) if opset is not None else model_proto(graph, proto)
        sizes = size_of(proto, work.flops_before), size_of(result, graph_flops(graph))
        return result, Report(work.told(graph), *sizes, None, longest(graph))

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
        pair = ModelPair(proto, result, sized, read.opsets, (folder, folder), close)
        done = _verify(pair, given, seed, count, seconds, progress)
        return result, replace(report, verified=done)

    try:
        return verified(done)
    except VerificationFailed as failure:
        return _without_faults(done[1], failure, lambda avoided: verified(attempt(avoided)))


def _without_absent(graph: Graph) -> Graph:
    """The graph without inputs that never have content, where nobody asks for it."""
    read = {v for n in graph.nodes for v in n.reads} | set(graph.outputs)
    absent = {v for v in graph.inputs if isinstance(v.type, OptionalType) and v.type.empty} - read
    return replace(graph, inputs=tuple(v for v in graph.inputs if v not in absent))


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


def _check_limits(max_extra_cost: object, unroll: object) -> None:
    problems = []
    if (
        isinstance(max_extra_cost, bool)
        or not isinstance(max_extra_cost, int | float)
        or not max_extra_cost >= 0
    ):
        message = f"expected a number from 0 on, but got {short_repr(max_extra_cost)}"
        problems.append(Problem("max_extra_cost", message))
    if isinstance(unroll, bool) or not isinstance(unroll, int) or unroll < 0:
        problems.append(Problem("unroll", f"expected an integer from 0 on, but got {short_repr(unroll)}"))
    if problems:
        raise InvalidInput(*problems)


class _Flattening:
    """One model on its way: main graph first, then the bodies of loops."""

    def __init__(
        self,
        model: Model,
        proto: ModelProto,
        convert: Convert,
        max_extra_cost: float,
        unroll: int,
        avoided: Mapping[str, str],
        early: bool,
    ) -> None:
        """`early`: loops are unrolled that may end before, too."""
        self.avoided, self.early = avoided, early
        self.asking: dict[object, str] = {}
        """Ifs of unrolled loops, which ask whether these still run: their origins, and paths."""
        self.opsets, self.proto = model.opsets, proto
        self.convert, self.max_extra_cost, self.unroll = convert, max_extra_cost, unroll
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

    def made_more_ifs(self, graph: Graph) -> bool:
        """Whether Ifs are left of loops that were unrolled."""
        return any(n.origin in self.asking for n in graph.walk(bodies=True) if isinstance(n, If))

    def told(self, graph: Graph) -> tuple[IfReport, ...]:
        """What became of the Ifs, with what decides those that stay."""
        left = {path_to(n): n.origin for n in graph.walk(bodies=True) if isinstance(n, If)}
        known = conditions(graph)
        return tuple(
            report_remaining(one, known[left[one.path]], self.convert)
            if one.decision == "kept" and one.path in left
            else one
            for one in self.reports
            if one.path not in self.asking.values()
        )

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
            self.reports += [report_folded(f) for f in special.folded]
            self.integers |= special.integers
            new = dict(zip(graph.inputs, special.inputs, strict=True))
            stood = tuple(new.get(v, v) for v in stood)
            witnesses = {new[v]: sizes for v, sizes in witnesses.items()}
            folded = simplify(special.graph, in_file=True)
            if not inside and not number:
                self.flops_before = graph_flops(folded)
            if not number:
                budget = Budget(time_of(folded.nodes), self.max_extra_cost)
            unrolled = folded if inside or number + 2 > MAX_ROUNDS else self._without_loops(folded)
            if unrolled is not folded:  # what it is made of is typed before anything is decided
                graph, types, contents = eliminate_dead_code(unrolled), {}, {}
                continue
            result, decisions = self._convert(folded, witnesses, budget)
            kept = [d for d in decisions if d.what == "kept"]
            self.reports += [report_decision(d) for d in decisions if d.what != "kept"]
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
            left.append(report_decision(d if d.node.origin in origins else gone))
        return graph, stood, left

    def _convert(self, graph: Graph, witnesses: Witnesses, budget: Budget) -> tuple[Graph, list[Decision]]:
        """The graph with as few Ifs as may be, and what was decided of each that it has."""
        conversion = Conversion(
            self.opsets.get("", 1),
            self.convert,
            budget,
            self._infer,
            lambda branch, conditions: safe_placeholders(
                branch, self.oracle, witnesses, graph.constants, conditions
            ),
            in_vain=around_quirks,
            avoided=lambda node: self.avoided.get(path_to(node)),
        )
        converted = merge_duplicates(simplify(conversion.converted(graph), in_file=True))
        return fold_weights(converted, self.oracle), conversion.decisions

    def _infer(self, branch: Graph, around: Mapping[Value, Constant]) -> Graph:
        """A branch, typed anew."""
        known = {v: around[v] for v in branch.inputs if v in around}
        provider = self.oracle.provider
        special = specialize(branch, {}, known, self.opsets, provider, integers=self.integers)
        graph = replace_values(special.graph, dict(zip(special.inputs, branch.inputs, strict=True)))
        own = {v: c for v, c in graph.constants.items() if v not in around}
        branch = make_subgraph(graph.name, graph.nodes, graph.outputs, own)
        return with_known_shapes(simplify(branch, in_file=True))

    def _without_loops(self, graph: Graph) -> Graph:
        """The graph without loops of known counts, and without sequences that are known."""

        def typed(node: Node, known: Mapping[Value, Constant]) -> Node:
            return with_typed_bodies(node, known, self.opsets, self.oracle.provider)

        rows = lists_as_rows(with_trip_counts(lists_as_tensors(graph, typed)), typed)
        graph, unrolled = unroll_loops(rows, self.unroll, early=self.early)
        self.reports += map(report_unrolled, unrolled)
        self.asking |= {made.origin: path_to(made) for one in unrolled for made in one.ifs}
        return follow_sequences(graph, branches=True)

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
        flat = without_predicates(flat)  # around it, they would have to say more
        flat = replace_values(flat, dict(zip(stood, (*body.parameters, *body.inputs), strict=True)))
        return with_nodes_of(body, flat, known)


def _outline(graph: Graph) -> object:
    """What a graph consists of, so that a change can be told."""
    return Counter(
        ("If", len(n.outputs), len(n.then_branch.nodes), len(n.else_branch.nodes))
        if isinstance(n, If)
        else (str(n.op), len(n.outputs))
        for n in graph.walk(bodies=True)
    )
