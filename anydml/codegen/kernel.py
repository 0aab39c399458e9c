"""Kernels: a group of expressions as machine code, and jobs that run it over strided operands.

A kernel fixes the expressions and how each operand advances along the innermost dimension; sizes,
addresses and all other strides are data of the job. So one compiled kernel serves every shape.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from anydml.codegen.emit import Emitter, bits_type
from anydml.codegen.jit import Target, compile_ir, compiling, host
from anydml.spec.dtypes import SIZE
from anydml.spec.enums import TensorDataType
from anydml.spec.scalar import BOOL, Expr

MAX_OPERANDS = 32  # of the driver's pointer arrays
MAX_CHUNKS = 0xFFFF  # of the ticket's fields
STREAM_FROM = 1 << 25
"""Bytes moved from which outputs go past the caches (non-temporal stores): far more than they hold."""
SPLIT_FROM = 1 << 15
"""Bytes moved from which a job is cut into chunks that a waiting worker may take."""
WAKE_FROM = 1 << 17
"""Bytes moved from which a sleeping worker is woken, which costs some microseconds."""


class Access(Enum):
    """How an operand advances along the innermost dimension."""

    PACKED = "packed"  # to the next element
    SPLAT = "splat"  # not at all
    STRIDED = "strided"  # by any number of bytes


class Group:
    """Expressions over one iteration space, an output each; operands are the inputs, then the outputs.

    Made by `group`, which gives one object for equal expressions: it carries their compiled code.
    """

    def __init__(self, inputs: tuple[TensorDataType, ...], outputs: tuple[Expr, ...]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.operands = (*inputs, *(e.dtype for e in outputs if e.dtype != BOOL))
        assert len(inputs) + len(outputs) == len(self.operands) <= MAX_OPERANDS
        self.widths = tuple(SIZE[t] for t in self.operands)
        self.width = sum(self.widths)
        self.packed: dict[tuple[int, int, int], tuple[array[int], array[int]]] = {}
        """Jobs over packed operands, without their addresses, by size, pool and threads."""
        self.rows: dict[tuple[tuple[Access, ...], bool], int] = {}
        """Addresses of the row functions made so far, by access and whether stores stream."""


@cache
def group(inputs: tuple[TensorDataType, ...], outputs: tuple[Expr, ...]) -> Group:
    return Group(inputs, outputs)


@dataclass(frozen=True)
class Operand:
    """Where an operand lies: address of index 0 and bytes between neighbours along each dimension."""

    address: int
    strides: tuple[int, ...]


# ---- code --------------------------------------------------------------------------------------------


def row_function(group: Group, access: Sequence[Access], stream: bool, target: Target) -> str:
    """LLVM IR of the row function. Vector code where no operand is strided, then one by one."""
    lanes = 4 * target.vector_bytes // max(group.widths)
    count = len(group.inputs)
    body = ["define void @row(ptr %operands, ptr %strides, i64 %n) {", "entry:"]
    for k in range(len(group.operands)):
        body += [f"  %p{k}.p = getelementptr ptr, ptr %operands, i64 {k}", f"  %p{k} = load ptr, ptr %p{k}.p"]
        if access[k] is Access.STRIDED:
            body += [
                f"  %s{k}.p = getelementptr i64, ptr %strides, i64 {k}",
                f"  %s{k} = load i64, ptr %s{k}.p",
            ]
    splats: dict[int, str] = {}
    for k in range(count):
        if access[k] is Access.SPLAT:
            body.append(f"  %one{k} = load {bits_type(group.inputs[k], 1)}, ptr %p{k}, align 1")
            splats[k] = f"%one{k}"

    def loop(name: str, first: str, end: str, width: int, after: str, *, streamed: bool = False) -> None:
        """`for i in range(first, end, width)`, then on to the block `after`; comes from %name.pre."""
        emitter = Emitter(target, width, reads := {}, f"{name}.v")
        body.append(f"{name}:")
        body.append(f"  %{name}.i = phi i64 [ {first}, %{name}.pre ], [ %{name}.next, %{name} ]")
        for k, dtype in enumerate(group.operands):
            if access[k] is Access.STRIDED:
                body.append(f"  %{name}.o{k} = mul i64 %{name}.i, %s{k}")
                body.append(f"  %{name}.a{k} = getelementptr i8, ptr %p{k}, i64 %{name}.o{k}")
            elif access[k] is Access.PACKED:
                kind = bits_type(dtype, 1)
                body.append(f"  %{name}.a{k} = getelementptr {kind}, ptr %p{k}, i64 %{name}.i")
        for k in range(count):
            if access[k] is Access.SPLAT:
                reads[k] = f"%wide{k}" if width > 1 else splats[k]
            else:
                reads[k] = f"%{name}.x{k}"
                body.append(
                    f"  {reads[k]} = load {bits_type(group.inputs[k], width)}, ptr %{name}.a{k}, align 1"
                )
        stores = []
        for k, expr in enumerate(group.outputs, start=count):
            kind, value = bits_type(expr.dtype, width), emitter.bits(expr)
            align = stream_alignment(group.operands[k], width) if streamed else 1
            mark = ", !nontemporal !0" if streamed else ""
            stores.append(f"  store {kind} {value}, ptr %{name}.a{k}, align {align}{mark}")
        body.extend(emitter.lines + stores)
        body.append(f"  %{name}.next = add i64 %{name}.i, {width}")
        body.append(f"  %{name}.more = icmp slt i64 %{name}.next, {end}")
        body.append(f"  br i1 %{name}.more, label %{name}, label %{after}")

    def enter(name: str, first: str, end: str, otherwise: str) -> None:
        body.append(f"  %{name}.any = icmp slt i64 {first}, {end}")
        body.append(f"  br i1 %{name}.any, label %{name}.pre, label %{otherwise}")
        body.append(f"{name}.pre:")
        body.append(f"  br label %{name}")

    if Access.STRIDED in access:
        enter("one", "0", "%n", "end")
        loop("one", "0", "%n", 1, "end")
    else:
        for k, one in splats.items():
            element, vector = bits_type(group.inputs[k], 1), bits_type(group.inputs[k], lanes)
            body.append(f"  %ins{k} = insertelement {vector} poison, {element} {one}, i32 0")
            zeros = f"<{lanes} x i32> zeroinitializer"
            body.append(f"  %wide{k} = shufflevector {vector} %ins{k}, {vector} poison, {zeros}")
        head = "0"
        if stream:  # one by one until the first output is aligned for streaming stores
            align = stream_alignment(group.operands[count], lanes)
            body += [
                f"  %address = ptrtoint ptr %p{count} to i64",
                "  %negated = sub i64 0, %address",
                f"  %ahead = and i64 %negated, {align - 1}",
                f"  %ahead.n = sdiv i64 %ahead, {SIZE[group.operands[count]]}",
                "  %ahead.fits = icmp slt i64 %ahead.n, %n",
                "  %head.n = select i1 %ahead.fits, i64 %ahead.n, i64 %n",
            ]
            enter("head", "0", "%head.n", "main")
            loop("head", "0", "%head.n", 1, "main")
            body.append("main:")
            head = "%head.n"
        body += [
            f"  %span = sub i64 %n, {head}",
            f"  %full = and i64 %span, {-lanes}",
            f"  %vec.end = add i64 %full, {head}",
        ]
        enter("vec", head, "%vec.end", "rest")
        loop("vec", head, "%vec.end", lanes, "rest", streamed=stream)
        body.append("rest:")
        enter("tail", "%vec.end", "%n", "end")
        loop("tail", "%vec.end", "%n", 1, "end")
    body.append("end:")
    if stream:  # streaming stores are weakly ordered; be done with them before anyone is told
        body.append("  fence seq_cst")
    body += ["  ret void", "}", "!0 = !{i32 1}"]
    return "\n".join(body) + "\n"


def stream_alignment(dtype: TensorDataType, lanes: int) -> int:
    return min(64, SIZE[dtype] * lanes)


def row_address(group: Group, access: tuple[Access, ...], stream: bool) -> int:
    """The compiled row function, made when first asked for."""
    address = group.rows.get((access, stream))
    if address is None:
        with compiling:
            address = group.rows.get((access, stream))
            if address is None:
                (address,) = compile_ir(row_function(group, access, stream, host()), ["row"])
                group.rows[access, stream] = address
    return address


# ---- jobs --------------------------------------------------------------------------------------------


def make_job(
    group: Group, sizes: Sequence[int], operands: Sequence[Operand], *, pool: int = 0, threads: int = 1
) -> array[int]:
    """The words that the driver runs: `group` over index space `sizes`, which must not be empty.

    The caller vouches that every address that sizes and strides reach is readable (of outputs: writable,
    and reached once), stays so while the job runs, and that no output is an input under another stride.
    """
    dims = collapse(sizes, [o.strides for o in operands])
    addresses = [o.address for o in operands]
    for d, (size, strides) in enumerate(dims):
        if all(s <= 0 for s in strides) and any(strides):  # walk it the other way
            addresses = [a + (size - 1) * s for a, s in zip(addresses, strides, strict=True)]
            dims[d] = (size, tuple(-s for s in strides))
    inner, steps = dims.pop()
    return job_words(group, inner, addresses, steps, dims, pool=pool, threads=threads)


def packed_job(group: Group, size: int, bases: list[int], *, pool: int, threads: int) -> array[int]:
    """A job over packed operands of one shape, `size` elements each, too few to stream; see `make_job`.

    Most calls are of this kind, and many repeat a size: what does not depend on the bases is kept.
    """
    key = (size, pool, threads)
    parts = group.packed.get(key)
    if parts is None:
        job = job_words(group, size, bases, group.widths, pool=pool, threads=threads)
        if len(group.packed) >= 256:
            group.packed.clear()
        parts = group.packed[key] = (job[:_BASES], job[_BASES + len(group.widths) :])
    return parts[0] + array("q", bases) + parts[1]


def streams(group: Group, size: int) -> bool:
    """Whether packed operands of `size` elements are so large that their stores may stream."""
    return size * group.width >= STREAM_FROM


_BASES = 9  # of a job's words: the first operand's address


def job_words(
    group: Group,
    inner: int,
    addresses: Sequence[int],
    steps: Sequence[int],
    outer: Sequence[tuple[int, tuple[int, ...]]] = (),
    *,
    pool: int,
    threads: int,
) -> array[int]:
    """A job from dimensions that are collapsed already."""
    widths = group.widths
    access = tuple(
        Access.PACKED if step == width or inner == 1 else Access.SPLAT if step == 0 else Access.STRIDED
        for step, width in zip(steps, widths, strict=True)
    )
    elements = inner
    for size, _ in outer:
        elements *= size
    moved = elements * group.width
    stream = (
        moved >= STREAM_FROM and inner >= 4096 and host().streams and can_stream(group, access, addresses)
    )
    chunk = elements
    if threads > 1 and moved >= SPLIT_FROM:
        chunk = min(max(elements // (4 * threads), 1024), 1 << 17)
        chunk = max(-(-chunk // 1024) * 1024, -(-elements // MAX_CHUNKS))
    head = [
        -(-elements // chunk),
        chunk,
        elements,
        inner,
        len(outer),
        len(widths),
        row_address(group, access, stream),
        pool,
        int(moved >= WAKE_FROM),
    ]
    words = [*head, *addresses, *steps, *(size for size, _ in outer)]
    for _, strides in outer:
        words += strides
    return array("q", words)


def can_stream(group: Group, access: tuple[Access, ...], addresses: Sequence[int]) -> bool:
    """Streaming needs packed outputs that reach a vector's alignment at the same element."""
    first = len(group.inputs)
    outputs = range(first, len(group.operands))
    if Access.STRIDED in access or len(outputs) != 1:
        return False
    return addresses[first] % SIZE[group.operands[first]] == 0


def collapse(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Dimensions as (size, stride of each operand), outermost first, as few as the strides allow.

    Dimensions of size 1 go; the rest are ordered by the last operand's strides (an output's), and
    neighbours that every operand passes in one stride become one. A short innermost dimension gives
    its place to a much longer one. At least one dimension is returned.

    >>> collapse((2, 3, 4), [(48, 16, 4), (0, 0, 0)])
    [(24, (4, 0))]
    """
    dims = [(n, tuple(s[d] for s in strides)) for d, n in enumerate(sizes) if n != 1]
    dims.sort(key=lambda dim: (-abs(dim[1][-1]), -max(map(abs, dim[1]))))
    merged: list[tuple[int, tuple[int, ...]]] = []
    for n, s in dims:
        if merged:
            outer_n, outer_s = merged[-1]
            if all(o == i * n for o, i in zip(outer_s, s, strict=True)):
                merged[-1] = (outer_n * n, s)
                continue
        merged.append((n, s))
    if not merged:
        return [(1, tuple(0 for _ in strides))]
    longest = max(merged, key=lambda dim: dim[0])
    if merged[-1][0] < 16 and longest[0] >= 4 * merged[-1][0]:
        merged.remove(longest)
        merged.append(longest)
    return merged
