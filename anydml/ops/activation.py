"""The ACTIVATION_* operators, one definition each."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from anydml.ops import elementary, elementary64
from anydml.ops.attributes import AxesKind
from anydml.ops.dtypes import FLOAT32, FLOAT64, FLOATS_UP_TO_32_BIT, UP_TO_32_BIT
from anydml.ops.expr import (
    Expr,
    absolute,
    add,
    convert,
    div,
    eq,
    fma,
    ge,
    gt,
    is_nan,
    lt,
    maximum,
    minimum,
    mul,
    or_,
    select,
    sub,
)
from anydml.ops.families import (
    ACTIVATION_FROM_1_0,
    FL_1_0,
    FL_2_0,
    FL_3_0,
    FL_5_1,
    FL_6_2,
    FL_6_4,
    SIGNED_UP_TO_32_BIT,
    floats_from,
    number,
    real,
    unary,
)
from anydml.ops.opdef import Operator, at, attr, example, inp, out
from anydml.ops.reductions import Axes, row_index, row_max, row_min, row_sum
from anydml.ops.rules import AXES_OF_INPUT, ROWS_ONLY, at_least, not_zero

# ---- rectifiers ----------------------------------------------------------------------------------------

_RECTIFIED = {**ACTIVATION_FROM_1_0, FL_5_1: at(rank=(1, 8), T=SIGNED_UP_TO_32_BIT)}

ACTIVATION_IDENTITY = unary(
    "ACTIVATION_IDENTITY", "Output is Input.", ACTIVATION_FROM_1_0, lambda x: x, example([1, -2], [1, -2])
)
ACTIVATION_LINEAR = unary(
    "ACTIVATION_LINEAR",
    "Output is Alpha times Input plus Beta.",
    ACTIVATION_FROM_1_0,
    lambda x, alpha, beta: fma(elementary.wide(x), alpha, beta),
    example([1, -2], [5, -1], alpha=2, beta=3),
    attr("Alpha"),
    attr("Beta"),
    notes="Rounded once.",
)
ACTIVATION_RELU = unary(
    "ACTIVATION_RELU",
    "Output is the larger of Input and 0.",
    _RECTIFIED,
    lambda x: maximum(x, number(0, x)),
    example([1, -2], [1, 0]),
    notes="A NaN stays one.",
)
ACTIVATION_LEAKY_RELU = unary(
    "ACTIVATION_LEAKY_RELU",
    "Output is Input where that is not negative, else Alpha times Input.",
    ACTIVATION_FROM_1_0,
    lambda x, alpha: select(ge(x, 0), elementary.wide(x), mul(elementary.wide(x), alpha)),
    example([1, -2], [1, -1], alpha=0.5),
    attr("Alpha", default=0.01),
)
ACTIVATION_PARAMETERIZED_RELU = Operator(
    name="ACTIVATION_PARAMETERIZED_RELU",
    doc="Output is Input where that is not negative, else Slope times Input.",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("SlopeTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    levels=_RECTIFIED,
    scalar=lambda x, slope: select(ge(x, 0), x, mul(slope, x)),
    example=example([1, -2], [0.5, 0.25], [1, -0.5]),
    in_place=("InputTensor",),
)
ACTIVATION_THRESHOLDED_RELU = unary(
    "ACTIVATION_THRESHOLDED_RELU",
    "Output is Input where that is greater than Alpha, else 0.",
    ACTIVATION_FROM_1_0,
    lambda x, alpha: select(gt(elementary.wide(x), alpha), x, number(0, x)),
    example([0.5, 2], [0, 2], alpha=1),
    attr("Alpha", default=1.0),
)
ACTIVATION_RELU_GRAD = Operator(
    name="ACTIVATION_RELU_GRAD",
    doc="OutputGradient is InputGradient where Input is positive, else 0.",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("InputGradientTensor", dtype="T", sizes="S"),
        out("OutputGradientTensor", dtype="T", sizes="S"),
    ),
    levels={
        FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT),
        FL_5_1: at(rank=(1, 8), T=SIGNED_UP_TO_32_BIT),
    },
    scalar=lambda x, gradient: select(gt(x, 0), gradient, number(0, gradient)),
    example=example([1, -2, 0], [5, 6, 7], [5, 0, 0]),
)


def _shrink(x: Expr, bias: float, threshold: float) -> Expr:
    wide = elementary.wide(real(x))
    outside = select(gt(wide, threshold), sub(wide, bias), add(wide, bias))
    kept = or_(gt(wide, threshold), lt(wide, -threshold))
    return convert(select(kept, outside, number(0, wide)), x.dtype)


ACTIVATION_SHRINK = unary(
    "ACTIVATION_SHRINK",
    "Output is Input minus Bias above Threshold, Input plus Bias below minus Threshold, and 0 between.",
    {
        FL_2_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT),
        FL_5_1: at(rank=(1, 8), T=UP_TO_32_BIT),
    },
    _shrink,
    example([-3, 0.2, 3], [-2, 0, 2], bias=1, threshold=0.5),
    attr("Bias", default=0.0),
    attr("Threshold", default=0.5),
    notes="Integers are compared and moved as real numbers; the result is truncated and saturates.",
)

# ---- exponential units ---------------------------------------------------------------------------------

ACTIVATION_ELU = unary(
    "ACTIVATION_ELU",
    "Output is Input where that is not negative, else Alpha * (exp(Input) - 1).",
    ACTIVATION_FROM_1_0,
    lambda x, alpha: select(ge(x, 0), x, mul(elementary.expm1(x), alpha)),
    example([1, -1], [1, -0.6321205496788025], alpha=1),
    attr("Alpha", default=1.0),
)
ACTIVATION_SCALED_ELU = unary(
    "ACTIVATION_SCALED_ELU",
    "Output is Gamma times Input where that is positive, else Gamma * (Alpha * exp(Input) - Alpha).",
    ACTIVATION_FROM_1_0,
    lambda x, alpha, gamma: select(
        gt(x, 0), mul(elementary.wide(x), gamma), mul(mul(elementary.expm1(x), alpha), gamma)
    ),
    example([2, -2], [4, -5.187988281], alpha=3, gamma=2),
    attr("Alpha", default=1.67326319217681884765625),
    attr("Gamma", default=1.05070102214813232421875),
)


def _celu(x: Expr, alpha: float) -> Expr:
    wide = elementary.wide(x)
    negative = mul(elementary.expm1_of_quotient(wide, alpha), alpha)
    return add(maximum(wide, number(0, wide)), minimum(negative, number(0, wide)))


ACTIVATION_CELU = unary(
    "ACTIVATION_CELU",
    "Output is max(0, Input) + min(0, Alpha * (exp(Input / Alpha) - 1)).",
    floats_from(FL_3_0),
    _celu,
    example([2, -1], [2, -0.43233236], alpha=0.5),
    attr("Alpha", default=1.0),
)

# ---- saturating ----------------------------------------------------------------------------------------


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    line = fma(elementary.wide(x), alpha, beta)
    return maximum(minimum(line, number(1, line)), number(0, line))


ACTIVATION_SIGMOID = unary(
    "ACTIVATION_SIGMOID",
    "Output is 1 / (1 + exp(-Input)).",
    ACTIVATION_FROM_1_0,
    elementary.sigmoid,
    example([0, 1], [0.5, 0.7310585975646973]),
)
ACTIVATION_HARD_SIGMOID = unary(
    "ACTIVATION_HARD_SIGMOID",
    "Output is max(0, min(Alpha * Input + Beta, 1)).",
    ACTIVATION_FROM_1_0,
    _hard_sigmoid,
    example([-3, 1, 3], [0, 0.75, 1], alpha=0.25, beta=0.5),
    attr("Alpha", default=0.2),
    attr("Beta", default=0.5),
)
ACTIVATION_TANH = unary(
    "ACTIVATION_TANH",
    "Output is the hyperbolic tangent of Input.",
    ACTIVATION_FROM_1_0,
    elementary.tanh,
    example([0, 0.5], [0, 0.4621171572600098]),
)
ACTIVATION_SCALED_TANH = unary(
    "ACTIVATION_SCALED_TANH",
    "Output is Alpha * tanh(Beta * Input).",
    ACTIVATION_FROM_1_0,
    lambda x, alpha, beta: mul(elementary.tanh(mul(elementary.wide(x), beta)), alpha),
    example([0, 1], [0, 0.9242343145200195], alpha=2, beta=0.5),
    attr("Alpha", default=1.0),
    attr("Beta", default=0.5),
)
ACTIVATION_SOFTSIGN = unary(
    "ACTIVATION_SOFTSIGN",
    "Output is Input / (1 + abs(Input)).",
    ACTIVATION_FROM_1_0,
    lambda x: div(elementary.wide(x), add(1.0, absolute(elementary.wide(x)))),
    example([1, -3], [0.5, -0.75]),
    notes="An infinity gives NaN, as the formula does.",
)


def _softplus(x: Expr, steepness: float) -> Expr:
    x = elementary.wide(x)
    return _where_it_fits(x, steepness, div(elementary.softplus(x, steepness), steepness), x)


def _parametric_softplus(x: Expr, alpha: float, beta: float) -> Expr:
    x = elementary.wide(x)
    return _where_it_fits(x, beta, mul(elementary.softplus(x, beta), alpha), mul(mul(x, alpha), beta))


def _where_it_fits(x: Expr, factor: float, usual: Expr, line: Expr) -> Expr:
    """A softplus of factor * x; the line that it is next to where float32 has no such product."""
    return usual if abs(factor) <= 1 else select(eq(mul(x, factor), inf), line, usual)


_STEEP = at_least("Steepness", 1, "6_4")
ACTIVATION_SOFTPLUS = unary(
    "ACTIVATION_SOFTPLUS",
    "Output is ln(1 + exp(Steepness * Input)) / Steepness.",
    {level: replace(table, rules=(_STEEP,)) for level, table in ACTIVATION_FROM_1_0.items()}
    | {FL_6_4: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(not_zero("Steepness"),))},
    _softplus,
    example([0, 100], [0.3465735912322998, 100], steepness=2),
    attr("Steepness", default=1.0),
)
ACTIVATION_PARAMETRIC_SOFTPLUS = unary(
    "ACTIVATION_PARAMETRIC_SOFTPLUS",
    "Output is Alpha * ln(1 + exp(Beta * Input)).",
    ACTIVATION_FROM_1_0,
    _parametric_softplus,
    example([0, 3], [2.0794415473937988, 18.00742721], alpha=3, beta=2),
    attr("Alpha"),
    attr("Beta"),
)

# ---- gates ---------------------------------------------------------------------------------------------

ACTIVATION_GELU = unary(
    "ACTIVATION_GELU",
    "Output is 0.5 * Input * (1 + erf(Input / sqrt(2))).",
    floats_from(FL_5_1),
    elementary.gelu,
    example([0, 1, -1], [0, 0.8413447141647339, -0.15865527093410492]),
    in_place=(),
)
ACTIVATION_SWISH = unary(
    "ACTIVATION_SWISH",
    "Output is Input * sigmoid(SigmoidInputScale * Input).",
    floats_from(FL_6_2),
    elementary.swish,
    example([0, 1], [0, 0.7310585975646973], sigmoid_input_scale=1),
    attr("SigmoidInputScale", default=1.0),
)
ACTIVATION_HARD_SWISH = unary(
    "ACTIVATION_HARD_SWISH",
    "Output is Input * max(0, min(Alpha * Input + Beta, 1)).",
    floats_from(FL_6_2),
    lambda x, alpha, beta: mul(elementary.wide(x), _hard_sigmoid(x, alpha, beta)),
    example([-1, 1, 3], [-0.25, 0.75, 3], alpha=0.25, beta=0.5),
    attr("Alpha", default=1 / 6),
    attr("Beta", default=0.5),
)

# ---- rows ----------------------------------------------------------------------------------------------

_LAST_AXIS = (-1,)
_ROWS_FROM_1_0 = {
    FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=(ROWS_ONLY,)),
    FL_2_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=(ROWS_ONLY,)),
    FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(ROWS_ONLY,)),
}
_ROWS_FROM_5_1 = {FL_5_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, rules=(AXES_OF_INPUT,))}
_AXES = attr("Axes", AxesKind())


def _softmax(x: Expr, axes: Axes) -> Expr:
    e = elementary.exp_above(elementary.wide(x), elementary.wide(row_max(x, axes)))
    return elementary.quotient(e, row_sum(convert(e, FLOAT64), axes))  # the common factor of e falls out


def _log_softmax(x: Expr, axes: Axes) -> Expr:
    wide, most = elementary.wide(x), elementary.wide(row_max(x, axes))
    total = row_sum(convert(elementary.exp_above(wide, most), FLOAT64), axes)
    # as the greatest term has the error of this one, the sum's is that of the others, where it is near 1
    share = div(total, convert(elementary.exp_above(most, most), FLOAT64))
    logarithm = elementary64.log64(share)  # of 1 at least, or NaN
    return sub(sub(wide, most), convert(logarithm, FLOAT32))  # of one sign, so that nothing cancels


def _hardmax(x: Expr, axes: Axes) -> Expr:
    def first(chosen: Expr) -> Expr:
        return row_min(select(chosen, index, nowhere), axes)

    index, nowhere = row_index(axes), 0xFFFFFFFF
    a_nan = first(is_nan(x))  # counts as the greatest, as in NumPy
    greatest = select(eq(a_nan, nowhere), first(eq(x, row_max(x, axes))), a_nan)
    return select(eq(index, greatest), number(1, x), number(0, x))


ACTIVATION_SOFTMAX = unary(
    "ACTIVATION_SOFTMAX",
    "Output is exp(Input) divided by its sum along the last axis.",
    _ROWS_FROM_1_0,
    lambda x: _softmax(x, _LAST_AXIS),
    example([[0, 0], [1, 1]], [[0.5, 0.5], [0.5, 0.5]]),
    in_place=(),
)
ACTIVATION_LOG_SOFTMAX = unary(
    "ACTIVATION_LOG_SOFTMAX",
    "Output is the natural logarithm of the softmax along the last axis.",
    _ROWS_FROM_1_0,
    lambda x: _log_softmax(x, _LAST_AXIS),
    example([[0, 0], [1, 1]], [[-0.6931471824645996, -0.6931471824645996]] * 2),
    in_place=(),
)
ACTIVATION_HARDMAX = unary(
    "ACTIVATION_HARDMAX",
    "Output is 1 at the first of the greatest elements along the last axis, else 0.",
    _ROWS_FROM_1_0,
    lambda x: _hardmax(x, _LAST_AXIS),
    example([[1, 3, 3], [2, 1, 0]], [[0, 1, 0], [1, 0, 0]]),
    in_place=(),
)
ACTIVATION_SOFTMAX1 = unary(
    "ACTIVATION_SOFTMAX1",
    "Output is exp(Input) divided by its sum over all Axes together.",
    _ROWS_FROM_5_1,
    _softmax,
    example([[0, 0], [0, 0]], [[0.25, 0.25], [0.25, 0.25]], axes=[0, 1]),
    _AXES,
    in_place=(),
)
ACTIVATION_LOG_SOFTMAX1 = unary(
    "ACTIVATION_LOG_SOFTMAX1",
    "Output is the natural logarithm of the softmax over all Axes together.",
    _ROWS_FROM_5_1,
    _log_softmax,
    example([[0, 1], [0, 1]], [[-0.6931471824645996, -0.6931471824645996]] * 2, axes=[0]),
    _AXES,
    in_place=(),
)
ACTIVATION_HARDMAX1 = unary(
    "ACTIVATION_HARDMAX1",
    "Output is 1 at the first of the greatest elements over all Axes together, else 0.",
    _ROWS_FROM_5_1,
    _hardmax,
    example([[1, 3], [4, 1]], [[0, 0], [1, 0]], axes=[0, 1]),
    _AXES,
    in_place=(),
)
