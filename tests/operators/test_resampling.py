"""Resampling against sums with weights by exact positions, and against onnxruntime's Resize.

A gradient is the transpose: what it makes of each single element are the rows of the resampling's matrix.
"""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import anydml as dml
from tests.onnx.ops.checking import computed

from .tensors import scattered

MODES = ["NEAREST_NEIGHBOR", "LINEAR"]
HALF = Fraction(1, 2)
TYPES = "float32 float16 int8 uint8".split()
every_mode = pytest.mark.parametrize("mode", MODES)
every_type = pytest.mark.parametrize("dtype", TYPES)
every_seed = pytest.mark.parametrize("seed", range(8))


def drawn(rng, shape, dtype):
    if dtype.startswith("f"):
        return scattered(rng, rng.normal(size=shape).astype(dtype))
    return scattered(rng, rng.integers(0, 256, shape, np.uint8).view(dtype))


# ---- what is wanted ------------------------------------------------------------------------------------


def weights(n_in, n_out, scale, begin=0.5, end=-0.5, mode="LINEAR", direction=None, antialiased=False):
    """The share of each input element, a column, in each output element, a row; beyond an edge is that."""
    scale, begin, end = (Fraction(float(np.float32(v))) for v in (scale, begin, end))
    found = np.zeros((n_out, n_in))
    for o in range(n_out):
        at = (o - end) / scale - begin
        if mode == "LINEAR":
            reach, at = float(1 / scale) if antialiased and scale < HALF else 1.0, float(at)
            near = range(math.floor(at - reach), math.ceil(at + reach) + 1)
            share = {i: max(0, 1 - abs(i - at) / reach) for i in near}
        else:
            rounded = {"INCREASING": math.ceil(at), "DECREASING": math.floor(at)}
            share = {rounded.get(direction, math.floor(at + HALF)): 1}
        for i, w in share.items():
            found[o, min(max(i, 0), n_in - 1)] += w
        found[o] /= sum(share.values())
    return found


def summed(x, matrices):
    for k, m in enumerate(matrices):
        x = np.moveaxis(np.tensordot(m, x, (1, k)), 0, k)
    return x


def close(y, x, matrices, mode, slack=8):
    """Elements as they are, or means; those of bytes are rounded toward 0: exactly, of exact weights."""
    wanted = summed(x.astype(float), matrices)
    assert (y.dtype, y.shape) == (x.dtype, wanted.shape)
    if mode != "LINEAR":
        np.testing.assert_array_equal(y, wanted)
    elif x.dtype.kind != "f":
        exact = all((m * 4096 % 1 == 0).all() for m in matrices)
        assert (abs(y - np.trunc(wanted)) <= (abs(wanted - np.round(wanted)) < (0 if exact else 1e-4))).all()
    else:
        rounding = np.finfo(y.dtype).eps * (1 if y.dtype == np.float16 else slack)
        np.testing.assert_allclose(y.astype(float), wanted, rtol=rounding, atol=rounding * abs(x).max())


def places(rng, rank, offsets=True):
    """Scales and offsets of exact and inexact quotients."""
    scales = [float(v) for v in rng.choice([0.25, 0.37, 0.5, 0.73, 1, 1, 1.5, 2, 3, 4.41], rank)]
    begin, end = (rng.choice([-1, -0.5, 0, 0.25, 0.5, 3], rank).tolist() for _ in "ab")
    return (scales, begin, end) if offsets else scales


def sizes(rng, rank):
    return tuple(map(int, rng.integers(1, 7, rank)))


# ---- the operators -------------------------------------------------------------------------------------


@every_mode
@every_type
@every_seed
def test_resample(seed, dtype, mode):
    rng = np.random.default_rng([51, seed])
    x = drawn(rng, sizes(rng, int(rng.integers(1, 5))), dtype)
    scales = places(rng, x.ndim, offsets=False)
    usual = [
        max(1, math.floor(Fraction(float(np.float32(s))) * n)) for n, s in zip(x.shape, scales, strict=True)
    ]
    for given in (None, sizes(rng, x.ndim)):  # which may crop, or go on beyond
        y = dml.resample(x, given, interpolation_mode=mode, scales=scales)
        lines = zip(x.shape, given or usual, scales, strict=True)
        close(y, x, [weights(n, m, s, mode=mode) for n, m, s in lines], mode)


