"""exp, sin, tanh and their kin, written in the language of ops.expr.

So they are vectorised on every processor, fuse with what surrounds them, and give the same bits
everywhere. Arguments are FLOAT32, or FLOAT16 computed with as FLOAT32; so are results. These
compute in float32; so do those in ops.powers, and ops.elementary64 has what needs float64.
The coefficients are minimax fits of our own (tools/fit_math.py); docs/accuracy.md has what is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT32
from anydml.ops.elementary_tables import (
    ERF_LARGE,
    ERF_SMALL,
    EXP,
    EXP2,
    EXPM1,
    LOG,
    TAIL_P,
    TAIL_Q,
)
from anydml.ops.expr import (
    Arg,
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
    fma,
    ge,
    gt,
    lt,
    make,
    mul,
    neg,
    or_,
    rint,
    select,
    select_lazy,
    shl,
    shr,
    sub,
)

LN2 = 0.6931471824645996
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.428606765330187e-06
LOG2_E, LOG2_E_LOW = 1.4426950216293335, 1.9259629911266174e-08
MAGIC = 1.5 * 2.0**23
"""Added to a float32 of less than 2^22, it leaves the nearest whole number in the lowest bits."""


def wide(x: Expr) -> Expr:
    """A float to compute with: FLOAT16 as FLOAT32."""
    return convert(x, FLOAT32) if x.dtype is FLOAT16 else x


def copysign(magnitude: Arg, x: Expr) -> Expr:
    """A FLOAT32 or FLOAT64 of the magnitude and x's sign."""
    x = wide(x)
    bits, least = (INT32, -(2**31)) if x.dtype is FLOAT32 else (INT64, -(2**63))
    m = magnitude if isinstance(magnitude, Expr) else constant(magnitude, x.dtype)
    return bitcast(
        or_(and_(bitcast(x, bits), least), and_(bitcast(m, bits), ~least)),
        x.dtype,
    )


def polynomial(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    """The lowest degree comes first. Long ones in two chains of fma: one would wait for itself."""
    if len(coefficients) < 7:
        return _horner(x, coefficients)
    square = mul(x, x)
    return fma(_horner(x, coefficients[4:]), mul(square, square), _horner(x, coefficients[:4]))


def _horner(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    result: Arg = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    assert isinstance(result, Expr)
    return result


def at_most(x: Expr, high: float) -> Expr:
    """The smaller of both; a NaN in x stays."""
    return select(lt(high, x), high, x)


def at_least(x: Expr, low: Arg) -> Expr:
    return select(gt(low, x), low, x)


def single(function: Callable[..., Expr], name: str = "") -> Callable[..., Expr]:
    """`function` as a named op on FLOAT32."""
    named = Function(name or function.__name__.strip("_"), function)

    def called(*args: Arg) -> Expr:
        for a in args:
            if isinstance(a, Expr) and a.dtype not in (FLOAT16, FLOAT32):
                raise TypeError(f"{named.name} needs FLOAT32 or FLOAT16, not {a.dtype}")
        return call(named, FLOAT32, *args)

    return called


# ---- exponentials --------------------------------------------------------------------------------------


def _reduce_range(x: Expr, low: Expr | None, bias: int) -> tuple[Expr, Expr, Expr]:
    """x + low = n * ln 2 + r: r, n, and a float32 whose lowest bits are n + bias."""
    shifted = fma(x, LOG2_E, MAGIC + bias)
    n = sub(shifted, MAGIC + bias)
    r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x))
    return (r if low is None else add(r, low)), n, shifted


def _exp_of_reduced(r: Expr) -> Expr:
    return fma(fma(polynomial(r, EXP), r, 1.0), r, 1.0)


def power_of_two(n: Expr) -> Expr:
    return bitcast(shl(add(n, 127), 23), FLOAT32)


def _scaled(name: str, body: Callable[..., Expr]) -> Callable[..., Expr]:
    """x * 2^n for a whole n, a float32 whose lowest bits are n and a bias as the third argument."""
    named = Function(name, body, scales=True)
    return lambda x, n, biased: call(named, FLOAT32, x, n, biased)


def _times_power(x: Expr, n: Expr, biased: Expr) -> Expr:
    """In two steps, since 2^n alone may overflow or be denormal."""
    whole = sub(bitcast(biased, INT32), bitcast(constant(MAGIC, FLOAT32), INT32))
    half = shr(whole, 1)
    return mul(mul(x, power_of_two(half)), power_of_two(sub(whole, half)))


def _times_small_power(x: Expr, n: Expr, biased: Expr) -> Expr:
    return mul(_times_normal_power(x, n, biased), 2.0**-64)


def _times_normal_power(x: Expr, n: Expr, biased: Expr) -> Expr:
    return mul(x, bitcast(shl(bitcast(biased, INT32), 23), FLOAT32))


