"""ONNX's element types, and its TypeProto as the types of graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from anydml.ir.dims import Affine, Dim, Symbol, is_anonymous
from anydml.ir.graph import MapType, OptionalType, SequenceType, TensorType, Type
from anydml.onnx.protos import TensorProto, TensorShapeProto, TypeProto, make_tensor_type_proto

_RENAMED = {"FLOAT": "float32", "DOUBLE": "float64"}
DTYPES: dict[int, str] = {
    code: _RENAMED.get(name, name.lower())
    for name, code in TensorProto.DataType.items()
    if name != "UNDEFINED"
}
"""ONNX's number of an element type -> its name as NumPy (and ml_dtypes) has it."""
CODES: dict[str, int] = {name: code for code, name in DTYPES.items()}
_EXTENSIONS = {
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
    "float4e2m1": "float4_e2m1fn",
    "bfloat16": "bfloat16",
    "int4": "int4",
    "uint4": "uint4",
    "int2": "int2",
    "uint2": "uint2",
}
"""Of the types that NumPy has not itself, what ml_dtypes calls them."""
_ONNX_NAMES = {name: onnx for onnx, name in _EXTENSIONS.items()}


def onnx_name(type: Type | None) -> str:
    """As ONNX's documents and onnxruntime write it: `tensor(float)`, `seq(tensor(int64))`."""
    match type:
        case TensorType(dtype):
            return f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype, dtype) })"
        case SequenceType(element):
            return f"seq({onnx_name(element)})"
        case OptionalType(element):
            return f"optional({onnx_name(element)})"
        case MapType(key, element):
            return f"map({key},{onnx_name(element)})"
    return "unknown"


def type_text(type: Type | None) -> str:
    """As messages and reports write it: `float32[2,n,?]`; what is no tensor, as ONNX has it."""
    if not isinstance(type, TensorType):
        return onnx_name(type)
    if type.sizes is None:
        return f"{type.dtype}[...]"
    known = ("?" if is_anonymous(n) else str(n) for n in type.sizes)
    return f"{type.dtype}[{','.join(known)}]"


class FileSymbols:
    """The symbols of a file: one for each name that it gives to sizes."""

    def __init__(self) -> None:
        self._sizes: dict[str, Affine] = {}

    def __call__(self, name: str) -> Affine:
        if name not in self._sizes:
            self._sizes[name] = Affine.of(Symbol(name))
        return self._sizes[name]


