"""Maps: what classifiers give, a dictionary for each row, and what vectorisers of dictionaries take."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import anydml
from anydml.onnx.closeness import Tolerance, same

MAP = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, ()))


def model(nodes, inputs, outputs):
    graph = helper.make_graph(nodes, "main", inputs, outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def zip_map():
    return helper.make_node("ZipMap", ["p"], ["z"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"])


def classifier():
    rows = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    gives = helper.make_value_info("z", helper.make_sequence_type_proto(MAP))
    return model([helper.make_node("Softmax", ["x"], ["p"]), zip_map()], [rows], [gives])


def vectoriser(classify=False):
    node = helper.make_node("DictVectorizer", ["m"], ["v"], domain="ai.onnx.ml", string_vocabulary=["b", "a"])
    nodes = [node, helper.make_node("Neg", ["v"], ["p"])]
    out = helper.make_tensor_value_info("p", TensorProto.FLOAT, None)
    if classify:
        nodes, out = [*nodes, zip_map()], helper.make_value_info("z", helper.make_sequence_type_proto(MAP))
    return model(nodes, [helper.make_value_info("m", MAP)], [out])


def theirs(data):
    return ort.InferenceSession(data, providers=["CPUExecutionProvider"])


ROWS = [{"x": np.random.default_rng(n).standard_normal((n, 2)).astype(np.float32)} for n in (1, 3, 2, 5)]
FED = [{"m": {"a": 1.5, "b": 2.0}}, {"m": {"a": -1.0}}, {"m": {"b": 3.0, "c": 9.0}}]


@pytest.mark.parametrize(
    ("data", "feeds"), [(classifier(), ROWS), (vectoriser(), FED), (vectoriser(classify=True), FED)]
)
def test_what_onnxruntime_gives(data, feeds):
    session, other = anydml.load(data), theirs(data)
    for one, two in (
        (session.get_inputs(), other.get_inputs()),
        (session.get_outputs(), other.get_outputs()),
    ):
        assert [(a.name, a.type) for a in one] == [(a.name, a.type) for a in two]
    for feed in feeds:
        (ours,), (expected,) = session.run(None, feed), other.run(None, feed)
        assert type(ours) is type(expected)
        if isinstance(expected, np.ndarray):
            assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(ours, expected)
        else:
            assert [list(row) for row in ours] == [list(row) for row in expected]
            np.testing.assert_allclose(
                [list(row.values()) for row in ours], [list(row.values()) for row in expected], rtol=1e-5
            )
    assert "onnx.reference" not in session.explain()


@pytest.mark.parametrize("data", [classifier(), vectoriser(), vectoriser(classify=True)])
def test_files_with_maps_are_flattened_and_verified(data):
    flat, report = anydml.flatten(data)
    assert report.verified is not None
    assert report.verified.agreed >= 3
    assert [n.op_type for n in flat.graph.node] == [n.op_type for n in onnx.load_from_string(data).graph.node]


def test_something_else_than_a_dictionary():
    with pytest.raises(
        anydml.InvalidInput, match=r"expected a dictionary, for map\(string,tensor\(float\)\), but"
    ):
        anydml.load(vectoriser()).run(None, {"m": np.zeros(2, np.float32)})


def test_dictionaries_are_compared_by_their_values():
    assert same([{1: np.nan, 2: 0.5}], [{1: np.nan, 2: 0.5 + 1e-7}], Tolerance())
    assert not same({1: 0.5}, {1: 0.6}, Tolerance())
    assert not same({1: 0.5}, {2: 0.5}, Tolerance())
    assert not same({1: 0.5}, [0.5], Tolerance())


def test_complex_numbers_are_compared_as_floats_are():
    x = np.array([1 + 2j, complex(np.nan, 1), complex(np.inf, 0)], np.complex64)
    assert same(x, x.copy(), Tolerance())
    assert not same(x, x + np.complex64(0.1j), Tolerance())
