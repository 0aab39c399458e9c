"""ONNX models made worse: their bytes, their fields, their structure.

All that is random comes from the generator that is given, so that a case can be made again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

from abuse.mutate_text import NAMES, bytes_of
from abuse.seeds import WEIGHTS_FILE, Corpus

NUMBERS = [
    0,
    1,
    2,
    3,
    -1,
    -2,
    7,
    255,
    2**15,
    2**20,
    2**31 - 1,
    2**31,
    -(2**31),
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
]
REALS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3.4e38, 1e300, math.inf, -math.inf, math.nan]
DOMAINS = ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "own", "ai.onnx.preview.training", "anydml", "?"]


# ---- ONNX models -------------------------------------------------------------------------------------


def model(data: bytes, rng: random.Random, corpus: Corpus) -> bytes:
    """A damaged model file."""

    def others() -> bytes:
        return rng.choice(corpus.models)[1]

    if rng.random() < 0.25:
        return bytes_of(data, rng, others)
    proto = ModelProto.FromString(data)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5])):
        change = rng.choice(_CHANGES)
        change(proto, rng)
    if rng.random() < 0.03:
        _graft(proto, rng, ModelProto.FromString(others()))
    data = proto.SerializeToString()
    return bytes_of(data, rng, others) if rng.random() < 0.05 else data


def _walk(message: Message) -> Iterator[tuple[Message, FieldDescriptor]]:
    """All fields that are set, of the message and of those in it."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from _walk(inner)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    yield graph
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("g"):
                yield from _graphs(a.g)


def _names(proto: ModelProto) -> list[str]:
    found = {"": None}
    for graph in _graphs(proto.graph):
        for node in graph.node:
            found |= dict.fromkeys((*node.input, *node.output))
        found |= dict.fromkeys(i.name for i in (*graph.input, *graph.initializer))
    return list(found)


def _field(proto: ModelProto, rng: random.Random) -> None:
    """Any field that is set gets another value, or goes."""
    there = list(_walk(proto))
    if not there:  # nothing is left of it
        return
    message, field = rng.choice(there)
    if rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        _set(message, field, rng, _names(proto))


def _unset_field(proto: ModelProto, rng: random.Random) -> None:
    """A field that no one thought of gets a value."""
    there = list(_walk(proto))
    message = rng.choice(there)[0] if there else proto
    field = rng.choice(message.DESCRIPTOR.fields)
    _set(message, field, rng, _names(proto))


def _set(message: Message, field: FieldDescriptor, rng: random.Random, names: list[str]) -> None:
    value = getattr(message, field.name)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if not field.is_repeated:
            value.SetInParent() if rng.random() < 0.5 else message.ClearField(field.name)
        elif value:
            _rearrange(value, rng)
        else:
            value.add()
        return
    if not field.is_repeated:
        setattr(message, field.name, _scalar(field, value, rng, names))
        return
    items = list(value)
    at = rng.randrange(len(items) + 1)
    fresh = _scalar(field, items[at] if at < len(items) else None, rng, names)
    match rng.randrange(4):
        case 0:
            items.insert(at, fresh)
        case 1:
            del items[at : at + 1]
        case _:
            items[at : at + 1] = [fresh]
    del value[:]
    value.extend(items)


def _scalar(field: FieldDescriptor, old: Any, rng: random.Random, names: list[str]) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            old = old or b""
            return rng.choice([b"", old[:-1], old + b"\0", old * 2, b"\xff\xfe", rng.randbytes(8)])
        case FieldDescriptor.CPPTYPE_STRING:
            return _text(rng, names)
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice(list(field.enum_type.values_by_number))
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice(REALS) if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE else _single(rng)
        case FieldDescriptor.CPPTYPE_INT32:
            return rng.choice([rng.randrange(-2, 30), *(n for n in NUMBERS if -(2**31) <= n < 2**31)])
        case FieldDescriptor.CPPTYPE_UINT64 | FieldDescriptor.CPPTYPE_UINT32:
            return rng.choice([n for n in NUMBERS if 0 <= n < 2**32])
        case _:
            near = [old + 1, old - 1] if isinstance(old, int) and abs(old) < 2**62 else []
            return rng.choice([*near, *near, rng.randrange(-2, 30), rng.choice(NUMBERS)])


