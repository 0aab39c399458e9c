"""Powers, written in the language of ops.expr, in float32.

x^y = 2^(y * log2 x), where log2 x is multiplied by up to 2^7 and more: it is known in two float32 numbers,
to some 32 bits. What is no positive normal number, and what may overflow, is left to a branch.
"""

from __future__ import annotations

from math import inf, nan

from anydml.ops.dtypes import FLOAT32, INT32
from anydml.ops.elementary import (
    MAGIC,
    bits_for_logarithm,
    polynomial,
    single,
    times_normal_power,
    times_power,
)
from anydml.ops.elementary_tables import EXP2, LOG2_OF_QUOTIENT
from anydml.ops.expr import (
    Expr,
    absolute,
    add,
    and_,
    bitcast,
    constant,
    convert,
    div,
    eq,
    floor,
    fma,
    gt,
    is_nan,
    lt,
    mul,
    ne,
    neg,
    not_,
    or_,
    select,
    select_lazy,
    shl,
    shr,
    sub,
)

TWO_OVER_LN2 = 2.885390043258667
LEAST = 0x3F5747E7
"""The bits of 0.841, from where on to twice as much fractions are near 1, or near CENTRE."""
MIDDLE = 1.18927
CENTRE, LOG2_OF_CENTRE = 1.414363145828247, 0.500152587890625
"""A float32 whose logarithm has 16 bits, or differs from that by 2^-35."""
NORMAL = 125.0
"""Powers of 2 up to this, and the numbers next to them, are normal."""


def _log2(bits: Expr) -> tuple[Expr, Expr]:
    """log2 of a positive number in two parts: e + log2(c) + log2(m / c). The last is 2 * atanh(s) / ln 2 of
    s = (m - c) / (m + c), with what is lost of the sum and of the quotient."""
    e = shr(sub(bits, LEAST), 23)
    m = bitcast(sub(bits, shl(e, 23)), FLOAT32)
    upper = gt(m, MIDDLE)
    c = select(upper, constant(CENTRE, FLOAT32), 1.0)
    start = add(convert(e, FLOAT32), select(upper, constant(LOG2_OF_CENTRE, FLOAT32), 0.0))
    top, bottom = sub(m, c), add(m, c)
    inverse = div(1.0, bottom)
    s = mul(top, inverse)
    rest = fma(neg(s), sub(m, sub(bottom, c)), fma(neg(s), bottom, top))
    part = mul(s, TWO_OVER_LN2)
    square, lost = mul(s, s), mul(rest, inverse)
    low = fma(s, polynomial(square, LOG2_OF_QUOTIENT), fma(s, TWO_OVER_LN2, neg(part)))
    low = fma(fma(lost, square, lost), TWO_OVER_LN2, low)
    high = add(start, part)
    return high, add(sub(part, sub(high, start)), low)


@single
def pow(x: Expr, y: Expr) -> Expr:
    """x to the power of y, as C's pow in every special case."""
    odd_base, bits = bits_for_logarithm(x)
    high, low = _log2(bits)
    rough = mul(y, high)
    p = fma(y, low, rough)
    shifted = add(p, MAGIC + 127)
    n = sub(shifted, MAGIC + 127)
    r = fma(y, low, fma(y, high, neg(n)))
    fraction = fma(polynomial(r, EXP2), r, 1.0)
    usual = times_normal_power(fraction, n, shifted)
    rare = or_(odd_base, not_(lt(absolute(p), NORMAL)))
    beyond = times_power(fraction, n, sub(shifted, 127.0))
    return select_lazy(rare, _special(x, y, rough, beyond), usual)


def _special(x: Expr, y: Expr, p: Expr, power: Expr) -> Expr:
    """Powers as they are beyond normal ones: `power`, which may be denormal or overflow, unless x is
    negative, or one of both is 0, 1, infinity or NaN. `p` tells roughly how large they are."""
    a = absolute(x)
    power = select(gt(p, 140.0), inf, select(lt(p, -170.0), 0.0, power))
    inverse = select(eq(a, 0.0), inf, constant(0.0, FLOAT32))
    power = select(or_(eq(a, 0.0), eq(a, inf)), select(lt(y, 0.0), inverse, a), power)
    power = select(eq(a, 1.0), 1.0, power)
    half_y = mul(y, 0.5)
    whole, odd = eq(floor(y), y), ne(floor(half_y), half_y)
    negative = lt(bitcast(x, INT32), 0)
    power = select(and_(negative, and_(whole, odd)), neg(power), power)
    power = select(and_(and_(lt(x, 0.0), gt(x, -inf)), not_(whole)), nan, power)
    power = select(or_(is_nan(x), is_nan(y)), nan, power)
    return select(or_(eq(y, 0.0), eq(x, 1.0)), 1.0, power)
