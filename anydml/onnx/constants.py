"""The constants of ONNX files: initializers, external data, Constant nodes. Decoded when first used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, SparseTensorProto, TensorProto, numpy_helper

from anydml.ir.graph import Constant, TensorType, Type
from anydml.onnx.types import DTYPES
from anydml.problems import InvalidModel, Problem

Path_ = tuple[str, ...]
Report = Callable[[Path_, str, str], None]
"""Takes a problem: where, what is wrong, and the remedy."""
Known = tuple[Constant, Type | None]


@dataclass(frozen=True)
class ConstantReader:
    """Reads the constants of one model, whose external data must lie in `folder`."""

    folder: Path | None
    report: Report

    def initializer(self, tensor: TensorProto | SparseTensorProto, path: Path_) -> Known:
        if isinstance(tensor, SparseTensorProto):
            type = TensorType(DTYPES.get(tensor.values.data_type, "float32"), tuple(tensor.dims))
            return Constant(decode=partial(_dense, tensor)), type
        return self.tensor(tensor, path)

    def tensor(self, tensor: TensorProto, path: Path_) -> Known:
        where = (*path, f"constant {tensor.name!r}")
        if tensor.data_type not in DTYPES:
            self.report(where, f"expected an element type of ONNX, but got number {tensor.data_type}", "")
            return Constant(), None
        if any(d < 0 for d in tensor.dims):
            self.report(where, f"expected sizes of 0 or more, but got {list(tensor.dims)}", "")
            return Constant(), None
        type = TensorType(DTYPES[tensor.data_type], tuple(tensor.dims))
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, where), type
        expected = _byte_count(tensor)
        if tensor.HasField("raw_data") and expected is not None and len(tensor.raw_data) != expected:
            self.report(where, f"expected {expected} bytes, but got {len(tensor.raw_data)}", "")
        field, per_element = _FIELDS.get(tensor.data_type, ("", 0))
        if field and not tensor.HasField("raw_data"):
            count, wanted = len(getattr(tensor, field)), prod(map(int, tensor.dims)) * per_element
            if count != wanted:
                self.report(where, f"expected {wanted} numbers in {field}, but got {count}", "")
        return Constant(source=tensor, decode=partial(_decode, tensor, "/".join(where))), type

    def _external(self, tensor: TensorProto, where: Path_) -> Constant:
        """An external tensor, whose file is inside the model's folder and long enough."""
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        if self.folder is None:
            self.report(
                where,
                f"expected data inside the model, but it is in the file {location!r}",
                "load the model by its path, or load the data with onnx.load_external_data_for_model first",
            )
            return Constant()
        file = (self.folder / location).resolve()
        if not location or not file.is_relative_to(self.folder):
            self.report(where, f"expected external data inside the model's folder, but got {location!r}", "")
        elif not file.is_file():
            self.report(where, f"expected external data in {location!r}, but there is no such file", "")
        else:
            offset, length = (
                entries.get("offset") or "0",
                entries.get("length") or str(_byte_count(tensor) or 0),
            )
            needed = int(offset) + int(length) if offset.isdecimal() and length.isdecimal() else None
            size = file.stat().st_size
            if needed is None:
                self.report(where, f"expected numbers, but got offset {offset!r} and length {length!r}", "")
            elif (expected := _byte_count(tensor)) is not None and int(length) != expected:
                self.report(where, f"expected {expected} bytes, but got length {length}", "")
            elif needed > size:
                self.report(where, f"expected {needed} bytes in {location!r}, but got {size}", "truncated?")
        return Constant(decode=partial(_load_external, tensor, self.folder))

    def constant_node(self, proto: NodeProto, path: Path_) -> Known | None:
        """The content of a Constant node; None for a form that is left to run as a node."""
        if len(proto.attribute) != 1 or len(proto.output) != 1:
            return None
        a = proto.attribute[0]
        if a.name == "value":
            return self.tensor(a.t, (*path, proto.name or proto.output[0]))
        simple: dict[str, tuple[Any, Any]] = {
            "value_int": (a.i, np.int64),
            "value_ints": (list(a.ints), np.int64),
            "value_float": (a.f, np.float32),
            "value_floats": (list(a.floats), np.float32),
            "value_string": (a.s.decode(errors="replace"), object),
            "value_strings": ([s.decode(errors="replace") for s in a.strings], object),
        }
        if a.name not in simple:
            return None
        array = np.array(*simple[a.name])
        return Constant(array), TensorType(
            "string" if array.dtype == object else str(array.dtype), array.shape
        )


_FIELDS: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("float_data", 1),
    TensorProto.COMPLEX64: ("float_data", 2),
    TensorProto.DOUBLE: ("double_data", 1),
    TensorProto.COMPLEX128: ("double_data", 2),
    TensorProto.INT64: ("int64_data", 1),
    TensorProto.UINT32: ("uint64_data", 1),
    TensorProto.UINT64: ("uint64_data", 1),
    TensorProto.STRING: ("string_data", 1),
    **dict.fromkeys(
        (
            *(TensorProto.INT32, TensorProto.INT16, TensorProto.INT8, TensorProto.UINT16, TensorProto.UINT8),
            *(TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.BFLOAT16),
        ),
        ("int32_data", 1),
    ),
}
"""Where a tensor without raw data has its numbers, and how many an element takes."""


def _byte_count(tensor: TensorProto) -> int | None:
    """Bytes of a tensor's raw data; None for strings, and for elements smaller than a byte."""
    name = DTYPES[tensor.data_type]
    if name == "string" or name.endswith(("int4", "int2")) or name.startswith("float4"):
        return None
    return prod(map(int, tensor.dims)) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _decode(tensor: TensorProto, where: str) -> NDArray[Any]:
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as error:  # whatever the bytes made of it
        raise InvalidModel(
            Problem(where, f"expected contents that fit the sizes, but got: {error}")
        ) from error
    if tensor.data_type == TensorProto.STRING:
        texts = [
            t.decode(errors="replace") if isinstance(t, bytes) else t for t in array.reshape(-1).tolist()
        ]
        return np.array(texts, object).reshape(array.shape)
    return array


def _load_external(tensor: TensorProto, folder: Path) -> NDArray[Any]:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    try:
        onnx.external_data_helper.load_external_data_for_tensor(copy, str(folder))
    except Exception as error:  # the file changed since the model was loaded
        raise InvalidModel(
            Problem(f"constant {tensor.name!r}", f"expected external data, but got: {error}")
        ) from error
    copy.data_location = TensorProto.DEFAULT
    del copy.external_data[:]
    return numpy_helper.to_array(copy)


def _dense(tensor: SparseTensorProto) -> NDArray[Any]:
    values, indices = numpy_helper.to_array(tensor.values), numpy_helper.to_array(tensor.indices)
    dense = np.zeros(tuple(tensor.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense
