"""What the commands share: how they read arguments, and how they print."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from anydml.errors import InvalidInput
from anydml.files import read_npy
from anydml.runtime.memory import limit

if TYPE_CHECKING:
    from anydml.flatten_report import Size

EMIT = click.option(
    "--emit",
    type=click.Choice(["text", "llvm", "asm"]),
    help="Print the kernels instead of running them: formulas, LLVM's code, or this machine's.",
)
_WIDE = 10_000


def is_terminal(errors: bool = False) -> bool:
    """Whether somebody looks at what is printed, or at what goes to standard error."""
    stream = sys.stderr if errors else sys.stdout
    return stream is not None and stream.isatty()


def console(errors: bool = False) -> Console:
    """Where tables go: as wide as the terminal; in a file or a pipe no line breaks that nobody asked for."""
    width = None if is_terminal(errors) else _WIDE
    return Console(highlight=False, width=width, stderr=errors)


def short(text: str, errors: bool = False) -> str:
    """A text whose longest words, exporters' names, have lost their beginning; whole where nobody looks."""
    if is_terminal(errors):
        text = re.sub(r"[^\s,()'\[\]]{41,}", lambda name: f"…{name[0][-36:]}", text)
    return escape(text)


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
    values: dict[str, Any] = {}
    for name, text in pairs(option, texts):
        if text.startswith("@"):
            values[name] = array_in(f"{option} {name}", text[1:])
            continue
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text  # a string, if the input is one
    return values


def array_in(where: str, path: str) -> Any:
    """The array of a .npy file; `where`: how messages call what it is for.

    Raises:
        InvalidInput: no such file, no array in it, or one larger than this machine's memory.
    """
    try:
        return read_npy(path, limit())
    except InvalidInput as error:
        raise InvalidInput(*(p.under(where) for p in error.problems)) from error


def sizes_of(option: str, name: str, text: str) -> list[int]:
    """N,N,... as numbers."""
    try:
        return [int(n) for n in text.split(",")] if text else []
    except ValueError as error:
        raise click.UsageError(f"{option} {name}: expected sizes like 1,576, but got {text!r}") from error


def partial_sizes_of(option: str, name: str, text: str) -> list[int | str | None]:
    """N,N,... as numbers, names of sizes, and None for ?."""
    found: list[int | str | None] = []
    for word in (part.strip() for part in text.split(",") if text):
        if not (word == "?" or word.isidentifier() or (word.isascii() and word.isdigit())):
            message = f"{option} {name}: expected sizes like 1,576 or ?,3,56 or b,3,56, but got {text!r}"
            raise click.UsageError(message)
        found.append(None if word == "?" else int(word) if word.isdigit() else word)
    return found


@contextmanager
def bar(doing: str, wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal; nothing elsewhere."""
    errors = Console(stderr=True)
    if not wanted or not errors.is_terminal:
        yield None
        return
    columns = (TextColumn(doing), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=errors, transient=True) as progress:
        task = progress.add_task("")
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def busy(doing: str) -> Iterator[None]:
    """A sign on a terminal that something goes on, for what cannot say how far it is; nothing elsewhere."""
    errors = Console(stderr=True)
    if not errors.is_terminal:
        yield
        return
    with errors.status(doing):
        yield


def compared(
    before: Size, after: Size, brief: Callable[[str], str], first: str = "before", second: str = "after"
) -> Table:
    """Two models side by side: what is in each, and inputs and outputs that differ."""
    table = Table("", escape(first), escape(second))
    table.add_row("Ifs", f"{before.ifs:,}", f"{after.ifs:,}")
    table.add_row("nodes", f"{before.nodes:,}", f"{after.nodes:,}")
    table.add_row("bytes", f"{before.bytes:,}", f"{after.bytes:,}")
    table.add_row("operations, a free size counting 16", f"{before.work:,}", f"{after.work:,}")
    for word, (was, now) in (
        ("input", (before.inputs, after.inputs)),
        ("output", (before.outputs, after.outputs)),
    ):
        for name in dict.fromkeys((*was, *now)):
            if was.get(name) != now.get(name):
                types = [brief(side.get(name, "-")) for side in (was, now)]
                table.add_row(f"{word} {brief(name)}", *types)
    for name in sorted({*before.operators, *after.operators}):
        counts = [str(side.operators.get(name, 0)) for side in (before, after)]
        if counts[0] != counts[1] and name != "If":
            table.add_row(f"  {name}", *counts)
    return table
