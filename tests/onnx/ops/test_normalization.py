"""Normalization, as inference does it."""

import ml_dtypes
import numpy as np
import pytest

from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import check, check_fails, folded

NAN, INF = np.nan, np.inf
F = np.float32
B16 = ml_dtypes.bfloat16
LOOSE = 1024
"""For differences of float32 numbers that are close to one another, which the rules take in float64."""
R = np.random.default_rng(7)
X = R.uniform(-3, 3, (2, 4, 3)).astype(F)
SCALE, BIAS, MEAN = (R.uniform(0.5, 2, 4).astype(F) for _ in range(3))
VARIANCE = np.array([0.5, 1, 2, 4], F)


def f(*values):
    return np.array(values, F)


def batch(x, scale=SCALE, bias=BIAS, mean=MEAN, variance=VARIANCE):
    """With all of it in float64."""
    scale, bias, mean, variance = (p.astype(np.float64)[:, None] for p in (scale, bias, mean, variance))
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + bias


# ---- BatchNormalization ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 8, 9, 13, 14, 15])
def test_batch(version):
    parameters = [SCALE, BIAS, MEAN, VARIANCE]
    check("BatchNormalization", [X, *parameters], version, tolerance=LOOSE)
    check("BatchNormalization", [X[:, :, 0], *parameters], version, tolerance=LOOSE, epsilon=0.5)
    check("BatchNormalization", [X[..., None], *parameters], version, tolerance=LOOSE)
    check("BatchNormalization", [X[:0], *parameters], version)
    doubles = [p.astype(np.float64) for p in (X, *parameters)]
    check("BatchNormalization", doubles, version, tolerance=LOOSE)
    check_fails("BatchNormalization", [X, SCALE[:3], BIAS, MEAN, VARIANCE], version)


@pytest.mark.parametrize("version", [1, 6])
def test_batch_of_old(version):
    """By hand: onnxruntime begins with opset 7."""
    attributes = {"consumed_inputs": [0]} if version == 1 else {}
    inputs = [X, SCALE, BIAS, MEAN, VARIANCE]
    check(
        "BatchNormalization",
        inputs,
        version,
        tolerance=2,
        expected=batch(X).astype(F),
        is_test=1,
        **attributes,
    )
    with pytest.raises(NotFoldable):
        folded("BatchNormalization", inputs, version, **attributes)


def test_batch_of_elements():
    parameters = [np.resize(p, (4, 3)) for p in (SCALE, BIAS, MEAN, VARIANCE)]
    check("BatchNormalization", [X, *parameters], 7, tolerance=LOOSE, spatial=0)
    check_fails("BatchNormalization", [X, SCALE, BIAS, MEAN, VARIANCE], 7, spatial=0)


def test_batch_of_one_axis():
    one = [f(0.5)] * 4
    for version in (9, 15):
        check("BatchNormalization", [f(1, 2, -3), *one], version, tolerance=LOOSE)
    check_fails("BatchNormalization", [np.array(1, F), *one], 15, alone=True)


def test_batch_of_several_types():
    x = X.astype(np.float16)
    inputs = [x, SCALE, BIAS, MEAN, VARIANCE]
    check("BatchNormalization", inputs, 15, tolerance=2)
    halves = [p.astype(np.float16) for p in inputs]
    check("BatchNormalization", halves, 15, tolerance=2)
    short = [p.astype(B16) for p in inputs]  # by hand: onnxruntime has none
    wide = [p.astype(F) for p in short]
    check("BatchNormalization", short, 15, expected=batch(*wide).astype(F).astype(B16))


def test_batch_edges():
    x = np.array([[[NAN], [INF], [-0.0], [1]]], F)
    variance = f(1, 1, 1, -1)
    zeros = np.zeros(4, F)
    check("BatchNormalization", [x, SCALE, zeros, zeros, variance], 15, tolerance=LOOSE)


def test_training():
    inputs = [X, SCALE, BIAS, MEAN, VARIANCE]
    for version, outputs, attributes in [
        (9, 5, {}),
        (7, 3, {}),
        (14, 3, {"training_mode": 1}),
        (15, 1, {"training_mode": 1}),
    ]:
        with pytest.raises(NotFoldable):
            folded("BatchNormalization", inputs, version, outputs, **attributes)


