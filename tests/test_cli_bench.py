"""`anydml bench` as a user types it."""

import json

import onnx
import pytest
from click.testing import CliRunner

from anydml.cli.main import cli
from anydml.errors import InvalidInput

TEXT = """<ir_version: 8, opset_import: ["": 17]> m (bool c, float[n, 3] x) => (float[n, 3] y) {
    y = If (c) <then_branch = t () => (float[n, 3] p) { p = Neg (x) }, else_branch = e () => (float[n, 3] q) { q = Abs (x) }> }"""


@pytest.fixture
def path(tmp_path):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def invoke(*arguments):
    return CliRunner().invoke(cli, ["bench", *(str(a) for a in arguments)])


def test_a_table(path):
    result = invoke(path, "-i", 50, "--feed", "c=true", "--shape", "x=4,3")
    assert result.exit_code == 0, result.output
    for told in ("anydml", "onnxruntime", "median", "p99", "MB", "median / onnxruntime's: "):
        assert told in result.output


def test_json_and_a_picture(path, tmp_path):
    result = invoke(path, "--seconds", "0.05", "--json", "--plot", tmp_path / "times.png")
    assert "drawn in" in result.stderr
    ours, peer = json.loads(result.stdout)
    assert (ours["name"], peer["name"]) == ("anydml", "onnxruntime")
    assert ours["runs"] > 10
    assert 0 < ours["p10"] <= ours["p50"] <= ours["p99"]
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("x=2,3,2", "expected 2 sizes, but got"),
        ("x=-1,3", "expected sizes, names of sizes or None, but got"),
        ("q=1", "expected a name of an input"),
    ],
)
def test_shapes_that_do_not_fit(path, shape, message):
    error = invoke(path, "--shape", shape).exception
    assert isinstance(error, InvalidInput)
    assert message in str(error)


def test_alone(path):
    result = invoke(path, "-i", 30, "--alone", "--json")
    (ours,) = json.loads(result.output)
    assert ours["runs"] == 30


def test_what_onnxruntime_does_not_run(path):
    """Its Where has no uint16."""
    text = '<ir_version: 8, opset_import: ["": 17]> m (bool[2] c, uint16[2] a) => (uint16[2] y) { y = Where (c, a, a) }'
    onnx.save(onnx.parser.parse_model(text), path)
    result = invoke(path, "-i", 3)
    assert result.exit_code == 0
    assert "onnxruntime does not run this model on these inputs" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--feed", "cc=true"], "did you mean 'c'"),
        (["--shape", "z=1"], "expected a name of an input"),
        (["--shape", "x=a"], "expected sizes like 1,576"),
        (["--seconds", "0"], "--seconds"),
        (["--feed", "c=5"], "expected bool, but got int64"),
    ],
)
def test_options_that_make_no_sense(path, options, message):
    result = invoke(path, *options)
    assert result.exit_code != 0
    assert message in result.output + result.stderr + str(result.exception)
