"""The command line's `anydml run`: an ONNX model on given inputs, or a DxDispatch model."""

from __future__ import annotations

import json
import re
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from anydml.cli.common import EMIT, array_in, pairs
from anydml.cli.files import MODEL, given_model, saved
from anydml.dxdispatch.model import DispatchModel
from anydml.dxdispatch.timing import DispatchTiming
from anydml.errors import InvalidInput, Problem, UnknownFieldWarning, short_repr
from anydml.session import Session, load

_DIRECTX_FLAGS = (
    ("--show_adapters", "-s"),
    ("--clear_shader_caches",),
    ("--print_hlsl_disassembly",),
    ("--xbox_allow_precompile",),
)
_DIRECTX_VALUES = (
    ("--adapter", "-a"),
    ("--queue_type", "-q"),
    ("--post_dispatch_barriers",),
    ("--pix_capture_type", "-c"),
    ("--pix_capture_name",),
)


def _needs_directx(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        raise click.UsageError(f"{parameter.opts[0]}: needs Direct3D 12")


def _directx_options(command: Callable[..., None]) -> Callable[..., None]:
    """DxDispatch's options that mean nothing without DirectX, so that they are told apart from mistakes."""
    for names in (*_DIRECTX_FLAGS, *_DIRECTX_VALUES):
        command = click.option(
            *names, is_flag=names in _DIRECTX_FLAGS, hidden=True, expose_value=False, callback=_needs_directx
        )(command)
    return command


def _pairs(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, list[int]]:
    """NAME:N,N,... by name, as DxDispatch writes it; names may have colons."""
    found: dict[str, list[int]] = {}
    for text in texts:
        name, _, numbers = text.rpartition(":")
        hint = "; inputs are given by --feed NAME=VALUE" if "=" in text else ""
        if not name or not re.fullmatch(r"(\d{1,18}(,\d{1,18})*)?", numbers):
            raise click.BadParameter(f"expected {parameter.metavar}, but got {text!r}{hint}")
        found[name] = [int(n) for n in numbers.split(",")] if numbers else []
    return found


@click.command("run")
@MODEL
@click.option(
    "--feed", "feeds", multiple=True, metavar="NAME=VALUE", help="An input: a literal, or @file.npy."
)
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save outputs in this folder, as .npy.",
)
@click.option("--threads", type=click.IntRange(1), help="Threads of one run.  [default: all cores]")
@click.option("--explain", is_flag=True, help="Tell what ran where, and what was folded away.")
@click.option(
    "--onnx_free_dim_name_override",
    "-f",
    "dims",
    multiple=True,
    metavar="NAME:N",
    callback=_pairs,
    help="A symbol of the inputs' shapes, fixed.",
)
@click.option(
    "--feature-level", metavar="LEVEL", help="Of the device that runs a .json model.  [default: newest]"
)
@click.option(
    "--binding_shape",
    "-b",
    "shapes",
    multiple=True,
    metavar="NAME:N,N,...",
    callback=_pairs,
    help="The shape of an input or output of an ONNX model that is dispatched.",
)
@click.option(
    "--dispatch_iterations", "-i", type=click.IntRange(1), help="Samples of each dispatch.  [default: 1]"
)
@click.option(
    "--dispatch_repeat", "-r", type=click.IntRange(1), help="Dispatches in each sample, which is their mean."
)
@click.option(
    "--milliseconds_to_run", "-t", type=click.FloatRange(0), help="Time for each dispatch, instead of -i."
)
@click.option(
    "--dispatch_interval", "-I", type=click.FloatRange(0), help="Milliseconds between samples, at least."
)
@click.option("--warmup_samples", "-w", type=click.IntRange(0), help="Samples that are cold.  [default: 1]")
@click.option(
    "--timing_verbosity",
    "-v",
    type=click.IntRange(0, 2),
    help="1: cold and hot timings; 2: each sample, too.",
)
@EMIT
@_directx_options
def run_command(
    model: str,
    feeds: tuple[str, ...],
    output: Path | None,
    threads: int | None,
    explain: bool,
    dims: dict[str, list[int]],
    feature_level: str | None,
    shapes: dict[str, list[int]],
    emit: str | None,
    **timing: float | None,
) -> None:
    """Run MODEL: an ONNX model, or a DxDispatch model of DirectML operators (.json).

    MODEL may be -, standard input, or a pipe; what begins with { is a DxDispatch model then. Fields of such
    a model that are not known are ignored, and told on standard error.

    A literal is JSON: a number, true, false, or nested lists; it takes the type of the input.

    The options from -b on are DxDispatch's. Given one of them, an ONNX model is dispatched as that tool
    does: on zeros, free dimensions being 1, and what is printed is the time that it takes.

    \b
    Examples:
      anydml run model.onnx --feed cond=true --feed x=@x.npy --output out/
      anydml run model.onnx --feed 'x=[[1, 2], [3, 4]]'
      anydml run operators.json --feature-level 5_0
      anydml run operators.json -i 1000 -v 1
      anydml run operators.json --emit asm
      anydml run model.onnx -f batch:8 -b x:8,576 -t 2000

    Exit codes: 0, done; 1, the model or its input is at fault; 2, wrong usage.
    """
    for name, numbers in dims.items():
        if len(numbers) != 1:
            raise click.UsageError(f"-f {name}: expected one number")
    symbols = {name: numbers[0] for name, numbers in dims.items()}
    timing = {name: value for name, value in timing.items() if value is not None}
    given = given_model(model)
    if given.is_dispatch or shapes or timing:
        unused = [n for n, v in (("--feed", feeds), ("--output", output), ("--explain", explain)) if v]
        if unused:
            kind = "only for ONNX models; a .json model's resources hold its inputs"
            kind = kind if given.is_dispatch else "not with -b to -v"
            raise click.UsageError(f"{', '.join(unused)}: {kind}")
        if threads is not None:
            raise click.UsageError("--threads: set ANYDML_NUM_THREADS for what is dispatched")
        how = DispatchTiming(**timing)  # type: ignore[arg-type]
        with given.on_disk() as path, _print_warnings():
            dispatched = DispatchModel(path, feature_level, how, dims=symbols, shapes=shapes)
        _dispatch(dispatched, emit)
        return
    for option, value in (("--feature-level", feature_level), ("--emit", emit)):
        if value is not None:
            raise click.UsageError(f"{option}: only for .json models")
    session = load(given.source, threads=threads, dims=symbols or None)
    with interruptible():
        results = session.run(None, _feed(session, feeds))
    names = [o.name for o in session.get_outputs()]
    if output is not None:  # first, so that a reader who closes the pipe loses no file
        for line in saved(output, names, results):
            click.echo(line, err=True)
    for name, result in zip(names, results, strict=True):
        _show(name, result)
    if explain:
        click.echo(session.explain())


