"""Powers of integers, remainders, and the logarithm of a sum: like ops.elementary, but by way of FLOAT64.

Its 29 further bits make short work of what is hard in float32: integers of 32 bits, and quotients of many.
"""

from __future__ import annotations

from math import inf, nan

from anydml.ops.dtypes import FLOAT32, FLOAT64, INT64
from anydml.ops.elementary import copysign, polynomial, single, wide
from anydml.ops.elementary_tables import (
    EXP2_64,
    LOG2_64,
    LOG64,
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
    sub,
    trunc,
)

LN2 = 0.6931471805599453
MAGIC64 = 1.5 * 2.0**52
"""Added to a float64 of less than 2^51, it leaves the nearest whole number in the lowest bits."""


def _split64(x: Expr) -> tuple[Expr, Expr]:
    """x = (1 + f) / (1 - f) * 2^e for a positive normal FLOAT64: f and e."""
    bits = bitcast(x, INT64)
    e = shr(sub(bits, 0x3FE6A09E667F3BCD), 52)
    m = bitcast(sub(bits, shl(e, 52)), FLOAT64)
    return div(sub(m, 1.0), add(m, 1.0)), _small_integer(e)


def _small_integer(e: Expr) -> Expr:
    """An INT64 of less than 2^51 as FLOAT64, exactly."""
    return sub(bitcast(add(e, bitcast(constant(MAGIC64, FLOAT64), INT64)), FLOAT64), MAGIC64)


def _log64(x: Expr) -> Expr:
    f, e = _split64(x)
    return select(ge(x, 1.0), fma(e, LN2, mul(f, polynomial(mul(f, f), LOG64))), nan)


_LOG64 = Function("log", _log64)


def log64(x: Expr) -> Expr:
    """ln x of a finite FLOAT64 of 1 or more, to some 37 bits; of all others NaN."""
    return call(_LOG64, FLOAT64, x)


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