def _single(rng: random.Random) -> float:
    value = rng.choice(REALS)
    return value if not math.isfinite(value) or abs(value) < 3.41e38 else math.inf


def _text(rng: random.Random, names: list[str]) -> str:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(names)
    if kind < 0.7:
        return rng.choice([n for n in NAMES if n != "\udcff"])
    if kind < 0.9:
        return rng.choice(_operators())
    return rng.choice(DOMAINS)


@cache
def _operators() -> list[str]:
    return sorted({s.name for s in onnx.defs.get_all_schemas_with_history()})


def _rearrange(items: Any, rng: random.Random) -> None:
    """Take away, double, or move one of repeated messages."""
    at = rng.randrange(len(items))
    held = list(items)
    copies = [type(i).FromString(i.SerializePartialToString()) for i in held]
    match rng.randrange(3):
        case 0:
            del copies[at]
        case 1:
            copies.insert(rng.randrange(len(copies) + 1), copies[at])
        case _:
            copies.insert(rng.randrange(len(copies)), copies.pop(at))
    del items[:]
    items.extend(copies)


def _some_node(proto: ModelProto, rng: random.Random) -> tuple[GraphProto, NodeProto] | None:
    nodes = [(g, n) for g in _graphs(proto.graph) for n in g.node]
    return rng.choice(nodes) if nodes else None


def _nodes(proto: ModelProto, rng: random.Random) -> None:
    graphs = [g for g in _graphs(proto.graph) if g.node]
    if graphs:
        _rearrange(rng.choice(graphs).node, rng)


def _ends(proto: ModelProto, rng: random.Random) -> None:
    """A node reads or writes otherwise."""
    some = _some_node(proto, rng)
    if some is None:
        return
    ends = some[1].input if rng.random() < 0.7 else some[1].output
    held = list(ends)
    match rng.randrange(5):
        case 0:
            rng.shuffle(held)
        case 1 if held:
            del held[rng.randrange(len(held))]
        case 2:
            held.append(rng.choice(_names(proto)))
        case 3:
            held = held[:1] * rng.choice([0, 2, 5, 300])
        case _ if held:
            held[rng.randrange(len(held))] = rng.choice(_names(proto))
    del ends[:]
    ends.extend(held)


def _operator(proto: ModelProto, rng: random.Random) -> None:
    """A node is another operator; in half of the cases its attributes go."""
    some = _some_node(proto, rng)
    if some is not None:
        some[1].op_type = rng.choice(_operators())
        if rng.random() < 0.3:
            some[1].domain = rng.choice(DOMAINS)
        if rng.random() < 0.5:
            del some[1].attribute[:]


def _attribute(proto: ModelProto, rng: random.Random) -> None:
    """An attribute goes, comes, or is of another kind."""
    some = _some_node(proto, rng)
    if some is None:
        return
    node = some[1]
    kind = rng.randrange(4)
    if kind == 0 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif kind == 1 and node.attribute:
        a = rng.choice(node.attribute)
        a.CopyFrom(_made(a.name, rng, proto))
    else:
        known = _attribute_names(node.op_type)
        name = rng.choice(known) if known and rng.random() < 0.8 else rng.choice(NAMES[:8])
        node.attribute.append(_made(name, rng, proto))


@cache
def _attribute_names(operator: str) -> list[str]:
    found = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == operator]
    return sorted({n for s in found for n in s.attributes})


def _made(name: str, rng: random.Random, proto: ModelProto) -> AttributeProto:
    a = AttributeProto(name=name)
    match rng.randrange(8):
        case 0 | 1:
            a.type, a.i = AttributeProto.INT, rng.choice(NUMBERS)
        case 2:
            a.type, a.f = AttributeProto.FLOAT, _single(rng)
        case 3:
            a.type, a.s = (
                AttributeProto.STRING,
                rng.choice([b"", b"linear", b"SAME_UPPER", b"\xff", b"ij->ji"]),
            )
        case 4:
            a.type = AttributeProto.INTS
            a.ints.extend(rng.choice(NUMBERS) for _ in range(rng.choice([0, 1, 2, 4, 8, 64])))
        case 5:
            a.type = AttributeProto.FLOATS
            a.floats.extend(_single(rng) for _ in range(rng.randrange(4)))
        case 6:
            a.type = AttributeProto.TENSOR
            a.t.CopyFrom(helper.make_tensor("t", TensorProto.INT64, [2], [rng.choice(NUMBERS), 2]))
        case _:
            a.type = AttributeProto.GRAPH
            a.g.CopyFrom(rng.choice(list(_graphs(proto.graph))))
    return a


