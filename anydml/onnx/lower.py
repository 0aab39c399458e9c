"""A specialised graph to a plan: which nodes become kernels, and which regions go to a library.

    element-wise nodes, where it pays   -> our kernels, fused
    everything else                     -> onnxruntime, in maximal regions
    what that does not take             -> onnx.reference, a node at a time
    If, and loops around an If          -> steps of ours that run programs

Steps stand on levels, whose kinds alternate: regions, single steps, kernels. Each node is as early as its
inputs allow, so there is one region and one group of kernels a level, and nothing waits in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import onnx

from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value
from anydml.ir.provider import Call, Provider, Region
from anydml.onnx.bodies import contains_if, graphs_of
from anydml.onnx.constants import LARGE
from anydml.onnx.elementwise import as_directml, meaning_of
from anydml.onnx.form import schema_of
from anydml.onnx.iteration import iteration
from anydml.onnx.nodes import OWN
from anydml.onnx.types import CODES, leaf, onnx_name
from anydml.onnx.unfit import unfit
from anydml.onnx.write import IR_VERSION, node_proto, region_proto
from anydml.problems import ExecutionFailed, InvalidModel, Problem, Unsupported
from anydml.runtime.arena import Arena
from anydml.runtime.library import DTYPES, OnnxRuntime, Reference, newest_opset
from anydml.runtime.memory import size_problem
from anydml.runtime.run import BranchStep, ElementwiseStep, Plan, RegionStep, Step

ProgramOf = Callable[[Graph], Any]


@dataclass
class Libraries:
    """The providers, and what one model's plans have had compiled or refused by them."""

    opsets: Mapping[str, int]
    threads: int
    fast: Provider = field(default_factory=OnnxRuntime)
    complete: Provider = field(default_factory=Reference)
    regions: WeakValueDictionary[tuple[str, Region], Call] = field(default_factory=WeakValueDictionary)
    refused: dict[object, bool] = field(default_factory=dict)
    """Kinds of nodes that the fast library was asked about alone, and whether it refused."""

    def compiled(self, provider: Provider, region: Region) -> Call:
        """The region from an earlier plan, or compiled now."""
        key = (provider.name, region)
        call = self.regions.get(key)
        if call is None:
            call = self.regions[key] = provider.compile(region, self.threads)
        return call


def lower(graph: Graph, libraries: Libraries, program: ProgramOf) -> Plan:
    """The plan of a specialised graph. `program` makes the runnable of a branch.

    Raises:
        Unsupported: no provider runs one of the nodes.
    """
    while True:  # each round that fails has learned of another kind of node that the library refuses
        try:
            return _Lowering(graph, libraries, program).plan()
        except _Refused:
            continue


class _Refused(Exception):
    """The fast library took none of a region; `Libraries.refused` now says more."""


