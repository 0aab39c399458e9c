"""What operators make of rows: reductions and normalizations as expressions, element by element.

The same meaning as the definitions', which walk over whole tensors. Rows are the last dimensions, or columns
beside each other; a reduction has one element for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log, nan, prod
from typing import Any

from anydml.dataclass import dataclass
from anydml.ops import elementary
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, FLOATING, UINT32
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
from anydml.ops.reductions import MIN_COLUMNS, Axes, row_index, row_max, row_min, row_sum
from anydml.ops.tensor_desc import TensorDesc


@dataclass(frozen=True)
class RowExpression:
    """What an operator makes of rows."""

    meaning: Expr
    """Of one element: of the operands' elements, FLOAT16 as FLOAT32, read in the order of `operands`."""
    operands: tuple[str, ...]
    """The names of the tensors that are read; those behind the first are repeated to its sizes."""
    axes: Axes
    """Of the rows; those of one element are left out."""
    single: bool
    """Whether the output has one element for each row, or else the sizes of the first operand."""


def row_expression(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any]
) -> RowExpression | None:
    """What the operator makes of tensors of these sizes; None where its definition is as good, or better."""
    make, given = _MEANINGS.get(operator.name), tensors.get("InputTensor")
    if make is None or given is None:
        return None
    sizes, rank = given.sizes, len(given.sizes)
    single = operator.name in REDUCTIONS
    axes = tuple(
        sorted(a - rank for a in _axes_of(operator, attributes, rank) if sizes[a] != 1 or not single)
    )
    dtype = _computed(given.data_type)
    if not axes or (dtype not in FLOATING and not single):
        return None
    if 1 < prod(sizes[axes[-1] + 1 + rank :]) < MIN_COLUMNS:
        return None
    names = tuple(s.name for s in operator.inputs if s.name in tensors)
    rest = [read(k, _computed(tensors[n].data_type)) for k, n in enumerate(names)][1:]
    length = prod(sizes[a] for a in axes)
    meaning = make(Rows(axes, length, read(0, dtype)), attributes, dict(zip(names[1:], rest, strict=True)))
    return None if meaning is None else RowExpression(meaning, names, axes, single)


def _computed(dtype: TensorDataType) -> TensorDataType:
    """The type that elements are computed in."""
    return FLOAT32 if dtype is FLOAT16 else dtype


def _axes_of(operator: Operator, attributes: Mapping[str, Any], rank: int) -> Sequence[int]:
    if "Axes" in attributes:
        return tuple(attributes["Axes"])
    if operator.name == "BATCH_NORMALIZATION":
        return range(rank)
    if operator.name == "LP_NORMALIZATION":
        return (attributes["Axis"],)
    return range(1 if attributes.get("CrossChannel") else 2, rank)


@dataclass(frozen=True)
class Rows:
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


# ---- reductions --------------------------------------------------------------------------------------------


def _has_nan(r: Rows) -> Expr | None:
    """Whether a row has one, of floats."""
    if r.x.dtype not in FLOATING:
        return None
    return ne(row_max(convert(is_nan(r.x), UINT32), r.axes), 0)


def _extreme(r: Rows, word: Callable[[Expr, Axes], Expr]) -> Expr:
    """A NaN is one."""
    found, spoiled = word(r.x, r.axes), _has_nan(r)
    return found if spoiled is None else select(spoiled, constant(nan, r.x.dtype), found)


def _log_sum(r: Rows) -> Expr:
    """Of sums that float32 does not have the logarithm of what is 2^64 times as large or small."""
    total, far = r.sum(r.x), 2.0**64
    large, small = ge(total, 2.0**100), lt(total, 2.0**-100)
    near = select(large, mul(total, 1 / far), select(small, mul(total, far), total))
    shift = select(large, constant(log(far), r.x.dtype), constant(-log(far), r.x.dtype))
    found = elementary.log(r.single(near))
    return select(or_(large, small), add(found, shift), found)


def _log_sum_exp(r: Rows) -> Expr:
    """The largest element is taken out, unless it is infinite: the sum shows what becomes of that."""
    most = row_max(r.x, r.axes)
    finite = eq(sub(most, most), 0)
    shift = select(finite, most, constant(0, r.x.dtype))
    total = r.single(r.sum(elementary.exp(sub(r.x, shift))))
    return add(elementary.log(total), shift)


