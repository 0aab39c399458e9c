"""Kernels: a group of expressions as machine code, and launch descriptors that run it over strided operands.

A kernel fixes the expressions and how each operand advances along the innermost dimension; sizes,
addresses and all other strides are data of the launch descriptor. So one compiled kernel serves every shape.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from math import prod

from anydml.codegen.compiling import compiling
from anydml.codegen.descriptor import Fields, template_of, write_descriptor
from anydml.codegen.group import Access, Hold, KernelSpec, KernelVariant
from anydml.codegen.jit import HAS_CLOCK, compile_body, host
from anydml.codegen.kernel_body import kernel_body
from anydml.codegen.loop_dims import collapse
from anydml.codegen.register_rows import registers_of
from anydml.codegen.short_rows import MAX_ROW_BYTES, can_end, lanes_of_rows
from anydml.codegen.tiles import scratch_bytes
from anydml.dataclass import dataclass
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr
from anydml.ops.reductions import MIN_COLUMNS

MAX_CHUNKS = 0xFFFF  # of the ticket's fields
MAX_SCRATCH_ROW_ELEMENTS = 512
"""Elements of a row up to which values are better held near than where the output is to stand."""
MIN_STREAMED_BYTES = 3 << 23
"""Bytes moved from which outputs go past the caches (non-temporal stores): about as much as they hold."""
MIN_SPLIT_BYTES = 1 << 15
"""Bytes moved, or other work that takes as long, from which a launch descriptor is cut into chunks that a
waiting worker may take."""
MIN_PERHAPS_BYTES, MIN_WAKE_BYTES = 1 << 17, 1 << 24 if HAS_CLOCK else 5 << 19
"""Bytes moved from which a sleeping worker may be woken, and from which it is without a look at the clock."""
MIN_SHORT_ROW = 6
"""Elements: fewer go along the rows' first ones, then their second ones, and so on."""
MIN_TURNED = 8
"""Elements of a plane's sides from which it is walked in tiles."""
MAX_DIRECT_BYTES = 1 << 22
"""Moved by a turned copy: beyond, tiles are turned near by and copied row by row, so that memory is written
in order."""
MIN_CHUNK_ELEMENTS, MAX_CHUNK_ELEMENTS = 1 << 10, 1 << 17
"""Of a chunk: `_words` and, for packed arrays of any size, call.ll cut by these."""


@cache
def group(inputs: tuple[TensorDataType, ...], outputs: tuple[Expr, ...]) -> KernelSpec:
    return KernelSpec(inputs, outputs)


@dataclass(frozen=True)
class MemoryOperand:
    """Where an operand lies: address of index 0 and bytes between neighbours along each dimension."""

    address: int
    strides: tuple[int, ...]


def kernel_address(group: KernelSpec, shape: KernelVariant) -> int:
    """The compiled kernel body, made when first asked for."""
    address = group.rows.get(shape)
    if address is None:
        with compiling.lock:
            address = group.rows.get(shape)
            if address is None:
                address = compile_body(lambda: kernel_body(group, shape, host()))
                group.rows[shape] = address
    return address


# ---- launch descriptors ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """Operands over collapsed dimensions: what a launch descriptor consists of beside its threads."""

    inner: int
    addresses: Sequence[int]
    steps: Sequence[int]
    outer: Sequence[tuple[int, tuple[int, ...]]]
    shape: KernelVariant
    row: int = 1
    """Elements of a tensor behind one element of the iteration space."""
    together: int = 1
    """Elements of the iteration space that should not be parted."""


def make_descriptor(
    group: KernelSpec,
    sizes: Sequence[int],
    operands: Sequence[MemoryOperand],
    *,
    pool: int = 0,
    threads: int = 1,
) -> array[int]:
    """What the driver runs: `group` over index space `sizes`, which must not be empty.

    The caller vouches that every address that sizes and strides reach is readable (of outputs: writable,
    and reached once), stays so while it runs, and that no output is an input under another stride.
    """
    return _words(group, _layout(group, sizes, operands), pool=pool, threads=threads)


