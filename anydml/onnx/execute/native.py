"""A specialised graph as one function of machine code, control flow included, where that is to be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen import program
from anydml.codegen.jit import host
from anydml.codegen.program.feeds import Fed, Input
from anydml.codegen.program.refusal import NotNative
from anydml.dataclass import dataclass, replace
from anydml.errors import ExecutionFailed, Problem
from anydml.ir.graph import Graph, If, Node, Value, walk
from anydml.onnx.execute.cost_model import program_seconds
from anydml.onnx.execute.directml_lowering import may_have_form
from anydml.onnx.execute.native_writer import type_of, write_graph
from anydml.onnx.execute.partition import ProviderRegistry
from anydml.onnx.execute.steps import Plan, list_nodes
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.partial_eval.shape_inference import ShapeInference
from anydml.onnx.rewrites.fold_weights import fold_weights
from anydml.onnx.rewrites.sequences import follow_sequences
from anydml.runtime.process import renew_after_fork

if TYPE_CHECKING:
    from anydml.codegen.program.entry import Entry
    from anydml.codegen.program.module import NativeProgram

MAX_NODES, AUTO_NODES, QUICK_NODES = 2000, 1000, 100
"""Branches and bodies included: what a second or so compiles; what becomes a program unasked; and what is
written so quickly that a first run waits for it, if its code is on disk."""
MAX_WORK, AUTO_WORK, MAX_WORK_PER_NODE = 1 << 20, 1 << 16, 1 << 12
"""Elements computed, those of loops once, eight multiplications and additions being one: beyond, libraries
and kernels with threads do better, though they have a call for each node."""
PLAIN_NODES, PLAIN_WORK, MAX_PLAIN_WORK = 64, 1 << 14, 1 << 17
"""Of graphs without control flow: beyond, a library's call is little beside what it computes. The last where
all sizes are known, and it takes no longer than that."""
LIBRARY_SECONDS, LIBRARY_SECONDS_PER_NODE = 14e-6, 0.5e-6
"""Of a library's call, whatever it computes."""
SHARE_OF_ONE_THREAD = 1.9
PLAIN_RUNS, PLAIN_RUNS_ON_DISK = 1000, 100
"""Until so many runs, that takes less time than to make a program; or to write one whose code is there."""
MAX_INSTRUCTIONS, AUTO_INSTRUCTIONS = 40_000, 15_000
"""What LLVM translates in a second or so; and in 300 ms."""

MAX_SETTLED_BYTES = 1 << 20
"""Of what is the same in every run, for each node of which it is: computed beforehand."""
SPARE = 4, 1
"""How many times as much as there was once may be there of a size that is not fixed, if work allows it."""
MIN_ROOM = 16
"""Up to which it may be in any case."""


@dataclass(frozen=True)
class NativeStep:
    """A whole graph as machine code."""

    program: NativeProgram
    nodes: tuple[Node | If, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    others: Callable[[], Plan]
    """Who computes the same where the program leaves it to them."""
    rooms: tuple[tuple[int, int, int], ...] = ()
    """Of what is fed with one size that is not fixed: which, the axis, and the most that there may be."""
    fresh: bool = True

    def run(self, slots: list[Any]) -> None:
        for k, result in zip(self.writes, self.results([slots[k] for k in self.reads]), strict=True):
            slots[k] = result

    def results(self, values: list[Any]) -> list[Any]:
        for k, x in enumerate(values):
            flags = x.flags
            if not (flags.c_contiguous and flags.aligned):
                values[k] = np.array(x, order="C")
        try:
            return self.program(values)
        except program.ProgramFailed as failure:
            if failure.left:
                return self.others().run_owned(values)
            raise ExecutionFailed(Problem(failure.node, str(failure))) from None

    def has_room(self, values: Sequence[Any]) -> bool:
        """Whether nothing that is fed is too long."""
        return all(values[k].shape[axis] <= most for k, axis, most in self.rooms)

    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], bool] | None:
        """A run on these arrays, which tells whether it went well; None where the data decides sizes."""
        if not self.program.has_fixed_sizes:
            return None

        def again() -> bool:
            try:
                self.program.run(inputs, outputs)
            except program.ProgramFailed:
                return False
            return True

        return again

    @property
    def entry(self) -> Entry | None:
        """The same from a dictionary of arrays to outputs; None is its answer for what is not as expected."""
        return None if self.program.entry is None else self.program.entry.call

    def describe(self) -> str:
        told = [f"program: {list_nodes(self.nodes)}, as machine code with {self.program.arena_size} bytes"]
        for node in walk(self.nodes, bodies=True):
            if isinstance(node, If):
                told.append(f"  {node.label}: the condition is known only when it runs; a branch in the code")
        return "\n".join(told)


