"""Angles, hyperbolic functions, powers and remainders: like ops.elementary, but by way of FLOAT64.

Its 29 further bits make short work of what is hard in float32: reduction of large angles, cancellation
near zeros. Results are rounded to FLOAT32 once, except that sines and cosines are float32 polynomials.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf, nan, pi

from anydml.ops.dtypes import FLOAT32, FLOAT64, INT32, INT64, UINT32, UINT64
from anydml.ops.elementary import at_most, copysign, polynomial, single, wide
from anydml.ops.elementary_tables import (
    ATAN,
    COS,
    COS64,
    EXP2_64,
    EXP64,
    LOG2_64,
    LOG64,
    SIN,
    SIN64,
    TWO_OVER_PI,
)
from anydml.ops.expr import (
    Expr,
    Function,
    absolute,
    add,
    and_,
    bitcast,
    call,
    constant,
    convert,
    div,
    eq,
    floor,
    fma,
    ge,
    gt,
    is_nan,
    lt,
    mul,
    ne,
    neg,
    not_,
    or_,
    rem,
    select,
    select_lazy,
    shl,
    shr,
    sqrt,
    sub,
    trunc,
    xor,
)

LOG2_E = 1.4426950408889634
LN2, LN2_REST = 0.6931471805599453, 2.3190468138462996e-17
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
MAGIC64 = 1.5 * 2.0**52
"""Added to a float64 of less than 2^51, it leaves the nearest whole number in the lowest bits."""


# ---- angles to numbers ---------------------------------------------------------------------------------


def _quarter_turns(x: Expr) -> tuple[Expr, Expr]:
    """x = n * π/2 + r: r as FLOAT64, and the lowest bits of n. For |x| up to 2^30."""
    w = convert(x, FLOAT64)
    shifted = fma(w, 2 / pi, MAGIC64)
    n = sub(shifted, MAGIC64)
    r = fma(n, -HALF_PI_LOW, fma(n, -HALF_PI_HIGH, w))
    return r, convert(bitcast(shifted, INT64), INT32)


def _quarter_turns_of_huge(x: Expr) -> tuple[Expr, Expr]:
    """The same for any finite |x| from 2^30 on, after Payne and Hanek.

    x = m * 2^s with a whole number m of 24 bits, so that of 2/π only the bits around its s-th matter:
    earlier ones contribute whole turns, later ones too little.
    """
    bits = bitcast(absolute(x), UINT32)
    s = sub(shr(bits, 23), 150)
    m = convert(or_(and_(bits, 0x7FFFFF), 0x800000), UINT64)
    first = sub(s, 2)
    word, offset = shr(first, 5), convert(and_(first, 31), UINT64)
    words = [constant(w, UINT64) for w in (*TWO_OVER_PI, 0)]
    picked = []
    for k in range(4):
        w = words[k]
        for j in range(1, 4):
            w = select(eq(word, j), words[min(j + k, len(words) - 1)], w)
        picked.append(w)
    low32 = 0xFFFFFFFF
    window = []
    for a, b in pairwise(picked):
        window.append(and_(shr(or_(shl(a, 32), b), sub(32, offset)), low32))
    p = add(add(shl(mul(m, window[0]), 32), mul(m, window[1])), shr(mul(m, window[2]), 32))
    n = shr(add(p, 2**61), 62)
    fraction = convert(bitcast(sub(p, shl(n, 62)), INT64), FLOAT64)
    r = mul(fraction, (pi / 2) * 2.0**-62)
    turned = convert(n, INT32)
    negative = lt(x, 0.0)
    return select(negative, neg(r), r), select(negative, sub(0, turned), turned)


def _of_angle(of_turns: Callable[[Expr, Expr], Expr], x: Expr) -> Expr:
    huge = and_(ge(absolute(x), 2.0**30), lt(absolute(x), inf))
    return select_lazy(huge, of_turns(*_quarter_turns_of_huge(x)), of_turns(*_quarter_turns(x)))


def _sine(r: Expr, turns: Expr) -> Expr:
    r = convert(r, FLOAT32)
    square = mul(r, r)
    sine = fma(mul(r, square), polynomial(square, SIN), r)
    half = mul(square, 0.5)
    top = sub(1.0, half)
    cosine = add(top, fma(mul(square, square), polynomial(square, COS), sub(sub(1.0, top), half)))
    value = select(ne(and_(turns, 1), 0), cosine, sine)
    return bitcast(xor(bitcast(value, INT32), shl(and_(turns, 2), 30)), FLOAT32)


@single
def sin(x: Expr) -> Expr:
    result = _of_angle(_sine, x)
    return select(eq(x, 0.0), x, result)  # keeps -0


@single
def cos(x: Expr) -> Expr:
    return _of_angle(lambda r, turns: _sine(r, add(turns, 1)), x)


def _tangent(r: Expr, turns: Expr) -> Expr:
    square = mul(r, r)
    sine, cosine = mul(r, polynomial(square, SIN64)), polynomial(square, COS64)
    odd = ne(and_(turns, 1), 0)
    return convert(div(select(odd, neg(cosine), sine), select(odd, sine, cosine)), FLOAT32)


@single
def tan(x: Expr) -> Expr:
    return select(eq(x, 0.0), x, _of_angle(_tangent, x))


# ---- numbers to angles ---------------------------------------------------------------------------------


def _atan64(z: Expr) -> Expr:
    """The arctangent of 0 <= z <= infinity, in FLOAT64."""
    steep, middle = gt(z, 2.414213562373095), gt(z, 0.4142135623730951)
    top = select(steep, constant(-1.0, FLOAT64), select(middle, sub(z, 1.0), z))
    bottom = select(steep, z, select(middle, add(z, 1.0), constant(1.0, FLOAT64)))
    t = div(top, bottom)
    start = select(steep, constant(pi / 2, FLOAT64), select(middle, constant(pi / 4, FLOAT64), 0.0))
    return add(start, mul(t, polynomial(mul(t, t), ATAN)))


@single
def atan(x: Expr) -> Expr:
    w = convert(x, FLOAT64)
    return copysign(convert(_atan64(absolute(w)), FLOAT32), x)


@single
def asin(x: Expr) -> Expr:
    w = absolute(convert(x, FLOAT64))
    leg = sqrt(mul(sub(1.0, w), add(1.0, w)))
    return copysign(convert(_atan64(div(w, leg)), FLOAT32), x)


@single
def acos(x: Expr) -> Expr:
    w = convert(x, FLOAT64)
    leg = sqrt(mul(sub(1.0, w), add(1.0, w)))
    angle = _atan64(div(leg, absolute(w)))
    return convert(select(lt(w, 0.0), sub(pi, angle), angle), FLOAT32)


@single
def atan_yx(y: Expr, x: Expr) -> Expr:
    a, b = absolute(convert(y, FLOAT64)), absolute(convert(x, FLOAT64))
    alike = or_(and_(eq(a, inf), eq(b, inf)), not_(or_(ne(a, b), is_nan(a))))  # inf / inf, 0 / 0, a / a
    ratio = select(alike, constant(1.0, FLOAT64), div(a, b))
    ratio = select(eq(a, 0.0), a, ratio)
    angle = _atan64(ratio)
    negative = lt(bitcast(x, INT32), 0)
    angle = select(negative, sub(pi, angle), angle)
    angle = select(or_(is_nan(a), is_nan(b)), nan, angle)
    return copysign(convert(angle, FLOAT32), y)


# ---- hyperbolic functions ------------------------------------------------------------------------------


def _exp64(x: Expr) -> Expr:
    """e^x of |x| up to 700 as FLOAT64, to some 34 bits."""
    shifted = fma(x, LOG2_E, MAGIC64 + 1023)
    n = sub(shifted, MAGIC64 + 1023)
    r = fma(n, -LN2_REST, fma(n, -LN2, x))
    return mul(polynomial(r, EXP64), bitcast(shl(bitcast(shifted, INT64), 52), FLOAT64))


def _split64(x: Expr) -> tuple[Expr, Expr]:
    """x = (1 + f) / (1 - f) * 2^e for a positive normal FLOAT64: f and e."""
    bits = bitcast(x, INT64)
    e = shr(sub(bits, 0x3FE6A09E667F3BCD), 52)
    m = bitcast(sub(bits, shl(e, 52)), FLOAT64)
    return div(sub(m, 1.0), add(m, 1.0)), _small_integer(e)


def _small_integer(e: Expr) -> Expr:
    """An INT64 of less than 2^51 as FLOAT64, exactly."""
    return sub(bitcast(add(e, bitcast(constant(MAGIC64, FLOAT64), INT64)), FLOAT64), MAGIC64)


def log64(x: Expr) -> Expr:
    """ln x of a positive normal FLOAT64, to some 37 bits."""
    f, e = _split64(x)
    return fma(e, LN2, mul(f, polynomial(mul(f, f), LOG64)))


@single
def sinh(x: Expr) -> Expr:
    t = convert(at_most(absolute(x), 100.0), FLOAT64)
    e = _exp64(t)
    grown = mul(sub(e, div(1.0, e)), 0.5)
    small = fma(mul(t, mul(t, t)), 1 / 6, t)
    return copysign(convert(select(lt(t, 2.0**-10), small, grown), FLOAT32), x)


@single
def cosh(x: Expr) -> Expr:
    e = _exp64(convert(at_most(absolute(x), 100.0), FLOAT64))
    return convert(mul(add(e, div(1.0, e)), 0.5), FLOAT32)


@single
def asinh(x: Expr) -> Expr:
    t = convert(absolute(x), FLOAT64)
    square = mul(t, t)
    grown = log64(add(t, sqrt(add(square, 1.0))))
    small = mul(t, fma(square, fma(square, 0.075, -1 / 6), 1.0))
    result = select(lt(t, 2.0**-7), small, select(eq(t, inf), inf, grown))
    return copysign(convert(select(is_nan(t), nan, result), FLOAT32), x)


@single
def acosh(x: Expr) -> Expr:
    t = convert(x, FLOAT64)
    grown = log64(add(t, sqrt(mul(sub(t, 1.0), add(t, 1.0)))))
    result = select(eq(t, 1.0), 0.0, select(eq(t, inf), inf, grown))
    return convert(select(ge(t, 1.0), result, nan), FLOAT32)


@single
def atanh(x: Expr) -> Expr:
    t = convert(absolute(x), FLOAT64)
    square = mul(t, t)
    grown = mul(log64(div(add(1.0, t), sub(1.0, t))), 0.5)
    small = mul(t, fma(square, fma(square, 0.2, 1 / 3), 1.0))
    result = select(
        lt(t, 2.0**-7), small, select(lt(t, 1.0), grown, select(eq(t, 1.0), constant(inf, FLOAT64), nan))
    )
    return copysign(convert(result, FLOAT32), x)


# ---- powers and remainders -----------------------------------------------------------------------------


def _pow64(x: Expr, y: Expr) -> Expr:
    """x to the power of y in FLOAT64, to some 33 bits, as C's pow in every special case."""
    a = absolute(x)
    f, e = _split64(a)
    logarithm = fma(f, polynomial(mul(f, f), LOG2_64), e)
    logarithm = select(eq(a, 0.0), -inf, select(eq(a, inf), inf, logarithm))
    p = select(eq(a, 1.0), 0.0, mul(y, logarithm))
    p = select(lt(1000.0, p), 1000.0, select(gt(-1000.0, p), -1000.0, p))  # beyond any float32
    shifted = add(p, MAGIC64 + 1023)
    r = sub(p, sub(shifted, MAGIC64 + 1023))
    power = mul(polynomial(r, EXP2_64), bitcast(shl(bitcast(shifted, INT64), 52), FLOAT64))
    half = mul(y, 0.5)
    whole, odd = eq(floor(y), y), ne(floor(half), half)
    negative = lt(bitcast(x, INT64), 0)
    power = select(and_(negative, and_(whole, odd)), neg(power), power)
    power = select(and_(and_(lt(x, 0.0), gt(x, -inf)), not_(whole)), nan, power)
    power = select(or_(is_nan(x), is_nan(y)), nan, power)
    return select(or_(eq(y, 0.0), eq(x, 1.0)), 1.0, power)


def pow64(x: Expr, y: Expr) -> Expr:
    return call(_POW64, FLOAT64, x, y)


_POW64 = Function("pow", _pow64)


def pow(x: Expr, y: Expr) -> Expr:
    """x to the power of y, as FLOAT32; y may be of any type."""
    return convert(pow64(convert(wide(x), FLOAT64), convert(y, FLOAT64)), FLOAT32)


@single
def fmod(a: Expr, b: Expr) -> Expr:
    """The exact rest of a / b, of a's sign; by a quotient in FLOAT64 where that is small enough."""
    x, y = convert(a, FLOAT64), convert(b, FLOAT64)
    quotient = div(x, y)
    rest = fma(neg(trunc(quotient)), y, x)
    rest = select(and_(eq(absolute(y), inf), lt(absolute(x), inf)), x, rest)
    usual = copysign(convert(rest, FLOAT32), a)
    return select_lazy(ge(absolute(quotient), 2.0**26), rem(a, b), usual)
