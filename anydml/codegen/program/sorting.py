"""The best elements along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anydml.codegen.llvm_types import value_type
from anydml.codegen.program.bounded import masked
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.foldings import LARGEST, largest, least
from anydml.codegen.program.reductions import folded_lanes
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import Bounded, Known, Memory, Tensor
from anydml.ops import expr
from anydml.ops.dtypes import (
    FLOAT16,
    FLOAT32,
    FLOATING,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMPY,
    SIZE,
    UINT8,
    UINT16,
    ScalarType,
)
from anydml.ops.expr import Expr, read


def best(
    b: ProgramBuilder, tensor: Tensor, axis: int, count: int | str, greatest: bool
) -> tuple[Tensor, Tensor]:
    """So many of the greatest (or least) elements along an axis, best first, and their places.

    Of equal ones the first comes first; NaN is greater than all numbers.

    Args:
        count: a number, or the register with it; not more than there are.
    """
    most = count if isinstance(count, int) else tensor.sizes[axis]
    sizes = (*tensor.sizes[:axis], most, *tensor.sizes[axis + 1 :])
    values, places = b.room(tensor.dtype, sizes), b.room(INT64, sizes)
    source, write, length = b.memory(tensor), _by_comparison, b.length(tensor, axis)
    every = [source, values, places]
    b.work += 2 * tensor.count * most
    if tensor.dtype in _NARROW:
        keys = _keys(b, source, axis, greatest)
        if isinstance(length, str):
            keys = masked(b, Bounded.of(keys, axis, length), least(INT64))
        every.append(b.memory(keys))
        write = _by_keys
    stays = [(b.length(tensor, k), [t.strides[k] for t in every]) for k in range(len(sizes)) if k != axis]

    def row(pointers: list[str]) -> None:
        along = [replace(t, pointer=p) for t, p in zip(every, pointers, strict=True)]
        write(b, along, axis, count, length, greatest)

    b.over(stays, [(t.dtype, t.pointer) for t in every], row)
    found = b.settled(values), b.settled(places)
    if isinstance(tensor, Bounded) and tensor.axis != axis:
        if isinstance(count, str):
            raise NotNative("two axes of which it is not known how long they are")
        return Bounded.of(found[0], tensor.axis, tensor.length), Bounded.of(
            found[1], tensor.axis, tensor.length
        )
    if isinstance(count, str):
        return Bounded.of(found[0], axis, count), Bounded.of(found[1], axis, count)
    return found


_NARROW = (FLOAT16, FLOAT32, INT8, INT16, INT32, UINT8, UINT16)
"""Types whose elements fit into half a key."""


def _keys(b: ProgramBuilder, tensor: Memory, axis: int, greatest: bool) -> Tensor:
    """An integer for each element, greater for better ones: its order, then how far it is from the end."""
    ends = np.arange(tensor.sizes[axis])[::-1].reshape([-1] + [1] * (len(tensor.sizes) - axis - 1))
    key = key_of(expr.read(0, tensor.dtype), expr.read(1, INT64), greatest)
    return b.elementwise(key, [tensor, Known.of(ends.copy())])


def key_of(element: Expr, from_end: Expr, greatest: bool) -> Expr:
    """Of an element of a narrow type, so many before the end."""
    x = expr.convert(element, FLOAT32 if element.dtype is FLOAT16 else element.dtype)
    order = x
    if element.dtype in FLOATING:
        bits = expr.bitcast(expr.add(x, 0.0), INT32)  # of -0 those of 0
        rising = expr.select(expr.lt(bits, 0), expr.xor(bits, 0x7FFFFFFF), bits)
        order = expr.select(expr.is_nan(x), 0x7FFFFFFF, rising)
    wide = expr.convert(order, INT64)
    high = expr.shl(wide if greatest else expr.xor(wide, -1), 32)
    return expr.or_(high, from_end)


def _by_keys(
    b: ProgramBuilder,
    along: Sequence[Memory],
    axis: int,
    count: int | str,
    length: int | str,
    greatest: bool,
) -> None:
    """One row: the greatest key of those below the last one, again and again."""
    source, values, places, keys = along
    code, n, step = b.code, keys.sizes[axis], keys.strides[axis]
    lanes = min(b.vector_lanes(SIZE[INT64]), n) if step == 1 else 1
    kind = value_type(INT64, lanes)
    key, last, most = (expr.read(k, INT64) for k in range(3))
    lowest = least(INT64)
    below = expr.maximum(most, expr.select(expr.lt(key, last), key, int(lowest)))
    start = code.constant(np.full(lanes, lowest, np.int64), INT64)

    def pick(rank: str, carried: list[str]) -> list[str]:
        limit = code.splat(carried[0], INT64, lanes)

        def look(index: str, found: list[str]) -> list[str]:
            place = code.times(b.block_start(index, lanes, n), step)
            some = code.load(code.at(keys.pointer, place, INT64), INT64, lanes)
            return code.evaluate([below], lanes, {key: some, last: limit, most: found[0]})

        (found,) = code.loop(-(-n // lanes), look, [(kind, start)])
        top = folded_lanes(b, LARGEST, INT64, found, lanes)
        at = code.line(f"sub i64 {n - 1}, {code.line(f'and i64 {top}, {0xFFFFFFFF}')}")
        origin = code.at(source.pointer, code.times(at, source.strides[axis]), source.dtype)
        home = code.at(values.pointer, code.times(rank, values.strides[axis]), values.dtype)
        code.store(code.load(origin, source.dtype), home, source.dtype)
        code.store(at, code.at(places.pointer, code.times(rank, places.strides[axis]), INT64), INT64)
        return [top]

    code.loop(count, pick, [("i64", str(largest(INT64)))])


def _by_comparison(
    b: ProgramBuilder,
    along: Sequence[Memory],
    axis: int,
    count: int | str,
    length: int | str,
    greatest: bool,
) -> None:
    """One row: the best of what comes after the last one, again and again."""
    source, values, places = along
    dtype, step = source.dtype, source.strides[axis]
    kind, code = value_type(dtype, 1), b.code
    new, other = read(0, dtype), read(1, dtype)
    beats, beaten = _beats(new, other, greatest), _beats(other, new, greatest)
    top = b.code.constant(np.array(_top(dtype, greatest), NUMPY[dtype]), dtype)

    def pick(rank: str, last: list[str]) -> list[str]:
        """The best of those that come after the last one."""

        def look(index: str, found: list[str]) -> list[str]:
            x = code.load(code.at(source.pointer, code.times(index, step), dtype), dtype)
            worse, better = code.evaluate([beaten, beats], 1, {new: x, other: last[0]})
            (wins,) = code.evaluate([beats], 1, {new: x, other: found[0]})
            equal = code.line(f"xor i1 {better}, true")  # or worse
            later = code.line(f"icmp sgt i64 {index}, {last[1]}")
            after = code.line(f"or i1 {worse}, {code.line(f'and i1 {equal}, {later}')}")
            none = code.line(f"icmp slt i64 {found[1]}, 0")
            takes = code.line(f"and i1 {after}, {code.line(f'or i1 {none}, {wins}')}")
            return [
                code.line(f"select i1 {takes}, {kind} {x}, {kind} {found[0]}"),
                code.line(f"select i1 {takes}, i64 {index}, i64 {found[1]}"),
            ]

        found = code.loop(length, look, [(kind, last[0]), ("i64", "-1")])
        code.store(found[0], code.at(values.pointer, code.times(rank, values.strides[axis]), dtype), dtype)
        code.store(found[1], code.at(places.pointer, code.times(rank, places.strides[axis]), INT64), INT64)
        return found

    code.loop(count, pick, [(kind, top), ("i64", "-1")])


def _beats(x: Expr, y: Expr, greatest: bool) -> Expr:
    wins = expr.gt(x, y) if greatest else expr.lt(x, y)
    if x.dtype not in FLOATING:
        return wins
    above, below = (x, y) if greatest else (y, x)
    return expr.or_(wins, expr.and_(expr.is_nan(above), expr.not_(expr.is_nan(below))))


def _top(dtype: ScalarType, greatest: bool) -> int | float:
    """What nothing beats."""
    if not greatest:
        return least(dtype)
    return float("nan") if dtype in FLOATING else largest(dtype)
