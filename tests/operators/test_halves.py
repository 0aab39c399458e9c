"""GELU of every float16, beside mpmath."""

import math

import mpmath
import numpy as np

import anydml as dml


def nearest_halves(x):
    """GELU by float64, and by mpmath where that lies near the middle of two float16."""
    with np.errstate(over="ignore", under="ignore"):
        rough = np.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in x.tolist()])
        low, high = (rough * (1 + s * 1e-6) for s in (-1, 1))
        unclear = np.flatnonzero(low.astype(np.float16) != high.astype(np.float16))
        with mpmath.workprec(120):
            for k in unclear:
                v = mpmath.mpf(float(x[k]))
                exact = v * mpmath.erfc(-v / mpmath.sqrt(2)) / 2
                below, above = np.sort([low[k], high[k]]).astype(np.float16)
                middle = (mpmath.mpf(float(below)) + mpmath.mpf(float(above))) / 2
                assert exact != middle
                rough[k] = below if exact < middle else above
        return rough.astype(np.float16), len(unclear)


def test_gelu_of_every_float16_is_the_nearest_and_keeps_its_sign():
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x)]
    assert len(x) == 63_488
    wanted, unclear = nearest_halves(x)
    assert unclear > 0
    got = dml.activation_gelu(x)
    assert np.array_equal(got.view(np.uint16), wanted.view(np.uint16))


def test_gelu_of_float32_keeps_its_sign():
    x = np.float32([0.0, -0.0, -14.0, -15.0, -200.0, -3e38, -1e-45, 3e38])
    assert np.array_equal(np.signbit(dml.activation_gelu(x)), np.signbit(x))
