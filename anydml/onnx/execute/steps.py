"""Plans and their steps: what one run of a graph does, in order, over numbered slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from anydml.cached import cached_property
from anydml.codegen.reading import read_module
from anydml.dataclass import dataclass
from anydml.errors import ExecutionFailed, Problem
from anydml.ir.graph import DirectMLGraph, If, Node
from anydml.onnx.execute.ownership import make_owned
from anydml.onnx.providers.provider import Call, RanksDiffer, RegionFailed, copied
from anydml.onnx.serde.region_model import every_node
from anydml.ops.dtypes import NUMPY
from anydml.runtime.arena import Arena

if TYPE_CHECKING:
    from anydml.codegen.program.entry import Entry
    from anydml.runtime.prepared import PreparedGraph

Shape = tuple[int, ...]
_Made: TypeAlias = "tuple[PreparedGraph, list[tuple[np.dtype, Shape] | None]]"
"""What computes, and as which type and shape an output is to be seen, where it is not so already."""
MAX_KERNEL_SHAPES = 32
"""Combinations of shapes that a step has kernels ready for."""


class Step(Protocol):
    @property
    def fresh(self) -> bool:
        """Whether all that it writes is new memory, each result its own, whatever it reads."""
        ...

    @property
    def reads(self) -> tuple[int, ...]: ...

    @property
    def writes(self) -> tuple[int, ...]: ...

    def run(self, slots: list[Any]) -> None: ...

    def describe(self) -> str:
        """One line for `explain()`."""
        ...


@runtime_checkable
class Whole(Step, Protocol):
    """A step that may be all of a plan."""

    def results(self, values: list[Any]) -> list[Any]: ...


@runtime_checkable
class Bindable(Step, Protocol):
    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], bool] | None:
        """A run on these arrays, which tells whether it went well; None where that is not to be had."""
        ...


@dataclass(frozen=True)
class RegionStep:
    """Nodes that a library runs."""

    provider: str
    call: Call
    nodes: tuple[Node | If, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    ranks: tuple[int | None, ...]
    """What is inferred of the results, where it is; None of what is no tensor."""
    because: str = ""
    """Why no faster library has it."""
    fresh: bool = False

    def run(self, slots: list[Any]) -> None:
        for k, result in zip(self.writes, self.results([slots[k] for k in self.reads]), strict=True):
            slots[k] = result

    def results(self, values: list[Any]) -> list[Any]:
        try:
            results = self.call(values)
        except RegionFailed as failure:
            raise failure.told_of(self._place(failure.node)) from failure
        for k, rank in self._told:
            if results[k].ndim != rank:
                raise RanksDiffer([n for n in every_node(self.nodes) if isinstance(n, Node)])
        return results

    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], bool] | None:
        """A run on these arrays, which tells whether it went well; None where the library has none."""
        bind = getattr(self.call, "bind", None)
        return None if bind is None else bind(inputs, outputs)

    def in_place(self, inputs: list[Any], outputs: list[Any]) -> list[Any] | None:
        """The results of a run that writes into those arrays of `outputs` that are there, though they are
        inputs' memory, where some of its nodes are made for that; else None."""
        run = getattr(self.call, "run_in_place", None)
        written = any(isinstance(n, Node) and n.op.name in WRITING_IN_PLACE for n in self.nodes)
        if run is None or not written:
            return None
        try:
            results: list[Any] = run(inputs, outputs)
        except RegionFailed as failure:
            raise failure.told_of(self._place(failure.node)) from failure
        return results

    @cached_property
    def _told(self) -> list[tuple[int, int]]:
        return [(k, rank) for k, rank in enumerate(self.ranks) if rank is not None]

    def _place(self, node: int | None) -> str:
        every = every_node(self.nodes)
        if node is not None and node < len(every):
            return every[node].label
        return (
            "one of " + ", ".join(n.label for n in self.nodes[:8]) + (", ..." if len(self.nodes) > 8 else "")
        )

    def describe(self) -> str:
        lines = [
            f"{self.provider}: {list_nodes(self.nodes)}" + (f" ({self.because})" if self.because else "")
        ]
        for node in every_node(self.nodes):
            if isinstance(node, If):
                lines.append(
                    f"  {node.label}: the condition is known only when it runs; {self.provider} runs it"
                )
        return "\n".join(lines)