def shape_of(group: KernelSpec, sizes: Sequence[int], operands: Sequence[MemoryOperand]) -> KernelVariant:
    """What the kernel body of such a launch descriptor is made for."""
    return _layout(group, sizes, operands).shape


def _layout(group: KernelSpec, sizes: Sequence[int], operands: Sequence[MemoryOperand]) -> _Layout:
    addresses = [o.address for o in operands]
    strides = [o.strides for o in operands]
    if group.axes is not None:
        return _layout_of_rows(group, sizes, addresses, strides)
    short = _lay_out_short(group, collapse(sizes, strides, exchange=False), addresses)
    if short:
        return short
    dims = collapse(sizes, strides)
    for d, (size, steps) in enumerate(dims):
        if all(s <= 0 for s in steps) and any(steps):  # walk it the other way
            addresses = [a + (size - 1) * s for a, s in zip(addresses, steps, strict=True)]
            dims[d] = (size, tuple(-s for s in steps))
    inner, steps = dims.pop()
    tiled = _lay_out_tiles(group, inner, addresses, steps, dims)
    return tiled or _lay_out(group, inner, addresses, steps, dims)


def _lay_out_short(
    group: KernelSpec, dims: Sequence[tuple[int, tuple[int, ...]]], addresses: Sequence[int]
) -> _Layout | None:
    """Where cheap expressions have short rows, and many of them."""
    if not group.plain or len(dims) < 2:
        return None
    (inner, steps), outer = dims[-1], list(dims[:-1])
    near = len(outer) - 1
    (count, down) = outer.pop(near if outer[near][0] >= MIN_TURNED else outer.index(max(outer)))
    access = access_of(group, inner, steps)
    ends = can_end(group, host()) or inner % lanes_of_rows(group, host()) == 0
    fits = inner >= MIN_SHORT_ROW and inner * max(group.widths) <= MAX_ROW_BYTES
    packed = all(a is Access.PACKED for a in access[len(group.inputs) :])
    if not (ends and fits and packed) or Access.STRIDED in access or count < MIN_TURNED:
        return None
    rest = [(n, (*s, 0)) for n, s in outer]
    return _Layout(count, [*addresses, inner], (*down, 0), rest, KernelVariant(access, short=True), inner)


def _lay_out_tiles(
    group: KernelSpec,
    inner: int,
    addresses: Sequence[int],
    steps: tuple[int, ...],
    outer: Sequence[tuple[int, tuple[int, ...]]],
) -> _Layout | None:
    """Where operands lie turned: their neighbours are those along an outer dimension, which then is the
    column behind each element."""
    access = access_of(group, inner, steps)
    strided = [k for k in range(len(group.inputs)) if access[k] is Access.STRIDED]
    if not strided or inner < MIN_TURNED or Access.STRIDED in access[len(group.inputs) :]:
        return None
    found: tuple[int, ...] = ()
    for d, (size, down) in enumerate(outer):
        turned = tuple(k for k in strided if down[k] == group.widths[k])
        if size >= MIN_TURNED and len(turned) > len(found):
            found, at = turned, d
    if not found or scratch_bytes(group, found) > host().scratch:
        return None
    size, down = outer[at]
    near = tuple(Access.PACKED if k in found else a for k, a in enumerate(access))
    still = (0,) * (1 + len(down))
    rest = [(n, (*s, *still)) for d, (n, s) in enumerate(outer) if d != at]
    direct = inner * size * group.width <= MAX_DIRECT_BYTES
    variant = KernelVariant(near, turned=found, direct=direct)
    return _Layout(inner, [*addresses, size, *down], (*steps, *still), rest, variant, size)


def _lay_out(
    group: KernelSpec,
    inner: int,
    addresses: Sequence[int],
    steps: Sequence[int],
    outer: Sequence[tuple[int, tuple[int, ...]]] = (),
) -> _Layout:
    access = access_of(group, inner, steps)
    moved = inner * prod(size for size, _ in outer) * group.width
    large = moved >= MIN_STREAMED_BYTES and inner >= 4096 and host().streams
    stream = large and can_stream(group, access, addresses[-1])
    return _Layout(inner, addresses, steps, outer, KernelVariant(access, stream))


