"""Weights of few bits go to onnxruntime as they are."""

import ml_dtypes
import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

import anydml

OPSET_21 = '<ir_version: 10, opset_import: ["" : 21]> main '
BEFORE = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> main '


def model(text, **weights):
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return made.SerializeToString()


def weights(dtype, blocks):
    draws = np.random.default_rng(0)
    low, high = (0, 16) if dtype is ml_dtypes.uint4 else (-8, 8)
    sizes = (4, 96) if blocks else (96,)
    zeros = np.ones(sizes) if dtype not in FLOATS else np.zeros(sizes)
    return {
        "q": draws.integers(low, high, (64, 96)).astype(dtype),
        "s": draws.uniform(0.1, 1, sizes).astype(np.float32),
        "z": zeros.astype(dtype),
    }


FLOATS = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
DTYPES = (ml_dtypes.int4, ml_dtypes.uint4, np.int8, np.uint8, *FLOATS)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_with_them(dtype, blocks):
    size = ", block_size = 16" if blocks else ""
    axis = 0 if blocks else 1
    text = f"""{OPSET_21} (float[n,64] x) => (float[n,96] y, float[n,5] g) {{
        w = DequantizeLinear <axis = {axis}{size}> (q, s, z)  y = MatMul (x, w)
        g0 = Slice (y, zero, five, last)  g = Relu (g0) }}"""
    given = weights(dtype, blocks)
    data = model(text, **given, zero=np.array([0]), five=np.array([5]), last=np.array([1]))
    session = anydml.load(data)
    scale = np.repeat(given["s"], 16, axis=0) if blocks else given["s"]
    zero = np.repeat(given["z"], 16, axis=0) if blocks else given["z"]
    exact = (given["q"].astype(np.float64) - zero.astype(np.float64)) * scale.astype(np.float64)
    for n in (1, 3, 2, 7):
        x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
        y, g = session.run(None, {"x": x})
        wanted = x.astype(np.float64) @ exact  # its products round the other factor to 8 bits
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=0.02 * abs(wanted).max())
        np.testing.assert_array_equal(g, np.maximum(y[:, :5], 0))
    assert "NumPy" not in session.explain()


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("count", "axis"), [(3, 0), (7, 1), (1, 0), (8, 1)])
def test_every_element_of_an_odd_number(dtype, count, axis):
    text = f"{OPSET_21} (float x) => (float[k,j] y) {{ w = DequantizeLinear <axis = {axis}> (q, s)  y = Mul (w, x) }}"
    rows = 3
    q = (np.arange(rows * count).reshape(rows, count) % 8).astype(dtype)
    s = np.linspace(0.5, 2, q.shape[axis]).astype(np.float32)
    data, feed = model(text, q=q, s=s), {"x": np.float32(2)}
    (expected,) = ReferenceEvaluator(onnx.load_from_string(data)).run(None, feed)
    np.testing.assert_array_equal(anydml.load(data, native=False).run(None, feed)[0], expected)


def test_operators_of_onnxruntimes_own_that_read_them():
    text = f"""{BEFORE} (float[n,4] x) => (float[n,4] y) {{
        w = com.microsoft.DequantizeLinear (q, s, z)  y = Mul (x, w) }}"""
    q = np.array([-8, 7, 3, -1]).astype(ml_dtypes.int4)
    session = anydml.load(model(text, q=q, s=np.float32(0.5), z=np.array(1).astype(ml_dtypes.int4)))
    for n in (2, 1, 5):
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * np.float32([-4.5, 3, 1, -1]))


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_weights_are_not_rounded_again(dtype):
    """Small ones are folded into floats, which onnxruntime rounds to 8 bits beside operands that were rounded."""
    text = f"""{OPSET_21} (float[n,3,4,4] x) => (float[n,8,4,4] y) {{
        xq = QuantizeLinear (x, xs, xz)  xd = DequantizeLinear (xq, xs, xz)  w = DequantizeLinear (q, s, z)
        c = Conv <kernel_shape = [1, 1]> (xd, w)
        cq = QuantizeLinear (c, ys, xz)  y = DequantizeLinear (cq, ys, xz) }}"""
    draws = np.random.default_rng(1)
    high = np.iinfo(dtype).max
    q = draws.integers(-high, high, (8, 3, 1, 1)).astype(dtype)
    steps = {"s": np.float32(0.7 / high), "xs": np.float32(0.02), "ys": np.float32(0.01)}
    session = anydml.load(model(text, q=q, **steps, z=dtype(0), xz=np.uint8(128)), native=False)
    for n in (1, 2, 3):
        x = draws.uniform(-1, 1, (n, 3, 4, 4)).astype(np.float32)
        rounded = (np.clip(np.rint(x / np.float32(0.02)) + 128, 0, 255) - 128) * 0.02
        exact = np.einsum("ncij,oc->noij", rounded, q[:, :, 0, 0] * (0.7 / high))
        (y,) = session.run(None, {"x": x})
        np.testing.assert_allclose(y, np.clip(exact, -1.28, 1.27), atol=0.0051)