@dataclass(frozen=True)
class RuleStep:
    """A node that its operator's own NumPy rule runs, since a library does it wrong or not at all."""

    node: Node
    rule: Call
    """Takes None for an input that is left out. Raises RegionFailed."""
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    because: str
    fresh: bool = False  # rules make views

    def run(self, slots: list[Any]) -> None:
        try:
            results = self.rule([slots[k] for k in self.reads])
        except RegionFailed as failure:
            raise failure.told_of(self.node.label) from failure
        for k, result in zip(self.writes, results, strict=True):
            slots[k] = result

    def describe(self) -> str:
        return f"NumPy: {self.node.op}" + (f" ({self.because})" if self.because else "")


@dataclass(frozen=True)
class UnlessEmptyStep:
    """A node that a library runs, unless it is fed something without elements, which it does wrong."""

    fast: RegionStep
    slow: Step

    @property
    def reads(self) -> tuple[int, ...]:
        return (*self.fast.reads, *self.slow.reads)

    @property
    def writes(self) -> tuple[int, ...]:
        return self.fast.writes

    @property
    def fresh(self) -> bool:
        return self.slow.fresh

    def run(self, slots: list[Any]) -> None:
        given = (slots[k] for k in self.fast.reads)
        (self.slow if any(x.size == 0 for x in given) else self.fast).run(slots)

    def describe(self) -> str:
        return f"{self.fast.describe()}; without elements {self.slow.describe()}"


def list_nodes(nodes: Sequence[Node | If]) -> str:
    """The operators of the first few, for a line of `explain()`."""
    names = ["If" if isinstance(n, If) else str(n.op) for n in nodes]
    return ", ".join(names[:6]) + (f", ... ({len(names)} nodes)" if len(names) > 6 else "")


class KernelsStep:
    """Nodes in our kernels. Made for each combination of shapes when that is first met."""

    fresh = True

    def __init__(
        self,
        nodes: tuple[Node, ...],
        given: tuple[np.dtype, ...],
        results: tuple[np.dtype, ...],
        lowered: Callable[[tuple[Shape, ...]], tuple[DirectMLGraph, list[Shape]]],
        threads: int,
        reads: tuple[int, ...],
        writes: tuple[int, ...],
        arena: Arena,
        others: Callable[[], Step] | None,
    ) -> None:
        """`others`: makes a step that computes the same, for shapes that kernels do not have; None: they have
        all."""
        self.nodes, self.reads, self.writes = nodes, reads, writes
        self._arena = arena
        self._given, self._results = given, results
        self._lowered, self._threads = lowered, threads
        self._others = others
        self._made: dict[tuple[Shape, ...], _Made | None] = {}

    def run(self, slots: list[Any]) -> None:
        inputs, shapes = [], []
        for place, k in enumerate(self.reads):
            x = slots[k]
            shapes.append(x.shape)
            inputs.append(x if x.flags.c_contiguous else np.ascontiguousarray(x))
            if x.dtype != self._given[place]:
                self._dtype_mismatch([slots[k] for k in self.reads])
        sizes = tuple(shapes)
        made = self._made.get(sizes) or self._make(sizes)
        if made is None:
            assert self._others is not None
            self._others().run(slots)
            return
        compute, finish = made
        results = compute(inputs, self._arena.empty)
        for place, k in enumerate(self.writes):
            change = finish[place]
            slots[k] = results[place] if change is None else results[place].view(change[0]).reshape(change[1])

    def bind(self, inputs: list[Any], outputs: list[Any]) -> Callable[[], bool] | None:
        """A run on these arrays; None where there are several kernels."""
        sizes = tuple(x.shape for x in inputs)
        made = self._made.get(sizes) or self._make(sizes)
        return None if made is None else made[0].bind(inputs, outputs)

    def _make(self, shapes: tuple[Shape, ...]) -> _Made | None:
        if shapes in self._made:
            return self._made[shapes]
        if len(self._made) >= MAX_KERNEL_SHAPES:
            self._made.clear()
        made = self._made[shapes] = self._prepare(shapes)
        return made

    def _prepare(self, shapes: tuple[Shape, ...]) -> _Made | None:
        if self._others is not None and any(0 in shape for shape in shapes):
            return None
        graph, results = self._lowered(shapes)
        prepared: PreparedGraph = read_module("anydml.runtime.prepared").PreparedGraph(graph, self._threads)
        if not prepared.by_kernels:
            return None
        finish: list[tuple[np.dtype, Shape] | None] = []
        for v, dtype, shape in zip(graph.outputs, self._results, results, strict=True):
            same = v.tensor.static_sizes == shape and dtype == NUMPY[v.data_type]
            finish.append(None if same else (dtype, shape))
        return prepared, finish

    def _dtype_mismatch(self, inputs: list[Any]) -> None:
        """The model declares another type than it computes."""
        expected, got = (", ".join(map(str, types)) for types in (self._given, [x.dtype for x in inputs]))
        raise ExecutionFailed(Problem(self.nodes[0].label, f"expected {expected}, but got {got}"))

    def describe(self) -> str:
        return f"kernels: {list_nodes(self.nodes)}"


