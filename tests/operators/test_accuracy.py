"""How near float32 results lie to the exact ones, over everything that float32 can hold."""

import math

import mpmath
import numpy as np
import pytest

import anydml as dml

from .cases import CASES
from .checking import apply, check, distance, edges, expected, random_bits, spacing
from .oracle import FUNCTIONS

F32 = np.dtype(np.float32)
TYPES = dict.fromkeys("TE", F32)
ROWS = [name for name in CASES if "MAX" in name and name.startswith("ACTIVATION")]


def takes_float32(case, count):
    type_variables = {s.type_variable for s in case.operands}
    return len(case.inputs) == count and type_variables <= {"T", "E"} and "float32" in case.types["T"]


UNARY = [n for n, c in CASES.items() if takes_float32(c, 1) and n not in ROWS]
BINARY = [n for n, c in CASES.items() if takes_float32(c, 2)]
HARD_PLACES = [
    *(k * math.pi / 4 for k in range(1, 65)),
    *(k * math.log(2) / 2 for k in range(-310, 310)),  # where exp changes its reduction, overflows, vanishes
    *(2.0**k for k in range(-149, 128)),
    *(1 + s * 2.0**-k for k in range(1, 24) for s in (1, -1)),
    *(k / 16 for k in range(1, 400)),
    *(math.pi * 2**k for k in range(-20, 100)),
    88.02969, 88.37626, 88.72284, 89.41598, -87.33655, -103.27893, -103.97208, 9.010913, 0.34657359,
    16367173 * 2.0**72, 1e30, 3e38, 4.1887902, 0.84375, 1.25, 2.857142857, 3.919206, 10.05, 14.2,
]  # fmt: skip


def every_exponent(rng, mantissas):
    """All 256 exponents and both signs, with these many mantissas each: the ends and random ones."""
    low = rng.integers(0, 1 << 23, (512, mantissas), np.uint32)
    low[:, :4] = [0, 1, (1 << 23) - 1, 1 << 22]
    return (low | np.arange(512, dtype=np.uint32)[:, None] << 23).view(np.float32).ravel()


def neighbours(values, reach=4):
    """The numbers around some values, of both signs."""
    around = np.float32(values).view(np.int32)[:, None] + np.arange(-reach, reach + 1, dtype=np.int32)
    x = around.view(np.float32).ravel()
    return np.concatenate([x, -x])


def numbers(seed):
    rng = np.random.default_rng(seed)
    moderate = rng.uniform(-1, 1, 30_000) * rng.choice([1, 4, 20, 110], 30_000)
    parts = [every_exponent(rng, 128), random_bits(rng, F32, 120_000), neighbours(HARD_PLACES), edges(F32)]
    return np.concatenate([*parts, moderate.astype(F32)])


@pytest.mark.parametrize("name", UNARY)
def test_of_one_number(name):
    case, x = CASES[name], numbers(31)
    for k, attributes in enumerate(case.attributes):
        values = x if k == 0 else x[k :: len(case.attributes)]
        check(case, apply(case, [values], attributes, TYPES), [values], attributes)


@pytest.mark.parametrize("name", BINARY)
def test_of_two_numbers(name):
    case, rng = CASES[name], np.random.default_rng(32)
    a, b = every_exponent(rng, 128), every_exponent(rng, 128)
    near = neighbours(rng.choice(a[np.isfinite(a)], 2000), 3)
    grid = np.array(np.meshgrid(edges(F32), edges(F32))).reshape(2, -1)
    pairs = [
        (a, rng.permutation(b)),
        (rng.permutation(near), near),
        (near, rng.permutation(near.reshape(-1, 7), axis=1).ravel()),  # almost equal
        (random_bits(rng, F32, 60_000), random_bits(rng, F32, 60_000)),
        tuple(rng.normal(size=(2, 30_000)).astype(F32)),
        tuple(grid),
    ]
    for a, b in pairs:
        check(case, apply(case, [a, b], case.attributes[0], TYPES), [a, b], case.attributes[0])


def test_arithmetic_is_rounded_once_to_even():
    tie = np.float32(2.0**-24)
    for value, wanted in ((1.0, 1.0), (1 + 2.0**-23, 1 + 2.0**-22), (-1.0, -1.0 + 2.0**-24)):
        assert dml.add(np.float32([value]), tie)[0] == np.float32(wanted)
    odd = np.float32([3e-45, 1.4e-45, 4.2e-45, 7e-45])
    assert np.array_equal(dml.multiply(odd, np.float32(0.5)), (odd.astype(np.float64) / 2).astype(F32))


# ---- powers ------------------------------------------------------------------------------------------


