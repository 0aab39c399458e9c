"""ONNX models made worse: their bytes, and any part of their messages. What is random is drawn by hypothesis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from onnx import GraphProto, ModelProto, NodeProto

from tests.robustness.fuzz_seeds import WEIGHTS_FILE
from tests.robustness.fuzz_text import NAMES, chance, damaged, one

_NUMBERS = (
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
)
_REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3.4e38, math.inf, -math.inf, math.nan)
_CONTENTS = (
    b"",
    b"\xff\xfe",
    b"x" * 100,
    b"linear",
    b"SAME_UPPER",
    b"ij->ji",
    *(n.to_bytes(8, "little", signed=True) for n in _NUMBERS),
)
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "own", "ai.onnx.preview.training", "anydml", "?")
_EXTERNAL = {
    "location": (WEIGHTS_FILE, "", ".", "..", "/dev/null", "a\0b", "nothing", "x" * 5000),
    **dict.fromkeys(
        ("offset", "length"),
        ("0", "12", "4", "-4", "", "x", "1e3", "9" * 30, "9" * 5000, "²", "٣", " 12", str(2**63)),
    ),
}
_LEAST = {Field.CPPTYPE_INT32: -(2**31), Field.CPPTYPE_UINT32: 0, Field.CPPTYPE_UINT64: 0}
_MOST = {Field.CPPTYPE_INT32: 2**31 - 1, Field.CPPTYPE_UINT32: 2**32 - 1, Field.CPPTYPE_UINT64: 2**64 - 1}


def model(draw: DrawFn, data: bytes, others: Sequence[bytes]) -> bytes:
    """A damaged model file."""
    if chance(draw, 25):
        return damaged(draw, data, others)
    proto = ModelProto.FromString(data)
    for _ in range(one(draw, [1, 1, 1, 2, 2, 3, 5])):
        Change(draw, proto).make()
    if chance(draw, 3):  # nodes, initializers and outputs of another model
        other = ModelProto.FromString(one(draw, others)).graph
        del other.input[:]
        one(draw, [m for m in walk(proto) if isinstance(m, GraphProto)] or [proto.graph]).MergeFrom(other)
    data = proto.SerializeToString()
    return damaged(draw, data, others) if chance(draw, 5) else data


def walk(message: Message) -> Iterator[Message]:
    """A message, and all in it."""
    yield message
    for field, value in message.ListFields():
        if field.type == Field.TYPE_MESSAGE:
            for inner in value if field.is_repeated else [value]:
                yield from walk(inner)


@cache
def _operators() -> list[str]:
    return sorted({s.name for s in onnx.defs.get_all_schemas_with_history()})


@cache
def _attributes(operator: str) -> list[str]:
    found = [s for s in onnx.defs.get_all_schemas_with_history() if s.name == operator]
    return sorted({n for s in found for n in s.attributes})


class Change:
    """One change of a model."""

    def __init__(self, draw: DrawFn, proto: ModelProto) -> None:
        self.draw = draw
        self.by_type: dict[str, list[Message]] = {}
        for m in walk(proto):
            self.by_type.setdefault(type(m).__name__, []).append(m)
        nodes = [m for m in self.by_type.get("NodeProto", []) if isinstance(m, NodeProto)]
        self.names = sorted({"", *(n for node in nodes for n in (*node.input, *node.output))})
        self.attributes = sorted({a for node in nodes for a in _attributes(node.op_type)}) or NAMES[:8]

    def make(self) -> None:
        """A field of a message; half of the time of a node, an attribute or a tensor, if there are any."""
        wanted = [k for k in ("NodeProto", "AttributeProto", "TensorProto") if k in self.by_type]
        kind = one(self.draw, wanted if wanted and chance(self.draw, 50) else sorted(self.by_type))
        message = one(self.draw, self.by_type[kind])
        there = [f for f, _ in message.ListFields()]
        if there and chance(self.draw, 10):
            message.ClearField(one(self.draw, there).name)
        else:
            fields = there if there and chance(self.draw, 70) else list(message.DESCRIPTOR.fields)
            self.change(message, one(self.draw, fields))

    def change(self, message: Message, field: Field) -> None:
        """Another value; of repeated ones one goes, comes, changes, is doubled or moved, or many come."""
        value = getattr(message, field.name)
        if not field.is_repeated:
            if field.type != Field.TYPE_MESSAGE:
                setattr(message, field.name, self.scalar(message, field, value))
            elif chance(self.draw, 30):
                value.SetInParent()
            else:
                self.fill(value, self.fresh(value))
            return
        if field.type == Field.TYPE_MESSAGE:
            kept = [type(v).FromString(v.SerializePartialToString()) for v in value]
            made: Any = self.fresh(value.add())
        else:
            kept, made = list(value), None
            made = self.scalar(message, field, one(self.draw, kept) if kept else None)
        at, to = (self.draw(st.integers(0, max(len(kept) - 1, 0))) for _ in range(2))
        match self.draw(st.integers(0, 6)):
            case 0:
                del kept[at : at + 1]
            case 1:
                kept.insert(at, made)
            case 2 if kept:
                kept.insert(to, kept.pop(at))
            case 3 if kept:
                kept.insert(to, kept[at])
            case 4:
                kept = kept[:1] * one(self.draw, [0, 2, 5, 64, 300])
            case _:
                kept[at : at + 1] = [made]
        del value[:]
        value.extend(kept)

    def fresh(self, like: Message) -> Message:
        """Another message of the same type: one of the model's with a change, or one made up."""
        known = self.by_type.get(type(like).__name__)
        made = type(like)()
        if known and chance(self.draw, 30):
            made.CopyFrom(one(self.draw, known))
        fields = list(made.DESCRIPTOR.fields)
        for _ in range(one(self.draw, [1, 2, 3])):
            field = one(self.draw, fields)
            if field.type != Field.TYPE_MESSAGE:
                self.change(made, field)
            elif known := self.by_type.get(field.message_type.name):
                inner = getattr(made, field.name)
                self.fill(inner.add() if field.is_repeated else inner, one(self.draw, known))
        if isinstance(made, onnx.AttributeProto):
            self.typed(made)
        return made

    def fill(self, message: Message, content: Message) -> None:
        """A message may be put into itself."""
        message.ParseFromString(content.SerializePartialToString())

    def typed(self, a: onnx.AttributeProto) -> None:
        """A type that fits, if anything is set: else nothing looks at what is."""
        kinds = {"f": 1, "i": 2, "s": 3, "t": 4, "g": 5, "floats": 6, "ints": 7, "strings": 8}
        there = [kinds[f.name] for f, _ in a.ListFields() if f.name in kinds]
        if not there:
            a.type, a.i = onnx.AttributeProto.INT, one(self.draw, _NUMBERS)
        elif chance(self.draw, 90):
            a.type = there[0]  # type: ignore[assignment]
        a.name = a.name or one(self.draw, self.attributes)

    def scalar(self, message: Message, field: Field, old: Any) -> Any:
        draw = self.draw
        match field.cpp_type:
            case Field.CPPTYPE_STRING if field.type == Field.TYPE_BYTES:
                old = old or b""
                return one(draw, [old[:-1], old + b"\0", old * 2, *_CONTENTS, draw(st.binary(max_size=8))])
            case Field.CPPTYPE_STRING:
                return one(draw, self.strings(message, field.name))
            case Field.CPPTYPE_ENUM:
                return one(draw, list(field.enum_type.values_by_number))
            case Field.CPPTYPE_FLOAT | Field.CPPTYPE_DOUBLE:
                return one(draw, _REALS)
        versions = range(1, onnx.defs.onnx_opset_version() + 2)
        near = [old + 1, old - 1] * 2 if isinstance(old, int) else []
        drawn = [draw(st.integers(-2, 30)), *(one(draw, _NUMBERS) for _ in range(2)), one(draw, versions)]
        least, most = _LEAST.get(field.cpp_type, -(2**63)), _MOST.get(field.cpp_type, 2**63 - 1)
        return one(draw, [n for n in (*near, *drawn) if least <= n <= most] or [1])

    def strings(self, message: Message, field: str) -> Sequence[str]:
        """What is likely to mean something there."""
        likely: dict[str, Sequence[str]] = {"op_type": _operators(), "domain": _DOMAINS}
        if isinstance(message, onnx.StringStringEntryProto):
            likely |= {"key": list(_EXTERNAL), "value": _EXTERNAL.get(message.key, _DOMAINS)}
        if isinstance(message, onnx.AttributeProto):
            likely["name"] = self.attributes
        found = likely.get(field, self.names)
        return one(self.draw, [found, found, found, self.names, NAMES, _operators()])