@dataclass(frozen=True)
class BranchStep:
    """An `If` whose condition is not known before: runs the program of one branch."""

    node: If
    condition: int
    then_call: Callable[[list[Any]], list[Any]]
    else_call: Callable[[list[Any]], list[Any]]
    then_reads: tuple[int, ...]
    else_reads: tuple[int, ...]
    writes: tuple[int, ...]
    explain: Callable[[], str]
    fresh: bool = False  # a branch may return what it captures

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.condition, *self.then_reads, *self.else_reads)

    def run(self, slots: list[Any]) -> None:
        if single(slots[self.condition], "condition", np.bool_, self.node):
            results = self.then_call([slots[k] for k in self.then_reads])
        else:
            results = self.else_call([slots[k] for k in self.else_reads])
        for k, result in zip(self.writes, results, strict=True):
            slots[k] = result

    def describe(self) -> str:
        return self.explain()


def single(value: Any, what: str, dtype: type[np.generic], node: Node | If) -> Any:
    """The one element of an array, as a Python number.

    Raises:
        ExecutionFailed: it is of another type, or not exactly one.
    """
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.size != 1:
        got = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)
        wanted = np.dtype(dtype).name
        raise ExecutionFailed(Problem(node.label, f"expected a {what} of one {wanted}, but got {got}"))
    return value.item()


WRITING_IN_PLACE = frozenset(
    """GroupQueryAttention SparseAttention DecoderMaskedMultiHeadAttention DecoderMaskedSelfAttention
    PagedAttention""".split()
)
"""Operators of onnxruntime's that write new rows only into a cache that is an input and an output."""


def _can_be_bound(inputs: Sequence[Any], outputs: Sequence[np.ndarray]) -> bool:
    """Whether all are arrays as they come, so that none has to be copied, and the outputs are memory of
    their own.
    """
    arrays = (*inputs, *outputs)
    usual = all(
        isinstance(x, np.ndarray) and x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative
        for x in arrays
    )
    return usual and not any(
        np.may_share_memory(y, x) for k, y in enumerate(outputs) for x in (*inputs, *outputs[:k])
    )


