"""Sines, tangents and their inverses, written in the language of ops.expr, in float32.

A quarter turn is a sum of three float32 numbers. Angles beyond 2^15 are reduced by way of float64, or of
integers, in a branch that is rarely taken. What rounding leaves of a quotient or a root is carried along
where an addition would show it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf, pi

from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT32, UINT64
from anydml.ops.elementary import MAGIC, copysign, polynomial, single
from anydml.ops.elementary64 import MAGIC64
from anydml.ops.elementary_tables import ASIN, ATAN, COS, SIN, TAN, TWO_OVER_PI
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
    fma,
    ge,
    gt,
    lt,
    mul,
    ne,
    neg,
    or_,
    select,
    select_lazy,
    shl,
    shr,
    sqrt,
    sub,
    xor,
)

HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
"""Their sum: each is the float32 next to what the ones before it leave."""
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
"""The same in float64."""

TURN = (1.5707963705062866, -4.377216100692749e-08, 6.07710062827671e-11)
"""Their sum to within 2^-59: the second one has 8 bits, so that times n below 2^15 it is exact."""

Turned = tuple[Expr, Expr, Expr]
"""An angle as r + low + n * π/2: float32, what r lacks, which may be more than its last place, and the lowest
bits of n."""
OfTurns = Callable[[Expr, Expr, Expr], Expr]


# ---- angles to numbers ---------------------------------------------------------------------------------


def _quarter_turns(x: Expr) -> Turned:
    """For |x| up to 2^15.

    The first step is exact, since its result and n * TURN[0] end with the same bit. What the second one lacks
    is: where r is at least 2^-9 it is what a sum loses to its larger part, else nothing, as all bits of
    n * TURN[1] fit.
    """
    shifted = fma(x, 2 / pi, MAGIC)
    n = sub(shifted, MAGIC)
    first = fma(n, -TURN[0], x)
    r = fma(n, -TURN[1], first)
    lost = fma(n, -TURN[1], sub(first, r))
    return r, fma(n, -TURN[2], lost), bitcast(shifted, INT32)


def _quarter_turns_of_large(x: Expr) -> Turned:
    """For any x: by way of float64 up to 2^30, and of infinities, that become NaN."""
    w = convert(x, FLOAT64)
    shifted = fma(w, 2 / pi, MAGIC64)
    n = sub(shifted, MAGIC64)
    near = fma(n, -HALF_PI_LOW, fma(n, -HALF_PI_HIGH, w))
    huge, turned = _quarter_turns_of_huge(x)
    is_huge = and_(ge(absolute(x), 2.0**30), lt(absolute(x), inf))
    wide = select(is_huge, huge, near)
    r = convert(wide, FLOAT32)
    low = convert(sub(wide, convert(r, FLOAT64)), FLOAT32)
    return r, low, select(is_huge, turned, convert(bitcast(shifted, INT64), INT32))


def _quarter_turns_of_huge(x: Expr) -> tuple[Expr, Expr]:
    """r in FLOAT64 and n of any finite |x| from 2^30 on, after Payne and Hanek.

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


def _quarter_turns_of_half(x: Expr) -> Turned:
    """For results of 11 bits, of a FLOAT16: that is less than 2^16, and r at least 2^-17."""
    shifted = fma(x, 2 / pi, MAGIC)
    n = sub(shifted, MAGIC)
    r = fma(n, -HALF_PI[1], fma(n, -HALF_PI[0], x))
    return r, constant(0.0, FLOAT32), bitcast(shifted, INT32)


def _of_angle(of_turns: OfTurns, x: Expr) -> Expr:
    large = ge(absolute(x), 2.0**15)
    return select_lazy(large, of_turns(*_quarter_turns_of_large(x)), of_turns(*_quarter_turns(x)))


def _sine(r: Expr, low: Expr, turns: Expr) -> Expr:
    r = add(r, low)
    square = mul(r, r)
    sine = fma(mul(r, square), polynomial(square, SIN), r)
    half = mul(square, 0.5)
    top = sub(1.0, half)
    cosine = add(top, fma(mul(square, square), polynomial(square, COS), sub(sub(1.0, top), half)))
    value = select(ne(and_(turns, 1), 0), cosine, sine)
    return bitcast(xor(bitcast(value, INT32), shl(and_(turns, 2), 30)), FLOAT32)


def _tangent(r: Expr, low: Expr, turns: Expr) -> Expr:
    square = mul(r, r)
    cube, factor = mul(r, square), polynomial(square, TAN)
    near = fma(cube, factor, r)
    tangent = add(r, fma(cube, factor, mul(low, fma(near, near, 1.0))))
    return select(ne(and_(turns, 1), 0), div(-1.0, tangent), tangent)


