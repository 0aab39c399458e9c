"""The constants of ONNX files: initializers, external data, Constant nodes.

None of them holds on to the message that it was read from, whose memory so can go. Small ones are decoded
when first used; external data is mapped into memory, so that only what is used is ever read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass, field
from anydml.errors import InvalidModel, Problem, by_a_handler, counted, short_repr
from anydml.ir.graph import Constant, ExternalData, TensorType, Type
from anydml.onnx.arrays import to_array
from anydml.onnx.protos import NodeProto, SparseTensorProto, TensorProto
from anydml.onnx.serde.external_data import resolve
from anydml.onnx.serde.raw_data import RawData
from anydml.onnx.types import DTYPES, numpy_type
from anydml.runtime.mapped_file import MappedFile, can_map
from anydml.runtime.memory import size_problem

Path_ = tuple[str, ...]
Report = Callable[[Path_, str, str], None]
"""Takes a problem: where, what is wrong, and the remedy."""
Known = tuple[Constant, Type | None]


@dataclass(frozen=True)
class ConstantReader:
    """Reads the constants of one model, whose external data must lie in `folder`."""

    folder: Path | None
    report: Report
    raw: RawData | None = None
    """What is not in the messages."""
    files: dict[Path, os.stat_result] = field(default_factory=dict)
    """External data, as it was found."""
    mapped: dict[Path, MappedFile] = field(default_factory=dict)

    def initializer(self, tensor: TensorProto | SparseTensorProto, path: Path_) -> Known:
        return (
            self._sparse(tensor, path) if isinstance(tensor, SparseTensorProto) else self.tensor(tensor, path)
        )

    def _sparse(self, tensor: SparseTensorProto, path: Path_) -> Known:
        where = (*path, f"constant {tensor.values.name!r}")
        data_type, sizes = tensor.values.data_type, tuple(tensor.dims)
        if data_type not in DTYPES or not sizes or min(sizes) < 0:
            got = f"{DTYPES.get(data_type, data_type)} of sizes {list(sizes)}"
            self.report(where, f"expected a sparse tensor of a type and sizes of ONNX, but got {got}", "")
            return Constant(), None
        itemsize = numpy_type(DTYPES[data_type]).itemsize
        problem = size_problem("", DTYPES[data_type], sizes, itemsize)
        if problem is not None:
            self.report(where, problem.message, "")
            return Constant(), None
        return Constant(decode=partial(_dense, tensor, "/".join(where))), TensorType(DTYPES[data_type], sizes)

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
            return self._external(tensor, where) or Constant(), type
        expected = byte_count(tensor)
        given = tensor.raw_data if tensor.HasField("raw_data") else None  # a copy, each time
        elsewhere = None if given is None or self.raw is None else self.raw.of(given)
        raw, stored = (given, None) if elsewhere is None else elsewhere
        if raw is not None and expected is not None and len(raw) != expected:
            self.report(where, f"expected {expected} bytes, but got {len(raw)}", "")
            return Constant(), type
        field, per_element = _FIELDS.get(tensor.data_type, ("", 0))
        if field and raw is None:
            count, wanted = len(getattr(tensor, field)), prod(map(int, tensor.dims)) * per_element
            if count != wanted:
                self.report(where, f"expected {counted(wanted, 'number')} in {field}, but got {count}", "")
        if expected is not None and expected >= MIN_WEIGHT_BYTES:
            if raw is None or sys.byteorder != "little":
                whole = _whole(tensor, raw) if isinstance(raw, memoryview) else tensor
                return Constant(_decode(whole, "/".join(where))), type
            dtype = numpy_type(DTYPES[tensor.data_type])
            return Constant(np.frombuffer(raw, dtype).reshape(tuple(tensor.dims)), source=stored), type
        own = _whole(tensor, raw)
        return Constant(source=own, decode=partial(_decode, own, "/".join(where))), type

    def _external(self, tensor: TensorProto, where: Path_) -> Constant | None:
        """An external tensor, if its file is inside the model's folder and long enough."""
        entries = {e.key: e.value for e in tensor.external_data}
        if not all(isinstance(text, str) for pair in entries.items() for text in pair):
            self.report(where, "expected a place of external data in UTF-8, but got other bytes", "damaged?")
            return None
        location = entries.get("location", "")
        if self.folder is None:
            self.report(
                where,
                f"expected data inside the model, but it is in the file {location!r}",
                "load the model by its path, or load the data with onnx.load_external_data_for_model first",
            )
            return None
        file = resolve(self.folder, location)
        offset, length = entries.get("offset", "0"), entries.get("length", str(byte_count(tensor) or 0))
        expected = byte_count(tensor)
        if file is None or not file.is_relative_to(self.folder):
            message = f"expected external data inside the model's folder, but got {short_repr(location)}"
        elif not file.is_file():
            message = f"expected external data in {location!r}, but there is no such file"
        elif not (_is_count(offset) and _is_count(length)):
            message = f"expected numbers, but got offset {short_repr(offset)} and length {short_repr(length)}"
        elif expected is not None and int(length) != expected:
            message = f"expected {expected} bytes, but got length {length}"
        elif (needed := int(offset) + int(length)) > (size := self._size(file)):
            self.report(where, f"expected {needed} bytes in {location!r}, but got {size}", "truncated?")
            return None
        elif expected is None:
            return Constant(decode=partial(_load_external, tensor, self.folder))
        else:
            stored = ExternalData(self.folder, location, int(offset), self._mapped(file))
            return Constant(
                source=stored, decode=partial(_map_file, stored, tensor.data_type, (*tensor.dims,))
            )
        self.report(where, message, "")
        return None

    def _size(self, file: Path) -> int:
        found = self.files[file] = file.stat()
        return found.st_size

    def _mapped(self, file: Path) -> MappedFile | None:
        """The file as memory, so that it may go while a session is used; None where systems have no such."""
        if file not in self.mapped and can_map() and self.files[file].st_size:
            with suppress(OSError):  # told when it is read
                self.mapped[file] = MappedFile(file, watched=len(self.mapped) < MAX_WATCHED)
        return self.mapped.get(file)

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


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


