"""The arrays of ONNX's tensors, and tensors of arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from anydml.errors import short_repr
from anydml.onnx.protos import TensorProto
from anydml.onnx.types import DTYPES, are_texts, code_of, numpy_type

_NUMBERS: Mapping[int, tuple[str, type]] = {
    TensorProto.FLOAT: ("float_data", np.float32),
    TensorProto.DOUBLE: ("double_data", np.float64),
    TensorProto.INT64: ("int64_data", np.int64),
    TensorProto.INT32: ("int32_data", np.int32),
    TensorProto.UINT64: ("uint64_data", np.uint64),
    TensorProto.UINT32: ("uint64_data", np.uint64),
}
"""Where tensors that are not raw bytes have their numbers."""
_PACKED = ("int4", "int2", "float4e2m1", "float6e2m3", "float6e3m2")
"""Of which several elements are in a byte."""


def to_array(tensor: TensorProto) -> np.ndarray:
    """A tensor's content, which must not lie outside of the message. Texts are `str`.

    Raises:
        ValueError, TypeError: the content does not fit the type or the sizes.
    """
    name = DTYPES.get(tensor.data_type, "")
    if name == "string" and not tensor.HasField("segment"):
        texts = np.empty(len(tensor.string_data), object)
        texts[:] = [text.decode() for text in tensor.string_data]
        return texts.reshape(tensor.dims)
    simple = name not in ("", "string", "complex64", "complex128") and not name.endswith(_PACKED)
    whole = tensor.data_location != TensorProto.EXTERNAL and not tensor.HasField("segment")
    if not (simple and whole) or sys.byteorder != "little":
        from onnx import numpy_helper  # for what is rare

        return numpy_helper.to_array(tensor)
    dtype = numpy_type(name)
    if tensor.HasField("raw_data"):
        return np.frombuffer(tensor.raw_data, dtype).reshape(tensor.dims)
    if tensor.data_type in _NUMBERS:
        field, stored = _NUMBERS[tensor.data_type]
        return np.array(getattr(tensor, field), stored).astype(dtype, copy=False).reshape(tensor.dims)
    bits = np.array(tensor.int32_data, np.int32).astype(f"u{dtype.itemsize}")
    return bits.view(dtype).reshape(tensor.dims)


def from_array(array: np.ndarray, name: str = "") -> TensorProto:
    """A tensor of the file with an array's content, and a name.

    Raises:
        ValueError: ONNX has no such type.
    """
    if array.dtype.kind in "OU":
        items = array.reshape(-1).tolist()
        if not all(isinstance(item, str | bytes) for item in items):
            raise ValueError("expected an array of texts, but got other objects")
        texts = [t if isinstance(t, bytes) else t.encode() for t in items]
        return TensorProto(
            name=name or None, data_type=TensorProto.STRING, dims=array.shape, string_data=texts
        )
    code = code_of(array.dtype)
    if sys.byteorder != "little" or DTYPES[code].endswith(_PACKED):
        from onnx import numpy_helper  # for what is rare

        return numpy_helper.from_array(array, name)
    return TensorProto(name=name or None, data_type=code, dims=array.shape, raw_data=array.tobytes())


def of_numbers(value: Any, dtype: str) -> np.ndarray:
    """Numbers, or lists of them, as an array of a type. Floats are rounded; nothing else is lost.

    Raises:
        ValueError: what the type does not hold, or that lists differ in length.
    """
    wanted = numpy_type(dtype)
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise ValueError("its lists differ in length") from error
    if not found.size:
        return found.astype(wanted)
    integral = dtype == "bool" or dtype.removeprefix("u").startswith("int")
    if integral and found.dtype.kind == "f":
        found = np.array(value, object)  # integers beside floats, as they are
    if found.dtype == object:
        strange = [x for x in found.flat if not isinstance(x, int | float | np.integer | np.floating)]
        if strange:
            raise ValueError(f"{short_repr(strange[0])} is no number")
    elif found.dtype.kind not in ("biufc" if wanted.kind == "c" else "biuf"):
        raise ValueError(f"it is {found.dtype.name}")
    try:
        with np.errstate(all="ignore"):
            made = found.astype(wanted)
            lost = _is_lost(found, made, integral)
    except (OverflowError, ValueError) as error:  # of Python's integers, infinity, NaN
        raise ValueError(f"{dtype} does not hold it") from error
    if lost.any():
        raise ValueError(f"{dtype} does not hold {short_repr(found[lost].tolist()[0])}")
    return made


def of_literal(value: Any, dtype: str) -> np.ndarray:
    """What somebody typed as an array of a type: texts, or numbers, of which bools are none.

    Raises:
        ValueError: what the type does not hold.
    """
    if dtype == "string":
        texts = np.asarray(value, object)
        if not are_texts(texts):
            raise ValueError("texts alone are expected")
        return texts
    array = of_numbers(value, dtype)
    if dtype != "bool" and np.asarray(value).dtype == bool:
        raise ValueError("it is bool")
    return array


def _is_lost(found: np.ndarray, made: np.ndarray, integral: bool) -> Any:
    if integral:  # NumPy compares integers of one kind as they are
        return (made if made.dtype.kind == found.dtype.kind else made.astype(object)) != found
    return ~np.isfinite(made.astype(np.complex128)) & np.isfinite(found.astype(np.complex128))


def zeros(dtype: str, sizes: tuple[int, ...] = ()) -> TensorProto:
    """A tensor of zeros, or of empty texts."""
    return from_array(np.full(sizes, "", object) if dtype == "string" else np.zeros(sizes, numpy_type(dtype)))