def native_step(
    graph: Graph,
    slot: Callable[[Value], int],
    libraries: ProviderRegistry,
    feeds: Sequence[Fed],
    fed: Sequence[int],
    others: Callable[[], Plan],
    plain: bool = False,
) -> NativeStep:
    """The step that runs a whole graph.

    Args:
        slot: of a value.
        feeds: what a user feeds; `fed`: the places of the graph's inputs among that.
        others: makes the plan of those to whom the program leaves something when it runs.
        plain: whether there was no control flow in it.
        libraries: for types in bodies; and whether programs are asked for.

    Raises:
        NotNative: why there is none.
    """
    unasked, given = libraries.native is None, graph
    graph = fold_weights(
        follow_sequences(graph), ShapeInference(libraries.opsets, libraries.fast), MAX_SETTLED_BYTES
    )
    count = sum(1 for _ in graph.walk(bodies=True))
    plain = plain and unasked
    most = PLAIN_NODES if plain else AUTO_NODES if unasked else MAX_NODES
    if count > most:
        raise NotNative(f"more than {most} nodes")
    if plain:
        work = _plain_work(graph, libraries.threads)
    else:
        work = (AUTO_WORK if unasked else MAX_WORK) + MAX_WORK_PER_NODE * count
    _screen(graph, work)
    builder = partial(program.ProgramBuilder, host(), AUTO_INSTRUCTIONS if unasked else MAX_INSTRUCTIONS)
    seen = {v: feeds[k].sizes for v, k in zip(graph.inputs, fed, strict=True)}
    is_open = any(v.known_sizes is None for v in graph.inputs)
    for spare in SPARE if is_open else SPARE[-1:]:
        room = {v: [_room(n or 1, spare) for n in sizes] for v, sizes in seen.items()}
        try:
            b, inputs, outputs = write_graph(graph, builder, libraries.opsets, libraries.fast, work, room)
            break
        except NotNative:
            if spare == SPARE[-1]:
                raise
    feeds = _opened(feeds, dict(zip(fed, inputs, strict=True)))
    compiled = program.NativeProgram(b, [i.dtype for i in inputs], outputs, feeds, fed)
    if compiled.entry is not None:
        renew_after_fork(compiled.entry)
    reads, writes = tuple(map(slot, given.inputs)), tuple(map(slot, given.outputs))
    axes = ((k, i.axis, i.sizes) for k, i in zip(fed, inputs, strict=True))
    rooms = tuple((k, axis, sizes[axis]) for k, axis, sizes in axes if axis is not None)
    return NativeStep(compiled, graph.nodes, reads, writes, cache(others), rooms)


def feeds_of(inputs: Sequence[Value], guards: Set[Value], values: Sequence[np.ndarray]) -> list[Fed]:
    """What is fed, with the contents of those inputs that the plan is made for."""
    return [
        Fed(v.name, x.dtype, x.shape, x.tobytes() if v in guards else None)
        for v, x in zip(inputs, values, strict=True)
    ]


def runs_before(on_disk: bool) -> int:
    """A program of a graph without control flow."""
    return PLAIN_RUNS_ON_DISK if on_disk else PLAIN_RUNS


def may_be_plain(graph: Graph, threads: int) -> bool:
    """Whether a graph without control flow is small, and of what programs have. Between quantized tensors a
    library computes with integers, and so with other roundings."""
    quantized = any(n.is_onnx("DequantizeLinear") for n in graph.nodes if isinstance(n, Node))
    if quantized or len(graph.nodes) > PLAIN_NODES:
        return False
    try:
        _screen(graph, _plain_work(graph, threads))
    except NotNative:
        return False
    return True


def _plain_work(graph: Graph, threads: int) -> int:
    """How much a program of a graph without control flow may do; `threads`: of libraries.

    Raises:
        NotNative: it would take longer than libraries' calls.
    """
    seconds = program_seconds(graph.nodes)
    if seconds is None:
        return PLAIN_WORK
    most = LIBRARY_SECONDS + LIBRARY_SECONDS_PER_NODE * len(graph.nodes)
    if threads == 1:  # then a library takes as long for the rest
        most *= SHARE_OF_ONE_THREAD
    if seconds > most:
        raise NotNative("more work than a library's call is worth")
    return MAX_PLAIN_WORK


def _room(size: int, spare: int) -> int:
    """A size up to which one may be that was as large once."""
    return max(MIN_ROOM, 1 << (spare * size - 1).bit_length())


def _opened(feeds: Sequence[Fed], inputs: Mapping[int, Input]) -> list[Fed]:
    """What is fed, with the sizes left open that are so in a program's inputs."""

    def one(k: int, fed: Fed) -> Fed:
        axis = inputs[k].axis if k in inputs else None
        return fed if axis is None else replace(fed, sizes=(*fed.sizes[:axis], None, *fed.sizes[axis + 1 :]))

    return [one(k, fed) for k, fed in enumerate(feeds)]


def _screen(graph: Graph, work: int) -> None:
    """Tell at once of most graphs that are no programs: before LLVM comes into the process.

    Raises:
        NotNative: why there is none.
    """
    for value in graph.inputs:
        type_of(value, [1] * (value.rank or 0))
    computed = {v for node in graph.nodes for v in node.writes} | {*graph.inputs}
    for node in graph.walk():
        if isinstance(node, Node):
            info = info_of(node.op)
            native = info is not None and info.native is not None
            if not (node.bodies or native or may_have_form(node) or node.fails):
                raise NotNative(f"{node.op} in {node.label}")
            wanted = () if info is None else info.native_constants
            if not computed.isdisjoint([v for k in wanted if (v := node.inputs[k]) is not None]):
                raise NotNative(f"{node.op} in {node.label}, of what is computed")
        if any(prod(v.known_sizes or ()) > work for v in node.writes):
            raise NotNative("more work than programs are for")
