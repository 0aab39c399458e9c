"""Graphs as model files that stay true to the file they came from: names, opsets, metadata, functions.

Constants become initializers of the main graph, each once, however many branches use it. Values get their
names here: those that the file gave them where nothing speaks against it, and never one that stands for
something else.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from anydml.errors import Problem, Unsupported
from anydml.files import MAX_MODEL, Pending, is_alone, real_path, write_atomically
from anydml.ir.dims import Affine
from anydml.ir.graph import Constant, ExternalData, Graph, If, Node, TensorType, Type, Value
from anydml.ir.names import Names
from anydml.onnx.protos import FunctionProto, GraphProto, ModelProto, TensorProto, TypeProto, ValueInfoProto
from anydml.onnx.serde.node_writer import IDENTITY, NodeWriter, constant_node, tensor_proto, used_constants
from anydml.onnx.serde.parse import fixed_weights, opsets_of
from anydml.onnx.serde.region_model import turned_for_products
from anydml.onnx.serde.tensors import byte_count
from anydml.onnx.subgraphs import (
    all_graphs,
    all_nodes,
    all_tensors,
)
from anydml.onnx.types import CODES, to_proto


def model_proto(graph: Graph, original: ModelProto, opset: int | None = None) -> ModelProto:
    """The model of a graph whose inputs and outputs are some of the original's, by name and in order.

    Args:
        opset: of ONNX's own operators, if not the original's.
    """
    fixed = {v.name for v in graph.inputs} | {o.name for o in original.graph.output}
    names, labels = Names(fixed), Names()
    for value in graph.inputs:
        names.fix(value, value.name)
    graph = _with_outputs(graph, [o.name for o in original.graph.output], names)
    proto = ModelProto()
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if original.HasField(field):
            setattr(proto, field, getattr(original, field))
    proto.opset_import.extend(original.opset_import)
    for told in proto.opset_import:
        if not told.domain and opset is not None:
            told.version = opset
    proto.metadata_props.extend(original.metadata_props)
    typed = declares_types(original.graph)
    inside = _dequantized_in_a_branch(graph)
    constants = {v: c for v, c in used_constants(graph) if v not in inside}
    writer = NodeWriter(
        names,
        lambda n: labels.fresh(n.name) if n.name else "",
        _type_proto,
        _initializer,
        typed=typed,
        opset=opsets_of(proto, "")[""],
        around=constants.keys(),
        inside=inside,
        as_nodes=fixed_weights(original),
    )
    made = proto.graph
    made.name, made.doc_string = original.graph.name, original.graph.doc_string
    tensors = {v: _initializer(c, v, names.of(v)) for v, c in constants.items()}
    listed = {t.name for t in original.graph.initializer}
    if fixed_weights(original):  # such a file lists them among its inputs; what is no weight there is a node
        made.node.extend(constant_node(t) for t in tensors.values() if t.name not in listed)
        tensors = {v: t for v, t in tensors.items() if t.name in listed}
    made.node.extend(writer.nodes(graph.nodes))
    by_name = {i.name: i for i in original.graph.input}
    given = {t.name: t for t in original.graph.initializer}
    sparse = {t.values.name: t for t in original.graph.sparse_initializer}
    for value in graph.inputs:
        info = made.input.add()
        info.CopyFrom(by_name[value.name])
        if isinstance(value.type, TensorType):
            _size(info, value.type)
        if value.name in given:  # what it is if it is not fed
            made.initializer.append(given[value.name])
        elif value.name in sparse:
            made.sparse_initializer.append(sparse[value.name])
    for value, told in zip(graph.outputs, original.graph.output, strict=True):
        info = made.output.add()
        info.CopyFrom(told)
        dims = info.type.tensor_type.shape.dim
        if value.sizes is not None and len(dims) == len(value.sizes):
            for dim, size in zip(dims, value.sizes, strict=True):
                if isinstance(size, int):
                    dim.dim_value = size
    for value, tensor in tensors.items():
        made.initializer.append(tensor)
        if fixed_weights(original):
            made.input.append(writer.declared(value))
    if typed:
        known = (v for n in graph.nodes for v in n.writes if v not in graph.outputs)
        made.value_info.extend(writer.declared(v) for v in known if v.type is not None)
    alive = {names.of(v) for n in graph.walk(bodies=True) for v in (*n.reads, *n.writes)}
    made.quantization_annotation.extend(
        a for a in original.graph.quantization_annotation if a.tensor_name in alive
    )
    called = {(n.domain, n.op_type) for n in all_nodes(made.node)}
    kept = [f for f in original.functions if (f.domain, f.name) in called]
    while kept != (more := [f for f in original.functions if (f.domain, f.name) in called | _calls(kept)]):
        kept = more
    proto.functions.extend(kept)
    return proto


def _dequantized_in_a_branch(graph: Graph) -> set[Value]:
    """The weights that one branch alone has, and dequantizes, with their scales: where onnxruntime makes one
    operator of that and a product, it looks for them beside."""
    found: set[Value] = set()
    users: Counter[Value] = Counter()
    graphs = [graph]
    for g in graphs:
        users.update({*(v for n in g.nodes for v in n.reads), *g.outputs})
        for node in g.nodes:
            graphs += [b for _, b in node.branches] if isinstance(node, If) else node.bodies.values()
            if g is not graph and isinstance(node, Node) and node.is_onnx("DequantizeLinear"):
                found.update(v for v in node.reads if v in g.constants)
    return {v for v in found if users[v] == 1}


def save(proto: ModelProto, folder: Path, target: Path | IO[bytes]) -> None:
    """Write a model whose external data, if there is any, lies in `folder`: all of it, or nothing.

    In another folder, the data is copied into a file beside the model. What has no place beside it, an open
    file, a pipe, a device, gets a model with the data inside. `Pending` tells what becomes of a file that is
    there already.

    Raises:
        OSError: the file cannot be written.
        Unsupported: with the data inside, the model would be larger than protobuf reads.
    """
    external = any(t.data_location == TensorProto.EXTERNAL for t in all_tensors(proto.graph))
    if not isinstance(target, Path) or is_alone(target):
        content = (_with_data_inside(proto, folder) if external else proto).SerializeToString()
        if isinstance(target, Path):
            write_atomically(target, lambda file: file.write(content))
        else:
            target.write(content)
            target.flush()
        return
    place = real_path(target)
    if not external or place.parent == folder.resolve():
        write_atomically(target, lambda file: file.write(proto.SerializeToString()))
        return
    copy = ModelProto()
    copy.CopyFrom(proto)
    beside = _free_place(place, {(folder / n).resolve() for n in _locations(proto)})
    with (
        Pending(beside, lambda file: _copy_data(copy, folder, beside.name, file)) as data,
        Pending(target, lambda file: file.write(copy.SerializeToString())) as model,
    ):
        data.place()
        model.place()


def _free_place(place: Path, taken: Collection[Path]) -> Path:
    """A file for the data beside a model, which is none of the files that the data comes from."""
    beside, count = place.with_name(f"{place.name}.data"), 1
    while beside.resolve() in taken:
        count += 1
        beside = place.with_name(f"{place.name}.{count}.data")
    return beside


def _locations(proto: ModelProto) -> Iterator[str]:
    """The files of external data."""
    for tensor in all_tensors(proto.graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            yield from (e.value for e in tensor.external_data if e.key == "location")


def _with_data_inside(proto: ModelProto, folder: Path) -> ModelProto:
    """The model with its external data in its tensors."""
    stored = (byte_count(t) or 0 for t in all_tensors(proto.graph) if t.data_location == TensorProto.EXTERNAL)
    if sum(stored) + proto.ByteSize() > MAX_MODEL:
        message = f"expected at most {MAX_MODEL:,} bytes for a model in one piece, but got more"
        raise Unsupported(Problem("", message, "write it to a file, beside which its data can be"))
    copy, data = ModelProto(), io.BytesIO()
    copy.CopyFrom(proto)
    _copy_data(copy, folder, "", data)
    for tensor in all_tensors(copy.graph):
        if tensor.data_location == TensorProto.EXTERNAL:
            told = {e.key: int(e.value) for e in tensor.external_data if e.key != "location"}
            tensor.raw_data = bytes(data.getbuffer()[told["offset"] :][: told["length"]])
            tensor.data_location = TensorProto.DEFAULT
            del tensor.external_data[:]
    return copy


def _copy_data(proto: ModelProto, folder: Path, name: str, file: IO[bytes]) -> None:
    """Write all external data to one file, and have the tensors point there."""
    for tensor in all_tensors(proto.graph):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        told = {e.key: e.value for e in tensor.external_data}
        offset, start = int(told.get("offset", "0")), file.tell()
        with (folder / told["location"]).open("rb") as source:
            size = source.seek(0, os.SEEK_END) - offset
            whole = length = int(told["length"]) if "length" in told else byte_count(tensor) or size
            source.seek(offset)
            while length and (part := source.read(min(length, 1 << 24))):
                file.write(part)
                length -= len(part)
        del tensor.external_data[:]
        entries = {"location": name, "offset": str(start), "length": str(whole)}
        for key, entry in entries.items():
            tensor.external_data.add(key=key, value=entry)


def declares_types(graph: GraphProto) -> bool:
    """Whether a file says something of types that nodes make, in branches too."""
    return any(g.value_info for g in all_graphs(graph))


def _initializer(constant: Constant, value: Value, name: str) -> TensorProto:
    if not isinstance(constant.source, ExternalData) or not isinstance(value.type, TensorType):
        return tensor_proto(constant, name)
    proto = TensorProto(name=name, data_type=CODES[value.type.dtype])
    proto.dims.extend(value.type.known_sizes or ())
    proto.data_location = TensorProto.EXTERNAL
    length = str(constant.content.nbytes)
    for key, entry in (("location", constant.source.location), ("offset", str(constant.source.offset))):
        proto.external_data.add(key=key, value=entry)
    proto.external_data.add(key="length", value=length)
    return proto


def _with_outputs(graph: Graph, outputs: list[str], names: Names) -> Graph:
    """The graph with outputs of these names; what is given out by two names, or has another, is passed on;
    so is what onnxruntime would not give out."""
    written = {v for n in graph.nodes for v in n.writes} - set(turned_for_products(graph.nodes))
    ends: dict[str, Value] = {}
    passed: list[Node] = []
    for value, name in zip(graph.outputs, outputs, strict=True):
        if name in ends:  # a file may list an output twice
            continue
        if value not in ends.values() and (value in written or value.name == name):
            ends[name] = value
        else:
            ends[name] = Value(name, value.type)
            passed.append(Node(IDENTITY, (value,), (ends[name],), {}, name))
        names.fix(ends[name], name)
    return replace(graph, outputs=tuple(ends[n] for n in outputs), nodes=(*graph.nodes, *passed))


def _type_proto(type: Type) -> TypeProto:
    """The type with those symbols that the file has names for."""
    return to_proto(type, lambda size: size.name or None)


def _size(info: ValueInfoProto, type: TensorType) -> None:
    """Declare the sizes that are known now."""
    if type.sizes is None:
        return
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        info.type.CopyFrom(_type_proto(type))
        return
    for dim, size in zip(info.type.tensor_type.shape.dim, type.sizes, strict=True):
        if isinstance(size, int):
            dim.dim_value = size
        elif isinstance(size, Affine) and size.name:
            dim.dim_param = size.name


def _calls(functions: Iterable[FunctionProto]) -> set[tuple[str, str]]:
    """What local functions call."""
    return {(n.domain, n.op_type) for f in functions for n in all_nodes(f.node)}