@dataclass(frozen=True)
class Plan:
    """Steps over slots. `template` holds the constants in their slots, and None in all others."""

    template: Sequence[Any]
    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    drops: tuple[tuple[int, ...], ...]
    """For each step, the slots that nobody reads after it: their memory can go."""
    unsure: frozenset[int]
    """The outputs, by place, that may be memory of an input, a constant or another output."""
    passed: frozenset[int] = frozenset()
    """The outputs that are an input or a constant."""

    def run(self, values: Sequence[Any]) -> list[Any]:
        """The outputs, which may be memory of something else: for a step of another plan."""
        slots = [*self.template]
        for place, k in enumerate(self.inputs):
            slots[k] = values[place]
        for step, drops in self._each:
            step.run(slots)
            for k in drops:
                slots[k] = None
        return [slots[k] for k in self.outputs]

    def run_owned(self, values: Sequence[Any]) -> list[Any]:
        """The outputs, which are the caller's."""
        if self._single is not None:
            step, places, made = self._single
            results = step.results([values[p] for p in places])
            return results if made is None else [x.copy() if k is None else results[k] for k, x in made]
        results = self.run(values)
        for k in self.passed:
            results[k] = copied(results[k])
        return make_owned(results, self.unsure, values)

    def bound(self, values: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], bool] | None:
        """A run on these arrays, which tells whether it went well; None where that is not to be had."""
        step = None if self._given is None else self.steps[0]
        if self._given is None or not isinstance(step, Bindable):
            return None
        inputs = [values[p] for p in self._given]
        return step.bind(inputs, [*outputs]) if _can_be_bound(inputs, outputs) else None

    def in_place(self, values: Sequence[Any], outputs: Mapping[int, np.ndarray]) -> list[Any] | None:
        """The outputs, those by place in these arrays, which are memory of inputs; None where that would
        change what others read."""
        step = None if self._given is None else self.steps[0]
        if self._given is None or not isinstance(step, RegionStep):
            return None
        inputs, given = [values[p] for p in self._given], [outputs.get(k) for k in range(len(self.outputs))]
        arrays = [x for x in (*inputs, *given) if x is not None]
        return step.in_place(inputs, given) if _can_be_bound(arrays, ()) else None

    @property
    def entry(self) -> Entry | None:
        """All of it from a dictionary of arrays, at once; where there is such a thing."""
        return getattr(self.steps[0], "entry", None) if len(self.steps) == 1 else None

    @cached_property
    def _given(self) -> list[int] | None:
        """Of a plan of one step that makes the outputs of inputs, the places of these."""
        return self._reads if self._reads is not None and self._makes_all else None

    @cached_property
    def _reads(self) -> list[int] | None:
        """The inputs that the only step reads, by place; None where there are others, or it reads more."""
        if len(self.steps) != 1 or self.unsure or not {*self.steps[0].reads} <= {*self.inputs}:
            return None
        return [self.inputs.index(k) for k in self.steps[0].reads]

    @property
    def _makes_all(self) -> bool:
        return not self.passed and self.steps[0].writes == self.outputs

    @cached_property
    def _single(self) -> tuple[Whole, list[int], list[tuple[int | None, Any]] | None] | None:
        """The usual case, one step that gives its results at once: which inputs it reads; and where outputs
        come from, if constants are among them."""
        step = self.steps[0] if self._reads is not None else None
        if self._reads is None or not isinstance(step, Whole):
            return None
        if self._makes_all:
            return step, self._reads, None
        places = {k: p for p, k in enumerate(step.writes)}
        made = [(places.get(k), self.template[k]) for k in self.outputs]
        usual = all(p is not None or isinstance(x, np.ndarray) for p, x in made)
        return (step, self._reads, made) if usual else None

    @cached_property
    def _each(self) -> list[tuple[Step, tuple[int, ...]]]:
        return list(zip(self.steps, self.drops, strict=True))

    def describe(self) -> list[str]:
        return [step.describe() for step in self.steps]
