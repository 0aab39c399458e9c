"""The command line: the group of verbs, and the small ones; the others have files of their own."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

import anydml
from anydml.builder import CompiledGraph, GraphBuilder
from anydml.cli_bench import bench_command
from anydml.cli_flatten import flatten_command
from anydml.cli_inspect import inspect_command
from anydml.cli_run import EMIT, run_command
from anydml.problems import AnyDMLError, InvalidInput, Problem, nearest, shown
from anydml.spec.catalog import BY_NAME, CATALOG
from anydml.spec.document import markdown, types_in_words
from anydml.spec.enums import FeatureLevel, OperatorType, parse, short_name
from anydml.spec.schema import ONE, Operator

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Interruptible(click.Group):
    """Ends with the exit code that shells expect after Ctrl-C."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except KeyboardInterrupt:
            click.echo("anydml: interrupted", err=True)
            context.exit(130)


@click.group(cls=_Interruptible, context_settings=_CONTEXT)
@click.version_option(anydml.__version__, prog_name="anydml")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """DirectML's operators and ONNX models with control flow, on any machine that runs Python.

    \b
    Exit codes: 0, done; 1, the model or its input is at fault; 2, wrong usage
    (flatten --require-none: an If remains); 130, Ctrl-C.
    """


def _complete_operator(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in BY_NAME if name.startswith(incomplete.upper())]


@cli.command()
@click.argument("name", required=False, shell_complete=_complete_operator)
@click.option("--level", metavar="LEVEL", help="Only what exists at this feature level.")
@EMIT
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
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete verbs, options and operators.

    \b
    Examples:
      anydml completion bash >> ~/.bashrc
      anydml completion zsh >> ~/.zshrc
      anydml completion fish > ~/.config/fish/completions/anydml.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows these three"
    click.echo(kind(cli, {}, "anydml", "_ANYDML_COMPLETE").source())


cli.add_command(bench_command)
cli.add_command(flatten_command)
cli.add_command(inspect_command)
cli.add_command(run_command)


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
