"""The command line's `anydml run`: an ONNX model on given inputs, or a DxDispatch model."""

from __future__ import annotations

import platform
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from anydml.cli.common import EMIT, Level
from anydml.cli.feeds import feed, how_to_feed
from anydml.cli.files import GivenModel, given_model, saved
from anydml.dxdispatch.model import DispatchModel, find_model
from anydml.dxdispatch.no_effect import NO_EFFECT
from anydml.dxdispatch.onnx_models import denoted_dims
from anydml.dxdispatch.timing import DispatchTiming
from anydml.errors import InvalidInput, UnknownFieldWarning, counted
from anydml.ops.enums import FeatureLevel
from anydml.runtime.threads import default_threads
from anydml.session import load


def _say_no_effect(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value in (None, False, ()) or context.resilient_parsing:
        return
    why = _NO_EFFECT[parameter.opts[0]].why
    click.echo(f"anydml: {parameter.opts[0]}: nothing is done: {why}", err=True)
    context.meta.setdefault(_GIVEN, []).append(parameter.opts[0])


_NO_EFFECT = {option.names[0]: option for option in NO_EFFECT}
_GIVEN = "anydml.options_without_effect"


def _no_effect_options(command: Callable[..., None]) -> Callable[..., None]:
    """DxDispatch's options that mean nothing on a CPU: its command lines run, and are told so."""
    for option in NO_EFFECT:
        command = click.option(
            *option.names,
            is_flag=not option.takes_value,
            multiple=option.multiple,
            hidden=True,
            expose_value=False,
            callback=_say_no_effect,
        )(command)
    return command


def _sizes(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, int]:
    """NAME:N by name."""
    found = _pairs(context, parameter, texts)
    for name, numbers in found.items():
        if len(numbers) != 1:
            raise click.UsageError(f"{parameter.opts[-1]} {name}: expected one number")
    return {name: numbers[0] for name, numbers in found.items()}


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


_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("run", context_settings={"help_option_names": ["--help", "-h"]})
@click.argument("model", metavar="MODEL", required=False, type=click.Path(allow_dash=True))
@click.option(
    "--feed", "feeds", multiple=True, metavar="NAME=VALUE", help="An input: a literal, or @file.npy."
)
@click.option("--output", type=_FOLDER, help="Save outputs in this folder, as .npy.")
@click.option("-o", "short_output", type=_FOLDER, help="The same; for a .json model, nothing.")
@click.option("--threads", type=click.IntRange(1), help="Threads of one run.  [default: all cores]")
@click.option("--explain", is_flag=True, help="Tell what ran where, and what was folded away.")
@click.option(
    "--onnx_free_dim_name_override",
    "-f",
    "dims",
    multiple=True,
    metavar="NAME:N",
    callback=_sizes,
    help="A symbol of the inputs' shapes, fixed.",
)
@click.option(
    "--onnx_free_dim_denotation_override",
    "-F",
    "denotations",
    multiple=True,
    metavar="NAME:N",
    callback=_sizes,
    help="The same by what dimensions denote, such as DATA_BATCH.",
)
@click.option("--model", "-m", "named", type=click.Path(allow_dash=True), help="Another way to give MODEL.")
@click.option(
    "--feature-level",
    "--dml_feature_level",
    metavar="LEVEL",
    type=Level(),
    help="Of the device that runs a .json model, as 5_0 or 5.0.  [default: newest]",
)
@click.option("--relaxed", is_flag=True, help="Take buffers that Direct3D would not, for a .json model.")
@click.option("--input_path", type=_FOLDER, help="Where files to read are.  [default: where MODEL is]")
@click.option("--output_path", type=_FOLDER, help="Where a .json model writes.  [default: here]")
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
@click.option("--print_commands", is_flag=True, help="A line before and after each command.")
@click.option("--show_adapters", "-s", is_flag=True, help="Tell what everything runs on.")
@EMIT
@_no_effect_options
@click.pass_context
def run_command(
    context: click.Context,
    /,
    model: str | None,
    named: str | None,
    show_adapters: bool,
    input_path: Path | None,
    **options: Any,
) -> None:
    """Run MODEL: an ONNX model, or a DxDispatch model of DirectML operators (.json).

    MODEL may be -, standard input, or a pipe; what begins with { is a DxDispatch model then. Fields of such
    a model that are not known are ignored, and told on standard error.

    A literal is JSON: a number, true, false, or nested lists; it takes the type of the input.

    The options from -b on are DxDispatch's. Given one of them, an ONNX model is dispatched as that tool
    does: on zeros, free dimensions being 1, and what is printed is the time that it takes. That tool's other
    options are taken, too; those that mean nothing on a CPU say so.

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
    if show_adapters:
        threads = default_threads()
        click.echo(f"anydml: this machine's CPU ({platform.machine()}, {counted(threads, 'thread')})")
        context.meta.setdefault(_GIVEN, []).append("--show_adapters")
    if model is None and named is None and context.meta.get(_GIVEN):
        return
    given = _given(context, model, named, input_path)
    chosen = _Chosen(**options)
    if chosen.is_dispatched(given, context.meta.get(_GIVEN, [])):
        _run_dispatched(given, chosen, input_path)
    else:
        _run_session(given, chosen)


def _given(
    context: click.Context, model: str | None, named: str | None, input_path: Path | None
) -> GivenModel:
    """MODEL, or what -m names instead; it may lie in the folder of inputs."""
    if model is None and named is None:
        raise click.MissingParameter(ctx=context, param=_model_argument(context))
    if model is not None and named is not None:
        raise click.UsageError(f"expected MODEL or -m, but got both, {model} and {named}")
    text = model if named is None else named
    assert text is not None
    path = text if text == "-" else str(find_model(text, input_path))
    checked = click.Path(exists=True, dir_okay=False, allow_dash=True)
    return given_model(str(checked.convert(path, _model_argument(context), context)))


def _model_argument(context: click.Context) -> click.Parameter:
    return next(p for p in context.command.params if isinstance(p, click.Argument))


class _Chosen:
    """The options of `anydml run`."""

    def __init__(
        self,
        feeds: tuple[str, ...],
        output: Path | None,
        short_output: Path | None,
        threads: int | None,
        explain: bool,
        dims: dict[str, int],
        denotations: dict[str, int],
        feature_level: FeatureLevel | None,
        relaxed: bool,
        output_path: Path | None,
        shapes: dict[str, list[int]],
        print_commands: bool,
        emit: str | None,
        **timing: float | None,
    ) -> None:
        self.feeds, self.output, self.short_output = feeds, output, short_output
        self.threads, self.explain, self.emit = threads, explain, emit
        self.dims, self.denotations, self.shapes = dims, denotations, shapes
        self.feature_level, self.relaxed = feature_level, relaxed
        self.output_path, self.print_commands = output_path, print_commands
        self.timing = {name: value for name, value in timing.items() if value is not None}

    def is_dispatched(self, given: GivenModel, told: Sequence[str]) -> bool:
        """Whether DxDispatch's way is asked for; options of its that do nothing ask for it, too, alone."""
        if given.is_dispatch or self.shapes or self.timing or self.print_commands:
            return True
        session = self.feeds or self.output or self.short_output or self.explain
        return bool((told or self.feature_level) and not session)


def _run_dispatched(given: GivenModel, chosen: _Chosen, input_path: Path | None) -> None:
    used = (("--feed", chosen.feeds), ("--output", chosen.output), ("--explain", chosen.explain))
    if unused := [name for name, value in used if value]:
        kind = "only for ONNX models; a .json model's resources hold its inputs"
        kind = kind if given.is_dispatch else "not with -b to -v"
        raise click.UsageError(f"{', '.join(unused)}: {kind}")
    if chosen.threads is not None:
        raise click.UsageError("--threads: set ANYDML_NUM_THREADS for what is dispatched")
    if chosen.short_output is not None:
        why = "DxDispatch names PIX captures so, and there are none; writeFile writes files"
        click.echo(f"anydml: -o: nothing is done: {why}", err=True)
    how = DispatchTiming(**chosen.timing)  # type: ignore[arg-type]
    with given.on_disk() as path, _print_warnings():
        model = DispatchModel(
            path,
            chosen.feature_level,
            how,
            dims=chosen.dims,
            denotations=chosen.denotations,
            shapes=chosen.shapes,
            input_path=input_path,
            output_path=chosen.output_path,
            relaxed=chosen.relaxed,
        )
    if chosen.emit is None:
        with interruptible():
            model.run(click.echo, print_commands=chosen.print_commands)
        return
    for name, operator in model.operators.items():
        click.echo(f"; {name}\n{operator.emit(chosen.emit)}")
    for name in model.models:
        click.echo(f"; {name}: an ONNX model, which is not one kernel")


def _run_session(given: GivenModel, chosen: _Chosen) -> None:
    for option, value in (("--relaxed", chosen.relaxed), ("--emit", chosen.emit)):
        if value:
            raise click.UsageError(f"{option}: only for .json models")
    unused = {"--feature-level": chosen.feature_level, "--output_path": chosen.output_path}
    for option in (name for name, given_value in unused.items() if given_value is not None):
        click.echo(f"anydml: {option}: nothing is done: it is for .json models", err=True)
    symbols = _symbols(given, chosen)
    session = load(given.source, threads=chosen.threads, dims=symbols or None)
    given_inputs = feed(session, chosen.feeds)
    try:
        with interruptible():
            results = session.run(None, given_inputs)
    except InvalidInput as error:
        raise InvalidInput(*error.problems, *how_to_feed(session, given_inputs)) from error
    names = [o.name for o in session.get_outputs()]
    output = chosen.output or chosen.short_output
    if output is not None:  # first, so that a reader who closes the pipe loses no file
        for line in saved(output, names, results):
            click.echo(line, err=True)
    for name, result in zip(names, results, strict=True):
        _show(name, result)
    if chosen.explain:
        click.echo(session.explain())


def _symbols(given: GivenModel, chosen: _Chosen) -> dict[str, int]:
    """The symbols that are fixed: by their names, or by what they denote."""
    found = denoted_dims(given.source, chosen.denotations)
    for name in chosen.denotations.keys() - found.names:
        click.echo(f"anydml: warning: -F {name}: no free dimension of an input denotes it", err=True)
    return {**found.symbols, **chosen.dims}


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


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C end the process at once: a library that computes for minutes looks at no signal."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
