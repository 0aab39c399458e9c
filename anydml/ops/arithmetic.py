"""The ELEMENT_WISE_* operators that calculate, one definition each; but for quantization.py's."""

from __future__ import annotations

from math import pi

from anydml.ops import angles, elementary, elementary64, powers
from anydml.ops.attributes import Activation, ActivationKind, ScalarKind, as_type
from anydml.ops.dtypes import (
    FLOAT32,
    FLOAT64,
    FLOATING,
    FLOATS_UP_TO_32_BIT,
    INT64,
    SIGNED,
    SIZE,
    UP_TO_32_BIT,
)
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import (
    Expr,
    absolute,
    add,
    and_,
    constant,
    convert,
    div,
    eq,
    ge,
    le,
    lt,
    maximum,
    minimum,
    mul,
    ne,
    or_,
    rem,
    rint,
    select,
    shr,
    sub,
    xor,
)
from anydml.ops.families import (
    ALL_BUT_FLOAT64,
    FL_1_0,
    FL_2_0,
    FL_2_1,
    FL_3_0,
    FL_3_1,
    FL_4_1,
    FL_5_0,
    FL_5_1,
    FL_6_0,
    FLOATS_AND_32_BIT,
    FLOATS_AND_32_OR_64_BIT,
    FLOATS_FROM_1_0,
    FUSABLE,
    binary,
    number,
    scaled,
    scaled_unary,
)
from anydml.ops.opdef import SCALE_BIAS, Operator, at, attr, example, inp, out
from anydml.ops.rules import MIN_MAX_OF_GRADIENT, MIN_MAX_OF_OUTPUT, same_types

# ---- limits --------------------------------------------------------------------------------------------


def _clip(x: Expr, low: float, high: float) -> Expr:
    return maximum(minimum(x, number(high, x)), number(low, x))


def _clip_gradient(x: Expr, gradient: Expr, low: float, high: float) -> Expr:
    return select(or_(le(x, number(low, x)), ge(x, number(high, x))), number(0, gradient), gradient)


_CLIPPED_FROM_5_0 = at(rank=(1, 8), T=ALL_BUT_FLOAT64)
_CLIP_NOTES = "If Min is greater than Max, the formula gives Min. A NaN stays one."
ELEMENT_WISE_CLIP = scaled_unary(
    "ELEMENT_WISE_CLIP",
    "Output is Input limited to the range from Min to Max.",
    {
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT),
        FL_5_0: _CLIPPED_FROM_5_0,
    },
    _clip,
    example([-2, 0.5, 3], [-1, 0.5, 1], min=-1, max=1),
    attr("Min"),
    attr("Max"),
    notes="Min and Max become numbers of the tensor's type first: to an integer they truncate and saturate. "
    + _CLIP_NOTES,
)
ELEMENT_WISE_CLIP1 = scaled_unary(
    "ELEMENT_WISE_CLIP1",
    "Output is Input limited to the range from Min to Max, which are numbers of the tensor's type.",
    {FL_5_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64, rules=(MIN_MAX_OF_OUTPUT,))},
    _clip,
    example([-2, 0.5, 3], [-1, 0.5, 1], min=-1, max=1),
    attr("MinMaxDataType", TensorDataType, implied=True),
    attr("Min", ScalarKind()),
    attr("Max", ScalarKind()),
    notes=f"Min and Max that the tensor's type cannot hold are refused. {_CLIP_NOTES}",
)
_GRADIENT = (
    inp("InputTensor", dtype="T", sizes="S"),
    inp("InputGradientTensor", dtype="T", sizes="S"),
    out("OutputGradientTensor", dtype="T", sizes="S"),
)
ELEMENT_WISE_CLIP_GRAD = Operator(
    name="ELEMENT_WISE_CLIP_GRAD",
    doc="Output is InputGradient where Input lies strictly between Min and Max, else 0.",
    operands=(*_GRADIENT, attr("Min"), attr("Max")),
    levels={
        FL_3_1: at(rank=(1, 8), T=UP_TO_32_BIT),
        FL_5_0: _CLIPPED_FROM_5_0,
    },
    scalar=_clip_gradient,
    example=example([-2, 0.5, 1], [5, 6, 7], [0, 6, 0], min=-1, max=1),
    in_place=("InputTensor",),
)
ELEMENT_WISE_CLIP_GRAD1 = Operator(
    name="ELEMENT_WISE_CLIP_GRAD1",
    doc="Output is InputGradient where Input lies strictly between Min and Max, else 0.",
    operands=(
        *_GRADIENT,
        attr("MinMaxDataType", TensorDataType, implied=True),
        attr("Min", ScalarKind()),
        attr("Max", ScalarKind()),
    ),
    levels={FL_5_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64, rules=(MIN_MAX_OF_GRADIENT,))},
    scalar=_clip_gradient,
    example=example([-2, 0.5, 1], [5, 6, 7], [0, 6, 0], min=-1, max=1),
    in_place=("InputTensor",),
)
ELEMENT_WISE_THRESHOLD = scaled_unary(
    "ELEMENT_WISE_THRESHOLD",
    "Output is the larger of Input and Min.",
    {
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT),
    },
    lambda x, low: maximum(x, number(low, x)),
    example([-2, 0.5, 3], [1, 1, 3], min=1),
    attr("Min"),
)

