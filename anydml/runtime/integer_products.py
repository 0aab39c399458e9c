"""Products of matrices of 8-bit integers, less their zero points: sums that are exact, modulo 2^32.

    (a - p), (b - q)    two by two along k, side by side as integers of 16 bits

as processors have an instruction that multiplies two by two and adds up. Newer ones have one for four by
four, of which those of one factor have signs, and those of the other have not. There bytes are taken as they
are, or 128 away where their type is the other one, and so are the zero points:

    sum of (a - p) (b - q) over k  =  sum of a b  -  p * sum of (b - q)  -  (sum of a) * q
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from anydml.codegen.jit import host
from anydml.codegen.kernel import group
from anydml.codegen.matrix import is_small
from anydml.ops.call import Call
from anydml.ops.dtypes import FROM_NUMPY, INT8, INT32, UINT8, UINT16
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, add, and_, constant, convert, mul, neg, or_, read, shl, shr, sub, xor
from anydml.ops.reductions import row_sum
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, packed, scratch
from anydml.runtime.matrix_kernels import MatrixLaunches

BYTES = (INT8, UINT8)
SUM = read(0, INT32)
WORD = np.dtype(np.int32)

ONE, ROW, COLUMN, CHANNEL, FILTER, WHOLE = "one", "row", "column", "channel", "filter", "whole"
"""How a tensor lies along others: one number for all, or for each column, row, channel, filter or element."""


def along(x: Array, how: str, rank: int, threads: int | None) -> Array:
    """A view that broadcasts with tensors of a rank."""
    if how == WHOLE:
        return x
    ones = {ONE: (), ROW: (1, -1), COLUMN: (-1, 1)}
    behind = rank - 2 if how == CHANNEL else rank - 1
    return packed(x, threads).reshape(ones.get(how, (-1, *[1] * behind)))


def difference(x: Expr, zero_point: Expr | None) -> Expr:
    wide = convert(x, INT32)
    return wide if zero_point is None else sub(wide, convert(zero_point, INT32))


def sums_of_matrices(tensors: Mapping[str, TensorDesc], threads: int | None) -> ByPairs | ByFours:
    """What writes the sums of a `Call` of a product of matrices."""
    depth, made = tensors["ATensor"].sizes[-1], tensors["OutputTensor"].sizes
    if host().fours and not is_small(made[-2], made[-1], depth):
        return ByFours(tensors, threads)
    return ByPairs(threads)


def sizes_of(x: Array, axis: int, parts: int) -> list[int]:
    """Of what has so many elements along an axis in one."""
    return [-(-n // parts) if k == axis else n for k, n in enumerate(x.shape)]


class Pairs:
    """Differences along an axis as pairs, the first one in the lower half; behind an odd number a 0."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._launches: dict[tuple[TensorDataType, TensorDataType, int, bool], RepeatedLaunch] = {}

    def of(
        self, x: Array, axis: int, zero_point: Array | None = None, how: str = ONE, into: Array | None = None
    ) -> Array:
        """`how`: the zero point lies along x. `into`: where the pairs are to be; scratch memory else."""
        if zero_point is not None:
            zero_point = along(zero_point, how, x.ndim, self._threads)
        dtype, count = FROM_NUMPY[x.dtype], x.shape[axis]
        result = scratch(sizes_of(x, axis, 2), WORD) if into is None else into
        lead = (slice(None),) * axis
        pairs, rest = (result[(*lead, slice(*ends))] for ends in ((0, count // 2), (count // 2, None)))
        if axis == x.ndim - 1 and x.strides[-1] == 1 and count % 2 == 0:
            self._launch(dtype, [x.view(np.uint16)], zero_point, pairs)
        elif count > 1:
            both = [x[(*lead, slice(k, count // 2 * 2, 2))] for k in range(2)]
            self._launch(dtype, both, zero_point, pairs)
        if count % 2:
            self._launch(dtype, [x[(*lead, slice(count - 1, count))]], zero_point, rest)
        return result

    def _launch(
        self, dtype: TensorDataType, parts: Sequence[Array], zero_point: Array | None, result: Array
    ) -> None:
        """Of first and second ones, of both as words, or of first ones alone."""
        given, count, moved = FROM_NUMPY[parts[0].dtype], len(parts), zero_point is not None
        key = dtype, given, count, moved
        if key not in self._launches:
            found = [read(k, given) for k in range(count)]
            if given is UINT16:
                found = [convert(word, dtype) for word in (found[0], shr(found[0], 8))]
            low, *high = (difference(x, read(count, dtype) if moved else None) for x in found)
            pair = and_(low, 0xFFFF)
            if high:
                pair = or_(pair, shl(high[0], 16))
            kernel = group((given,) * count + (dtype,) * moved, (pair,))
            self._launches[key] = RepeatedLaunch(kernel, self._threads)
        beside = [] if zero_point is None else [zero_point]
        self._launches[key].alone([*parts, *beside, result])


class ByPairs:
    def __init__(self, threads: int | None) -> None:
        self._pairs, self._product = Pairs(threads), MatrixLaunches(SUM, threads, parts=2)

    def __call__(self, c: Call, into: Array) -> None:
        a = self._pairs.of(c.a, c.a.ndim - 1, c.a_zero_point, COLUMN)
        b = self._pairs.of(c.b, c.b.ndim - 2, c.b_zero_point, ROW)
        self._product.run([a, b, into], dots=into.shape[-1] == 1)


# ---- four by four ----------------------------------------------------------------------------------------

_ALL_SIGNS = constant(-0x7F7F7F80, INT32)
"""The upper bit of each of four bytes."""


class Fours:
    """Bytes of one type as those of another, in fours along an axis, of which the first one is the lowest;
    behind others 0."""

    def __init__(self, dtype: TensorDataType, wanted: TensorDataType, threads: int | None) -> None:
        self.dtype, self._threads = dtype, threads
        self.moved = 0 if dtype is wanted else 128 if wanted is UINT8 else -128
        """What is added to each."""
        self._launches: dict[int, RepeatedLaunch] = {}

    def number(self, x: Expr) -> Expr:
        """A byte as it is taken."""
        return add(convert(x, INT32), self.moved)

    def zero_point(self, given: bool) -> Expr:
        """The one that is read, or the one of bytes that have none."""
        return self.number(read(0, self.dtype)) if given else constant(self.moved, INT32)

    def of(self, x: Array, axis: int, into: Array | None = None) -> Array:
        whole, rest = divmod(x.shape[axis], 4)
        if axis == x.ndim - 1 and x.strides[axis] == 1 and rest == 0 and into is None:
            words = x.view(WORD)
            if self.moved:
                given, words = words, scratch(words.shape, WORD)
                self._launch(0).alone([given, words])
            return words
        result, lead = scratch(sizes_of(x, axis, 4), WORD) if into is None else into, (slice(None),) * axis
        end = 4 * whole
        if whole:
            parts = [x[(*lead, slice(k, end, 4))] for k in range(4)]
            self._launch(4).alone([*parts, result[(*lead, slice(whole))]])
        if rest:
            parts = [x[(*lead, slice(end + k, end + k + 1))] for k in range(rest)]
            self._launch(rest).alone([*parts, result[(*lead, slice(whole, None))]])
        return result

    def _launch(self, count: int) -> RepeatedLaunch:
        """Of so many arrays of bytes; 0: of fours, which are only to be moved."""
        if count not in self._launches:
            reads = [read(k, self.dtype) for k in range(count)]
            four = constant(0, INT32) if reads else xor(read(0, INT32), _ALL_SIGNS)
            for k, x in enumerate(reads):
                four = or_(four, shl(and_(self.number(x), 0xFF), 8 * k))
            given = tuple(x.dtype for x in reads) or (INT32,)
            self._launches[count] = RepeatedLaunch(group(given, (four,)), self._threads)
        return self._launches[count]


def four_times(x: Expr) -> Expr:
    """A byte as each of four."""
    return mul(and_(x, 0xFF), constant(0x01010101, INT32))


class Terms:
    """What is to be added to sums of products of bytes, as numbers for rows and for columns."""

    def __init__(self, a: Fours, b: Fours, given: Sequence[bool], threads: int | None) -> None:
        """`given`: whether a and b have zero points."""

        def launch(meaning: Expr, *types: TensorDataType) -> RepeatedLaunch:
            return RepeatedLaunch(group(types, (meaning,)), threads)

        self._moved = [bool(fours.moved or one) for fours, one in zip((a, b), given, strict=True)]
        types = [(fours.dtype,) * one for fours, one in zip((a, b), given, strict=True)]
        self._minus_p = launch(neg(a.zero_point(given[0])), *types[0])
        self._q = launch(b.zero_point(given[1]), *types[1])
        self._minus_rows = launch(neg(row_sum(a.number(read(0, a.dtype)), (-1,))), a.dtype)

    def of(
        self,
        a: Array,
        points: Sequence[Sequence[Array]],
        sizes: Sequence[int],
        columns: Callable[[Array], object],
    ) -> list[Array]:
        """The numbers; nothing where there are no zero points but 0.

        a: as bytes, [..., M, K].
        points: zero points of a, which broadcast with rows, and of b, with columns.
        sizes: [..., N].
        columns: what writes the sum of each column's differences to [..., 1, N].
        """
        count = sum(self._moved)
        if not count:
            return []
        left = scratch((*a.shape[:-1], count), WORD)
        right = scratch((*sizes[:-1], count, sizes[-1]), WORD)
        if self._moved[0]:
            self._minus_p.alone([*points[0], left[..., :1]])
            columns(right[..., :1, :])
        if self._moved[1]:
            self._minus_rows.alone([a, left[..., -1:]], a.shape)
            self._q.alone([*points[1], right[..., -1:, :]])
        return [left, right]


class ByFours:
    def __init__(self, tensors: Mapping[str, TensorDesc], threads: int | None) -> None:
        a, b = (tensors[f"{name}Tensor"].data_type for name in "AB")
        given = [f"{name}ZeroPointTensor" in tensors for name in "AB"]
        signed = (a, b) == (INT8, UINT8)
        self._a, self._b = (
            Fours(a, INT8 if signed else UINT8, threads),
            Fours(b, UINT8 if signed else INT8, threads),
        )
        self._terms = Terms(self._a, self._b, given, threads)
        differences = difference(read(0, b), read(1, b) if given[1] else None)
        self._columns = RepeatedLaunch(group((b,) * (1 + given[1]), (row_sum(differences, (-2,)),)), threads)
        self._product = MatrixLaunches(SUM, threads, parts=4, a_signed=signed)
        self._threads = threads

    def __call__(self, c: Call, into: Array) -> None:
        *stack, _, n = into.shape
        p, q = (
            [] if x is None else [along(x, how, into.ndim, self._threads)]
            for x, how in ((c.a_zero_point, COLUMN), (c.b_zero_point, ROW))
        )

        def columns(sums: Array) -> None:
            self._columns.alone([c.b, *q, sums], c.b.shape)

        terms = self._terms.of(c.a, [p, q], [*stack, n], columns)
        a, b = self._a.of(c.a, c.a.ndim - 1), self._b.of(c.b, c.b.ndim - 2)
        self._product.run([a, b, into], dots=n == 1, terms=terms)