times_power = _scaled("times_power", _times_power)
"""|n| below 254, no bias."""
times_small_power = _scaled("times_small_power", _times_small_power)
"""n from -190 to 63, a bias of 127 + 64: 2^n may be denormal."""
times_normal_power = _scaled("times_normal_power", _times_normal_power)
"""2^n is a normal number, the bias 127."""


def exp_times_power(x: Expr, k: int) -> Expr:
    """exp(x) * 2^k, of |x| up to some hundreds and a small k."""
    r, n, biased = _reduce_range(x, None, 0)
    return times_power(_exp_of_reduced(r), add(n, k) if k else n, add(biased, k) if k else biased)


@single
def exp(x: Expr) -> Expr:
    return exp_times_power(at_least(at_most(x, 89.0), -104.0), 0)


def _exp_of_negative(x: Expr, low: Expr | None = None) -> Expr:
    """exp(x + low) for x <= 0 and tiny `low`; denormal results are right, too."""
    r, n, biased = _reduce_range(at_least(x, -104.0), low, 127 + 64)
    return times_small_power(_exp_of_reduced(r), n, biased)


def _small(low: Expr) -> Expr:
    """The rest of a rounding, or 0 where infinities have left no number."""
    return select(lt(absolute(low), 1.0), low, 0.0)


@single
def exp_above(x: Expr, most: Expr) -> Expr:
    """exp(x) / 2^n for x <= most, where n is whole and next to most * log2(e) - 64: around 2^64 at most.

    As n is whole, nothing is rounded but the remainder of x: it stays as exact as exp itself, which
    exp(x - most) would not. Where n would not fit beside MAGIC, x is a whole number, and `most` is
    subtracted first. The factor 2^64 keeps small ones from underflow, and still sums of many from overflow.
    What is so far below that it rounds to 0 beside the greatest, such as what is masked, is 0 at once:
    numbers below the smallest normal one are slow.
    """
    base = select(lt(absolute(most), 2.0**20), 0.0, most)
    rest = sub(most, base)
    near = select_lazy(ge(absolute(most), 2.0**20), sub(x, base), x)
    offset = sub(MAGIC + 127 + 64, rint(mul(rest, LOG2_E)))
    shifted = fma(near, LOG2_E, offset)
    r = fma(near, LOG2_E_LOW, fma(near, LOG2_E, neg(sub(shifted, offset))))
    grown = mul(fma(polynomial(r, EXP2), r, 1.0), bitcast(shl(bitcast(shifted, INT32), 23), FLOAT32))
    return select(lt(near, sub(rest, 104.0)), 0.0, grown)


def quotient(x: Expr, total: Expr) -> Expr:
    """x / total for many x of one total in FLOAT64, of which nothing is lost: exactly 1 where x is all."""
    return make("call", FLOAT32, (x, total), _QUOTIENT)


def _quotient(x: Expr, total: Expr) -> Expr:
    share = div(1.0, total)
    near = convert(share, FLOAT32)
    rest = convert(sub(share, convert(near, FLOAT64)), FLOAT32)
    return fma(x, near, mul(x, rest))


_QUOTIENT = Function("quotient", _quotient)


def _expm1(x: Expr, low: Expr | None = None) -> Expr:
    r, _, biased = _reduce_range(at_least(at_most(x, 88.0), -20.0), low, 127)
    scale = bitcast(shl(bitcast(biased, INT32), 23), FLOAT32)
    grown = fma(scale, fma(mul(r, r), polynomial(r, EXPM1), r), sub(scale, 1.0))
    return select(gt(x, 88.0), inf, grown)


expm1 = single(_expm1, "expm1")


@single
def expm1_of_quotient(x: Expr, by: Expr) -> Expr:
    """exp(x / by) - 1, as exact as if the quotient were not rounded."""
    quotient = div(x, by)
    return _expm1(quotient, _small(div(neg(fma(quotient, by, neg(x))), by)))


# ---- logarithms ----------------------------------------------------------------------------------------


def log_of_split(f: Expr, e: Expr) -> Expr:
    """ln((1 + f) * 2^e) for 1 + f around 1."""
    y = fma(mul(f, f), fma(polynomial(f, LOG), f, -0.5), mul(e, LN2_LOW))
    return fma(e, LN2_HIGH, add(f, y))


def bits_for_logarithm(x: Expr) -> tuple[Expr, Expr]:
    """Whether x is no positive normal number; the bits of |x|, of a denormal one as if exponents went on."""
    odd = ge(sub(bitcast(x, UINT32), 0x00800000), 0x7F000000)
    a = absolute(x)
    scaled = sub(bitcast(mul(a, 2.0**23), INT32), 23 << 23)
    rare = select(lt(a, 2.0**-126), scaled, bitcast(a, INT32))
    return odd, select_lazy(odd, rare, bitcast(x, INT32))


