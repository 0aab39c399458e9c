"""Bodies of loops, specialised by what is true in every iteration.

Their parameters have the types that annotation finds; what they capture is what it is around them. So an If
on a size that no iteration changes becomes one of its branches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from anydml.ir.graph import Body, Graph, If, Node
from anydml.ir.transforms import Constants, capture, replace_values
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.partial_eval.evaluator import FoldedIf, specialize
from anydml.onnx.providers.provider import Provider


def specialize_bodies(
    graph: Graph,
    opsets: Mapping[str, int],
    provider: Provider,
    outer: Constants = MappingProxyType({}),
) -> tuple[Graph, list[FoldedIf]]:
    """The graph with its loops' bodies specialised where an If stands in them, or a quotient, which libraries
    may be left if the divisor is known; and what became of the Ifs.

    `outer`: constants around a branch or body, which it captures.
    """
    constants = {**outer, **graph.constants}
    folded: list[FoldedIf] = []
    nodes: list[Node | If] = []
    for node in graph.nodes:
        if isinstance(node, If):
            branches = []
            for _, branch in node.branches:
                branch, found = specialize_bodies(branch, opsets, provider, constants)
                branches.append(branch)
                folded += found
            node = replace(node, then_branch=branches[0], else_branch=branches[1])
        elif node.contains_if or _divides(node):
            node, found = _specialize(node, constants, opsets, provider)
            folded += found
        nodes.append(node)
    pairs = zip(nodes, graph.nodes, strict=True)
    changed = folded or any(new is not old for new, old in pairs if isinstance(new, Node))
    return (replace(graph, nodes=tuple(nodes)) if changed else graph), folded


def _divides(node: Node) -> bool:
    inside = (n for body in node.bodies.values() for n in body.walk(bodies=True))
    return any(isinstance(n, Node) and (n.is_onnx("Mod") or n.is_onnx("Div")) for n in inside)


def _specialize(
    node: Node, constants: Constants, opsets: Mapping[str, int], provider: Provider
) -> tuple[Node, list[FoldedIf]]:
    bodies, folded = {}, []
    for name, body in with_typed_bodies(node, constants, opsets, provider).bodies.items():
        known = {v: constants[v] for v in body.inputs if v in constants}
        types = {v: v.type for v in (*body.parameters, *body.inputs) if v.type is not None}
        special = specialize(body.standalone, types, known, opsets, provider, deep=True)
        flat = replace_values(
            special.graph, dict(zip(special.inputs, (*body.parameters, *body.inputs), strict=True))
        )
        flat, inner = specialize_bodies(flat, opsets, provider, known)
        folded += [*special.folded, *inner]
        bodies[name] = with_nodes_of(body, flat, known)
    return (replace(node, bodies=bodies) if folded or _divides(node) else node), folded


def with_nodes_of(body: Body, graph: Graph, known: Constants) -> Body:
    """A body that does what a graph does, which computes with its parameters and captures.

    `known`: constants around it, which stay captures.
    """
    made = capture(graph, known)
    captured = tuple(v for v in made.inputs if v not in body.parameters)
    return replace(body, inputs=captured, outputs=made.outputs, nodes=made.nodes, constants=made.constants)
