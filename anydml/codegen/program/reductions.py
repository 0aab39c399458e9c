"""Folding axes: sums, extremes, places of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from anydml.codegen.llvm_types import value_type
from anydml.codegen.program.bounded import expect_some, masked
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.foldings import Folding, largest, least
from anydml.codegen.program.geometry import strides_like
from anydml.codegen.program.values import Bounded, Memory, Register, Tensor
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT64, FLOATING, INT64, NUMPY, SIZE, ScalarType
from anydml.ops.expr import Expr, constant, convert, read


def fold_axes(b: ProgramBuilder, tensor: Tensor, axes: Sequence[int], keep: bool, folding: Folding) -> Tensor:
    """The tensor with these axes folded; kept with size 1, or not. Nothing becomes what is neutral; its mean
    is for others to say."""
    if not isinstance(tensor, Bounded):
        return _fold(b, tensor, axes, keep, folding, prod(tensor.sizes[k] for k in axes))
    if tensor.axis not in axes:
        axis = tensor.axis if keep else tensor.axis - sum(k < tensor.axis for k in axes)
        count = prod(tensor.sizes[k] for k in axes)
        return Bounded.of(_fold(b, b.whole(tensor), axes, keep, folding, count), axis, tensor.length)
    x, n = read(0, folding.type(dtype := tensor.dtype)), read(1, FLOAT64)
    if folding.end(x, n) is not x:
        expect_some(b, tensor)
    each = prod(tensor.sizes[k] for k in axes if k != tensor.axis)
    filled = masked(b, tensor, folding.neutral(dtype))
    return _fold(b, filled, axes, keep, folding, b.code.times(tensor.length, each))


def _fold(
    b: ProgramBuilder, tensor: Tensor, axes: Sequence[int], keep: bool, folding: Folding, count: int | str
) -> Tensor:
    """`count`: how many become one, of those that are not neutral."""
    dtype, sizes = tensor.dtype, tensor.sizes
    kept = tuple(1 if k in axes else n for k, n in enumerate(sizes))
    wanted = kept if keep else tuple(n for k, n in enumerate(sizes) if k not in axes)
    b.work += tensor.count
    if tensor.small:
        moved = np.moveaxis(np.arange(tensor.count).reshape(sizes), tuple(axes), range(len(axes)))
        rows = moved.reshape(prod(sizes[k] for k in axes), -1)
        given = b.register(tensor)
        wide = _opened(b, folding, given.name, dtype, tensor.count)
        name = _folded(b, folding, dtype, wide, tensor.count, rows)
        return Register(dtype, wanted, _closed(b, folding, dtype, name, rows.shape[1], count))
    source = b.memory(tensor)
    result = b.room(dtype, kept, strides_like(kept, [source]))
    _Nest(b, source, result, axes, folding, count).write()
    return b.settled(b.reshape(result, wanted))


def _opened(b: ProgramBuilder, folding: Folding, name: str, dtype: ScalarType, lanes: int) -> str:
    x = read(0, dtype)
    return b.code.evaluate([folding.opened(x)], lanes, {x: name})[0]


def _combined(b: ProgramBuilder, folding: Folding, dtype: ScalarType, one: str, two: str, lanes: int) -> str:
    x, y = read(0, folding.type(dtype)), read(1, folding.type(dtype))
    return b.code.evaluate([folding.combine(x, y)], lanes, {x: one, y: two})[0]


def _closed(
    b: ProgramBuilder, folding: Folding, dtype: ScalarType, name: str, lanes: int, count: int | str
) -> str:
    """`count`: of elements, or the register with it."""
    x, n = read(0, folding.type(dtype)), read(1, INT64)
    if isinstance(count, int):
        return b.code.evaluate([folding.closed(x, constant(count, FLOAT64), dtype)], lanes, {x: name})[0]
    meaning = folding.closed(x, convert(n, FLOAT64), dtype)
    return b.code.evaluate([meaning], lanes, {x: name, n: b.code.splat(count, INT64, lanes)})[0]


def _folded(
    b: ProgramBuilder, folding: Folding, dtype: ScalarType, name: str, count: int, rows: np.ndarray
) -> str:
    """The rows of places in a register, one upon the other: halves, as long as there are two."""
    wide, odd = folding.type(dtype), []
    while len(rows) > 1:
        half = len(rows) // 2
        if len(rows) % 2:
            odd.append(b.code.shuffle(name, wide, count, rows[-1].tolist()))
        one, two = (
            b.code.shuffle(name, wide, count, part.reshape(-1).tolist())
            for part in (rows[:half], rows[half : 2 * half])
        )
        count = half * rows.shape[1]
        name = _combined(b, folding, dtype, one, two, count)
        rows = np.arange(count).reshape(half, -1)
    name = b.code.shuffle(name, wide, count, rows[0].tolist())
    for other in odd:
        name = _combined(b, folding, dtype, name, other, rows.shape[1])
    return name


def folded_lanes(b: ProgramBuilder, folding: Folding, dtype: ScalarType, name: str, lanes: int) -> str:
    """The lanes of a register as one."""
    return _folded(b, folding, dtype, name, lanes, np.arange(lanes).reshape(lanes, 1))


def folded_row(
    b: ProgramBuilder, folding: Folding, dtype: ScalarType, parts: Sequence[tuple[int, str]]
) -> str:
    """The elements of a row, in registers of so many lanes each, as one: in the same order as those of
    one which is not."""
    wide, totals = folding.type(dtype), dict[int, str]()
    for width, name in parts:
        if width not in totals:
            totals[width] = b.code.constant(np.full(width, folding.neutral(wide), NUMPY[wide]), wide)
        x = _opened(b, folding, name, dtype, width)
        totals[width] = _combined(b, folding, dtype, totals[width], x, width)
    return closed_row(b, folding, dtype, [*totals.items()], sum(width for width, _ in parts))


def closed_row(
    b: ProgramBuilder,
    folding: Folding,
    dtype: ScalarType,
    totals: Sequence[tuple[int, str]],
    count: int | str,
) -> str:
    """What so many elements of a row have become, of which registers of so many lanes have their parts."""
    total, *others = (folded_lanes(b, folding, dtype, name, width) for width, name in totals)
    for other in others:
        total = _combined(b, folding, dtype, total, other, 1)
    return _closed(b, folding, dtype, total, 1, count)


class _Nest:
    """Loops over what is kept, and in them over what is folded; in vectors along neighbours in memory."""

    def __init__(
        self,
        b: ProgramBuilder,
        source: Memory,
        result: Memory,
        axes: Sequence[int],
        folding: Folding,
        count: int | str,
    ) -> None:
        self.b, self.source, self.result, self.folding, self.count = b, source, result, folding, count
        self.dtype, self.wide = source.dtype, folding.type(source.dtype)
        every = [(k, n) for k, n in enumerate(source.sizes) if n > 1]
        by_stride = sorted(every, key=lambda kn: -abs(source.strides[kn[0]]))
        self.folds = [(n, source.strides[k]) for k, n in by_stride if k in axes]
        self.stays = [(n, source.strides[k], result.strides[k]) for k, n in by_stride if k not in axes]

    def write(self) -> None:
        """Across rows where these lie side by side, else along each."""
        b, dims = self.b, [(n, steps) for n, *steps in self.stays]
        operands = [(self.dtype, self.source.pointer), (self.dtype, self.result.pointer)]
        if not self.stays or self.stays[-1][1:] != (1, 1):
            b.over(dims, operands, lambda pointers: self._row(pointers[0], pointers[1], 0))
            return
        n = self.stays[-1][0]
        lanes = min(b.vector_lanes(SIZE[self.dtype]), n)

        def rows(pointers: list[str]) -> None:
            def block(index: str, _: list[str]) -> list[str]:
                first = b.block_start(index, lanes, n)
                source, result = (b.code.at(p, first, self.dtype) for p in pointers)
                self._row(source, result, lanes)
                return []

            b.code.loop(-(-n // lanes), block)

        b.over(dims[:-1], operands, rows)

    def _row(self, source: str, result: str, across: int) -> None:
        """One row, or `across` rows side by side."""
        b, folding = self.b, self.folding
        if across:
            start = b.code.constant(np.full(across, folding.neutral(self.wide), NUMPY[self.wide]), self.wide)
            kind = value_type(self.wide, across)

            def add(pointer: str, carried: list[str]) -> list[str]:
                x = _opened(b, folding, b.code.load(pointer, self.dtype, across), self.dtype, across)
                return [_combined(b, folding, self.dtype, carried[0], x, across)]

            (total,) = self._over(self.folds, source, [(kind, start)], add)
            b.code.store(
                _closed(b, folding, self.dtype, total, across, self.count), result, self.dtype, across
            )
            return
        n, step = self.folds[-1] if self.folds else (1, 1)
        lanes = b.vector_lanes(SIZE[self.dtype]) if step == 1 else 1
        whole, rest = divmod(n, lanes)
        parts = [(lanes, 0)] * bool(whole) + [(rest, whole * lanes)] * bool(rest)
        carried = []
        for width, _ in parts:
            first = np.full(width, folding.neutral(self.wide), NUMPY[self.wide])
            carried.append((value_type(self.wide, width), b.code.constant(first, self.wide)))

        def run(pointer: str, registers: list[str]) -> list[str]:
            results = []
            for (width, offset), register in zip(parts, registers, strict=True):

                def one(index: str, c: list[str], width: int = width, offset: int = offset) -> list[str]:
                    place = b.code.at(pointer, b.code.times(index, lanes * step), self.dtype)
                    place = b.code.at(place, offset * step, self.dtype)
                    loaded = b.code.load(place, self.dtype, width)
                    x = _opened(b, folding, loaded, self.dtype, width)
                    return [_combined(b, folding, self.dtype, c[0], x, width)]

                times = whole if offset == 0 and whole else 1
                results += b.code.loop(times, one, [(value_type(self.wide, width), register)])
            return results

        totals = self._over(self.folds[:-1], source, carried, run)
        every = [(width, total) for total, (width, _) in zip(totals, parts, strict=True)]
        b.code.store(closed_row(b, folding, self.dtype, every, self.count), result, self.dtype)

    def _over(
        self,
        dims: Sequence[tuple[int, int]],
        pointer: str,
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], list[str]],
    ) -> list[str]:
        """Loops over folded dimensions."""
        if not dims:
            return body(pointer, [value for _, value in carried])
        (n, step), *inner = dims

        def one(index: str, registers: list[str]) -> list[str]:
            place = self.b.code.at(pointer, self.b.code.times(index, step), self.dtype)
            again = [(kind, r) for (kind, _), r in zip(carried, registers, strict=True)]
            return self._over(inner, place, again, body)

        return self.b.code.loop(n, one, carried)


def place_of_extreme(
    b: ProgramBuilder, tensor: Tensor, axis: int, keep: bool, better: Callable[[Expr, Expr], Expr]
) -> Tensor:
    """Where along an axis the element is that no other is `better` than: the first such, or the first NaN."""
    if isinstance(tensor, Bounded) and tensor.axis != axis:
        found = place_of_extreme(b, b.whole(tensor), axis, keep, better)
        return Bounded.of(found, tensor.axis - (not keep and axis < tensor.axis), tensor.length)
    if isinstance(tensor, Bounded):
        expect_some(b, tensor)
        one, other = (read(k, tensor.dtype) for k in range(2))
        worst = least if better(one, other) is expr.gt(one, other) else largest
        tensor = masked(b, tensor, worst(tensor.dtype))
    source, dtype = b.memory(tensor), tensor.dtype
    b.work += 2 * tensor.count
    kept = tuple(1 if k == axis else n for k, n in enumerate(tensor.sizes))
    result = b.room(INT64, kept)
    n, step = source.sizes[axis], source.strides[axis]
    stays = [(m, (source.strides[k], result.strides[k])) for k, m in enumerate(source.sizes) if k != axis]
    lanes = min(b.vector_lanes(SIZE[dtype]), n) if step == 1 else 1
    place_of_best = _Contest(b, dtype, better).place

    def row(pointer: str, home: str) -> None:
        b.code.store(place_of_best(pointer, n, step, lanes), home, INT64)

    operands = [(dtype, source.pointer), (INT64, result.pointer)]
    b.over(stays, operands, lambda pointers: row(*pointers))
    wanted = kept if keep else tuple(m for k, m in enumerate(tensor.sizes) if k != axis)
    return b.settled(b.reshape(result, wanted))


class _Contest:
    """Elements with their places, of which the best one wins: the first such, or the first NaN."""

    def __init__(self, b: ProgramBuilder, dtype: ScalarType, better: Callable[[Expr, Expr], Expr]) -> None:
        self.b, self.dtype = b, dtype
        self.operands = new, old, new_at, old_at = (
            read(0, dtype),
            read(1, dtype),
            read(2, INT64),
            read(3, INT64),
        )
        self.wins, self.loses = better(new, old), better(old, new)
        if dtype in FLOATING:
            self.wins = expr.or_(self.wins, expr.and_(expr.is_nan(new), expr.not_(expr.is_nan(old))))
            self.loses = expr.or_(self.loses, expr.and_(expr.is_nan(old), expr.not_(expr.is_nan(new))))
        self.is_first = expr.and_(expr.not_(self.loses), expr.lt(new_at, old_at))

    def place(self, pointer: str, count: int, step: int, lanes: int) -> str:
        """The place of the best of so many elements: the best of each lane, then the best of these."""
        code, dtype = self.b.code, self.dtype
        ways = code.constant(np.arange(lanes), INT64)

        def block(index: str, best: list[str]) -> list[str]:
            start = self.b.block_start(index, lanes, count)
            x = code.load(code.at(pointer, code.times(start, step), dtype), dtype, lanes)
            at = code.line(f"add {value_type(INT64, lanes)} {ways}, {code.splat(start, INT64, lanes)}")
            return self._better((x, at), best, self.wins, lanes)

        first = [code.load(pointer, dtype, lanes), ways]
        kinds = [value_type(dtype, lanes), value_type(INT64, lanes)]
        best = code.loop(-(-count // lanes), block, list(zip(kinds, first, strict=True)))
        while lanes > 1:  # the lanes may have the same element, and of equal ones any
            half = -(-lanes // 2)
            one, other = (
                [
                    code.shuffle(r, t, lanes, range(k, k + half))
                    for r, t in zip(best, (dtype, INT64), strict=True)
                ]
                for k in (0, lanes - half)
            )
            best = self._better(other, one, expr.or_(self.wins, self.is_first), half)
            lanes = half
        return best[1]

    def _better(self, new: Sequence[str], old: Sequence[str], wins: Expr, lanes: int) -> list[str]:
        x, y, x_at, y_at = self.operands
        known = dict(zip((x, x_at, y, y_at), (*new, *old), strict=True))
        return self.b.code.evaluate([expr.select(wins, x, y), expr.select(wins, x_at, y_at)], lanes, known)


def running(b: ProgramBuilder, tensor: Tensor, axis: int, folding: Folding, own: bool, back: bool) -> Tensor:
    """For each element what those up to it along an axis become, its own included or not; or from the end."""
    source, dtype, wide = b.memory(tensor), tensor.dtype, folding.type(tensor.dtype)
    result = b.room(dtype, tensor.sizes)
    b.work += 2 * tensor.count
    n, steps = tensor.sizes[axis], (source.strides[axis], result.strides[axis])
    neutral = b.code.constant(np.array(folding.neutral(wide), NUMPY[wide]), wide)

    def row(pointers: list[str]) -> None:
        begin = (n - 1) * back
        first = [b.code.at(p, begin * s, dtype) for p, s in zip(pointers, steps, strict=True)]

        def one(index: str, carried: list[str]) -> list[str]:
            place, home = (
                b.code.at(p, b.code.times(index, -s if back else s), dtype)
                for p, s in zip(first, steps, strict=True)
            )
            x = _opened(b, folding, b.code.load(place, dtype), dtype, 1)
            total = _combined(b, folding, dtype, carried[0], x, 1)
            told = _closed(b, folding, dtype, total if own else carried[0], 1, 1)
            b.code.store(told, home, dtype)
            return [total]

        b.code.loop(n, one, [(value_type(wide, 1), neutral)])

    stays = [(m, (source.strides[k], result.strides[k])) for k, m in enumerate(tensor.sizes) if k != axis]
    b.over(stays, [(dtype, source.pointer), (dtype, result.pointer)], row)
    return b.settled(result)
