"""Files' graphs with the graphs in them: all of their nodes, tensors and names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto


def graphs_of(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in attributes:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and the graphs in it, however deep."""
    yield graph
    for node in graph.node:
        for inner in graphs_of(node.attribute):
            yield from all_graphs(inner)


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes and those of their bodies."""
    for node in nodes:
        yield node
        for graph in graphs_of(node.attribute):
            yield from all_nodes(graph.node)


def all_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The tensors of a graph and of the graphs in it: initializers and attributes."""
    for each in all_graphs(graph):
        yield from each.initializer
        yield from (a.t for n in each.node for a in n.attribute if a.HasField("t"))


def all_names(graph: GraphProto) -> Iterator[str]:
    """All names of values in a graph and the graphs in it, defined or used."""
    for each in all_graphs(graph):
        yield from (v.name for v in (*each.input, *each.initializer))
        yield from (t.values.name for t in each.sparse_initializer)
        yield from (name for node in each.node for name in node.output)
        yield from (o.name for o in each.output)
        yield from (name for node in each.node for name in node.input)


def free_names(graph: GraphProto) -> list[str]:
    """The names that a body uses and does not define: its captures, in order of use."""
    defined = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    defined |= {t.values.name for t in graph.sparse_initializer}
    free: dict[str, None] = {}
    for node in graph.node:
        used = [n for n in node.input if n]
        for inner in graphs_of(node.attribute):
            used += free_names(inner)
        free |= {n: None for n in used if n not in defined}
        defined |= set(node.output)
    free |= {o.name: None for o in graph.output if o.name not in defined}
    return list(free)
