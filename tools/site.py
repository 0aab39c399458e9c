"""Build the documentation as a site: `make docs`, or `python -m tools.site FOLDER`.

The pages are the Markdown files that can be read as they are, in docs/ and at the root, and what is made
from the code: the command line's help, and the reference of the docstrings. They are brought together in a
folder of their own, with links led to where pages are in the site; links to sources, which the site has
not, become plain text. Whatever Sphinx warns of, a link to nowhere above all, fails the build.
"""

from __future__ import annotations

import io
import posixpath
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import anydml

ROOT = Path(__file__).parent.parent
_FROM_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_FOLDERS = {"docs/decisions": "docs/decisions/README.md"}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")

CONTENTS = {
    "Begin": {
        "A first hour": "tutorial",
    },
    "How to": {
        "Check and run operators": "howto/operators",
        "Run DxDispatch models": "howto/dxdispatch",
        "Make one kernel of many": "howto/graphs",
        "Port a program from DirectML": "howto/porting",
        "Check what a WebNN graph computes": "howto/webnn",
        "Look into a model, measure it": "howto/models",
        "A model as a C function": "howto/c-function",
        "More than one machine takes": "howto/many-machines",
        "Get rid of If": "flatten",
        "See what another runtime takes": "check",
        "Add an operator": "contributing",
    },
    "Reference": {
        "Operators": "operators/README",
        "Functions": "reference/functions",
        "Devices, graphs, sessions": "reference/api",
        "Command line": "reference/cli",
        "Errors": "reference/errors",
        "How fast": "benchmarks",
        "How exact": "accuracy",
        "How it was abused": "reliability",
    },
    "Inside": {
        "Sessions": "sessions",
        "Programs": "programs",
        "Where everything is": "map",
        "Why it is so": "decisions/README",
        "What changed": "changelog",
    },
}
"""Titles of pages, and where they are, by what stands above them."""

_SETTINGS = {
    "project": "anydml",
    "version": anydml.__version__,
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "html_theme": "furo",
    "html_title": "anydml",
    "html_show_copyright": False,
    "html_show_sphinx": False,
    "html_copy_source": False,
    "html_static_path": ["_static"],
    "html_css_files": ["site.css"],
    "autodoc_member_order": "bysource",
    "autodoc_typehints": "signature",
    "autodoc_class_signature": "mixed",
    "autodoc_preserve_defaults": True,
    "autodoc_type_aliases": {"Array": "Array", "Tensor": "Tensor"},
    "python_maximum_signature_line_length": 88,
    "add_module_names": False,
    "default_role": "code",
    "myst_heading_anchors": 3,
    "suppress_warnings": ["toc.excluded"],
}


def build(target: Path) -> None:
    """Write the site to `target`.

    Raises:
        SystemExit: with all that Sphinx warns of.
    """
    told = io.StringIO()
    # the functions' overloads stand in a stub, which Sphinx reads for extension modules alone
    stub = ModuleAnalyzer.for_file(ROOT / "anydml" / "functions.pyi", "anydml.functions")
    ModuleAnalyzer.cache["module", "anydml.functions"] = stub
    with tempfile.TemporaryDirectory() as name:
        pages = Path(name) / "pages"
        assemble(pages)
        site = Sphinx(
            pages,
            None,
            target,
            Path(name) / "doctrees",
            "html",
            confoverrides=_SETTINGS,
            status=None,
            warning=told,
            freshenv=True,
        )
        site.connect("html-page-context", _list_pages, priority=400)  # before the theme's
        site.build()
    if told.getvalue():
        raise SystemExit(told.getvalue())


def _list_pages(site: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    """Make the sidebar's list of what is told here: Sphinx would look through all pages for each of them, in
    half of its time. Single operators and decisions are left to the pages that list them."""
    listed = {path for pages in CONTENTS.values() for path in pages.values()}
    shown = page if page in listed else f"{posixpath.dirname(page)}/README"
    lines = []
    for caption, pages in CONTENTS.items():
        lines.append(f'<p class="caption" role="heading"><span class="caption-text">{caption}</span></p><ul>')
        for title, path in pages.items():
            at = f'<a class="reference internal" href="{context["pathto"](path)}">{title}</a>'
            lines.append(f'<li class="toctree-l1{" current" * (path == shown)}">{at}</li>')
        lines.append("</ul>")
    context["toctree"] = lambda **options: "\n".join(lines)


def assemble(pages: Path) -> None:
    """All pages in one folder, as Sphinx reads them."""
    shutil.copytree(ROOT / "docs", pages)
    (pages / "_static").mkdir()
    shutil.copy(ROOT / "tools" / "site.css", pages / "_static")
    for page in pages.rglob("*.md"):
        path = page.relative_to(pages).as_posix()
        _write(page, page.read_text(encoding="utf-8"), f"docs/{path}", path)
    for source, path in _FROM_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        _write(pages / path, text + (_contents() if path == "index.md" else ""), source, path)
    (pages / "reference" / "cli.md").write_text(command_line(), encoding="utf-8")
    for part in ("operators", "decisions"):
        names = sorted(p.stem for p in (pages / part).glob("*.md") if p.stem != "README")
        listed = "\n".join(["", "```{toctree}", ":hidden:", "", *names, "```", ""])
        with (pages / part / "README.md").open("a", encoding="utf-8") as file:
            file.write(listed)


def _write(page: Path, text: str, source: str, path: str) -> None:
    page.write_text(_LINK.sub(lambda match: _led(match, source, path), text), encoding="utf-8")


def _led(match: re.Match[str], source: str, page: str) -> str:
    """A link of a file of the repository as one of a page of the site."""
    image, text, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    file, hash_, anchor = target.partition("#")
    full = posixpath.normpath(posixpath.join(posixpath.dirname(source), file))
    full = _FOLDERS.get(full, full)
    there = full.removeprefix("docs/") if full.startswith("docs/") else _FROM_ROOT.get(full)
    if there is None:
        return text
    return f"{image}[{text}]({posixpath.relpath(there, posixpath.dirname(page) or '.')}{hash_}{anchor})"


def _contents() -> str:
    """All pages as Sphinx wants to be told them."""
    parts = (
        [":caption: " + caption, "", *(f"{title} <{path}>" for title, path in pages.items())]
        for caption, pages in CONTENTS.items()
    )
    return "".join("\n".join(["", "```{toctree}", ":hidden:", *part, "```", ""]) for part in parts)


def command_line() -> str:
    """Every verb's --help as a page."""
    from anydml.cli.main import cli

    parts = [
        "# Command line\n",
        "The same as `python -m anydml`. `anydml VERB --help` shows what stands here.\n",
    ]
    top = click.Context(cli)
    verbs = {"anydml": cli} | {f"anydml {n}": cli.get_command(top, n) for n in cli.list_commands(top)}
    for name, verb in verbs.items():
        assert verb is not None
        context = click.Context(verb, info_name=name, max_content_width=88, terminal_width=88)
        parts.append(f"## {name}\n\n```text\n{verb.get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
