"""Parts of graphs as ONNX models, for the libraries that run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from anydml.ir.graph import Constant, ExternalData, Node, TensorType, Value
from anydml.ir.names import Names
from anydml.onnx.providers.provider import Region
from anydml.onnx.subgraphs import all_nodes, defined_names, graphs_of, rename_free
from anydml.onnx.types import CODES, only_ranks, to_proto

IR_VERSION = 10
"""Old enough for every onnxruntime that is supported, new enough for every type that is handed to one."""


def names_for(nodes: Iterable[Node]) -> Names:
    """Names for the values of these nodes, other than those that the nodes' bodies define."""
    bodies = (g for n in nodes for g in graphs_of(n.attributes.values()))
    return Names(name for body in bodies for name in defined_names(body))


def node_proto(node: Node, names: Names, name: str = "") -> NodeProto:
    """The node as a file would have it."""
    proto = NodeProto(op_type=node.op.name, domain=node.op.domain, name=name)
    proto.input.extend("" if v is None else names.of(v) for v in node.inputs)
    outputs = ["" if v is None else names.of(v) for v in node.outputs]
    proto.output.extend(part_names(outputs, names) if node.is_onnx("Split") else outputs)
    proto.attribute.extend(node.attributes.values())
    renamed = {old: new for old, v in node.captures.items() if (new := names.of(v)) != old}
    if renamed:  # the protos are the file's: extend() has copied them
        for graph in graphs_of(proto.attribute):
            rename_free(graph, renamed)
    return proto


def part_names(outputs: Sequence[str], names: Names) -> list[str]:
    """Names for all results of a Split: onnxruntime ends the process if one has none."""
    stem = next((name for name in outputs if name), "split")
    return [name or names.fresh(stem) for name in outputs]


def region(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[Value, Constant],
    opsets: Mapping[str, int],
    weights: Mapping[Value, Constant] = MappingProxyType({}),
) -> Region:
    """Nodes for a library. They are named by their place, so that an error message leads back to one.

    Inputs are declared by type and rank, not by size: one region serves all sizes. Each size has a name,
    since names that onnxruntime makes itself cost it the square of their number. Weights are declared only.
    Lengths that ONNX's inference takes for 0 if it is not told them are told.
    """
    lengths = {v for n in nodes if n.is_onnx("Resize") for v in n.inputs[2:]}
    graph, names = onnx.GraphProto(name="region"), names_for(nodes)
    graph.input.extend(_input(v, names, k, v in lengths) for k, v in enumerate(inputs))
    graph.node.extend(node_proto(n, names, str(k)) for k, n in enumerate(nodes))
    graph.output.extend(_declared(v, names) for v in outputs)
    for value, constant in constants.items():
        graph.initializer.append(tensor_proto(constant, names.of(value)))
    for value, constant in weights.items():
        assert isinstance(value.type, TensorType)
        weight = graph.initializer.add(name=names.of(value), data_type=CODES[value.type.dtype])
        weight.dims.extend(value.type.known_sizes or ())
        weight.data_location = TensorProto.EXTERNAL
        entries = {"location": "given with the model"}
        if isinstance(constant.source, ExternalData):
            entries = {"location": constant.source.location, "offset": str(constant.source.offset)}
        for key, entry in entries.items():
            weight.external_data.add(key=key, value=entry)
    model = ModelProto(ir_version=IR_VERSION, graph=graph)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    return Region(
        model.SerializeToString(deterministic=True),
        tuple(map(names.of, inputs)),
        tuple(map(names.of, outputs)),
        tuple((names.of(v), c) for v, c in weights.items()),
        tuple(_wrong_optimisations(nodes)),
    )


def _wrong_optimisations(nodes: Sequence[Node]) -> Iterator[str]:
    """onnxruntime's optimisations that go wrong with some of the nodes, or may with those in bodies."""
    inner = {n.op_type for m in nodes for g in graphs_of(m.attributes.values()) for n in all_nodes(g.node)}
    products = [n for n in nodes if n.is_onnx("MatMul")]
    if "MatMul" in inner or any(n.inputs[1] is None or n.inputs[1].rank in (None, 1) for n in products):
        yield "MatmulTransposeFusion"  # multiplies a vector by the matrix, and not by its transpose
    scaled = {n.outputs[0]: n.inputs[1] for n in nodes if n.is_onnx("DequantizeLinear")}
    if "DequantizeLinear" in inner or any(
        (scale := scaled.get(n.inputs[0])) is not None and scale.known_sizes not in ((), (1,))
        for n in products
    ):
        yield "QDQSelectorActionTransformer"  # has only one scale for a product's first factor


def _input(value: Value, names: Names, number: int, sized: bool) -> ValueInfoProto:
    if sized and value.type is not None and value.known_sizes is not None:
        return ValueInfoProto(name=names.of(value), type=to_proto(value.type))
    info = _declared(value, names)
    for axis, dim in enumerate(info.type.tensor_type.shape.dim if value.sizes else ()):
        dim.dim_param = f"{number}.{axis}"
    return info


def _declared(value: Value, names: Names) -> ValueInfoProto:
    return ValueInfoProto(
        name=names.of(value), type=None if value.type is None else to_proto(only_ranks(value.type))
    )


def tensor_proto(constant: Constant, name: str) -> TensorProto:
    """A constant as a tensor of the file, under a name."""
    proto = TensorProto()
    if isinstance(constant.source, TensorProto):
        proto.CopyFrom(constant.source)
    else:
        proto.CopyFrom(numpy_helper.from_array(constant.content))
    proto.name = name
    return proto
