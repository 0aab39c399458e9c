"""Files' graphs with the graphs in them: all of their nodes, tensors and names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from anydml.onnx.protos import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

_log = logging.getLogger("anydml.session")


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


def in_order(model: ModelProto) -> ModelProto:
    """The model with its nodes in an order that runs, in branches and bodies, too; itself if they stand so
    already, or if there is none.

    ONNX asks for such an order, and onnxruntime does not.
    """
    orders = [_order(graph.node) for graph in all_graphs(model.graph)]
    if None in orders or all(order == sorted(order) for order in orders if order):
        return model  # and weights were not copied to know that
    result = ModelProto()
    result.CopyFrom(model)
    for graph in all_graphs(result.graph):
        copies = [NodeProto.FromString(graph.node[k].SerializeToString()) for k in _order(graph.node) or ()]
        del graph.node[:]
        graph.node.extend(copies)
    return result


def with_constants_once(model: ModelProto) -> ModelProto:
    """The model without initializers and Constants whose name a later one has, Constants being the later
    ones, as in onnxruntime, which the log tells; itself, if there are none. Those of branches and bodies are
    refused there, too."""
    initializers, nodes = _superseded(model.graph)
    if not (initializers or nodes):
        return model
    result = ModelProto()
    result.CopyFrom(model)
    for k in initializers:
        del result.graph.initializer[k]
    for k in nodes:
        del result.graph.node[k]
    names = {model.graph.initializer[k].name for k in initializers}
    names |= {model.graph.node[k].output[0] for k in nodes}
    _log.warning("constants that are defined more than once, of which the last one counts: %s", sorted(names))
    return result


def _superseded(graph: GraphProto) -> tuple[list[int], list[int]]:
    """The places of initializers, and of Constants, whose name a later one has: the last first."""
    seen: set[str] = set()

    def again(name: str) -> bool:
        known = name in seen
        seen.add(name)
        return known

    constants = [k for k, n in enumerate(graph.node) if n.op_type == "Constant" and len(n.output) == 1]
    nodes = [k for k in reversed(constants) if again(graph.node[k].output[0])]
    return [k for k in reversed(range(len(graph.initializer))) if again(graph.initializer[k].name)], nodes


def _order(nodes: Sequence[NodeProto]) -> list[int] | None:
    """The places of nodes in an order that runs; None if there is none."""
    makers = {name: k for k, node in enumerate(nodes) for name in node.output if name}
    needs = [{makers[name] for name in _used(node) if name in makers} - {k} for k, node in enumerate(nodes)]
    users: dict[int, list[int]] = {}
    for k, needed in enumerate(needs):
        for maker in needed:
            users.setdefault(maker, []).append(k)
    open_needs = list(map(len, needs))
    ready = [k for k, count in enumerate(open_needs) if not count]
    order: list[int] = []
    while ready:
        order.append(first := heappop(ready))
        for k in users.get(first, ()):
            open_needs[k] -= 1
            if not open_needs[k]:
                heappush(ready, k)
    return order if len(order) == len(nodes) else None


def _used(node: NodeProto) -> list[str]:
    """The names that a node reads, those that its graphs capture included."""
    return [*node.input, *(name for graph in graphs_of(node.attribute) for name in free_names(graph))]


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
