"""onnxruntime's OrtValues, and memory by its address, as arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from onnxruntime import OrtValue as OrtValue
from onnxruntime import SessionOptions
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession  # whatever takes its place

from anydml.errors import InvalidInput, Problem, Unsupported, short_repr, type_name
from anydml.onnx.ops.releases import onnxruntime_since
from anydml.onnx.protos import TensorProto, make_node, make_tensor_value_info, model_of_one
from anydml.onnx.types import DTYPES, code_of, numpy_type
from anydml.runtime.addresses import address


def content_of(value: object) -> object:
    """An OrtValue's tensor as an array of its own; anything else as it is."""
    if not isinstance(value, OrtValue) or not value.has_value() or not value.is_tensor():
        return value
    own = numpy_type(DTYPES[value.element_type()]).isbuiltin == 1
    if own or value.device_name().lower() != "cpu":
        return value.numpy()
    return array_over(value, "OrtValue").copy()  # of a type that NumPy has not itself


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
    """A copy of an array as an OrtValue that owns its memory.

    One over the array's would not keep it: `value.numpy()` is memory that is used again once the value is
    gone.

    Raises:
        Unsupported: a list, or nothing, which onnxruntime makes no OrtValue of.
    """
    if not isinstance(x, np.ndarray):
        raise Unsupported(Problem("output", f"onnxruntime makes no OrtValue of a {type_name(x)}", "use run"))
    if x.dtype.hasobject:
        return _of_texts(x)
    element_type = x.dtype.type if x.dtype.isbuiltin == 1 else code_of(x.dtype)
    value = OrtValue.ortvalue_from_shape_and_type(x.shape, element_type)
    if x.size and x.flags.c_contiguous and x.dtype.isbuiltin == 1:
        ctypes.memmove(value.data_ptr(), address(x), x.nbytes)
    elif x.size:
        array_over(value, "OrtValue")[...] = x
    return value


def over_array(x: np.ndarray) -> OrtValue:
    """An OrtValue over memory that is somebody's who keeps it."""
    if x.dtype.isbuiltin == 1:
        return OrtValue.ortvalue_from_numpy(x)
    code = code_of(x.dtype)
    return OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(f"u{x.itemsize}"), code)


def _of_texts(x: np.ndarray) -> OrtValue:
    """Only a session of onnxruntime makes an OrtValue of texts."""
    encoded: Any = [str(t).encode() for t in x.reshape(-1)]
    texts = TensorProto(data_type=TensorProto.STRING, dims=x.shape, string_data=encoded)
    y = make_tensor_value_info("y", TensorProto.STRING, None)
    model = model_of_one(make_node("Constant", [], ["y"], value=texts), [], y, 13)
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (value,) = session.run_with_ort_values(None, {})
    return value


_LENDING = (b"\x0eSequenceInsert", b"\x0dSequenceErase")
"""As files write their names; a weight that has these bytes does no harm."""


def lends(model: bytes) -> bool:
    """Whether lists that the installed release makes may hold what a model was fed, and no copies of that: a
    caller's memory, or some that the next run writes over."""
    return not onnxruntime_since(1, 26) and any(name in model for name in _LENDING)


def check_device(where: str, device: str) -> None:
    if device.lower() != "cpu":
        message = f"expected memory of the host, 'cpu', but got {short_repr(device)}"
        raise InvalidInput(Problem(where, message, "copy it there; execution providers have their own"))


_PACKED = frozenset("int2 uint2 int4 uint4 float4_e2m1fn".split())
"""Types of which onnxruntime has several elements in a byte, and arrays have one."""


def array_at(place: int, element_type: Any, shape: Sequence[int], where: str) -> np.ndarray:
    """The memory at an address as an array, which does not keep it."""
    try:
        known = isinstance(element_type, int)
        dtype = numpy_type(DTYPES[element_type]) if known else np.dtype(element_type)
    except (KeyError, TypeError) as error:
        message = f"expected a type of NumPy or of onnx.TensorProto, but got {short_repr(element_type)}"
        raise InvalidInput(Problem(where, message)) from error
    sizes = tuple(int(n) for n in shape)
    if dtype.name in _PACKED:
        raise InvalidInput(Problem(where, f"expected a type of whole bytes, but got {dtype}"))
    if dtype.hasobject or min(sizes, default=0) < 0:
        message = f"expected numbers of a shape, but got {dtype} of shape {sizes}"
        raise InvalidInput(Problem(where, message))
    count = prod(sizes) * dtype.itemsize
    if count == 0:
        return np.empty(sizes, dtype)
    if not place or place % dtype.alignment:
        raise InvalidInput(Problem(where, f"expected the address of {dtype}, but got {place:#x}"))
    return np.asarray(_Memory(place, count)).view(dtype).reshape(sizes)


class _Memory:
    """Bytes at an address, as NumPy asks for them."""

    def __init__(self, place: int, count: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (count,),
            "data": (place, False),
        }
