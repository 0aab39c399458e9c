"""Softmax, LogSoftmax and Hardmax."""

import ml_dtypes
import numpy as np
import pytest

from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import check, check_fails, folded

NAN, INF = np.nan, np.inf
F = np.float32
OPS = ("Softmax", "LogSoftmax", "Hardmax")
LOOSE = {"Softmax": 4, "LogSoftmax": 4096, "Hardmax": 0}
"""onnxruntime takes the difference of two numbers of float32, so that logarithms next to 0 are far off."""
X = np.array([[[1.5, -2.0, 3.25], [0.5, 3.25, -1.0]], [[2.0, 2.5, 7.0], [-3.5, 1.0, 7.0]]], F)


def f(*values):
    return np.array(values, F)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("version", [1, 11, 13, 21])
def test_axes(op, version):
    """Before opset 13 all axes from `axis` on are one."""
    check(op, [X], version, tolerance=LOOSE[op])
    for axis in (0, 1, 2, -1, -2, -3):
        check(op, [X], version, tolerance=LOOSE[op], axis=axis)
    for axis in (3, -4):
        check_fails(op, [X], version, axis=axis)
    check_fails(op, [np.array(1, F)], version, axis=0)
    for shape in ((2, 0), (0, 2), (3, 0, 2)):
        check(op, [np.zeros(shape, F)], version)


@pytest.mark.parametrize("op", OPS)
def test_coerced(op):
    """Two axes are one row, or not."""
    rows = folded(op, [X], 11, axis=1)[0]
    check(op, [X.reshape(2, 6)], 13, expected=rows.reshape(2, 6), axis=1)
    assert (folded(op, [X], 13, axis=1)[0] != rows).any()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("version", [11, 13])
def test_edges(op, version):
    """The shift by the maximum keeps exponentials finite; exponentials of NaN and of inf - inf are NaN."""
    for values in ((0, 120, -30), (-INF, 1), (3e38, -3e38), (1, 2, 2), (5,), (0.0, -0.0)):
        check(op, [f(*values)], version, tolerance=2, axis=0)
    if op != "Hardmax":
        for values in ((INF, 1), (NAN, 1), (-INF, -INF), (INF, INF)):
            check(op, [f(*values)], version, axis=0)
    else:
        check(op, [f(INF, 1, INF)], version, axis=0)
        for values in ((1, NAN, 3), (NAN,)):
            with pytest.raises(NotFoldable):
                folded(op, [f(*values)], version, axis=0)


@pytest.mark.parametrize("op", OPS)
def test_types(op):
    check(op, [X.astype(np.float16)], 13, tolerance=1)
    if op != "Hardmax":
        check(op, [X.astype(np.float64)], 13, tolerance=8)
    else:  # by hand: onnxruntime has none
        check(op, [np.array([1.0, 2.0, 2.0])], 13, expected=np.array([0.0, 1.0, 0.0]))
    b = ml_dtypes.bfloat16
    expected = {"Softmax": [0.5, 0.5], "LogSoftmax": [-np.log(2)] * 2, "Hardmax": [1, 0]}[op]
    check(op, [np.array([3, 3], b)], 13, expected=np.array(expected).astype(b))