class _Lowering:
    def __init__(self, graph: Graph, libraries: Libraries, program: ProgramOf) -> None:
        self.graph, self.libraries, self.program = graph, libraries, program
        self.slots: dict[Value, int] = {}
        self.arena = Arena()
        self.elementwise = self._worthwhile()

    def plan(self) -> Plan:
        graph = self.graph
        _check_sizes(graph)
        for value in (*graph.inputs, *graph.constants):
            self.slot(value)
        steps = [step for items in self._levels() for step in self._steps(items)]
        outputs = tuple(self.slot(v) for v in graph.outputs)
        template: list[Any] = [None] * len(self.slots)
        read = {k for step in steps for k in step.reads} | set(outputs)
        for value, constant in graph.constants.items():
            if self.slots[value] in read:
                template[self.slots[value]] = constant.content
        inputs = tuple(self.slots[v] for v in graph.inputs)
        fresh = {k for step in steps if not _lends(step) for k in step.writes}
        shared = frozenset(p for p, k in enumerate(outputs) if k not in fresh or k in outputs[:p])
        drops = _drops(steps, set(outputs))
        return Plan(
            template, inputs, tuple(steps), outputs, drops, shared, self.arena, _returned(steps, outputs)
        )

    def slot(self, value: Value) -> int:
        return self.slots.setdefault(value, len(self.slots))

    # ---- levels

    def _levels(self) -> list[list[Node | If]]:
        """The nodes by level. The level's remainder by the number of kinds tells who runs them."""
        at: dict[Value, int] = {}
        levels: dict[int, list[Node | If]] = {}
        for node in self.graph.nodes:
            level = max((at.get(v, 0) for v in node.reads), default=0)
            level += (_KINDS.index(self._place(node)) - level) % len(_KINDS)
            levels.setdefault(level, []).append(node)
            for value in node.writes:
                at[value] = level
        return [levels[k] for k in sorted(levels)]

    def _place(self, node: Node | If) -> str:
        """Who runs a node: the fast library's "region", our "kernels", or a "single" step."""
        if isinstance(node, If):
            return "single"
        if node in self.elementwise:
            return "kernels"
        return "region" if self._fast_takes(node) else "single"

    def _worthwhile(self) -> set[Node]:
        """The element-wise nodes that our kernels shall run.

        All of them where nothing else is left for a library but its call. Else whole groups over large
        tensors; a cheap node between two convolutions stays in their region.
        """
        nodes = [n for n in self.graph.nodes if isinstance(n, Node)]
        able = {n: None for n in nodes if meaning_of(n) is not None}
        if not any(self._fast_takes(n) for n in nodes if n not in able):
            return set(able)
        chosen: set[Node] = set()
        for group in _connected(list(able)):
            largest = max(_elements(v) for n in group for v in n.writes)
            if len(group) >= LEAST_NODES and largest >= LEAST_ELEMENTS:
                chosen.update(group)
        return chosen | {n for n in able if not self._fast_takes(n)}

    def _fast_takes(self, node: Node) -> bool:
        assert isinstance(node.op, OnnxOp)
        if node.op.domain == OWN:
            return False
        if any(v.type is None or leaf(v.type).dtype not in DTYPES for v in node.reads):
            return False
        if any(v.type is not None and leaf(v.type).dtype not in DTYPES for v in node.writes):
            return False
        if (
            node.op.domain == ""
            and node.op.version > newest_opset()
            and not _same_meaning(node.op, newest_opset())
        ):
            return False
        if unfit(node):
            return False
        refused = self.libraries.refused
        return not contains_if(node) and not (refused and refused.get(_kind(node)))

    # ---- steps

    def _steps(self, nodes: list[Node | If]) -> list[Step]:
        """The steps of one level."""
        place = self._place(nodes[0])
        if place == "single":
            return [self._single(node) for node in nodes]
        region = [n for n in nodes if isinstance(n, Node)]
        if place == "kernels":
            return [self._kernels(region)]
        try:
            return [self._region(region, self.libraries.fast)]
        except Unsupported as error:
            self._blame(region)
            raise _Refused from error

    def _blame(self, region: list[Node]) -> None:
        """Find out which kinds of nodes made the library refuse a region: each is offered alone, once."""
        refused = self.libraries.refused
        for node in region:
            if len(region) > 1 and _kind(node) not in refused:
                try:
                    self._region([node], self.libraries.fast)
                    refused[_kind(node)] = False
                except Unsupported:
                    refused[_kind(node)] = True
        if not any(refused.get(_kind(n)) for n in region):  # each alone, but not together
            refused.update((_kind(n), True) for n in region)

    def _single(self, node: Node | If) -> Step:
        if isinstance(node, If):
            return self._branch(node)
        if contains_if(node):
            return iteration(node, self.libraries.opsets, self.program, self._result)
        _check_node(node, self.libraries.opsets)
        try:
            return self._region([node], self.libraries.complete)
        except Unsupported as error:
            raise Unsupported(
                Problem(
                    node.label,
                    f"no provider runs {node.op} of opset {_version(node)}",
                    str(error.problems[0]),
                )
            ) from error

    def _branch(self, node: If) -> BranchStep:
        programs = [self.program(branch) for _, branch in node.branches]
        then_reads, else_reads = (tuple(self.slot(v) for v in branch.inputs) for _, branch in node.branches)

        def explain() -> str:
            lines = [f"{node.label}: the condition is known only when it runs"]
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

    def _ends(self, nodes: list[Node]) -> tuple[list[Value], dict[Value, Constant], list[Value]]:
        """What a group of nodes reads, the constants among that, and what others read of its results."""
        written = {v for node in nodes for v in node.writes}
        read = dict.fromkeys(v for node in nodes for v in node.reads if v not in written)
        constants = {v: c for v, c in self.graph.constants.items() if v in read}
        outside = set(self.graph.outputs)
        members = set(nodes)
        for other in self.graph.nodes:
            if other not in members:
                outside.update(other.reads)
        return list(read), constants, [v for node in nodes for v in node.writes if v in outside]

    def _kernels(self, nodes: list[Node]) -> ElementwiseStep:
        read, constants, outputs = self._ends(nodes)
        numbers = {v: c for v, c in constants.items() if c.content.size == 1}
        inputs = [v for v in read if v not in numbers]
        results = {n.outputs[0]: m.result for n in nodes if (m := meaning_of(n)) is not None}
        return ElementwiseStep(
            tuple(nodes),
            tuple(_numpy(v.type.dtype) for v in inputs if isinstance(v.type, TensorType)),
            tuple(_numpy(results[v]) for v in outputs),
            lambda shapes: as_directml(nodes, inputs, shapes, numbers, outputs),
            self.libraries.threads,
            tuple(map(self.slot, inputs)),
            tuple(map(self.slot, outputs)),
            self.arena,
        )

    def _region(self, nodes: list[Node], provider: Provider) -> RegionStep:
        read, constants, outputs = self._ends(nodes)
        opsets = dict(self.libraries.opsets)
        weights: dict[Value, Constant] = {}
        if provider is self.libraries.fast:
            opsets[""] = min(opsets[""], newest_opset())
            weights = {v: c for v, c in constants.items() if _is_weight(v)}
        else:  # nothing is gained where a constant is told from an input
            constants = {}
        inputs = [v for v in read if v not in constants]
        small = {v: c for v, c in constants.items() if v not in weights}
        region = Region(
            region_proto(nodes, inputs, outputs, small, opsets, weights).SerializeToString(
                deterministic=True
            ),
            tuple(v.name for v in inputs),
            tuple(v.name for v in outputs),
            tuple((v.name, c) for v, c in weights.items()),
        )
        call = self.libraries.compiled(provider, region)
        ends = [_fixed(v) for v in (*inputs, *outputs)]
        known = [e for e in ends if e is not None]
        if len(known) == len(ends):
            call = provider.fixed(call, known[: len(inputs)], known[len(inputs) :])
        return RegionStep(
            provider.name, call, tuple(nodes), tuple(map(self.slot, inputs)), tuple(map(self.slot, outputs))
        )


