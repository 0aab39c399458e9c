"""The command line: `anydml run` and `anydml operators`; the other verbs have files of their own."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

import anydml
from anydml.builder import CompiledGraph, GraphBuilder
from anydml.cli_bench import bench_command
from anydml.cli_flatten import flatten_command
from anydml.cli_inspect import inspect_command
from anydml.dispatch_timing import DispatchTiming
from anydml.dxdispatch import DispatchModel
from anydml.ir.buffers import write_atomically
from anydml.problems import AnyDMLError, InvalidInput, Problem, nearest, shown
from anydml.session import Session, load
from anydml.spec.catalog import BY_NAME, CATALOG
from anydml.spec.document import markdown, types_in_words
from anydml.spec.enums import FeatureLevel, OperatorType, parse, short_name
from anydml.spec.schema import ONE, Operator

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(anydml.__version__, prog_name="anydml")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """DirectML's operators and ONNX models with control flow, on any machine that runs Python.

    \b
    Exit status: 0 done, 1 the model or its input is at fault, 2 wrong usage.
    """


_EMIT = click.option(
    "--emit",
    type=click.Choice(["text", "llvm", "asm"]),
    help="Print the kernels instead of running them: formulas, LLVM's code, or this machine's.",
)


@cli.command()
@click.argument("name", required=False)
@click.option("--level", metavar="LEVEL", help="Only what exists at this feature level.")
@_EMIT
def operators(name: str | None, level: str | None, emit: str | None) -> None:
    """List the operators, or show NAME: formula, feature levels, constraints, example.

    NAME is DirectML's, with or without prefix, or the Python function's.

    \b
    Examples:
      anydml operators
      anydml operators ELEMENT_WISE_IF
      anydml operators activation_gelu --emit asm
    """
    reached = FeatureLevel.newest() if level is None else parse(FeatureLevel, level, "--level")
    if name is None:
        if emit is not None:
            raise click.UsageError("--emit: name an operator")
        _list_operators(reached)
        return
    operator = _operator(name)
    if emit is not None:
        click.echo(_example_graph(operator).emit(emit))
        return
    page = markdown(operator)
    if sys.stdout.isatty():
        Console().print(Markdown(page))
    else:
        click.echo(page, nl=False)


def _list_operators(level: FeatureLevel) -> None:
    rows = [
        (o.name, f"dml.{o.function}", o.introduced.label, types_in_words(o), "yes" if o.in_place else "no")
        for o in CATALOG
        if o.introduced <= level
    ]
    heads = ("operator", "function", "since", "types (of the first tensor, newest level)", "in place")
    if not sys.stdout.isatty():
        for row in (heads, *rows):
            click.echo("\t".join(row))
        return
    shown = Table(*heads, title=f"{len(rows)} operators", title_justify="left")
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)


def _operator(name: str) -> Operator:
    """The record that a user means."""
    wanted = short_name(OperatorType, name)
    functions = {o.function.upper(): o for o in CATALOG}
    for prefix in ("", "ELEMENT_WISE_", "ACTIVATION_"):
        if prefix + wanted in BY_NAME:
            return BY_NAME[prefix + wanted]
    if wanted in functions:
        return functions[wanted]
    short = [n.removeprefix("ELEMENT_WISE_").removeprefix("ACTIVATION_") for n in BY_NAME]
    message = f"expected an operator that exists here, but got {shown(name)}"
    raise InvalidInput(Problem("operators", message, nearest(wanted, [*BY_NAME, *short])))


def _example_graph(operator: Operator) -> CompiledGraph:
    """The operator alone, over its example's types and rows of 1024."""
    graph = GraphBuilder()
    given = []
    for slot, content in zip(operator.inputs, operator.example.inputs, strict=True):
        sizes = [1, 1] if slot.sizes == ONE else [64, 1024]
        dtype = operator.example_type(slot.dtype)
        given.append(None if content is None else graph.input(slot.parameter, dtype, sizes))
    function = getattr(anydml, operator.function)
    return graph.compile({operator.outputs[0].parameter: function(*given, **operator.example.attributes)})


