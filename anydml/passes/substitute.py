"""Values in the place of others, throughout a graph and its branches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from anydml.ir.graph import Constant, Graph, If, Node, Value


def substituted(graph: Graph, values: Mapping[Value, Value], constants: Mapping[Value, Constant]) -> Graph:
    """The graph with `values` exchanged. A value that is among `constants` afterwards is one, not an input.

    Inputs of a main graph are not to be exchanged; those of a branch, its captures, are.
    """

    def new(value: Value) -> Value:
        return values.get(value, value)

    def maybe(items: tuple[Value | None, ...]) -> tuple[Value | None, ...]:
        return tuple(None if v is None else new(v) for v in items)

    nodes: list[Node | If] = []
    for node in graph.nodes:
        if isinstance(node, If):
            then_branch, else_branch = (substituted(b, values, constants) for _, b in node.branches)
            condition = new(node.condition)
            nodes.append(replace(node, condition=condition, then_branch=then_branch, else_branch=else_branch))
        else:
            nodes.append(
                replace(
                    node, inputs=maybe(node.inputs), captures={n: new(v) for n, v in node.captures.items()}
                )
            )
    inputs = dict.fromkeys(new(v) for v in graph.inputs)
    known = {v: constants[v] for v in inputs if v in constants}
    return Graph(
        graph.name,
        tuple(v for v in inputs if v not in known),
        tuple(new(v) for v in graph.outputs),
        tuple(nodes),
        {**graph.constants, **known},
    )


def exchanged(graph: Graph, values: Mapping[Value, Value]) -> Graph:
    """The graph with other values in the place of some, wherever they are made and read."""

    def new(items: Iterable[Value | None]) -> tuple[Any, ...]:
        return tuple(None if v is None else values.get(v, v) for v in items)

    nodes: list[Node | If] = []
    for node in graph.nodes:
        if isinstance(node, If):
            then_branch, else_branch = (exchanged(b, values) for _, b in node.branches)
            (condition,) = new([node.condition])
            node = replace(node, condition=condition, then_branch=then_branch, else_branch=else_branch)
        else:
            captures = {n: values.get(v, v) for n, v in node.captures.items()}
            node = replace(node, inputs=new(node.inputs), captures=captures)
        nodes.append(replace(node, outputs=new(node.outputs)))
    constants = {values.get(v, v): c for v, c in graph.constants.items()}
    return Graph(graph.name, new(graph.inputs), new(graph.outputs), tuple(nodes), constants)
