"""Operators that make one element of many along axes, which stay with a size of 1. One definition each.

Sums of floats have float64 accumulators; those of integers wrap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from anydml.ops.attributes import AxesKind
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import (
    FLOAT16,
    FLOAT32,
    FLOATS_UP_TO_32_BIT,
    FROM_NUMPY,
    INT32,
    INT64,
    UINT32,
    UINT64,
    UP_TO_32_BIT,
    listed,
)
from anydml.ops.enums import AxisDirection, FeatureLevel, ReduceFunction, TensorDataType, parse
from anydml.ops.families import (
    ALL_BUT_FLOAT64,
    FL_1_0,
    FL_2_1,
    FL_3_0,
    FL_4_1,
    FL_5_0,
    FLOATS_AND_32_BIT,
    FLOATS_AND_32_OR_64_BIT,
)
from anydml.ops.opdef import Rule, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import axes_of
from anydml.ops.shapes import said

Axes = tuple[int, ...]

# ---- sums, for other families as well -------------------------------------------------------------------


def accumulator(x: Array) -> np.dtype:
    """The type that elements are added up in."""
    return np.dtype(np.float64) if x.dtype.kind == "f" else x.dtype


def total(x: Array, axes: Axes) -> Array:
    """The sum along axes, in the accumulator's type."""
    return np.asarray(x.sum(axis=axes, dtype=accumulator(x), keepdims=True))


def total_of_products(x: Array, y: Array, axes: Axes) -> Array:
    """The sum of x * y along axes, in the accumulator's type and without an array of the products."""
    dims = list(range(x.ndim))
    kept = [k for k in dims if k not in axes]
    summed = np.einsum(x, dims, y, dims, kept, dtype=accumulator(x))
    return np.asarray(summed).reshape(reduced_sizes(x.shape, axes))


def reduced_sizes(shape: tuple[int, ...], axes: Axes) -> tuple[int, ...]:
    return tuple(1 if k in axes else n for k, n in enumerate(shape))


def count_along(x: Array, axes: Axes) -> int:
    """How many elements become one."""
    return math.prod(x.shape[k] for k in axes)


# ---- positions of extremes ------------------------------------------------------------------------------


def _position(x: Array, axes: Axes, largest: bool, last: bool = False) -> Array:
    """Where the extreme is, counted in row-major order along all axes together."""
    kept = [k for k in range(x.ndim) if k not in axes]
    n = count_along(x, axes)
    rows = x.transpose(*kept, *sorted(axes)).reshape(*(x.shape[k] for k in kept), n)
    if last:
        rows = rows[..., ::-1]
    index = np.asarray(rows.argmax(-1) if largest else rows.argmin(-1))
    return (n - 1 - index if last else index).reshape(reduced_sizes(x.shape, axes))


_AXES = axes_of("input")
_SHAPES = {"input": "...", "output": said("as input, but 1 along axes")}
_POSITION_TYPES = (INT64, INT32, UINT64, UINT32)
_POSITION_LEVELS = {
    FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, I=_POSITION_TYPES, rules=(_AXES,)),
    FL_4_1: at(rank=(1, 8), T=ALL_BUT_FLOAT64, I=_POSITION_TYPES, rules=(_AXES,)),
}
_POSITION_OPERANDS = (
    inp("InputTensor", dtype="T"),
    out("OutputTensor", dtype="I"),
    attr("Axes", AxesKind()),
    attr("AxisDirection", AxisDirection, AxisDirection.INCREASING),
)
_POSITION_NOTES = (
    "Several axes are counted through in row-major order of the dimensions, however they are listed. "
    "Of equal elements the first is told, or (DECREASING) the last. A NaN counts as the extreme."
)


def _position_along(c: Call, largest: bool) -> Array:
    return _position(c.input, c.axes, largest, last=c.axis_direction is AxisDirection.DECREASING)


ARGMIN = of_tensors(
    name="ARGMIN",
    doc="Output is the position of the smallest element along Axes.",
    text="output = argmin(input, axes), of equal ones the first along axis_direction",
    operands=_POSITION_OPERANDS,
    levels=_POSITION_LEVELS,
    sizes=lambda c: reduced_sizes(c.input.shape, c.axes),
    shapes=_SHAPES,
    compute=lambda c: _position_along(c, largest=False),
    example=example([[3, 1, 1], [2, 5, 4]], [[2], [0]], axes=[1], axis_direction="DECREASING"),
    notes=_POSITION_NOTES,
)

