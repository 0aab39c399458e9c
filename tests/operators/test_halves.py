"""All of float16: GELU beside mpmath, angles and logarithms beside float64."""

import math

import mpmath
import numpy as np
import pytest

import anydml as dml

from .checking import distance, spacing


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


@pytest.mark.parametrize("name", ["sin", "cos", "tan", "log"])
def test_every_float16_is_within_half_a_unit(name):
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x) & ((x > 0) | (name != "log"))]
    exact = getattr(np, name)(x.astype(np.float64))
    got = getattr(dml, name)(x)
    assert (distance(got, exact, np.float16) <= 0.5002 * spacing(exact, np.float16)).all()


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_a_float16_made_a_float32_is_an_angle_of_float32(name):
    """Fused with what made it wider, too: a result of 24 bits needs the careful reduction."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x)]
    g = dml.GraphBuilder()
    wide = dml.cast(g.input("x", "FLOAT16", [x.size]), output_data_type="FLOAT32")
    graph = g.compile({"y": getattr(dml, name)(wide)})
    y = graph({"x": x})["y"]
    assert graph.kernels == 1
    exact = getattr(np, name)(x.astype(np.float64))
    assert (distance(y, exact, np.float32) <= 2 * spacing(exact, np.float32)).all()


def test_logarithms_of_what_is_no_positive_normal_number():
    """Alone and beside ordinary numbers."""
    x = np.float32([0, -0.0, -1, np.inf, -np.inf, np.nan, 1e-45, 1e-40, 2.0**-126, 3e38, 1])
    with np.errstate(all="ignore"):
        exact = np.log(x.astype(np.float64))
    for around in (0, 1, 100):
        padded = np.pad(x, around, constant_values=2)
        got = dml.log(padded)[around : around + len(x)]
        assert np.array_equal(np.isnan(got), np.isnan(exact))
        assert np.allclose(got, exact, rtol=2.0**-23, equal_nan=True)
