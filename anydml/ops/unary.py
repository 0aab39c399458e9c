"""The ELEMENT_WISE_* operators that calculate with one tensor, one definition each."""

from __future__ import annotations

from math import inf, pi

from anydml.ops import angles, elementary, hyperbolic
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, UP_TO_32_BIT, UP_TO_64_BIT
from anydml.ops.enums import RoundingMode
from anydml.ops.expr import (
    Expr,
    absolute,
    add,
    ceil,
    div,
    floor,
    ge,
    gt,
    lt,
    neg,
    rint,
    select,
    sqrt,
    sub,
    trunc,
)
from anydml.ops.families import (
    ALL_BUT_FLOAT64,
    FL_1_0,
    FL_2_0,
    FL_2_1,
    FL_3_0,
    FL_4_1,
    FL_5_0,
    FLOATS_FROM_1_0,
    FLOATS_FROM_2_0,
    SIGNED_UP_TO_32_BIT,
    SIGNED_UP_TO_64_BIT,
    number,
    scaled_unary,
    unary,
)
from anydml.ops.opdef import at, attr, example

ELEMENT_WISE_IDENTITY = scaled_unary(
    "ELEMENT_WISE_IDENTITY",
    "Output is Input, scaled and biased if that is asked for.",
    {
        FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 5), T=UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT),
    },
    lambda x: x,
    example([1, 2, 3], [3, 5, 7], scale_bias=(2, 1)),
)
ELEMENT_WISE_ABS = scaled_unary(
    "ELEMENT_WISE_ABS",
    "Output is the magnitude of Input.",
    {
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 4), T=SIGNED_UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=SIGNED_UP_TO_32_BIT),
        FL_4_1: at(rank=(1, 8), T=SIGNED_UP_TO_64_BIT),
    },
    absolute,
    example([-1, 2, -inf], [1, 2, inf]),
)
ELEMENT_WISE_NEGATE = unary(
    "ELEMENT_WISE_NEGATE",
    "Output is Input with the other sign.",
    {FL_5_0: at(rank=(1, 8), T=SIGNED_UP_TO_64_BIT)},
    neg,
    example([1, -2, 0.5], [-1, 2, -0.5]),
)
ELEMENT_WISE_SIGN = unary(
    "ELEMENT_WISE_SIGN",
    "Output is 1 where Input is positive, -1 where it is negative, and 0 otherwise.",
    {
        FL_2_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT),
        FL_4_1: at(rank=(1, 8), T=ALL_BUT_FLOAT64),
    },
    lambda x: select(gt(x, 0), 1, select(lt(x, 0), number(-1, x), number(0, x))),
    example([-3, 0, 0.5], [-1, 0, 1]),
    notes="A NaN is neither positive nor negative: it gives 0.",
)
ELEMENT_WISE_RECIP = scaled_unary(
    "ELEMENT_WISE_RECIP",
    "Output is 1 divided by Input.",
    FLOATS_FROM_1_0,
    lambda x: div(1.0, x),
    example([1, 2, -4], [1, 0.5, -0.25]),
)
ELEMENT_WISE_SQRT = scaled_unary(
    "ELEMENT_WISE_SQRT",
    "Output is the square root of Input.",
    FLOATS_FROM_1_0,
    sqrt,
    example([0, 4, 2.25], [0, 2, 1.5]),
)
ELEMENT_WISE_CEIL = scaled_unary(
    "ELEMENT_WISE_CEIL",
    "Output is the least whole number that is not less than Input.",
    FLOATS_FROM_1_0,
    ceil,
    example([1.2, -1.2, 3], [2, -1, 3]),
)
ELEMENT_WISE_FLOOR = scaled_unary(
    "ELEMENT_WISE_FLOOR",
    "Output is the greatest whole number that is not greater than Input.",
    FLOATS_FROM_1_0,
    floor,
    example([1.2, -1.2, 3], [1, -2, 3]),
)


def _round(x: Expr, mode: RoundingMode) -> Expr:
    if mode is RoundingMode.HALVES_TO_NEAREST_EVEN:
        return rint(x)
    whole = trunc(x)
    if mode is RoundingMode.TOWARD_ZERO:
        return whole
    away = elementary.copysign(1.0, x)
    return select(ge(absolute(sub(x, whole)), 0.5), add(whole, away), whole)


ELEMENT_WISE_ROUND = unary(
    "ELEMENT_WISE_ROUND",
    "Output is Input rounded to a whole number.",
    {
        FL_2_1: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT),
    },
    _round,
    example([0.5, 1.5, 2.4, -2.5], [0, 2, 2, -2]),
    attr("RoundingMode", RoundingMode, RoundingMode.HALVES_TO_NEAREST_EVEN),
    notes="TOWARD_INFINITY rounds to the nearest whole number, halves away from zero.",
)

