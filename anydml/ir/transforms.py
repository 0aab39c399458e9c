"""Graphs to graphs, whatever the operators are: dead code, values in the place of others, branches.

%a = Neg(%x); %b = Abs(%x); return %b                   ->   %b = Abs(%x); return %b
%b = Neg(%a); %c = Add(%b, %k)  with output %c, const %k   ->   branch (%a) -> (%c) { const %k ... }
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar, cast, overload

from anydml.ir.graph import Body, Constant, DirectMLGraph, DirectMLNode, Graph, If, Node, Value

G = TypeVar("G", Graph, DirectMLGraph)
G1 = TypeVar("G1", bound=Graph)
Constants = Mapping[Value, Constant]


def eliminate_dead_code(graph: G) -> G:
    """The graph without nodes, results of Ifs, optional ones of DirectML's operators, and constants that no
    output needs, in branches and bodies too."""
    needed = set(graph.outputs)
    kept: list[Any] = []
    nodes: tuple[Any, ...] = graph.nodes
    for node in reversed(nodes):
        if any(v in needed for v in node.writes):
            if isinstance(node, If):
                node = keep_outputs(node, [v for v in node.writes if v in needed])
            elif isinstance(node, DirectMLNode):
                node = _without_unread(node, needed)
            elif node.bodies:
                node = _with_live_bodies(node)
            kept.append(node)
            needed.update(node.reads)
    constants = {v: c for v, c in graph.constants.items() if v in needed}
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)


def _with_live_bodies(node: Node) -> Node:
    """The node whose bodies have and capture what their outputs need; itself, where they do already."""
    bodies = {name: _live_body(body) for name, body in node.bodies.items()}
    return node if bodies == node.bodies else replace(node, bodies=bodies)


def _live_body(body: Body) -> Body:
    live = cast("Body", eliminate_dead_code(body))
    if live.nodes == body.nodes and len(live.constants) == len(body.constants):
        return body
    used = {*live.outputs, *(v for node in live.nodes for v in node.reads)}
    return replace(live, inputs=tuple(v for v in body.inputs if v in used))


def _without_unread(node: DirectMLNode, needed: Collection[Value]) -> DirectMLNode:
    """The node without optional outputs that nobody reads, such as the places of maxima."""
    if all(v in needed for v in node.outputs) or all(s.optional is None for s in node.op.outputs):
        return node
    pairs = zip(node.outputs, node.op.outputs, strict=True)
    return replace(node, outputs=tuple(v if v in needed or s.optional is None else None for v, s in pairs))


def keep_outputs(node: If, outputs: Collection[Value]) -> If:
    """The If with these of its outputs only."""
    kept = [k for k, v in enumerate(node.outputs) if v is not None and v in outputs]
    graphs = []
    for _, b in node.branches:
        less = eliminate_dead_code(
            make_subgraph(b.name, b.nodes, tuple(b.outputs[k] for k in kept), b.constants)
        )
        graphs.append(make_subgraph(less.name, less.nodes, less.outputs, less.constants))
    return replace(
        node, then_branch=graphs[0], else_branch=graphs[1], outputs=tuple(node.outputs[k] for k in kept)
    )


def make_subgraph(
    name: str, nodes: Iterable[Node | If], outputs: tuple[Value, ...], constants: Mapping[Value, Constant]
) -> Graph:
    """A branch of these nodes: what they use of the graph around them becomes its inputs.

    `constants` may be more than it uses.
    """
    nodes = tuple(nodes)
    written = {v for node in nodes for v in node.writes}
    used = dict.fromkeys((*(v for node in nodes for v in node.reads), *outputs))
    own = {v: constants[v] for v in used if v in constants}
    return Graph(name, tuple(v for v in used if v not in written and v not in own), outputs, nodes, own)


def capture(graph: Graph, constants: Collection[Value]) -> Graph:
    """The graph as a branch of one that has these constants: it, and branches in it, only capture them."""
    nodes = []
    for node in graph.nodes:
        if isinstance(node, If):
            then_branch, else_branch = (capture(b, constants) for _, b in node.branches)
            node = replace(node, then_branch=then_branch, else_branch=else_branch)
        nodes.append(node)
    own = {v: c for v, c in graph.constants.items() if v not in constants}
    return make_subgraph(graph.name, nodes, graph.outputs, own)


def replace_uses(graph: G1, values: Mapping[Value, Value], constants: Constants) -> G1:
    """The graph with other values in the place of some, wherever they are read.

    A value that is among `constants` afterwards is one, not an input. Inputs of a main graph are not to be
    replaced; those of a branch or body, its captures, are.
    """

    def new(value: Value) -> Value:
        return values.get(value, value)

    nodes = tuple(read_values(node, values, constants) for node in graph.nodes)
    inputs = dict.fromkeys(new(v) for v in graph.inputs)
    known = {v: constants[v] for v in inputs if v in constants}
    return replace(
        graph,
        inputs=tuple(v for v in inputs if v not in known),
        outputs=tuple(new(v) for v in graph.outputs),
        nodes=nodes,
        constants={**graph.constants, **known},
    )


@overload
def read_values(node: Node, values: Mapping[Value, Value], constants: Constants = ...) -> Node: ...
@overload
def read_values(node: Node | If, values: Mapping[Value, Value], constants: Constants = ...) -> Node | If: ...
def read_values(
    node: Node | If, values: Mapping[Value, Value], constants: Constants = MappingProxyType({})
) -> Node | If:
    """The node reading other values in the place of some, in its branches and bodies too.

    `constants`: values that branches have as constants of their own, where they read them.
    """
    if isinstance(node, If):
        then_branch, else_branch = (replace_uses(b, values, constants) for _, b in node.branches)
        condition = values.get(node.condition, node.condition)
        return replace(node, condition=condition, then_branch=then_branch, else_branch=else_branch)
    inputs = tuple([None if v is None else values.get(v, v) for v in node.inputs])
    if not node.bodies:
        return node if inputs == node.inputs else node.changed(inputs=inputs)
    bodies = {n: replace_uses(b, values, {}) for n, b in node.bodies.items()}
    return replace(node, inputs=inputs, bodies=bodies)


def replace_values(graph: G1, values: Mapping[Value, Value]) -> G1:
    """The graph with other values in the place of some, wherever they are made and read."""

    def new(items: Iterable[Value | None]) -> tuple[Any, ...]:
        return tuple(None if v is None else values.get(v, v) for v in items)

    nodes: list[Node | If] = []
    for node in graph.nodes:
        if isinstance(node, If):
            then_branch, else_branch = (replace_values(b, values) for _, b in node.branches)
            (condition,) = new([node.condition])
            node = replace(node, condition=condition, then_branch=then_branch, else_branch=else_branch)
        else:
            bodies = {n: replace_values(b, values) for n, b in node.bodies.items()}
            node = replace(node, inputs=new(node.inputs), bodies=bodies)
        nodes.append(replace(node, outputs=new(node.outputs)))
    constants = {values.get(v, v): c for v, c in graph.constants.items()}
    result = replace(
        graph,
        inputs=new(graph.inputs),
        outputs=new(graph.outputs),
        nodes=tuple(nodes),
        constants=constants,
    )
    return replace(result, parameters=new(result.parameters)) if isinstance(result, Body) else result
