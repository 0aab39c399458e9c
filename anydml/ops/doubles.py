"""exp, log, tanh and their kin in FLOAT64, as ops.elementary has them in FLOAT32. DirectML has none.

Series are Taylor's, as long as they have to be: their coefficients are fractions.
"""

from __future__ import annotations

from math import factorial, inf, nan

from anydml.ops.dtypes import FLOAT64, INT64
from anydml.ops.elementary import copysign
from anydml.ops.elementary64 import MAGIC64
from anydml.ops.expr import (
    Expr,
    absolute,
    add,
    bitcast,
    constant,
    convert,
    div,
    eq,
    fma,
    ge,
    gt,
    is_nan,
    lt,
    mul,
    neg,
    select,
    shl,
    shr,
    sub,
)

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
"""The first has 33 bits: times a whole number of 11 bits it is exact."""
HALF_ROOT = 0x3FE6A09E667F3BCD
"""The bits of the root of 1/2."""
OF_EXP = tuple(1 / factorial(k) for k in range(2, 15))
OF_LOG = tuple(2 / (2 * k + 1) for k in range(1, 13))


def _series(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    total = constant(coefficients[-1], FLOAT64)
    for c in coefficients[-2::-1]:
        total = fma(total, x, c)
    return total


def _reduce(x: Expr) -> tuple[Expr, Expr, Expr]:
    """x = n * ln 2 + r: r, exp(r) - 1 - r, and n as an INT64."""
    shifted = fma(x, LOG2_E, MAGIC64)
    n = sub(shifted, MAGIC64)
    high = fma(n, -LN2_HIGH, x)
    r = fma(n, -LN2_LOW, high)
    lost = fma(n, -LN2_LOW, sub(high, r))
    rest = fma(mul(r, r), _series(r, OF_EXP), lost)
    return r, rest, sub(bitcast(shifted, INT64), bitcast(constant(MAGIC64, FLOAT64), INT64))


def _power_of_two(n: Expr) -> Expr:
    return bitcast(shl(add(n, 1023), 52), FLOAT64)


def _within(x: Expr, least: float, most: float) -> Expr:
    """A NaN stays."""
    return select(gt(x, most), most, select(lt(x, least), least, x))


def exp(x: Expr) -> Expr:
    r, rest, n = _reduce(_within(x, -746.0, 710.0))
    total = add(r, 1.0)
    fraction = add(total, add(sub(r, sub(total, 1.0)), rest))
    half = shr(n, 1)  # in two steps, since 2^n alone may overflow or be denormal
    return mul(mul(fraction, _power_of_two(half)), _power_of_two(sub(n, half)))


def _expm1(x: Expr) -> Expr:
    """exp(x) - 1 of |x| up to 40, and of 40 beyond."""
    r, rest, n = _reduce(_within(x, -40.0, 40.0))
    scale = _power_of_two(n)
    return fma(scale, add(r, rest), sub(scale, 1.0))


def _log_of_split(f: Expr, e: Expr) -> Expr:
    """ln((1 + f) * 2^e) for 1 + f around 1: e * ln 2 + 2 * atanh(s) of s = f / (2 + f)."""
    s = div(f, add(f, 2.0))
    square, half = mul(s, s), mul(mul(f, f), 0.5)
    tail = fma(s, fma(_series(square, OF_LOG), square, half), mul(e, LN2_LOW))
    return sub(mul(e, LN2_HIGH), sub(sub(half, tail), f))


def log(x: Expr) -> Expr:
    tiny = lt(x, 2.0**-1022)
    bits = bitcast(select(tiny, mul(x, 2.0**54), x), INT64)
    e = shr(sub(bits, HALF_ROOT), 52)
    f = sub(bitcast(sub(bits, shl(e, 52)), FLOAT64), 1.0)
    y = _log_of_split(f, sub(convert(e, FLOAT64), select(tiny, constant(54.0, FLOAT64), 0.0)))
    y = select(gt(x, 0.0), y, select(eq(x, 0.0), constant(-inf, FLOAT64), nan))
    return select(eq(x, inf), x, y)


def _over_sum(x: Expr, a: Expr, b: float) -> Expr:
    """x / (a + b), as if the sum of a and a larger b were not rounded."""
    total = add(a, b)
    lost = sub(a, sub(total, b))
    inverse = div(1.0, total)
    rest = fma(neg(inverse), lost, fma(neg(inverse), total, 1.0))
    rough = mul(x, inverse)
    return fma(x, inverse, mul(rough, rest))


def sigmoid(x: Expr) -> Expr:
    e = exp(neg(absolute(x)))
    return _over_sum(select(ge(x, 0.0), 1.0, e), e, 1.0)


def tanh(x: Expr) -> Expr:
    """Of small x, by t = exp(-2 x) - 1, which is 0 where x is; else 1 - 2 / (exp(2 x) + 1)."""
    large = ge(absolute(x), 1.0)
    t = _expm1(mul(absolute(x), select(large, constant(2.0, FLOAT64), -2.0)))
    quotient = _over_sum(select(large, constant(-2.0, FLOAT64), neg(t)), t, 2.0)
    return copysign(add(select(large, constant(1.0, FLOAT64), 0.0), quotient), x)


def softplus(x: Expr) -> Expr:
    e = exp(neg(absolute(x)))
    halved = gt(e, 0.41421356)  # 1 + e = 2 * (1 + (e - 1) / 2)
    f = select(halved, mul(sub(e, 1.0), 0.5), e)
    rest = _log_of_split(f, select(halved, constant(1.0, FLOAT64), 0.0))
    return add(select(gt(x, 0.0), x, select(is_nan(x), x, 0.0)), rest)
