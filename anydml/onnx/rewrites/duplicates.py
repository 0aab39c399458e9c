"""Nodes that compute the same are one.

%a = Shape(%x); %b = Shape(%x); %y = Add(%a, %b)   ->   %a = Shape(%x); %y = Add(%a, %a)
"""

from __future__ import annotations

from anydml.ir.graph import Graph, If, Node, Value
from anydml.ir.transforms import replace_uses
from anydml.onnx.partial_eval.evaluator import node_key
from anydml.onnx.partial_eval.shape_inference import AbstractValue


def merge_duplicates(graph: Graph) -> Graph:
    same: dict[Value, Value] = {}
    known: dict[object, Node] = {}
    nodes: list[Node | If] = []
    for node in graph.nodes:
        twin, key = None, None
        if isinstance(node, Node):
            given = [None if v is None else same.get(v, v) for v in node.inputs]
            key = node_key(
                node, [None if v is None else AbstractValue(v, graph.constants.get(v)) for v in given]
            )
            twin = known.get(key)
        if twin is not None:
            same |= {v: t for v, t in zip(node.outputs, twin.outputs, strict=True) if v and t}
            continue
        if key is not None and isinstance(node, Node):
            known[key] = node
        nodes.append(node)
    if not same:
        return graph
    return replace_uses(
        Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), graph.constants), same, {}
    )