MAX_WATCHED = 64
"""Files of external data that stay open: some models have one for each weight."""
MIN_WEIGHT_BYTES = 1 << 12
"""Bytes from which a content is taken out of the message at once: it is a weight, which is surely used."""
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


def byte_count(tensor: TensorProto) -> int | None:
    """Bytes of a tensor's raw data; None for strings, and for elements smaller than a byte."""
    name = DTYPES[tensor.data_type]
    if name == "string" or name.endswith(("int4", "int2")) or name.startswith("float4"):
        return None
    return prod(map(int, tensor.dims)) * numpy_type(DTYPES[tensor.data_type]).itemsize


def _whole(tensor: TensorProto, raw: bytes | memoryview | None) -> TensorProto:
    """A copy, which has the raw data itself, and does not keep the memory of the whole file."""
    own = TensorProto()
    own.CopyFrom(tensor)
    if isinstance(raw, memoryview):
        own.raw_data = bytes(raw)
    return own


def _decode(tensor: TensorProto, where: str) -> NDArray[Any]:
    try:
        array = to_array(tensor)
    except Exception as error:  # whatever the bytes made of it
        if by_a_handler(error):
            raise
        raise InvalidModel(
            Problem(where, f"expected contents that fit the sizes, but got: {error}")
        ) from error
    if tensor.data_type == TensorProto.STRING:
        texts = [
            t.decode(errors="replace") if isinstance(t, bytes) else t for t in array.reshape(-1).tolist()
        ]
        return np.array(texts, object).reshape(array.shape)
    return array


def _map_file(stored: ExternalData, data_type: int, sizes: tuple[int, ...]) -> NDArray[Any]:
    """A part of a file as an array. What is never used of it is never read."""
    dtype = numpy_type(DTYPES[data_type])
    if 0 in sizes:
        return np.zeros(sizes, dtype)
    try:
        if stored.file is not None:
            stored.file.check()
            array = np.frombuffer(stored.file.data, dtype, prod(sizes), stored.offset).reshape(sizes)
        else:
            file = stored.folder / stored.location
            array = np.memmap(file, dtype, "r", stored.offset, sizes).view(np.ndarray)
    except (OSError, ValueError) as error:  # the file changed since the model was loaded
        if by_a_handler(error):
            raise
        where = f"external data {stored.location!r}"
        raise InvalidModel(Problem(where, f"expected to read it, but got: {error}")) from error
    return array if array.flags.aligned else array.copy()


def _load_external(tensor: TensorProto, folder: Path) -> NDArray[Any]:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    from onnx import external_data_helper  # for types of less than a byte

    try:
        external_data_helper.load_external_data_for_tensor(copy, str(folder))
    except Exception as error:  # the file changed since the model was loaded
        if by_a_handler(error):
            raise
        raise InvalidModel(
            Problem(f"constant {tensor.name!r}", f"expected external data, but got: {error}")
        ) from error
    copy.data_location = TensorProto.DEFAULT
    del copy.external_data[:]
    return _decode(copy, f"constant {tensor.name!r}")


def _dense(tensor: SparseTensorProto, where: str) -> NDArray[Any]:
    values, indices = _decode(tensor.values, where), _decode(tensor.indices, where)
    dense = np.zeros(tuple(tensor.dims), values.dtype)
    limits = np.array([dense.size] if indices.ndim == 1 else dense.shape)
    columns = indices[:, None] if indices.ndim == 1 else indices
    if indices.dtype.kind != "i":
        raise InvalidModel(Problem(where, f"expected indices of type int64, but got {indices.dtype}"))
    if columns.shape != (values.size, len(limits)) or ((columns < 0) | (columns >= limits)).any():
        message = f"expected {values.size} indices into sizes {dense.shape}, but got others"
        raise InvalidModel(Problem(where, message))
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values.reshape(-1)
    else:
        dense[tuple(indices.T)] = values.reshape(-1)
    return dense
