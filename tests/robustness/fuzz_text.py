"""Bytes, JSON and descriptions of operators made worse. What is random is drawn by hypothesis."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")
NAMES = [
    *("", " ", "x", "y", "a/b", "x~2", "{n}", "a\0b", "n" * 10_000, "../up", "ünï", "%s", "0", "then_branch")
]
"""Names that are none, are odd, or may mean something."""
_PERCENT = st.integers(0, 99)


def chance(draw: DrawFn, percent: int) -> bool:
    return draw(_PERCENT) >= 100 - percent


def one(draw: DrawFn, values: Sequence[T]) -> T:
    """One of the values: hypothesis draws its number, as it would otherwise look at all of them."""
    return values[draw(st.integers(0, len(values) - 1))]


# ---- bytes -------------------------------------------------------------------------------------------

_EDITS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.integers(0, 1 << 20),
        st.sampled_from([1, 1, 2, 4, 16, 64]),
        st.binary(min_size=1, max_size=16),
    ),
    min_size=1,
    max_size=4,
)


def damaged(draw: DrawFn, data: bytes, others: Sequence[bytes]) -> bytes:
    """Flipped, replaced, taken away, put in, doubled, spliced with what others have, or cut off."""
    changed = bytearray(data)
    for kind, at, length, fresh in draw(_EDITS):
        if not changed:
            break
        at %= len(changed)
        end = at + length
        match kind:
            case 0:
                changed[at] ^= 1 << fresh[0] % 8
            case 1:
                changed[at] = fresh[0]
            case 2:
                del changed[at:end]
            case 3:
                changed[at:at] = fresh
            case 4:
                changed[at:at] = changed[at:end]
            case 5:
                other = one(draw, others)
                start = draw(st.integers(0, len(other)))
                changed[at:end] = other[start : start + one(draw, [1, 4, 16, 64, 256])]
            case _:
                del changed[at:]
    return bytes(changed)


# ---- JSON and descriptions ---------------------------------------------------------------------------

_TYPES = "FLOAT32 FLOAT16 FLOAT64 INT8 INT32 INT64 UINT8 UINT16 UINT32 UINT64 INT4".split()
_VALUES: list[Any] = [
    *(None, True, False, "", "nan", "FLOAT16", "UINT64", "INT4", "BOOL", "A", [], {}, [[]], {"name": "A"}),
    *(*range(4), 7, 8, 9, -1, 1.5, -0.5, 1e300, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63, 2**64, 10**400),
    *("ACTIVATION_RELU", "DML_OPERATOR_ELEMENT_WISE_IF", "x" * 10_000, "a\0b", "../up.npy", "/dev/null"),
]
"""What JSON can say."""
_PYTHON: list[Any] = [
    *(math.nan, math.inf, -math.inf, b"bytes", (), (1,), {1, 2}, object(), 10**5000, 1j, range(3), int, len),
    *(
        np.float32(1),
        np.int64(2),
        np.uint8(3),
        np.bool_(True),
        np.array([1, 2]),
        np.array(1),
        np.str_("FLOAT32"),
    ),
    *(np.float32("nan"), np.zeros((0, 2)), np.datetime64(1, "s"), "\udcff", frozenset(), {"Type": {}}),
]
"""What only Python can."""
_FIELDS = ["Strides", "Flags", "FusedActivation", "ScaleBias", "Desc", "type", "value", "shape"]


def tree(draw: DrawFn, value: Any, python: bool) -> Any:
    """A value of dictionaries and lists, changed in place in one to four ways, some of them gently."""
    if chance(draw, 20):
        return _reshaped(draw, value)
    fresh, gently = [*_VALUES, *_PYTHON] if python else _VALUES, chance(draw, 40)
    for _ in range(one(draw, [1, 1, 1, 2, 2, 4])):
        places = list(_places(value))
        if gently:
            places = [p for p in places if not isinstance(p[0][p[1]], dict)] or places
        if not places:
            return copy.deepcopy(one(draw, fresh))
        holder, key = one(draw, places)
        match 6 if gently else draw(st.integers(0, 8)):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                odd = ["\udcff"] if python else []
                name = one(draw, [*NAMES, *odd, *holder, "Strides", "Flags", "DimensionCount"])
                holder[name] = holder.pop(key)
            case 2:
                other, place = one(draw, places)
                holder[key] = copy.deepcopy(other[place])
            case 3:
                holder[key] = [holder[key]] * one(draw, [1, 2, 8, 9])
            case 4 if isinstance(holder, dict):
                holder[one(draw, _FIELDS)] = copy.deepcopy(one(draw, [*fresh, [1, 1], [0, 0], [2, 3]]))
            case 5 | 6:
                holder[key] = one(draw, _near(holder[key], places))
            case _:
                holder[key] = copy.deepcopy(one(draw, fresh))
    return value


def _near(old: Any, places: list[tuple[Any, Any]]) -> list[Any]:
    """Other values of the same kind: what often is accepted."""
    match old:
        case bool():
            return [not old]
        case int():
            return [old + 1, old - 1, 0, 1, 2, 16, 300]
        case float():
            return [0.0, -1.5, 1e-45, 3e38, -old]
        case list():
            return [old[::-1], old[1:], [*old, *old[:1]], [1, *old]]
        case str():
            return [*(h[k] for h, k in places if isinstance(h[k], str)), *_TYPES]
    return [[0], [1], [2], [1, 0], [1, 2]]


_SIZES = [[], [1], [0], [7], [2, 3], [1, 1, 2, 2], [1] * 8, [1] * 9, [2, 1, 3], [1, 2**31], [65536, 65536]]


def _reshaped(draw: DrawFn, value: Any) -> Any:
    """All tensors of other sizes, or of another type; some with strides or flags."""
    tensors = [h[k] for h, k in _places(value) if isinstance(h[k], dict) and "Sizes" in h[k]]
    sizes, dtype, both = one(draw, _SIZES), one(draw, _TYPES), draw(st.integers(0, 2))
    for tensor in tensors:
        if both != 0:
            tensor["Sizes"] = list(sizes)
        if both != 1:
            tensor["DataType"] = dtype
        if chance(draw, 30):
            strides = [0, 1, 2, 3, 6, 2**20, 2**31, 2**32 - 1]
            tensor["Strides"] = [one(draw, strides) for _ in tensor["Sizes"]]
        if chance(draw, 10):
            tensor["Flags"] = "OWNED_BY_DML"
        if chance(draw, 10):
            tensor["TotalTensorSizeInBytes"] = one(draw, [4, 16, 64, 2**32, 2**63])
    return value


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list) and depth < 30:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key], depth + 1)


def text(draw: DrawFn, source: str, others: Sequence[str]) -> bytes:
    """A damaged DxDispatch model."""
    if chance(draw, 30):
        return damaged(draw, source.encode(), [o.encode() for o in others])
    if chance(draw, 2):
        depth = one(draw, [50, 990, 100_000])
        return b'{"resources": ' + b"[" * depth + b"]" * depth + b"}"
    return json.dumps(tree(draw, json.loads(source), python=False)).encode(errors="replace")
