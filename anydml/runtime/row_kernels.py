"""Reductions and normalizations as kernels: the same meaning as the definitions', element by element.

Rows are the last dimensions, or columns beside each other; a reduction stores one element for each. Other
axes stay with the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log, nan, prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import MIN_COLUMNS, group
from anydml.ops import elementary
from anydml.ops.call import Call, empty
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, FLOATING, FROM_NUMPY, UINT32
from anydml.ops.enums import AxisDirection, ReduceFunction, TensorDataType
from anydml.ops.expr import (
    Expr,
    absolute,
    add,
    constant,
    convert,
    div,
    eq,
    fma,
    ge,
    gt,
    is_nan,
    lt,
    maximum,
    mul,
    ne,
    neg,
    or_,
    read,
    select,
    sqrt,
    sub,
)
from anydml.ops.opdef import Operator
from anydml.ops.reductions import Axes, row_index, row_max, row_min, row_sum
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, packed

Implementation = Callable[[Call], Any]


@dataclass(frozen=True)
class _Rows:
    """The rows of an input: their axes, how long they are, and the input's element."""

    axes: Axes
    length: int
    x: Expr

    def sum(self, of: Expr) -> Expr:
        """In FLOAT64, of floats."""
        return row_sum(convert(of, FLOAT64) if of.dtype in FLOATING else of, self.axes)

    def single(self, of: Expr) -> Expr:
        """A FLOAT64 in the input's type."""
        return convert(of, self.x.dtype)


def row_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of the operator by a kernel; None where its definition is as good, or better."""
    make = ROW_KERNELS.get(operator.name)
    given = tensors.get("InputTensor")
    if make is None or given is None:
        return None
    dtype = FLOAT32 if given.data_type is FLOAT16 else given.data_type
    sizes, reduced = given.sizes, _axes_of(operator, attributes, len(given.sizes))
    if operator.name in REDUCTIONS:
        sizes, reduced = _without_ones(sizes, reduced)
    rank = len(sizes)
    axes = tuple(sorted(a - rank for a in reduced))
    if not axes or (dtype not in FLOATING and operator.name not in REDUCTIONS):
        return None
    if prod(sizes[axes[-1] + 1 + rank :]) < MIN_COLUMNS and axes[-1] != -1:
        return None
    length = prod(sizes[a] for a in axes)
    rows = _Rows(axes, length, read(0, dtype))
    return make(rows, attributes, threads, [s.parameter for s in operator.inputs if s.name in tensors])


def _without_ones(sizes: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes without axes of one element, which are in nobody's way; and where the others of `axes` are."""
    kept = [axis for axis, n in enumerate(sizes) if n != 1]
    return tuple(sizes[axis] for axis in kept), tuple(k for k, axis in enumerate(kept) if axis in axes)


def _axes_of(operator: Operator, attributes: Mapping[str, Any], rank: int) -> Sequence[int]:
    if "Axes" in attributes:
        return tuple(attributes["Axes"])
    if operator.name == "BATCH_NORMALIZATION":
        return range(rank)
    if operator.name == "LP_NORMALIZATION":
        return (attributes["Axis"],)
    return range(1 if attributes.get("CrossChannel") else 2, rank)


def _whole_like_input(
    meaning: Callable[[list[Expr]], Expr], names: Sequence[str], threads: int | None
) -> Implementation:
    """An output of the input's sizes; the tensors of these names (if they are there) are repeated to them."""

    known: list[RepeatedLaunch] = []

    def compute(c: Call) -> Array:
        given = [packed(c.input, threads), *(x for n in names if (x := getattr(c, n)) is not None)]
        if not known:  # every call has the same tensors
            types = tuple(FROM_NUMPY[x.dtype] for x in given)
            kernel = group(types, (meaning([read(k, t) for k, t in enumerate(types)]),))
            known.append(RepeatedLaunch(kernel, threads))
        result = empty(c.output, c.input.dtype)
        known[0].alone([*given, result])
        return result

    return compute


def _one_for_each_row(meaning: Expr, rows: _Rows, threads: int | None) -> Implementation:
    launch = RepeatedLaunch(group((_type(rows.x),), (meaning,)), threads)
    dtype = np.dtype(meaning.dtype.label)

    def compute(c: Call) -> Array:
        result = empty(c.output, dtype)
        given, shape = packed(c.input, threads), c.input.shape
        if 1 in shape:
            shape, _ = _without_ones(shape, ())
            kept = [*shape]
            for axis in rows.axes:
                kept[axis] = 1
            launch.alone([given.reshape(shape), result.reshape(kept)], shape)
        else:
            launch.alone([given, result], shape)
        return result

    return compute


def _type(e: Expr) -> TensorDataType:
    assert isinstance(e.dtype, TensorDataType)
    return e.dtype


