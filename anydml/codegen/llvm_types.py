"""The types and numbers of kernels as LLVM writes them."""

from __future__ import annotations

import struct

import numpy as np

from anydml.ops.dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64, FLOATING, SIZE, ScalarType


def element_type(dtype: ScalarType) -> str:
    """The LLVM type of one element."""
    if dtype is BOOL:
        return "i1"
    if dtype is FLOAT32:
        return "float"
    return "double" if dtype is FLOAT64 else f"i{8 * SIZE[dtype]}"


def value_type(dtype: ScalarType, lanes: int) -> str:
    return vector(element_type(dtype), lanes)


def vector(element: str, lanes: int) -> str:
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mangle(element: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic's name."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: int | float, dtype: ScalarType) -> str:
    """A number as LLVM writes it: floats by their bits (a float32's as those of the equal double)."""
    if dtype is FLOAT16:
        return str(np.array(value, np.float16).view(np.uint16).item())
    if dtype in FLOATING:
        return "0x" + struct.pack(">d", value).hex().upper()
    return str(int(value))
