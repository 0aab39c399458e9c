"""Softmax along another axis than the last, which onnxruntime turns tensors for, runs in kernels of ours."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydml

RNG = np.random.default_rng(0)
TYPES = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def model(op, dtype, shape, axis, opset=17):
    """Softmax of a convolution."""
    w = numpy_helper.from_array((RNG.standard_normal((3, 3, 1, 1)) * 2).astype(dtype), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node(op, ["c"], ["y"], axis=axis)]
    x = helper.make_tensor_value_info("x", TYPES[dtype], shape)
    y = helper.make_tensor_value_info("y", TYPES[dtype], ["a", "b", "c", "d"])
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return made.SerializeToString()


def unoptimised(file, x):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})


def by_kernels(session, op):
    return f"kernels: {op}" in session.explain()


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, -3])
@pytest.mark.parametrize("threads", [1, 2])
def test_as_onnxruntime(op, axis, threads):
    """Also where sizes vary, which a library computes."""
    varied = model(op, "float32", ["n", 3, "h", "w"], axis)
    open_session = anydml.load(varied, threads=threads)
    for sizes in ((2, 3, 65, 70), (3, 3, 40, 129), (1, 3, 200, 31)):
        file = model(op, "float32", sizes, axis)
        session = anydml.load(file, threads=threads)
        x = (RNG.standard_normal(sizes) * 5).astype(np.float32)
        for one, made in ((session, file), (session, file), (open_session, varied)):
            np.testing.assert_allclose(
                one.run(None, {"x": x})[0], unoptimised(made, x)[0], rtol=2e-5, atol=1e-5
            )
        assert by_kernels(session, op)


def test_the_last_axes_stay_with_the_library():
    """Along the last one it is as fast; an axis next to it is turned quickly."""
    for axis in (3, -1, 2):
        session = anydml.load(model("Softmax", "float32", [1, 3, 40, 40], axis))
        session.run(None, {"x": np.zeros((1, 3, 40, 40), np.float32)})
        assert not by_kernels(session, "Softmax")


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_odd_numbers(odd):
    file = model("Softmax", "float32", [1, 3, 80, 80], 1)
    x = RNG.standard_normal((1, 3, 80, 80)).astype(np.float32)
    x[0, 1, 3, 5] = odd
    session = anydml.load(file)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], unoptimised(file, x)[0], rtol=2e-5, atol=1e-5)
    assert by_kernels(session, "Softmax")


def test_nothing():
    session = anydml.load(model("Softmax", "float32", ["n", 3, "h", "w"], 1))
    for sizes in ((1, 3, 80, 80), (0, 3, 80, 80)):
        assert session.run(None, {"x": np.zeros(sizes, np.float32)})[0].shape == sizes


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1])
def test_nothing_at_all(op, axis):
    """Of each axis, alone in the model."""
    node = helper.make_node(op, ["x"], ["y"], axis=axis)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["a", "b", "c"]) for n in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for native in (None, False):
        session = anydml.load(made.SerializeToString(), native=native)
        for sizes in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (2, 3, 4), (0, 0, 0)):
            got = session.run(None, {"x": np.zeros(sizes, np.float32)})[0]
            assert got.shape == sizes
            assert np.isfinite(got).all()


def test_half():
    file = model("LogSoftmax", "float16", [1, 3, 80, 80], 1)
    x = RNG.standard_normal((1, 3, 80, 80)).astype(np.float16)
    (got,), (wanted,) = anydml.load(file).run(None, {"x": x}), unoptimised(file, x)
    assert got.dtype == wanted.dtype == np.float16
    np.testing.assert_allclose(got, wanted, rtol=5e-3, atol=5e-3)


def test_older_opsets_are_about_all_axes_from_one_on():
    file = model("Softmax", "float32", [1, 3, 80, 80], 1, opset=12)
    x = RNG.standard_normal((1, 3, 80, 80)).astype(np.float32)
    np.testing.assert_allclose(anydml.load(file).run(None, {"x": x})[0], unoptimised(file, x)[0], rtol=1e-5)