# ---- reductions --------------------------------------------------------------------------------------------


def _has_nan(r: _Rows) -> Expr | None:
    """Whether a row has one, of floats."""
    if r.x.dtype not in FLOATING:
        return None
    return ne(row_max(convert(is_nan(r.x), UINT32), r.axes), 0)


def _extreme(r: _Rows, word: Callable[[Expr, Axes], Expr]) -> Expr:
    """A NaN is one."""
    found, spoiled = word(r.x, r.axes), _has_nan(r)
    return found if spoiled is None else select(spoiled, constant(nan, r.x.dtype), found)


def _log_sum(r: _Rows) -> Expr:
    """Of sums that float32 does not have the logarithm of what is 2^64 times as large or small."""
    total, far = r.sum(r.x), 2.0**64
    large, small = ge(total, 2.0**100), lt(total, 2.0**-100)
    near = select(large, mul(total, 1 / far), select(small, mul(total, far), total))
    shift = select(large, constant(log(far), r.x.dtype), constant(-log(far), r.x.dtype))
    found = elementary.log(r.single(near))
    return select(or_(large, small), add(found, shift), found)


def _log_sum_exp(r: _Rows) -> Expr:
    """The largest element is taken out, unless it is infinite: the sum shows what becomes of that."""
    most = row_max(r.x, r.axes)
    finite = eq(sub(most, most), 0)
    shift = select(finite, most, constant(0, r.x.dtype))
    total = r.single(r.sum(elementary.exp(sub(r.x, shift))))
    return add(elementary.log(total), shift)


_REDUCTIONS: Mapping[ReduceFunction, Callable[[_Rows], Expr]] = {
    ReduceFunction.SUM: lambda r: r.single(r.sum(r.x)),
    ReduceFunction.AVERAGE: lambda r: r.single(div(r.sum(r.x), float(r.length))),
    ReduceFunction.L1: lambda r: r.single(r.sum(absolute(r.x))),
    ReduceFunction.L2: lambda r: r.single(sqrt(r.sum(_square(r.x)))),
    ReduceFunction.SUM_SQUARE: lambda r: r.single(r.sum(_square(r.x))),
    ReduceFunction.LOG_SUM: _log_sum,
    ReduceFunction.LOG_SUM_EXP: _log_sum_exp,
    ReduceFunction.MAX: lambda r: _extreme(r, row_max),
    ReduceFunction.MIN: lambda r: _extreme(r, row_min),
}


def _square(x: Expr) -> Expr:
    wide = convert(x, FLOAT64) if x.dtype in FLOATING else x
    return mul(wide, wide)


def _reduce(
    r: _Rows, attributes: Mapping[str, Any], threads: int | None, tensors: Sequence[str]
) -> Implementation | None:
    function = attributes["Function"]
    if function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN):
        return _one_for_each_row(_position(r, function is ReduceFunction.ARGMAX, False), r, threads)
    meaning = _REDUCTIONS.get(function)
    unsigned = r.x.dtype not in FLOATING and function is ReduceFunction.L1
    return None if meaning is None or unsigned else _one_for_each_row(meaning(r), r, threads)


def _position(r: _Rows, largest: bool, last: bool) -> Expr:
    """The first or last index of the extreme; a NaN is one."""
    index, word = row_index(r.axes), row_max if largest else row_min
    here = eq(r.x, word(r.x, r.axes))

    def among(these: Expr) -> Expr:
        nowhere = constant(0 if last else 0xFFFFFFFF, UINT32)
        places = select(these, index, nowhere)
        return row_max(places, r.axes) if last else row_min(places, r.axes)

    spoiled = _has_nan(r)
    return among(here) if spoiled is None else select(spoiled, among(is_nan(r.x)), among(here))


def _argument(largest: bool) -> Callable[..., Implementation]:
    def make(
        r: _Rows, attributes: Mapping[str, Any], threads: int | None, tensors: Sequence[str]
    ) -> Implementation:
        last = attributes["AxisDirection"] is AxisDirection.DECREASING
        return _one_for_each_row(_position(r, largest, last), r, threads)

    return make


# ---- normalizations ----------------------------------------------------------------------------------------