def powers():
    """Bases and exponents whose powers fill the range, vanish and overflow."""
    rng = np.random.default_rng(33)
    base = np.abs(every_exponent(rng, 100))
    base = base[np.isfinite(base) & (base > 0)]
    near_one = np.float32(1) + rng.integers(-4000, 4000, 40_000) * np.float32(2.0**-24)
    base = np.concatenate([base, near_one])
    with np.errstate(all="ignore"):
        exponent = rng.uniform(-151, 129, len(base)) / np.log2(base.astype(np.float64))
    signs, whole = rng.choice([-1, 1], len(base)), rng.random(len(base)) < 0.4
    exponent = np.where(whole, np.rint(exponent), exponent).astype(F32)
    return (base * signs).astype(F32), exponent


def test_powers_over_the_whole_range():
    x, n = powers()
    case = CASES["ELEMENT_WISE_POW"]
    check(case, apply(case, [x, n], {}, TYPES), [x, n], {})
    check(case, apply(case, [np.abs(x), n], {}, TYPES), [np.abs(x), n], {})


def test_constant_powers_over_the_whole_range():
    case, x = CASES["ELEMENT_WISE_CONSTANT_POW"], numbers(34)[::4]
    for e in (
        0.0,
        -0.0,
        1.0,
        2.0,
        3.0,
        -1.0,
        -2.0,
        0.5,
        -0.5,
        1 / 3,
        4.5,
        17.0,
        -33.0,
        1e6,
        1e-6,
        np.inf,
        -np.inf,
    ):
        check(case, apply(case, [x], {"Exponent": e}, TYPES), [x], {"Exponent": e})


def test_powers_of_special_numbers_are_those_of_c():
    special = np.float32(
        [0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, np.inf, -np.inf, np.nan, 1e38, 5e8 + 1, 1e-45]
    )
    x, n = map(np.ravel, np.meshgrid(special, special))
    y = dml.pow(x, n)
    for base, exponent, got in zip(x.tolist(), n.tolist(), y.tolist(), strict=True):
        try:
            wanted = math.pow(base, exponent)
        except ValueError:  # Python's, where C returns NaN, or an infinity for a power of 0
            odd = exponent % 2 == 1
            wanted = math.copysign(math.inf, base if odd else 1) if base == 0 else math.nan
        except OverflowError:
            wanted = math.copysign(math.inf, base if exponent % 2 == 1 else 1)
        with np.errstate(all="ignore"):
            wanted = float(np.float32(wanted))
        same = got == pytest.approx(wanted, rel=3e-7, abs=2e-45, nan_ok=True)
        assert same, f"pow({base}, {exponent}) is {wanted}, but got {got}"
        assert math.isnan(got) or math.copysign(1, got) == math.copysign(1, wanted), (base, exponent)


# ---- signs and special results -----------------------------------------------------------------------

ODD = """ASIN ASINH ATAN ATANH ERF SIN SINH SQRT TAN TANH CEIL FLOOR ROUND IDENTITY""".split()


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_zero_keeps_its_sign(name, dtype):
    case, zeros = CASES[f"ELEMENT_WISE_{name}"], np.array([0.0, -0.0], dtype)
    for attributes in case.attributes:
        y = apply(case, [zeros], attributes, {"T": np.dtype(dtype)})
        assert (y == 0).all()
        assert np.array_equal(np.signbit(y), [False, True])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_signs_of_zeros_and_infinities(dtype):
    zeros, inf = np.array([0.0, -0.0], dtype), np.inf
    assert np.array_equal(dml.recip(zeros), [inf, -inf])
    assert np.array_equal(np.signbit(dml.negate(zeros)), [True, False])
    assert not np.signbit(dml.abs(zeros)).any()
    assert np.array_equal(dml.sign(np.array([0.0, -0.0, 2, -inf, np.nan], dtype)), [0, 0, 1, -1, 0], True)
    y, x = (
        np.array(v, dtype)
        for v in ([0, 0, -0.0, -0.0, 1, inf, inf, -inf, 1], [1, -1, 1, -1, 0, inf, -inf, inf, -inf])
    )
    for got, a, b in zip(dml.atan_yx(y, x), y, x, strict=True):
        wanted = math.atan2(a, b)
        assert float(got) == pytest.approx(wanted, rel=1e-3 if dtype == "float16" else 1e-6)
        assert np.signbit(got) == (math.copysign(1, wanted) < 0)


def test_every_zero_of_atan_yx():
    y, x = np.float32([0, -0.0, 0, -0.0]), np.float32([0, 0, -0.0, -0.0])
    got, wanted = dml.atan_yx(y, x), np.arctan2(y, x)
    assert np.allclose(got, wanted, rtol=1e-6)
    assert np.array_equal(np.signbit(got), np.signbit(wanted))


def test_nan_propagates_through_maxima_and_clips():
    x, y = np.float32([np.nan, 1, np.nan]), np.float32([1, np.nan, np.nan])
    for f in (dml.max, dml.min):
        assert np.isnan(f(x, y)).all()
    for result in (
        dml.clip(x, min=-1.0, max=2.0),
        dml.clip1(x, min=-1.0, max=2.0),
        dml.threshold(x, min=0.0),
        dml.activation_relu(x),
    ):
        assert np.array_equal(np.isnan(result), np.isnan(x))


