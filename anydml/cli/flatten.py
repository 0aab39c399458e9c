"""The command line's `anydml flatten`: options to arguments, and the report as tables."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import click
from rich.markup import escape

from anydml.cli.common import (
    ATOL,
    RTOL,
    SET,
    SHAPE,
    bar,
    compared,
    console,
    named_values,
    partial_shapes,
    short,
    table,
    whole_shapes,
)
from anydml.cli.files import MODEL, OUTPUT, Output, given_onnx_model
from anydml.flatten_report import Report
from anydml.flattening import flatten
from anydml.onnx.serde.serialize import save

_COLOURS = {
    "folded": "green",
    "merged": "green",
    "unrolled": "green",
    "converted": "cyan",
    "guarded": "cyan",
    "kept": "yellow",
}


@click.command("flatten")
@MODEL
@click.argument("output", type=OUTPUT, required=False)
@click.option("-o", "--output", "other_output", type=OUTPUT, help="Another way to give OUTPUT.")
@SET
@SHAPE
@click.option(
    "--convert",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="If-conversion: execute both branches of what cannot be folded, and select one result.",
)
@click.option(
    "--max-extra-cost",
    type=click.FloatRange(0),
    default=0.2,
    show_default=True,
    help="For auto: how much longer the model may take, about; 0.2 is a fifth.",
)
@click.option(
    "--safe-shape",
    "witness",
    multiple=True,
    metavar="NAME=N,N,...",
    help="For always: sizes of an input with which no branch fails.",
)
@click.option(
    "--unroll",
    type=click.IntRange(0),
    default=16,
    show_default=True,
    metavar="N",
    help="Unroll loops that surely run at most N times; 0: none.",
)
@click.option(
    "--opset",
    type=click.IntRange(13),
    metavar="N",
    help="Write it at an older opset, where every node means the same there.",
)
@click.option("--witness", "old_witness", multiple=True, hidden=True)
@click.option(
    "--verify",
    type=click.Choice(["quick", "thorough"]),
    is_flag=False,
    flag_value="quick",
    default="quick",
    show_default=True,
    help="Compare both models on random inputs: in about half a second, or ten times as many in a minute.",
)
@click.option("--no-verify", is_flag=True, help="Do not compare them.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of these inputs.")
@RTOL
@ATOL
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--require-none", is_flag=True, help="If an If remains, write nothing and exit with 2.")
@click.option("--dry-run", is_flag=True, help="Do all but write; OUTPUT may be left out.")
def flatten_command(
    model: str,
    output: str | None,
    other_output: str | None,
    fixed: tuple[str, ...],
    shapes: tuple[str, ...],
    convert: Any,
    max_extra_cost: float,
    witness: tuple[str, ...],
    unroll: int,
    opset: int | None,
    old_witness: tuple[str, ...],
    verify: str,
    no_verify: bool,
    seed: int,
    rtol: float | None,
    atol: float | None,
    as_json: bool,
    require_none: bool,
    dry_run: bool,
) -> None:
    """Write MODEL without its Ifs to OUTPUT, for devices that have no control flow.

    An If is folded where its condition follows from what is known; else both of its branches run and one
    result is chosen, where that is right and costs little. A fixed input disappears from the model's inputs.

    A MODEL of - is read from standard input. An OUTPUT of - is standard output, and the report goes to
    standard error. A file that is there already is replaced as a whole, or stays as it was; a link, a pipe or
    a device stays what it is.

    \b
    Examples:
      anydml flatten model.onnx flat.onnx
      anydml flatten vad.onnx flat.onnx --set sr=16000 --shape input=1,576
      anydml flatten depth.onnx flat.onnx --shape image=?,3,518,518
      anydml flatten model.onnx flat.onnx --convert always --require-none
      anydml flatten model.onnx --dry-run
      anydml flatten model.onnx - > flat.onnx

    Exit codes: 0, done; 1, something is wrong, and nothing was written; 2, an If remains (--require-none).
    """
    if old_witness:
        click.echo("anydml: --witness is called --safe-shape now, and will go", err=True)
    if output is not None and other_output is not None:
        raise click.UsageError(f"expected OUTPUT or -o, but got both, {output} and {other_output}")
    output = output if other_output is None else other_output
    if output is None and not dry_run:
        raise click.UsageError("Missing argument 'OUTPUT'; --dry-run does without")
    out, given = None if output is None else Output(output), given_onnx_model(model)
    if out is not None:
        given.check_distinct(out)
    with bar("verifying", not no_verify) as progress:
        flat, report = flatten(
            given.source,
            fixed=named_values(fixed),
            shapes=partial_shapes(shapes),
            convert=convert,
            max_extra_cost=max_extra_cost,
            witness=whole_shapes((*witness, *old_witness), "--safe-shape"),
            unroll=unroll,
            opset=opset,
            verify=False if no_verify else "thorough" if verify == "thorough" else True,
            seed=seed,
            rtol=rtol,
            atol=atol,
            progress=progress,
        )
    refused = require_none and report.left > 0
    errors = out is not None and out.is_stdout
    if not (refused or dry_run or out is None):
        save(flat, given.folder, out.target)
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2), err=errors)
    else:
        told = "nothing was written (--dry-run)" if dry_run or out is None else f"written to {out.name}"
        _print(report, None if refused else told, errors)
    if refused:
        click.echo(f"anydml: {report.remains}; nothing was written", err=True)
        sys.exit(2)


def _print(report: Report, told: str | None, errors: bool) -> None:
    out, brief = console(errors), partial(short, errors=errors)
    if report.ifs:
        made = table("If", "became", "nodes", "why")
        for one in report.ifs:
            colour = _COLOURS.get(one.decision, "white")
            nodes = f"{one.nodes:+,}" if one.decision != "kept" else ""
            made.add_row(escape(one.path), f"[{colour}]{one.decision}[/]", nodes, brief(one.because))
        out.print(made)
    before, after = report.before, report.after
    if before.ifs > len(report.ifs):
        others = before.ifs - len(report.ifs)
        word = "one was in a branch that is" if others == 1 else f"{others} were in branches that are"
        out.print(f"of {before.ifs} Ifs, {word} gone")
    out.print(compared(before, after, brief))
    done = report.verified
    if done is not None and done.conclusive:
        out.print(f"verified on {done}")
        if done.time_ratio is not None:
            out.print(f"the new one took {done.time_ratio:.2f} times as long on them, on one thread")
    fine = not report.left and (done is None or done.conclusive)
    for line in report.verdict.splitlines():
        out.print(f"[{'green' if fine else 'yellow'}]{escape(line)}[/]", soft_wrap=True)
    if told is not None:
        out.print(escape(told), soft_wrap=True)
