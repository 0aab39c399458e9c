"""A DirectML graph as few kernels: element-wise nodes become one expression over one iteration space.

    y = select(x < 0, x * a, x)     three nodes, x and a in memory     ->     one kernel, y its output

What a node reads is put in the place of the reading, with the strides that lead to the same elements:
0 where it is broadcast, exchanged where it is transposed. What is reduced stays over the space of its rows,
where it does not vary along them. Values that must be in memory are the graph's outputs and whatever cannot
be expressed so: a reshaped intermediate, a reduced row seen from elsewhere, or an expression that would
outgrow a kernel. Outputs over the same space share one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from anydml.dataclass import dataclass, field, replace
from anydml.directml.node_meaning import NodeMeaning, meaning_of, views_of
from anydml.directml.weights import (
    MAX_KERNEL_OPS,
    MAX_RESULT_OPS,
    WordCounts,
    has_rows,
    passes,
    replace_reads,
    row_axes,
    weight,
    words_of_calls,
)
from anydml.ir.graph import DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, bitcast, constant, read, walk
from anydml.ops.reductions import MIN_COLUMNS, Axes

MAX_SOURCES = 20
"""Operands that a kernel reads at most."""
MAX_OUTPUTS = 8
"""What it writes at most."""
WORDS_OF_MEMORY = 8
"""Words that take as long as a value's way to memory and back."""
BLOCK = 32
"""Elements of a block of a row: what is left of the last one is computed in vain."""
MIN_ELEMENTS = 256
"""Up to which all of this takes less time than another launch."""
FUNCTIONS_IN_ROWS = 0.2
"""By how much functions take longer there: sums in FLOAT64 need the registers that would keep them going."""
MIN_ROWS, MIN_SPLIT_ELEMENTS, MAX_FEW_WORDS = 16, 1 << 15, 6
"""Rows that keep all threads busy; elements from which that matters; and words for which it does not."""
MAX_ROW_BYTES = 1 << 19
"""Of a row, what near caches hold from one pass to the next."""


@dataclass(frozen=True)
class Source:
    """A value in memory, and elements between neighbours along each dimension of the space it is read in."""

    value: Value
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Computed:
    """What a value is: an expression over `sources` (by number), element by element of `sizes`."""

    expr: Expr
    sources: tuple[Source, ...]
    sizes: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    """The dimensions that the value is reduced along: it has size 1 there."""


@dataclass
class Kernel:
    """Values computed together."""

    sizes: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    """The dimensions along which the outputs have size 1."""
    sources: list[Source] = field(default_factory=list)
    outputs: list[tuple[Value, Expr]] = field(default_factory=list)


@dataclass(frozen=True)
class TensorWork:
    """An operator of whole tensors: all that it reads and writes is in memory."""

    node: DirectMLNode


def fuse(graph: DirectMLGraph) -> list[Kernel | TensorWork]:
    """The kernels of a checked graph and the operators of whole tensors between, in an order that runs."""
    return _Fusion(graph).kernels


