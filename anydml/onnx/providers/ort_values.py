"""onnxruntime's OrtValues, and memory by its address, as arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnxruntime import OrtValue as OrtValue

from anydml.errors import InvalidInput, Problem, Unsupported, short_repr, type_name


def content_of(value: object) -> object:
    """An OrtValue's tensor as an array of its own; anything else as it is."""
    if isinstance(value, OrtValue) and value.has_value() and value.is_tensor():
        return value.numpy()
    return value


def array_over(value: OrtValue, where: str) -> np.ndarray:
    """An OrtValue's memory as an array; of texts, what they are now.

    Raises:
        InvalidInput: no tensor; or one on another device.
    """
    if not isinstance(value, OrtValue) or not value.has_value() or not value.is_tensor():
        kind = value.data_type() if isinstance(value, OrtValue) else type_name(value)
        raise InvalidInput(Problem(where, f"expected an OrtValue of a tensor, but got {kind}"))
    check_device(where, value.device_name())
    if value.element_type() == TensorProto.STRING:
        return np.asarray(value.numpy())
    return array_at(value.data_ptr(), value.element_type(), value.shape(), where)


def as_ort_value(x: object) -> OrtValue:
    """An array as an OrtValue.

    Raises:
        Unsupported: a list, or nothing, which onnxruntime makes no OrtValue of.
    """
    if not isinstance(x, np.ndarray):
        raise Unsupported(Problem("output", f"onnxruntime makes no OrtValue of a {type_name(x)}", "use run"))
    code = helper.np_dtype_to_tensor_dtype(x.dtype)
    if x.dtype.kind not in "biufO":  # NumPy has no such type itself
        return OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(f"u{x.itemsize}"), code)
    return OrtValue.ortvalue_from_numpy(x)


def check_device(where: str, device: str) -> None:
    if device.lower() != "cpu":
        message = f"expected memory of the host, 'cpu', but got {short_repr(device)}"
        raise InvalidInput(Problem(where, message, "copy it there; execution providers have their own"))


def array_at(address: int, element_type: Any, shape: Sequence[int], where: str) -> np.ndarray:
    """The memory at an address as an array, which does not keep it."""
    try:
        known = isinstance(element_type, int)
        dtype = helper.tensor_dtype_to_np_dtype(element_type) if known else np.dtype(element_type)
    except (KeyError, TypeError) as error:
        message = f"expected a type of NumPy or of onnx.TensorProto, but got {short_repr(element_type)}"
        raise InvalidInput(Problem(where, message)) from error
    sizes = tuple(int(n) for n in shape)
    if dtype.hasobject or min(sizes, default=0) < 0:
        message = f"expected numbers of a shape, but got {dtype} of shape {sizes}"
        raise InvalidInput(Problem(where, message))
    count = prod(sizes) * dtype.itemsize
    if count == 0:
        return np.empty(sizes, dtype)
    if not address or address % dtype.alignment:
        raise InvalidInput(Problem(where, f"expected the address of {dtype}, but got {address:#x}"))
    memory = memoryview((ctypes.c_char * count).from_address(address))
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(sizes)