def _check_sizes(graph: Graph) -> None:
    """Refuse a plan that is known to need more memory than there is.

    Raises:
        ExecutionFailed: names the node and its output.
    """
    for node in graph.nodes:
        for value in node.writes:
            known = _fixed(value)
            if known is not None and known[0] != "string":
                dtype, sizes = known
                problem = size_problem(
                    f"output {value.name!r} of {node.label}", dtype, sizes, _numpy(dtype).itemsize
                )
                if problem is not None:
                    raise ExecutionFailed(problem)


_KINDS = ("region", "single", "kernels")
LEAST_NODES, LEAST_ELEMENTS = 3, 1 << 15
"""Of a group of element-wise nodes beside others: from there on, fused kernels repay the detour."""


def _connected(nodes: Sequence[Node]) -> list[list[Node]]:
    """Groups of nodes of which each reads or writes what another one of the group does."""
    groups: list[tuple[set[Value], list[Node]]] = []
    for node in nodes:
        values, members = {*node.reads, *node.writes}, [node]
        for group in [g for g in groups if g[0] & values]:
            groups.remove(group)
            values |= group[0]
            members = group[1] + members
        groups.append((values, members))
    return [members for _, members in groups]


def _elements(value: Value) -> int:
    """How many elements a value has; 0 where that is not known."""
    return 0 if value.known_sizes is None else prod(value.known_sizes)


