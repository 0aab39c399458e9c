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


@pytest.mark.parametrize("sizes", [(4, 3), (2, 3, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("opset", [14, 15, 18])
@pytest.mark.parametrize("kept", ["y", "y, m, v"])
def test_training_leaves_weights_as_they_are(sizes, opset, kept):
    """The bias is the mean, and the scale the variance: onnxruntime's writes what runs on into them."""
    outputs = ", ".join(f"float[{'N,C' if name == 'y' else ''}] {name}" for name in kept.split(", "))
    outputs = outputs.replace("N,C", ",".join(map(str, sizes))).replace("[]", "[3]")
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    g (float[{",".join(map(str, sizes))}] x) => ({outputs}) <float[3] s = {{1.5, 2.0, 0.5}}, float[3] b = {{0.25, 0.5, 1.0}}> {{
        y, m, v = BatchNormalization <training_mode = 1, momentum = 0.75> (x, s, b, b, s)
    }}"""
    built = parser.parse_model(text)
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    axes = (0, *range(2, len(sizes)))
    by = (3, *[1] * (len(sizes) - 2))
    scale, bias = np.float32([1.5, 2, 0.5]), np.float32([0.25, 0.5, 1])
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    y = (x - mean) / np.sqrt(variance + 1e-5) * scale.reshape(by) + bias.reshape(by)
    expected = [y, 0.75 * bias + 0.25 * mean.ravel(), 0.75 * scale + 0.25 * variance.ravel()]
    for _ in range(2):
        session = dml.load(built)
        for _ in range(3):
            for made, right in zip(session.run(None, {"x": x}), expected, strict=False):
                np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-5, strict=True)
