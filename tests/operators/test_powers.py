"""Powers in float32: beside mpmath where they are hardest, exact where they can be, and C's special cases."""

import itertools
import math

import mpmath
import numpy as np
import pytest

import anydml as dml

from .checking import edges, spacing

INF, NAN = np.inf, np.nan


def worst(x, n, y):
    """The largest distance from exact powers, in ULP; what overflows is infinite, what vanishes 0."""
    with mpmath.workprec(120):
        exact = [mpmath.power(float(a), float(b)) for a, b in zip(x, n, strict=True)]
        rounded = np.array([float(e) for e in exact])
        unit = spacing(rounded, np.float32)
        limit = mpmath.mpf(2) ** 128
        off = [
            abs(min(mpmath.mpf(float(g)), limit) - min(e, limit)) / u
            for g, e, u in zip(y, exact, unit, strict=True)
        ]
    return float(max(off))


@pytest.mark.parametrize("turn", [0.84094, 1.18927, 1.68188, 1.0, 1.41436, 0.70710678])
def test_bases_where_the_logarithm_is_hardest(turn):
    """Around the places where its reduction changes, and powers that are all but too large or too small."""
    rng = np.random.default_rng(61)
    x = (turn * 2.0 ** rng.integers(-3, 4, 1500) * (1 + rng.normal(size=1500) * 1e-3)).astype(np.float32)
    x = np.concatenate([x, (turn * (1 + rng.normal(size=1500) * 1e-3)).astype(np.float32)])
    x = x[x != 1]
    n = (rng.choice([-150, -126, -110, 100, 127.9, 128], len(x)) / np.log2(x.astype(float))).astype(
        np.float32
    )
    assert worst(x, n, dml.pow(x, n)) < 1.5


def test_denormal_bases_and_powers():
    rng = np.random.default_rng(62)
    x = np.concatenate(
        [
            rng.integers(1, 1 << 23, 1500, np.uint32).view(np.float32),
            (2.0 ** np.arange(-149, -126)).astype(np.float32),
        ]
    )
    n = rng.uniform(-0.9, 1, len(x)).astype(np.float32)
    assert worst(x, n, dml.pow(x, n)) < 1.5
    x = rng.uniform(0.01, 0.9, 2000).astype(np.float32)
    n = (rng.uniform(-151, -125, 2000) / np.log2(x.astype(float))).astype(np.float32)
    assert worst(x, n, dml.pow(x, n)) < 1.5


def test_powers_that_float32_holds_are_exact():
    found = []
    for base in range(2, 600):
        for n in range(-149, 128):
            odd = base >> ((base & -base).bit_length() - 1)
            if n < 0 and odd != 1:
                continue
            if (odd ** abs(n)).bit_length() <= 24 and -149 <= n * math.log2(base) < 128:
                found += [(base, n, float(base) ** n), (-base, n, float(-base) ** n)]
    x, n, wanted = np.array(found, np.float32).T
    assert len(x) > 2000
    assert np.array_equal(dml.pow(x, n), wanted)
    root = np.arange(1, 4097, dtype=np.float32)
    assert np.array_equal(dml.constant_pow(root * root, 0.5), root)


def c_rules(x, y):
    """C's powf of special operands (F.10.4.4), from the text of the standard; None for all others."""
    odd = abs(y) < 2**24 and y == int(y) and int(y) % 2 == 1 if np.isfinite(y) else False
    if x == 1 or y == 0:
        return 1.0
    if np.isnan(x) or np.isnan(y):
        return NAN
    if x == 0:
        size = 0.0 if y > 0 else INF
        return np.copysign(size, x) if odd else size
    if np.isinf(y):
        if x == -1:
            return 1.0
        return INF if (abs(x) > 1) == (y > 0) else 0.0
    if np.isinf(x):
        size = INF if y > 0 else 0.0
        return np.copysign(size, x) if odd else size
    if x < 0 and y != int(y):
        return NAN
    return None


@pytest.mark.parametrize("lanes", [1, 3, 67])
def test_special_cases_of_c(lanes):
    """Alone, in a short vector, and among ordinary numbers."""
    near = [2.0**24 - 1, 2.0**24, 1 - 2.0**-24, 1 + 2.0**-23, 3.0, -3.0, 5e-45, 2.0**-126, 2.0**31, 3e38]
    values = np.unique(
        np.concatenate([edges(np.float32), np.float32(near), -np.float32(near)]).view(np.uint32)
    )
    values = values.view(np.float32)
    for x, y in itertools.product(values, values):
        wanted = c_rules(float(x), float(y))
        if wanted is None:
            continue
        xs, ys = np.full(lanes, 2, np.float32), np.full(lanes, 3, np.float32)
        xs[lanes // 2], ys[lanes // 2] = x, y
        got = dml.pow(xs, ys)
        assert np.array_equal(got[lanes // 2].view(np.uint32), np.float32(wanted).view(np.uint32)) or (
            np.isnan(wanted) and np.isnan(got[lanes // 2])
        ), (x, y, got[lanes // 2], wanted)
        others = np.delete(got, lanes // 2)
        assert (others == 8).all()


def test_whole_exponents_beyond_what_float32_holds():
    x, n = np.float32([-1, -1, 1.0000001]), np.int32([2**24 + 1, 2**24 + 2, 2**24 + 1])
    exact = float(np.float32(1.0000001)) ** (2**24 + 1)
    assert np.allclose(dml.pow(x, n), [-1, 1, exact], rtol=1e-7)