@cli.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--feed", "-f", "feeds", multiple=True, metavar="NAME=VALUE", help="An input: a literal, or @file.npy."
)
@click.option(
    "--output", "-o", type=click.Path(file_okay=False, path_type=Path), help="Save outputs here, as .npy."
)
@click.option("--threads", type=click.IntRange(1), help="Threads of one run.  [default: all cores]")
@click.option(
    "--feature-level", metavar="LEVEL", help="Of the device that runs a .json model.  [default: newest]"
)
@click.option(
    "--dispatch_iterations", "-i", type=click.IntRange(1), help="Of a .json model: samples of each dispatch."
)
@click.option(
    "--dispatch_repeat", "-r", type=click.IntRange(1), help="Dispatches in each sample, which is their mean."
)
@click.option(
    "--milliseconds_to_run", "-t", type=click.FloatRange(0), help="Time for each dispatch, instead of -i."
)
@click.option("--warmup_samples", "-w", type=click.IntRange(0), help="Samples that are cold.  [default: 1]")
@click.option(
    "--timing_verbosity",
    "-v",
    type=click.IntRange(0, 2),
    help="1: cold and hot timings; 2: each sample, too.",
)
@click.option("--explain", is_flag=True, help="Tell what ran where, and what was folded away.")
@_EMIT
def run(
    model: Path,
    feeds: tuple[str, ...],
    output: Path | None,
    threads: int | None,
    feature_level: str | None,
    explain: bool,
    emit: str | None,
    **timing: float | None,
) -> None:
    """Run MODEL: an ONNX model, or a DxDispatch model of DirectML operators (.json).

    A literal is JSON: a number, true, false, or nested lists; it takes the type of the input.

    \b
    Examples:
      anydml run model.onnx --feed cond=true --feed x=@x.npy --output out/
      anydml run model.onnx -f 'x=[[1, 2], [3, 4]]'
      anydml run operators.json --feature-level 5_0
      anydml run operators.json -i 1000 -v 1
      anydml run operators.json --emit asm
    """
    timing = {name: value for name, value in timing.items() if value is not None}
    if model.suffix.lower() == ".json":
        unused = [n for n, v in (("--feed", feeds), ("--output", output), ("--explain", explain)) if v]
        if unused:
            raise click.UsageError(f"{', '.join(unused)}: only for ONNX models; a .json model says so itself")
        described = DispatchModel(model, feature_level, DispatchTiming(**timing))  # type: ignore[arg-type]
        if emit is None:
            described.run(click.echo)
            return
        for name, operator in described.operators.items():
            click.echo(f"; {name}: {operator!r}\n{operator.emit(emit)}")
        return
    if emit is not None:
        raise click.UsageError("--emit: only for .json models")
    for name in ("feature-level" if feature_level is not None else "", *timing):
        if name:
            raise click.UsageError(f"--{name}: only for .json models")
    session = load(model, threads=threads)
    with interruptible():
        results = session.run(None, _feed(session, feeds))
    names = [o.name for o in session.get_outputs()]
    if output is not None:  # first, so that a reader who closes the pipe loses no file
        output.mkdir(parents=True, exist_ok=True)
        for name, file, array in _files(names, results):
            write_atomically(output / file, partial(np.save, arr=array, allow_pickle=False))
            click.echo(f"{name}: saved to {output / file}", err=True)
    for name, result in zip(names, results, strict=True):
        _show(name, result)
    if explain:
        click.echo(session.explain())


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once: a library that computes for minutes looks at no signal."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _feed(session: Session, feeds: tuple[str, ...]) -> dict[str, Any]:
    declared = {i.name: i for i in session.get_inputs()}
    values: dict[str, Any] = {}
    for feed in feeds:
        name, equals, text = feed.partition("=")
        if not equals:
            raise click.UsageError(f"--feed {feed!r}: expected NAME=VALUE")
        if name in values:
            raise click.UsageError(f"--feed {name}: given twice")
        argument = declared.get(name)
        if text.startswith("@"):
            values[name] = _load_array(name, Path(text[1:]))
        elif argument is None:
            values[name] = np.zeros(0)  # the session names the inputs that exist
        else:
            rank = None if argument.shape is None else len(argument.shape)
            values[name] = _literal(name, text, argument.type, rank)
    return values


