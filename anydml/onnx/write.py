"""Parts of graphs as ONNX models, for the libraries that run them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from anydml.ir.graph import Constant, Node, OnnxOp, Stored, TensorType, Value
from anydml.onnx.bodies import graphs_of, rename_free
from anydml.onnx.types import CODES, only_ranks, to_proto

IR_VERSION = 10
"""Old enough for every onnxruntime that is supported, new enough for every type that is handed to one."""


def node_proto(node: Node, name: str = "") -> NodeProto:
    """The node as a file would have it."""
    assert isinstance(node.op, OnnxOp)
    proto = NodeProto(op_type=node.op.name, domain=node.op.domain, name=name)
    proto.input.extend("" if v is None else v.name for v in node.inputs)
    outputs = ["" if v is None else v.name for v in node.outputs]
    proto.output.extend(part_names(outputs) if node.is_onnx("Split") else outputs)
    proto.attribute.extend(node.attributes.values())
    renamed = {old: v.name for old, v in node.captures.items() if v.name != old}
    if renamed:  # the protos are the file's: extend() has copied them
        for graph in graphs_of(proto.attribute):
            rename_free(graph, renamed)
    return proto


def part_names(outputs: Sequence[str]) -> list[str]:
    """Names for all results of a Split: onnxruntime ends the process if one has none."""
    stem = next((name for name in outputs if name), "split")
    return [name or f"{stem}~{k}" for k, name in enumerate(outputs)]


def region_proto(
    nodes: Sequence[Node],
    inputs: Iterable[Value],
    outputs: Iterable[Value],
    constants: Mapping[Value, Constant],
    opsets: Mapping[str, int],
    weights: Mapping[Value, Constant] = MappingProxyType({}),
) -> ModelProto:
    """A model of these nodes, named by their place, so that an error message leads back to one.

    Inputs are declared by type and rank, not by size: one region serves all sizes. Each size has a name,
    since names that onnxruntime makes itself cost it the square of their number. Weights are declared only.
    Lengths that ONNX's inference takes for 0 if it is not told them are told.
    """
    lengths = {v for n in nodes if n.is_onnx("Resize") for v in n.inputs[2:]}
    graph = onnx.GraphProto(name="region")
    graph.node.extend(node_proto(n, str(k)) for k, n in enumerate(nodes))
    graph.input.extend(_input(v, k, v in lengths) for k, v in enumerate(inputs))
    graph.output.extend(_declared(v) for v in outputs)
    for value, constant in constants.items():
        graph.initializer.append(tensor_proto(constant, value.name))
    for value, constant in weights.items():
        assert isinstance(value.type, TensorType)
        weight = graph.initializer.add(name=value.name, data_type=CODES[value.type.dtype])
        weight.dims.extend(value.type.known_sizes or ())
        weight.data_location = TensorProto.EXTERNAL
        entries = {"location": "given with the model"}
        if isinstance(constant.source, Stored):
            entries = {"location": constant.source.location, "offset": str(constant.source.offset)}
        for key, entry in entries.items():
            weight.external_data.add(key=key, value=entry)
    model = ModelProto(ir_version=IR_VERSION, graph=graph)
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    return model


def _input(value: Value, number: int, sized: bool) -> ValueInfoProto:
    if sized and value.type is not None and value.known_sizes is not None:
        return ValueInfoProto(name=value.name, type=to_proto(value.type))
    info = _declared(value)
    for axis, dim in enumerate(info.type.tensor_type.shape.dim if value.sizes else ()):
        dim.dim_param = f"{number}.{axis}"
    return info


def _declared(value: Value) -> ValueInfoProto:
    return ValueInfoProto(
        name=value.name, type=None if value.type is None else to_proto(only_ranks(value.type))
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
