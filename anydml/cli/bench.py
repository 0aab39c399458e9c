"""The command line's `anydml bench`: times of a model's runs, as a table, as JSON, as a picture."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import IO, Any

import click
import numpy as np

from anydml.benchmark import Timing, bench
from anydml.cli.common import bar, console, named_values, table, whole_shapes
from anydml.cli.files import MODEL, OUTPUT, Output, given_onnx_model
from anydml.errors import ExecutionFailed, Problem, Unsupported


@click.command("bench")
@MODEL
@click.option(
    "--feed",
    "feeds",
    multiple=True,
    metavar="NAME=VALUE",
    help="An input: a literal, or @file.npy; others are random.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,N,...",
    help="Sizes of a random input.  [default: 1 for what is free]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="To spend on each.",
)
@click.option("--iterations", "-i", type=click.IntRange(1), help="Runs of each, instead of seconds.")
@click.option(
    "--warmup", type=click.IntRange(0), default=10, show_default=True, help="Runs before those that count."
)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Of one run.")
@click.option("--alone", is_flag=True, help="Without onnxruntime beside it.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON; times are in seconds.")
@click.option(
    "--plot",
    type=OUTPUT,
    help="Draw the distribution of times here: .png, .svg, .pdf; -: as .png on standard output.",
)
def bench_command(
    model: str,
    feeds: tuple[str, ...],
    shapes: tuple[str, ...],
    seconds: float,
    iterations: int | None,
    warmup: int,
    threads: int,
    alone: bool,
    as_json: bool,
    plot: str | None,
) -> None:
    """Measure how long MODEL's runs take, beside onnxruntime's in the same process, in turns.

    MODEL is an ONNX model; - reads it from standard input.

    \b
    Examples:
      anydml bench model.onnx
      anydml bench vad.onnx --feed sr=16000 --shape input=1,576 --seconds 5
      anydml bench model.onnx -i 1000 --threads 2 --json
    """
    kind = _picture_kind(plot)
    out, source = Output(plot) if plot is not None else None, given_onnx_model(model)
    given = {name: _array(value) for name, value in named_values(feeds, "--feed").items()}
    with bar("measuring", True) as progress:
        try:
            times = bench(
                source.source,
                given,
                shapes=whole_shapes(shapes),
                seconds=seconds,
                iterations=iterations,
                warmup=warmup,
                threads=threads,
                against=not alone,
                progress=progress,
            )
        except ExecutionFailed as error:
            remedy = "sizes that are free were taken as 1, contents as random: give --shape, --feed"
            raise ExecutionFailed(*(replace(p, remedy=p.remedy or remedy) for p in error.problems)) from error
    errors = out is not None and out.is_stdout
    if out is not None:
        out.write(partial(draw, times, source.name, kind))
        click.echo(f"drawn in {out.name}", err=True)
    if as_json:
        click.echo(json.dumps([t.as_dict() for t in times], indent=2), err=errors)
        return
    _print(times, alone, errors)


def _picture_kind(plot: str | None) -> str:
    """The format of a picture, by its file's name; of what has no ending, such as a pipe, PNG."""
    kind = PurePath(plot or "").suffix.removeprefix(".").lower() or "png"
    if kind not in ("png", "svg", "pdf"):
        raise click.UsageError(f"--plot {plot}: expected .png, .svg or .pdf")
    return kind


def _array(value: Any) -> Any:
    """A literal of Python's numbers, in ONNX's most usual types."""
    array = np.asarray(value)
    return (
        array.astype(np.float32) if array.dtype == np.float64 and not isinstance(value, np.ndarray) else array
    )


def _print(times: list[Timing], alone: bool, errors: bool) -> None:
    out = console(errors)
    made = table("µs of a run", "median", "p10", "p90", "p99", "runs", "runs/s", "more memory")
    for t in times:
        percentiles = [f"{t.percentile(p) * 1e6:,.1f}" for p in (50, 10, 90, 99)]
        counts = [f"{len(t.seconds):,}", f"{t.throughput:,.0f}", f"{t.memory:,.1f} MB"]
        made.add_row(t.name, *percentiles, *counts)
    out.print(made)
    if len(times) == 2:
        out.print(f"median / onnxruntime's: {times[0].percentile(50) / times[1].percentile(50):.2f}")
    elif not alone:
        out.print("onnxruntime does not run this model on these inputs")


def draw(times: list[Timing], title: str, kind: str, file: IO[bytes]) -> None:
    """Write a histogram of the times, but for the slowest, which would push the rest into one bar."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = "pip install matplotlib"
        raise Unsupported(
            Problem("--plot", "expected matplotlib, but it is not installed", remedy)
        ) from error
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    last = max(min(t.percentile(99), 3 * t.percentile(50)) for t in times) * 1e6
    bins = np.linspace(min(t.seconds.min() for t in times) * 1e6, last, 80)
    for t in times:
        label = f"{t.name}: median {t.percentile(50) * 1e6:,.1f} µs"
        axes.hist(t.seconds * 1e6, bins=bins, alpha=0.6, label=label)  # type: ignore[arg-type]
    axes.set_title(title)
    axes.set_xlabel("µs of a run")
    axes.set_ylabel("runs")
    axes.legend()
    figure.savefig(file, format=kind)