def _load_array(name: str, path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(
            Problem(f"input {name!r}", f"expected a NumPy file, but got {path}: {error}")
        ) from error


_NUMPY = {"float": "float32", "double": "float64", "string": "object"}


def _literal(name: str, text: str, type: str, rank: int | None) -> Any:
    """A JSON literal as the input's type; a single value fills an input of any rank with size 1."""
    where = f"input {name!r}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, or absurdly long or deep
        if "string" not in type:
            raise InvalidInput(
                Problem(where, f"expected a JSON literal or @file.npy, but got {shown(text)}", f"{error}")
            ) from error
        value = text
    sequence = re.fullmatch(r"seq\(tensor\((\w+)\)\)", type)
    tensor = re.fullmatch(r"tensor\((\w+)\)", type)
    if sequence and isinstance(value, list):
        return [_array(where, v, sequence[1], None) for v in value]
    if tensor:
        return _array(where, value, tensor[1], rank)
    raise InvalidInput(
        Problem(where, f"expected {type}, which a literal cannot give", "use the Python interface")
    )


def _array(where: str, value: Any, type: str, rank: int | None) -> Any:
    dtype = np.dtype(_NUMPY.get(type, type))
    try:
        natural = np.array(value)
        exact = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc", "O": "UO"}[dtype.kind]
        if natural.size and natural.dtype.kind not in exact:
            raise ValueError(f"it is {natural.dtype}")
        array = np.array(value, dtype)
        if dtype.kind in "iu" and natural.size and (array != natural).any():
            raise ValueError("a number is out of range")
    except (ValueError, OverflowError, TypeError) as error:
        message = f"expected a literal of {dtype}, but got {shown(value)}"
        raise InvalidInput(Problem(where, message, str(error))) from error
    return array.reshape((1,) * rank) if rank and array.ndim == 0 else array


def _show(name: str, result: Any) -> None:
    if isinstance(result, list):
        click.echo(f"{name}: sequence of {len(result)}")
        for k, item in enumerate(result):
            _show(f"{name}[{k}]", item)
    elif isinstance(result, np.ndarray):
        sizes = ",".join(map(str, result.shape))
        click.echo(f"{name}: {'string' if result.dtype == object else result.dtype}[{sizes}]")
        click.echo(np.array2string(result, threshold=200, prefix="  ") if result.size else "  (empty)")
    else:
        click.echo(f"{name}: none")


def _files(names: list[str], results: list[Any]) -> list[tuple[str, str, Any]]:
    """(output, file name, array) of every array; names that a file system takes, each once."""
    found: list[tuple[str, str, Any]] = []
    taken: set[str] = set()
    for name, result in zip(names, results, strict=True):
        items = (
            [(f"{name}.{k}", r) for k, r in enumerate(result)]
            if isinstance(result, list)
            else [(name, result)]
        )
        for item, array in items:
            if not isinstance(array, np.ndarray):
                continue
            stem = re.sub(r"[^\w.-]", "_", item).lstrip(".") or "output"
            file, count = f"{stem}.npy", 1
            while file.lower() in taken:
                count += 1
                file = f"{stem}-{count}.npy"
            taken.add(file.lower())
            found.append((item, file, array.astype(str) if array.dtype == object else array))
    return found


cli.add_command(bench_command)
cli.add_command(flatten_command)
cli.add_command(inspect_command)


def main() -> None:
    """The entry point: errors of ours are told on stderr, without a traceback unless asked for."""
    debug = "--debug" in sys.argv[1:]
    try:
        cli()
    except (AnyDMLError, OSError) as error:
        if debug:
            raise
        for line in str(error).splitlines():
            click.echo(f"anydml: {line}", err=True)
        sys.exit(1)
