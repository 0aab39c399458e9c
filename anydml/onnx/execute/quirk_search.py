"""What a library does wrong in the bodies of a loop, which it would run as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnx import GraphProto

from anydml.errors import InvalidModel
from anydml.ir.graph import Constant, Graph, If, Node, SequenceType, TensorType, Type, Value
from anydml.ir.transforms import replace_values
from anydml.onnx.ops.opinfo import Quirk
from anydml.onnx.ops.quirks import quirks_of
from anydml.onnx.partial_eval.annotate import annotate_types
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.serde.deserialize import read_body
from anydml.onnx.subgraphs import graphs_of
from anydml.onnx.types import without_sizes

Constants = Mapping[Value, Constant]


def quirk_in_subgraphs(node: Node, constants: Constants, opsets: Mapping[str, int]) -> Quirk | None:
    """The first quirk in the bodies of a node. `constants`: those of the graph that it stands in."""
    return next(_inside(node, constants, opsets), None)


def _inside(node: Node, constants: Constants, opsets: Mapping[str, int]) -> Iterator[Quirk]:
    for proto in graphs_of(node.attributes.values()):
        try:
            body = annotate_types(_body(proto, node, constants, opsets), opsets, OnnxRuntime())
        except InvalidModel:  # whoever runs it will say so
            continue
        yield from quirks(body, opsets)


def quirks(graph: Graph, opsets: Mapping[str, int], outer: Constants | None = None) -> Iterator[Quirk]:
    """Those of a graph with types, and of all graphs in it."""
    constants = {**(outer or {}), **graph.constants}
    for node in graph.nodes:
        if isinstance(node, If):
            for _, branch in node.branches:
                yield from quirks(branch, opsets, constants)
            continue
        yield from quirks_of(node, constants)
        yield from _inside(node, constants, opsets)


def _body(proto: GraphProto, node: Node, constants: Constants, opsets: Mapping[str, int]) -> Graph:
    """A body with what is known outside: types of what it is called with, and constants that it captures."""
    body, own = read_body(proto, node.captures, opsets), len(proto.input)
    types = [_called_with(node, k, v.type) for k, v in enumerate(body.inputs[:own])]
    outside = list(node.captures.values())
    types += [v.type for v in outside]
    renewed = {v: Value(v.name, t) for v, t in zip(body.inputs, types, strict=True)}
    body = replace_values(body, renewed)
    known = {v: constants[o] for v, o in zip(body.inputs[own:], outside, strict=True) if o in constants}
    inputs = tuple(v for v in body.inputs if v not in known)
    return replace(body, inputs=inputs, constants={**body.constants, **known})


def _called_with(node: Node, k: int, declared: Type | None) -> Type | None:
    """The type of a body's input k, as far as the node's inputs say it; sizes may change as it runs."""
    if node.is_onnx("Loop") and k < 2:
        return TensorType("bool" if k else "int64", ())
    place = k + (node.is_onnx("Scan") and node.op.version < 9)
    given = node.inputs[place] if place < len(node.inputs) else None
    if given is None or given.type is None:
        return None if declared is None else without_sizes(declared)
    if node.is_onnx("Loop"):
        return given.type
    if isinstance(given.type, SequenceType) and node.is_onnx("SequenceMap"):
        return given.type.element
    return without_sizes(given.type)
