"""Conversion of element types.

ONNX leaves open what a float becomes that its integer type does not have, and libraries and processors
differ; onnxruntime goes to small floats by way of float32, and so rounds twice. Such is NotFoldable.
Fractions are truncated, whatever the integer type, as onnx.reference does.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from anydml.onnx.ops import meanings, result_types
from anydml.onnx.ops.directml import BOOL, FLOATING, NUMBERS, Attributes, DirectMLForm
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS
from anydml.onnx.ops.shared import texts
from anydml.onnx.protos import TensorProto
from anydml.onnx.types import DTYPES, numpy_type
from anydml.ops.enums import TensorDataType

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_LARGEST = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
    "float4_e2m1fn": 6.0,
}
_SPECIAL = {"INF": np.inf, "+INF": np.inf, "-INF": -np.inf, "NAN": np.nan}


@cache
def _type_name(dtype: np.dtype[Any]) -> str:
    """`int4`, `float8_e5m2`: NumPy's kinds do not tell of small types what they are."""
    return "string" if dtype.kind in "OU" else dtype.name


@cache
def _bits(dtype: np.dtype[Any]) -> tuple[int, bool]:
    """The width of an integer type, and whether it has a sign."""
    name = _type_name(dtype)
    return int(name.removeprefix("u").removeprefix("int")), not name.startswith("u")


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return _type_name(dtype).removeprefix("u").startswith("int")


def _is_float(dtype: np.dtype[Any]) -> bool:
    return "float" in _type_name(dtype)


def dtype_of(code: int) -> np.dtype[Any]:
    """An element type by ONNX's number."""
    if code not in DTYPES:
        raise ValueError(f"expected an element type of ONNX, but got number {code}")
    return numpy_type(DTYPES[code])


def _cast(node: NodeView, x: Array) -> Array:
    if node.version < 6:
        raise NotFoldable("Cast to a type by name")
    return _convert(node, x, dtype_of(node.int("to")))


def _cast_like(node: NodeView, x: Array, target: Array) -> Array:
    return _convert(node, x, target.dtype)


def _convert(node: NodeView, x: Array, dtype: np.dtype[Any]) -> Array:
    if node.attribute("saturate") not in (None, 0, 1):
        raise NotFoldable("saturate that is neither 0 nor 1")
    if x.dtype == dtype:
        return x
    if x.dtype.kind in "OU":
        return _from_text(x, dtype)
    if dtype.kind == "O":
        return texts(map(_as_text, x.reshape(-1)), x.shape)
    x = _common(x)
    if dtype == np.bool_:
        return np.not_equal(x, 0)
    if _is_integer(dtype):
        return _to_integer(x, dtype)
    if dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        return x.astype(dtype)
    if not _is_float(dtype):
        raise NotFoldable(f"Cast to {dtype}")
    return _to_small(node, x, dtype)


def _common(x: Array) -> Array:
    """Types that NumPy itself does not have as larger ones, bool as an integer."""
    if _is_float(x.dtype):
        return x if x.dtype in FLOATS and x.dtype.kind == "f" else x.astype(np.float32)
    if x.dtype == np.bool_:
        return x.astype(np.uint8)
    if not _is_integer(x.dtype):
        raise NotFoldable(f"Cast of {x.dtype}")
    width, signed = _bits(x.dtype)
    return x if width >= 8 else x.astype(np.int8 if signed else np.uint8)


def _to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    width, signed = _bits(dtype)
    if _is_float(x.dtype):
        least, above = (-(2.0 ** (width - 1)), 2.0 ** (width - 1)) if signed else (0.0, 2.0**width)
        whole = np.trunc(x)
        if not ((whole >= least) & (whole < above)).all():
            raise NotFoldable("a float that the integer type does not have")
        result: Array = whole.astype(np.int8 if width < 8 else dtype)
        return result.astype(dtype)
    if width >= 8:
        return x.astype(dtype)
    low: Array = x.astype(np.int64) & (2**width - 1)
    if signed:
        low = np.where(low >= 2 ** (width - 1), low - 2**width, low)
    low = low.astype(np.int8)
    return low.astype(dtype)


def _to_small(node: NodeView, x: Array, dtype: np.dtype[Any]) -> Array:
    """To a float below float32, if going by way of float32 gives the same as rounding once."""
    if _is_integer(x.dtype):
        if dtype == np.float16 and x.dtype.itemsize > 4:
            x = np.clip(x, 0 if x.dtype.kind == "u" else -(2**20), 2**20)  # infinite all the same
        exact = x.astype(np.float64)
        if _bits(x.dtype)[0] == 64 and (np.abs(exact) >= 2**53).any():
            raise NotFoldable("an integer that no float64 has")
        x = exact
    near = x.astype(np.float32)
    result = _round_from_float32(node, near, dtype)
    if x.dtype == np.float64:
        towards = np.where(x > near, np.inf, -np.inf).astype(np.float32)
        other = np.where((x == near) | np.isnan(x), near, np.nextafter(near, towards))
        again = _round_from_float32(node, other, dtype)
        if not ((again == result) | (again != again)).all():
            raise NotFoldable("a number that is rounded otherwise by way of float32")
    return result


