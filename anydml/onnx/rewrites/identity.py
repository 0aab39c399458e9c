"""Identity nodes go; whoever read their output reads their input.

%b = Identity(%a); %c = Neg(%b)   ->   %c = Neg(%a)
"""

from __future__ import annotations

from anydml.ir.graph import Graph, Node, Value
from anydml.ir.transforms import replace_uses


def drop_identities(graph: Graph) -> Graph:
    same: dict[Value, Value] = {}
    nodes = []
    for node in graph.nodes:
        if isinstance(node, Node) and node.is_onnx("Identity"):
            match node.inputs, node.outputs:
                case (Value() as source,), (Value() as target,):
                    same[target] = same.get(source, source)
                    continue
        nodes.append(node)
    if not same:
        return graph
    return replace_uses(
        Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), graph.constants), same, {}
    )
