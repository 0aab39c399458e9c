"""The command line's `anydml check`: which nodes another runtime takes, and why not the others."""

from __future__ import annotations

import json
import re
import sys

import click
from rich.markup import escape

from anydml.check_report import CONTROL_FLOW, CheckReport, NodeCheck, kinds
from anydml.checking import LEAST_LEVEL, check_model
from anydml.cli.common import Level, busy, console, named_values, partial_shapes, quoted, short, table
from anydml.cli.files import MODEL_PATH, given_onnx_model
from anydml.onnx.targets.tables import NAMES
from anydml.ops.enums import FeatureLevel

_WORDS = {
    "graph": "[green]compiled graph[/]",
    "device": "[cyan]by itself[/]",
    "cpu": "[yellow]processor[/]",
    "refused": "[red]refused[/]",
    "unknown": "[yellow]unknown[/]",
}
_TAKEN = "[green]taken[/]"


@click.command("check")
@click.argument("models", metavar="MODEL...", type=MODEL_PATH, nargs=-1, required=True)
@click.option(
    "--directml",
    "level",
    metavar="LEVEL",
    type=Level(LEAST_LEVEL, f"onnxruntime's provider asks for {LEAST_LEVEL.label} at least"),
    help=f"DirectML at a feature level, such as 5_1 or 5.1.  [default: {LEAST_LEVEL.label}]",
)
@click.option("--target", type=click.Choice(sorted(NAMES)), help="Another runtime.  [default: directml]")
@click.option(
    "--set", "fixed", multiple=True, metavar="NAME=VALUE", help="See what fixing an input would mend."
)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=N,?,b,...", help="Likewise for its sizes.")
@click.option(
    "--all", "everything", is_flag=True, help="List every operator, with what DirectML makes of it."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, node by node.")
@click.option("--require", is_flag=True, help="Exit with 2 if a node is not taken.")
def check_command(
    models: tuple[str, ...],
    level: FeatureLevel | None,
    target: str | None,
    fixed: tuple[str, ...],
    shapes: tuple[str, ...],
    everything: bool,
    as_json: bool,
    require: bool,
) -> None:
    """Tell which nodes of each MODEL another runtime takes, what runs on the processor instead, and why.

    By tables of what its makers register or document; nothing is run. MODEL is an ONNX model; - reads it from
    standard input. --json prints an object, of several models one by name.

    \b
    Examples:
      anydml check model.onnx --directml 5_1
      anydml check model.onnx --directml 6_2 --shape x=1,3,224,224
      anydml check model.onnx --target tensorrt
      anydml check models/*.onnx --require
      anydml check model.onnx --json

    Exit codes: 0, done; 1, something is wrong; 2, a node is not taken (--require).
    """
    if level is not None and target not in (None, "directml"):
        raise click.UsageError("--directml is a target of its own; leave out --target")
    inputs = [f"--set {quoted(t)}" for t in fixed] + [f"--shape {quoted(t)}" for t in shapes]
    of_target = f"--directml {level.label}" if level is not None else f"--target {target}" if target else ""
    reports: dict[str, CheckReport] = {}
    models = tuple(dict.fromkeys(models))
    for name in models:
        with busy(f"looking at {short(name, errors=True)}"):
            report = reports[name] = check_model(
                given_onnx_model(name).source,
                f"directml:{level.label}" if level is not None else target or "directml",
                fixed=named_values(fixed),
                shapes=partial_shapes(shapes),
            )
        if not as_json:
            _print(report, name if len(models) > 1 else None, everything)
            if report.remedy:
                command = _command(report.remedy, quoted(name), of_target, inputs)
                console().print(escape(f"next: {command}"), soft_wrap=True)
            console().print(f"[dim]source: {escape(report.source)}[/]")
    if as_json:
        told = {name: report.as_dict() for name, report in reports.items()}
        click.echo(json.dumps(told if len(models) > 1 else told[models[0]], indent=2))
    if require and not all(report.ok for report in reports.values()):
        sys.exit(2)


def _command(remedy: str, model: str, of_target: str, inputs: list[str]) -> str:
    """A remedy for this model, with the options that were given."""

    def arguments(words: re.Match[str]) -> str:
        own = [model, "flat.onnx"] if "FLAT" in words[0] else [model, *filter(None, [of_target])]
        return " ".join([*own, *inputs])

    return re.sub("MODEL( FLAT)?", arguments, remedy, count=1)


def _print(report: CheckReport, title: str | None, everything: bool) -> None:
    out = console()
    if title is not None:
        out.print(f"[bold]{escape(title)}[/]", soft_wrap=True)
    found = kinds(report)
    reasons: dict[tuple[str, str], list[tuple[NodeCheck, int]]] = {}
    for node, count in found:
        if node.kind or node.where in ("cpu", "refused", "unknown") or node.operator in CONTROL_FLOW:
            reasons.setdefault((node.where, node.because), []).append((node, count))
    if reasons:
        made = table("where", "why", "nodes", "operators")
        for (where, because), nodes in reasons.items():
            word = _TAKEN if report.target != "directml" and where == "device" else _WORDS[where]
            listed = ", ".join(f"{count} {short(node.operator)}" for node, count in nodes)
            made.add_row(word, short(because), f"{sum(count for _, count in nodes):,}", listed)
        out.print(made)
    if everything:
        made = table("operator", "nodes", "where", "becomes")
        for node, count in sorted(found, key=lambda pair: pair[0].operator):
            word = _TAKEN if report.target != "directml" and node.where == "device" else _WORDS[node.where]
            becomes = ", ".join(node.becomes)
            made.add_row(f"{short(node.operator)}-{node.since}", f"{count:,}", word, short(becomes))
        out.print(made)
    for line in report.summary.splitlines():
        out.print(escape(line), soft_wrap=True)
