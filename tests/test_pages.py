"""What the documentation shows, happens: code blocks run, commands exist, links lead somewhere, the site builds."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import anydml as dml
from anydml.cli.main import cli
from anydml.dxdispatch.model import DispatchModel
from anydml.ops.catalog import CATALOG
from tests.browser import needs_browser, said_by
from tools.site import CONTENTS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {
    p.relative_to(ROOT).as_posix(): p for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "operators"
}
BLOCK = re.compile(r"```(python|json)\n(.*?)```\n((?:\n(?:    [^\n]*\n)+)?)", re.DOTALL)
WITH_BLOCKS = {name for name, path in PAGES.items() if BLOCK.search(path.read_text(encoding="utf-8"))}
WITH_BLOCKS.remove("docs/howto/many-machines.md")  # its processes: tests/test_many_machines.py runs it


def run(kind, block, name, names):
    """What a block prints."""
    said = io.StringIO()
    if kind == "json":
        Path("model.json").write_text(block, encoding="utf-8")
        lines = []
        DispatchModel("model.json").run(lines.append)
        return "\n".join(line for line in lines if not line.startswith(("Running on", "Dispatch ")))
    with contextlib.redirect_stdout(said):
        exec(compile(block, name, "exec"), names)
    return said.getvalue()


@pytest.mark.parametrize("name", sorted(WITH_BLOCKS))
def test_blocks(name, tmp_path, monkeypatch):
    """In order; what is indented below a block, or below "prints" after it, is what it prints."""
    monkeypatch.chdir(tmp_path)
    text = (
        PAGES[name]
        .read_text(encoding="utf-8")
        .replace("```\n\nprints, after the time that it took,\n", "```\n")
    )
    names: dict = {}
    compared = 0
    for kind, block, expected in BLOCK.findall(text):
        told = run(kind, block, name, names)
        shown = [line.removeprefix("    ") for line in expected.strip("\n").splitlines()]
        if shown and not shown[0].startswith("anydml "):
            assert told.splitlines() == shown
            compared += 1
    assert compared or "# [" in text, "a page compares something"


def test_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["demo"]).exit_code == 0
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 4
    told = "".join(run("python", block, "README.md", names) for block in blocks)
    for line in re.findall(r"^(dml\..*)  # (\[[^;\n]*\])", README, re.MULTILINE):
        assert np.array_equal(eval(line[0], names), eval(line[1])), line[0]
    for line in re.findall(r"^    (ELEMENT_WISE_IF: .*)$", README, re.MULTILINE):
        assert line in told.splitlines()
    assert "plan for sound float32[1,160], sr int64[], sr = 8000" in told
    assert "no If remains of 6\n['Unsqueeze', " in told
    shown = re.search(r"```\n\n    (no If remains.*)\n    (.*)\n", README)
    assert shown is not None
    assert told.endswith(f"{shown[1]}\n{shown[2]}\n")


def test_the_commands_of_the_readme(tmp_path, monkeypatch):
    """They run in their order, as they stand there."""
    monkeypatch.chdir(tmp_path)
    (section,) = re.findall(r"## In the shell\n(.*?)\n## ", README, re.DOTALL)
    lines = re.findall(r"^    anydml (.*)$", section, re.MULTILINE)
    assert {line.split()[0] for line in lines} == set(cli.list_commands(None))
    for line in lines:
        result = CliRunner().invoke(cli, shlex.split(line, comments=True))
        assert result.exit_code == 0, f"{line}: {result.output}{result.exception}"


@pytest.mark.parametrize("name", ["README.md"])
def test_what_commands_print(name, tmp_path, monkeypatch):
    """Below each `$ anydml ...` stands what it prints; `...` for lines that are left out."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```console\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)
    commands = re.findall(r"^\$ anydml (.*)\n((?:(?!\$).*\n)*)", block, re.MULTILINE)
    assert len(commands) >= 3
    for command, shown in commands:
        result = CliRunner().invoke(cli, shlex.split(command))
        assert result.exit_code == 0, result.output
        pattern = re.escape(shown).replace(re.escape("...\n"), "(?:.*\n)*?")
        assert re.fullmatch(pattern, result.output), f"{command} printed\n{result.output}"


