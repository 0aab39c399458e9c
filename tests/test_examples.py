"""The programs in examples/ run, and what is there for continuous integration names things that exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from anydml.cli.main import cli

ROOT = Path(__file__).parent.parent


def said(name, *arguments):
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_digits():
    assert float(said("digits.py").split()[2].rstrip("%")) > 90


def test_without_ifs():
    told = said("without_ifs.py")
    assert "nodes: 36, Ifs: 6\n  3 decided by sizes of sound\n" in told
    assert "no If remains of 6\ncompared with the original on" in told


def test_without_ifs_of_ones_own(tmp_path):
    (tmp_path / "model.onnx").write_bytes((ROOT / "tests" / "data" / "torch_cond.onnx").read_bytes())
    assert "the If is gone" in said("without_ifs.py", str(tmp_path / "model.onnx"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.onnx"], "nowhere.onnx"),
        ([str(ROOT / "README.md")], "expected an ONNX model"),
        ([str(ROOT / "tests" / "data" / "torch_cond.onnx"), "sr"], "expected NAME=NUMBER, but got sr\n"),
        (
            [str(ROOT / "tests" / "data" / "torch_cond.onnx"), "sr=1"],
            "expected a name of an input, but got 'sr'",
        ),
    ],
)
def test_without_ifs_of_what_cannot_be(arguments, told):
    """One message, and no traceback."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "without_ifs.py"), *arguments],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_boxes():
    told = said("boxes.py")
    assert told.startswith("1 kernel, 0 bytes of intermediate memory")
    assert float(re.search(r"largest difference from NumPy: (\S+)", told)[1]) < 1e-5


# ---- workflows, hooks, images ------------------------------------------------------------------------


def commands(text):
    """The lines that start anydml in a workflow or a hook."""
    return [shlex.split(line) for line in re.findall(r"(?:run|entry): anydml (.*)", text)]


def test_workflows_and_hooks():
    """They are YAML; the verbs and options that they use exist, and so do the project's own commands."""
    files = [
        *(ROOT / ".github" / "workflows").iterdir(),
        ROOT / ".pre-commit-hooks.yaml",
        ROOT / "examples" / "ci" / "models.yml",
    ]
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert yaml.safe_load(text)
        found += commands(text)
        for target in re.findall(r"run: make (\w+)", text):
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == 3
    for name, *arguments in found:
        verb = cli.get_command(click.Context(cli), name)
        verb.make_parser(click.Context(verb, info_name=name)).parse_args(arguments)


def test_the_image():
    """What the Dockerfile copies is there, is let through, and is what the package is built from."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()]
    assert copied == ["pyproject.toml", "README.md", "LICENSE", "anydml"]
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(copied) == set(allowed)
    assert all((ROOT / name).exists() for name in copied)