def _is_weight(value: Value) -> bool:
    """Whether a constant is large enough to be shared instead of copied, and of a type that can be."""
    ends = _fixed(value)
    if ends is None or ends[0] not in DTYPES or ends[0] == "string":
        return False
    return prod(ends[1]) * _numpy(ends[0]).itemsize >= LARGE


def _fixed(value: Value) -> tuple[str, tuple[int, ...]] | None:
    """Type and sizes, where all are known."""
    sizes = value.known_sizes
    return None if sizes is None or not isinstance(value.type, TensorType) else (value.type.dtype, sizes)


def _numpy(dtype: str) -> np.dtype:
    return onnx.helper.tensor_dtype_to_np_dtype(CODES[dtype])


def _lends(step: Step) -> bool:
    """Whether a step may answer with memory of what it was given: onnx.reference makes views."""
    return isinstance(step, RegionStep) and step.provider != OnnxRuntime.name


def _returned(steps: Sequence[Step], outputs: Sequence[int]) -> frozenset[int]:
    """The slots whose memory nobody has but the plan: a branch might answer with it, or onnx.reference."""
    made = {k for step in steps if isinstance(step, ElementwiseStep) for k in step.writes}
    keeping = [
        s
        for s in steps
        if not isinstance(s, ElementwiseStep) and (not isinstance(s, RegionStep) or _lends(s))
    ]
    return frozenset(made - set(outputs) - {k for step in keeping for k in step.reads})


def _drops(steps: Sequence[Step], kept: set[int]) -> tuple[tuple[int, ...], ...]:
    """For each step, the slots whose last use it is."""
    seen = set(kept)
    drops = []
    for step in reversed(steps):
        touched = dict.fromkeys((*step.reads, *step.writes))
        drops.append(tuple(k for k in touched if k not in seen))
        seen.update(touched)
    return tuple(reversed(drops))


def _check_node(node: Node, opsets: Mapping[str, int]) -> None:
    """ONNX's own rules for a node that no compiler of a library has looked at.

    Raises:
        InvalidModel: a wrong number of inputs or outputs, an unknown attribute or one of a wrong type.
    """
    assert isinstance(node.op, OnnxOp)
    if schema_of(node.op) is None or any(graphs_of(node.attributes.values())):  # whose surroundings it needs
        return
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = IR_VERSION, dict(opsets)
    try:
        onnx.checker.check_node(node_proto(node), context)
    except Exception as error:  # ValidationError, or what damaged bytes make of it
        raise InvalidModel(Problem(node.label, str(error).splitlines()[0])) from error


def _version(node: Node) -> int:
    assert isinstance(node.op, OnnxOp)
    return node.op.version


def _kind(node: Node) -> object:
    """What decides whether a library takes a node: operator, attributes, types and ranks of its inputs."""
    types = tuple(None if v is None or v.type is None else onnx_name(v.type) for v in node.inputs)
    ranks = tuple(
        len(v.type.sizes)
        if v is not None and isinstance(v.type, TensorType) and v.type.sizes is not None
        else None
        for v in node.inputs
    )
    return node.op, tuple(a.SerializeToString() for a in node.attributes.values()), types, ranks


def _same_meaning(op: OnnxOp, version: int) -> bool:
    """Whether the operator is the same at an older opset."""
    ours, older = schema_of(op), schema_of(OnnxOp(op.domain, op.name, version))
    return ours is not None and older is not None and ours.since_version == older.since_version
