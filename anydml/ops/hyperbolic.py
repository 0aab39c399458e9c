"""Hyperbolic functions and their inverses, written in the language of ops.expr, in float32.

Near zero they are polynomials, else exponentials and logarithms, with what rounding leaves of a sum, a root
or a quotient beside them.
"""

from __future__ import annotations

from math import inf, log, nan

from anydml.ops.dtypes import FLOAT32, INT32
from anydml.ops.elementary import (
    at_most,
    copysign,
    exp_times_power,
    log_of_split,
    polynomial,
    single,
)
from anydml.ops.elementary_tables import ACOSH, ASINH, ATANH, SINH
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
    is_nan,
    lt,
    mul,
    neg,
    select,
    select_lazy,
    shl,
    shr,
    sqrt,
    sub,
)

LARGE = 2.0**12
"""From where on the inverse functions are ln(2 t)."""


def _odd(t: Expr, coefficients: tuple[float, ...]) -> Expr:
    square = mul(t, t)
    return fma(mul(t, square), polynomial(square, coefficients), t)


def _half_exp(t: Expr) -> Expr:
    """exp(t) / 2 for 0 <= t, which may be more than any float32 where exp(t) / 2 is not."""
    return exp_times_power(at_most(t, 91.0), -1)


@single
def sinh(x: Expr) -> Expr:
    t = absolute(x)
    e = _half_exp(t)
    return copysign(select(lt(t, 1.0), _odd(t, SINH), sub(e, div(0.25, e))), x)


@single
def cosh(x: Expr) -> Expr:
    e = _half_exp(absolute(x))
    return add(e, div(0.25, e))


def _log(u: Expr, rest: Expr, doubled: Expr | None = None) -> Expr:
    """ln(u * (1 + rest)), or ln(2 u), of a positive normal u."""
    bits = bitcast(u, INT32)
    e = shr(sub(bits, 0x3F3504F3), 23)
    f = sub(bitcast(sub(bits, shl(e, 23)), FLOAT32), 1.0)
    count = convert(e, FLOAT32)
    if doubled is not None:
        count = select(doubled, add(count, 1.0), count)
    return add(log_of_split(f, count), rest)


def _log_of_sum(more: Expr, less: Expr, error: Expr, t: Expr, root: Expr) -> Expr:
    """ln(more + less) of t and a root, the larger one of them first, that lacks error / (2 * root); of large
    ones ln(2 t)."""
    twice = add(root, root)
    u = add(more, less)
    u_low = add(sub(more, u), less)
    large = gt(t, LARGE)
    rest = div(fma(u_low, twice, error), mul(u, twice))  # one quotient serves both
    result = _log(select(large, t, u), select(large, 0.0, rest), large)
    return select(eq(t, inf), inf, result)


@single
def asinh(x: Expr) -> Expr:
    t = absolute(x)
    p = mul(t, t)
    p_low = fma(t, t, neg(p))
    w = add(p, 1.0)
    above = gt(p, 1.0)
    larger, smaller = select(above, p, 1.0), select(above, constant(1.0, FLOAT32), p)
    w_low = add(add(sub(larger, w), smaller), p_low)
    root = sqrt(w)
    far = _log_of_sum(root, t, add(fma(neg(root), root, w), w_low), t, root)
    return copysign(select(is_nan(t), nan, select(lt(t, 0.5), _odd(t, ASINH), far)), x)


@single
def acosh(x: Expr) -> Expr:
    d = sub(x, 1.0)
    p = mul(x, x)
    w = sub(p, 1.0)
    w_low = add(sub(sub(p, w), 1.0), fma(x, x, neg(p)))
    small = lt(d, 0.5)
    root = sqrt(select(small, add(d, d), w))  # one for both
    near = fma(mul(root, d), polynomial(d, ACOSH), root)
    far = _log_of_sum(x, root, add(fma(neg(root), root, w), w_low), x, root)
    return select(ge(x, 1.0), select(small, near, far), nan)


@single
def atanh(x: Expr) -> Expr:
    """n ln2 / 2 + atanh(s) where (1+s)/(1-s) = (1+t)/(1-t) / 2^n, with n for which s is at most 0.267.

    s is t itself if n is 0. The bits of a float are nearly its logarithm, and 2^n + 1 is exact up to n = 23.
    """
    t = absolute(x)
    quotient = sub(bitcast(add(1.0, t), INT32), bitcast(sub(1.0, t), INT32))
    n = and_(add(quotient, 0x0021EB85), -0x800000)  # n times 2^23
    power = bitcast(add(n, 0x3F800000), FLOAT32)
    more, less = add(power, 1.0), sub(1.0, power)
    s = div(fma(t, more, less), fma(t, less, more))
    result = fma(convert(n, FLOAT32), log(2) / 2**24, _odd(s, ATANH))
    return copysign(select_lazy(ge(t, 1 - 2**-23), _atanh_special(t), result), x)


def _atanh_special(t: Expr) -> Expr:
    """Of 1, what is more, and the two floats before 1."""
    below = select(eq(t, 1 - 2**-23), constant(log(2**24 - 1) / 2, FLOAT32), log(2**25 - 1) / 2)
    return select(lt(t, 1.0), below, select(eq(t, 1.0), constant(inf, FLOAT32), nan))
