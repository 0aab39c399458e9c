"""Abuse, faults and load: all checks, and one table of what they found. `make abuse` is the bounded version.

python -m abuse                     the bounded version, under ten minutes
python -m abuse --long              the long one, hours
python -m abuse --only guards leaks some of: guards, hostile, models, nasty, load, faults, leaks, determinism
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from functools import partial

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.table import Table

from abuse import guards, hostile, nasty, random_models, scenario
from abuse.figures import Figure

Tell = Callable[[float], object]
Check = Callable[[bool, int, Tell], list[Figure]]


def _scenarios(module: str) -> Check:
    return lambda long, seed, tell: scenario.check(f"abuse.{module}", long, tell)


CHECKS: dict[str, Check] = {
    "guards": lambda long, seed, tell: guards.check(100_000 if long else 3_000, seed, tell),
    "hostile": lambda long, seed, tell: hostile.check(200_000 if long else 8_000, seed, tell),
    "models": lambda long, seed, tell: random_models.check(20_000 if long else 2_000, seed, tell),
    "nasty": lambda long, seed, tell: nasty.check(tell),
    **{module: _scenarios(module) for module in ("load", "faults", "leaks", "determinism")},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m abuse", description="Abuse, faults and load.")
    parser.add_argument("--long", action="store_true", help="many times as many of everything")
    parser.add_argument("--seed", type=int, default=0, help="what random cases are drawn from")
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS), metavar="CHECK")
    parser.add_argument("--markdown", action="store_true", help="print the table for a page")
    asked = parser.parse_args()
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
        table.add_row(f.what, f"{f.count:,}", f"[{colour}]{f.bad:,}[/]", f.note)
    console.print(table)


def _print_markdown(figures: list[Figure]) -> None:
    print("| what was tried | how often | went wrong | |\n| --- | --: | --: | --- |")
    for f in figures:
        print(f"| {f.what} | {f.count:,} | {f.bad:,} | {f.note} |")


if __name__ == "__main__":
    sys.exit(main())
