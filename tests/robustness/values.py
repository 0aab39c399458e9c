"""What flows through a model: the types of values, how to draw them, and how to compare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, TypeProto, helper

Array = np.ndarray[Any, Any]
Rng = np.random.Generator


class Absent:
    """Stands where a feed has no value, because a node before it fails on that feed."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "uint8", "int8", "int16", "uint16", "uint32", "uint64")
DTYPES = (*FLOATS, *INTEGERS, "bool", "string")
CODES = {
    d: TensorProto.STRING if d == "string" else helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in DTYPES
}
ORT_NAMES = {"float": "float32", "double": "float64"}
NOISE = {"float16": 5e-4, "float32": 1e-6, "float64": 1e-13}
"""How far results of two right implementations may lie apart, relative to their size."""


@dataclass(frozen=True)
class Kind:
    """A type: `wraps` is () for a tensor, ("seq",), ("optional",) or ("optional", "seq")."""

    dtype: str
    wraps: tuple[str, ...] = ()

    @property
    def tensor(self) -> bool:
        return not self.wraps

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS

    def proto(self, sizes: list[int | str | None] | None = None) -> TypeProto:
        """The type as ONNX has it; a tensor's sizes where they are given."""
        if not self.wraps:
            return helper.make_tensor_type_proto(CODES[self.dtype], sizes)
        inner = Kind(self.dtype, self.wraps[1:]).proto()
        return (
            helper.make_sequence_type_proto if self.wraps[0] == "seq" else helper.make_optional_type_proto
        )(inner)


def parse_kind(text: str) -> Kind:
    """onnxruntime's `seq(tensor(float))` as a Kind; KeyError for element types that are not used here."""
    wraps = []
    while not text.startswith("tensor("):
        wrap, _, text = text.partition("(")
        wraps.append(wrap)
    dtype = text[len("tensor(") :].rstrip(")")
    dtype = ORT_NAMES.get(dtype, dtype)
    if dtype not in CODES or set(wraps) - {"seq", "optional"}:
        raise KeyError(text)
    return Kind(dtype, tuple(wraps))


def kind_of(value: Any) -> Kind:
    """The type of a tensor or of a sequence that is not empty; KeyError for what is not used here."""
    if isinstance(value, list):
        return Kind(kind_of(value[0]).dtype, ("seq",))
    name = "string" if value.dtype.kind in "OUS" else value.dtype.name
    if name not in CODES:
        raise KeyError(name)
    return Kind(name)


# ---- drawing -----------------------------------------------------------------------------------------

WORDS = ["a", "", "ünïcode", "b c", "0", "-1.5", "A", "aa", "line\nbreak", "nan"]
SMALL = np.arange(-16, 17) / 4
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0]


def draw(rng: Rng, dtype: str, sizes: tuple[int, ...], special: float = 0.0) -> Array:
    """Contents that are mostly small multiples of 1/4, so that sums of them are exact.

    Args:
        special: how likely it is that NaN, infinities, -0.0 or extreme integers are among them.
    """
    if dtype == "string":
        return np.array([WORDS[k] for k in rng.integers(0, len(WORDS), int(np.prod(sizes)))], object).reshape(
            sizes
        )
    if dtype == "bool":
        return np.asarray(rng.random(sizes) < rng.choice([0.2, 0.5, 0.8]))
    few = rng.random() < special
    if dtype in FLOATS:
        content = rng.choice(SMALL, sizes).astype(dtype)
        if few:
            return np.where(
                rng.random(sizes) < 0.2, rng.choice(SPECIAL, sizes).astype(dtype), content
            ).astype(dtype)
        return np.asarray(content)
    limits = np.iinfo(dtype)
    whole = rng.integers(max(int(limits.min), -4), 9, sizes).astype(dtype)
    if few:
        extremes = np.array([limits.min, limits.max], dtype)
        return np.where(rng.random(sizes) < 0.2, rng.choice(extremes, sizes), whole).astype(dtype)
    return np.asarray(whole)


