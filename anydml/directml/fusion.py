"""A DirectML graph as few kernels: element-wise nodes become one expression over one iteration space.

    y = select(x < 0, x * a, x)     three nodes, x and a in memory     ->     one kernel, y its output

What a node reads is put in the place of the reading, with the strides that lead to the same elements:
0 where it is broadcast, exchanged where it is transposed. Values that must be in memory are the graph's
outputs and whatever cannot be expressed so: a reshaped intermediate, a reduced row seen from elsewhere,
or an expression that would outgrow a kernel. Outputs over the same space share one kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

from anydml.ir.graph import DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, bitcast, constant, inline_calls, read, walk, with_args
from anydml.ops.opdef import ONE, Operator
from anydml.ops.reductions import REDUCTIONS

MAX_SOURCES = 20
"""Operands that a kernel reads at most."""
MAX_KERNEL_OPS = 1200
"""Words of a kernel at most, functions written out: what the compiler and the registers bear."""


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


@dataclass
class Kernel:
    """Values computed together."""

    sizes: tuple[int, ...]
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
        self.computed: dict[Value, Computed] = {}
        self.home: dict[Value, int] = dict.fromkeys(graph.inputs, -1)
        """What computes a value in memory; -1 for the graph's inputs and constants of many elements."""
        self.outputs = set(graph.outputs)
        self.constants = {v: c for v, c in graph.constants.items() if c.content.size == 1}
        self.home |= dict.fromkeys(graph.constants, -1)
        for node in graph.nodes:
            assert isinstance(node, DirectMLNode)
            assert isinstance(node.op, Operator)
            if node.op.compute is not None:
                self._add_work(node)
                continue
            self._add(node)
            for value in node.writes:
                if value in self.outputs:
                    self._store(value)

    def _add(self, node: DirectMLNode) -> None:
        assert isinstance(node.op, Operator)
        (output,) = node.outputs
        assert output is not None
        sizes = output.tensor.static_sizes
        present = [(k, v) for k, v in enumerate(node.inputs) if v is not None]
        views = [node.views.get(k) or v.tensor for k, v in present]
        types = tuple(None if v is None else node.read_type(k) for k, v in enumerate(node.inputs))
        meaning = node.op.expression(types, output.data_type, node.attributes, len(sizes))
        parts: list[Computed] = []
        for (k, value), view in zip(present, views, strict=True):
            parts.append(_read_as(self._view_as(value, sizes, _read_through(node, k, view, sizes)), view))
        axes = row_axes(meaning)
        for j, part in enumerate(parts):  # one kernel reduces over one set of axes
            if not row_axes(part.expr) <= (axes := axes or row_axes(part.expr)):
                parts[j] = self._from_memory(node, *present[j], views[j], sizes)
        result = combined(meaning, parts, sizes)
        while _weight(result.expr) > MAX_KERNEL_OPS or len(result.sources) > MAX_SOURCES:
            # Too much for a kernel: the heaviest argument goes to memory.
            worst = max(range(len(parts)), key=lambda j: (_weight(parts[j].expr), len(parts[j].sources)))
            if all(e.opcode in ("read", "bitcast") for e in walk(parts[worst].expr)):
                break
            parts[worst] = self._from_memory(node, *present[worst], views[worst], sizes)
            result = combined(meaning, parts, sizes)
        self.computed[output] = result

    def _add_work(self, node: DirectMLNode) -> None:
        for value in node.reads:
            self._store(value)
        self.home |= dict.fromkeys(node.writes, len(self.kernels))
        self.kernels.append(TensorWork(node))

    def _from_memory(
        self, node: DirectMLNode, k: int, value: Value, view: TensorType, sizes: tuple[int, ...]
    ) -> Computed:
        self._store(value)
        return _read_as(_in_memory(value, _read_through(node, k, view, sizes), sizes), view)

    def _view_as(self, value: Value, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Computed:
        """A value's content as a node over `sizes` reads it through `strides` of its memory."""
        if value in self.constants:  # a single number
            return Computed(constant(self.constants[value].content.item(), value.data_type), (), sizes)
        known = self.computed.get(value)
        if known is not None:
            stored = self.home.get(value)
            mapping = dimensions(known.sizes, value.tensor.element_strides, sizes, strides)
            same = known.sizes == sizes and mapping == tuple(range(len(sizes)))
            if mapping is not None and (same or (stored is None and not has_rows(known.expr))):
                sources = tuple(Source(s.value, _permute_strides(s.strides, mapping)) for s in known.sources)
                return Computed(known.expr, sources, sizes)
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
            k, kernel = len(self.kernels), Kernel(computed.sizes)
            self.kernels.append(kernel)
        for source in computed.sources:
            if source not in kernel.sources:
                kernel.sources.append(source)
        order = {j: kernel.sources.index(s) for j, s in enumerate(computed.sources)}
        kernel.outputs.append((value, renumber(computed.expr, order)))
        self.home[value] = k

    def _fits(self, kernel: Kernel, computed: Computed) -> bool:
        """Whether one kernel can compute both, and something is gained: they read a value in common."""
        if kernel.sizes != computed.sizes or not {*kernel.sources} & {*computed.sources}:
            return False
        exprs = [*(e for _, e in kernel.outputs), computed.expr]
        if len({a for e in exprs for a in row_axes(e)}) > 1 or len({bool(row_axes(e)) for e in exprs}) > 1:
            return False
        many = len({*kernel.sources, *computed.sources}) > MAX_SOURCES
        return not many and sum(map(_weight, exprs)) <= MAX_KERNEL_OPS and len(exprs) <= 8


def combined(meaning: Expr, parts: Sequence[Computed], sizes: tuple[int, ...]) -> Computed:
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
    return Computed(replace_reads(meaning, dict(enumerate(operands))), tuple(sources), sizes)


def renumber(expr: Expr, order: Mapping[int, int]) -> Expr:
    if all(j == k for j, k in order.items()):
        return expr
    reads = {e.value: e.dtype for e in walk(expr) if e.opcode == "read"}
    return replace_reads(expr, {j: read(order[j], dtype) for j, dtype in reads.items()})


def replace_reads(expr: Expr, operands: Mapping[int, Expr]) -> Expr:
    """The expression with other expressions in the place of its reads."""
    new: dict[Expr, Expr] = {}
    for e in walk(expr):
        if e.opcode == "read":
            new[e] = operands[e.value]
        elif all(new[a] is a for a in e.args):
            new[e] = e
        else:
            new[e] = with_args(e, tuple(new[a] for a in e.args))
    return new[expr]


def has_rows(expr: Expr) -> bool:
    return bool(row_axes(expr))


def row_axes(expr: Expr) -> frozenset[tuple[int, ...]]:
    """The axes of the rows that an expression looks at."""
    if (found := _AXES.get(expr)) is not None:
        return found
    for e in _unknown(expr, _AXES):
        own = {e.value} if e.opcode in REDUCTIONS or e.opcode == "row_index" else set()
        _AXES[e] = frozenset(own).union(*(_AXES[a] for a in e.args))
    return _AXES[expr]


_WEIGHTS: WeakKeyDictionary[Expr, int] = WeakKeyDictionary()
_AXES: WeakKeyDictionary[Expr, frozenset[tuple[int, ...]]] = WeakKeyDictionary()


def _weight(expr: Expr) -> int:
    """Words of an expression, functions written out: about what it costs to compute and to compile.

    As a tree, which is quickly known of an expression that grows; exactly where that seems too much.
    """
    for e in _unknown(expr, _WEIGHTS):
        own = 1
        if e.opcode == "call":
            written = inline_calls(e)
            arguments = set(walk(*e.args))
            own = sum(_weight(f) if f.opcode == "call" else 1 for f in walk(written) if f not in arguments)
        _WEIGHTS[e] = min(own + sum(_WEIGHTS[a] for a in e.args), 1 << 40)
    if _WEIGHTS[expr] <= MAX_KERNEL_OPS:
        return _WEIGHTS[expr]
    return sum(_own_weight(e) for e in walk(expr))


def _own_weight(expr: Expr) -> int:
    return max(_WEIGHTS[expr] - sum(_WEIGHTS[a] for a in expr.args), 1)


def _unknown(expr: Expr, known: Mapping[Expr, object]) -> Iterator[Expr]:
    """Subexpressions that are not known yet, arguments first."""
    stack = [expr]
    while stack:
        e = stack[-1]
        missing = [a for a in e.args if a not in known]
        if e in known or not missing:
            stack.pop()
            if e not in known:
                yield e
        else:
            stack += missing


def _read_through(node: DirectMLNode, k: int, view: TensorType, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of input k in the space of the output: nothing moves where it is a single element."""
    assert isinstance(node.op, Operator)
    return (0,) * len(sizes) if node.op.inputs[k].sizes == ONE else view.element_strides


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


def _permute_strides(strides: tuple[int, ...], mapping: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(0 if d is None else strides[d] for d in mapping)


def intermediates(kernels: Sequence[Kernel | TensorWork], outputs: Sequence[Value]) -> Iterator[Value]:
    """Values that are in memory only for other kernels."""
    for kernel in kernels:
        made = kernel.node.writes if isinstance(kernel, TensorWork) else (v for v, _ in kernel.outputs)
        yield from (value for value in made if value not in outputs)
