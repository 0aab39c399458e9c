"""What is computed from weights alone is computed now.

const %w; %a = Slice(%w, 0:128); %b = Transpose(%a)   ->   const %b
"""

from __future__ import annotations

from collections.abc import Collection

from anydml.ir.graph import Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import eliminate_dead_code
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.fold import has_rule
from anydml.onnx.partial_eval.shape_inference import ShapeInference


def fold_weights(graph: Graph, oracle: ShapeInference, most: int = 0) -> Graph:
    """The graph without nodes all of whose inputs are constants, where that makes them no larger, or gives no
    more than so many bytes and there is a rule of ours."""
    constants = dict(graph.constants)
    nodes: list[Node | If] = []
    for node in graph.nodes:
        made = _fold_node(node, constants, oracle, most) if isinstance(node, Node) else None
        if made is None:
            nodes.append(node)
        else:
            constants |= zip((v for v in node.outputs if v is not None), made, strict=True)
    if len(nodes) == len(graph.nodes):
        return graph
    return eliminate_dead_code(Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants))


def settled(graph: Graph) -> Collection[Node | If]:
    """The nodes of which the same comes in every run: a library computes them once, when it is loaded."""
    known: set[Value] = {*graph.constants}
    found: dict[Node | If, None] = {}
    for node in graph.nodes:
        info = None if isinstance(node, If) else info_of(node.op)
        draws = info is not None and info.draws is not None
        if node.reads and not draws and all(v in known for v in node.reads):
            found[node] = None
            known |= {*node.writes}
    return found.keys()


def _fold_node(
    node: Node, constants: dict[Value, Constant], oracle: ShapeInference, most: int
) -> list[Constant] | None:
    given = node.reads
    if not given or any(v not in constants for v in given):
        return None
    if any(not isinstance(v.type, TensorType) or v.type.known_sizes is None for v in node.writes):
        return None
    contents = [constants[v].content for v in given]
    if most and not has_rule(node.op):
        return None
    results = oracle.evaluate(node, contents)
    if results is None or sum(r.nbytes for r in results) > max(sum(c.nbytes for c in contents), most):
        return None
    return [Constant(r) for v, r in zip(node.outputs, results, strict=True) if v is not None]
