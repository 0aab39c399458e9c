"""Tensors of which the data decides how much there is along an axis: what reads that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.layout import MAX_BYTES
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import Bounded, Known, Memory, Register, Tensor
from anydml.ops import expr
from anydml.ops.dtypes import BOOL, INT64
from anydml.ops.tensor_desc import packed_strides


def masked(b: ProgramBuilder, tensor: Tensor, content: int | float) -> Tensor:
    """With something behind its end: as long as its bound says."""
    if not isinstance(tensor, Bounded):
        return tensor
    axis, n = tensor.axis, tensor.sizes[tensor.axis]
    places = np.arange(n).reshape([-1] + [1] * (len(tensor.sizes) - axis - 1))
    inside = expr.lt(expr.read(1, INT64), expr.read(2, INT64))
    x = expr.read(0, tensor.dtype)
    other = expr.constant(content, tensor.dtype)
    length = Register(INT64, (), tensor.length)
    return b.elementwise(expr.select(inside, x, other), [tensor.whole, Known.of(places), length])


def as_long_as_each_other(
    b: ProgramBuilder, operands: Sequence[Tensor]
) -> tuple[list[Tensor], Callable[[Tensor], Tensor]]:
    """Operands that broadcast as tensors of fixed sizes; and what makes of their result one as long as they.

    Those that would have to be repeated, since there is one where others have more, are left to others.
    """
    rank = max((len(t.sizes) for t in operands), default=0)
    axes = {t.axis - len(t.sizes) for t in operands if isinstance(t, Bounded)}
    if not axes:
        return [*operands], lambda whole: whole
    if len(axes) > 1:
        raise NotNative("two axes of which it is not known how long they are")
    (axis,) = axes
    lengths = [b.length(t, len(t.sizes) + axis) for t in operands if len(t.sizes) >= -axis]
    first = next(n for n in lengths if isinstance(n, str))
    for other in {n: None for n in lengths if n not in (1, first)}:
        same_length(b, first, other)
    bounds = [t.sizes[axis] for t in operands if len(t.sizes) >= -axis]
    least = min(m for m, n in zip(bounds, lengths, strict=True) if n != 1)
    if any(n < least for n in lengths if isinstance(n, int) and n != 1):
        raise NotNative("shapes that do not broadcast")
    wholes = [t.whole if isinstance(t, Bounded) else t for t in operands]
    longer = [len(t.sizes) >= -axis and t.sizes[axis] > least for t in operands]
    wholes = [first_of(b, w, axis, least) if more else w for w, more in zip(wholes, longer, strict=True)]
    return wholes, lambda whole: Bounded.of(whole, rank + axis, first)


def same_length(b: ProgramBuilder, one: str, other: int | str) -> None:
    """Others compute where two lengths are not the same."""
    if one != other:
        equal = b.code.line(f"icmp eq i64 {one}, {other}")
        b.leave_unless(equal, "expected equally many, but got {}", one)


def expect_some(b: ProgramBuilder, tensor: Bounded) -> None:
    """What becomes of nothing is for others to say."""
    b.leave_unless(b.code.line(f"icmp ne i64 {tensor.length}, 0"), "expected more than {}", tensor.length)


def filled(b: ProgramBuilder, content: NDArray[np.generic], shape: Tensor) -> Tensor:
    """The same everywhere, of sizes that are computed."""
    lengths = b.lengths(shape)
    sizes = [b.most[n] if isinstance(n, str) else n for n in lengths]
    open = [k for k, n in enumerate(lengths) if isinstance(n, str)]
    if len(open) > 1:
        raise NotNative("two axes of which it is not known how long they are")
    if min(sizes, default=1) < 1 or prod(sizes) * content.itemsize > MAX_BYTES:
        raise NotNative(f"sizes {sizes}")
    whole = Known.of(np.full(sizes, content))
    return Bounded.of(whole, open[0], str(lengths[open[0]])) if open else whole


def first_of(b: ProgramBuilder, whole: Tensor, axis: int, count: int) -> Tensor:
    """The first ones along an axis."""
    places = np.arange(whole.count).reshape(whole.sizes)
    return b.rearrange(whole, np.take(places, range(count), axis))


def fill(b: ProgramBuilder, tensor: Tensor, home: Memory) -> None:
    """Write a tensor row by row, without gaps, to memory that has room for all that there may be."""
    if not isinstance(tensor, Bounded) or prod(tensor.sizes[: tensor.axis]) == 1:
        b.memory(tensor, home)
        return
    source = b.memory(tensor)

    def rows(part: Memory, axis: int, start: str) -> None:
        if axis == 0:
            b.memory(
                Bounded.of(part, 0, tensor.length),
                replace(part, pointer=start, strides=packed_strides(part.sizes)),
            )
            return
        size = b.code.times(tensor.length, prod(n for k, n in enumerate(part.sizes) if k not in (0, axis)))

        def one(index: str, _: list[str]) -> list[str]:
            inner = b.code.at(part.pointer, b.code.times(index, part.strides[0]), part.dtype)
            place = b.code.line(f"mul i64 {index}, {size}")
            sizes, strides = part.sizes[1:], part.strides[1:]
            rows(
                replace(part, sizes=sizes, strides=strides, pointer=inner),
                axis - 1,
                b.code.at(start, place, part.dtype),
            )
            return []

        b.code.loop(part.sizes[0], one)

    rows(source, tensor.axis, home.pointer)


def joined(b: ProgramBuilder, parts: Sequence[Tensor], axis: int) -> Bounded:
    """One behind the other, of which some are bounded along that axis. They fit otherwise."""
    if any(isinstance(t, Bounded) and t.axis != axis for t in parts):
        raise NotNative("two axes of which it is not known how long they are")
    sizes = [*parts[0].sizes]
    sizes[axis] = sum(part.sizes[axis] for part in parts)
    whole = b.room(parts[0].dtype, tuple(sizes))
    start = "0"
    for part in parts:
        place = b.code.at(whole.pointer, b.code.times(start, whole.strides[axis]), whole.dtype)
        b.memory(part, replace(whole, sizes=part.sizes, pointer=place))
        start = b.code.line(f"add nuw nsw i64 {start}, {b.length(part, axis)}")
    return Bounded.of(whole, axis, start)


def cut(b: ProgramBuilder, tensor: Tensor, axis: int, start: int | str, end: int | str) -> Bounded:
    """From a start to an end, which are counted from behind below 0, as far as there is something."""
    code, n, length = b.code, tensor.sizes[axis], str(b.length(tensor, axis))

    def place(at: int | str) -> str:
        if isinstance(at, int):
            at = max(min(at, n), -n)
            if at >= 0:
                return code.shorter(str(at), length)
        behind = code.line(f"add i64 {at}, {length}")
        negative = code.line(f"icmp slt i64 {at}, 0")
        found = code.line(f"select i1 {negative}, i64 {behind}, i64 {at}")
        found = code.call("i64", "llvm.smax.i64", ("i64", found), ("i64", "0"))
        return code.shorter(found, length)

    first, last = place(start), place(end)
    found = code.line(f"sub i64 {last}, {first}")
    count = code.call("i64", "llvm.smax.i64", ("i64", found), ("i64", "0"))
    most = n
    if isinstance(start, int) and isinstance(end, int):
        most = max(len(range(*slice(start, end).indices(k))) for k in range(n + 1))
    if not most:
        raise NotNative("nothing, however much there is")
    if start == 0:
        return Bounded.of(first_of(b, b.whole(tensor), axis, most), axis, count)
    source = b.memory(tensor)
    result = b.room(tensor.dtype, (*tensor.sizes[:axis], most, *tensor.sizes[axis + 1 :]))

    def one(index: str, _: list[str]) -> list[str]:
        from_start = code.line(f"add i64 {index}, {first}")
        places = (source, from_start), (result, index)
        origin, home = (code.at(m.pointer, code.times(k, m.strides[axis]), m.dtype) for m, k in places)
        sizes = (*source.sizes[:axis], *source.sizes[axis + 1 :])
        strides = [(*m.strides[:axis], *m.strides[axis + 1 :]) for m in (source, result)]
        part = Memory(source.dtype, sizes, origin, strides[0], source.lies_in)
        b.memory(part, Memory(source.dtype, sizes, home, strides[1]))
        return []

    code.loop(count, one)
    return Bounded.of(b.settled(result), axis, count)


def places_of_nonzero(b: ProgramBuilder, tensor: Tensor) -> Bounded:
    """[rank, as many as are not zero]: where they are, in order."""
    source, rank = b.memory(tensor), len(tensor.sizes)
    result = b.room(INT64, (rank, tensor.count))
    x = expr.read(0, source.dtype)
    b.work += (2 + rank) * tensor.count

    def over(axis: int, pointer: str, at: list[str], found: str) -> str:
        if axis == rank:
            for k, index in enumerate(at):
                row = b.code.at(result.pointer, k * tensor.count, INT64)
                b.code.store(index, b.code.at(row, found, INT64), INT64)
            element = b.code.load(pointer, source.dtype)
            if source.dtype is not BOOL:
                (element,) = b.code.evaluate([expr.ne(x, 0)], 1, {x: element})
            return b.code.line(f"add nuw nsw i64 {found}, {b.code.line(f'zext i1 {element} to i64')}")

        def one(index: str, carried: list[str]) -> list[str]:
            place = b.code.at(pointer, b.code.times(index, source.strides[axis]), source.dtype)
            return [over(axis + 1, place, [*at, index], carried[0])]

        return b.code.loop(b.length(tensor, axis), one, [("i64", found)])[0]

    length = over(0, source.pointer, [], "0")
    return Bounded.of(b.settled(result), 1, length)
