"""The bodies of Loop, Scan and their like, which stay as the file has them: what they use of outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto

from anydml.ir.graph import Node


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


def has_texts(graph: GraphProto) -> bool:
    """Whether all names in a body, and in the bodies in it, are texts; protobuf takes any bytes."""
    return all(isinstance(name, str) for each in all_graphs(graph) for name in _names(each))


def _names(graph: GraphProto) -> Iterator[object]:
    yield graph.name
    yield from (v.name for v in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (a.name for a in node.attribute)


def all_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The tensors of a graph and of the graphs in it: initializers and attributes."""
    for each in all_graphs(graph):
        yield from each.initializer
        yield from (a.t for n in each.node for a in n.attribute if a.HasField("t"))


def external_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The tensors of a body, and of the bodies in it, whose contents are in other files."""
    return (t for t in all_tensors(graph) if t.data_location == TensorProto.EXTERNAL)


def defined_names(graph: GraphProto) -> Iterator[str]:
    """All names that a body and the bodies in it define: what comes from outside must not be called so."""
    for each in all_graphs(graph):
        yield from (v.name for v in (*each.input, *each.initializer))
        yield from (t.values.name for t in each.sparse_initializer)
        yield from (name for node in each.node for name in node.output)


def all_names(graph: GraphProto) -> Iterator[str]:
    """All names of values in a graph and the graphs in it, defined or used."""
    yield from defined_names(graph)
    for each in all_graphs(graph):
        yield from (o.name for o in each.output)
        yield from (name for node in each.node for name in node.input)


def forget_dim_names(graph: GraphProto) -> None:
    """Take the names of sizes out of a body, in place."""
    for each in all_graphs(graph):
        for info in (*each.input, *each.output, *each.value_info):
            _forget(info.type)


def _forget(type: TypeProto) -> None:
    kind = type.WhichOneof("value")
    if kind == "tensor_type":
        for dim in type.tensor_type.shape.dim:
            if dim.HasField("dim_param"):
                dim.ClearField("dim_param")
    elif kind in ("sequence_type", "optional_type"):
        _forget(getattr(type, kind).elem_type)


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


def rename_free(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Give a body's captures other names, in place."""
    own = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer}
    names = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        for k, name in enumerate(node.input):
            node.input[k] = names.get(name, name)
        for inner in graphs_of(node.attribute):
            rename_free(inner, names)
        for name in node.output:  # from here on, it is the body's own
            names.pop(name, None)
    for output in graph.output:
        output.name = names.get(output.name, output.name)


def rename_defined(graph: GraphProto, names: Mapping[str, str]) -> None:
    """Give what a body and the bodies in it define other names, in place."""

    def new(name: str) -> str:
        return names.get(name, name)

    for value in (*graph.input, *graph.initializer, *graph.output, *graph.value_info):
        value.name = new(value.name)
    for tensor in graph.sparse_initializer:
        tensor.values.name = new(tensor.values.name)
    for node in graph.node:
        for ends in (node.input, node.output):
            for k, name in enumerate(ends):
                ends[k] = new(name)
        for inner in graphs_of(node.attribute):
            rename_defined(inner, names)


def contains_if(node: Node) -> bool:
    """Whether an `If` stands in the node's bodies."""
    nodes = (n for g in graphs_of(node.attributes.values()) for n in all_nodes(g.node))
    return any(n.op_type == "If" and n.domain in ("", "ai.onnx") for n in nodes)
