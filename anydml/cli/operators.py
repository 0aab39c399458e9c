"""The command line's `anydml operators`: all of them as a table, or one as a page, or its kernel."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

import anydml
from anydml.builder import GraphBuilder
from anydml.cli.common import EMIT, Level, console, is_terminal
from anydml.compiled_graph import CompiledGraph
from anydml.errors import InvalidInput, Problem, counted, nearest, short_repr
from anydml.ops.catalog import BY_NAME, CATALOG
from anydml.ops.document import markdown, types_in_words
from anydml.ops.enums import FeatureLevel, OperatorType, short_name
from anydml.ops.opdef import ONE, Operand, Operator


def _complete_operator(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in BY_NAME if name.startswith(incomplete.upper())]


@click.command("operators")
@click.argument("name", required=False, shell_complete=_complete_operator)
@click.option("--level", metavar="LEVEL", type=Level(), help="Only what exists at this feature level.")
@EMIT
def operators_command(name: str | None, level: FeatureLevel | None, emit: str | None) -> None:
    """List the operators, or show NAME: formula, feature levels, constraints, example.

    NAME is DirectML's, with or without prefix, or the Python function's.

    \b
    Examples:
      anydml operators
      anydml operators ELEMENT_WISE_IF
      anydml operators activation_gelu --emit asm
    """
    reached = FeatureLevel.newest() if level is None else level
    if name is None:
        if emit is not None:
            raise click.UsageError("--emit: name an operator")
        _list_operators(reached)
        return
    operator = _operator(name)
    if operator.introduced > reached:
        since = f"{operator.name} exists from feature level {operator.introduced.label} on"
        raise click.UsageError(f"--level: {since}, not yet at {reached.label}")
    if emit is not None:
        click.echo(_example_graph(operator).emit(emit))
        return
    page = markdown(replace(operator, levels={k: at for k, at in operator.levels.items() if k <= reached}))
    if is_terminal():
        Console().print(Markdown(page))
    else:
        click.echo(page, nl=False)


_WIDE = 150
"""Columns from which all is shown of each operator."""


def _list_operators(level: FeatureLevel) -> None:
    rows = [
        (o.name, f"dml.{o.function}", o.introduced.label, types_in_words(o), "yes" if o.in_place else "no")
        for o in CATALOG
        if o.introduced <= level
    ]
    heads = ("operator", "function", "since", "types (of the first tensor, newest level)", "in place")
    if not is_terminal():
        for row in (heads, *rows):
            click.echo("\t".join(row))
        return
    out = console()
    shown = range(len(heads)) if out.width >= _WIDE else (0, 2, 3)
    table = Table(title=counted(len(rows), "operator"), title_justify="left")
    for k in shown:
        table.add_column(heads[k], no_wrap=k < 3, overflow="fold", min_width=16 if k == 3 else None)
    for row in rows:
        table.add_row(*(row[k] for k in shown))
    out.print(table)


def _operator(name: str) -> Operator:
    """The definition that a user means."""
    wanted = short_name(OperatorType, name.removeprefix("dml."))
    functions = {o.function.upper(): o for o in CATALOG}
    for prefix in ("", "ELEMENT_WISE_", "ACTIVATION_"):
        operator_type = OperatorType.__members__.get(prefix + wanted)
        if operator_type is not None and operator_type.name in BY_NAME:  # by another name, too
            return BY_NAME[operator_type.name]
    if wanted in functions:
        return functions[wanted]
    short = [n.removeprefix("ELEMENT_WISE_").removeprefix("ACTIVATION_") for n in BY_NAME]
    message = f"expected an operator that exists here, but got {short_repr(name)}"
    raise InvalidInput(Problem("operators", message, nearest(wanted, [*BY_NAME, *short])))


def _example_graph(operator: Operator) -> CompiledGraph:
    """The operator alone, over its example's types: element by element over rows of 1024, others over the
    example's sizes."""
    graph = GraphBuilder()

    def tensor(operand: Operand, content: Any, name: str) -> Any:
        dtype = operator.example_type(operand.dtype)
        if operator.scalar is not None:
            return graph.input(name, dtype, [1, 1] if operand.sizes == ONE else [64, 1024])
        if operand.array:
            return [graph.input(f"{name}_{k}", dtype, np.shape(one)) for k, one in enumerate(content)]
        return graph.input(name, dtype, np.shape(content)) if np.ndim(content) else content

    given = [
        None if content is None else tensor(operand, content, operand.parameter)
        for operand, content in zip(operator.inputs, operator.example.inputs, strict=True)
    ]
    function, attributes = getattr(anydml, operator.function), operator.example.attributes
    if any(x is not None for x in given):
        results = function(*given, **attributes)
    else:  # of which the function would make an array
        bound = signature(function).bind(*given, **attributes)
        bound.apply_defaults()
        results = graph.record_tensors(operator, bound.arguments, bound.arguments.get("output_data_type"))
    every = results if isinstance(results, tuple) else (results,)
    names = [o.parameter for o in operator.outputs]
    if operator.outputs[0].array:
        names = [f"{names[0]}_{k}" for k in range(len(every))]
    return graph.compile({n: y for n, y in zip(names, every, strict=True) if y is not None})
