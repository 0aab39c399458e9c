"""A model file without the nodes that no output needs, in branches and bodies too.

What nobody needs may still fail, and a model that was rewritten without it does not: the two are compared
without it.
"""

from __future__ import annotations

from collections.abc import Iterable

from anydml.onnx.protos import GraphProto, ModelProto, NodeProto
from anydml.onnx.subgraphs import free_names, graphs_of


def without_dead_nodes(proto: ModelProto) -> ModelProto:
    """A copy with what the outputs need."""
    alive = ModelProto()
    alive.CopyFrom(proto)
    _prune(alive.graph)
    return alive


def _prune(graph: GraphProto) -> None:
    needed = {o.name for o in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if not needed.intersection(node.output):
            continue
        if node.op_type == "If" and node.domain in ("", "ai.onnx"):
            _drop_results(node, needed)
        inner = list(graphs_of(node.attribute))
        for body in inner:
            _prune(body)
        needed.update(node.input, *map(free_names, inner))
        kept.append(node)
    kept.reverse()
    if len(kept) < len(graph.node):
        copies = [_copy(n) for n in kept]  # clearing the field would take them along
        del graph.node[:]
        graph.node.extend(copies)


def _drop_results(node: NodeProto, needed: Iterable[str]) -> None:
    """Take away an If's results that nobody reads, and what its branches return for them."""
    dead = [k for k, name in enumerate(node.output) if name not in needed]
    for ends in (node.output, *(g.output for g in graphs_of(node.attribute))):
        for k in reversed(dead):
            if k < len(ends):
                del ends[k]


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy
