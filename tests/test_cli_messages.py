"""What the command line says to somebody who is new to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser

from anydml.cli.main import cli

IF = """(bool loud, float[2] x) => (float[2] y) {
    y = If (loud) <then_branch = t () => (float[2] a) { a = Exp (x) }, else_branch = e () => (float[2] b) { b = Neg (x) }> }"""


def saved(folder: Path, text: str, opsets: str = '"": 17') -> str:
    path = folder / "model.onnx"
    onnx.save(parser.parse_model(f"<ir_version: 8, opset_import: [{opsets}]> g {text}"), path)
    return str(path)


def said(*arguments: str) -> str:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code or result.exception
    return f"{result.output}{result.exception}"


@pytest.mark.parametrize(
    ("feed", "told"),
    [
        ("loud=True", "write true"),
        ("x=1,2", "write '[1,2]'"),
        ("x=-1.5, 2e3", "write '[-1.5, 2e3]'"),
        ("x=x.npy", "did you mean @x.npy?"),
    ],
)
def test_feeds_that_are_not_json(tmp_path: Path, feed: str, told: str) -> None:
    assert told in said("run", saved(tmp_path, IF), "--feed", feed)


def test_an_archive_for_an_array(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(2, np.float32))
    told = said("run", saved(tmp_path, IF), "--feed", "loud=true", "--feed", f"x=@{tmp_path / 'x.npz'}")
    assert "np.save writes one array" in told


def test_a_bool_that_is_written_large(tmp_path: Path) -> None:
    assert "write true" in said("flatten", saved(tmp_path, IF), "--dry-run", "--set", "loud=True")


def test_inputs_that_are_missing_are_told_with_what_to_type(tmp_path: Path) -> None:
    told = said("run", saved(tmp_path, IF))
    assert "--feed: expected loud bool[], x float32[2]; give --feed loud=true --feed x=@x.npy" in told
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    fed = ["--feed", "loud=true", "--feed", f"x=@{tmp_path / 'x.npy'}"]
    assert CliRunner().invoke(cli, ["run", str(tmp_path / "model.onnx"), *fed]).exit_code == 0
    told = said("run", str(tmp_path / "model.onnx"), *fed[:2])
    assert "--feed: expected x float32[2]; give --feed x=@x.npy" in told


@pytest.mark.parametrize(
    "command", ["bench", "check", "compile -o OUT", "diff", "flatten --dry-run", "inspect"]
)
def test_a_dxdispatch_model_where_an_onnx_model_is_taken(tmp_path: Path, command: str) -> None:
    (tmp_path / "x.json").write_text("{}")
    words = [str(tmp_path / "m.o") if word == "OUT" else word for word in command.split()]
    result = CliRunner().invoke(cli, [*words, *[str(tmp_path / "x.json")] * (2 if command == "diff" else 1)])
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "x.json is a DxDispatch model; `anydml run" in told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("flatten MODEL --dry-run --set lod=true", "--set: expected a name of an input, but got 'lod'"),
        ("flatten MODEL --dry-run --shape x=2,3", "--shape 'x': expected 1 size, but got [2, 3]"),
        ("flatten MODEL --dry-run --shape x=3", "--shape 'x', axis 0: expected 2, but got 3"),
        ("flatten MODEL --dry-run --safe-shape z=3", "--safe-shape: expected a name of an input"),
        ("flatten MODEL --dry-run --opset 18", "--opset: expected 13 to 17"),
        ("check MODEL --set lod=true", "--set: expected a name of an input"),
        ("compile MODEL -o OUT --shape z=3", "--shape: expected a name of an input"),
        ("compile MODEL -o -", "a header is written beside OUTPUT; name a file, like model.o"),
        ("compile MODEL -o OUT --name 1", "--name: expected a name that C has"),
        ("diff MODEL MODEL --set lod=true", "--set: expected a name of an input"),
        ("bench MODEL --shape z=3", "--shape: expected a name of an input"),
        ("bench MODEL --feed z=3", "--feed: expected a name of an input"),
        ("run MODEL -f b:3", "--onnx_free_dim_name_override: expected a symbol"),
    ],
)
def test_what_is_wrong_is_told_by_its_option(tmp_path: Path, command: str, told: str) -> None:
    words = {"MODEL": saved(tmp_path, IF), "OUT": str(tmp_path / "m.o")}
    assert told in said(*(words.get(word, word) for word in command.split()))


def test_a_remedy_names_options(tmp_path: Path) -> None:
    open_sizes = saved(tmp_path, "(float[n] x) => (float[n] y) { y = Relu (x) }")
    assert "; --shape fixes sizes" in said("compile", open_sizes, "-o", str(tmp_path / "m.o"))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "run MODEL --set loud=true",
            "'--set'; check, compile, diff, flatten have it, and here --feed takes NAME=VALUE",
        ),
        ("flatten MODEL --feed loud=true", "'--feed'; bench, run have it, and here --set takes NAME=VALUE"),
        ("diff MODEL MODEL --tree", "'--tree'; inspect has it"),
        ("--tree inspect MODEL", "'--tree'; inspect has it"),
        ("flatten MODEL --dry-runs", "'--dry-runs'; did you mean --dry-run?"),
        ("run MODEL --fed x=1", "'--fed'; did you mean --feed?"),
        ("run MODEL --gpu", "No such option '--gpu'\n"),
    ],
)
def test_options_that_there_are_not(tmp_path: Path, command: str, told: str) -> None:
    path = saved(tmp_path, IF)
    result = CliRunner().invoke(cli, [path if word == "MODEL" else word for word in command.split()])
    assert result.exit_code == 2
    assert told in result.output


@pytest.mark.parametrize("level", ["5_1", "5.1", "5.1f", "DML_FEATURE_LEVEL_5_1"])
def test_feature_levels_are_written_as_people_do(tmp_path: Path, level: str) -> None:
    path = saved(tmp_path, IF)
    softmax = saved(tmp_path, "(float[2] x) => (float[2] y) { y = Softmax (x) }")
    for command, told in (
        (
            ("check", softmax, "--require", "--directml", level),
            "1 of 1 node (without Constants) on DirectML 5_1, 1 in a compiled graph",
        ),
        (("operators", "gelu", "--level", level), "# ACTIVATION_GELU"),
    ):
        result = CliRunner().invoke(cli, command)
        assert result.exit_code == 0, result.output
        assert told in result.output
    for wrong in (("check", path, "--directml", "9.9"), ("operators", "--level", "9.9")):
        assert "6_4, but got '9.9'" in said(*wrong)
    assert "onnxruntime's provider asks for 5_0 at least" in said("check", path, "--directml", "4.0")


@pytest.mark.parametrize(
    ("operator", "opsets", "told"),
    [
        ("Sigmod", '"": 17', "did you mean 'Sigmoid'?"),
        ("Gelu", '"": 17', "it exists from opset 20 on"),
        ("own.Blur", '"": 17, "own": 1', "'own' is a domain of custom operators"),
    ],
)
def test_operators_that_nobody_runs(tmp_path: Path, operator: str, opsets: str, told: str) -> None:
    path = saved(tmp_path, f"(float[2] x) => (float[2] y) {{ y = {operator} (x) }}", opsets)
    found = said("run", path, "--feed", "x=[1,2]")
    assert told in found
    assert "recompile" not in found
    assert CliRunner().invoke(cli, ["inspect", path]).exit_code == 0


def test_inputs_that_are_none_are_told_together(tmp_path: Path) -> None:
    told = said("run", saved(tmp_path, IF), "--feed", "lod=true", "--feed", "z=1")
    assert "'lod'" in told
    assert "'z'" in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk(tmp_path: Path) -> None:
    assert "/dev/full" in said("flatten", saved(tmp_path, IF), "/dev/full")


def test_threads_that_are_no_number() -> None:
    code = "import anydml, numpy as np; anydml.abs(np.ones(3, np.float32))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"ANYDML_NUM_THREADS": "abc"},
        check=True,
    )
    assert "ANYDML_NUM_THREADS: expected a positive integer, but got 'abc'" in done.stderr


def test_help_needs_no_command() -> None:
    code = "import sys\nfrom anydml.cli.main import main\nsys.argv = ['anydml', '--help']\ntry: main()\nfinally: print([m for m in sys.modules if m.startswith(('onnx', 'numpy', 'anydml.session'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    for name in cli.list_commands(None):  # type: ignore[arg-type]
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("command", ["", *cli.list_commands(None)])  # type: ignore[arg-type]
def test_help_fits_eighty_columns(command: str) -> None:
    result = CliRunner().invoke(cli, [*command.split(), "--help"], terminal_width=80)
    assert result.exit_code == 0
    assert [line for line in result.output.splitlines() if len(line) > 80] == []