# ---- statistics of the input -------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 22])
def test_instance(version):
    check("InstanceNormalization", [X, SCALE, BIAS], version, tolerance=LOOSE)
    check("InstanceNormalization", [X[..., None], SCALE, BIAS], version, tolerance=LOOSE, epsilon=0.25)
    check("InstanceNormalization", [X[..., :1], SCALE, BIAS], version, tolerance=LOOSE)
    check_fails("InstanceNormalization", [X[..., 0], SCALE, BIAS], version)
    check_fails("InstanceNormalization", [X, SCALE[:3], BIAS], version)
    check("InstanceNormalization", [X[:0], SCALE, BIAS], version, expected=X[:0])
    halves = [p.astype(np.float16) for p in (X, SCALE, BIAS)]
    check("InstanceNormalization", halves, version, tolerance=16)


def test_instance_of_old():
    """By hand: onnxruntime begins with opset 6."""
    new = folded("InstanceNormalization", [X, SCALE, BIAS], 6)[0]
    check("InstanceNormalization", [X, SCALE, BIAS], 1, expected=new)


def test_group():
    for groups in (1, 2, 4):
        check("GroupNormalization", [X, SCALE, BIAS], 21, tolerance=LOOSE, num_groups=groups)
        check(
            "GroupNormalization", [X, SCALE[:groups], BIAS[:groups]], 18, tolerance=LOOSE, num_groups=groups
        )
    check("GroupNormalization", [X[..., None], SCALE, BIAS], 21, tolerance=LOOSE, num_groups=2, epsilon=0.25)
    doubles = [p.astype(np.float64) for p in (X, SCALE, BIAS)]
    check("GroupNormalization", doubles, 21, tolerance=2.0**35, num_groups=2)  # in float32, as ONNX says
    check_fails("GroupNormalization", [X, SCALE, BIAS], 21, alone=True, num_groups=3)
    with pytest.raises(NotFoldable):
        folded("GroupNormalization", [X, SCALE, BIAS], 21, num_groups=2, stash_type=10)


def test_layer():
    for axis in (-1, 1, 2, -2, 0):
        shape = X.shape[axis:]
        scale, bias = (R.uniform(0.5, 2, shape).astype(F) for _ in range(2))
        check("LayerNormalization", [X, scale, bias], 17, outputs=3, tolerance=LOOSE, axis=axis)
        check("LayerNormalization", [X, scale], 17, tolerance=LOOSE, axis=axis, epsilon=0.5)
    one = np.ones(3, F)
    check("LayerNormalization", [X[:0], one], 17)
    check("LayerNormalization", [f(*[[2, 2, 2]]), one], 17, outputs=(True, False, True), tolerance=LOOSE)
    check("LayerNormalization", [f([1, NAN, 2]), one], 17, outputs=3)
    # By hand: onnxruntime has a NaN as the mean of infinity and others.
    nan = f([NAN] * 3), f([INF]), f([NAN])
    check("LayerNormalization", [f([INF, 1, 2]), one], 17, outputs=3, expected=nan)
    halves = [p.astype(np.float16) for p in (X, one, one)]
    check("LayerNormalization", halves, 17, outputs=3, tolerance=4)
    check_fails("LayerNormalization", [X, one], 17, axis=3)
    check_fails("LayerNormalization", [X, np.ones(5, F)], 17)
    for inputs, attributes in [([X, one], {"stash_type": 16}), ([X.astype(np.float64), np.ones(3)], {})]:
        with pytest.raises(NotFoldable):
            folded("LayerNormalization", inputs, 17, **attributes)


def test_root_mean_square():
    for axis in (-1, 1, 0):
        scale = R.uniform(0.5, 2, X.shape[axis:]).astype(F)
        check("RMSNormalization", [X, scale], 23, tolerance=8, axis=axis)
    one = np.ones(3, F)
    check("RMSNormalization", [X[:0], one], 23)
    check("RMSNormalization", [np.zeros((1, 3), F), one], 23, epsilon=0.25)
    halves = [p.astype(np.float16) for p in (X, one)]
    check("RMSNormalization", halves, 23, tolerance=2)
    check_fails("RMSNormalization", [X, one], 23, axis=3)
    for inputs in ([X.astype(np.float16), one], [X.astype(np.float64), np.ones(3)]):
        with pytest.raises(NotFoldable):
            folded("RMSNormalization", inputs, 23)