@contextmanager
def _print_warnings() -> Iterator[None]:
    """Tell the warnings about fields that are not known as the command line tells things."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnknownFieldWarning)
        yield
    for one in caught:
        if issubclass(one.category, UnknownFieldWarning):
            click.echo(f"anydml: warning: {one.message}", err=True)
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _dispatch(model: DispatchModel, emit: str | None) -> None:
    if emit is None:
        with interruptible():
            model.run(click.echo)
        return
    for name, operator in model.operators.items():
        click.echo(f"; {name}\n{operator.emit(emit)}")
    for name in model.models:
        click.echo(f"; {name}: an ONNX model, which is not one kernel")


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
    for name, text in pairs("--feed", feeds):
        argument = declared.get(name)
        if text.startswith("@"):
            values[name] = array_in(f"input {name!r}", text[1:])
        elif argument is None:
            values[name] = np.zeros(0)  # the session names the inputs that exist
        else:
            rank = None if argument.shape is None else len(argument.shape)
            values[name] = _literal(name, text, argument.type, rank)
    return values


_NUMPY = {"float": "float32", "double": "float64", "string": "object"}


def _literal(name: str, text: str, type: str, rank: int | None) -> Any:
    """A JSON literal as the input's type; a single value fills an input of any rank with size 1."""
    where = f"input {name!r}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, or absurdly long or deep
        if "string" not in type:
            hint = "true and false are written small" if text.lower() in ("true", "false") else ""
            message = f"expected a JSON literal or @file.npy, but got {short_repr(text)}"
            raise InvalidInput(Problem(where, message, hint)) from error
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
    if dtype.kind == "b" and _all_of(value, (0, 1)):
        return _shape_to_rank(np.array(value, bool), rank)
    try:
        natural = np.array(value)
        exact = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc", "O": "UO"}[dtype.kind]
        if natural.size and natural.dtype.kind not in exact:
            raise ValueError(f"it is {natural.dtype}")
        array = np.array(value, dtype)
        if dtype.kind in "iu" and natural.size and (array != natural).any():
            raise ValueError("a number is out of range")
    except (ValueError, OverflowError, TypeError) as error:
        message = f"expected a literal of {dtype}, but got {short_repr(value)}"
        why = "its lists differ in length" if "inhomogeneous" in str(error) else str(error)
        raise InvalidInput(Problem(where, message, why)) from error
    return _shape_to_rank(array, rank)


def _shape_to_rank(array: Any, rank: int | None) -> Any:
    return array.reshape((1,) * rank) if rank and array.ndim == 0 else array


def _all_of(value: Any, allowed: tuple[Any, ...]) -> bool:
    return all(_all_of(v, allowed) for v in value) if isinstance(value, list) else value in allowed


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