ARGMAX = of_tensors(
    name="ARGMAX",
    doc="Output is the position of the largest element along Axes.",
    text="output = argmax(input, axes), of equal ones the first along axis_direction",
    operands=_POSITION_OPERANDS,
    levels=_POSITION_LEVELS,
    sizes=lambda c: reduced_sizes(c.input.shape, c.axes),
    shapes=_SHAPES,
    compute=lambda c: _position_along(c, largest=True),
    example=example([[3, 1, 3], [2, 5, 4]], [[0], [1]], axes=[1]),
    notes=_POSITION_NOTES,
)

# ---- what each function of REDUCE takes -----------------------------------------------------------------

Types = tuple[TensorDataType, ...]
Functions = tuple[ReduceFunction, ...]
_F = ReduceFunction
_POSITIONS = (_F.ARGMIN, _F.ARGMAX)

_INPUT_TYPES: dict[Functions, dict[FeatureLevel, Types]] = {
    _POSITIONS: {FL_1_0: FLOATS_UP_TO_32_BIT, FL_2_1: UP_TO_32_BIT, FL_4_1: ALL_BUT_FLOAT64},
    (_F.AVERAGE, _F.L2, _F.LOG_SUM, _F.LOG_SUM_EXP): {FL_1_0: FLOATS_UP_TO_32_BIT},
    (_F.L1, _F.SUM_SQUARE): {FL_1_0: FLOATS_UP_TO_32_BIT, FL_5_0: FLOATS_AND_32_OR_64_BIT},
    (_F.MIN, _F.MAX): {
        FL_1_0: FLOATS_UP_TO_32_BIT,
        FL_2_1: FLOATS_AND_32_BIT,
        FL_3_0: UP_TO_32_BIT,
        FL_5_0: ALL_BUT_FLOAT64,
    },
    (_F.MULTIPLY, _F.SUM): {
        FL_1_0: FLOATS_UP_TO_32_BIT,
        FL_2_1: FLOATS_AND_32_BIT,
        FL_5_0: FLOATS_AND_32_OR_64_BIT,
    },
}
_OUTPUT_TYPES: dict[FeatureLevel, Types] = {FL_1_0: (UINT32,), FL_3_0: _POSITION_TYPES}
"""Of the positions. Other functions keep the input's type."""


def _takes(
    field: str, functions: Functions, table: Mapping[FeatureLevel, Types], since: FeatureLevel
) -> Rule:
    """One line of the tables: it stands until the table's next level."""
    types, until = table[since], min((lv for lv in table if lv > since), default=None)
    parameter = field.removesuffix("Tensor").lower()

    def broken(c: Call) -> Iterator[tuple[str, str]]:
        got = FROM_NUMPY[getattr(c, parameter).dtype]
        if c.function in functions and got not in types:
            where = f"for Function {c.function.name}" + (f" before {until.label}" if until else "")
            later = min((lv for lv in table if got in table[lv]), default=None)
            shown = got.label + (f" (allowed from {later.label})" if later else "")
            yield f"{field}: expected {listed(types)} {where}, but got {shown}", "CAST converts tensors"

    names = ", ".join(f.name for f in functions)
    return Rule(f"{field} {listed(types)} where Function is {names}", broken, of_call=True)


def _keeps_type(c: Call) -> Iterator[tuple[str, str]]:
    given, made = FROM_NUMPY[c.input.dtype], FROM_NUMPY[c.output.dtype]
    if c.function not in _POSITIONS and made != given:
        yield (
            f"OutputTensor: expected the type of InputTensor for Function {c.function.name}, {given.label}, "
            f"but got {made.label}",
            "only ARGMIN and ARGMAX give another type",
        )


_KEEPS_TYPE = Rule(
    "OutputTensor of the type of InputTensor, but of ARGMIN and ARGMAX", _keeps_type, of_call=True
)
_TYPES_OF_FUNCTIONS = [
    {since: _takes(field, functions, table, since) for since in table}
    for field, functions, table in (
        *(("InputTensor", functions, table) for functions, table in _INPUT_TYPES.items()),
        ("OutputTensor", _POSITIONS, _OUTPUT_TYPES),
    )
]


