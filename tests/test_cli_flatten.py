"""`anydml flatten` as a user types it."""

import io
import json

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from rich.console import Console

from anydml.cli.main import cli
from anydml.sample import sample_model


def invoke(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def flat_model(tmp_path):
    path = tmp_path / "model.onnx"
    text = """<ir_version: 8, opset_import: ["": 17]> m (bool c, int64 k, float[n, 3] x) => (float[n, 3] y) {
        y = If (c) <then_branch = t () => (float[n, 3] p) { u = Unique (x)  m = ReduceSum (u)  f = Cast <to = 1> (k)  g = Mul (m, f)  p = Add (x, g) },
                    else_branch = e () => (float[n, 3] q) { q = Abs (x) }> }"""
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_flatten_help():
    result = invoke("flatten", "--help")
    assert result.exit_code == 0
    assert "anydml flatten vad.onnx flat.onnx --set sr=16000" in result.output
    assert "Exit codes" in result.output


def test_flatten_says_what_it_did(tmp_path):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    result = invoke("flatten", path, out, "--set", "c=true", "--shape", "x=2,3")
    assert result.exit_code == 0, result.output
    for told in ("folded", "then: the condition is true", "verified on", "written to"):
        assert told in result.output
    flat = onnx.load(out)
    assert [i.name for i in flat.graph.input] == ["k", "x"]
    assert [d.dim_value for d in flat.graph.input[1].type.tensor_type.shape.dim] == [2, 3]


def test_flatten_in_json(tmp_path):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    result = invoke("flatten", path, out, "--json", "--no-verify")
    report = json.loads(result.output)
    assert report["ifs"][0]["decision"] == "kept"
    assert "Unique may fail" in report["ifs"][0]["because"]
    assert (report["before"]["ifs"], report["after"]["ifs"], report["verified"]) == (1, 1, None)


def test_flatten_that_must_leave_none(tmp_path):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    result = invoke("flatten", path, out, "--require-none")
    assert result.exit_code == 2
    assert "the If remains; nothing was written" in result.stderr
    assert not out.exists()
    assert invoke("flatten", path, out, "--require-none", "--set", "c=false").exit_code == 0


def test_flatten_onto_itself(tmp_path):
    """The original is not lost."""
    before = path_bytes = flat_model(tmp_path).read_bytes()
    path = tmp_path / "model.onnx"
    done = invoke("flatten", path, path, "--set", "c=false")
    assert done.exit_code == 2
    assert "expected another file" in done.stderr
    assert before == path_bytes == path.read_bytes()


def test_flatten_of_an_array_from_a_file(tmp_path):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    np.save(tmp_path / "c.npy", np.array(True))
    assert invoke("flatten", path, out, "--set", f"c=@{tmp_path / 'c.npy'}").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "cc=true"], "did you mean 'c'"),
        (["--set", "c"], "expected NAME=VALUE"),
        (["--set", "c=true", "--set", "c=false"], "given twice"),
        (["--set", "c=yes"], "--set 'c': expected bool"),
        (["--set", "c=@nothing.npy"], "expected a NumPy file"),
        (["--set", f"c=@{__file__}"], "it is none"),
        (["--shape", "x=2,1.5"], "expected sizes like 1,576"),
        (["--shape", "x=2,4"], "axis 1: expected 3, but got 4"),
        (["--convert", "perhaps"], "'perhaps' is not one of"),
        (["--max-extra-cost", "-1"], "-1"),
    ],
)
def test_flatten_with_options_that_make_no_sense(tmp_path, options, message):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    result = invoke("flatten", path, out, *options)
    assert result.exit_code in (1, 2)
    assert message in result.output + result.stderr + str(result.exception)
    assert not out.exists()


