"""A specialised graph to a plan: which nodes become kernels, and which regions go to a library.

    element-wise nodes, reductions and
    Transposes, where it pays           -> our kernels, fused
    everything else                     -> onnxruntime, in maximal regions
    what that does not take, or wrong   -> the operator's NumPy rule, or onnx.reference, a node at a time
    If, and loops around an If          -> steps of ours that run programs

Steps stand on levels, whose kinds alternate: regions, single steps, kernels. Each node is as early as its
inputs allow, so there is one region and one group of kernels a level, and nothing waits in a circle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import prod
from types import MappingProxyType
from typing import Any

from anydml.errors import Problem, Unsupported, counted
from anydml.ir.graph import Constant, Graph, If, MapType, Node, SequenceType, TensorType, Type, Value
from anydml.onnx.execute.checks import check_node, check_sizes, fixed_type, unsupported
from anydml.onnx.execute.cost_model import connected, seconds
from anydml.onnx.execute.directml_lowering import as_directml, lower_to_directml
from anydml.onnx.execute.loops import iterates, iteration
from anydml.onnx.execute.partition import Partition, ProviderRegistry, levels
from anydml.onnx.execute.steps import (
    BranchStep,
    KernelsStep,
    Plan,
    RegionStep,
    RuleStep,
    Step,
    UnlessEmptyStep,
)
from anydml.onnx.execute.views import ViewStep
from anydml.onnx.node_validation import check_types
from anydml.onnx.ops.fold import fold, has_rule
from anydml.onnx.ops.opinfo import NodeFailed, NotFoldable, Sizes
from anydml.onnx.ops.quirks import has_empty_input, reference_error
from anydml.onnx.ops.revisions import others
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.providers.onnxruntime import DTYPES, knows_opset, newest_opset
from anydml.onnx.providers.provider import Call, Provider, RegionFailed
from anydml.onnx.schema import unknown_operator
from anydml.onnx.serde.byte_products import multiplies_bytes
from anydml.onnx.serde.node_writer import used_constants
from anydml.onnx.serde.region_model import region
from anydml.onnx.serde.tensors import MIN_WEIGHT_BYTES
from anydml.onnx.types import numpy_type
from anydml.runtime.arena import Arena
from anydml.runtime.mapped_file import owned

ProgramOf = Callable[[Graph], Any]
_log = logging.getLogger("anydml.session")
logging.getLogger("anydml").addHandler(logging.NullHandler())  # nothing is printed unless somebody asks


def lower(
    graph: Graph,
    libraries: ProviderRegistry,
    program: ProgramOf,
    alone: bool,
    code: bool = True,
    declared: Mapping[Value, Sizes] = MappingProxyType({}),
) -> Plan:
    """The plan of a specialised graph.

    Args:
        program: makes the runnable of a branch.
        alone: nothing else computes between its runs.
        code: whether code may be made of what the fast library takes.
        declared: what the model says of sizes of inputs, and of outputs of which none are inferred.

    Raises:
        Unsupported: no provider runs one of the nodes.
    """
    apart: dict[Node | If, str] = {}
    while True:  # each round that fails has learned of more nodes that the library refuses
        try:
            return _Lowering(graph, libraries, program, apart, code, declared).plan(alone)
        except _Refused:
            continue


def gains_by_code(graph: Graph, libraries: ProviderRegistry) -> bool:
    """Whether the plan of a specialised graph has code of what the fast library takes, too."""
    return Partition(graph, libraries).gains_by_code


class _Refused(Exception):
    """The fast library did not take a region; what it takes of it, and what not, is known now."""


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        libraries: ProviderRegistry,
        program: ProgramOf,
        apart: dict[Node | If, str],
        code: bool,
        declared: Mapping[Value, Sizes],
    ) -> None:
        self.graph, self.libraries, self.program, self.apart = graph, libraries, program, apart
        self.declared = declared
        self.slots: dict[Value, int] = {}
        self.arena = Arena()
        libraries.arenas.add(self.arena)
        self.placement = Partition(graph, libraries, apart, code)
        self.place = self.placement.place

    def plan(self, alone: bool) -> Plan:
        graph = self.graph
        check_sizes(graph)
        for value in (*graph.inputs, *graph.constants):
            self.slot(value)
        by_level = levels(graph.nodes, self.place)
        regions = [items for items in by_level if self.place(items[0]) == "region"]
        self.main = regions[0] if len(regions) == 1 else max(regions, key=seconds, default=[])
        self.alone = alone and len(by_level) == 1
        own = sum(seconds(items) for items in by_level if self.place(items[0]) == "kernels")
        if own and seconds(self.main) < own:
            self.main = []
        steps = [step for items in by_level for step in self._steps(items)]
        outputs = tuple(self.slot(v) for v in graph.outputs)
        template: list[Any] = [None] * len(self.slots)
        read = {k for step in steps for k in step.reads} | set(outputs)
        for value, constant in graph.constants.items():
            if self.slots[value] in read:
                template[self.slots[value]] = owned(constant.content)
        inputs = tuple(self.slots[v] for v in graph.inputs)
        fresh = {k for step in steps if step.fresh for k in step.writes}
        places = list(enumerate(zip(graph.outputs, outputs, strict=True)))
        passed = frozenset(p for p, (v, _) in places if v in graph.constants or v in graph.inputs)
        unsure = frozenset(
            p for p, (v, k) in places if k not in fresh or k in outputs[:p] or _may_share(v.type)
        )
        drops = _drops(steps, set(outputs))
        return Plan(template, inputs, tuple(steps), outputs, drops, unsure - passed, passed)

    def slot(self, value: Value) -> int:
        return self.slots.setdefault(value, len(self.slots))

    # ---- steps

    def _steps(self, nodes: list[Node | If]) -> list[Step]:
        """The steps of one level."""
        place = self.place(nodes[0])
        if place == "single":
            return [self._single(node) for node in nodes]
        if place == "kernels":
            return self._kernels([n for n in nodes if isinstance(n, Node)])
        try:
            return [self._region(nodes, self.libraries.fast)]
        except Unsupported as error:
            self._isolate_unsupported(nodes, error.problems[0].message)
            raise _Refused from error

    def _isolate_unsupported(self, region: Sequence[Node | If], why: str) -> None:
        """Find out which nodes made the library refuse a region: each kind is offered alone, once."""
        refused, kinds = self.libraries.refused, [self.placement.kind(n) for n in region]
        if len(region) == 1:
            refused[kinds[0]] = why
            return
        for node, kind in zip(region, kinds, strict=True):
            if kind not in refused:
                refused[kind] = self._probe(node, None)
        if not any(map(refused.get, kinds)):
            self.apart |= dict.fromkeys(region, why)

    def _probe(self, node: Node | If, opset: int | None) -> str:
        """Offer a node alone to the fast library, and answer with its reason where it refuses."""
        try:
            self._region([node], self.libraries.fast, opset)
        except Unsupported as error:
            return error.problems[0].message
        return ""

    def _single(self, node: Node | If) -> Step:
        if isinstance(node, If):
            return self._branch(node)
        check_types(node)
        if iterates(node):
            read = {v for n in self.graph.nodes for v in n.reads} | {*self.graph.outputs}
            wanted = replace(node, outputs=tuple(v if v in read else None for v in node.outputs))
            return iteration(wanted, self.program, self._result)
        if node.fails:
            return self._failing(node)
        if node in self.placement.views:
            return self._view(node)
        quirk = self.placement.quirk(node)
        if quirk is not None:
            if quirk.empty and not has_empty_input(node) and not self._probe(node, None):
                fast, slow = self._region([node], self.libraries.fast), self._slow(node, quirk.told)
                return UnlessEmptyStep(fast, slow)
            return self._slow(node, quirk.told)
        why = self.placement.refusal(node)
        if node in self.apart and not why:
            return self._region([node], self.libraries.fast, because=self.apart[node])
        for opset in others(node) if why else ():
            key = self.placement.kind(node), opset
            if key not in self.libraries.refused:
                self.libraries.refused[key] = self._probe(node, opset)
            if not self.libraries.refused[key]:
                return self._region([node], self.libraries.fast, opset)
        return self._slow(node, why)

    def _failing(self, node: Node) -> RuleStep:
        """A step that raises: nothing is told before a run, since it may be in a branch that is not taken."""

        def call(values: list[Any]) -> list[Any]:
            raise RegionFailed(0, node.fails)

        reads, writes = tuple(map(self.slot, node.reads)), tuple(map(self.slot, node.writes))
        return RuleStep(node, call, reads, writes, f"fails: {node.fails}")

    def _slow(self, node: Node, why: str) -> Step:
        """A step of one node that the fast library does not run, and why."""
        check_node(node, self.libraries.opsets)
        if not knows_opset(node.op.version):
            told = "%s: onnxruntime does not run %s, and what does is slow; a newer one may have it"
            _log.warning(told, node.label, node.op)
        elif why in self.libraries.refused.values():
            told = "%s: onnxruntime does not run %s, and what does is slow: %s"
            _log.warning(told, node.label, node.op, why)
        if has_rule(node.op) and (node.op.domain or not unknown_operator(node.op)):
            return self._rule(node, why)
        try:
            if (wrong := reference_error(node)) is not None:
                raise Unsupported(Problem("", wrong))
            return self._region([node], self.libraries.complete, because=why)
        except Unsupported as error:
            wrong = "" if why in self.libraries.refused.values() else why
            raise unsupported(node, str(error.problems[0]), wrong) from error

    def _rule(self, node: Node, why: str) -> RuleStep:
        """A step by the operator's own rule; cases that it leaves open go to the complete library."""
        read, written = node.reads, node.writes

        @cache
        def library() -> Call:
            if (wrong := reference_error(node)) is not None:
                raise RegionFailed(0, f"no provider has this case of {node.op}: {wrong}")
            try:
                return self.libraries.complete.compile(
                    region([node], read, written, {}, self.libraries.opsets), 1
                )
            except Unsupported as error:
                raise RegionFailed(0, error.problems[0].message) from error

        def call(values: list[Any]) -> list[Any]:
            given = iter(values)
            try:
                results = fold(node, [None if v is None else next(given) for v in node.inputs])
            except NotFoldable:
                return library()(values)
            except NodeFailed as failure:
                raise RegionFailed(0, str(failure)) from failure
            return [r for r, v in zip(results, node.outputs, strict=True) if v is not None]

        reads, writes = tuple(map(self.slot, read)), tuple(map(self.slot, written))
        return RuleStep(node, call, reads, writes, why)

    def _view(self, node: Node) -> ViewStep:
        """A step that only sees the memory of its input otherwise, as the operator's rule says."""
        step, constants = self._rule(node, ""), self.graph.constants
        others = [constants[v].content for v in node.reads[1:]]

        def sizes(x: Any) -> tuple[int, ...]:
            (made,) = step.rule([x, *others])
            return tuple(made.shape)

        return ViewStep(node, sizes, step.reads[:1], step.writes)

    def _branch(self, node: If) -> BranchStep:
        programs = [self.program(branch) for _, branch in node.branches]
        because = self.placement.obstacle(node) or "kernels compute its branches faster"
        then_reads, else_reads = (tuple(self.slot(v) for v in branch.inputs) for _, branch in node.branches)

        def explain() -> str:
            lines = [f"{node.label}: the condition is known only when it runs; {because}"]
            for (word, _), program in zip(node.branches, programs, strict=True):
                lines += [f"  {word}:", *("    " + line for line in program.explain().splitlines())]
            return "\n".join(lines)

        return BranchStep(
            node,
            self.slot(node.condition),
            programs[0],
            programs[1],
            then_reads,
            else_reads,
            tuple(self._result(v) for v in node.outputs),
            explain,
        )

    def _result(self, value: Value | None) -> int:
        """The slot of an output; one that nobody named gets a slot that nobody reads."""
        return self.slot(Value("unused") if value is None else value)

    def _ends(self, nodes: Sequence[Node | If]) -> tuple[list[Value], dict[Value, Constant], list[Value]]:
        """What a group of nodes reads, the constants among that, and what others read of its results."""
        written = {v for node in nodes for v in node.writes}
        read = dict.fromkeys(v for node in nodes for v in node.reads if v not in written)
        constants = {v: c for v, c in self.graph.constants.items() if v in read}
        for branch in (b for n in nodes if isinstance(n, If) for _, b in n.branches):
            constants |= used_constants(branch)
        outside = set(self.graph.outputs)
        members = set(nodes)
        for other in self.graph.nodes:
            if other not in members:
                outside.update(other.reads)
        wanted = [v for node in nodes for v in node.writes if v in outside]
        last = {v: k for k, v in enumerate(self.graph.outputs)}
        wanted.sort(key=lambda v: last.get(v, len(last)))  # as the graph gives them
        return list(read), constants, wanted

    def _kernels(self, nodes: list[Node]) -> list[Step]:
        """Element-wise nodes in one step; those that are connected with others apart, as sizes decide
        whether kernels run them."""
        rows = [g for g in connected(nodes) if not self.placement.moved.keys().isdisjoint(g)]
        among = {n for g in rows for n in g}
        elementwise = [n for n in nodes if n not in among]
        steps: list[Step] = [self._group(elementwise, None)] if elementwise else []
        return steps + [self._group(group, cache(partial(self._without_kernels, group))) for group in rows]

    def _group(self, nodes: list[Node], others: Callable[[], Step] | None) -> KernelsStep:
        read, constants, outputs = self._ends(nodes)
        moved = self.placement.moved
        axes = {v for n in nodes if n in moved for v in n.inputs[1:]}
        axes -= {v for n in nodes for v in (n.inputs[:1] if n in moved else n.inputs)}
        inputs = [v for v in read if v not in axes and (v not in constants or constants[v].content.size != 1)]
        results = {
            n.outputs[0]: m.result for n in nodes if (m := lower_to_directml(n, constants)) is not None
        }
        results |= {n.outputs[0]: moved[n].result_type for n in nodes if n in moved}
        return KernelsStep(
            tuple(nodes),
            tuple(numpy_type(v.type.dtype) for v in inputs if isinstance(v.type, TensorType)),
            tuple(numpy_type(results[v]) for v in outputs),
            lambda shapes: as_directml(nodes, inputs, shapes, constants, outputs, moved),
            self.libraries.threads,
            tuple(map(self.slot, inputs)),
            tuple(map(self.slot, outputs)),
            self.arena,
            others,
        )

    def _without_kernels(self, nodes: list[Node]) -> Step:
        """A step that computes the same as kernels would, for sizes that these do not have."""
        try:
            return self._region(nodes, self.libraries.fast)
        except Unsupported as error:
            why = error.problems[0].message
        read, constants, outputs = self._ends(nodes)
        made = region(nodes, read, outputs, {}, self.libraries.opsets)
        call = self.libraries.complete.compile(made, 1)
        inputs = [v for v in read if v not in constants]

        def compute(values: list[Any]) -> list[Any]:
            given = iter(values)
            return call([constants[v].content if v in constants else next(given) for v in read])

        reads, writes = tuple(map(self.slot, inputs)), tuple(map(self.slot, outputs))
        return RuleStep(nodes[0], compute, reads, writes, why)

    def _threads(self, nodes: Sequence[Node | If]) -> int:
        """Of a region: what was asked for (0: the library's default) where it has most of the work, and more
        than kernels, whose workers would wait for cores; else one."""
        return (self.libraries.asked_threads or 0) if nodes is self.main else 1

    def _with_types(self, nodes: Sequence[Node | If]) -> Sequence[Node | If]:
        """The nodes, with types in bodies where products are written by the types of their factors."""
        constants, libraries = self.graph.constants, self.libraries
        return [
            with_typed_bodies(n, constants, libraries.opsets, libraries.fast)
            if isinstance(n, Node) and multiplies_bytes(n)
            else n
            for n in nodes
        ]

    def _region(
        self, nodes: Sequence[Node | If], provider: Provider, opset: int | None = None, because: str = ""
    ) -> RegionStep:
        """A step of these nodes; `opset`: another one at which they mean the same."""
        read, constants, outputs = self._ends(nodes)
        opsets = dict(self.libraries.opsets) | ({} if opset is None else {"": opset})
        weights: dict[Value, Constant] = {}
        if provider is self.libraries.fast:
            if not knows_opset(opsets[""]):
                opsets[""] = newest_opset()
            weights = {v: c for v, c in constants.items() if _is_weight(v)}
        else:  # nothing is gained where a constant is told from an input
            constants = {}
        inputs = [v for v in read if v not in constants]
        small = {v: c for v, c in constants.items() if v not in weights}
        typed = self._with_types(nodes) if provider.exact else nodes
        made = region(typed, inputs, outputs, small, opsets, weights, self.declared, provider.exact)
        if made.rewritten:
            changed = counted(made.rewritten, "node")
            told = f"{changed} changed so that products of 8-bit integers are exact and fast"
            because = f"{because}; {told}" if because else told
        call = self.libraries.compile(provider, made, self._threads(nodes), self.alone)
        ends = [fixed_type(v) for v in (*inputs, *outputs)]
        known = [e for e in ends if e is not None]
        if len(known) == len(ends):
            call = provider.fixed(call, known[: len(inputs)], known[len(inputs) :])
        reads, writes = tuple(map(self.slot, inputs)), tuple(map(self.slot, outputs))
        fresh = provider is self.libraries.fast  # the other one makes views
        ranks = tuple(v.rank for v in outputs)
        return RegionStep(provider.name, call, tuple(nodes), reads, writes, ranks, because, fresh)


def _may_share(type: Type | None) -> bool:
    """Whether a library's new result may have arrays that are others' too: items of sequences."""
    if isinstance(type, SequenceType):
        return not isinstance(type.element, MapType)
    return not isinstance(type, TensorType)


def _is_weight(value: Value) -> bool:
    """Whether a constant is large enough to be shared instead of copied, and of a type that can be."""
    ends = fixed_type(value)
    if ends is None or ends[0] not in DTYPES or ends[0] == "string":
        return False
    return prod(ends[1]) * numpy_type(ends[0]).itemsize >= MIN_WEIGHT_BYTES


def _drops(steps: Sequence[Step], kept: set[int]) -> tuple[tuple[int, ...], ...]:
    """For each step, the slots whose last use it is."""
    seen = set(kept)
    drops = []
    for step in reversed(steps):
        touched = dict.fromkeys((*step.reads, *step.writes))
        drops.append(tuple(k for k in touched if k not in seen))
        seen.update(touched)
    return tuple(reversed(drops))