# ---- of two tensors ------------------------------------------------------------------------------------

_SUMS = {
    FL_2_1: at(rank=(4, 4), T=FLOATS_AND_32_BIT),
    FL_3_0: at(rank=(1, 8), T=FLOATS_AND_32_BIT),
    FL_4_1: at(rank=(1, 8), T=FLOATS_AND_32_OR_64_BIT),
    FL_5_1: at(rank=(1, 8), T=ALL_BUT_FLOAT64),
}
_SUMS_OF_RANK_5 = {
    **_SUMS,
    FL_1_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT),
    FL_2_1: at(rank=(4, 5), T=FLOATS_AND_32_BIT),
}
_EXTREMES = {
    FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
    FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT),
    FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT),
    FL_5_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64),
}
_WRAPS = "Integers wrap around at overflow (two's complement)."

ELEMENT_WISE_ADD = binary(
    "ELEMENT_WISE_ADD",
    "Output is A plus B.",
    _SUMS_OF_RANK_5,
    add,
    example([1, 2], [10, 20], [11, 22]),
    notes=_WRAPS,
)
ELEMENT_WISE_SUBTRACT = binary(
    "ELEMENT_WISE_SUBTRACT",
    "Output is A minus B.",
    {FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT), **_SUMS},
    sub,
    example([10, 20], [1, 2], [9, 18]),
    notes=_WRAPS,
)
ELEMENT_WISE_MULTIPLY = binary(
    "ELEMENT_WISE_MULTIPLY",
    "Output is A times B.",
    _SUMS_OF_RANK_5,
    mul,
    example([1, 2], [10, 20], [10, 40]),
    notes=_WRAPS,
)
ELEMENT_WISE_DIVIDE = binary(
    "ELEMENT_WISE_DIVIDE",
    "Output is A divided by B; of integers, truncated toward zero.",
    {
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 4), T=FLOATS_AND_32_BIT),
        FL_3_0: at(rank=(1, 8), T=FLOATS_AND_32_BIT),
        FL_5_1: at(rank=(1, 8), T=UP_TO_32_BIT),
        FL_6_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64),
    },
    div,
    example([1, -7], [4, 2], [0.25, -3.5]),
    notes="An integer divided by 0 gives 0, and the least integer divided by -1 is itself.",
)
ELEMENT_WISE_MAX = binary(
    "ELEMENT_WISE_MAX",
    "Output is the larger of A and B.",
    _EXTREMES,
    maximum,
    example([1, 5], [3, 2], [3, 5]),
    notes="A NaN in either gives a NaN; of two zeros either may be returned.",
)
ELEMENT_WISE_MIN = binary(
    "ELEMENT_WISE_MIN",
    "Output is the smaller of A and B.",
    _EXTREMES,
    minimum,
    example([1, 5], [3, 2], [1, 2]),
    notes="A NaN in either gives a NaN; of two zeros either may be returned.",
)