def _mean_variance(
    r: _Rows, attributes: Mapping[str, Any], threads: int | None, tensors: Sequence[str]
) -> Implementation:
    uses_mean = attributes.get("UseMean", True)
    uses_variance = attributes.get("UseVariance", attributes.get("NormalizeVariance", True))
    epsilon, there = attributes["Epsilon"], [n for n in ("scale", "bias") if n in tensors]

    def meaning(reads: list[Expr]) -> Expr:
        x, *rest = reads
        mean = div(r.sum(x), float(r.length)) if uses_mean else constant(0, FLOAT64)
        shrunk = select(gt(absolute(mean), 2.0**102), constant(0.25, FLOAT64), constant(1, FLOAT64))
        centred = _scaled(r, x, mean, shrunk)
        factor, scale = constant(1, FLOAT64), constant(1, FLOAT64)
        if uses_variance:
            variance = div(div(r.sum(_square(centred)), float(r.length)), mul(shrunk, shrunk))
            factor = div(1.0, sqrt(add(variance, epsilon)))
            scale = select(gt(factor, 2.0**60), constant(2.0**64, FLOAT64), shrunk)
        y = mul(_scaled(r, x, mean, scale), r.single(div(factor, scale)))
        if "scale" in there and "bias" in there:
            return fma(y, *(convert(e, FLOAT32) for e in rest))
        if "scale" in there:
            y = mul(y, rest.pop(0))
        return add(y, rest.pop(0)) if "bias" in there else y

    return _whole_like_input(meaning, there, threads)


def _scaled(r: _Rows, x: Expr, mean: Expr, scale: Expr) -> Expr:
    """(x - mean) * scale, a power of two, rounded once: what is left fits into float32, and is exact enough.

    Where a mean is so large that a difference may not fit, nothing is lost by a smaller scale.
    """
    return fma(x, r.single(scale), r.single(neg(mul(mean, scale))))


def _lp(
    r: _Rows, attributes: Mapping[str, Any], threads: int | None, tensors: Sequence[str]
) -> Implementation:
    def meaning(reads: list[Expr]) -> Expr:
        (x,) = reads
        norm = r.sum(absolute(x)) if attributes["P"] == 1 else sqrt(r.sum(_square(x)))
        norm = maximum(norm, attributes["Epsilon"])
        near = select(gt(norm, 2.0**100), constant(2.0**-20, FLOAT64), constant(1, FLOAT64))
        scale = select(lt(norm, 2.0**-60), constant(2.0**64, FLOAT64), near)
        return mul(mul(x, r.single(scale)), r.single(div(1.0, mul(norm, scale))))

    return _whole_like_input(meaning, (), threads)


def _batch(
    r: _Rows, attributes: Mapping[str, Any], threads: int | None, tensors: Sequence[str]
) -> Implementation:
    """What is the same for all of a row is computed once for it; otherwise first, by a kernel of its own."""

    def shared(first: int) -> tuple[Expr, ...]:
        """Of mean, variance and scale, the operands from `first` on: x is shifted, centred, and scaled."""
        mean, variance, scale = (convert(read(first + k, FLOAT32), FLOAT64) for k in range(3))
        factor = div(scale, sqrt(add(variance, attributes["Epsilon"])))
        size = absolute(factor)
        near = select(lt(size, 2.0**-60), constant(2.0**-64, FLOAT64), constant(0.5, FLOAT64))
        shift = select(gt(size, 2.0**60), constant(2.0**64, FLOAT64), near)
        return tuple(map(r.single, (shift, neg(mul(mean, shift)), div(factor, shift))))

    def normalized(shift: Expr, centre: Expr, factor: Expr) -> RepeatedLaunch:
        meaning = fma(fma(read(0, FLOAT32), shift, centre), factor, read(4, FLOAT32))
        return RepeatedLaunch(group((FLOAT32,) * 5, (meaning,)), threads)

    whole = normalized(*shared(1))
    first = RepeatedLaunch(group((FLOAT32,) * 3, shared(0)), 1)
    second = normalized(*(read(k, FLOAT32) for k in range(1, 4)))

    def compute(c: Call) -> Array:
        given = [c.mean, c.variance, c.scale]
        result = empty(c.output, c.input.dtype)
        if all(x.shape[-1] == 1 or x.strides[-1] == 0 for x in given):
            whole.alone([c.input, *given, c.bias, result])
            return result
        sizes = np.broadcast_shapes(*(x.shape for x in given))
        parts = [np.empty(sizes, np.float32) for _ in given]
        first([*given, *parts])
        second([c.input, *parts, c.bias, result])
        return result

    return compute


ROW_KERNELS: Mapping[str, Callable[..., Implementation | None]] = {
    "REDUCE": _reduce,
    "ARGMAX": _argument(True),
    "ARGMIN": _argument(False),
    "MEAN_VARIANCE_NORMALIZATION": _mean_variance,
    "MEAN_VARIANCE_NORMALIZATION1": _mean_variance,
    "MEAN_VARIANCE_NORMALIZATION2": _mean_variance,
    "LP_NORMALIZATION": _lp,
    "BATCH_NORMALIZATION": _batch,
}
REDUCTIONS = {"REDUCE", "ARGMAX", "ARGMIN"}
