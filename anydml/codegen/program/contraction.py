"""Products of matrices: the one place where multiplications are added up.

Each element of the result is a chain of fused multiplications and additions over the inner axis, in its
order, whatever the tiles are; where factors are waves, what has the same factor is added up before. Integers
wrap around. Known factors are packed as tiles read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.llvm_types import element_type, mangle, value_type
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.geometry import broadcast_strides, over, starts
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import Known, Memory, Pending, Tensor, work_of
from anydml.dataclass import dataclass
from anydml.ops.dtypes import BOOL, FLOATING, NUMPY, SIZE, ScalarType
from anydml.ops.expr import Expr, add, read
from anydml.ops.expr import sub as subtract

UNROLLED = 4
MAX_ROWS = 8
"""Of a tile."""
MAX_END_OPS = 8
"""Of what is done to sums on their way out, which is written for each register of a tile."""
MIN_MIRRORED = 16
"""Factors of a sum, and sums."""
NEAR_BYTES = 1 << 15
"""That stay near a core while a tile is computed."""
MAX_LINE_BYTES = 256
"""Of a tile's columns, where factors come from further away: more at once are a quarter slower."""
_BYTES_A_CYCLE = 50
"""From further away."""
_LATENCY = 4
"""Cycles from a fused multiplication and addition to the next one of its sum; a cycle begins two, and two
loads."""