def from_proto(proto: TypeProto, dim_of: Callable[[str], Dim] = lambda name: None) -> Type | None:
    """None where the file says nothing, or has a sparse tensor, which no operator here makes.

    `dim_of`: what a name that the message gives to a size stands for.
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        tensor = proto.tensor_type
        if tensor.elem_type not in DTYPES:
            return None
        sizes = tuple(_dim(d, dim_of) for d in tensor.shape.dim) if tensor.HasField("shape") else None
        return TensorType(DTYPES[tensor.elem_type], sizes)
    if kind in ("sequence_type", "optional_type"):
        inner = from_proto(getattr(proto, kind).elem_type, dim_of)
        if inner is None:
            return None
        return SequenceType(inner) if kind == "sequence_type" else OptionalType(inner)
    if kind == "map_type":
        inner, key = from_proto(proto.map_type.value_type, dim_of), DTYPES.get(proto.map_type.key_type)
        return None if inner is None or key is None else MapType(key, inner)
    return None


def _dim(dim: TensorShapeProto.Dimension, dim_of: Callable[[str], Dim]) -> Dim:
    if dim.HasField("dim_value"):  # below 0 it means, to some exporters, that it is not known
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return dim_of(dim.dim_param) if dim.dim_param and isinstance(dim.dim_param, str) else None


def to_proto(type: Type, name_of: Callable[[Affine], str | None] = lambda size: None) -> TypeProto:
    """The TypeProto of a type. Shared: not to be changed. `name_of`: what a size is to be called in it."""
    return _to_proto(_resize(type, lambda sizes: sizes and tuple(map(_name_sizes(name_of), sizes))))


def _name_sizes(name_of: Callable[[Affine], str | None]) -> Callable[[Dim], Any]:
    return lambda n: name_of(n) if isinstance(n, Affine) else n


@cache
def _to_proto(type: Type) -> TypeProto:
    """Of a type whose sizes are as a file has them: numbers, names or None."""
    match type:
        case SequenceType(element):
            return TypeProto(sequence_type=TypeProto.Sequence(elem_type=_to_proto(element)))
        case OptionalType(element):
            return TypeProto(optional_type=TypeProto.Optional(elem_type=_to_proto(element)))
        case MapType(key, element):
            return TypeProto(map_type=TypeProto.Map(key_type=CODES[key], value_type=_to_proto(element)))
        case TensorType(dtype, sizes):
            return make_tensor_type_proto(CODES[dtype], sizes)  # type: ignore[arg-type]


def only_ranks(type: Type) -> Type:
    """The type without its sizes: what a region that is to serve every shape may know."""
    return _resize(type, lambda sizes: None if sizes is None else (None,) * len(sizes))


def without_symbols(type: Type | None) -> Type | None:
    """The type with sizes that are numbers only."""
    if type is None:
        return None
    return _resize(type, lambda sizes: sizes and tuple(n if isinstance(n, int) else None for n in sizes))


def without_sizes(type: Type) -> Type:
    """The type without sizes and rank."""
    return _resize(type, lambda sizes: None)


def with_sizes(type: Type | None, other: Type | None) -> Type | None:
    """The type with the sizes of another one that are numbers; of another rank, it is as it was."""
    if not isinstance(other, TensorType) or not any(isinstance(n, int) for n in other.sizes or ()):
        return type
    assert other.sizes is not None
    sizes = type.sizes if isinstance(type, TensorType) else None
    if sizes is None:
        sizes = (None,) * len(other.sizes)
    if len(sizes) != len(other.sizes):
        return type
    known = (n if isinstance(n, int) else m for m, n in zip(sizes, other.sizes, strict=True))
    return TensorType(other.dtype, tuple(known))


Sizes = tuple[Dim, ...] | None


def _resize(type: Type, change: Callable[[Sizes], Sizes]) -> Type:
    match type:
        case SequenceType(element):
            return replace(type, element=_resize(element, change))
        case OptionalType(element) | MapType(_, element):
            return replace(type, element=_resize(element, change))
        case TensorType(dtype, sizes):
            return TensorType(dtype, change(sizes))


def leaf(type: Type) -> TensorType:
    """The tensor type inside sequences, optionals and maps."""
    while not isinstance(type, TensorType):
        type = type.element
    return type


def of_content(content: object, declared: Type | None = None) -> Type | None:
    """The type of something fed or computed; `declared` speaks where the content cannot."""
    if isinstance(content, np.ndarray):
        return TensorType(dtype_name(content.dtype), content.shape)
    if isinstance(content, list) and content and isinstance(declared, SequenceType | None):
        inner = of_content(content[0])
        return None if inner is None else SequenceType(without_sizes(inner))
    return declared


@cache
def dtype_name(dtype: np.dtype) -> str:
    """`float32`, `string` (objects and str), `float8e4m3fn` (ml_dtypes writes an underscore)."""
    if dtype.kind in "OU":
        return "string"
    return _ONNX_NAMES.get(dtype.name, dtype.name)


def code_of(dtype: np.dtype) -> int:
    """ONNX's number of an array's type.

    Raises:
        ValueError: ONNX has no such type.
    """
    name = dtype_name(dtype)
    if name not in CODES or (name != "string" and numpy_type(name) != dtype):  # of another order of bytes
        raise ValueError(f"expected a type of ONNX's tensors, but got {dtype}")
    return CODES[name]


@cache
def numpy_type(name: str) -> np.dtype:
    """The type that NumPy, or its extension, has for an element type."""
    if name == "string":
        return np.dtype(object)
    if name not in _EXTENSIONS:
        return np.dtype(name)
    import ml_dtypes  # which few models need

    dtype: np.dtype = np.dtype(getattr(ml_dtypes, _EXTENSIONS[name]))
    return dtype


def are_texts(value: np.ndarray) -> bool:
    """Whether all of an array's objects are texts: a column of a table may have numbers and None, too."""
    return {*map(type, value.ravel().tolist())} <= {str}
