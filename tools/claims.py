"""Which figures the pages show, what measures them, and when that was done: `python -m tools.claims`.

A table of figures says so in a comment above it, in its section:

    <!-- measured 2026-11-23 by python -m bench --models -->

`python -m tools.claims --stale` lists those that are older than the last release in CHANGELOG.md, and exits
with 1 if there are any: measure again before the next one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
MARK = re.compile(r"<!-- measured (\d{4}-\d\d-\d\d) by (.+?) -->")
RELEASE = re.compile(r"^## \S+ \((\d{4}-\d\d-\d\d)\)", re.MULTILINE)
FIGURE = re.compile(r"\d\.\d|\d ?(?:ns|µs|ms|s|KB|MB|GB|ULP)\b")
NOT_MEASURED = "<!-- not measured -->"
"""Above a table whose numbers are versions, ranges, examples."""


@dataclass(frozen=True)
class Claim:
    """A table of figures."""

    page: str
    section: str
    measured: date | None
    command: str


def claims() -> Iterator[Claim]:
    """Every table of figures in the README and docs/ (not the operators' pages and decisions)."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        if page.parent.name not in ("operators", "decisions"):
            yield from _of_page(name, page.read_text(encoding="utf-8"))


def _of_page(name: str, text: str) -> Iterator[Claim]:
    for part in re.split(r"^(?=#+ )", text, flags=re.MULTILINE):
        section = part.partition("\n")[0].lstrip("# ")
        measured, command, silent = None, "", False
        for block in re.split(r"\n\s*\n", part):
            if found := MARK.search(block):
                measured, command = date.fromisoformat(found[1]), found[2]
            silent = not found and (silent or NOT_MEASURED in block)
            rows = [line for line in block.splitlines() if line.startswith("|")][2:]
            if rows and not silent and (command or any(FIGURE.search(row) for row in rows)):
                yield Claim(name, section, measured, command)


def last_release() -> date | None:
    """When CHANGELOG.md says that the last version was released: `## 1.2 (2026-11-23)`."""
    found = RELEASE.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    return date.fromisoformat(found[1]) if found else None


def exists(command: str) -> bool:
    """Whether a command is one of this repository: a target of make, a module, a verb of anydml."""
    made = re.match(r"make (\w+)$", command)
    module = re.match(r"python -m ([\w.]+)", command)
    if made:
        return bool(re.search(rf"^{made[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    return bool(module) and find_spec(module[1]) is not None if module else False


def main() -> None:
    released, only_stale = last_release(), "--stale" in sys.argv[1:]
    table = Table("page", "section", "measured", "by")
    stale = 0
    for claim in claims():
        old = claim.measured is None or (released is not None and claim.measured < released)
        stale += old
        if old or not only_stale:
            when = str(claim.measured) if claim.measured else "nobody says when"
            table.add_row(claim.page, claim.section, f"[red]{when}[/]" if old else when, claim.command)
    Console().print(table)
    print(f"last release: {released or 'none'}; {stale} older than that")
    if only_stale and stale:
        sys.exit(1)


if __name__ == "__main__":
    main()
