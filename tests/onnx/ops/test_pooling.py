"""Many elements of a window to one."""

import ml_dtypes
import numpy as np
import pytest

from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import check, check_fails, folded

NAN, INF = np.nan, np.inf
F = np.float32
R = np.random.default_rng(11)
LINE = R.permutation(36).reshape(2, 2, 9).astype(F) - 12.5
PLANE = R.permutation(84).reshape(1, 2, 7, 6).astype(F) - 40.5
ATTRIBUTES = [
    {"kernel_shape": [3]},
    {"kernel_shape": [1]},
    {"kernel_shape": [3], "strides": [2]},
    {"kernel_shape": [4], "strides": [3], "pads": [1, 2]},
    {"kernel_shape": [3], "auto_pad": "SAME_UPPER", "strides": [2]},
    {"kernel_shape": [4], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [4], "auto_pad": "SAME_LOWER", "strides": [2]},
    {"kernel_shape": [3], "auto_pad": "VALID", "strides": [2]},
]
UP = [
    {"kernel_shape": [2], "strides": [2], "ceil_mode": 1},
    {"kernel_shape": [3], "strides": [3], "pads": [1, 1], "ceil_mode": 1},
]
PLANES = [
    {"kernel_shape": [3, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1]},
    {"kernel_shape": [3, 2], "auto_pad": "SAME_LOWER", "strides": [2, 2]},
]


def line(*values):
    return np.array(values, F).reshape(1, 1, -1)


@pytest.mark.parametrize("version", [1, 8, 10, 11, 12, 22])
def test_max(version):
    for attributes in ATTRIBUTES:
        check("MaxPool", [LINE], version, **attributes)
        if version >= 8:
            check("MaxPool", [LINE], version, outputs=2, **attributes)
    for attributes in PLANES:
        check("MaxPool", [PLANE], version, outputs=2 if version >= 8 else 1, **attributes)
    if version >= 10:
        for attributes in UP:
            check("MaxPool", [LINE], version, outputs=2, **attributes)
        check("MaxPool", [LINE], version, outputs=2, kernel_shape=[3], dilations=[2], pads=[1, 1])
        check("MaxPool", [PLANE], version, kernel_shape=[2, 2], dilations=[3, 2], strides=[2, 1])
    if version >= 8:
        check("MaxPool", [LINE.astype(np.float64)], version, kernel_shape=[2])
    check("MaxPool", [LINE[:0]], version, kernel_shape=[2])


def test_max_edges():
    check("MaxPool", [line(-INF, -INF, INF, 1)], 12, outputs=2, kernel_shape=[2], pads=[1, 1])
    check("MaxPool", [line(2, 2, 1, 2)], 12, outputs=2, kernel_shape=[4])
    for dtype in ("int8", "uint8"):
        check("MaxPool", [LINE.astype("int8").view(dtype)], 12, kernel_shape=[3], pads=[1, 1])
        check(
            "MaxPool",
            [np.full((1, 1, 3), np.iinfo(dtype).min, dtype)],
            12,
            outputs=2,
            kernel_shape=[2],
            pads=[1, 1],
        )
    for x, attributes in [
        (line(1, NAN, 3), {}),
        (line(0.0, -0.0, -1), {}),
        (line(1, 2, 3), {"pads": [2, 0]}),
        (line(1), {}),
        (line(1, 2, 3), {"pads": [0, -1]}),
        (line(1, 2, 3), {"dilations": [2], "auto_pad": "SAME_UPPER"}),
        (line(1, 2, 3, 4), {"strides": [4], "auto_pad": "SAME_UPPER"}),
        (np.zeros((1, 1, 0), F), {}),
    ]:
        with pytest.raises(NotFoldable):
            folded("MaxPool", [x], 12, kernel_shape=[2], **attributes)
    with pytest.raises(NotFoldable):
        folded("MaxPool", [PLANE], 12, 2, kernel_shape=[2, 2], storage_order=1)
    for dtype in (np.float16, ml_dtypes.bfloat16):  # by hand: onnxruntime has neither
        x = np.array([[[1, 5, 3]]], dtype)
        check("MaxPool", [x], 22, expected=np.array([[[5, 5]]], dtype), kernel_shape=[2])