def test_the_page_about_flatten(tmp_path, monkeypatch):
    """Its comments tell what is printed."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(
        r"```python\n(.*?)```", PAGES["docs/flatten.md"].read_text(encoding="utf-8"), re.DOTALL
    )
    told = run("python", block, "flatten.md", {}).splitlines()
    assert told == ["['Relu', 'Softplus', 'Where']", "0 converted - both branches can always run", "['Relu']"]


@pytest.mark.parametrize("operator", CATALOG, ids=lambda o: o.name)
def test_the_example_of_an_operator(operator):
    """The page's line computes what its comment says."""
    page = (ROOT / "docs" / "operators" / f"{operator.name}.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code, _, comment = block.strip().rpartition("  # ")
    result = eval(code, {"dml": dml, "np": np})
    expected = eval(comment, {"nan": np.nan, "inf": np.inf})
    pairs = zip(result, expected, strict=True) if operator.gives_several else [(result, expected)]
    for got, wanted in pairs:
        assert np.allclose(
            np.asarray(got, float), np.asarray(wanted, float), rtol=1e-3, atol=1e-4, equal_nan=True
        )


def shown_commands():
    for path in [ROOT / "README.md", *PAGES.values()]:
        for line in re.findall(r"^    anydml (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield pytest.param(line, id=f"{path.stem}: {line}")


@pytest.mark.parametrize("line", list(shown_commands()))
def test_commands_exist(line):
    """Their options, too; what they need, files above all, is not looked at."""
    name, *arguments = shlex.split(line, comments=True)
    verb = cli.get_command(click.Context(cli), name)
    context = click.Context(verb, info_name=name)
    verb.make_parser(context).parse_args(arguments)


def test_links_between_pages():
    """Every relative link leads to a file that is there."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    found = 0
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target):
                found += 1
                assert (page.parent / target).exists() or target == "cli.md", f"{page.name}: {target}"
    assert found > 100


def test_every_public_name_has_a_place_in_the_reference():
    pages = [
        PAGES[f"docs/reference/{n}.md"].read_text(encoding="utf-8") for n in ("api", "errors", "functions")
    ]
    told = {name.rpartition(".")[2] for name in re.findall(r":: (\S+)", "\n".join(pages))}
    missing = {
        n
        for n in dml.__all__
        if n not in told and dml._MODULE_OF.get(n) not in {"anydml.functions", "anydml.errors"}
    }
    assert missing == {"__version__"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, and what building it said."""
    folder = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "tools.site", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    return folder, (done.returncode, done.stderr)


@pytest.mark.long
def test_the_site_builds(site):
    """With no warning: a link to nowhere, or a docstring that cannot be read, is one."""
    folder, ended = site
    assert ended == (0, "")
    for page in ("index", "reference/functions", "reference/cli", "operators/ELEMENT_WISE_IF"):
        assert (folder / f"{page}.html").stat().st_size > 5000
    operator = (folder / "operators" / "ELEMENT_WISE_IF.html").read_text(encoding="utf-8")
    (current,) = re.findall(r'<li class="toctree-l1 current[^>]*><a [^>]*href="([^"]*)">(\w+)</a>', operator)
    assert current == ("README.html", "Operators")
    assert operator.count('<li class="toctree-l1') == sum(map(len, CONTENTS.values()))
    functions = (folder / "reference" / "functions.html").read_text(encoding="utf-8")
    assert functions.count("DirectML: ELEMENT_WISE_") == 65
    for picture in ("speech", "flatten"):
        assert (folder / "_images" / f"{picture}.png").is_file()


@pytest.mark.long
@needs_browser
def test_the_site_fits_its_window(site, tmp_path):
    """No page is wider than the window; tables that cannot be narrower scroll; that of operators can."""
    folder, _ = site
    script = """
        said.page = [document.documentElement.scrollWidth, innerWidth];
        const tables = [...document.querySelectorAll("article table")];
        said.out = tables.filter(t => t.getBoundingClientRect().right > innerWidth
          && getComputedStyle(t.parentElement).overflowX !== "auto").length;
        said.tables = tables.map(t => [t.offsetWidth, t.parentElement.clientWidth]);
        said.rows = document.querySelectorAll("article tbody tr").length;"""
    pages = (
        "index operators/README operators/CONVOLUTION benchmarks sessions check flatten howto/webnn".split()
    )
    for window in (1200, 500):  # Chromium's are no narrower
        for name in pages:
            page = (folder / f"{name}.html").read_text(encoding="utf-8")
            driven, profile = folder / f"{name}.driven.html", tmp_path / "profile"
            said = said_by(page, script, driven, profile, size=f"{window},900")
            assert said["page"][1] == window
            assert said["page"][0] <= window, name
            assert said["out"] == 0, name
            if name == "operators/README":
                assert said["rows"] == len(CATALOG)
                assert all(table <= room + 1 for table, room in said["tables"])
