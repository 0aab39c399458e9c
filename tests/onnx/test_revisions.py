"""Nodes at other opsets than their own, for a library that has them only there."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

import anydml as dml
from anydml.ir.graph import Node
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.ops.revisions import alike, others
from anydml.onnx.providers.onnxruntime import DTYPES
from anydml.onnx.serde.deserialize import read
from anydml.onnx.types import DTYPES as NAMES


def model_of(node, opset, types, **shapes):
    """A model of one node; inputs as `name=(type, shape)`."""
    inputs = [helper.make_tensor_value_info(n, t, s) for n, (t, s) in shapes.items()]
    outputs = [helper.make_tensor_value_info(n, t, None) for n, t in zip(node.output, types, strict=True)]
    graph = helper.make_graph([node], "m", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node_of(model):
    (node,) = read(model).graph.nodes
    return node


@pytest.mark.filterwarnings("ignore")
def test_the_suite_at_other_opsets():
    """Whatever onnxruntime computes for a node of the suite at an opset that is said to be alike is right."""
    compared, kinds = 0, set()
    for case in load_model_tests(kind="node"):
        model = case.model
        inputs = model.graph.input
        if len(model.graph.node) != 1 or not inputs or not all(map(tensor_that_passes, inputs)):
            continue
        node = node_of(model)
        if (
            not isinstance(node, Node)
            or quirk_of(node, {})
            or not all(map(tensor_that_passes, model.graph.output))
        ):
            continue
        for opset in others(node):
            older = onnx.ModelProto(ir_version=min(model.ir_version, 10), graph=model.graph)
            older.opset_import.append(helper.make_opsetid("", opset))
            options = ort.SessionOptions()
            options.log_severity_level = 4
            try:
                session = ort.InferenceSession(older.SerializeToString(), options)
            except Exception:  # it has no such kernel
                continue
            for inputs, wanted in case.data_sets:
                names = [i.name for i in session.get_inputs()]
                results = session.run(None, dict(zip(names, map(array_of, inputs), strict=True)))
                compared += 1
                kinds.add(node.op.name)
                for got, want in zip(results, map(array_of, wanted), strict=True):
                    if want.dtype.kind in "OU":
                        assert got.tolist() == want.tolist(), (case.name, opset)
                    else:
                        np.testing.assert_allclose(got, want, case.rtol, case.atol, err_msg=case.name)
    assert compared > 900
    assert len(kinds) > 90


def array_of(content):
    return numpy_helper.to_array(content) if isinstance(content, TensorProto) else np.asarray(content)


def tensor_that_passes(info):
    return info.type.HasField("tensor_type") and NAMES[info.type.tensor_type.elem_type] in DTYPES


def test_an_operator_that_onnxruntime_has_at_an_older_opset_only():
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    node = helper.make_node("GlobalLpPool", ["x"], ["y"], p=1)
    session = dml.load(model_of(node, 22, [TensorProto.FLOAT], x=(TensorProto.FLOAT, [1, 2, "h", "w"])))
    assert session.run(None, {"x": x})[0].reshape(-1).tolist() == [66, 210]
    assert "onnxruntime: GlobalLpPool" in session.explain()


@pytest.mark.parametrize("opset", [1, 4, 7, 22])
def test_average_pools_of_all_ages(opset):
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    node = helper.make_node(
        "AveragePool", ["x"], ["y"], kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    session = dml.load(model_of(node, opset, [TensorProto.FLOAT], x=(TensorProto.FLOAT, x.shape)))
    (y,) = session.run(None, {"x": x})
    assert y.reshape(3, 3).tolist() == [[0, 1.5, 3], [6, 7.5, 9], [12, 13.5, 15]]
    assert "onnxruntime: AveragePool" in session.explain()


def test_what_has_changed_is_not_alike():
    def alike_at(node, opset, other):
        shapes = {n: (TensorProto.FLOAT, [2, 3]) for n in node.input}
        return alike(node_of(model_of(node, opset, [TensorProto.FLOAT] * len(node.output), **shapes)), other)

    softmax, add, mod = (
        helper.make_node(op, ["a", "b"][:k], ["y"]) for op, k in (("Softmax", 1), ("Add", 2), ("Mod", 2))
    )
    assert not alike_at(softmax, 13, 12)  # the default axis
    assert alike_at(add, 14, 13)
    assert alike_at(add, 13, 7)
    assert not alike_at(add, 7, 6)  # broadcasting by an attribute
    assert not alike_at(mod, onnx.defs.onnx_opset_version(), 12)
    assert not alike_at(helper.make_node("Gelu", ["a"], ["y"]), 20, 19)  # there is none


def test_lengths_that_inference_takes_for_zero():
    """Resize of some axes by sizes that are given when it runs."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", axes=[2, 3])
    model = model_of(
        node, 19, [TensorProto.FLOAT], x=(TensorProto.FLOAT, [1, 1, 2, 2]), sizes=(TensorProto.INT64, [2])
    )
    session = dml.load(model)
    x = np.float32([[[[1, 2], [3, 4]]]])
    (y,) = session.run(None, {"x": x, "sizes": np.int64([4, 2])})
    assert y[0, 0].tolist() == [[1, 2], [1, 2], [3, 4], [3, 4]]
    assert "onnxruntime: Resize" in session.explain()


