"""Inputs that are initializers, too: constants, until somebody feeds one."""

import pickle

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import anydml

X = np.float32([[1, -2, 3]])
W = np.float32([[1, 2], [3, 4], [5, 6]])


def made(condition: bool = False) -> onnx.ModelProto:
    """A product with a weight; behind an If on a bool that is there, too, where `condition`."""

    def graph(name, op):
        node = helper.make_node(op, ["h"], [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, 1, None)])

    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"])]
    last = helper.make_node("If", ["c"], ["y"], then_branch=graph("t", "Neg"), else_branch=graph("e", "Abs"))
    nodes.append(last if condition else helper.make_node("Neg", ["h"], ["y"]))
    inputs = [
        helper.make_tensor_value_info("x", 1, ["n", 3]),
        helper.make_tensor_value_info("w", 1, [3, "m"]),
        *([helper.make_tensor_value_info("c", 9, [])] if condition else []),
    ]
    weights = [numpy_helper.from_array(W, "w")]
    weights += [numpy_helper.from_array(np.array(True), "c")] if condition else []
    y = helper.make_tensor_value_info("y", 1, ["n", "m"])
    built = helper.make_graph(nodes, "g", inputs, [y], weights)
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def theirs(model, feed):
    return ort.InferenceSession(model.SerializeToString()).run(None, feed)[0]


FEEDS = [{"x": X}, {"x": X, "w": W * 2}, {"x": X, "w": np.ones((3, 5), np.float32)}, {"x": X}]


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("as_file", [False, True])
def test_they_may_be_fed(condition, as_file, tmp_path):
    """In any order, as onnxruntime takes them."""
    model, path = made(condition), tmp_path / "m.onnx"
    onnx.save(model, path)
    session = anydml.load(path if as_file else model)
    more = [{"x": X, "c": np.array(False)}, {"x": X, "c": np.array(False), "w": W}] if condition else []
    for feed in [*FEEDS, *more, *FEEDS]:
        np.testing.assert_allclose(session.run(None, feed)[0], theirs(model, feed))
        np.testing.assert_allclose(session.bind(feed).run()[0], theirs(model, feed))
    assert [i.name for i in session.get_inputs()] == ["x"]
    wanted = ["w", "c"] if condition else ["w"]
    assert [i.name for i in session.get_overridable_initializers()] == wanted
    again = pickle.loads(pickle.dumps(session))
    np.testing.assert_allclose(again.run(None, FEEDS[1])[0], theirs(model, FEEDS[1]))


def test_they_are_constants_otherwise():
    """So the If that one decides is gone, and a weight is none of what a plan is for."""
    session = anydml.load(made(condition=True))
    session.run(None, {"x": X})
    assert session.explain().startswith("plan for x float32[1,3]\n")
    assert "folded: node 'y' (If): the condition is true" in session.explain()
    session.run(None, {"x": X, "c": np.array(False)})
    assert "c = False" in session.explain()


def test_what_is_wrong_with_one_is_told():
    session = anydml.load(made())
    with pytest.raises(anydml.InvalidInput, match="input 'w': expected float32, but got int64"):
        session.run(None, {"x": X, "w": np.ones((3, 2), np.int64)})
    with pytest.raises(anydml.InvalidInput, match="but got 'ww'"):
        session.run(None, {"x": X, "ww": W})
    with pytest.raises(anydml.InvalidInput, match="it is missing"):
        session.run(None, {"w": W})


def test_a_file_that_changed_meanwhile(tmp_path):
    """It is read again when one is fed."""
    path = tmp_path / "m.onnx"
    onnx.save(made(), path)
    session = anydml.load(path)
    session.run(None, {"x": X})
    path.unlink()
    session.run(None, {"x": X})
    with pytest.raises(anydml.InvalidModel, match="changed or removed"):
        session.run(None, {"x": X, "w": W})


def test_a_message_that_changed_meanwhile():
    """The model is what it was when it was loaded."""
    model = made()
    session = anydml.load(model)
    wanted = theirs(model, FEEDS[1])
    model.graph.node[1].op_type = "Abs"
    np.testing.assert_allclose(session.run(None, FEEDS[1])[0], wanted)


def test_before_ir_4_they_are_constants():
    model = made()
    model.ir_version = 3
    session = anydml.load(model)
    assert not session.get_overridable_initializers()
    with pytest.raises(anydml.InvalidInput):
        session.run(None, {"x": X, "w": W})


def test_what_need_not_be_fed_is_fed_again_and_again():
    """As ndonnx does: kinds of feeds that were right before are not checked anew, others are."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[n] x, int64[1] s, int64[1] e) => (float[m] y)
        <int64[1] s = {0}, int64[1] e = {3}> { y = Slice (x, s, e) }"""
    )
    session, x = anydml.load(model), np.arange(8, dtype=np.float32)
    for k in range(5):
        (y,) = session.run(None, {"x": x, "s": np.array([1]), "e": np.array([k + 2])})
        assert y.tolist() == list(range(1, k + 2))
        (y,) = session.run(None, {"x": x})
        assert y.tolist() == [0, 1, 2]
    with pytest.raises(anydml.InvalidInput, match="expected int64, but got float32"):
        session.run(None, {"x": x, "s": np.array([1]), "e": np.float32([2])})
    with pytest.raises(anydml.InvalidInput, match="expected a name of an input"):
        session.run(None, {"x": x, "s": np.array([1]), "end": np.array([2])})
