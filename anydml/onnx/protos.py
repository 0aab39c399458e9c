"""ONNX's protos, and how they are made, without the rest of the onnx package.

    node = make_node("Relu", ["x"], ["y"])

`import onnx` takes longer than to load and run a small model: with it come its checker, its parser, the
schemas of all operators and protobuf's JSON. A session needs none of these. The classes are the same ones:
protobuf makes one class of a message, whoever asks for it first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from numbers import Integral, Real
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        SparseTensorProto,
        StringStringEntryProto,
        TensorProto,
        TensorShapeProto,
        TypeProto,
        ValueInfoProto,
    )

__all__ = [
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "OperatorSetIdProto",
    "SparseTensorProto",
    "StringStringEntryProto",
    "TensorProto",
    "TensorShapeProto",
    "TypeProto",
    "ValueInfoProto",
    "attribute_value",
    "make_attribute",
    "make_node",
    "make_opsetid",
    "make_tensor_type_proto",
    "make_tensor_value_info",
    "model_of_one",
]


def _generated() -> Any:
    """What protobuf has generated of ONNX's protos: a module that imports nothing else of onnx."""
    if "onnx" in sys.modules or not _one_class_of_a_message():
        return import_module("onnx")
    package = find_spec("onnx")
    folders = package.submodule_search_locations if package is not None else None
    file = Path(folders[0] if folders else "", "onnx_ml_pb2.py")
    spec = spec_from_file_location("anydml.onnx.onnx_ml_pb2", file)
    if not file.is_file() or spec is None or spec.loader is None:  # an onnx that was built in another way
        return import_module("onnx")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _one_class_of_a_message() -> bool:
    """Whether protobuf gives those who ask again the class that is there, as it does in C."""
    kind: str = import_module("google.protobuf.internal.api_implementation").Type()
    return kind == "upb"


if not TYPE_CHECKING:
    _protos = _generated()
    globals().update({name: getattr(_protos, name) for name in __all__ if name.endswith("Proto")})

_ONE: Mapping[type, tuple[int, str]] = {
    TensorProto: (AttributeProto.TENSOR, "t"),
    SparseTensorProto: (AttributeProto.SPARSE_TENSOR, "sparse_tensor"),
    GraphProto: (AttributeProto.GRAPH, "g"),
    TypeProto: (AttributeProto.TYPE_PROTO, "tp"),
}
_MANY: tuple[tuple[Any, int, str], ...] = (
    (Integral, AttributeProto.INTS, "ints"),
    (Real, AttributeProto.FLOATS, "floats"),
    (bytes, AttributeProto.STRINGS, "strings"),
    (TensorProto, AttributeProto.TENSORS, "tensors"),
    (SparseTensorProto, AttributeProto.SPARSE_TENSORS, "sparse_tensors"),
    (GraphProto, AttributeProto.GRAPHS, "graphs"),
    (TypeProto, AttributeProto.TYPE_PROTOS, "type_protos"),
)
"""What lists of them are, and where an attribute has it: the first that all items are."""
_VALUES: Mapping[int, Callable[[AttributeProto], Any]] = {
    AttributeProto.UNDEFINED: lambda a: None,
    AttributeProto.INT: attrgetter("i"),
    AttributeProto.FLOAT: attrgetter("f"),
    AttributeProto.STRING: attrgetter("s"),
    **{kind: attrgetter(field) for kind, field in _ONE.values()},
    **{kind: lambda a, field=field: list(getattr(a, field)) for _, kind, field in _MANY},  # type: ignore[misc]
}


def attribute_value(attribute: AttributeProto) -> Any:
    """What an attribute holds; texts are bytes.

    Raises:
        ValueError: it stands for an attribute of the function around it.
    """
    if attribute.ref_attr_name:
        raise ValueError(f"expected a value, but got a reference to attribute {attribute.ref_attr_name!r}")
    return _VALUES[attribute.type](attribute)


def make_attribute(name: str, value: Any) -> AttributeProto:
    """An attribute of the kind that the value is.

    Raises:
        TypeError: ONNX has no such attributes.
        ValueError: nor such lists, or it is an empty one, which may be one of anything.
    """
    made = AttributeProto(name=name)
    if isinstance(value, Integral):
        made.type, made.i = AttributeProto.INT, int(value)
    elif isinstance(value, Real):
        made.type, made.f = AttributeProto.FLOAT, float(value)
    elif isinstance(value, str | bytes):
        made.type, made.s = AttributeProto.STRING, _encoded(value)
    elif type(value) in _ONE:
        made.type, field = _ONE[type(value)]  # type: ignore[assignment]
        getattr(made, field).CopyFrom(value)
    elif isinstance(value, Iterable):
        items = [_encoded(item) if isinstance(item, str) else item for item in value]
        found = (m for m in _MANY if items and all(isinstance(item, m[0]) for item in items))
        _, made.type, field = next(found, (None, AttributeProto.UNDEFINED, ""))  # type: ignore[assignment]
        if not field:
            raise ValueError(f"expected numbers, texts or messages of one kind, but got {value!r}")
        getattr(made, field).extend(items)
    else:
        raise TypeError(f"expected a value of an attribute, but got {value!r}")
    return made


def _encoded(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def make_node(
    op_type: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    name: str = "",
    domain: str = "",
    **attributes: Any,
) -> NodeProto:
    """A node with its attributes by name, of which those that are None are left out."""
    given = [make_attribute(n, value) for n, value in sorted(attributes.items()) if value is not None]
    return NodeProto(
        op_type=op_type,
        input=inputs,
        output=outputs,
        name=name or None,
        domain=domain or None,
        attribute=given,
    )


def make_opsetid(domain: str, version: int) -> OperatorSetIdProto:
    return OperatorSetIdProto(domain=domain, version=version)


def make_tensor_type_proto(code: int, sizes: Sequence[str | int | None] | None) -> TypeProto:
    """The type of a tensor whose sizes are numbers, names or not known; `None`: nor is its rank."""
    made = TypeProto()
    made.tensor_type.elem_type = code
    if sizes is not None:
        made.tensor_type.shape.SetInParent()  # of a scalar, too
    for size in sizes or ():
        dim = made.tensor_type.shape.dim.add()
        if isinstance(size, str):
            dim.dim_param = size
        elif size is not None:
            dim.dim_value = size
    return made


def make_tensor_value_info(name: str, code: int, sizes: Sequence[str | int | None] | None) -> ValueInfoProto:
    return ValueInfoProto(name=name, type=make_tensor_type_proto(code, sizes))


def model_of_one(
    node: NodeProto, inputs: Sequence[ValueInfoProto], output: ValueInfoProto, opset: int
) -> bytes:
    """The file of a model of one node, to see what a library makes of it."""
    graph = GraphProto(name="one", node=[node], input=inputs, output=[output])
    model = ModelProto(ir_version=7, graph=graph, opset_import=[make_opsetid("", opset)])
    content: bytes = model.SerializeToString()
    return content