def _layout_of_rows(
    group: KernelSpec, sizes: Sequence[int], addresses: list[int], strides: list[tuple[int, ...]]
) -> _Layout:
    """Elements are rows; what the kernel body must know of them follows the operands' addresses."""
    assert group.axes is not None
    reduced = sorted(a % len(sizes) for a in group.axes)
    free = [d for d in range(len(sizes)) if d not in reduced]
    within = collapse([sizes[d] for d in reduced], [[s[d] for d in reduced] for s in strides], reorder=False)
    access, length = access_of(group, *within[-1]), prod(sizes[d] for d in reduced)
    across = [sizes[d] for d in free], [[s[d] for d in free] for s in strides]
    rows = collapse(*across, exchange=False)
    columns = _columns_of(group, *rows[-1]) if Access.STRIDED in access else 0
    if not columns:
        rows = collapse(*across)
    inner, steps = rows.pop()
    single = length > 1 and all(
        s[k] == 0 for n, s in within if n > 1 for k in range(len(group.inputs), len(s))
    )
    apart = not single and _outputs_apart(group, sizes, addresses, strides)
    hold = Hold.OUTPUT if apart else Hold.NOWHERE
    if columns:
        shape = KernelVariant(
            access_of(group, inner, steps), False, len(within), hold, single, columns=columns
        )
    elif single or len(within) > 1:
        shape = KernelVariant(access, False, len(within), hold, single, _is_long(length))
    else:
        moved = length * inner * prod(n for n, _ in rows) * group.width
        starts = (addresses[-1], steps[-1], *(s[-1] for _, s in rows))
        shape = _variant_of_rows(group, access, length, moved, starts, hold)
    extents = [word for size, steps in within for word in (size, *steps)]
    still = (0,) * len(extents)
    outer = [(n, (*s, *still)) for n, s in rows]
    together = columns * host().vector_bytes // 4 or 1
    return _Layout(inner, [*addresses, *extents], (*steps, *still), outer, shape, length, together)


def _variant_of_rows(
    group: KernelSpec,
    access: tuple[Access, ...],
    length: int,
    moved: int,
    starts: tuple[int, ...],
    hold: Hold,
) -> KernelVariant:
    """For rows of one dimension whose outputs are rows. `moved`: bytes of all operands; `starts`: the
    address of the last output, and how far its rows are from each other, the innermost dimension first;
    `hold`: where values of rows are that the stack does not take."""
    bytes = length * group.widths[len(group.inputs)]
    fits, large = bytes <= host().scratch, moved >= MIN_STREAMED_BYTES
    stream = large and fits and host().streams and can_stream(group, access, starts[0])
    staged = stream and any(n % 64 for n in starts)
    if staged:
        stream = host().masks and group.widths[-1] == 4 and starts[1] == bytes <= host().scratch // 2
    if not stream and Access.STRIDED not in access and (registers := registers_of(group, length, host())):
        return KernelVariant(access, dims=1, registers=registers)
    if stream or (fits and not large and length <= MAX_SCRATCH_ROW_ELEMENTS):
        hold = Hold.SCRATCH
    return KernelVariant(access, stream, 1, hold, long=_is_long(length), staged=staged and stream)


def _is_long(length: int) -> bool:
    return length >= 512 or length % (2 * host().vector_bytes) == 0  # eight vectors of FLOAT32


def _columns_of(group: KernelSpec, count: int, steps: Sequence[int]) -> int:
    """How many vectors of rows go together, if so many lie beside each other."""
    near = [s == width for s, width in zip(steps, group.widths, strict=True)]
    there = all(n or s == 0 for n, s in zip(near, steps, strict=True)) and all(near[len(group.inputs) :])
    vectors = 4 * count // host().vector_bytes
    return (4 if vectors >= 4 else 2 if vectors >= 2 else 1) if there and count >= MIN_COLUMNS else 0