# ---- exponentials, logarithms, angles ------------------------------------------------------------------

ELEMENT_WISE_EXP = scaled_unary(
    "ELEMENT_WISE_EXP",
    "Output is e to the power of Input.",
    FLOATS_FROM_1_0,
    elementary.exp,
    example([0, 1, -inf], [1, 2.7182817459106445, 0]),
)
ELEMENT_WISE_LOG = scaled_unary(
    "ELEMENT_WISE_LOG",
    "Output is the natural logarithm of Input.",
    FLOATS_FROM_1_0,
    elementary.log,
    example([1, 0, inf], [0, -inf, inf]),
)
ELEMENT_WISE_ERF = scaled_unary(
    "ELEMENT_WISE_ERF",
    "Output is the Gauss error function of Input.",
    FLOATS_FROM_2_0,
    elementary.erf,
    example([0, 0.5, inf], [0, 0.5204998778130465, 1]),
)
ELEMENT_WISE_SIN = scaled_unary(
    "ELEMENT_WISE_SIN",
    "Output is the sine of Input, in radians.",
    FLOATS_FROM_1_0,
    angles.sin,
    example([0, 0.5], [0, 0.47942554]),
)
ELEMENT_WISE_COS = scaled_unary(
    "ELEMENT_WISE_COS",
    "Output is the cosine of Input, in radians.",
    FLOATS_FROM_1_0,
    angles.cos,
    example([0, 1], [1, 0.5403022766113281]),
)
ELEMENT_WISE_TAN = scaled_unary(
    "ELEMENT_WISE_TAN",
    "Output is the tangent of Input, in radians.",
    FLOATS_FROM_1_0,
    angles.tan,
    example([0, 0.5], [0, 0.5463024973869324]),
)
ELEMENT_WISE_ASIN = scaled_unary(
    "ELEMENT_WISE_ASIN",
    "Output is the arcsine of Input, in radians from -π/2 to π/2.",
    FLOATS_FROM_1_0,
    angles.asin,
    example([0, 1], [0, pi / 2]),
)
ELEMENT_WISE_ACOS = scaled_unary(
    "ELEMENT_WISE_ACOS",
    "Output is the arccosine of Input, in radians from 0 to π.",
    FLOATS_FROM_1_0,
    angles.acos,
    example([1, -1], [0, pi]),
)
ELEMENT_WISE_ATAN = scaled_unary(
    "ELEMENT_WISE_ATAN",
    "Output is the arctangent of Input, in radians from -π/2 to π/2.",
    FLOATS_FROM_1_0,
    angles.atan,
    example([0, 1, inf], [0, pi / 4, pi / 2]),
)
ELEMENT_WISE_SINH = scaled_unary(
    "ELEMENT_WISE_SINH",
    "Output is the hyperbolic sine of Input.",
    FLOATS_FROM_2_0,
    hyperbolic.sinh,
    example([0, 1], [0, 1.175201177597046]),
)
ELEMENT_WISE_COSH = scaled_unary(
    "ELEMENT_WISE_COSH",
    "Output is the hyperbolic cosine of Input.",
    FLOATS_FROM_2_0,
    hyperbolic.cosh,
    example([0, 0.5], [1, 1.1276259422302246]),
)
ELEMENT_WISE_TANH = scaled_unary(
    "ELEMENT_WISE_TANH",
    "Output is the hyperbolic tangent of Input.",
    FLOATS_FROM_2_0,
    elementary.tanh,
    example([0, 0.5, inf], [0, 0.4621171572600098, 1]),
)
ELEMENT_WISE_ASINH = scaled_unary(
    "ELEMENT_WISE_ASINH",
    "Output is the inverse hyperbolic sine of Input.",
    FLOATS_FROM_2_0,
    hyperbolic.asinh,
    example([0, 1], [0, 0.8813735842704773]),
)
ELEMENT_WISE_ACOSH = scaled_unary(
    "ELEMENT_WISE_ACOSH",
    "Output is the inverse hyperbolic cosine of Input.",
    FLOATS_FROM_2_0,
    hyperbolic.acosh,
    example([1, 2], [0, 1.316957950592041]),
)
ELEMENT_WISE_ATANH = scaled_unary(
    "ELEMENT_WISE_ATANH",
    "Output is the inverse hyperbolic tangent of Input.",
    FLOATS_FROM_2_0,
    hyperbolic.atanh,
    example([0, 0.5, 1], [0, 0.5493061542510986, inf]),
)