def test_a_range_of_vectors_of_one():
    """ONNX wants scalars, onnxruntime takes them; what follows is run by it all the same."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        m (float[n] x) => (float[k] y) <int64[1] start = {0}, int64[1] step = {2}> {
            n = Shape (x)
            r = Range (start, n, step)
            f = Cast <to = 1> (r)
            y = CumSum (f, axis)
        }"""
    )
    model.graph.initializer.append(helper.make_tensor("axis", TensorProto.INT64, [], [0]))
    session = dml.load(model)
    assert session.run(None, {"x": np.zeros(7, np.float32)})[0].tolist() == [0, 2, 6, 12]
    assert "onnx.reference: Cast" not in session.explain()


@pytest.mark.parametrize("opset", [15, 22])
def test_bernoulli_draws_ones_with_the_probabilities_given(opset):
    node = helper.make_node("Bernoulli", ["p"], ["y"], seed=1.0)
    session = dml.load(model_of(node, opset, [TensorProto.FLOAT], p=(TensorProto.FLOAT, ["n"])))
    (y,) = session.run(None, {"p": np.full(4000, 0.2, np.float32)})
    assert 0.16 < y.mean() < 0.24
    session = dml.load(model_of(node, opset, [TensorProto.FLOAT], p=(TensorProto.FLOAT, [])))
    (y,) = session.run(None, {"p": np.array(1, np.float32)})
    assert (y.dtype, y.shape, y.item()) == (np.float32, (), 1)


def test_explain_says_why_no_faster_library_has_a_node():
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2])
    session = dml.load(model_of(node, 10, [TensorProto.DOUBLE], x=(TensorProto.DOUBLE, [1, 1, 4])))
    session.run(None, {"x": np.zeros((1, 1, 4))})
    model = model_of(node, 7, [TensorProto.DOUBLE], x=(TensorProto.DOUBLE, [1, 1, 4]))
    session = dml.load(model)
    assert session.run(None, {"x": np.float64([[[1, 3, 2, 0]]])})[0].tolist() == [[[3, 3, 2]]]
    assert "NumPy: MaxPool (Could not find an implementation for MaxPool(1))" in session.explain()


def test_what_is_slow_and_could_be_faster_is_logged_and_not_printed(caplog, capsys):
    model = model_of(
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2]),
        7,
        [TensorProto.DOUBLE],
        x=(TensorProto.DOUBLE, [1, 1, 4]),
    )
    with caplog.at_level("WARNING", "anydml.session"):
        dml.load(model).run(None, {"x": np.zeros((1, 1, 4))})
    (record,) = caplog.records
    assert "onnxruntime does not run MaxPool, and what does is slow" in record.getMessage()
    assert not any(capsys.readouterr())


def test_inputs_of_types_that_an_operator_does_not_have():
    """An optional is no number of trips: nothing would end the loop."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        m (optional(int64) n, float[3] x) => (float[3] y) {
            y = Loop (n, "", x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1) {
                k1 = Identity (k)
                s1 = Add (s, x)
            }>
        }"""
    )
    x = np.zeros(3, np.float32)
    with pytest.raises(dml.InvalidModel, match=r"input M of Loop to be tensor\(int64\), but got optional"):
        dml.load(model).run(None, {"n": None, "x": x})
    with pytest.raises(dml.InvalidModel, match=r"input M of Loop to be tensor\(int64\), but got optional"):
        dml.flatten(model)


def test_an_eye_like_a_vector():
    node = helper.make_node("EyeLike", ["x"], ["y"])
    session = dml.load(model_of(node, 17, [TensorProto.FLOAT], x=(TensorProto.FLOAT, ["n"])))
    with pytest.raises(dml.InvalidModel, match="rank 2 of EyeLike, but got 1"):
        session.run(None, {"x": np.zeros(4, np.float32)})


@pytest.mark.parametrize("word", ["text", "bytes"])
def test_domains_that_are_no_text(word):
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "here": 1]> m (float[2] x) => (float[2] y) { y = Neg (x) }"""
    )
    data = model.SerializeToString().replace(b"here", b"h\xffre" if word == "bytes" else b"hare")
    if word == "text":
        dml.load(data)
    else:
        with pytest.raises(dml.InvalidModel, match="UTF-8"):
            dml.load(data)
