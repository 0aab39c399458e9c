"""Numbers as integers, with a scale and a zero point, and back."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import check, check_fails, folded

NAN, INF = np.nan, np.inf
F = np.float32
B16 = ml_dtypes.bfloat16
VERSIONS = [10, 13, 19, 21, 23]
X = np.array([[-300.5, -2.5, -1.5, -0.5, 0.5, 1.5], [2.5, 3.49, 127.5, 200, 255.5, 1e10]], F)
ROWS = np.array([0.5, 3], F)


def f(*values):
    return np.array(values, F)


def one(value, dtype="float32"):
    return np.array(value, dtype)


# ---- QuantizeLinear ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_quantize(version):
    for dtype in ("uint8", "int8"):
        for scale, zero in [(1, 0), (0.5, 7), (2, 100), (1e-9, 3), (1e9, 3)]:
            check("QuantizeLinear", [X, one(scale), one(zero, dtype)], version)
    check("QuantizeLinear", [X, one(1)], version)
    check("QuantizeLinear", [X, f(1), one([3], "uint8")], version)
    check("QuantizeLinear", [f(INF, -INF, 0, -0.0), one(2), one(3, "uint8")], version)
    check("QuantizeLinear", [one(3.0), one(1e-9)], version, expected=one(255, "uint8"))
    check("QuantizeLinear", [np.zeros((0, 2), F), one(1)], version)
    if version < 19:  # by hand: onnxruntime has no int32
        inputs = [np.array([5, 9, -3, 2**31 - 1], np.int32), one(2), one(3, "uint8")]
        check("QuantizeLinear", inputs, version, expected=np.array([5, 7, 1, 255], np.uint8))
    for values, scale in [((NAN, 1), 1), ((0, 1), 0)]:
        with pytest.raises(NotFoldable):
            folded("QuantizeLinear", [f(*values), one(scale)], version)
    check_fails("QuantizeLinear", [X, f(1, 2, 3)], version)
    check_fails("QuantizeLinear", [X, one(1), one([1, 2], "uint8")], version)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_quantize_by_axis(version):
    zero = np.array([3, 100], np.uint8)
    for axis in (0, -2):
        check("QuantizeLinear", [X, ROWS, zero], version, axis=axis)
    check("QuantizeLinear", [X.T.copy(), ROWS, zero], version)
    check("QuantizeLinear", [X.T.reshape(3, 2, 2, 1), ROWS, zero], version)
    check_fails("QuantizeLinear", [X, ROWS, zero], version, axis=2)
    check_fails("QuantizeLinear", [X, ROWS, zero], version, axis=1)


@pytest.mark.parametrize("version", [21, 23])
def test_quantize_blocks(version):
    for axis, block, shape in [
        (1, 4, (2, 2)),
        (1, 6, (2, 1)),
        (0, 2, (1, 6)),
        (0, 1, (2, 6)),
        (-1, 5, (2, 2)),
    ]:
        scale = np.linspace(0.5, 3, int(np.prod(shape))).reshape(shape).astype(F)
        zero = np.arange(scale.size).reshape(shape).astype(np.uint8)
        check("QuantizeLinear", [np.minimum(X, 1e4), scale, zero], version, axis=axis, block_size=block)
        y = np.arange(12, dtype=np.uint8).reshape(2, 6)
        check("DequantizeLinear", [y, scale, zero], version, axis=axis, block_size=block)
    check_fails("QuantizeLinear", [X, np.ones((2, 3), F)], version, block_size=4)
    # By hand: what is beyond int32 becomes 0 in onnxruntime, in blocks only.
    inputs, expected = [f([1e10, -1e10]), f([1])], np.array([[255, 0]], np.uint8)
    check("QuantizeLinear", inputs, version, expected=expected, block_size=2)


@pytest.mark.parametrize("name", ["UINT8", "INT8", "UINT16", "INT16"])
def test_quantize_to_output_dtype(name):
    check("QuantizeLinear", [X, one(0.01)], 21, output_dtype=getattr(TensorProto, name))
    for zero in (0, 100):
        check("QuantizeLinear", [X, one(0.01), one(zero, name.lower())], 21)


def test_quantize_to_others():
    """By hand: results of these types do not leave onnxruntime as arrays."""
    for name, low, high in [("INT4", -8, 7), ("UINT4", 0, 15), ("INT2", -2, 1), ("UINT2", 0, 3)]:
        dtype = getattr(ml_dtypes, name.lower())
        version = 25 if "2" in name else 21
        expected = np.rint(X).clip(low, high).astype(np.int8).astype(dtype)
        check(
            "QuantizeLinear", [X, one(1)], version, expected=expected, output_dtype=getattr(TensorProto, name)
        )
        if high > 5:
            expected = (np.rint(X) + 1).clip(low, high).astype(np.int8).astype(dtype)
            check("QuantizeLinear", [X, one(1), one(1, dtype)], version, expected=expected)
    for dtype, largest in [(ml_dtypes.float8_e4m3fn, 448), (ml_dtypes.float8_e5m2, 57344)]:
        x = f(-1e9, 1, 1.0625, 1.1875, INF)  # the middle of two neighbours goes to the even one
        expected = np.array([-largest, 1, 1.0625, 1.1875, largest], F).astype(dtype)
        check("QuantizeLinear", [x * 2, one(2), one(0, dtype)], 19, expected=expected)
        with pytest.raises(NotFoldable):
            folded("QuantizeLinear", [x, one(1), one(0, dtype)], 19, saturate=0)
        with pytest.raises(NotFoldable):
            folded("QuantizeLinear", [x, one(1), one(1, dtype)], 19)
    with pytest.raises(NotFoldable):
        folded("QuantizeLinear", [X, one(1), one(0, ml_dtypes.float4_e2m1fn)], 23)


def test_quantize_short_floats():
    x = np.array([2.5, -1.5, 3.25, 1000], np.float16)
    check("QuantizeLinear", [x, one(0.5, "float16"), one(3, "uint8")], 21)
    with pytest.raises(NotFoldable):  # 143.47 is 143.5 in float16, and that is 144
        folded("QuantizeLinear", [np.array([364], np.float16), one(2.537109375, "float16")], 21)
    # By hand: onnxruntime has no bfloat16.
    check("QuantizeLinear", [np.array([5, 7], B16), one(2, B16)], 21, expected=np.array([2, 4], np.uint8))
    with pytest.raises(NotFoldable):
        folded("QuantizeLinear", [X, one(1)], 23, precision=TensorProto.FLOAT16)
    check(
        "QuantizeLinear", [X, one(2)], 23, expected=folded("QuantizeLinear", [X, one(2)], 21)[0], precision=1
    )
    check_fails("QuantizeLinear", [X, one(1), one(0, "int8")], 21, output_dtype=TensorProto.UINT8)


# ---- DequantizeLinear --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_dequantize(version):
    for dtype in ("uint8", "int8"):
        x = np.array([[0, 1, 127], [100, 3, 5]], dtype)
        check("DequantizeLinear", [x, one(0.1)], version)
        check("DequantizeLinear", [x, one(-0.1), one(3, dtype)], version)
        check("DequantizeLinear", [x, one(INF), one(100, dtype)], version)
        check("DequantizeLinear", [x[:0], one(1), one(3, dtype)], version)
        if version >= 13:
            check("DequantizeLinear", [x, ROWS, np.array([1, 9], dtype)], version, axis=0)
            check("DequantizeLinear", [x, f(1, 2, 3)], version, axis=-1)
        check_fails("DequantizeLinear", [x, f(1, 2, 3, 4)], version)
    check("DequantizeLinear", [np.array([2**31 - 1, -(2**24) - 1], np.int32), one(0.1)], version)
    with pytest.raises(NotFoldable):
        folded("DequantizeLinear", [np.array([5], np.int32), one(0.1), one(1, "int32")], version)


def test_dequantize_others():
    for dtype in ("uint16", "int16"):
        check("DequantizeLinear", [np.array([0, 100, 2**15 - 1], dtype), one(0.1), one(3, dtype)], 21)
    for dtype in ("uint8", "int8"):
        check("DequantizeLinear", [np.array([0, 100], dtype), one(0.1, "float16"), one(3, dtype)], 21)
    with pytest.raises(NotFoldable):  # more than float16 has digits for
        folded("DequantizeLinear", [np.array([4097], np.int32), one(1, "float16")], 21)
    with pytest.raises(NotFoldable):
        folded("DequantizeLinear", [np.array([5], np.uint8), one(1)], 23, output_dtype=TensorProto.FLOAT16)
    # By hand: tensors of these types do not get into onnxruntime as arrays.
    for dtype in (ml_dtypes.int4, ml_dtypes.int2):
        version = 21 if dtype == ml_dtypes.int4 else 25
        x = np.array([-2, 0, 1], dtype)
        check("DequantizeLinear", [x, one(0.5), one(1, dtype)], version, expected=f(-1.5, -0.5, 0))
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz):
        x = f(-2, 0, 1.5, NAN).astype(dtype)
        check("DequantizeLinear", [x, one(0.5)], 19, expected=f(-1, 0, 0.75, NAN))
    x, expected = np.array([3, 5], np.uint8), np.array([0.75, 1.25], B16)
    check("DequantizeLinear", [x, one(0.25, B16)], 21, expected=expected)


def test_dynamic():
    for values in ((1, 2, 3), (-1, 2.5, -3), (-5, -6), (0, 255), (1e-3, 5), (7,)):
        check("DynamicQuantizeLinear", [f(*values)], 11, outputs=3)
    check("DynamicQuantizeLinear", [one(-3)], 11, outputs=3)
    for values in ((0, 0), (), (NAN, 1), (INF, 1), (3e38, -3e38)):
        with pytest.raises(NotFoldable):
            folded("DynamicQuantizeLinear", [f(*values)], 11, 3)


# ---- products ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [10, 21])
def test_qlinear_matmul(version):
    for a, b, y in [("uint8", "uint8", "uint8"), ("int8", "int8", "int8"), ("uint8", "int8", "uint8")]:
        x, w = np.array([[1, 100, 7], [3, 4, 0]], a), np.array([[3, 1], [4, 2], [127, 0]], b)
        scales = one(0.13), one(0.07), one(0.3)
        zeros = one(3, a), one(5, b), one(9, y)
        inputs = [x, scales[0], zeros[0], w, scales[1], zeros[1], scales[2], zeros[2]]
        check("QLinearMatMul", inputs, version)
        inputs[4:6] = f(0.07, 0.2), np.array([5, 6], b)
        check("QLinearMatMul", inputs, version)
        inputs[6] = one(1e-9)
        check("QLinearMatMul", inputs, version)
        inputs[7] = np.array([1, 2], y)
        with pytest.raises(NotFoldable):
            folded("QLinearMatMul", inputs, version)
    half = [one([[1]], "uint8"), one(0.5), one(0, "uint8"), one([[1]], "uint8"), one(1), one(0, "uint8")]
    with pytest.raises(NotFoldable):
        folded("QLinearMatMul", [*half, one(1), one(0, "uint8")], version)
    check("QLinearMatMul", [*half, one(0.5), one(0, "uint8")], version)


def test_conv_integer():
    x = np.arange(32, dtype=np.uint8).reshape(1, 2, 4, 4)
    w = (np.arange(24).reshape(3, 2, 2, 2) % 7).astype(np.uint8)
    check("ConvInteger", [x, w], 10)
    check("ConvInteger", [x, w, one(3, "uint8")], 10, pads=[1, 1, 0, 1])
    check("ConvInteger", [x, w, one(3, "uint8"), one(2, "uint8")], 10, strides=[2, 1])
    each = (w.astype(np.int32) - np.array([1, 2, 3]).reshape(3, 1, 1, 1)).astype(np.float64)
    expected = folded("Conv", [x.astype(np.float64), each], 11)[0].astype(np.int32)
    # By hand: onnxruntime refuses a zero point for each channel.
    check("ConvInteger", [x, w, None, np.array([1, 2, 3], np.uint8)], 10, expected=expected)
    check_fails("ConvInteger", [x, w, np.array([1, 2], np.uint8)], 10)


def test_qlinear_conv():
    x = np.arange(32, dtype=np.uint8).reshape(1, 2, 4, 4)
    w = (np.arange(24).reshape(3, 2, 2, 2) % 7).astype(np.uint8)
    zero = one(3, "uint8")
    inputs = [x, one(0.13), zero, w, one(0.07), zero, one(0.3), zero]
    check("QLinearConv", inputs, 10)
    check("QLinearConv", [*inputs, np.array([5, -3, 100], np.int32)], 10, pads=[1, 0, 1, 0])
    signed = w.astype(np.int8)
    each = [x, one(0.13), zero, signed, f(0.07, 0.2, 0.3), np.zeros(3, np.int8), one(0.3), zero]
    check("QLinearConv", each, 10)