@every_mode
@every_type
@every_seed
def test_resample1_to_3(seed, dtype, mode):
    """With offsets; with a direction; with a wider filter."""
    rng = np.random.default_rng([52, seed])
    x = drawn(rng, sizes(rng, int(rng.integers(1, 5))), dtype)
    shape, (scales, begin, end) = sizes(rng, x.ndim), places(rng, x.ndim)
    given = {"interpolation_mode": mode, "scales": scales}
    lines = list(zip(x.shape, shape, scales, begin, end, strict=True))
    y = dml.resample1(x, shape, begin, end, **given)
    close(y, x, [weights(*line, mode) for line in lines], mode)
    for direction in ("INCREASING", "DECREASING"):
        given["rounding_direction"] = direction
        y = dml.resample2(x, shape, begin, end, **given)
        close(y, x, [weights(*line, mode, direction) for line in lines], mode)
        for antialiased in (False, True):
            y = dml.resample3(x, shape, begin, end, antialiased, **given)
            close(y, x, [weights(*line, mode, direction, antialiased) for line in lines], mode)


@every_mode
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("scale", [(1, 1), (1, 3), (2, 2), (5, 4)])
def test_upsample_2d(scale, dtype, mode):
    rng = np.random.default_rng([53, *scale])
    for shape in [(1, 1, 1, 1), (2, 3, 4, 5), (1, 2, 2, 1, 3)]:
        x = drawn(rng, shape, dtype)
        y = dml.upsample_2d(x, scale, mode)
        lines = zip(shape, (*(1,) * (len(shape) - 2), *scale), strict=True)
        close(y, x, [weights(n, n * s, s, mode=mode) for n, s in lines], mode)
        if mode == "NEAREST_NEIGHBOR":
            np.testing.assert_array_equal(y, x.repeat(scale[0], -2).repeat(scale[1], -1))


def test_filters_that_are_as_wide_as_the_input():
    """And wider: hundreds of elements in one, a tiny scale, and scales at which the filter begins."""
    x = np.random.default_rng(54).normal(size=(3, 400)).astype(np.float32)
    for scale, length in [(0.01, 4), (0.49, 9), (0.5, 9), (1 / 400, 1), (1e-3, 2), (0.3, 120)]:
        given = {"interpolation_mode": "LINEAR", "rounding_direction": "DECREASING", "scales": [1, scale]}
        y = dml.resample3(x, [3, length], antialiased=True, **given)
        close(y, x, [np.eye(3), weights(400, length, scale, antialiased=True)], "LINEAR", slack=100)


@every_mode
@pytest.mark.parametrize("scale", [1e-45, 1e-38, 3.4e38])
@pytest.mark.parametrize("offset", [-3.4e38, 0.0, 3.4e38])
def test_whatever_lies_beyond_all_numbers_is_at_an_edge(offset, scale, mode):
    x = np.float32([1, 2, 3])
    rest = {"interpolation_mode": mode, "rounding_direction": "DECREASING", "scales": scale}
    for end in (-3.4e38, 0.0, 3.4e38):
        for antialiased in (False, True):
            y = dml.resample3(x, [4], offset, end, antialiased, **rest)
            assert ((y >= 1) & (y <= 3)).all()
        back = dml.resample_grad1(y, [3], input_pixel_offsets=offset, output_pixel_offsets=end, **rest)
        np.testing.assert_allclose(back.sum(), y.sum(), rtol=1e-6)


# ---- onnxruntime ---------------------------------------------------------------------------------------

SCALES = [(1, 1, 2, 2), (1, 1, 0.5, 3), (1, 1, 1.5, 0.75), (1, 1, 2.5, 4), (1, 1, 0.4, 0.6)]


def resized(x, scales, **attributes):
    return computed("Resize", [x, None, np.float32(scales)], 18, **attributes)[0]