_REDUCTIONS: Mapping[ReduceFunction, Callable[[Rows], Expr]] = {
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


def _reduce(r: Rows, attributes: Mapping[str, Any], rest: Mapping[str, Expr]) -> Expr | None:
    function = attributes["Function"]
    if function in (ReduceFunction.ARGMAX, ReduceFunction.ARGMIN):
        return _position(r, function is ReduceFunction.ARGMAX, False)
    meaning = _REDUCTIONS.get(function)
    unsigned = r.x.dtype not in FLOATING and function is ReduceFunction.L1
    return None if meaning is None or unsigned else meaning(r)


def _position(r: Rows, largest: bool, last: bool) -> Expr:
    """The first or last index of the extreme; a NaN is one."""
    index, word = row_index(r.axes), row_max if largest else row_min
    here = eq(r.x, word(r.x, r.axes))

    def among(these: Expr) -> Expr:
        nowhere = constant(0 if last else 0xFFFFFFFF, UINT32)
        places = select(these, index, nowhere)
        return row_max(places, r.axes) if last else row_min(places, r.axes)

    spoiled = _has_nan(r)
    return among(here) if spoiled is None else select(spoiled, among(is_nan(r.x)), among(here))


def _argument(largest: bool) -> Meaning:
    def meaning(r: Rows, attributes: Mapping[str, Any], rest: Mapping[str, Expr]) -> Expr:
        return _position(r, largest, attributes["AxisDirection"] is AxisDirection.DECREASING)

    return meaning


# ---- normalizations ----------------------------------------------------------------------------------------


def _mean_variance(r: Rows, attributes: Mapping[str, Any], rest: Mapping[str, Expr]) -> Expr:
    uses_mean = attributes.get("UseMean", True)
    uses_variance = attributes.get("UseVariance", attributes.get("NormalizeVariance", True))
    mean = div(r.sum(r.x), float(r.length)) if uses_mean else constant(0, FLOAT64)
    shrunk = select(gt(absolute(mean), 2.0**102), constant(0.25, FLOAT64), constant(1, FLOAT64))
    centred = _scaled(r, mean, shrunk)
    factor, scale = constant(1, FLOAT64), constant(1, FLOAT64)
    if uses_variance:
        variance = div(div(r.sum(_square(centred)), float(r.length)), mul(shrunk, shrunk))
        factor = div(1.0, sqrt(add(variance, attributes["Epsilon"])))
        scale = select(gt(factor, 2.0**60), constant(2.0**64, FLOAT64), shrunk)
    y = mul(_scaled(r, mean, scale), r.single(div(factor, scale)))
    by, plus = rest.get("ScaleTensor"), rest.get("BiasTensor")
    if by is not None and plus is not None:
        return fma(y, convert(by, FLOAT32), convert(plus, FLOAT32))
    if by is not None:
        y = mul(y, by)
    return y if plus is None else add(y, plus)


def _scaled(r: Rows, mean: Expr, scale: Expr) -> Expr:
    """(x - mean) * scale, a power of two, rounded once: what is left fits into float32, and is exact enough.

    Where a mean is so large that a difference may not fit, nothing is lost by a smaller scale.
    """
    return fma(r.x, r.single(scale), r.single(neg(mul(mean, scale))))


def _lp(r: Rows, attributes: Mapping[str, Any], rest: Mapping[str, Expr]) -> Expr:
    norm = r.sum(absolute(r.x)) if attributes["P"] == 1 else sqrt(r.sum(_square(r.x)))
    norm = maximum(norm, attributes["Epsilon"])
    near = select(gt(norm, 2.0**100), constant(2.0**-20, FLOAT64), constant(1, FLOAT64))
    scale = select(lt(norm, 2.0**-60), constant(2.0**64, FLOAT64), near)
    return mul(mul(r.x, r.single(scale)), r.single(div(1.0, mul(norm, scale))))


def _batch(r: Rows, attributes: Mapping[str, Any], rest: Mapping[str, Expr]) -> Expr:
    mean, variance, scale, bias = rest.values()
    shift, centre, factor = batch_factors(mean, variance, scale, attributes["Epsilon"])
    return batch_normalized(r.x, shift, centre, factor, bias)


def batch_factors(mean: Expr, variance: Expr, scale: Expr, epsilon: float) -> tuple[Expr, ...]:
    """What x is shifted by, centred with, and scaled with."""
    mean, variance, scale = (convert(e, FLOAT64) for e in (mean, variance, scale))
    factor = div(scale, sqrt(add(variance, epsilon)))
    size = absolute(factor)
    near = select(lt(size, 2.0**-60), constant(2.0**-64, FLOAT64), constant(0.5, FLOAT64))
    shift = select(gt(size, 2.0**60), constant(2.0**64, FLOAT64), near)
    return (
        convert(shift, FLOAT32),
        convert(neg(mul(mean, shift)), FLOAT32),
        convert(div(factor, shift), FLOAT32),
    )


def batch_normalized(x: Expr, shift: Expr, centre: Expr, factor: Expr, bias: Expr) -> Expr:
    """All of FLOAT32."""
    return fma(fma(x, shift, centre), factor, bias)


Meaning = Callable[[Rows, Mapping[str, Any], Mapping[str, Expr]], "Expr | None"]
"""Of rows, attributes, and the elements of the other tensors, by name."""

_MEANINGS: Mapping[str, Meaning] = {
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
OF_ROWS = frozenset(_MEANINGS)
"""The operators that have such a meaning."""
