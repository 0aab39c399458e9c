"""`inspect` and `anydml inspect`: what a model consists of."""

import json

import onnx
import pytest
from click.testing import CliRunner

import anydml
from anydml.cli.main import cli
from anydml.inspection import drawn as page_of
from demo.speech import model_path

TEXT = """<ir_version: 8, opset_import: ["": 17], producer_name: "somebody"> m (bool c, int64 k, float[n, 3] x) => (float[n, 3] y) {
    seven = Constant <value_int = 7> ()  d = Equal (k, seven)
    y = If (d) <
        then_branch = t () => (float[n, 3] p) {
            p = If (c) <then_branch = t2 () => (float[n, 3] a) { a = Neg (x) }, else_branch = e2 () => (float[n, 3] b) { b = Abs (x) }> },
        else_branch = e () => (float[m, 3] q) { q = Concat <axis = 0> (x, x) }>
}"""
LOOP = """<ir_version: 8, opset_import: ["": 17]> m (int64 n, bool go, float[3] x, float[3] w) => (float[3] y) {
    y = Loop (n, go, x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1) {
        k1 = Identity (k)
        s1 = If (k) <then_branch = t () => (float[3] p) { p = Add (s, w) }, else_branch = e () => (float[3] q) { q = Neg (s) }>
    }>
}"""


def test_inspect():
    found = anydml.inspect(onnx.parser.parse_model(TEXT))
    assert found.inputs == {"c": "bool[]", "k": "int64[]", "x": "float32[n,3]"}
    assert (found.opsets, found.producer, found.ifs, found.nodes) == ({"ai.onnx": 17}, "somebody", 2, 7)
    assert found.operators["If"] == 2
    (outer,) = found.control
    assert (outer.kind, outer.name, outer.condition) == ("If", "y", "Equal(k, 7)")
    assert not outer.same_types
    assert outer.flatten.startswith("kept: ")
    assert outer.branches["then"].captures == ("c: bool[]", "x: float32[n,3]")
    assert outer.branches["else"].returns == ("q: float32[?,3]",)
    assert outer.branches["else"].nodes == 1
    (inner,) = outer.branches["then"].inside
    assert (inner.name, inner.condition, inner.same_types) == ("p", "c", True)
    assert inner.flatten == "converted: both branches can always run"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TEXT, "7 nodes, 1 of them Constants: "),
        (TEXT, "control flow: 2 Ifs (--tree shows it, `anydml flatten` removes some of it)"),
        (
            TEXT.replace("Concat <axis = 0> (x, x)", "Exp (x)"),
            "(--tree shows it, `anydml flatten` removes it)",
        ),
        (LOOP, "control flow: 1 If, 1 loop (--tree shows it, `anydml flatten` removes some of it)"),
    ],
)
def test_what_is_told_of_control_flow_and_constants(tmp_path, text, told):
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert told in CliRunner().invoke(cli, ["inspect", str(tmp_path / "m.onnx")]).output


def test_a_loop_that_stays():
    loop = """<ir_version: 8, opset_import: ["": 17]> m (int64 n, float[3] x) => (float[3] y) <bool go = {1}> {
        y = Loop (n, go, x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1) { k1 = Identity (k)  s1 = Neg (s) }> }"""
    assert anydml.inspect(onnx.parser.parse_model(loop)).flattens == "none"
    three = loop.replace("int64 n, ", "").replace("bool go = {1}", "bool go = {1}, int64 n = {3}")
    found = anydml.inspect(onnx.parser.parse_model(three))
    assert (found.flattens, found.control[0].flatten) == ("all", "unrolled: 3 iterations")


def test_loops_and_what_is_in_them():
    found = anydml.inspect(onnx.parser.parse_model(LOOP))
    (loop,) = found.control
    assert (loop.kind, loop.condition) == ("Loop", "")
    assert loop.branches["body"].captures == ("w: float32[3]",)
    (inside,) = loop.branches["body"].inside
    assert (inside.kind, inside.condition) == ("If", "k")
    assert inside.flatten.startswith("converted")


def test_types_in_loops():
    """Those that follow, whatever a file says of them."""
    model = onnx.parser.parse_model(LOOP)
    body = model.graph.node[0].attribute[0].g
    body.output[1].type.tensor_type.ClearField("shape")
    for branch in (a.g for a in body.node[1].attribute):
        branch.output[0].type.tensor_type.ClearField("shape")
    (loop,) = anydml.inspect(model).control
    assert loop.branches["body"].returns == ("k1: bool[]", "s1: float32[3]")
    (inside,) = loop.branches["body"].inside
    assert (inside.branches["then"].returns, inside.same_types) == (("p: float32[3]",), True)


def test_a_page_of_what_is_odd():
    """A constant of a type that ONNX does not have yet, and sizes beyond all numbers."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> m (float[4611686018427387904] x) => (float[n] y) {
            c = Constant <value = float {1}> ()
            both = Concat <axis = 0> (x, x, x, x)
            more = Concat <axis = 0> (both, both, both, both)
            y = Add (more, c) }"""
    )
    model.graph.node[0].attribute[0].t.data_type = 99
    model.graph.node[0].op_type = "Somebodys"
    model.graph.node[0].domain = "elsewhere"
    found, page = page_of(model, "odd")
    assert found.outputs == {"y": "float32[?]"}
    assert "unknown[]" in page


def test_silero():
    found = anydml.inspect(model_path())

    def count(controls):
        return sum(1 + sum(count(b.inside) for b in c.branches.values()) for c in controls)

    assert count(found.control) == found.ifs == 25
    (first,) = found.control
    assert first.condition == "Equal(sr, 16000)"


def invoke(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_the_tree(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    result = invoke("inspect", path)
    assert result.exit_code == 0
    assert "If decided by the content of" in result.output
    assert "--tree shows it" in result.output
    assert "If y on" not in result.output
    result = invoke("inspect", path, "--tree")
    for told in (
        "model.onnx: ",
        "made by somebody",
        "float32[n,3]",
        "control flow: 2 Ifs",
        "If y on Equal(k, 7)",
        "flatten: converted: both branches can always run",
        "the branches may return other types or sizes",
        "uses c: bool[], x: float32[n,3]",
    ):
        assert told in result.output
    assert json.loads(invoke("inspect", path, "--json").output)["control"][0]["name"] == "y"


def test_a_model_without_control_flow(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> m (float[2] x) => (float[2] y) { y = Neg (x) }'
        ),
        path,
    )
    assert "no control flow" in invoke("inspect", path).output


def test_no_model(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    result = invoke("inspect", tmp_path / "model.onnx")
    assert isinstance(result.exception, anydml.InvalidModel)
    with pytest.raises(anydml.InvalidInput):
        anydml.inspect(5)


def test_the_model_is_not_drawn_over(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT), path)
    before = path.read_bytes()
    result = invoke("inspect", path, "--html", path)
    assert (result.exit_code, path.read_bytes()) == (2, before)
    assert "which would be lost" in result.output


def test_loops_are_counted(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(LOOP), path)
    for options in ((), ("--tree",)):
        assert "control flow: 1 If, 1 loop" in invoke("inspect", path, *options).output