def _function(name: str, of_turns: OfTurns, odd: bool) -> Callable[[Expr], Expr]:
    """`of_turns` of an angle; if `odd`, of -0 as well. A FLOAT16 takes less effort: its result is shorter."""

    def of(reduced: Callable[[Expr], Expr]) -> Callable[..., Expr]:
        return single(lambda x: select(eq(x, 0.0), x, reduced(x)) if odd else reduced(x), name)

    usual = of(lambda x: _of_angle(of_turns, x))
    of_half = of(lambda x: of_turns(*_quarter_turns_of_half(x)))
    return lambda x: of_half(x) if x.dtype is FLOAT16 else usual(x)


sin = _function("sin", _sine, odd=True)
cos = _function("cos", lambda r, low, turns: _sine(r, low, add(turns, 1)), odd=False)
tan = _function("tan", _tangent, odd=True)


# ---- numbers to angles ---------------------------------------------------------------------------------


def _atan(z: Expr) -> Expr:
    """The arctangent of 0 <= z <= infinity: of z, of (z - 1) / (z + 1) beside π/4, of -1 / z beside π/2."""
    steep, middle = gt(z, 2.0), gt(z, 0.5)
    top = select(steep, constant(-1.0, FLOAT32), select(middle, sub(z, 1.0), z))
    bottom = select(steep, z, select(middle, add(z, 1.0), constant(1.0, FLOAT32)))
    t = div(top, bottom)
    start, low = (
        select(steep, constant(part, FLOAT32), select(middle, constant(part / 2, FLOAT32), 0.0))
        for part in HALF_PI[:2]
    )
    square = mul(t, t)
    high = add(start, t)
    lost = sub(t, sub(high, start))
    return add(high, fma(mul(t, square), polynomial(square, ATAN), add(lost, low)))


@single
def atan(x: Expr) -> Expr:
    return copysign(_atan(absolute(x)), x)


def _asin_in_parts(t: Expr, large: Expr) -> tuple[Expr, Expr]:
    """Of t from 0 to 1/2: t, and what its arcsine has more. Where it is `large`, up to 1, the same of
    s = sqrt((1 - t) / 2), as 2 * asin(s) = acos(1 - 2 s²)."""
    square = select(large, mul(sub(1.0, t), 0.5), mul(t, t))
    root = sqrt(square)
    # what the root lacks is a half unit in its last place: a reciprocal to 3 in 100 is exact enough for that
    reciprocal = bitcast(sub(0x5F3759DF, shr(bitcast(square, INT32), 1)), FLOAT32)
    lost = mul(fma(neg(root), root, square), mul(reciprocal, 0.5))
    start = select(large, root, t)
    return start, fma(mul(start, square), polynomial(square, ASIN), select(large, lost, 0.0))


@single
def asin(x: Expr) -> Expr:
    t = absolute(x)
    large = gt(t, 0.5)
    s, rest = _asin_in_parts(t, large)
    high = fma(s, -2.0, HALF_PI[0])
    lost = fma(s, -2.0, sub(HALF_PI[0], high))
    result = select(large, add(high, add(lost, fma(rest, -2.0, HALF_PI[1]))), add(s, rest))
    return copysign(result, x)


@single
def acos(x: Expr) -> Expr:
    t = absolute(x)
    large = gt(t, 0.5)
    s, rest = _asin_in_parts(t, large)
    near_one = mul(add(s, rest), 2.0)
    near_minus_one = mul(sub(HALF_PI[0], add(s, sub(rest, HALF_PI[1]))), 2.0)
    high = sub(HALF_PI[0], x)
    lost = sub(sub(HALF_PI[0], high), x)
    middle = add(high, add(lost, sub(HALF_PI[1], copysign(rest, x))))
    return select(large, select(lt(x, 0.0), near_minus_one, near_one), middle)


@single
def atan_yx(y: Expr, x: Expr) -> Expr:
    a, b = absolute(y), absolute(x)
    alike = select(gt(a, 0.0), constant(1.0, FLOAT32), a)  # inf / inf, 0 / 0
    angle = _atan(select(eq(a, b), alike, div(a, b)))
    negative = lt(bitcast(x, INT32), 0)
    angle = select(negative, sub(2 * HALF_PI[0], sub(angle, 2 * HALF_PI[1])), angle)
    return copysign(angle, y)