def _mean(a: Expr, b: Expr) -> Expr:
    if a.dtype in FLOATING:
        return mul(add(a, b), 0.5)
    total = add(convert(a, INT64), convert(b, INT64))
    return convert(shr(sub(total, shr(total, 63)), 1), a.dtype)  # shr rounds down; the sign's bit mends that


ELEMENT_WISE_MEAN = binary(
    "ELEMENT_WISE_MEAN",
    "Output is the mean of A and B.",
    {
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT),
        FL_2_1: at(rank=(4, 4), T=FLOATS_AND_32_BIT),
        FL_3_0: at(rank=(1, 8), T=FLOATS_AND_32_BIT),
    },
    _mean,
    example([1, 2], [2, 4], [1.5, 3]),
    notes="Of integers, it is exact (the sum does not overflow) and truncated toward zero.",
)
ELEMENT_WISE_DIFFERENCE_SQUARE = binary(
    "ELEMENT_WISE_DIFFERENCE_SQUARE",
    "Output is the square of A minus B.",
    {FL_3_1: at(rank=(1, 8), T=FLOATS_AND_32_BIT)},
    lambda a, b: mul(sub(a, b), sub(a, b)),
    example([1, 5], [3, 2], [4, 9]),
    notes=_WRAPS,
)
ELEMENT_WISE_ATAN_YX = binary(
    "ELEMENT_WISE_ATAN_YX",
    "Output is the angle, in radians from -π to π, of the point whose y is A and whose x is B.",
    {FL_3_1: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT)},
    angles.atan_yx,
    example([0, 1, -1], [1, 0, 0], [0, pi / 2, -pi / 2]),
    notes="Zeros, infinities and signs as IEEE 754's atan2 has them, also at 0, 0.",
)

_REMAINDERS = {
    FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT),
    FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT),
    FL_6_0: at(rank=(1, 8), T=ALL_BUT_FLOAT64),
}


def _remainder(a: Expr, b: Expr) -> Expr:
    return elementary64.fmod(a, b) if a.dtype in FLOATING else rem(a, b)


def _modulus_floor(a: Expr, b: Expr) -> Expr:
    rest = _remainder(a, b)
    if rest.dtype in FLOATING:
        divisor = elementary.wide(b)
        other = xor(lt(rest, 0.0), lt(divisor, 0.0))
        return select(
            eq(rest, 0.0), elementary.copysign(0.0, divisor), select(other, add(rest, divisor), rest)
        )
    if rest.dtype not in SIGNED:
        return rest
    return select(and_(ne(rest, 0), lt(xor(rest, b), 0)), add(rest, b), rest)


ELEMENT_WISE_MODULUS_TRUNCATE = binary(
    "ELEMENT_WISE_MODULUS_TRUNCATE",
    "Output is the rest of A divided by B, with the sign of A (as fmod in C).",
    _REMAINDERS,
    _remainder,
    example([7, -7, 7], [3, 3, -3], [1, -1, 1]),
    notes="An integer modulo 0 is 0; a float modulo 0 is NaN.",
)
ELEMENT_WISE_MODULUS_FLOOR = binary(
    "ELEMENT_WISE_MODULUS_FLOOR",
    "Output is the rest of A divided by B, with the sign of B (as % in Python).",
    _REMAINDERS,
    _modulus_floor,
    example([7, -7, 7], [3, 3, -3], [1, 2, -2]),
    notes="An integer modulo 0 is 0; a float modulo 0 is NaN.",
)

# ---- powers --------------------------------------------------------------------------------------------


def _pow(x: Expr, exponent: Expr) -> Expr:
    if x.dtype in FLOATING:
        return _float_pow(x, exponent)
    if exponent.dtype in FLOATING:
        power = elementary64.pow64(convert(x, FLOAT64), convert(exponent, FLOAT64))
        whole = rint(power)  # 2.9999999999 is what rounding leaves of 3
        near = le(absolute(sub(power, whole)), mul(absolute(whole), 2.0**-33))
        return convert(select(near, whole, power), x.dtype)
    return _integer_pow(x, exponent)


