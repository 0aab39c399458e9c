"""What is computed from weights alone is computed now.

const %w; %a = Slice(%w, 0:128); %b = Transpose(%a)   ->   const %b
"""

from __future__ import annotations

from anydml.ir.graph import Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import eliminate_dead_code
from anydml.onnx.partial_eval.shape_inference import ShapeInference


def fold_weights(graph: Graph, oracle: ShapeInference) -> Graph:
    """The graph without nodes all of whose inputs are constants, where that makes them no larger."""
    constants = dict(graph.constants)
    nodes: list[Node | If] = []
    for node in graph.nodes:
        made = _fold_node(node, constants, oracle) if isinstance(node, Node) else None
        if made is None:
            nodes.append(node)
        else:
            constants |= zip((v for v in node.outputs if v is not None), made, strict=True)
    return eliminate_dead_code(Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants))


def _fold_node(node: Node, constants: dict[Value, Constant], oracle: ShapeInference) -> list[Constant] | None:
    given = node.reads
    if not given or any(v not in constants for v in given):
        return None
    if any(not isinstance(v.type, TensorType) or v.type.known_sizes is None for v in node.writes):
        return None
    contents = [constants[v].content for v in given]
    results = oracle.evaluate(node, contents)
    if results is None or sum(r.nbytes for r in results) > sum(c.nbytes for c in contents):
        return None
    return [Constant(r) for v, r in zip(node.outputs, results, strict=True) if v is not None]