def _version(proto: ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.3 or not proto.opset_import:
        proto.opset_import.add(domain=rng.choice(DOMAINS), version=rng.choice([*NUMBERS, *range(1, 29)]))
    else:
        newest = onnx.defs.onnx_opset_version()
        some = [*range(1, newest + 2), 0, -1, 2**40]
        rng.choice(proto.opset_import).version = rng.choice(some)


def _tensor(proto: ModelProto, rng: random.Random) -> None:
    """A tensor whose contents, sizes, type or place do not fit each other."""
    tensors = [m for m, f in _walk(proto) if isinstance(m, TensorProto) and f.name == "data_type"]
    if not tensors:
        return _field(proto, rng)
    t = rng.choice(tensors)
    match rng.randrange(7):
        case 0:
            t.raw_data = t.raw_data[: rng.randrange(len(t.raw_data) + 1)] + rng.randbytes(rng.randrange(3))
        case 1:
            t.data_type = rng.randrange(30)
        case 2:
            t.dims.extend([rng.choice(NUMBERS)])
        case 3 if t.dims:
            t.dims[rng.randrange(len(t.dims))] = rng.choice(NUMBERS)
        case 4:
            t.raw_data = rng.choice(np.array(NUMBERS[:-2], np.int64)).tobytes() * max(1, len(t.raw_data) // 8)
        case 5:
            t.data_type, t.dims[:] = TensorProto.STRING, [1]
            t.ClearField("raw_data")
            t.string_data.append(rng.choice([b"", b"\xff\xfe", b"x" * 100]))
        case _:
            t.data_location = TensorProto.EXTERNAL
            place = rng.choice([WEIGHTS_FILE, "", ".", "..", "/dev/null", "a\0b", "nothing", "x" * 5000])
            for key, value in (("location", place), ("offset", _digits(rng)), ("length", _digits(rng))):
                if rng.random() < 0.8:
                    t.external_data.add(key=key, value=value)
    return None


def _digits(rng: random.Random) -> str:
    return rng.choice(
        ["0", "12", "4", "-4", "", "x", "1e3", "9" * 30, "9" * 5000, "²", "٣", " 12", str(2**63)]
    )


def _type(proto: ModelProto, rng: random.Random) -> None:
    """An input or output is declared otherwise."""
    ends = [i for g in _graphs(proto.graph) for i in (*g.input, *g.output)]
    if not ends:
        return
    info = rng.choice(ends)
    match rng.randrange(6):
        case 0:
            info.type.tensor_type.elem_type = rng.randrange(30)
        case 1:
            info.type.tensor_type.shape.dim.add(dim_value=rng.choice(NUMBERS))
        case 2 if info.type.tensor_type.shape.dim:
            rng.choice(info.type.tensor_type.shape.dim).dim_value = rng.choice(NUMBERS[:12])
        case 3:
            info.ClearField("type")
        case 4:
            kept = onnx.TypeProto()
            kept.CopyFrom(info.type)
            kind = rng.choice(["sequence_type", "optional_type"])
            info.type.Clear()
            getattr(info.type, kind).elem_type.CopyFrom(kept)
        case _:
            info.type.tensor_type.ClearField("shape")


def _graft(proto: ModelProto, rng: random.Random, other: ModelProto) -> None:
    """Nodes and initializers of another model."""
    graph = rng.choice(list(_graphs(proto.graph)))
    graph.node.extend(other.graph.node)
    if rng.random() < 0.5:
        graph.initializer.extend(other.graph.initializer)
        graph.output.extend(other.graph.output)


_CHANGES: list[Callable[[ModelProto, random.Random], None]] = [
    *(_field, _field, _unset_field, _nodes, _ends, _ends, _operator),
    *(_attribute, _attribute, _version, _tensor, _tensor, _type),
]