@single
def log(x: Expr) -> Expr:
    odd, bits = bits_for_logarithm(x)
    e = shr(sub(bits, 0x3F3504F3), 23)  # centred on sqrt(1/2)
    f = sub(bitcast(sub(bits, shl(e, 23)), FLOAT32), 1.0)
    y = log_of_split(f, convert(e, FLOAT32))
    return select_lazy(odd, _log_special(x, y), y)


def _log_special(x: Expr, y: Expr) -> Expr:
    """A logarithm of x at infinity, 0, negative numbers and NaN."""
    y = select(lt(x, inf), y, x)
    return select(gt(x, 0.0), y, select(eq(x, 0.0), constant(-inf, FLOAT32), nan))


def _softplus(z: Expr, low: Expr | None = None) -> Expr:
    """ln(1 + exp(z + low))."""
    towards = None if low is None else select(lt(z, 0.0), low, neg(low))
    e = _exp_of_negative(neg(absolute(z)), towards)
    halved = gt(e, 0.41421356)  # 1 + e = 2 * (1 + (e - 1) / 2)
    f = select(halved, mul(sub(e, 1.0), 0.5), e)
    return add(select(gt(0.0, z), 0.0, z), log_of_split(f, select(halved, constant(1.0, FLOAT32), 0.0)))


_softplus_of_one = single(_softplus, "softplus")


@single
def _softplus_of_product(x: Expr, factor: Expr) -> Expr:
    return _softplus(*_product(x, factor))


def softplus(x: Expr, factor: float) -> Expr:
    """ln(1 + exp(factor * x)), as exact as if the product were not rounded."""
    return _softplus_of_one(x) if factor == 1 else _softplus_of_product(x, factor)


def _product(x: Expr, factor: Expr) -> tuple[Expr, Expr]:
    """factor * x in two parts."""
    high = mul(x, factor)
    return high, _small(fma(x, factor, neg(high)))


# ---- sigmoid, tanh, erf --------------------------------------------------------------------------------


def _sigmoid(z: Expr, low: Expr | None = None) -> Expr:
    """1 / (1 + exp(-z - low)), both parts times 2^-64, so that only the quotient may underflow."""
    near = at_most(at_least(z, -120.0), 30.0)
    r, _, biased = _reduce_range(neg(near), None if low is None else neg(low), 127 - 64)
    e = mul(_exp_of_reduced(r), bitcast(shl(bitcast(biased, INT32), 23), FLOAT32))
    return div(2.0**-64, add(e, 2.0**-64))


sigmoid = single(_sigmoid, "sigmoid")


@single
def swish(x: Expr, scale: Expr) -> Expr:
    """x * sigmoid(scale * x), as exact as if the product were not rounded."""
    z, low = (x, None) if scale is constant(1.0, FLOAT32) else _product(x, scale)
    half = _exp_of_negative(mul(z, 0.5), None if low is None else mul(low, 0.5))
    tail = mul(mul(x, half), half)  # exp(z) itself may underflow where x * exp(z) does not
    return select_lazy(lt(z, -80.0), tail, mul(x, _sigmoid(z, low)))


def _exp2(x: Expr) -> Expr:
    """2^x where that is a normal number."""
    biased = add(x, MAGIC + 127)
    n = sub(biased, MAGIC + 127)
    r = sub(x, n)
    return times_normal_power(fma(polynomial(r, EXP2), r, 1.0), n, biased)


@single
def tanh(x: Expr) -> Expr:
    """(1 - e) / (1 + e), where e = exp(-2|x|); both parts are rounded once.

    Where |x| is small, n is 0 and r exact; where it is large, their errors do not matter.
    """
    t = at_most(absolute(x), 10.0)
    shifted = fma(t, -2 * LOG2_E, MAGIC + 127)
    r = fma(sub(shifted, MAGIC + 127), -LN2, neg(add(t, t)))
    grown = fma(mul(r, r), polynomial(r, EXP), r)
    scale = bitcast(shl(bitcast(shifted, INT32), 23), FLOAT32)
    less, more = fma(neg(scale), grown, sub(1.0, scale)), fma(scale, grown, add(scale, 1.0))
    return copysign(div(less, more), x)


@single
def erf(x: Expr) -> Expr:
    t = at_most(absolute(x), 3.95)
    square = mul(t, t)
    small = fma(polynomial(square, ERF_SMALL), t, t)
    large = sub(1.0, _exp2(polynomial(t, ERF_LARGE)))
    return copysign(select(lt(t, 0.9375), small, large), x)


@single
def gelu(x: Expr) -> Expr:
    """x * Φ(x) = max(x, 0) - |x| * Φ(-|x|), whose tail is exp(-x²/2) times a rational function."""
    t = at_most(absolute(x), 15.0)
    square = mul(t, t)
    low = fma(t, t, neg(square))
    bell = _exp_of_negative(mul(square, -0.5), mul(low, -0.5))
    share = mul(t, div(polynomial(t, TAIL_P), polynomial(t, TAIL_Q)))  # before the bell, or it underflows
    return fma(neg(share), bell, select(gt(0.0, x), -0.0, x))
