"""Guard pages, hostile files, threads, faults, leaks: all checks, and one table of what they found.

python -m tests.robustness abuse                     the bounded version, under ten minutes
python -m tests.robustness abuse --long              the long one, hours
python -m tests.robustness abuse --only guards leaks some of: guards, hostile, models, nasty, load, faults, leaks, determinism
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID
from rich.table import Table

from tests.robustness import fuzzing, guards, scenarios
from tests.robustness.differential import Checks
from tests.robustness.running import Summary, outcomes
from tests.robustness.scenarios import Figure

Tell = Callable[[float], object]
Check = Callable[[bool, int, Tell], list[Figure]]


def _scenarios(module: str) -> Check:
    return lambda long, seed, tell: scenarios.check(f"tests.robustness.{module}", long, tell)


def _models(count: int, seed: int, tell: Tell) -> list[Figure]:
    """Random models: in sessions, with inputs made constants, flattened in each way."""
    start, summary, wrong = time.monotonic(), Summary(), 0
    seeds = range(seed * 1_000_000, seed * 1_000_000 + count)
    for done, outcome in enumerate(outcomes(seeds, None, Checks()), start=1):
        summary.add(outcome)
        wrong += bool(outcome.findings)
        for finding in outcome.findings:
            print(finding)
        tell(done / count)
    seconds = time.monotonic() - start
    note = f"each on 4 feeds, run again and again, as constants, flattened; {seconds:.0f} s"
    return [Figure("random whole models, against two oracles", count, wrong, note)]


def _nasty(tell: Tell) -> list[Figure]:
    """The hand-made corpus: the tests of hostile files and models."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.xml"
        paths = [str(path) for path in Path(__file__).parent.glob("test_hostile_*.py")]
        command = [sys.executable, "-m", "pytest", *paths, "-n", "logical", f"--junitxml={told}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if not told.exists():
            raise RuntimeError(f"pytest ended: {done.stdout}{done.stderr}")
        tests = list(ElementTree.parse(told).iter("testcase"))
    figures = []
    for module in sorted({test.attrib["classname"] for test in tests}):
        own = [test for test in tests if test.attrib["classname"] == module]
        bad = [t.attrib["name"] for t in own if t.find("failure") is not None or t.find("error") is not None]
        memory = max(int(p.attrib["value"]) for t in own for p in t.iter("property"))
        seconds, slowest = max((float(t.attrib["time"]), t.attrib["name"]) for t in own)
        note = f"peak {memory} MB, slowest {seconds:.1f} s ({slowest})"
        note += f"; bad: {', '.join(bad)}" if bad else ""
        what = module.rpartition("test_")[2].replace("_", " ")
        figures.append(Figure(f"hand-made {what}", len(own), len(bad), note))
    tell(1.0)
    return figures


CHECKS: dict[str, Check] = {
    "guards": lambda long, seed, tell: guards.check(100_000 if long else 3_000, seed, tell),
    "hostile": lambda long, seed, tell: fuzzing.check(200_000 if long else 8_000, seed, tell),
    "models": lambda long, seed, tell: _models(20_000 if long else 2_000, seed, tell),
    "nasty": lambda long, seed, tell: _nasty(tell),
    **{module: _scenarios(module) for module in ("load", "faults", "leaks", "determinism")},
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.robustness abuse", description=__doc__)
    parser.add_argument("--long", action="store_true", help="many times as many of everything")
    parser.add_argument("--seed", type=int, default=0, help="what random cases are drawn from")
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS), metavar="CHECK")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    asked = parser.parse_args(arguments)
    start, figures = time.monotonic(), []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for name in asked.only:
            task = progress.add_task(name, total=1.0)
            figures += CHECKS[name](asked.long, asked.seed, partial(_show, progress, task))
    minutes = (time.monotonic() - start) / 60
    (_print_markdown if asked.markdown else _print)(figures)
    print(f"{platform.platform()}, Python {platform.python_version()}, {minutes:.1f} minutes")
    return int(any(f.bad for f in figures))


def _show(progress: Progress, task: TaskID, done: float) -> None:
    progress.update(task, completed=done)


def _print(figures: list[Figure]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=240)
    table = Table("what was tried", "how often", "went wrong", "")
    for f in figures:
        colour = "red" if f.bad else "green"
        table.add_row(f.what, f"{f.count:,}", f"[{colour}]{f.bad:,}[/]", escape(f.note))
    console.print(table)


def _print_markdown(figures: list[Figure]) -> None:
    print("| what was tried | how often | went wrong | |\n| --- | --: | --: | --- |")
    for f in figures:
        print(f"| {f.what} | {f.count:,} | {f.bad:,} | {f.note} |")
