"""The command line's `anydml inspect`: a model's signature, operators, and the tree of its control flow."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from anydml.cli_common import console, short
from anydml.inspection import Branch, Control, Inspection, drawn, inspect
from anydml.ir.buffers import write_atomically

_MOST = 12
"""Operators that are listed by name."""


@click.command("inspect")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Draw the graph as a page, for a browser."
)
def inspect_command(model: Path, as_json: bool, html: Path | None) -> None:
    """Show what MODEL consists of: inputs, outputs, operators, and its Ifs and loops as a tree.

    For each If: what its condition is computed from, what its branches use and return, how much is in them,
    and what `anydml flatten` would do with it.

    \b
    Examples:
      anydml inspect model.onnx
      anydml inspect model.onnx --html model.html
      anydml inspect model.onnx --json | jq '.control[].condition'
    """
    if html is None:
        found = inspect(model)
    else:
        found, page = drawn(model, model.name)
        write_atomically(html, lambda file: file.write(page.encode()))
        click.echo(f"drawn in {html}", err=True)
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2))
        return
    _print(found, model)


def _print(found: Inspection, model: Path) -> None:
    out = console()
    opsets = ", ".join(f"{domain} {version}" for domain, version in found.opsets.items())
    made = f", made by {found.producer}" if found.producer else ""
    out.print(f"[bold]{model.name}[/]: {found.bytes:,} bytes, opset {opsets}{made}", soft_wrap=True)
    table = Table(show_header=False, box=None, pad_edge=False)
    for word, values in (("input", found.inputs), ("output", found.outputs)):
        for name, type in values.items():
            table.add_row(word, escape(name), escape(type))
    out.print(table)
    listed = [f"{n} {name}" for name, n in list(found.operators.items())[:_MOST]]
    more = f", and {len(found.operators) - _MOST} others" if len(found.operators) > _MOST else ""
    out.print(f"{found.nodes:,} {'node' if found.nodes == 1 else 'nodes'}: {', '.join(listed)}{more}")
    if not found.control:
        out.print("no control flow")
        return
    tree = Tree(f"control flow: {found.ifs} Ifs" if found.ifs != 1 else "control flow: 1 If")
    for control in found.control:
        _grow(tree, control)
    out.print(tree)


def _grow(tree: Tree, control: Control) -> None:
    asked = f" on [cyan]{short(control.condition)}[/]" if control.condition else ""
    branch = tree.add(f"[bold]{control.kind}[/] {short(control.name)}{asked}")
    if control.flatten:
        branch.add(f"[green]flatten[/]: {short(control.flatten)}")
    if control.kind == "If" and not control.same_types:
        branch.add("[yellow]the branches may return other types or sizes[/]")
    for word, inside in control.branches.items():
        _sprout(branch, word, inside)


def _sprout(tree: Tree, word: str, inside: Branch) -> None:
    count = "1 node" if inside.nodes == 1 else f"{inside.nodes:,} nodes"
    leaf = tree.add(f"[bold]{word}[/]: {count}, about {inside.work:,} operations")
    leaf.add(f"returns {short(', '.join(inside.returns)) or 'nothing'}")
    if inside.captures:
        leaf.add(f"uses {short(', '.join(inside.captures))}")
    for control in inside.inside:
        _grow(leaf, control)
