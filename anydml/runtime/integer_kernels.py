"""Products of 8-bit integers by kernels, with scales on the way out.

a - its zero point, b - its zero point    two by two along k, as integers of 16 bits side by side
sums of their products                    exact, modulo 2^32, as processors have an instruction for that
scaled, moved, rounded                    in FLOAT64, as the definitions say

Newer processors have an instruction for four by four, of which a's are without signs and b's with them. There
bytes are taken as they are, or 128 away where their type is the other one, and so are the zero points:

    sum of (a - p) (b - q) over k  =  sum of a b  -  p * sum of (b - q)  -  (sum of a) * q
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.jit import host
from anydml.codegen.kernel import group
from anydml.codegen.matrix import WIDTH, is_small
from anydml.ops.call import Call, empty
from anydml.ops.dtypes import FLOAT32, FLOAT64, FROM_NUMPY, INT8, INT16, INT32, NUMPY, UINT8, UINT16
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import (
    Expr,
    add,
    and_,
    constant,
    convert,
    div,
    is_nan,
    maximum,
    minimum,
    mul,
    neg,
    or_,
    read,
    rint,
    select,
    shl,
    shr,
    sub,
    xor,
)
from anydml.ops.opdef import Operator
from anydml.ops.reductions import row_sum
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.convolution_kernels import Windows
from anydml.runtime.launch import Array, RepeatedLaunch, packed, scratch
from anydml.runtime.matrix_kernels import MAX_BYTES, MatrixLaunches

_BYTES = (INT8, UINT8)
MATRICES = "MATRIX_MULTIPLY_INTEGER", "MATRIX_MULTIPLY_INTEGER_TO_FLOAT", "QUANTIZED_LINEAR_MATRIX_MULTIPLY"
MAX_COLUMNS_BYTES = 1 << 26
"""Of what windows see, which is in memory at once."""
CONVOLUTIONS = ("CONVOLUTION_INTEGER", "QUANTIZED_LINEAR_CONVOLUTION")
MAX_EXACT_PRODUCTS = (2**31 - 1) // 255**2
"""Products whose sum INT32 holds whatever they are: beyond, results that are scaled sums would be others."""
_SUM = read(0, INT32)


def integer_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Callable[[Call], Array] | None:
    """What computes a `Call` of products of 8-bit integers by kernels; None where its definition does."""
    if operator.name not in (*MATRICES, *CONVOLUTIONS):
        return None
    one, other = ("ATensor", "BTensor") if operator.name in MATRICES else ("InputTensor", "FilterTensor")
    sizes = (tensors[name].sizes for name in (one, other, "OutputTensor"))
    made = tensors["OutputTensor"]
    typed = all(tensors[name].data_type in _BYTES for name in (one, other))
    if not typed or made.data_type not in (INT32, FLOAT32, *_BYTES) or 0 in (n for s in sizes for n in s):
        return None
    matrices = operator.name in MATRICES
    depth = tensors["ATensor"].sizes[-1] if matrices else prod(tensors["FilterTensor"].sizes[1:])
    if made.data_type is not INT32 and depth > MAX_EXACT_PRODUCTS:
        return None
    end = _End(operator, tensors, threads)
    if matrices:
        large = made.sizes[-1] > 1 and made.sizes[-2] * depth * WIDTH // 2 > MAX_BYTES
        if large:
            return None
        fours = host().fours and not is_small(made.sizes[-2], made.sizes[-1], depth)
        return partial(end, sums=_ByFours(tensors, threads) if fours else _ByPairs(threads))
    if not has_room(tensors):
        return None
    windows = Windows(
        attributes, tensors["InputTensor"].sizes, tensors["FilterTensor"].sizes, made.sizes, threads
    )
    return _Convolution(windows, end, tensors, threads)


def has_room(tensors: Mapping[str, TensorDesc]) -> bool:
    """Whether what the windows of a convolution see is little enough to be written side by side."""
    (batch, channels, *_), made = tensors["InputTensor"].sizes, tensors["OutputTensor"].sizes
    taps = prod(tensors["FilterTensor"].sizes[2:])
    return batch * -(-channels // 2) * taps * prod(made[2:]) * WIDTH <= MAX_COLUMNS_BYTES


_ONE, _ROW, _COLUMN, _CHANNEL, _FILTER, _WHOLE = "one", "row", "column", "channel", "filter", "whole"
"""How a tensor lies along others: one number for all, or for each column, row, channel, filter or element."""


def _along(x: Array, how: str, rank: int, threads: int | None) -> Array:
    """A view that broadcasts with tensors of a rank."""
    if how == _WHOLE:
        return x
    ones = {_ONE: (), _ROW: (1, -1), _COLUMN: (-1, 1)}
    behind = rank - 2 if how == _CHANNEL else rank - 1
    return packed(x, threads).reshape(ones.get(how, (-1, *[1] * behind)))


# ---- two by two ------------------------------------------------------------------------------------------


def _difference(x: Expr, zero_point: Expr | None) -> Expr:
    wide = convert(x, INT32)
    return wide if zero_point is None else sub(wide, convert(zero_point, INT32))


class _Pairs:
    """Differences along an axis as pairs, the first one in the lower half; behind an odd number a 0."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._launches: dict[tuple[TensorDataType, TensorDataType, int, bool], RepeatedLaunch] = {}

    def of(self, x: Array, axis: int, zero_point: Array | None = None, how: str = _ONE) -> Array:
        """`how`: the zero point lies along x."""
        if zero_point is not None:
            zero_point = _along(zero_point, how, x.ndim, self._threads)
        dtype, count, sizes = FROM_NUMPY[x.dtype], x.shape[axis], list(x.shape)
        sizes[axis] = -(-count // 2)
        result = scratch(sizes, np.dtype(np.int32))
        lead = (slice(None),) * axis
        pairs, rest = (result[(*lead, slice(*ends))] for ends in ((0, count // 2), (count // 2, None)))
        if dtype in _BYTES and axis == x.ndim - 1 and x.strides[-1] == 1 and count % 2 == 0:
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
            if given is UINT16 and dtype in _BYTES:
                found = [convert(word, dtype) for word in (found[0], shr(found[0], 8))]
            low, *high = (_difference(x, read(count, dtype) if moved else None) for x in found)
            pair = and_(low, 0xFFFF)
            if high:
                pair = or_(pair, shl(high[0], 16))
            kernel = group((given,) * count + (dtype,) * moved, (pair,))
            self._launches[key] = RepeatedLaunch(kernel, self._threads)
        beside = [] if zero_point is None else [zero_point]
        self._launches[key].alone([*parts, *beside, result])


# ---- products of matrices --------------------------------------------------------------------------------


class _ByPairs:
    def __init__(self, threads: int | None) -> None:
        self._pairs, self._product = _Pairs(threads), MatrixLaunches(_SUM, threads, parts=2)

    def __call__(self, c: Call, into: Array) -> None:
        a = self._pairs.of(c.a, c.a.ndim - 1, c.a_zero_point, _COLUMN)
        b = self._pairs.of(c.b, c.b.ndim - 2, c.b_zero_point, _ROW)
        self._product.run([a, b, into], dots=into.shape[-1] == 1)


class _Fours:
    """A matrix's bytes along an axis, in fours of which the first one is the lowest; behind others 0."""

    def __init__(self, dtype: TensorDataType, wanted: TensorDataType, axis: int, threads: int | None) -> None:
        self._dtype, self._axis, self._threads = dtype, axis, threads
        self.moved = 0 if dtype is wanted else 128 if wanted is UINT8 else -128
        """What is added to each, to be of the type that is wanted."""
        self._launches: dict[int, RepeatedLaunch] = {}

    def number(self, x: Expr) -> Expr:
        return add(convert(x, INT32), self.moved)

    def of(self, x: Array) -> Array:
        axis, sizes = x.ndim + self._axis, list(x.shape)
        whole, rest = divmod(sizes[axis], 4)
        if axis == x.ndim - 1 and x.strides[axis] == 1 and rest == 0:
            words = x.view(np.int32)
            if self.moved:
                given, words = words, scratch(words.shape, words.dtype)
                self._launch(0).alone([given, words])
            return words
        sizes[axis] = whole + bool(rest)
        result, lead = scratch(sizes, np.dtype(np.int32)), (slice(None),) * axis
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
            reads = [read(k, self._dtype) for k in range(count)]
            four = constant(0, INT32) if reads else xor(read(0, INT32), _ALL_SIGNS)
            for k, x in enumerate(reads):
                four = or_(four, shl(and_(self.number(x), 0xFF), 8 * k))
            given = tuple(x.dtype for x in reads) or (INT32,)
            self._launches[count] = RepeatedLaunch(group(given, (four,)), self._threads)
        return self._launches[count]


_ALL_SIGNS = constant(-0x7F7F7F80, INT32)
"""The upper bit of each of four bytes."""


class _ByFours:
    def __init__(self, tensors: Mapping[str, TensorDesc], threads: int | None) -> None:
        a, b = (tensors[f"{name}Tensor"].data_type for name in "AB")
        self._given = ["AZeroPointTensor" in tensors, "BZeroPointTensor" in tensors]
        self._a, self._b = _Fours(a, UINT8, -1, threads), _Fours(b, INT8, -2, threads)
        self._threads = threads

        def launch(meaning: Expr, *types: TensorDataType) -> RepeatedLaunch:
            return RepeatedLaunch(group(types, (meaning,)), threads)

        p, q = (
            fours.number(read(0, t)) if given else constant(fours.moved, INT32)
            for fours, t, given in zip((self._a, self._b), (a, b), self._given, strict=True)
        )
        types = [(t,) * given for t, given in zip((a, b), self._given, strict=True)]
        differences = _difference(read(0, b), read(1, b) if self._given[1] else None)
        self._minus_p, self._q = launch(neg(p), *types[0]), launch(q, *types[1])
        self._columns = launch(row_sum(differences, (-2,)), b, *types[1])
        self._minus_rows = launch(neg(row_sum(self._a.number(read(0, a)), (-1,))), a)
        self._product = MatrixLaunches(_SUM, threads, parts=4)

    def __call__(self, c: Call, into: Array) -> None:
        points = [
            [] if x is None else [_along(x, how, into.ndim, self._threads)]
            for x, how in ((c.a_zero_point, _COLUMN), (c.b_zero_point, _ROW))
        ]
        moved = [bool(x or fours.moved) for x, fours in zip(points, (self._a, self._b), strict=True)]
        arrays = [self._a.of(c.a), self._b.of(c.b), into]
        terms = self._terms(c, into.shape, points, moved) if any(moved) else []
        self._product.run(arrays, dots=into.shape[-1] == 1, terms=terms)

    def _terms(
        self, c: Call, sizes: Sequence[int], points: Sequence[Sequence[Array]], moved: Sequence[bool]
    ) -> list[Array]:
        """What is added to the sums of products of bytes: numbers for rows, and for columns."""
        *stack, m, n = sizes
        count, dtype = sum(moved), np.dtype(np.int32)
        left, right = scratch((*stack, m, count), dtype), scratch((*stack, count, n), dtype)
        if moved[0]:
            self._minus_p.alone([*points[0], left[..., :1]])
            self._columns.alone([c.b, *points[1], right[..., :1, :]], c.b.shape)
        if moved[1]:
            self._minus_rows.alone([c.a, left[..., -1:]], c.a.shape)
            self._q.alone([*points[1], right[..., -1:, :]])
        return [left, right]


# ---- what becomes of sums --------------------------------------------------------------------------------

_Terms = Mapping[str, Expr]


def _to_float(total: Expr, t: _Terms, made: TensorDataType) -> Expr:
    product = mul(total, mul(t["a_scale"], t["b_scale"]))
    return add(product, t["bias"]) if "bias" in t else product


def _to_bytes(total: Expr, t: _Terms, made: TensorDataType) -> Expr:
    return _requantized(mul(total, mul(t["a_scale"], t["b_scale"])), t, made)


def _to_bytes_with_bias(total: Expr, t: _Terms, made: TensorDataType) -> Expr:
    total = add(total, t["bias"]) if "bias" in t else total
    return _requantized(mul(total, mul(t["input_scale"], t["filter_scale"])), t, made)


def _requantized(x: Expr, t: _Terms, made: TensorDataType) -> Expr:
    """As `quantized` of the definitions."""
    x = rint(div(x, t["output_scale"]))
    if "output_zero_point" in t:
        x = add(x, t["output_zero_point"])
    info = np.iinfo(NUMPY[made])
    return minimum(maximum(select(is_nan(x), 0.0, x), float(info.min)), float(info.max))


_ENDS: Mapping[str, tuple[Mapping[str, str], Callable[[Expr, _Terms, TensorDataType], Expr]]] = {
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": ({"a_scale": _COLUMN, "b_scale": _ROW, "bias": _WHOLE}, _to_float),
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY": (
        {"a_scale": _COLUMN, "b_scale": _ROW, "output_scale": _COLUMN, "output_zero_point": _COLUMN},
        _to_bytes,
    ),
    "QUANTIZED_LINEAR_CONVOLUTION": (
        {
            "input_scale": _ONE,
            "filter_scale": _CHANNEL,
            "bias": _CHANNEL,
            "output_scale": _ONE,
            "output_zero_point": _ONE,
        },
        _to_bytes_with_bias,
    ),
}
"""What is read beside sums, with how it lies along them, and what it makes of them; others are the sums."""


class _End:
    """What an operator makes of the sums."""

    def __init__(self, operator: Operator, tensors: Mapping[str, TensorDesc], threads: int | None) -> None:
        made = tensors["OutputTensor"].data_type
        self.dtype, self._threads = NUMPY[made], threads
        how, meaning = _ENDS.get(operator.name, ({}, None))
        fields = {s.parameter: s.name for s in operator.inputs}
        self._how = {p: one for p, one in how.items() if fields[p] in tensors}
        self._launch = None
        if meaning is not None:
            types = [tensors[fields[p]].data_type for p in self._how]
            reads = [convert(read(k, dtype), FLOAT64) for k, dtype in enumerate((INT32, *types))]
            result = meaning(reads[0], dict(zip(self._how, reads[1:], strict=True)), made)
            self._launch = RepeatedLaunch(group((INT32, *types), (convert(result, made),)), threads)

    def __call__(self, c: Call, sums: Callable[[Call, Array], None]) -> Array:
        """`sums(c, into)`: what computes these."""
        result = empty(c.output, self.dtype)
        if self._launch is None:
            sums(c, result)
            return result
        total = scratch(result.shape, np.dtype(np.int32))
        sums(c, total)
        beside = [_along(getattr(c, p), how, total.ndim, self._threads) for p, how in self._how.items()]
        self._launch.alone([total, *beside, result])
        return result


# ---- operators -------------------------------------------------------------------------------------------


class _Convolution:
    """As one of floats by columns, of integers of 16 bits and then of pairs of channels."""

    def __init__(
        self, windows: Windows, end: _End, tensors: Mapping[str, TensorDesc], threads: int | None
    ) -> None:
        self._windows, self._end, self._pairs, self._threads = windows, end, _Pairs(threads), threads
        dtype, moved = tensors["InputTensor"].data_type, "InputZeroPointTensor" in tensors
        difference = _difference(read(0, dtype), read(1, dtype) if moved else None)
        kernel = group((dtype,) * (1 + moved), (convert(difference, INT16),))
        self._move = RepeatedLaunch(kernel, threads)
        self._product = MatrixLaunches(_SUM, threads, parts=2)

    def __call__(self, c: Call) -> Array:
        return self._end(c, self._sums)

    def _sums(self, c: Call, into: Array) -> None:
        w, (batch, filters) = self._windows, into.shape[:2]
        seen = w.seen(c.input, np.dtype(np.int16), partial(self._differences, c.input_zero_point))
        channels = seen.reshape(batch, w.groups, c.filter.shape[1], *seen.shape[2:])
        columns = self._pairs.of(channels, 2).reshape(batch, w.groups, -1, prod(w.places))
        weights = self._pairs.of(c.filter, 1, c.filter_zero_point, _FILTER)
        weights = weights.reshape(1, w.groups, filters // w.groups, -1)
        if batch > 1:
            weights = np.broadcast_to(weights, (batch, *weights.shape[1:]))
        self._product.run([weights, columns, into.reshape(batch, w.groups, filters // w.groups, -1)])

    def _differences(self, zero_point: Array | None, x: Array, into: Array) -> None:
        beside = [] if zero_point is None else [_along(zero_point, _ONE, x.ndim, self._threads)]
        self._move.alone([x, *beside, into])
