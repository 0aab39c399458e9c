"""Convolutions; small integers, so that sums are exact in every order."""

import ml_dtypes
import numpy as np
import pytest

from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import check, check_fails, folded

F = np.float32
R = np.random.default_rng(5)


def grid(*shape, dtype="float32"):
    return R.integers(-4, 5, shape).astype(dtype)


LINES = [
    {},
    {"pads": [2, 1]},
    {"strides": [2]},
    {"dilations": [2]},
    {"strides": [3], "dilations": [2], "pads": [1, 2]},
    {"auto_pad": "SAME_UPPER"},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "SAME_UPPER", "strides": [2]},
    {"auto_pad": "SAME_LOWER", "strides": [3]},
    {"auto_pad": "VALID", "strides": [2]},
    {"kernel_shape": [4]},
]
PLANES = [
    {},
    {"pads": [1, 0, 2, 1]},
    {"strides": [2, 1], "pads": [1, 1, 1, 1]},
    {"dilations": [1, 2], "strides": [2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [3, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [3, 2]},
]


@pytest.mark.parametrize("version", [1, 11, 22])
@pytest.mark.parametrize("attributes", LINES)
def test_line(version, attributes):
    x, w, bias = grid(2, 3, 9), grid(4, 3, 4), grid(4)
    check("Conv", [x, w], version, **attributes)
    check("Conv", [x, w, bias], version, **attributes)


@pytest.mark.parametrize("attributes", PLANES)
def test_plane(attributes):
    x, w, bias = grid(2, 4, 7, 6), grid(6, 4, 3, 2), grid(6)
    check("Conv", [x, w, bias], 11, **attributes)
    check("Conv", [x, grid(6, 2, 3, 2), bias], 11, group=2, **attributes)
    check("Conv", [x, grid(8, 1, 3, 2)], 11, group=4, **attributes)


def test_space():
    check("Conv", [grid(1, 2, 4, 5, 3), grid(3, 2, 2, 2, 2)], 22, pads=[1, 0, 1, 0, 1, 0], strides=[2, 1, 1])


def test_values():
    x, w = np.abs(R.normal(size=(2, 3, 9))).astype(F), np.abs(R.normal(size=(4, 3, 4))).astype(F)
    check("Conv", [x, w], 11, tolerance=8)
    x[0, 0, 4], x[1, 1, 2] = np.nan, np.inf
    check("Conv", [x, w], 11, tolerance=8)
    check("Conv", [np.full((1, 1, 2), 3e38, F), np.ones((1, 1, 2), F)], 11)
    with pytest.raises(NotFoldable):
        folded("Conv", [np.full((1, 1, 3), 3e38, F), np.array([[[1, 1, -1]]], F)], 11)


def test_types():
    """By hand: onnxruntime has no float64 without other providers, and no short types."""
    x, w, bias = grid(2, 3, 9), grid(4, 3, 4), grid(4)
    expected = folded("Conv", [x, w, bias], 11, pads=[1, 1])[0]
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
        inputs = [p.astype(dtype) for p in (x, w, bias)]
        check("Conv", inputs, 22, expected=expected.astype(dtype), pads=[1, 1])


def test_nothing():
    w = grid(4, 3, 4)
    check("Conv", [np.zeros((0, 3, 9), F), w], 11)
    for size, attributes in [
        (3, {}),
        (0, {"pads": [2, 2]}),
        (9, {"pads": [-1, 0]}),
        (9, {"auto_pad": "SAME_UPPER", "dilations": [2]}),
    ]:
        with pytest.raises(NotFoldable):
            folded("Conv", [np.zeros((1, 3, size), F), w], 11, **attributes)


def test_shapes_that_do_not_fit():
    x, w = grid(2, 3, 9), grid(4, 3, 4)
    for inputs, attributes in [
        ([grid(2, 2, 9), w], {}),
        ([x, w, grid(3)], {}),
        ([x, w], {"kernel_shape": [3]}),
        ([x, w], {"strides": [1, 1]}),
        ([x, w], {"pads": [1]}),
        ([x, grid(4, 3, 4, 1)], {}),
        ([grid(2, 6, 9), w], {"group": 3}),
    ]:
        check_fails("Conv", inputs, 11, **attributes)


# ---- ConvTranspose -----------------------------------------------------------------------------------

TRANSPOSED = [
    {},
    {"pads": [1, 2]},
    {"strides": [2]},
    {"strides": [3], "output_padding": [2], "pads": [1, 1]},
    {"dilations": [2]},
    {"dilations": [3], "strides": [2], "output_padding": [1]},
    {"auto_pad": "VALID"},
    {"auto_pad": "SAME_UPPER", "strides": [2]},
    {"auto_pad": "SAME_LOWER", "strides": [2]},
    {"strides": [2], "output_shape": [10]},
]


@pytest.mark.parametrize("version", [1, 11, 22])
@pytest.mark.parametrize("attributes", TRANSPOSED)
def test_transposed(version, attributes):
    x, bias = grid(2, 4, 5), grid(6)
    check("ConvTranspose", [x, grid(4, 6, 4)], version, **attributes)
    check("ConvTranspose", [x, grid(4, 3, 4), bias], version, group=2, **attributes)


def test_transposed_plane():
    x, w = grid(2, 4, 3, 2), grid(4, 2, 3, 2)
    check("ConvTranspose", [x, w, grid(2)], 11, strides=[2, 1], pads=[1, 0, 0, 1])
    check("ConvTranspose", [x[:0], w], 11, strides=[2, 1])
    halves = [p.astype(np.float16) for p in (x, w)]  # by hand: onnxruntime has none
    expected = folded("ConvTranspose", [x, w], 11)[0].astype(np.float16)
    check("ConvTranspose", halves, 11, expected=expected)


def test_transposed_that_does_not_fit():
    x, w = grid(2, 4, 5), grid(4, 6, 4)
    for inputs in ([grid(2, 3, 5), w], [x, w, grid(5)], [x, grid(4, 6, 4, 1)]):
        check_fails("ConvTranspose", inputs, 11)
    for attributes in (
        {"auto_pad": "SAME_UPPER", "strides": [1]},  # of odd padding some put more in front, some less
        {"output_shape": [7]},
        {"output_shape": [12]},
        {"pads": [8, 0]},
        {"output_padding": [1]},
    ):
        with pytest.raises(NotFoldable):
            folded("ConvTranspose", [x, w], 11, **attributes)
