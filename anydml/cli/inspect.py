"""The command line's `anydml inspect`: a model's signature, operators, and the tree of its control flow."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import click
from rich.markup import escape
from rich.tree import Tree

from anydml.cli.common import busy, console, short, table
from anydml.cli.files import MODEL, OUTPUT, Output, given_onnx_model
from anydml.errors import counted
from anydml.inspection import Branch, Control, Inspection, drawn, inspect

_MOST = 12
"""Operators that are listed by name."""


@click.command("inspect")
@MODEL
@click.option("--tree", "as_tree", is_flag=True, help="Show its Ifs and loops as a tree, too.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option("--html", type=OUTPUT, help="Draw the graph as a page, for a browser; -: on standard output.")
def inspect_command(model: str, as_tree: bool, as_json: bool, html: str | None) -> None:
    """Show what MODEL consists of: inputs, outputs, operators, weights, and what its Ifs are decided by.

    MODEL is an ONNX model; - reads it from standard input.

    With --tree, for each If: what its condition is computed from, what its branches use and return, how much
    is in them, and what `anydml flatten` would do with it.

    \b
    Examples:
      anydml inspect model.onnx
      anydml inspect model.onnx --tree
      anydml inspect model.onnx --html model.html
      curl -s https://example.com/model.onnx | anydml inspect -
      anydml inspect model.onnx --json | jq '.control[].condition'
    """
    out, given = Output(html) if html is not None else None, given_onnx_model(model)
    if out is not None:
        given.check_distinct(out)
    with busy("looking"):
        found, page = (inspect(given.source), "") if out is None else drawn(given.source, given.name)
    if out is not None:
        out.write(lambda file: file.write(page.encode(errors="replace")))
        click.echo(f"drawn in {out.name}", err=True)
    errors = out is not None and out.is_stdout
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2), err=errors)
        return
    _print(found, given.name, as_tree, errors)


def _print(found: Inspection, name: str, as_tree: bool, errors: bool) -> None:
    out, brief = console(errors), partial(short, errors=errors)
    opsets = ", ".join(f"{domain} {version}" for domain, version in found.opsets.items())
    made = f", made by {found.producer}" if found.producer else ""
    out.print(f"[bold]{escape(name)}[/]: {found.bytes:,} bytes, opset {opsets}{made}", soft_wrap=True)
    ends = table("", "", "", box=None, pad_edge=False)
    for word, values in (("input", found.inputs), ("output", found.outputs)):
        for name, type in values.items():
            ends.add_row(word, escape(name), escape(type))
    out.print(ends)
    listed = [f"{n} {name}" for name, n in list(found.operators.items())[:_MOST]]
    more = f", and {counted(len(found.operators) - _MOST, 'other')}" if len(found.operators) > _MOST else ""
    constants = found.operators.get("Constant", 0)
    of_them = f", {constants:,} of them Constants" if constants else ""
    out.print(f"{counted(found.nodes, 'node')}{of_them}: {', '.join(listed)}{more}")
    out.print(f"weights: {found.weights:,} bytes")
    if not found.control:
        out.print("no control flow")
        return
    for decided, count in found.decided.items():
        out.print(f"{counted(count, 'If')} decided by {escape(decided)}", soft_wrap=True)
    loops = sum(n for name, n in found.operators.items() if name in ("Loop", "Scan"))
    counts = ((found.ifs, "If"), (loops, "loop"))
    told = ", ".join(counted(n, word) for n, word in counts if n)
    told = f"control flow: {told or 'SequenceMap'}"
    if not as_tree:
        much = {"all": "it", "some": "some of it", "none": ""}[found.flattens]
        out.print(f"{told} (--tree shows it{f', `anydml flatten` removes {much}' if much else ''})")
        return
    tree = Tree(told)
    for control in found.control:
        _grow(tree, control, brief)
    out.print(tree)


def _grow(tree: Tree, control: Control, brief: Callable[[str], str]) -> None:
    asked = f" on [cyan]{brief(control.condition)}[/]" if control.condition else ""
    branch = tree.add(f"[bold]{control.kind}[/] {brief(control.name)}{asked}")
    if control.flatten:
        branch.add(f"[green]flatten[/]: {brief(control.flatten)}")
    if control.kind == "If" and not control.same_types:
        branch.add("[yellow]the branches may return other types or sizes[/]")
    for word, inside in control.branches.items():
        _sprout(branch, word, inside, brief)


def _sprout(tree: Tree, word: str, inside: Branch, brief: Callable[[str], str]) -> None:
    told = f"{counted(inside.nodes, 'node')}, about {counted(inside.work, 'operation')}"
    leaf = tree.add(f"[bold]{word}[/]: {told}")
    leaf.add(f"returns {brief(', '.join(inside.returns)) or 'nothing'}")
    if inside.captures:
        leaf.add(f"uses {brief(', '.join(inside.captures))}")
    for control in inside.inside:
        _grow(leaf, control, brief)