def _rules(level: FeatureLevel) -> tuple[Rule, ...]:
    """The functions' own tables, within the union that the level's table has."""
    own = (lines[max(since for since in lines if since <= level)] for lines in _TYPES_OF_FUNCTIONS)
    return (_AXES, *own, _KEEPS_TYPE)


# ---- what each function of REDUCE computes --------------------------------------------------------------


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    """The largest element is taken out, so that no exponential overflows."""
    top = x.max(axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    shifted = x - top
    np.exp(shifted, out=shifted)
    return np.asarray(np.log(total(shifted, axes)) + top)


_FACTORS = (4, 512)
"""Of float32, so many have products within float64; then of mantissas, from 1/2 on and below 1."""


def _product(x: Array, axes: Axes) -> Array:
    """Floats apart from their powers of two: nothing on the way is too large or too small."""
    if x.dtype.kind != "f":
        return np.asarray(x.prod(axis=axes, dtype=x.dtype, keepdims=True))
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = x.transpose(*kept, *axes).reshape(*(x.shape[k] for k in kept), -1).astype(np.float64)
    exponents, factors = np.zeros(rows.shape[:-1], np.int64), _FACTORS[0]
    while True:
        rows, powers = np.frexp(np.multiply.reduceat(rows, range(0, rows.shape[-1], factors), axis=-1))
        exponents += powers.sum(axis=-1)
        if rows.shape[-1] == 1:
            return scaled(rows[..., 0], exponents).reshape(reduced_sizes(x.shape, axes))
        factors = _FACTORS[1]


def scaled(mantissas: Array, exponents: Array) -> Array:
    """mantissas * 2^exponents."""
    found: Array = np.ldexp(mantissas, exponents.clip(-(1 << 14), 1 << 14).astype(np.intc))
    return found


_MEANING: dict[ReduceFunction, Callable[[Array, Axes], Array]] = {
    _F.ARGMAX: lambda x, axes: _position(x, axes, largest=True),
    _F.ARGMIN: lambda x, axes: _position(x, axes, largest=False),
    _F.AVERAGE: lambda x, axes: total(x, axes) / count_along(x, axes),
    _F.L1: lambda x, axes: total(np.abs(x), axes),
    _F.L2: lambda x, axes: np.sqrt(total_of_products(x, x, axes)),
    _F.LOG_SUM: lambda x, axes: np.log(total(x, axes)),
    _F.LOG_SUM_EXP: _log_sum_exp,
    _F.MAX: lambda x, axes: x.max(axis=axes, keepdims=True),
    _F.MIN: lambda x, axes: x.min(axis=axes, keepdims=True),
    _F.MULTIPLY: _product,
    _F.SUM: total,
    _F.SUM_SQUARE: lambda x, axes: total_of_products(x, x, axes),
}


def _is_index(function: Any) -> bool:
    return parse(ReduceFunction, function, "REDUCE: function") in (_F.ARGMAX, _F.ARGMIN)


REDUCE = of_tensors(
    name="REDUCE",
    doc="Output is Function of the input's elements along Axes.",
    text="output = function(input, axes)",
    usual_type=lambda arguments, types: UINT32 if _is_index(arguments["function"]) else types["T"],
    operands=(
        attr("Function", ReduceFunction),
        inp("InputTensor", dtype="T"),
        out("OutputTensor", dtype="O"),
        attr("Axes", AxesKind()),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, O=(FLOAT32, FLOAT16, UINT32), rules=_rules(FL_1_0)),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, O=FLOATS_AND_32_BIT, rules=_rules(FL_2_1)),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, O=ALL_BUT_FLOAT64, rules=_rules(FL_3_0)),
        FL_4_1: at(rank=(1, 8), T=ALL_BUT_FLOAT64, O=ALL_BUT_FLOAT64, rules=_rules(FL_4_1)),
        FL_5_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64, O=ALL_BUT_FLOAT64, rules=_rules(FL_5_0)),
    },
    sizes=lambda c: reduced_sizes(c.input.shape, c.axes),
    shapes=_SHAPES,
    compute=lambda c: _MEANING[c.function](c.input, c.axes),
    example=example([[1, 2, 3], [4, 5, 6]], [[6], [15]], function="SUM", axes=[1]),
    notes=(
        "ARGMIN and ARGMAX tell the first of equal elements, counted in row-major order along all axes "
        "together. A NaN is an extreme. Without axes every element is reduced by itself. Integers wrap. "
        "Products of floats are told wherever the type has them, in whatever order their factors come."
    ),
)
