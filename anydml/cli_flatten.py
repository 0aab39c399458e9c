"""The command line's `anydml flatten`: options to arguments, and the report as tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from anydml.flattening import Report, flatten
from anydml.onnx.export import save
from anydml.problems import InvalidInput, Problem, shown

_COLOURS = {"folded": "green", "merged": "green", "converted": "cyan", "guarded": "cyan", "kept": "yellow"}


@click.command("flatten")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--set", "fixed", multiple=True, metavar="NAME=VALUE", help="Fix an input: a literal, or @file.npy."
)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=N,N,...", help="Fix the sizes of an input.")
@click.option(
    "--convert",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Run both branches of what cannot be folded, and choose.",
)
@click.option(
    "--max-extra-cost",
    type=click.FloatRange(0),
    default=1.0,
    show_default=True,
    help="For auto: the work of a branch that is not taken, in terms of what else runs.",
)
@click.option(
    "--witness", "witnesses", multiple=True, metavar="NAME=N,N,...", help="Sizes on which nothing fails."
)
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Compare both models on random inputs."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of these inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--require-none", is_flag=True, help="If an If remains, write nothing and exit with 2.")
def flatten_command(
    model: Path,
    output: Path,
    fixed: tuple[str, ...],
    shapes: tuple[str, ...],
    convert: Any,
    max_extra_cost: float,
    witnesses: tuple[str, ...],
    verify: bool,
    seed: int,
    as_json: bool,
    require_none: bool,
) -> None:
    """Write MODEL without its Ifs to OUTPUT, for devices that have no control flow.

    An If is folded where its condition follows from what is known; else both of its branches run and one
    result is chosen, where that is right and costs little. A fixed input disappears from the model's inputs.

    \b
    Examples:
      anydml flatten model.onnx flat.onnx
      anydml flatten vad.onnx flat.onnx --set sr=16000 --shape input=1,576 --shape state=2,1,128
      anydml flatten model.onnx flat.onnx --convert always --require-none

    Exit codes: 0, written; 1, something is wrong, and nothing was written; 2, an If remains (--require-none).
    """
    values = named_values("--set", fixed)
    with bar("verifying", verify) as progress:
        flat, report = flatten(
            model,
            fixed=values,
            shapes={n: sizes_of("--shape", n, t) for n, t in pairs("--shape", shapes)},
            convert=convert,
            max_extra_cost=max_extra_cost,
            witness={n: sizes_of("--witness", n, t) for n, t in pairs("--witness", witnesses)},
            verify=verify,
            seed=seed,
            progress=progress,
        )
    refused = require_none and report.left > 0
    if not refused:
        save(flat, model.resolve().parent, output)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report, None if refused else output)
    if refused:
        click.echo(f"anydml: {report.left} of {report.before.ifs} Ifs remain; nothing was written", err=True)
        sys.exit(2)


def pairs(option: str, texts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """NAME=VALUE, each name once."""
    seen = set()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{option} {text!r}: expected NAME=VALUE")
        if name in seen:
            raise click.UsageError(f"{option} {name}: given twice")
        seen.add(name)
        yield name, value


def named_values(option: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE by name: literals as JSON, arrays from files, and what is neither as a string."""
    return {name: _value(option, name, text) for name, text in pairs(option, texts)}


def _value(option: str, name: str, text: str) -> Any:
    try:
        return np.load(text[1:], allow_pickle=False) if text.startswith("@") else json.loads(text)
    except (OSError, EOFError) as error:
        message = f"expected a NumPy file, but got {text[1:]}: {error}"
        raise InvalidInput(Problem(f"{option} {name}", message)) from error
    except (ValueError, RecursionError):
        return text  # a string, if the input is one


def sizes_of(option: str, name: str, text: str) -> list[int]:
    """N,N,... as numbers."""
    try:
        return [int(n) for n in text.split(",")] if text else []
    except ValueError as error:
        message = f"expected sizes like 1,576, but got {shown(text)}"
        raise InvalidInput(Problem(f"{option} {name}", message)) from error


@contextmanager
def bar(doing: str, wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal; nothing elsewhere."""
    console = Console(stderr=True)
    if not wanted or not console.is_terminal:
        yield None
        return
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("")
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print(report: Report, output: Path | None) -> None:
    console = Console(highlight=False)
    if report.ifs:
        table = Table("If", "what became of it", "nodes", "why")
        for one in report.ifs:
            colour = _COLOURS.get(one.decision, "white")
            table.add_row(one.path, f"[{colour}]{one.decision}[/]", f"{one.nodes:+,}", one.because)
        console.print(table)
    before, after = report.before, report.after
    table = Table("", "before", "after")
    table.add_row("Ifs", f"{before.ifs:,}", f"{after.ifs:,}")
    table.add_row("nodes", f"{before.nodes:,}", f"{after.nodes:,}")
    table.add_row("bytes", f"{before.bytes:,}", f"{after.bytes:,}")
    table.add_row("operations, about", f"{before.work:,}", f"{after.work:,}")
    for name in sorted({*before.operators, *after.operators}):
        counts = [str(side.operators.get(name, 0)) for side in (before, after)]
        if counts[0] != counts[1] and name != "If":
            table.add_row(f"  {name}", *counts)
    console.print(table)
    done = report.verified
    if done is not None:
        refused = f", both refused {done.refused} others" if done.refused else ""
        console.print(
            f"verified on {done.agreed} random inputs with {done.provider}{refused} (seed {done.seed})"
        )
        if not done.agreed:
            console.print("[yellow]no random input was accepted by the original, so nothing was compared[/]")
    if output is not None:
        console.print(f"written to {output}", soft_wrap=True)