def _float_pow(x: Expr, exponent: Expr) -> Expr:
    """Integers of 32 bits are exact in FLOAT64 only."""
    if exponent.dtype not in FLOATING and SIZE[exponent.dtype] >= 4:
        return elementary64.pow(x, exponent)
    return powers.pow(x, convert(exponent, FLOAT32))


def _integer_pow(x: Expr, exponent: Expr) -> Expr:
    """By squaring, modulo 2 to the width; of a negative exponent, 1 / x^n truncated."""
    result, square = constant(1, x.dtype), x
    for bit in range(8 * SIZE[exponent.dtype]):
        is_set = ne(and_(shr(exponent, bit), 1), 0)
        result = select(is_set, mul(result, square), result)
        square = mul(square, square)
    if exponent.dtype not in SIGNED:
        return result
    odd = ne(and_(exponent, 1), 0)
    zero = number(0, x)
    inverse = select(eq(x, 1), x, zero)
    if x.dtype in SIGNED:
        inverse = select(eq(x, -1), select(odd, x, number(1, x)), inverse)
    return select(lt(exponent, 0), inverse, result)


ELEMENT_WISE_POW = Operator(
    name="ELEMENT_WISE_POW",
    doc="Output is Input to the power of Exponent.",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("ExponentTensor", dtype="E", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
        SCALE_BIAS,
    ),
    levels={
        FL_1_0: at(
            rank=(4, 4),
            T=FLOATS_UP_TO_32_BIT,
            E=FLOATS_UP_TO_32_BIT,
            rules=(same_types("InputTensor", "ExponentTensor"),),
        ),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, E=UP_TO_32_BIT),
    },
    scalar=lambda x, exponent, scale_bias: scaled(_pow)(x, scale_bias, exponent),
    example=example([2, 9, -2], [10, 0.5, 3], [1024, 3, -8]),
    in_place=("InputTensor",),
    notes=(
        "A negative number to a power that is not whole is NaN. An integer to an integer is exact, modulo 2 "
        "to the width; a negative exponent then gives 1 / x^n, truncated (0 for x = 0). Otherwise the power "
        "is that of the real numbers, converted to the type of Input."
    ),
)


def _constant_pow(x: Expr, exponent: float) -> Expr:
    wide = elementary.wide(x)
    if exponent == 2:
        return mul(wide, wide)
    if exponent == -1:
        return div(1.0, wide)
    if exponent == 1:
        return x
    return powers.pow(x, constant(as_type(exponent, wide.dtype), wide.dtype))


ELEMENT_WISE_CONSTANT_POW = scaled_unary(
    "ELEMENT_WISE_CONSTANT_POW",
    "Output is Input to the power of the number Exponent.",
    FLOATS_FROM_1_0,
    _constant_pow,
    example([2, 9, 0], [8, 729, 0], exponent=3),
    attr("Exponent"),
    notes="A negative number to a power that is not whole is NaN.",
)

# ---- addition with a fused activation ------------------------------------------------------------------


def _add1(a: Expr, b: Expr, activation: Activation | None) -> Expr:
    total = add(a, b)
    if activation is None:
        return total
    operator, values = activation.operator, activation.attributes
    assert operator.scalar is not None
    return operator.scalar(total, *(values[p.name] for p in operator.parameters))


ELEMENT_WISE_ADD1 = Operator(
    name="ELEMENT_WISE_ADD1",
    doc="Output is A plus B, put through an activation if one is given.",
    operands=(
        inp("ATensor", dtype="T", sizes="S"),
        inp("BTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("FusedActivation", ActivationKind(FUSABLE), None),
    ),
    levels={
        FL_2_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT),
        FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT),
    },
    scalar=_add1,
    example=example([1, -5], [2, 3], [3, 0], fused_activation="ACTIVATION_RELU"),
    in_place=("ATensor", "BTensor"),
)