def _outputs_apart(
    group: KernelSpec, sizes: Sequence[int], addresses: Sequence[int], strides: Sequence[tuple[int, ...]]
) -> bool:
    """Whether no output shares memory with another operand."""
    reached = []
    for address, steps, width in zip(addresses, strides, group.widths, strict=True):
        ends = [(n - 1) * s for n, s in zip(sizes, steps, strict=True)]
        first, last = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends)
        reached.append((address + first, address + last + width))
    count = len(group.inputs)
    return all(
        x[1] <= y[0] or y[1] <= x[0]
        for j, y in enumerate(reached[count:])
        for x in (*reached[:count], *reached[count : count + j])
    )


def packed_descriptor(
    group: KernelSpec, size: int, bases: list[int], *, pool: int, threads: int
) -> array[int]:
    """A launch descriptor over packed operands of one shape, `size` elements each, too few to stream.

    Most calls are of this kind, and many repeat a size: what does not depend on the bases is kept.
    """
    key = (size, pool, threads)
    template = group.packed.get(key)
    if template is None:
        descriptor = _words(group, _lay_out(group, size, bases, group.widths), pool=pool, threads=threads)
        if len(group.packed) >= 256:
            group.packed.clear()
        template = group.packed[key] = template_of(descriptor, len(group.widths))
    return template.at(bases)


def streams(group: KernelSpec, size: int) -> bool:
    """Whether packed operands of `size` elements are so large that their stores may stream."""
    return size * group.width >= MIN_STREAMED_BYTES


def access_of(group: KernelSpec, inner: int, steps: Sequence[int]) -> tuple[Access, ...]:
    return tuple(
        Access.PACKED if step == width or inner == 1 else Access.SPLAT if step == 0 else Access.STRIDED
        for step, width in zip(steps, group.widths, strict=True)
    )


def _words(group: KernelSpec, layout: _Layout, *, pool: int, threads: int) -> array[int]:
    """The launch descriptor, with chunks for so many threads."""
    return shared_out(
        kernel_address(group, layout.shape),
        layout.inner,
        layout.outer,
        layout.addresses,
        layout.steps,
        row=layout.row,
        together=layout.together,
        cost=group.cost,
        pool=pool,
        threads=threads,
    )


def shared_out(
    kernel: int,
    inner: int,
    outer: Sequence[tuple[int, Sequence[int]]],
    addresses: Sequence[int],
    steps: Sequence[int],
    *,
    row: int,
    together: int = 1,
    cost: int,
    pool: int,
    threads: int,
) -> array[int]:
    """A launch descriptor, with chunks for so many threads.

    Args:
        kernel: the address of the kernel body.
        inner, outer, addresses, steps: see `descriptor`.
        row: elements of a tensor behind one of the iteration space.
        together: how many of the iteration space should not be parted.
        cost: how many bytes take about as long to move as one element of a tensor takes to compute.
    """
    elements = inner * prod(size for size, _ in outer)
    work = elements * row * cost
    chunk = elements
    if threads > 1 and work >= MIN_SPLIT_BYTES:
        least = -(-MIN_CHUNK_ELEMENTS // (row * together)) * together
        chunk = min(max(elements // (4 * threads), least), max(MAX_CHUNK_ELEMENTS // row, 1))
        chunk = max(-(-chunk // least) * least, -(-elements // MAX_CHUNKS))
    fields = Fields(
        chunks=-(-elements // chunk),
        chunk=chunk,
        elements=elements,
        inner=inner,
        rank=len(outer),
        operands=len(addresses),
        kernel=kernel,
        pool=pool,
        wake=int(work >= MIN_PERHAPS_BYTES) + int(work >= MIN_WAKE_BYTES),
    )
    return write_descriptor(fields, addresses, steps, outer)


def can_stream(group: KernelSpec, access: tuple[Access, ...], address: int) -> bool:
    """Streaming needs one packed output, here at this address, whose elements reach a vector's alignment."""
    if Access.STRIDED in access or len(group.outputs) != 1:
        return False
    return address % group.widths[-1] == 0