@pytest.mark.parametrize("where", ["folder", "missing"])
def test_flatten_to_where_nothing_can_be_written(tmp_path, where):
    path = flat_model(tmp_path)
    out = tmp_path if where == "folder" else tmp_path / "no" / "flat.onnx"
    before = path.read_bytes()
    result = invoke("flatten", path, out, "--set", "c=true")
    assert result.exit_code != 0
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_flatten_verifies_as_thoroughly_as_it_is_asked_to(tmp_path):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    counts = {}
    for how in ("--verify=quick", "--verify=thorough", "--verify"):
        result = invoke("flatten", path, "--set", "c=true", "--shape", "x=2,3", out, "--json", how)
        assert result.exit_code == 0, result.output
        counts[how] = json.loads(result.output)["verified"]["agreed"]
    assert 0 < counts["--verify=quick"] <= 24
    assert counts["--verify=thorough"] > 24
    assert 0 < counts["--verify"] <= 24
    assert invoke("flatten", path, out, "--verify=often").exit_code == 2


def test_an_option_of_an_old_name_says_the_new_one(tmp_path):
    """`--witness` still works."""
    path = tmp_path / "model.onnx"
    onnx.save(sample_model(), path)
    result = CliRunner().invoke(cli, ["flatten", str(path), "--dry-run", "--witness", "sound=1,1600"])
    assert result.exit_code == 0
    assert "--witness is called --safe-shape now" in result.stderr


LARGE = """<ir_version: 8, opset_import: ["": 17]> m (bool c, float[n, m] x) => (float[a, b] y) <int64[2] s = {2, 350}> {
    z = Reshape (x, s)
    y = If (c) <then_branch = t () => (float[a, b] p) { p = Neg (z) }, else_branch = e () => (float[a, b] q) { q = Abs (z) }> }"""
"""Takes sizes that nobody draws at random."""


def test_a_model_that_takes_no_random_input_says_how_to_give_sizes(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(LARGE), path)
    told = " ".join(invoke("flatten", path, "--dry-run").output.split())
    assert "nothing was compared: of 480 random inputs, none was accepted" in told
    assert "--shape x=n,m (with numbers)" in told
    told = invoke("flatten", path, "--dry-run", "--shape", "x=2,350").output
    assert "verified on 24 random inputs" in told
    assert "nothing was compared" not in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--safe-shape", "x=2"], "--safe-shape 'x': expected 2 sizes, but got [2]"),
        (["--safe-shape", "x=2,4"], "--safe-shape 'x', axis 1: expected 3, but got 4"),
        (["--shape", "x=4,3", "--safe-shape", "x=2,3"], "--safe-shape 'x', axis 0: expected 4, but got 2"),
        (["--safe-shape", "xx=2,3"], "--safe-shape: expected a name of an input, but got 'xx'"),
        (["--set", "k=true"], "--set 'k': expected int64, but got True"),
        (["--set", "x=[[true,false,true]]"], "--set 'x': expected float32, but got"),
        (["-o", "other.onnx"], "expected OUTPUT or -o, but got both"),
    ],
)
def test_flatten_with_options_that_contradict(tmp_path, options, message):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    result = invoke("flatten", path, out, *options)
    assert result.exit_code in (1, 2)
    assert message in result.output + str(result.exception)
    assert not out.exists()


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_another_way_to_give_the_output(tmp_path, option):
    path, out = flat_model(tmp_path), tmp_path / "flat.onnx"
    assert invoke("flatten", path, option, out, "--set", "c=true").exit_code == 0
    assert [i.name for i in onnx.load(out).graph.input] == ["k", "x"]


def test_long_names_are_whole_where_a_terminal_is_narrow(tmp_path, monkeypatch):
    names = [f"model/decoder/{'layer/' * 9}{k}/{'attention/' * 5}If" for k in range(3)]
    ifs = "\n".join(
        f'["{name}"] y{k} = If (c) <then_branch = t () => (float[n] p{k}) {{ p{k} = Neg (x) }},'
        f" else_branch = e () => (float[n] q{k}) {{ q{k} = Abs (x) }}>"
        for k, name in enumerate(names)
    )
    text = f'<ir_version: 8, opset_import: ["": 17]> m (bool c, float[n] x) => (y0, y1, y2) {{ {ifs} }}'
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    screen = io.StringIO()
    monkeypatch.setattr(
        "anydml.cli.flatten.console", lambda errors: Console(file=screen, width=80, highlight=False)
    )
    assert invoke("flatten", path, "--dry-run", "--no-verify").exit_code == 0
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    told = "".join(line.split("│")[1].strip() for line in lines if line.startswith("│"))
    assert all(name in told for name in names)
