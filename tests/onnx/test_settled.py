"""What is computed from weights alone is computed once: weights that a file holds in fewer bits."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydml as dml
from anydml.onnx.execute.cost_model import seconds_saved
from anydml.onnx.rewrites.fold_weights import settled
from anydml.onnx.serde.deserialize import read

rng = np.random.default_rng(3)


def quantized_layers(layers, width, condition=False):
    """Products whose weights are 8-bit integers, made floats by Cast and Mul."""
    nodes, weights, x = [], [], "x"
    if condition:
        nodes += [
            helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
            helper.make_node("Cast", ["most"], ["c"], to=TensorProto.BOOL),
        ]
        branches = {
            name: helper.make_graph(
                [helper.make_node(op, ["x"], [name])],
                name,
                [],
                [helper.make_tensor_value_info(name, 1, ["n", width])],
            )
            for name, op in (("then_branch", "Neg"), ("else_branch", "Abs"))
        }
        nodes.append(helper.make_node("If", ["c"], ["first"], **branches))
        x = "first"
    for k in range(layers):
        w = rng.integers(-127, 128, (width, width), dtype=np.int8)
        scale = rng.uniform(1e-4, 1e-3, (1, width)).astype(np.float32)
        weights += [numpy_helper.from_array(w, f"w{k}"), numpy_helper.from_array(scale, f"s{k}")]
        nodes += [
            helper.make_node("Cast", [f"w{k}"], [f"c{k}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"c{k}", f"s{k}"], [f"f{k}"]),
            helper.make_node("MatMul", [x, f"f{k}"], [f"y{k}"]),
        ]
        x = f"y{k}"
    ends = [helper.make_tensor_value_info(name, 1, ["n", width]) for name in ("x", x)]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def same(model, session, rows):
    theirs = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for n in rows:
        feed = {"x": rng.standard_normal((n, int(session.get_inputs()[0].shape[1]))).astype(np.float32)}
        (own,), (wanted,) = session.run(None, feed), theirs.run(None, feed)
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("width", [64, 384])
def test_weights_are_made_floats_by_the_library_that_reads_them(width):
    """By kernels it would be in each run."""
    model = quantized_layers(12, width)
    session = dml.load(model, native=False)
    same(model, session, (4, 5, 4, 6, 7))
    assert "kernels" not in session.explain()


def test_programs_have_the_floats():
    model = quantized_layers(2, 32, condition=True)
    session = dml.load(model)
    same(model, session, (4, 4, 5))
    assert "program" in session.explain()
    assert "Mul," not in session.explain().replace("MatMul,", "")


def test_what_is_settled():
    graph = read(quantized_layers(1, 8)).graph
    assert [n.op.name for n in settled(graph)] == ["Cast", "Mul"]
    group = [n for n in graph.nodes if n.op.name != "MatMul"]
    assert seconds_saved(group, settled=settled(graph)) < 0


def test_what_is_drawn_is_not_settled():
    graph = helper.make_graph(
        [helper.make_node("RandomNormalLike", ["w"], ["r"]), helper.make_node("Add", ["r", "x"], ["y"])],
        "drawn",
        [helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
        [numpy_helper.from_array(np.ones(3, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert not settled(read(model).graph)
