"""MeanVarianceNormalization of what is the same number everywhere: 0, and no 0 / 0."""

import numpy as np
import pytest
from onnx import parser

import anydml as dml


def model(body, sizes, dtype="float", opset=17):
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": {opset}]> m ({dtype}[{sizes}] x, bool c) => ({dtype}[{sizes}] y) {{
            {body} }}"""
    )


def feed(shape, dtype=np.float32):
    """Planes of one number, and others."""
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x[0, 0], x[-1, -1], x[0, 1] = 0, 0.1, 3000
    return x


def wanted(x, axes):
    wide = x.astype(np.longdouble)
    apart = wide - wide.mean(tuple(axes), keepdims=True)
    return apart / (np.sqrt(np.square(apart).mean(tuple(axes), keepdims=True)) + 1e-9)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("sizes", ["2,3,5,7", "n,c,h,w"])
@pytest.mark.parametrize("axes", [[2, 3], [-1, 2], [0, 2, 3], [3]])
@pytest.mark.parametrize("opset", [9, 13, 17, 18, 21])
def test_planes_of_one_number(native, sizes, axes, opset):
    body = f"a = Neg (x)  b = Neg (a)  y = MeanVarianceNormalization <axes = {axes}> (b)"
    if opset < 13 and min(axes) < 0:
        axes = [a % 4 for a in axes]
        body = f"a = Neg (x)  b = Neg (a)  y = MeanVarianceNormalization <axes = {axes}> (b)"
    x = feed((2, 3, 5, 7))
    session = dml.load(model(body, sizes, opset=opset), native=native)
    for _ in range(2):
        (y,) = session.run(None, {"x": x, "c": np.array(True)})
        np.testing.assert_allclose(y, wanted(x, axes), rtol=2e-5, atol=2e-6)


def test_doubles():
    x = feed((2, 3, 5, 7), np.float64)
    session = dml.load(model("y = MeanVarianceNormalization <axes = [2, 3]> (x)", "2,3,5,7", "double"))
    (y,) = session.run(None, {"x": x, "c": np.array(True)})
    np.testing.assert_allclose(y, wanted(x, [2, 3]), rtol=1e-10, atol=1e-10)


def test_in_a_branch_of_the_librarys():
    """Whichever way the model goes; and a file that is verified has the same results."""
    body = """s = ReduceSum <keepdims = 0> (x)  z = Constant <value_float = 0.0> ()  t = Greater (s, z)
        y = If (t) <then_branch = p () => (float[n,c,h,w] u) { u = MeanVarianceNormalization <axes = [2, 3]> (x) },
                    else_branch = q () => (float[n,c,h,w] v) { v = Softmax (x) }>"""
    built = model(body, "n,c,h,w")
    x = feed((2, 3, 5, 7))
    (y,) = dml.load(built, native=False).run(None, {"x": x, "c": np.array(True)})
    np.testing.assert_allclose(y, wanted(x, [2, 3]), rtol=2e-5, atol=2e-6)
    _, report = dml.flatten(built, convert="always")
    assert report.verified.agreed > 0
