"""Optional inputs of models that are flattened: whether they have content decides, and can be said."""

import numpy as np
import onnx
import pytest
from onnx import parser

import anydml
from tests.onnx.test_exporters import MODELS
from tests.onnx.test_flat_files import parsed, ran

(MODEL,) = (m for m in MODELS if m.parent.name == "ts_optional_in")
RNG = np.random.default_rng(0)
X, MASK = RNG.standard_normal((2, 6)).astype(np.float32), RNG.random((2, 6)) > 0.5


def wanted(mask):
    (y,) = ran(onnx.load(MODEL), {"x": X, "mask": mask})
    return y


def inputs(flat):
    return {i.name: i.type.WhichOneof("value") for i in flat.graph.input}


def test_what_is_not_said_decides():
    flat, report = anydml.flatten(MODEL, convert="always")
    assert report.left == 1
    assert "OptionalGetElement fails on an optional without content" in report.ifs[0].because
    assert report.ifs[0].remedies == ("--set mask=null (never there)", "--shape mask=2,6 (always there)")
    assert inputs(flat) == {"x": "tensor_type", "mask": "optional_type"}


def test_never_there():
    flat, report = anydml.flatten(MODEL, fixed={"mask": None})
    assert report.left == 0
    assert inputs(flat) == {"x": "tensor_type"}
    np.testing.assert_array_equal(ran(flat, {"x": X})[0], wanted(None))
    assert not np.array_equal(wanted(None), wanted(MASK))


@pytest.mark.parametrize("sizes", [(2, 6), (None, 6), (None, None)])
def test_always_there(sizes):
    """It is a tensor then."""
    flat, report = anydml.flatten(MODEL, shapes={"mask": sizes})
    assert report.left == 0
    assert inputs(flat) == {"x": "tensor_type", "mask": "tensor_type"}
    assert not {"OptionalHasElement", "OptionalGetElement"} & {n.op_type for n in flat.graph.node}
    np.testing.assert_array_equal(ran(flat, {"x": X, "mask": MASK})[0], wanted(MASK))


def test_of_a_known_content():
    flat, report = anydml.flatten(MODEL, fixed={"mask": MASK})
    assert (report.left, inputs(flat)) == (0, {"x": "tensor_type"})
    np.testing.assert_array_equal(ran(flat, {"x": X})[0], wanted(MASK))


def test_never_there_but_asked_for():
    """The original fails, too."""
    model = parsed("(optional(float[2]) x) => (float[2] y) { a = OptionalGetElement (x) y = Neg (a) }")
    flat, _ = anydml.flatten(model, fixed={"x": None}, verify=False)
    assert inputs(flat) == {"x": "optional_type"}
    assert ran(model, {"x": None}) is None
    assert ran(flat, {"x": None}) is None


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"fixed": {"x": None}}, "expected float32, but got None"),
        ({"fixed": {"mask": 3}}, "expected bool, but got 3"),
        ({"shapes": {"mask": (2, 7)}}, "expected 6, but got 7"),
        ({"shapes": {"mask": (2,)}}, "expected 2 sizes, but got"),
    ],
)
def test_what_contradicts_the_file(told, message):
    with pytest.raises(anydml.InvalidInput, match=message):
        anydml.flatten(MODEL, **told)


def test_a_feed_without_content_decides_an_if():
    text = """<ir_version: 10, opset_import: ["": 19]> g (optional(float[n]) x, float[n] y) => (float[n] z) {
        c = OptionalHasElement (x)
        z = If (c) <then_branch = t () => (float[n] a) { e = OptionalGetElement (x)  a = Add (e, y) },
                    else_branch = e () => (float[n] b) { b = Neg (y) }> }"""
    session = anydml.load(parser.parse_model(text).SerializeToString(), threads=1)
    y = np.float32([1, 2, 3])
    for _ in range(4):
        assert session.run(None, {"x": None, "y": y})[0].tolist() == [-1, -2, -3]
        assert session.run(None, {"x": y, "y": y})[0].tolist() == [2, 4, 6]
    assert "the condition is false" in session.explain()
    with pytest.raises(anydml.InvalidInput, match="'y'"):
        session.run(None, {"x": y, "y": None})
