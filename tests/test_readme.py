"""The code blocks of the README run, in order, and print what stands below them."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import onnx

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_code_blocks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        m (bool cond) => (float[2] y) {
            y = If (cond) <then_branch = t () => (float[2] a) { a = Constant <value_floats = [1.0, 2.0]> () },
                           else_branch = e () => (float[2] b) { b = Constant <value_floats = [3.0, 4.0]> () }>
        }"""
    onnx.save(onnx.parser.parse_model(text), "model.onnx")
    names: dict = {}
    said = io.StringIO()
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 7
    with contextlib.redirect_stdout(said):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    assert names["y"].tolist() == [[1, 8], [1, 2]]
    assert np.isfinite(names["a"]).all()
    told = said.getvalue()
    for line in re.findall(r"^    (ELEMENT_WISE_IF: .*)$", README, re.MULTILINE):
        assert line in told.splitlines()
    assert "  leaky = x < 0 ? (x * 0.01) : x" in told.splitlines()
    assert "plan for cond bool[], cond = True" in told
    assert "0 converted ['Where']" in told.splitlines()


def test_the_page_about_flatten():
    page = (Path(__file__).parent.parent / "docs" / "flatten.md").read_text(encoding="utf-8")
    said = io.StringIO()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    with contextlib.redirect_stdout(said):
        exec(compile(block, "flatten.md", "exec"), {})
    told = said.getvalue().splitlines()
    assert told == ["['Relu', 'Softplus', 'Where']", "0 converted - both branches can always run", "['Relu']"]


def test_the_tutorial(tmp_path, monkeypatch):
    """Each block prints what stands below it, where something does."""
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```\n((?:\n(?:    [^\n]*\n)+)?)", page, re.DOTALL)
    assert len(blocks) == 5
    for block, expected in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block, "tutorial.md", "exec"), names)
        shown = [line.removeprefix("    ") for line in expected.strip("\n").splitlines()]
        if shown:
            assert said.getvalue().splitlines() == shown
        else:
            assert said.getvalue()


def test_links_between_pages():
    """Every relative link leads to a file that is there."""
    root = Path(__file__).parent.parent
    pages = [root / "README.md", root / "CONTRIBUTING.md", *root.glob("docs/**/*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
