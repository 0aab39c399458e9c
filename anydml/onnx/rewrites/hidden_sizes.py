"""Nodes in branches and bodies that ONNX's inference refuses read what it does not know the sizes of.

    If(%c) {then %y = MatMul(%x: [2,3], %x)}
        ->   If(%c) {then %s = SequenceConstruct(%x, Unsqueeze(%x))
                     %h = SequenceAt(%s, 0); %y = MatMul(%h, %h)}

Such a node fails when it runs, and may never run; but runtimes that infer sizes do not even load its file.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from anydml.ir.graph import If, Node, TensorType, Value
from anydml.ir.transforms import G1, read_values
from anydml.onnx.node_builder import NodeBuilder

SINCE = 11
"""The opset from which on there are sequences."""


def hide_sizes(graph: G1, refused: Collection[Node], opset: int) -> G1:
    """The graph in which the nodes that are refused read hidden values."""
    if not refused or opset < SINCE:
        return graph
    made = NodeBuilder({}, opset, False)
    hidden: dict[Value, Value] = {}
    nodes: list[Node | If] = []
    for node in graph.nodes:
        made.start(node)
        if isinstance(node, If):
            then_branch, else_branch = (hide_sizes(b, refused, opset) for _, b in node.branches)
            node = replace(node, then_branch=then_branch, else_branch=else_branch)
        elif node in refused:
            tensors = dict.fromkeys(v for v in node.inputs if v and isinstance(v.type, TensorType))
            hidden |= {v: made.hidden(v) for v in tensors if v not in hidden}
            node = read_values(node, hidden)
        elif node.bodies:
            node = replace(node, bodies={k: hide_sizes(b, refused, opset) for k, b in node.bodies.items()})
        nodes += [*made.taken(), node]
    return replace(graph, nodes=tuple(nodes), constants={**graph.constants, **made.new_constants})
