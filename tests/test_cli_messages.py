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