@pytest.mark.parametrize("scales", SCALES)
def test_resampling_is_that_of_onnxruntime(scales):
    x = np.random.default_rng(55).normal(size=(2, 3, 10, 8)).astype(np.float32)
    for place, offsets in (("half_pixel", (0.5, -0.5)), ("asymmetric", (0, 0))):
        how = {"coordinate_transformation_mode": place}
        nearest, linear = ({"interpolation_mode": m, "scales": scales} for m in MODES)
        wanted = resized(x, scales, mode="nearest", nearest_mode="round_prefer_ceil", **how)
        np.testing.assert_array_equal(dml.resample1(x, None, *offsets, **nearest), wanted)
        smooth = resized(x, scales, mode="linear", **how)
        made = [dml.resample1(x, None, *offsets, **linear)]
        for direction, rounding in (("INCREASING", "ceil"), ("DECREASING", "floor")):
            wanted = resized(x, scales, mode="nearest", nearest_mode=rounding, **how)
            y = dml.resample2(x, None, *offsets, **nearest, rounding_direction=direction)
            np.testing.assert_array_equal(y, wanted)
            made.append(dml.resample2(x, None, *offsets, **linear, rounding_direction=direction))
        for y in made:
            np.testing.assert_allclose(y, smooth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [0.25, 0.4, 0.125])
def test_antialiasing_is_that_of_onnxruntime(scale):
    """At the edges, too, beyond which the filter goes on."""
    x = np.random.default_rng(56).normal(size=(1, 1, 6, 40)).astype(np.float32)
    scales = (1, 1, 1, scale)
    wanted = resized(x, scales, mode="linear", antialias=1)
    given = {"interpolation_mode": "LINEAR", "rounding_direction": "DECREASING", "scales": scales}
    y = dml.resample3(x, antialiased=True, **given)
    assert y.shape == wanted.shape
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


# ---- gradients -----------------------------------------------------------------------------------------


def matrix(function, shape):
    """What a linear function makes of each single element."""
    units = np.eye(math.prod(shape), dtype=np.float32)
    return np.stack([function(u.reshape(shape)).ravel() for u in units])


@every_mode
@every_seed
def test_gradients_are_transposes(seed, mode):
    """Exactly, along one axis; along more the weights' products are of another order."""
    rng = np.random.default_rng([57, seed])
    for rank in (1, 2, 3):
        small, large = sizes(rng, rank), sizes(rng, rank)
        scales, begin, end = places(rng, rank)
        given = {"interpolation_mode": mode, "scales": scales}
        pairs = [(dml.resample1, dml.resample_grad, {})]
        for direction in ("INCREASING", "DECREASING"):
            pairs.append((dml.resample2, dml.resample_grad1, {"rounding_direction": direction}))
        for forward, backward, rest in pairs:
            there = {"input_pixel_offsets": begin, "output_pixel_offsets": end, **given, **rest}
            one = matrix(partial(forward, output_sizes=large, **there), small)
            other = matrix(partial(backward, output_sizes=small, **there), large)
            np.testing.assert_allclose(other, one.T, rtol=0 if rank == 1 else 3e-7)
            dy = drawn(rng, large, "float16")
            back = backward(dy, small, **there)
            assert back.dtype == np.float16
            exact = (one.astype(float) @ dy.ravel().astype(float)).reshape(small)
            np.testing.assert_allclose(back.astype(float), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("sizes", [(80, 96), (60, 72), (40, 96)])
def test_large_images_are_cut_as_in_onnxruntime(sizes):
    """Along the dimensions that stay as they are, since what lies between is kept near."""
    x = np.random.default_rng(sizes).standard_normal((2, 20, 40, 48)).astype(np.float32)
    shape = (2, 20, *sizes)
    scales = [n / m for n, m in zip(shape, x.shape, strict=True)]
    given = [x, None, np.float32(scales)]
    (theirs,) = computed("Resize", given, 18, mode="linear", coordinate_transformation_mode="half_pixel")
    ours = dml.resample1(
        x, interpolation_mode="LINEAR", scales=scales, input_pixel_offsets=[0.5] * 4, output_pixel_offsets=[-0.5] * 4
    )  # fmt: skip
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
