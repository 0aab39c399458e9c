"""DFT against NumPy's transforms, and onnxruntime where it is right."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import anydml

LENGTHS = [None, 1, 4, 5, 8, 11]


def model(opset, sizes, length, axis, **attributes):
    inputs, initializers = ["x"], []
    if length is not None:
        initializers.append(helper.make_tensor("length", TensorProto.INT64, [], [length]))
        inputs.append("length")
    if opset >= 20:
        inputs += [""] * (2 - len(inputs)) + ["axis"]
        initializers.append(helper.make_tensor("axis", TensorProto.INT64, [], [axis]))
    else:
        attributes["axis"] = axis
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * len(sizes))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("DFT", inputs, ["y"], **attributes)
    graph = helper.make_graph([node], "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def by_numpy(x, length, axis, inverse, onesided):
    numbers = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1].astype(np.float64)
    axis %= x.ndim
    if inverse and onesided:
        return np.fft.irfft(numbers, length, axis)[..., None]
    found = (np.fft.ifft if inverse else np.fft.rfft if onesided else np.fft.fft)(numbers, length, axis)
    return np.stack([found.real, found.imag], -1)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("parts", "inverse", "onesided"),
    [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (1, 1, 0), (2, 1, 1)],
)
def test_dft(opset, axis, length, parts, inverse, onesided):
    x = np.random.default_rng(0).standard_normal((5, 6, parts)).astype(np.float32)
    made = model(opset, x.shape, length, axis, inverse=inverse, onesided=onesided)
    session = anydml.load(made)
    wanted = by_numpy(x, length, axis, inverse, onesided)
    for _ in range(3):
        (y,) = session.run(None, {"x": x})
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)
    if inverse and onesided:  # of which onnxruntime gives half of the complex numbers
        return
    options = ort.SessionOptions()
    options.log_severity_level = 4
    theirs = ort.InferenceSession(made.SerializeToString(), options).run(None, {"x": x})[0]
    np.testing.assert_allclose(y, theirs, rtol=1e-4, atol=1e-4)


def test_what_is_no_transform():
    x = np.ones((2, 4, 3), np.float32)
    with pytest.raises(anydml.AnyDMLError):
        anydml.load(model(20, x.shape, None, -2)).run(None, {"x": x})
    with pytest.raises(anydml.AnyDMLError):
        anydml.load(model(20, (2, 4, 1), None, 2)).run(None, {"x": np.ones((2, 4, 1), np.float32)})
