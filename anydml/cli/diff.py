"""The command line's `anydml diff`: two models side by side."""

from __future__ import annotations

import json
import sys
from functools import partial

import click
from rich.markup import escape

from anydml.cli.common import ATOL, RTOL, SHAPE, bar, compared, console, named_values, partial_shapes, short
from anydml.cli.files import given_onnx_model
from anydml.comparison import compare


@click.command("diff")
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@click.option(
    "--set", "fixed", multiple=True, metavar="NAME=VALUE", help="An input that SECOND does not have."
)
@SHAPE
@click.option("--no-run", is_flag=True, help="Do not run them.")
@click.option("--trials", type=click.IntRange(1), default=24, show_default=True, help="Random inputs.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of these inputs.")
@RTOL
@ATOL
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
def diff_command(
    first: str,
    second: str,
    fixed: tuple[str, ...],
    shapes: tuple[str, ...],
    no_run: bool,
    trials: int,
    seed: int,
    rtol: float | None,
    atol: float | None,
    as_json: bool,
) -> None:
    """Compare two models: operators, inputs and outputs, and what they give on random inputs.

    \b
    Examples:
      anydml diff model.onnx flat.onnx
      anydml diff vad.onnx flat.onnx --set sr=16000
      anydml diff detector.onnx flat.onnx --shape image=1,3,640,640
      anydml diff a.onnx b.onnx --rtol 1e-3 --atol 1e-6
      anydml diff a.onnx b.onnx --no-run --json

    With --no-run nothing is compared but what is in the files.

    Exit codes: 0, they give the same, as far as was tried; 1, something is wrong; 2, something else.
    """
    models = [given_onnx_model(name) for name in (first, second)]
    with bar("running", not no_run) as progress:
        found = compare(
            models[0].source,
            models[1].source,
            fixed=named_values(fixed),
            shapes=partial_shapes(shapes),
            run=not no_run,
            seed=seed,
            trials=trials,
            rtol=rtol,
            atol=atol,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        out = console()
        out.print(
            compared(found.first, found.second, partial(short, errors=False), *(m.name for m in models))
        )
        for domain in dict.fromkeys((*found.opsets[0], *found.opsets[1])):
            was, now = (o.get(domain) for o in found.opsets)
            if was != now:
                out.print(f"opset of {domain or 'ai.onnx'}: {was or 'none'} and {now or 'none'}")
        colour = {True: "green", False: "red", None: "yellow"}[found.same]
        out.print(f"[{colour}]{escape(found.verdict)}[/]", soft_wrap=True)
    if found.difference:
        sys.exit(2)
