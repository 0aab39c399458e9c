"""What the commands share: how they read arguments, and how they print."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from anydml.errors import InvalidInput, InvalidOperator, short_repr
from anydml.files import read_npy
from anydml.ops.enums import FeatureLevel, parse
from anydml.runtime.memory import limit

if TYPE_CHECKING:
    from anydml.flatten_report import Size

EMIT = click.option(
    "--emit",
    type=click.Choice(["text", "llvm", "asm"]),
    help="Print the kernels instead of running them: formulas, LLVM's code, or this machine's.",
)
SET = click.option(
    "--set", "fixed", multiple=True, metavar="NAME=VALUE", help="Fix an input: a literal, or @file.npy."
)
SHAPE = click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,?,b,...",
    help="Fix the sizes of an input: a number; ?: as it is; a name: equal wherever it stands.",
)
RTOL = click.option(
    "--rtol",
    type=click.FloatRange(0),
    metavar="R",
    help="Floats may be atol + R * |b| apart. [default: 0 with --atol; else 1e-5 of the largest, or of 1]",
)
ATOL = click.option(
    "--atol", type=click.FloatRange(0), metavar="A", help="Floats may be A + rtol * |b| apart."
)
_WIDE = 10_000


def quoted(text: str) -> str:
    """An argument as people type it: in the shells of Windows, which know no other quotes, in double ones."""
    if os.name != "nt":
        return shlex.quote(text)
    return text if re.fullmatch(r"[\w@+=:./\\-]+", text) else '"' + text.replace('"', '\\"') + '"'


class Level(click.ParamType):  # type: ignore[type-arg]
    """A feature level: 5_1 or 5.1; as DxDispatch has it, too: 6.2f, which is a number of C.

    `least`: the oldest that makes sense, because of what `why` says.
    """

    name = "level"

    def __init__(self, least: FeatureLevel = FeatureLevel.FL_1_0, why: str = "") -> None:
        self.least, self.why = least, why

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FeatureLevel:
        number = re.fullmatch(r"(\d)(?:[._](\d))?f?", str(value))
        try:
            level = parse(FeatureLevel, f"{number[1]}_{number[2] or 0}" if number else value)
        except InvalidOperator:
            level, why = None, ""
        else:
            why = f"; {self.why}" if self.why else ""
        if level is None or level < self.least:
            known = " | ".join(known.label for known in FeatureLevel if known >= self.least)
            self.fail(f"expected {known}, but got {short_repr(value)}{why}", param, ctx)
        return level


def is_terminal(errors: bool = False) -> bool:
    """Whether somebody looks at what is printed, or at what goes to standard error."""
    stream = sys.stderr if errors else sys.stdout
    return stream is not None and stream.isatty()


def console(errors: bool = False) -> Console:
    """Where tables go: as wide as the terminal; in a file or a pipe no line breaks that nobody asked for."""
    width = None if is_terminal(errors) else _WIDE
    return Console(highlight=False, width=width, stderr=errors)


def table(*heads: str, **options: Any) -> Table:
    """A table whose words are folded where a terminal is narrow: names that lost an end would be others."""
    made = Table(*(Column(head, overflow="fold") for head in heads), **options)
    made.show_header = any(heads)
    return made


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


def named_values(texts: tuple[str, ...], option: str = "--set") -> dict[str, Any]:
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


def whole_shapes(texts: tuple[str, ...], option: str = "--shape") -> dict[str, tuple[int, ...]]:
    """NAME=N,N,... by name: numbers."""
    return {name: tuple(_sizes(option, name, text)) for name, text in pairs(option, texts)}


def _sizes(option: str, name: str, text: str) -> list[int]:
    try:
        return [int(n) for n in text.split(",")] if text else []
    except ValueError as error:
        raise click.UsageError(f"{option} {name}: expected sizes like 1,576, but got {text!r}") from error


def partial_shapes(texts: tuple[str, ...], option: str = "--shape") -> dict[str, list[int | str | None]]:
    """NAME=N,?,b,... by name: numbers, None for ?, and names of sizes."""
    return {name: _partial_sizes(option, name, text) for name, text in pairs(option, texts)}


def _partial_sizes(option: str, name: str, text: str) -> list[int | str | None]:
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
    made = table("", escape(first), escape(second))
    made.add_row("Ifs", f"{before.ifs:,}", f"{after.ifs:,}")
    made.add_row("nodes", f"{before.nodes:,}", f"{after.nodes:,}")
    made.add_row("bytes", f"{before.bytes:,}", f"{after.bytes:,}")
    made.add_row("operations, a free size counting 16", f"{before.work:,}", f"{after.work:,}")
    for word, (was, now) in (
        ("input", (before.inputs, after.inputs)),
        ("output", (before.outputs, after.outputs)),
    ):
        for name in dict.fromkeys((*was, *now)):
            if was.get(name) != now.get(name):
                types = [brief(side.get(name, "-")) for side in (was, now)]
                made.add_row(f"{word} {brief(name)}", *types)
    for name in sorted({*before.operators, *after.operators}):
        counts = [str(side.operators.get(name, 0)) for side in (before, after)]
        if counts[0] != counts[1] and name != "If":
            made.add_row(f"  {name}", *counts)
    return made