def copied(value: Any) -> Any:
    """A deep copy, with memory of its own."""
    if isinstance(value, list):
        return [copied(v) for v in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def arrays(value: Any) -> list[Array]:
    """The arrays in a value."""
    if isinstance(value, list):
        return [a for v in value for a in arrays(v)]
    return [value] if isinstance(value, np.ndarray) else []


# ---- noise -------------------------------------------------------------------------------------------


def noisy(rng: Rng, value: Any) -> Any:
    """The value with another rounding."""
    if isinstance(value, list):
        return [noisy(rng, v) for v in value]
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
        return value
    with np.errstate(all="ignore"):
        factor = 1 + NOISE[value.dtype.name] * rng.choice([-1.0, 1.0], value.shape)
        return np.where(np.isfinite(value), (value * factor).astype(value.dtype), value)


def mirrored(value: Any, twin: Any) -> Any:
    """The value, with roundings opposite to the twin's."""
    if value is twin or not isinstance(value, list | np.ndarray):
        return value
    if isinstance(value, list):
        return [mirrored(a, b) for a, b in zip(value, twin, strict=True)]
    if value.dtype.kind != "f":
        return twin
    with np.errstate(all="ignore"):
        other = (value + (value - twin)).astype(value.dtype)
        return np.where(np.isfinite(other), other, twin)


def spread(value: Any, twin: Any) -> float:
    """How far apart they are, where floats are finite; inf where anything else differs."""
    if isinstance(value, list):
        if not isinstance(twin, list) or len(value) != len(twin):
            return np.inf
        return max((spread(a, b) for a, b in zip(value, twin, strict=True)), default=0.0)
    if not isinstance(value, np.ndarray):
        return 0.0 if value is twin else np.inf
    if value.shape != twin.shape:
        return np.inf
    if value.dtype.kind != "f":
        return 0.0 if value.tolist() == twin.tolist() else np.inf
    finite = np.isfinite(value)
    with np.errstate(all="ignore"):
        if not np.array_equal(value[~finite], twin[~finite], equal_nan=True):
            return np.inf
        return float(np.max(np.abs(value[finite].astype(float) - twin[finite]), initial=0.0))


def scale(value: Any) -> float:
    """The largest finite magnitude of floats."""
    floats = [a for a in arrays(value) if a.dtype.kind == "f"]
    return max((float(np.max(np.abs(a[np.isfinite(a)]), initial=0)) for a in floats), default=0.0)


def steady(value: Any, twin: Any) -> bool:
    """Whether another rounding changes little: such values may be compared between implementations."""
    half = any(a.dtype == np.float16 for a in arrays(value))
    return spread(value, twin) <= (2e-2 if half else 3e-4) * scale(value)


# ---- comparing ---------------------------------------------------------------------------------------


def difference(got: Any, expected: Any, atol: float = 0.0) -> str | None:
    """How they differ, or None: the same kind, type and shape; floats within `atol` and their roundings."""
    if isinstance(expected, list) or isinstance(got, list):
        if not (isinstance(expected, list) and isinstance(got, list)):
            return f"kind: expected {type(expected).__name__}, but got {type(got).__name__}"
        if len(got) != len(expected):
            return f"length: expected {len(expected)} items, but got {len(got)}"
        found = (difference(a, b, atol) for a, b in zip(got, expected, strict=True))
        return next((f"item: {d}" for d in found if d), None)
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        if expected is None and got is None:
            return None
        if not (isinstance(got, np.ndarray) and np.isscalar(expected)):
            return f"kind: expected {type(expected).__name__}, but got {type(got).__name__}"
        expected = np.asarray(expected)
    if expected.dtype.kind in "OUS" and got.dtype.kind in "OUS":
        same = got.shape == expected.shape and [str(s) for s in got.flat] == [str(s) for s in expected.flat]
        return None if same else f"strings: expected {brief(expected)}, but got {brief(got)}"
    if got.dtype != expected.dtype:
        return f"dtype: expected {expected.dtype}, but got {got.dtype}"
    if got.shape != expected.shape:
        return f"shape: expected {expected.shape}, but got {got.shape}"
    if got.dtype.kind != "f":
        return None if np.array_equal(got, expected) else f"values: {where(got, expected, got != expected)}"
    with np.errstate(all="ignore"):
        rounding = 12 * NOISE[got.dtype.name]
        near = np.abs(got.astype(float) - expected) <= atol + rounding * np.abs(expected.astype(float))
    near &= np.isfinite(expected) & np.isfinite(got)
    wrong = ~(near | (got == expected) | (np.isnan(got) & np.isnan(expected)))
    return f"values: {where(got, expected, wrong)}" if wrong.any() else None


def same(a: Any, b: Any) -> bool:
    """Whether bits agree."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return a is b
    if a.dtype == object or a.shape != b.shape:
        return a.shape == b.shape and bool(np.all(a == b))
    return a.tobytes() == b.tobytes()


def where(got: Array, expected: Array, wrong: Any) -> str:
    first = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))[: got.ndim]
    at = first if got.ndim else ()
    return f"expected {expected[at]!r}, but got {got[at]!r} at {at} of {got.shape}"


def brief(value: Any) -> str:
    text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) < 90 else text[:87] + "..."