@pytest.mark.parametrize("version", [1, 22])
def test_lp(version):
    for p in (1, 2):
        for axis in (-1, 0, 1, -3):
            check("LpNormalization", [X], version, tolerance=4, p=p, axis=axis)
        check("LpNormalization", [f(0, 0)], version, p=p)
        check("LpNormalization", [X[:0]], version, p=p)
    check("LpNormalization", [X.astype(np.float64)], version, tolerance=4)
    check_fails("LpNormalization", [X], version, p=3)
    check_fails("LpNormalization", [X], version, axis=3)
    for values in ((1e30, 1e30), (1e-30, 1e-30), (INF, 1), (NAN, 1)):
        with pytest.raises(NotFoldable):
            folded("LpNormalization", [f(*values)], version)


@pytest.mark.parametrize("version", [9, 13])
def test_mean_variance(version):
    x = X.reshape(2, 3, 2, 2)
    check("MeanVarianceNormalization", [x], version, tolerance=LOOSE)
    check("MeanVarianceNormalization", [x], version, tolerance=LOOSE, axes=[1, -1])
    check("MeanVarianceNormalization", [X], version, tolerance=LOOSE, axes=[0, 2])
    for constant in (3.25, NAN):
        with pytest.raises(NotFoldable):
            folded("MeanVarianceNormalization", [np.full((1, 1, 2, 2), constant, F)], version)
    with pytest.raises(NotFoldable):  # onnxruntime takes an axis that is not there
        folded("MeanVarianceNormalization", [X], version)


@pytest.mark.parametrize("version", [1, 13])
def test_local_response(version):
    x = R.uniform(-3, 3, (2, 5, 2, 2)).astype(F)
    for size in (1, 3, 5, 9):
        check("LRN", [x], version, tolerance=4, size=size)
    check("LRN", [x], version, tolerance=8, size=3, alpha=0.5, beta=0.25, bias=2.0)
    check("LRN", [x[:0]], version, size=3)
    # By hand: onnxruntime has odd sizes and rank 4 only.
    x = f([[1], [2], [3]])
    squares = f([[1 + 4], [4 + 9], [9]])
    expected = x / (1 + 0.5 * squares) ** F(0.5)
    check("LRN", [x], version, tolerance=2, expected=expected, size=2, alpha=1.0, beta=0.5)


def test_bfloat16():
    """By hand: onnxruntime has none."""
    x = np.array([[[1, 3], [2, 6]]], B16)
    ones, zeros = np.ones(2, B16), np.zeros(2, B16)
    wanted = np.array([[[-1, 1], [-1, 1]]], B16)
    check("InstanceNormalization", [x, ones, zeros], 22, expected=wanted)
    check("LayerNormalization", [x, ones, zeros], 17, expected=wanted)
    check("GroupNormalization", [x, ones, zeros], 21, expected=wanted, num_groups=2)
    check("LpNormalization", [np.array([3, 4], B16)], 22, expected=np.array([0.6, 0.8], B16))
    check("LRN", [x], 13, expected=x, size=1, alpha=0.0)
    check("MeanVarianceNormalization", [x], 13, expected=wanted, axes=[2])
    check("RMSNormalization", [np.array([1, 7], B16), ones], 23, expected=np.array([0.2, 1.4], B16))


# ---- Dropout -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 10, 12, 13, 22])
def test_dropout(version):
    for x in (f(1, -0.0, NAN), np.array(2, F), np.zeros((0, 2), F), np.array([1, 2], np.float64)):
        check("Dropout", [x], version)
        if version >= 12:
            check("Dropout", [x, np.array(0.75, F)], version, outputs=2)
            check("Dropout", [x, None, np.array(False)], version, outputs=2)


def test_dropout_of_training():
    x = f(1, 2)
    for version in (1, 6):
        check("Dropout", [x], version, expected=x, is_test=1)  # by hand: onnxruntime begins with opset 7
        with pytest.raises(NotFoldable):
            folded("Dropout", [x], version)
    with pytest.raises(NotFoldable):
        folded("Dropout", [x, np.array(0.5, F), np.array(True)], 13)
    with pytest.raises(NotFoldable):
        folded("Dropout", [x], 10, 2)