@pytest.mark.parametrize("version", [7, 10, 11, 19, 22])
def test_average(version):
    for attributes in ATTRIBUTES:
        check("AveragePool", [LINE], version, tolerance=4, **attributes)
        check("AveragePool", [LINE], version, tolerance=4, count_include_pad=1, **attributes)
    for attributes in PLANES:
        check("AveragePool", [PLANE], version, tolerance=8, **attributes)
    if version >= 10:
        for attributes in UP:
            check("AveragePool", [LINE], version, tolerance=4, **attributes)
    if version >= 19:
        for include in (0, 1):
            attributes = {"dilations": [2], "pads": [1, 1], "count_include_pad": include}
            check("AveragePool", [LINE], version, tolerance=4, kernel_shape=[3], **attributes)
    check("AveragePool", [LINE[:0]], version, kernel_shape=[2])
    check("AveragePool", [line(INF, 1, 2, NAN, 3)], version, kernel_shape=[2])


def test_average_of_old():
    """By hand: onnxruntime begins with opset 7."""
    expected = line(1, 2, 4, 5)  # nothing is padding that counts
    check("AveragePool", [line(1, 3, 5)], 1, expected=expected, kernel_shape=[2], pads=[1, 1])


def test_average_that_is_not_defined():
    for x, attributes in [
        (line(1, 2, 3), {"pads": [2, 0]}),
        (line(1, 2, 3), {"strides": [2], "ceil_mode": 1, "count_include_pad": 1}),
        (line(1), {}),
    ]:
        with pytest.raises(NotFoldable):
            folded("AveragePool", [x], 19, kernel_shape=[2], **attributes)


def test_windows_in_the_padding():
    """They are left out, says ONNX since opset 22; before that onnxruntime does so alone."""
    attributes = {"kernel_shape": [2], "strides": [3], "pads": [0, 1], "ceil_mode": 1}
    x = line(1, 2, 3)
    for op in ("MaxPool", "AveragePool"):
        check(op, [x], 22, **attributes)
        with pytest.raises(NotFoldable):
            folded(op, [x], 19, **attributes)
    attributes = {"kernel_shape": [1], "strides": [2], "auto_pad": "VALID", "ceil_mode": 1}
    with pytest.raises(NotFoldable):
        folded("MaxPool", [np.zeros((1, 1, 4), F)], 22, **attributes)


@pytest.mark.parametrize("version", [2, 11, 18, 22])
def test_lp(version):
    for p in (1, 2, 3):
        for attributes in ATTRIBUTES:
            check("LpPool", [LINE], version, tolerance=16, p=p, **attributes)
        check("LpPool", [PLANE], version, tolerance=16, p=p, **PLANES[1])
    if version >= 18:
        for attributes in [*UP, {"kernel_shape": [3], "dilations": [2]}]:
            check("LpPool", [LINE], version, tolerance=16, **attributes)
    for values in ((1e30, 1e30), (NAN, 1)):
        with pytest.raises(NotFoldable):
            folded("LpPool", [line(*values)], version, kernel_shape=[2])


def test_lp_of_old():
    """By hand: onnxruntime begins with opset 2."""
    check("LpPool", [line(3, 4, 0)], 1, expected=line(5, 4), kernel_shape=[2], p=2.0)


@pytest.mark.parametrize("version", [1, 22])
def test_global(version):
    for x in (LINE, PLANE, PLANE[..., None]):
        check("GlobalAveragePool", [x], version, tolerance=32)
        check("GlobalMaxPool", [x], version)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        check_fails(op, [LINE[0, :, 0]], version, alone=True)
        with pytest.raises(NotFoldable):
            folded(op, [np.zeros((1, 2, 0), F)], version)
        check(op, [np.zeros((0, 2, 3), F)], version, expected=np.zeros((0, 2, 1), F))
        for dtype in (np.float16, ml_dtypes.bfloat16):  # by hand: onnxruntime has neither
            check(op, [np.ones((1, 2, 3), dtype)], 22, expected=np.ones((1, 2, 1), dtype))
    for values in ((1, NAN), (0.0, -0.0)):
        with pytest.raises(NotFoldable):
            folded("GlobalMaxPool", [line(*values)], version)
    check("GlobalAveragePool", [line(1, NAN)], version)
    check("GlobalMaxPool", [line(1, -INF)], version)


def test_global_lp():
    for p in (1, 2, 3):
        check("GlobalLpPool", [PLANE], 2, tolerance=32, p=p)
    check("GlobalLpPool", [line(3, 4)], 22, expected=line(5))  # by hand: onnxruntime has opsets 2 to 21
    check("GlobalLpPool", [line(3, 4)], 1, expected=line(5), p=2.0)


def test_attributes_that_do_not_fit():
    for op in ("MaxPool", "AveragePool", "LpPool"):
        for attributes in (
            {"kernel_shape": [2, 2]},
            {"kernel_shape": [2], "strides": [1, 1]},
            {"kernel_shape": [2], "pads": [1]},
        ):
            check_fails(op, [LINE], 11, **attributes)
        check_fails(op, [LINE[0]], 11, alone=True, kernel_shape=[2])
