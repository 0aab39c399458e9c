"""Nodes, results of Ifs and constants that no output needs go, in branches too.

%a = Neg(%x); %b = Abs(%x); return %b   ->   %b = Abs(%x); return %b
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anydml.ir.graph import Graph, If, Node, Value
from anydml.passes.enclose import enclosed


def drop_dead(graph: Graph) -> Graph:
    needed = set(graph.outputs)
    kept: list[Node | If] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.writes):
            if isinstance(node, If):
                node = with_outputs(node, [v for v in node.writes if v in needed])
            kept.append(node)
            needed.update(node.reads)
    constants = {v: c for v, c in graph.constants.items() if v in needed}
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(reversed(kept)), constants)


def with_outputs(node: If, outputs: Collection[Value]) -> If:
    """The If with these of its outputs only."""
    kept = [k for k, v in enumerate(node.outputs) if v is not None and v in outputs]
    graphs = []
    for _, b in node.branches:
        less = drop_dead(enclosed(b.name, b.nodes, tuple(b.outputs[k] for k in kept), b.constants))
        graphs.append(enclosed(less.name, less.nodes, less.outputs, less.constants))
    return replace(
        node, then_branch=graphs[0], else_branch=graphs[1], outputs=tuple(node.outputs[k] for k in kept)
    )