def _round_from_float32(node: NodeView, x: Array, dtype: np.dtype[Any]) -> Array:
    """From float32."""
    name = _type_name(dtype)
    if dtype in FLOATS:
        return x.astype(dtype)
    if name == "float8_e8m0fnu":
        result = x.astype(dtype)
        if not (result.astype(np.float32) == x).all():
            raise NotFoldable("rounding to powers of two")
        return result
    largest = _LARGEST.get(name)
    if largest is None:
        raise NotFoldable(f"Cast to {dtype}")
    if not name.startswith("float8"):
        if not (np.abs(x) <= largest).all():
            raise NotFoldable(f"a number that {dtype} does not have")
        return x.astype(dtype)
    if node.attribute("saturate") == 0:
        return x.astype(dtype)
    return np.clip(x, -largest, largest).astype(dtype)


def _as_text(x: Any) -> str:
    """As onnxruntime writes numbers: whole ones without a point, up to 8 digits."""
    if isinstance(x, np.bool_):
        return str(int(x))
    if not _is_float(x.dtype):
        return str(int(x))
    number = float(x)
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "INF" if number > 0 else "-INF"
    text = f"{number:.8g}"
    if x.dtype == np.float64 and float(text) != number:
        raise NotFoldable("a float64 of more than 8 digits, of which libraries write other numbers")
    return text


def _from_text(x: Array, dtype: np.dtype[Any]) -> Array:
    """Plain and scientific numbers; what else there is differs between libraries."""
    found = x.reshape(-1).tolist()
    if dtype in FLOATS:
        return _to_float(np.array([_number(text) for text in found], np.float64), dtype).reshape(x.shape)
    if not _is_integer(dtype) or _bits(dtype)[0] < 8:
        raise NotFoldable(f"strings to {dtype}")
    if not all(_WHOLE.fullmatch(text) for text in found):
        raise NotFoldable("a string that is no integer")
    limits = np.iinfo(dtype)
    values = [int(text) for text in found]
    if any(not limits.min <= n <= limits.max for n in values):
        raise NotFoldable("an integer that its type does not have")
    return np.array(values, dtype).reshape(x.shape)


def _number(text: str) -> float:
    special = _SPECIAL.get(text.upper())
    if special is not None:
        return special
    if not _NUMBER.fullmatch(text):
        raise NotFoldable("a string that is no number")
    value = float(text)
    zero = not re.search("[1-9]", re.split("[eE]", text)[0])
    if not zero and not np.finfo(np.float64).tiny <= abs(value) < np.inf:
        raise NotFoldable("a number beyond those of float64")
    return value


def _to_float(x: Array, dtype: np.dtype[Any]) -> Array:
    """Numbers that float64 does not have exactly, which must not lie where rounding twice tells."""
    result = x.astype(dtype)
    if dtype == np.float64:
        return result
    others = [np.nextafter(x, towards).astype(dtype) for towards in (-np.inf, np.inf)]
    for other in (*others, x.astype(np.float32).astype(dtype)):
        if not ((other == result) | np.isnan(x) | (x == 0)).all():
            raise NotFoldable("a number between two floats")
    return result


def _bit_cast(node: NodeView, x: Array) -> Array:
    dtype = dtype_of(node.int("to"))
    if x.dtype == dtype:
        return x
    if any(t.kind == "O" or re.search(r"int[24]$|float4", t.name) for t in (x.dtype, dtype)):
        raise NotFoldable("BitCast of strings, or of parts of a byte")
    if x.dtype.itemsize != dtype.itemsize:
        raise ValueError(f"expected a type as wide as {x.dtype}, but got {dtype}")
    if dtype == np.bool_ and (x.view(np.uint8) > 1).any():
        raise NotFoldable("a truth that is neither 0 nor 1")
    return x.view(dtype)


def _cast_to_number(node: NodeView, given: str) -> str | None:
    """Not to where libraries differ: between the beginning and the end of an array, or between processors."""
    wanted = DTYPES.get(node.int("to"), "")
    if wanted not in NUMBERS:
        return None
    if given in FLOATING and wanted not in FLOATING:
        return wanted if meanings.is_same_in_libraries(given, wanted) else None
    return wanted


def _cast_to_bool(node: NodeView, given: str) -> str | None:
    return "bool" if node.int("to") == TensorProto.BOOL else None


def _wanted(node: NodeView) -> Attributes:
    """The type as which kernels compute it."""
    wanted = DTYPES.get(node.int("to"), "")
    return {"To": TensorDataType.__members__.get("FLOAT32" if wanted == "bfloat16" else wanted.upper())}


def _target(n: KnownNode) -> str | None:
    return n.dtype(1) if n.op.name == "CastLike" else DTYPES.get(n.int("to"))


def _rounds_fractions(n: KnownNode) -> bool:
    return "float" in (n.dtype() or "float") and (_target(n) or "").endswith(("int4", "int2"))


_FRACTIONS = Quirk(
    "onnxruntime rounds fractions to integers below a byte, and truncates them to all others",
    _rounds_fractions,
    mended=True,
)
OPS = (
    OpInfo("BitCast", fold=_bit_cast),
    OpInfo(
        "Cast",
        result=result_types.cast,
        fold=_cast,
        symbols=lambda n, g, s: g[0] if n.attribute("to") in (TensorProto.INT32, TensorProto.INT64) else None,
        speculatable=lambda n: n.dtype() not in (None, "string"),
        implies=lambda n, truth: {0: truth} if n.dtype() == "bool" else {},
        directml=(
            DirectMLForm(meanings.CAST, NUMBERS | BOOL, attributes=_wanted, result=_cast_to_number, since=6),
            DirectMLForm(meanings.CAST_TO_BOOL, NUMBERS | BOOL, result=_cast_to_bool, since=6),
        ),
        quirks=(_FRACTIONS,),
    ),
    OpInfo("CastLike", fold=_cast_like, quirks=(_FRACTIONS,)),
)
