"""Nodes and constants that no output needs go.

%a = Neg(%x); %b = Abs(%x); return %b   ->   %b = Abs(%x); return %b
"""

from __future__ import annotations

from anydml.ir.graph import Graph, If, Node


def drop_dead(graph: Graph) -> Graph:
    needed = set(graph.outputs)
    kept: list[Node | If] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.writes):
            kept.append(node)
            needed.update(node.reads)
    constants = {v: c for v, c in graph.constants.items() if v in needed}
    return Graph(graph.name, graph.inputs, graph.outputs, tuple(reversed(kept)), constants)