@pytest.mark.parametrize("below", [-np.inf, -1e9, -200])
def test_what_is_certain_is_exactly_1(below):
    """The greatest of a row, beside which nothing counts."""
    top = np.linspace(-90, 90, 4001, dtype=np.float32)
    for length in (1, 2, 3, 16, 65):
        rows = np.full((top.size, length), below, np.float32)
        rows[np.arange(top.size), np.arange(top.size) % length] = top
        result = dml.activation_softmax1(rows, axes=[1])
        np.testing.assert_array_equal(result, np.equal(rows, top[:, None]))


def test_means_of_float16_do_not_overflow():
    x = np.float16([65504, -65504, 65504])
    assert np.array_equal(dml.mean(x, np.float16([65504, -65504, -65504])), np.float16([65504, -65504, 0]))


# ---- against arbitrary precision ---------------------------------------------------------------------

EXACT = {
    name.upper(): getattr(mpmath, name)
    for name in "acos acosh asin asinh atan atanh cos cosh erf exp log sin sinh tan tanh".split()
}
DOMAIN = {
    "ACOS": lambda x: np.abs(x) < 1,
    "ASIN": lambda x: np.abs(x) < 1,
    "ATANH": lambda x: np.abs(x) < 1,
    "ACOSH": lambda x: x >= 1,
    "LOG": lambda x: x > 0,
    "EXP": lambda x: np.abs(x) < 120,
    "SINH": lambda x: np.abs(x) < 120,
    "COSH": lambda x: np.abs(x) < 120,
}


def float64(value):
    """An arbitrarily precise number, where float64 is precise enough for the distance to it."""
    return float(mpmath.re(value))


def arguments(name):
    """Of every exponent, and at the places that are hard."""
    rng = np.random.default_rng(35)
    x = np.concatenate(
        [every_exponent(rng, 4), neighbours(rng.choice(HARD_PLACES, 60), 1), neighbours(HARD_PLACES[-19:], 1)]
    )
    inside = DOMAIN.get(name, lambda x: True)
    return x[np.isfinite(x) & inside(np.where(np.isfinite(x), x, 0))][::3]


@pytest.mark.parametrize("name", EXACT)
def test_functions_against_arbitrary_precision(name):
    case, x = CASES[f"ELEMENT_WISE_{name}"], arguments(name)
    with mpmath.workprec(260):
        exact = np.array([float64(EXACT[name](mpmath.mpf(v))) for v in x.tolist()])
    with np.errstate(all="ignore"):
        oracle = expected(case, [x], {}, F32)
        assert (np.abs(oracle - exact) <= 1e-8 * spacing(exact, F32)).all(), "the oracle itself is off"
    y = apply(case, [x], {}, TYPES)
    off = distance(y, exact, F32) / spacing(exact, F32)
    worst = off.argmax()
    assert off[worst] <= 2, (
        f"{name}({x[worst]!r}) is {exact[worst]!r}, but got {y[worst]!r}: {off[worst]:.2f} ULP"
    )


def test_powers_against_arbitrary_precision():
    x, n = (v[::300] for v in powers())
    x = np.abs(x)
    with mpmath.workprec(200):
        exact = np.array(
            [float64(mpmath.mpf(a) ** mpmath.mpf(b)) for a, b in zip(x.tolist(), n.tolist(), strict=True)]
        )
    y = dml.pow(x, n)
    off = distance(y, exact, F32) / spacing(exact, F32)
    worst = off.argmax()
    assert off[worst] <= 2, f"pow({x[worst]!r}, {n[worst]!r}): {off[worst]:.2f} ULP"


def test_gelu_and_softplus_against_arbitrary_precision():
    x = np.float32([-14, -10, -5.5, -3, -1, -1e-3, -1e-30, 1e-45, 1e-8, 0.3, 1, 4, 9, 88, 1e5])
    with mpmath.workprec(200):
        gelu = [float64(v * mpmath.erfc(-v / mpmath.sqrt(2)) / 2) for v in map(mpmath.mpf, x.tolist())]
        softplus = [float64(mpmath.log1p(mpmath.exp(v))) for v in map(mpmath.mpf, x.tolist())]
    for y, exact in ((dml.activation_gelu(x), gelu), (dml.activation_softplus(x, steepness=1.0), softplus)):
        allowed = np.maximum(4 * spacing(np.array(exact), F32), 2.0**-24)
        assert (distance(y, np.array(exact), F32) <= allowed).all()


def test_every_function_is_compared():
    assert {f"ELEMENT_WISE_{name}" for name in FUNCTIONS} <= set(UNARY)
    assert set(EXACT) | {"CEIL", "FLOOR", "RECIP", "SQRT"} == set(FUNCTIONS)
