"""Bodies of loops are graphs: read with what is around them, and written as other graphs are."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import anydml
from anydml.ir.graph import Body, Node
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.serde.deserialize import read

HEAD = '<ir_version: 8, opset_import: ["" : 16]>'


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


GROWING = """
main (float[3] x, int64 trips) => (float[n] y) {
  t = Constant <value = bool {1}> ()
  y = Loop <body = again (int64 k, bool go, float[3] state) => (bool go, float[m] longer) {
    longer = Concat <axis = 0> (state, x)
  }> (trips, t, x)
}
"""


def loop_of(text: str) -> tuple[Node, Body]:
    (node,) = read(model(text)).graph.nodes
    assert isinstance(node, Node)
    return node, node.bodies["body"]


def test_what_a_body_captures():
    node, body = loop_of(GROWING)
    x = node.inputs[2]
    assert body.inputs == (x,)
    assert [v.name for v in body.parameters] == ["k", "go", "state"]
    assert body.outputs[0] is body.parameters[1]
    assert set(node.reads) == {*node.inputs}


def test_a_state_that_grows_has_no_size():
    read_ = read(model(GROWING))
    (node,) = annotate_types(read_.graph, read_.opsets, OnnxRuntime()).nodes
    assert isinstance(node, Node)
    state = node.bodies["body"].parameters[2]
    assert state.rank == 1
    assert state.known_sizes is None


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_state_that_grows(trips):
    x = np.arange(3, dtype=np.float32)
    (y,) = anydml.load(model(GROWING)).run(None, {"x": x, "trips": np.array(trips)})
    assert np.array_equal(y, np.tile(x, trips + 1))


SHADOWING = """
main (float[2] x, int64 trips, bool c) => (float[2] z) {
  t = Constant <value = bool {1}> ()
  two = Constant <value = float {2}> ()
  y = Loop <body = again (int64 k, bool go, float[2] x) => (bool go, float[2] y) {
    y = If (c) <
      then_branch = a () => (float[2] p) { p = Mul(x, two) },
      else_branch = b () => (float[2] q) { two_ = Add(x, two)  q = Neg(two_) }>
  }> (trips, t, x)
  z = Add(x, y)
}
"""


@pytest.mark.parametrize("convert", ["never", "auto", "always"])
@pytest.mark.parametrize("c", [True, False])
def test_a_body_has_names_of_its_own(convert, c):
    flat, _ = anydml.flatten(model(SHADOWING), convert=convert)
    onnx.checker.check_model(flat, full_check=True)
    x = np.array([1, -3], np.float32)
    y = x
    for _ in range(3):
        y = y * 2 if c else -(y + 2)
    feeds = {"x": x, "trips": np.array(3), "c": np.array(c)}
    for each in (flat, model(SHADOWING)):
        assert np.array_equal(anydml.load(each).run(None, feeds)[0], x + y)


def test_captured_constants_stay_outside():
    flat, _ = anydml.flatten(model(SHADOWING), convert="never")
    (loop,) = (n for n in flat.graph.node if n.op_type == "Loop")
    assert "two" in {t.name for t in flat.graph.initializer}
    assert not loop.attribute[0].g.initializer


def test_parameters_are_returned_as_they_are():
    flat, _ = anydml.flatten(model(GROWING))
    (loop,) = (n for n in flat.graph.node if n.op_type == "Loop")
    assert [n.op_type for n in loop.attribute[0].g.node] == ["Concat"]


def test_what_is_declared_stays():
    flat, _ = anydml.flatten(model(GROWING))
    (loop,) = (n for n in flat.graph.node if n.op_type == "Loop")
    body = loop.attribute[0].g
    assert [d.dim_value for d in body.input[2].type.tensor_type.shape.dim] == [3]
    assert [d.dim_param for d in body.output[1].type.tensor_type.shape.dim] == ["m"]


def test_every_problem_of_a_body_is_told_at_once():
    wrong = GROWING.replace("Concat <axis = 0> (state, x)", "Concat (missing, x)")
    with pytest.raises(anydml.InvalidModel) as told:
        anydml.load(model(wrong))
    assert [(p.where, p.message) for p in told.value.problems] == [
        ("y/again/longer", "expected attribute axis of Concat, but it is missing"),
        ("y/again/longer", "expected inputs that are defined before, but got 'missing'"),
    ]


def test_a_list_of_graphs():
    proto = model(GROWING)
    attribute = next(n for n in proto.graph.node if n.op_type == "Loop").attribute.add()
    attribute.name, attribute.type = "more", onnx.AttributeProto.GRAPHS
    attribute.graphs.add(name="g")
    with pytest.raises(anydml.InvalidModel, match="expected single graphs, but attribute 'more' is a list"):
        anydml.load(proto)


def test_external_data_of_a_body(tmp_path):
    proto = model(GROWING.replace("(state, x)", "(state, w)"))
    body = next(n for n in proto.graph.node if n.op_type == "Loop").attribute[0].g
    (tmp_path / "data").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    tensor = body.initializer.add(name="w", data_type=1, dims=[3], data_location=onnx.TensorProto.EXTERNAL)
    for key, entry in (("location", "data"), ("offset", "4"), ("length", "12")):
        tensor.external_data.add(key=key, value=entry)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    flat = tmp_path / "flat.onnx"
    flat.write_bytes(anydml.flatten(tmp_path / "model.onnx")[0].SerializeToString())
    x = np.zeros(3, np.float32)
    for path in (tmp_path / "model.onnx", flat):
        (y,) = anydml.load(path).run(None, {"x": x, "trips": np.array(2)})
        assert y.tolist() == [0, 0, 0, 1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("fixed", [{}, {"trips": np.array([3])}])
@pytest.mark.parametrize("go", ["bool", "bool[1]"])
@pytest.mark.parametrize("k", ["int64", "int64[1]"])
def test_a_number_and_a_condition_of_one_element(k, go, fixed):
    """As some exporters declare them; onnxruntime then gives the body arrays of one element."""
    proto = model(f"""
        main (float[n] x, int64[1] trips) => (float[n] y, int64[a] rows, bool[b] gone) {{
          t = Constant <value = {go} {{1}}> ()
          y, rows, gone = Loop <body = again ({k} k, {go} go, float[m] state)
                             => ({go} still, float[m] next, int64[c] row, bool[d] went) {{
            f = Cast <to = 1> (k)  next = Add (state, f)  row = Identity (k)
            still = Identity (go)  went = Identity (go)
          }}> (trips, t, x) }}""")
    for output in proto.graph.output[1:]:
        output.type.tensor_type.ClearField("shape")
    for output in proto.graph.node[1].attribute[0].g.output[2:]:
        output.type.tensor_type.ClearField("shape")
    feeds = {"x": np.ones(2, np.float32), "trips": np.array([3])}
    want = ort.InferenceSession(proto.SerializeToString()).run(None, feeds)
    assert [len(w.shape) - 1 for w in want] == [0, k.count("["), go.count("[")]
    flat, _ = anydml.flatten(proto, fixed=fixed)
    left = {name: value for name, value in feeds.items() if name not in fixed}
    flatly = ort.InferenceSession(flat.SerializeToString()).run(None, left)
    for w, a, b in zip(want, anydml.load(proto).run(None, feeds), flatly, strict=True):
        np.testing.assert_array_equal(a, w, strict=True)
        np.testing.assert_array_equal(b, w, strict=True)


@pytest.mark.parametrize("opset", [11, 17])
def test_a_condition_of_one_element_for_a_body_that_says_nothing_of_its_rank(opset):
    """As OpenVINO's tests have it. onnxruntime asks for the rank of what the body reads."""
    proto = model("""
        main (bool[1] go, float[1, 2] x) => (float[1, 2] y, float[a, 1, 2] rows) <int64[1] trips = {9}, int64[1] last = {2}> {
          y, rows = Loop <body = again (int64[1] k, bool[] on, float[1, 2] state)
                       => (bool[] still, float[1, 2] next, float[1, 2] row) {
            next = Add (state, state)  still = Less (k, last)  row = Identity (next)
          }>  (trips, go, x) }""")
    proto.opset_import[0].version = opset
    body = proto.graph.node[0].attribute[0].g
    for value in (body.input[1], body.output[0]):
        value.type.tensor_type.ClearField("shape")
    feeds = {"go": np.array([True]), "x": np.ones((1, 2), np.float32)}
    want = ort.InferenceSession(proto.SerializeToString()).run(None, feeds)
    session = anydml.load(proto, native=False)
    for _ in range(2):
        for w, a in zip(want, session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(a, w, strict=True)