class _Fusion:
    def __init__(self, graph: DirectMLGraph) -> None:
        self.kernels: list[Kernel | TensorWork] = []
        self.words = WordCounts()
        self.computed: dict[Value, Computed] = {}
        self.home: dict[Value, int] = dict.fromkeys(graph.inputs, -1)
        """What computes a value in memory; -1 for the graph's inputs and constants of many elements."""
        self.outputs = set(graph.outputs)
        self.uses = Counter(v for node in graph.nodes for v in node.reads)
        self.left = self.uses.copy()
        """How many nodes still come that read a value."""
        self.constants = {v: c for v, c in graph.constants.items() if c.content.size == 1}
        self.home |= dict.fromkeys(graph.constants, -1)
        for node in graph.nodes:
            assert isinstance(node, DirectMLNode)
            meaning = meaning_of(node)
            if meaning is None or not self._add(node, meaning):
                self._add_work(node)
            for value in node.writes:
                if value in self.outputs:
                    self._store(value)
            self._forget_read(node)

    def _add(self, node: DirectMLNode, meaning: NodeMeaning) -> bool:
        """Whether a kernel computes it well; nothing else does what is element-wise."""
        (output,) = node.outputs
        assert output is not None
        views = views_of(node)
        reads = list(zip(node.reads, views, meaning.strides, strict=True))

        def from_memory(j: int) -> Computed:
            value, view, strides = reads[j]
            self._store(value)
            return _read_as(_in_memory(value, strides, meaning.sizes), view)

        parts = [_read_as(self._view_as(v, meaning.sizes, s), view) for v, view, s in reads]
        axes = row_axes(meaning.expr)
        space = meaning.sizes
        for j, part in enumerate(parts):  # one kernel reduces over one set of axes, in one space
            own = row_axes(part.expr)
            if own and (own != (axes or own) or part.sizes != (space if axes else part.sizes)):
                parts[j] = from_memory(j)
            elif own:
                axes, space = own, part.sizes
        while True:
            result = combined(meaning, parts)
            bearable = self._bearable(result)
            if bearable and _worth(meaning, parts, result, self.uses[output]):
                break
            # The heaviest argument goes to memory.
            heavy = [(self.words.of(p.expr), len(p.sources)) for p in parts]
            worst = heavy.index(max(heavy))
            if _is_read(parts[worst]):
                if meaning.elementwise:
                    break
                return False
            parts[worst] = from_memory(worst)
            if not bearable:
                self._cut(self.home[reads[worst][0]])
                for j, (value, _, _) in enumerate(reads):
                    if value in self.home and value not in self.computed and value not in self.constants:
                        parts[j] = from_memory(j)
        self.computed[output] = result
        return True

    def _cut(self, k: int) -> None:
        """A kernel is full: what it can give of all that is still wanted is in memory from here on, and read.
        Else others would compute the same again, for each of these."""
        kernel = self.kernels[k]
        assert isinstance(kernel, Kernel)  # it computes what was too large
        for value, computed in list(self.computed.items()):
            if self.words.of(computed.expr) <= WORDS_OF_MEMORY:
                continue
            if value not in self.home and self._fits(kernel, computed):
                self._store(value)
            if self.home.get(value) == k:
                del self.computed[value]

    def _forget_read(self, node: DirectMLNode) -> None:
        """Nobody will ask any more what values are that this node was the last to read."""
        for value in node.reads:
            self.left[value] -= 1
            if not self.left[value]:
                self.computed.pop(value, None)

    def _add_work(self, node: DirectMLNode) -> None:
        for value in node.reads:
            self._store(value)
        self.home |= dict.fromkeys(node.writes, len(self.kernels))
        self.kernels.append(TensorWork(node))

    def _view_as(self, value: Value, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Computed:
        """A value's content as a node over `sizes` reads it through `strides` of its memory."""
        if value in self.constants:  # a single number
            return Computed(constant(self.constants[value].content.item(), value.data_type), (), sizes)
        known = self.computed.get(value)
        if known is not None:
            stored = self.home.get(value)
            if known.reduced:
                if stored is None and (seen := _reduced_as(known, value, sizes, strides)) is not None:
                    return seen
            else:
                mapping = dimensions(known.sizes, value.tensor.element_strides, sizes, strides)
                same = known.sizes == sizes and mapping == tuple(range(len(sizes)))
                if mapping is not None and (same or (stored is None and not has_rows(known.expr))):
                    return Computed(known.expr, _permuted(known.sources, mapping), sizes)
            if stored is None:
                self._store(value)
        return _in_memory(value, strides, sizes)

    def _store(self, value: Value) -> None:
        """Have a value in memory: as a further output of a kernel over its space, or by one of its own."""
        if value in self.home:
            return
        computed = self.computed[value]
        ready = max((self.home[s.value] for s in computed.sources), default=-1)
        for k in range(len(self.kernels) - 1, ready, -1):
            kernel = self.kernels[k]
            if isinstance(kernel, Kernel) and self._fits(kernel, computed):
                break
        else:
            k, kernel = len(self.kernels), Kernel(computed.sizes, computed.reduced)
            self.kernels.append(kernel)
        for source in computed.sources:
            if source not in kernel.sources:
                kernel.sources.append(source)
        order = {j: kernel.sources.index(s) for j, s in enumerate(computed.sources)}
        kernel.outputs.append((value, renumber(computed.expr, order)))
        self.home[value] = k

    def _bearable(self, result: Computed) -> bool:
        return self.words.of(result.expr) <= MAX_RESULT_OPS and len(result.sources) <= MAX_SOURCES

    def _fits(self, kernel: Kernel, computed: Computed) -> bool:
        """Whether one kernel can compute both, and something is gained: they read a value in common."""
        same = (kernel.sizes, kernel.reduced) == (computed.sizes, computed.reduced)
        if not same or not {*kernel.sources} & {*computed.sources}:
            return False
        exprs = [*(e for _, e in kernel.outputs), computed.expr]
        if len({a for e in exprs for a in row_axes(e)}) > 1 or len({bool(row_axes(e)) for e in exprs}) > 1:
            return False
        sources = {*kernel.sources, *computed.sources}
        if not all(_walks_well(computed.sizes, sources, axes) for axes in row_axes(computed.expr)):
            return False
        if len(sources) > MAX_SOURCES or len(exprs) > MAX_OUTPUTS:
            return False
        return self.words.of(*exprs) <= MAX_KERNEL_OPS


def combined(meaning: NodeMeaning, parts: Sequence[Computed]) -> Computed:
    """`meaning` with its operands in the place of its reads. Parts over two sets of axes do not occur."""
    sources: list[Source] = []
    operands = []
    for part in parts:
        order = {}
        for j, source in enumerate(part.sources):
            if source not in sources:
                sources.append(source)
            order[j] = sources.index(source)
        operands.append(renumber(part.expr, order))
    lifted = next((p for p in parts if p.reduced), None)
    sizes, reduced = (lifted.sizes, lifted.reduced) if lifted else (meaning.sizes, meaning.reduced)
    return Computed(replace_reads(meaning.expr, dict(enumerate(operands))), tuple(sources), sizes, reduced)


def _reduced_as(
    known: Computed, value: Value, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> Computed | None:
    """What is reduced, repeated along its rows or over a space of its own sizes."""
    own = value.tensor.element_strides
    if sizes == known.sizes:
        repeated = tuple(0 if d in known.reduced else s for d, s in enumerate(own))
        return replace(known, reduced=()) if _same(repeated, strides, sizes) else None
    return known if sizes == value.tensor.static_sizes and _same(own, strides, sizes) else None


# ---- what is better computed together ----------------------------------------------------------------------


def _is_read(part: Computed) -> bool:
    """Whether there is nothing to compute."""
    return all(e.opcode in ("read", "bitcast", "constant") for e in walk(part.expr))


def _worth(meaning: NodeMeaning, parts: Sequence[Computed], result: Computed, uses: int) -> bool:
    """Whether a kernel over rows is better than one that reads the parts from memory: `uses` nodes read the
    result, which then may be in the same kernel."""
    axes = row_axes(result.expr)
    if not axes:
        return True
    if not all(_walks_well(result.sizes, result.sources, a) for a in axes):
        return False
    rank, made = len(result.sizes), [p for p in parts if not _is_read(p)]
    rows = sorted(a % rank for a in next(iter(axes)))
    if not made or prod(result.sizes) <= MIN_ELEMENTS:
        return True
    length = prod(result.sizes[d] for d in rows)
    few = prod(result.sizes) // length < MIN_ROWS and prod(result.sizes) >= MIN_SPLIT_ELEMENTS
    if result.reduced and not meaning.reduced:  # once for each row
        return weight(meaning.expr) <= 8 + length // 2
    if few and (meaning.elementwise or max(weight(p.expr) for p in made) > MAX_FEW_WORDS):
        return False
    near = prod(result.sizes[rows[-1] + 1 :]) == 1
    if not result.reduced and length * len(result.sources) * (4 if near else 256) > MAX_ROW_BYTES:
        return False
    whole = -(-length // BLOCK) * BLOCK / length if near else 1.0
    words = passes(result.expr) * whole
    for e in (meaning.expr, *(p.expr for p in made)):
        in_rows = has_rows(e)
        words -= passes(e) * whole if in_rows else weight(e) - FUNCTIONS_IN_ROWS * words_of_calls(e)
    return words <= WORDS_OF_MEMORY * (len(made) + max(uses - 1, 0))


def _walks_well(sizes: Sequence[int], sources: Iterable[Source], axes: Axes) -> bool:
    """Whether elements of rows are neighbours in memory, or those of rows beside each other are."""
    rows = [a % len(sizes) for a in axes]
    within = next((d for d in reversed(rows) if sizes[d] > 1), rows[-1])
    if all(s.strides[within] in (0, 1) for s in sources):
        return True
    beside = [d for d, n in enumerate(sizes) if n > 1 and d not in rows]
    if not beside or sizes[beside[-1]] < MIN_COLUMNS:
        return False
    return all(s.strides[beside[-1]] in (0, 1) for s in sources)


def renumber(expr: Expr, order: Mapping[int, int]) -> Expr:
    if all(j == k for j, k in order.items()):
        return expr
    reads = {e.value: e.dtype for e in walk(expr) if e.opcode == "read"}
    return replace_reads(expr, {j: read(order[j], dtype) for j, dtype in reads.items()})


def _read_as(part: Computed, view: TensorType) -> Computed:
    dtype = TensorDataType[view.dtype.upper()]
    return part if part.expr.dtype == dtype else replace(part, expr=bitcast(part.expr, dtype))


def _in_memory(value: Value, strides: tuple[int, ...], sizes: tuple[int, ...]) -> Computed:
    seen = tuple(0 if n == 1 else s for n, s in zip(sizes, strides, strict=True))
    return Computed(read(0, value.data_type), (Source(value, seen),), sizes)


def dimensions(
    sizes: tuple[int, ...], strides: tuple[int, ...], seen: tuple[int, ...], through: tuple[int, ...]
) -> tuple[int | None, ...] | None:
    """For each dimension of a view, the dimension of the value that it walks along (None: it repeats it).

    None if the view is anything else than dimensions in another order, repeated or of size 1.
    """
    left = {d: (n, s) for d, (n, s) in enumerate(zip(sizes, strides, strict=True)) if n > 1}
    if len(sizes) == len(seen) and sizes == seen and _same(strides, through, sizes):
        return tuple(range(len(seen)))
    result: list[int | None] = []
    for n, s in zip(seen, through, strict=True):
        if n == 1 or s == 0:
            result.append(None)
            continue
        match = next((d for d, known in left.items() if known == (n, s)), None)
        if match is None:
            return None
        del left[match]
        result.append(match)
    return None if left else tuple(result)


def _same(one: Sequence[int], other: Sequence[int], sizes: Sequence[int]) -> bool:
    return all(n == 1 or a == b for a, b, n in zip(one, other, sizes, strict=True))


def _permuted(sources: Sequence[Source], mapping: Sequence[int | None]) -> tuple[Source, ...]:
    """The sources with dimensions in another order, or repeated (None)."""
    return tuple(Source(s.value, tuple(0 if d is None else s.strides[d] for d in mapping)) for s in sources)


def intermediates(kernels: Sequence[Kernel | TensorWork], outputs: Sequence[Value]) -> Iterator[Value]:
    """Values that are in memory only for other kernels."""
    for kernel in kernels:
        made = kernel.node.writes if isinstance(kernel, TensorWork) else (v for v, _ in kernel.outputs)
        yield from (value for value in made if value not in outputs)
