"""What the verbs of the command line share: how they read arguments, and how they print."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from anydml.problems import InvalidInput, Problem

EMIT = click.option(
    "--emit",
    type=click.Choice(["text", "llvm", "asm"]),
    help="Print the kernels instead of running them: formulas, LLVM's code, or this machine's.",
)
_WIDE = 10_000


def is_terminal() -> bool:
    """Whether somebody looks at what is printed."""
    return sys.stdout is not None and sys.stdout.isatty()


def console() -> Console:
    """Where tables go: as wide as the terminal; in a file or a pipe no line breaks that nobody asked for."""
    return Console(highlight=False) if is_terminal() else Console(highlight=False, width=_WIDE)


def short(text: str) -> str:
    """A text whose longest words, exporters' names, have lost their beginning; whole where nobody looks."""
    if is_terminal():
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
        InvalidInput: no such file, or no array in it.
    """
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is none"
        raise InvalidInput(Problem(where, f"expected a NumPy file, but got {path}: {why}")) from error


def sizes_of(option: str, name: str, text: str) -> list[int]:
    """N,N,... as numbers."""
    try:
        return [int(n) for n in text.split(",")] if text else []
    except ValueError as error:
        raise click.UsageError(f"{option} {name}: expected sizes like 1,576, but got {text!r}") from error


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