@dataclass(frozen=True)
class _Tiling:
    """A tile of the product is so many rows of so many columns, which are vectors of so many lanes."""

    rows: int
    columns: int
    lanes: int

    @staticmethod
    def of(b: ProgramBuilder, dtype: ScalarType, m: int, n: int, depth: int) -> _Tiling:
        """That of the fewest cycles: sums and what is loaded for them fit the registers, few are computed
        twice, none waits for the one before, and lines are read again only while they are near."""
        line = depth * SIZE[dtype]
        lanes = min(b.vector_lanes(SIZE[dtype]), n)
        registers = 32 if b.target.vector_bytes == 64 else 16
        most = registers // 2
        if line * n > NEAR_BYTES:
            most = min(most, MAX_LINE_BYTES // (lanes * SIZE[dtype]))
        found: list[tuple[float, int, int]] = []
        for rows in range(1, min(m, MAX_ROWS) + 1):
            for vectors in range(1, min(-(-n // lanes), most) + 1):
                if rows * vectors + min(vectors, 2) + 2 > registers:
                    break
                cycles = max(rows * vectors / 2, (rows + vectors) / 2, _LATENCY) + 0.25
                down, across = -(-m // rows), -(-n // (vectors * lanes))
                near = line * (vectors * lanes if n > m else n) <= NEAR_BYTES
                read = line * n * (1 if near else down) / _BYTES_A_CYCLE
                found.append((max(down * across * cycles * depth, read), -rows * vectors, rows))
        _, area, rows = min(found)
        return _Tiling(rows, min(-area // rows * lanes, n), lanes)


def matrix_product(
    b: ProgramBuilder,
    one: Tensor,
    other: Tensor,
    end: Expr | None = None,
    beside: Sequence[Tensor] = (),
    into: Memory | None = None,
    in_two: bool = False,
    turn: str = "",
) -> Memory:
    """[..., M, K] times [..., K, N], of numbers of 32 or 64 bits, in memory; axes in front broadcast.

    Args:
        end: what is done to each sum, read(0), on its way out, with `beside`, read(1) and so on, which
            broadcast; None: nothing.
        into: where to.
        in_two: whether K is two axes of `one`, which is in memory.
        turn: the register of an i1 that is 1 in every other one of such products with the same factors: they
            go through these to and fro, since what was last is still near.

    Raises:
        NotNative: another type; sizes that do not fit.
    """
    dtype = one.dtype
    if dtype is BOOL or SIZE[dtype] < 4 or other.dtype != dtype:
        raise NotNative(f"products of {dtype.label}")
    *stack, m, n = sizes = product_sizes(one, other, in_two)
    k = other.sizes[-2]
    if not in_two and (halves := _Mirrored.of(other)) is not None:
        return halves.product(b, b.use(one), end, beside, into or b.room(dtype, sizes))
    tiling = _Tiling.of(b, dtype, m, n, k)
    x, y = b.memory(one), b.memory(_panels(other, tiling) if isinstance(other, Known) else other)
    panels = isinstance(other, Known)
    if not panels and y.sizes[-1] > 1 and y.strides[-1] != 1:
        y = b.memory(y, b.room(dtype, y.sizes))
    given = [over(b.memory(t), sizes) for t in beside]
    result = into or b.room(dtype, sizes)
    b.work += prod(stack) * m * k * n // 8
    own = [(x, 3 if in_two else 2), (y, 3 if panels else 2), (result, 2), *((t, 2) for t in given)]
    strides = [
        broadcast_strides(Memory(t.dtype, t.sizes[:-r], t.pointer, t.strides[:-r]), stack) for t, r in own
    ]

    def one_product(pointers: list[str]) -> None:
        left, right, made, *others = (
            Memory(t.dtype, t.sizes[-r:], pointer, t.strides[-r:])
            for (t, r), pointer in zip(own, pointers, strict=True)
        )
        _ProductWriter(b, tiling, left, right, made, end, others, turn).write()

    dims = [(size, [s[axis] for s in strides]) for axis, size in enumerate(stack)]
    b.over(dims, [(t.dtype, t.pointer) for t, _ in own], one_product)
    return result


def product_sizes(one: Tensor, other: Tensor, in_two: bool = False) -> tuple[int, ...]:
    """Those of a `matrix_product`."""
    *front, m, k = (*one.sizes[:-2], prod(one.sizes[-2:])) if in_two else one.sizes
    k_too, n = other.sizes[-2:]
    if k != k_too:
        raise NotNative(f"a product over {k} and {k_too}")
    try:
        return (*np.broadcast_shapes(tuple(front), other.sizes[:-2]), m, n)
    except ValueError:
        raise NotNative("stacks of matrices that do not broadcast") from None


def pending(
    b: ProgramBuilder,
    given: Sequence[Tensor],
    sizes: tuple[int, ...],
    product: Callable[[Expr | None, Sequence[Tensor]], Memory],
    laid: Callable[[Memory], Memory | None],
) -> Tensor:
    """A product that waits for what is done to its sums.

    Args:
        given: what it is computed of, the first of its type.
        sizes: that it has in the end.
        product: (end, beside) -> it in memory, of these sizes.
        laid: something beside it, of these sizes, in the sizes of the product of matrices; None where strides
            do not lead to that.
    """

    def write(end: Expr, others: Sequence[Tensor]) -> Memory | None:
        if work_of(end) > MAX_END_OPS:
            return None
        beside = [laid(over(b.memory(t), sizes)) for t in others]
        found = [t for t in beside if t is not None]
        return product(end if end.args else None, found) if len(found) == len(beside) else None

    return b.later(Pending(given[0].dtype, sizes, write, tuple(given)))


@dataclass(frozen=True)
class _Mirrored:
    """Factors [K, N] of which the first columns are the same from both ends, and the others negated: waves,
    of which Fourier transforms are made. What is multiplied by the same factor is added up before.

        x[k] f[k] + x[K - k] f[K - k]  =  (x[k] + x[K - k]) f[k]  or  (x[k] - x[K - k]) f[k]
    """

    factors: NDArray[Any]
    even: int
    """Columns that are the same from both ends."""
    first: int
    """The first of the pairs; 1: what is before it stays alone, as does what is in the middle."""

    @staticmethod
    def of(factors: Tensor) -> _Mirrored | None:
        """Where half of the multiplications is worth the additions before them."""
        depth, columns = factors.sizes[-2:]
        if not isinstance(factors, Known) or factors.dtype not in FLOATING:
            return None
        if min(depth, columns) < MIN_MIRRORED or factors.count != depth * columns:
            return None
        matrix: NDArray[Any] = factors.array.reshape(depth, columns)
        for first in (0, 1):
            ahead = matrix[first:]
            same, opposite = (ahead == ahead[::-1]).all(0), (ahead == -ahead[::-1]).all(0)
            even = columns if same.all() else int(same.argmin())
            if opposite[even:].all() and not (first and matrix[0, even:].any()):
                return _Mirrored(matrix, even, first)
        return None

    def product(
        self, b: ProgramBuilder, x: Tensor, end: Expr | None, beside: Sequence[Tensor], result: Memory
    ) -> Memory:
        *front, depth = x.sizes
        places = np.arange(x.count).reshape(x.sizes)
        half = (depth - self.first) // 2
        pairs = np.arange(self.first, self.first + half)
        one, other = (b.rearrange(x, places[..., k]) for k in (pairs, depth - 1 + self.first - pairs))
        alone = [0] * bool(self.first and self.factors[0].any())
        alone += [self.first + half] * ((depth - self.first) % 2)
        given = [over(b.memory(t), result.sizes) for t in beside]
        columns = [(0, self.even, add, alone), (self.even, result.sizes[-1], subtract, [])]
        for start, stop, meaning, single in columns:  # the opposite of itself is only 0
            if start == stop:
                continue
            both = b.elementwise(meaning(read(0, x.dtype), read(1, x.dtype)), [one, other])
            parts = [(0, both), *((half + k, b.rearrange(x, places[..., [p]])) for k, p in enumerate(single))]
            at = [([0] * len(front) + [place], part) for place, part in parts]
            sums = b.assemble(x.dtype, (*front, half + len(single)), at)
            factors = Known.of(self.factors[[*pairs, *single], start:stop])
            begin, sizes = [*[0] * (len(result.sizes) - 1), start], (*result.sizes[:-1], stop - start)
            into, *others = (b.part_of(t, begin, sizes) for t in (result, *given))
            matrix_product(b, sums, factors, end, others, into)
        return result


def _panels(other: Known, tiling: _Tiling) -> Known:
    """Known factors [..., K, N] as the tiles read them, line after line: [..., tiles, K, columns]."""
    n = other.sizes[-1]
    columns = np.add.outer(starts(n, tiling.columns), np.arange(tiling.columns))
    return Known.of(np.ascontiguousarray(np.moveaxis(other.array[..., columns], -3, -2)))


class _ProductWriter:
    """A product, tile by tile; the last tile begins earlier where it would not be full.

    Args:
        x: a matrix, whose rows may be of two axes.
        y: a matrix, or its panels.
        end: what is done with every sum, with the elements `beside` it.
        turn: a condition under which columns are gone through backwards, or nothing.
    """

    def __init__(
        self,
        b: ProgramBuilder,
        tiling: _Tiling,
        x: Memory,
        y: Memory,
        result: Memory,
        end: Expr | None,
        beside: Sequence[Memory],
        turn: str,
    ) -> None:
        self._b, self._code, self._dtype = b, b.code, x.dtype
        self._x, self._y, self._result = x, y, result
        self._end, self._beside, self._turn = end, beside, turn
        self._rows, self._width, self._lanes = tiling.rows, tiling.columns, tiling.lanes
        self._vectors = starts(self._width, self._lanes)
        self._kind = value_type(self._dtype, self._lanes)

    def write(self) -> None:
        m, n = self._result.sizes
        if n > m:  # each line of y is read once, while the rows of x stay near
            self._over_columns(
                n, lambda column, y: self._over_rows(m, lambda row: self._tile(row, column, y))
            )
        else:
            self._over_rows(
                m, lambda row: self._over_columns(n, lambda column, y: self._tile(row, column, y))
            )

    def _over_rows(self, m: int, body: Callable[[str], None]) -> None:
        def one(index: str, _: list[str]) -> list[str]:
            body(self._b.block_start(index, self._rows, m))
            return []

        self._code.loop(-(-m // self._rows), one)

    def _over_columns(self, n: int, body: Callable[[str, str], None]) -> None:
        """`body` gets where a tile begins, in columns and as an address in `y`."""
        code, y, count = self._code, self._y, -(-n // self._width)

        def one(index: str, _: list[str]) -> list[str]:
            if self._turn:
                back = code.line(f"sub i64 {count - 1}, {index}")
                index = code.line(f"select i1 {self._turn}, i64 {back}, i64 {index}")
            column = self._b.block_start(index, self._width, n)
            step, by = (column, 1) if len(y.sizes) == 2 else (index, y.strides[0])
            body(column, code.at(y.pointer, code.times(step, by), self._dtype))
            return []

        code.loop(count, one)

    def _tile(self, row: str, column: str, right: str) -> None:
        code, dtype, x, result = self._code, self._dtype, self._x, self._result
        left = code.at(x.pointer, code.times(row, x.strides[0]), dtype)
        home = code.at(code.at(result.pointer, code.times(row, result.strides[0]), dtype), column, dtype)
        zero = code.constant(np.zeros(1, NUMPY[dtype]), dtype) if self._lanes == 1 else "zeroinitializer"
        cells = [(r, v) for r in range(self._rows) for v in self._vectors]
        sums = [zero] * len(cells)
        if len(x.sizes) == 3:

            def line(index: str, sums: list[str]) -> list[str]:
                further = code.at(left, code.times(index, x.strides[1]), dtype)
                below = code.at(right, code.times(index, x.sizes[2] * self._y.strides[-2]), dtype)
                return self._along(further, below, x.sizes[2], sums)

            sums = code.loop(x.sizes[1], line, [(self._kind, s) for s in sums])
        else:
            sums = self._along(left, right, x.sizes[1], sums)
        for (r, v), total in zip(cells, sums, strict=True):
            if self._end is not None:
                total = self._finished(self._end, total, code.plus(row, r), code.plus(column, v))
            code.store(total, code.at(home, r * result.strides[0] + v, dtype), dtype, self._lanes)

    def _along(self, left: str, right: str, depth: int, sums: list[str]) -> list[str]:
        """The sums with `depth` more products in each."""
        code, unrolled = self._code, depth // UNROLLED
        if unrolled:
            sums = code.loop(
                unrolled,
                lambda i, c: self._step(left, right, code.times(i, UNROLLED), UNROLLED, list(c)),
                [(self._kind, s) for s in sums],
            )
        if depth % UNROLLED:
            sums = self._step(left, right, str(unrolled * UNROLLED), depth % UNROLLED, [*sums])
        return sums

    def _step(self, left: str, right: str, k: str, count: int, sums: list[str]) -> list[str]:
        code, dtype, x, y = self._code, self._dtype, self._x, self._y
        above = code.at(right, code.times(k, y.strides[-2]), dtype)
        beside = code.at(left, code.times(k, x.strides[-1]), dtype)
        for u in range(count):
            line = code.at(above, u * y.strides[-2], dtype)
            vs = [code.load(code.at(line, start, dtype), dtype, self._lanes) for start in self._vectors]
            for r in range(self._rows):
                place = code.at(beside, r * x.strides[0] + u * x.strides[-1], dtype)
                one = code.splat(code.load(place, dtype), dtype, self._lanes)
                for v, vector in enumerate(vs):
                    cell = r * len(vs) + v
                    sums[cell] = self._multiply_add(one, vector, sums[cell])
        return sums

    def _multiply_add(self, x: str, y: str, total: str) -> str:
        code, kind = self._code, self._kind
        if self._dtype in FLOATING:
            fma = f"llvm.fma.{mangle(element_type(self._dtype), self._lanes)}"
            return code.call(kind, fma, (kind, x), (kind, y), (kind, total))
        return code.line(f"add {kind} {total}, {code.line(f'mul {kind} {x}, {y}')}")

    def _finished(self, end: Expr, total: str, row: str, column: str) -> str:
        code = self._code
        known = {read(0, self._dtype): total}
        for k, t in enumerate(self._beside, start=1):
            place = t.pointer
            for index, stride in zip((row, column), t.strides, strict=True):
                (place,) = code.all_at([place], index, [stride], [t.dtype])
            known[read(k, t.dtype)] = self._b.lanes(place, t.dtype, self._lanes, t.strides[1])
        return code.evaluate([end], self._lanes, known)[0]
