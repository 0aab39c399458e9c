"""The package as others get it: wheel and source archive are built, whole, and what is installed works."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import anydml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_is_whole(built):
    """Every file of the package, and nothing else."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
    files = {p.relative_to(ROOT).as_posix() for p in (ROOT / "anydml").rglob("*") if p.is_file()}
    assert names == {f for f in files if "__pycache__" not in f}
    assert {
        "anydml/py.typed",
        "anydml/functions.pyi",
        "anydml/page/page.html",
        "anydml/vendor/dagre.min.js",
        "anydml/vendor/dagre.LICENSE",
        "anydml/codegen/nest.ll",
    } <= names


def test_the_readme_of_the_wheel_leads_nowhere_that_is_not_there(built):
    """A package index shows it without the files beside it: no relative link, no picture."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    assert "My model has an `If`: what now? (docs/flatten.md)" in text
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", text)


def test_the_source_archive_has_all_that_its_tests_need(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {n.partition("/")[2] for n in tar.getnames()}
    for folder in ("anydml", "tests", "docs", "tools", "demo", "bench"):
        there = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*.*") if p.is_file()}
        assert {f for f in there if "__pycache__" not in f and "/out/" not in f} <= names
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "LICENSE", "Makefile"} <= names


def test_the_wheel_installs_and_has_its_command(built, tmp_path):
    """As `pipx run` would find it; the libraries are those of this environment."""
    (wheel,) = built.glob("*.whl")
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(
        [*pip, "--target", str(target), str(wheel)], check=True, timeout=300, stderr=subprocess.DEVNULL
    )
    (command,) = target.glob("bin/anydml*")
    code = f"import sys; sys.path.insert(0, {str(target)!r}); sys.argv = ['anydml', 'operators', 'IF']; import anydml; assert anydml.__file__.startswith({str(target)!r}); exec(open({str(command)!r}).read())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# ELEMENT_WISE_IF")


def test_what_the_package_says_of_itself():
    assert version("anydml") == anydml.__version__ == PROJECT["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(rf"^version: {re.escape(anydml.__version__)}$", citation, re.MULTILINE)
    for requirement in PROJECT["dependencies"]:
        assert re.fullmatch(r"[a-z]+>=[\d.]+", requirement), "a lower bound, whose reason stands beside it"


def test_what_ci_installs_is_within_the_bounds():
    """Every dependency is pinned, at no less than its lower bound."""
    lines = (ROOT / "requirements-ci.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    extras = [r for group in PROJECT["optional-dependencies"].values() for r in group]
    wanted = [*PROJECT["dependencies"], *extras]
    for name, bound in (
        re.fullmatch(r"([A-Za-z0-9-]+)(?:\[[a-z,]+\])?>=([\d.]+)(;.*)?", r).groups()[:2]
        for r in wanted
        if ">=" in r
    ):
        if name in pinned:
            assert [int(n) for n in re.findall(r"\d+", pinned[name])] >= [int(n) for n in bound.split(".")]
    assert {"numpy", "llvmlite", "onnx", "onnxruntime", "click", "rich", "pytest", "ruff", "mypy"} <= set(
        pinned
    )
