"""Pools with ceil_mode: how many windows there are is the same before and after, and what inference says."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import anydml

POOLS = {"MaxPool": 12, "AveragePool": 10, "LpPool": 18}


def model(op, opset, attributes, size, static):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, size if static else "n"])
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", "c"]),
        helper.make_tensor_value_info("s", TensorProto.INT64, [3]),
    ]
    nodes = [helper.make_node(op, ["x"], ["y"], **attributes), helper.make_node("Shape", ["y"], ["s"])]
    graph = helper.make_graph(nodes, "m", [x], outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def plainly(proto, x):
    options = ort.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, ort.GraphOptimizationLevel(0)
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})


@pytest.mark.parametrize("op", POOLS)
def test_windows_that_would_begin_in_the_padding(op):
    rng = np.random.default_rng(0)
    ran = changed = 0
    for _ in range(80):
        kernel, stride, size = (int(rng.integers(1, k)) for k in (5, 5, 9))
        pads = [int(n) for n in rng.integers(0, kernel, 2)]
        attributes = {"kernel_shape": [kernel], "strides": [stride], "pads": pads, "ceil_mode": 1}
        if op == "MaxPool" and rng.random() < 0.3:
            attributes["dilations"] = [2]
        if op == "AveragePool" and rng.random() < 0.3:
            attributes["count_include_pad"] = 1
        x = rng.standard_normal((1, 2, size)).astype(np.float32)
        try:
            right = plainly(model(op, POOLS[op], attributes, size, False), x)
        except Exception:  # no window at all
            continue
        ran += 1
        proto = model(op, POOLS[op], attributes, size, True)
        inferred = onnx.shape_inference.infer_shapes(proto).graph.output[0].type.tensor_type.shape.dim[2]
        for static in (True, False):
            built = model(op, POOLS[op], attributes, size, static)
            found = anydml.load(built, threads=1).run(None, {"x": x})
            flat, _ = anydml.flatten(built, shapes={"x": (1, 2, size)}, verify=False)
            for y, s in (found, anydml.load(flat).run(None, {"x": x})):
                np.testing.assert_allclose(y, right[0], rtol=1e-5)
                np.testing.assert_array_equal(s, right[0].shape)
        changed += inferred.dim_value not in (0, right[0].shape[2])
    assert ran > 40
    assert changed or op == "LpPool"
