"""Bytes, JSON and descriptions of operators made worse.

All that is random comes from the generator that is given, so that a case can be made again.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from abuse.seeds import Corpus

NAMES = [
    "",
    " ",
    "x",
    "y",
    "a/b",
    "x~2",
    "{n}",
    "a\0b",
    "\udcff",
    "n" * 10_000,
    "../up",
    "ünï",
    "%s",
    "0",
    "then_branch",
]
"""Names that are none, are odd, or may mean something. Half a surrogate goes where text allows."""


# ---- bytes -------------------------------------------------------------------------------------------


def bytes_of(data: bytes, rng: random.Random, others: Callable[[], bytes]) -> bytes:
    """Flipped, taken away, put in, doubled, or spliced with what others have."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        if not changed:
            break
        at = rng.randrange(len(changed))
        end = min(len(changed), at + rng.choice([1, 1, 2, 4, 16, 64]))
        match rng.randrange(7):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            case 2:
                del changed[at:end]
            case 3:
                changed[at:at] = rng.randbytes(end - at)
            case 4:
                changed[at:at] = changed[at:end]
            case 5:
                other = others()
                start = rng.randrange(len(other)) if other else 0
                changed[at:end] = other[start : start + rng.choice([1, 4, 16, 64, 256])]
            case _:
                del changed[at:]
    return bytes(changed)


# ---- JSON and descriptions ---------------------------------------------------------------------------

_VALUES: list[Any] = [
    *(None, True, False, "", "nan", "FLOAT16", "UINT64", "INT4", "BOOL", "A", [], {}, [[]], {"name": "A"}),
    *(
        0,
        1,
        2,
        3,
        7,
        8,
        9,
        -1,
        1.5,
        -0.5,
        1e300,
        2**31,
        2**32 - 1,
        2**32,
        2**40,
        2**62,
        2**63,
        2**64,
        10**400,
    ),
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


def tree(value: Any, rng: random.Random, python: bool) -> Any:
    """A value of dictionaries and lists, changed in place in one to five ways."""
    fresh = [*_VALUES, *_PYTHON] if python else _VALUES
    how = rng.random()
    if how < 0.25:
        return _nudged(value, rng)
    if how < 0.45:
        return _reshaped(value, rng)
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5])):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(rng.choice(fresh))
        holder, key = rng.choice(places)
        match rng.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                name = rng.choice([*NAMES, *holder, "Strides", "Flags", "DimensionCount"])
                holder[name] = holder.pop(key)
            case 2:
                other, place = rng.choice(places)
                holder[key] = copy.deepcopy(other[place])
            case 3:
                holder[key] = [holder[key]] * rng.choice([1, 2, 8, 9])
            case 4 if isinstance(holder, dict):
                names = ["Strides", "Flags", "FusedActivation", "ScaleBias", "Desc", "type", "value", "shape"]
                holder[rng.choice(names)] = copy.deepcopy(rng.choice([*fresh, [1, 1], [0, 0], [2, 3]]))
            case 5 if isinstance(holder[key], int | float):
                holder[key] = holder[key] + rng.choice([1, -1])
            case _:
                holder[key] = copy.deepcopy(rng.choice(fresh))
    return value


def _nudged(value: Any, rng: random.Random) -> Any:
    """Other values of the same kinds: what often is accepted."""
    for _ in range(rng.choice([1, 2, 3])):
        places = list(_places(value))
        holder, key = rng.choice([p for p in places if not isinstance(p[0][p[1]], dict)] or places)
        old = holder[key]
        if isinstance(old, bool):
            holder[key] = not old
        elif isinstance(old, int):
            holder[key] = rng.choice([old + 1, old - 1, 0, 1, 2, 16, 300])
        elif isinstance(old, float):
            holder[key] = rng.choice([0.0, -1.5, 1e-45, 3e38, -old])
        elif isinstance(old, list):
            holder[key] = rng.choice([old[::-1], old[1:], [*old, *old[:1]], [1, *old]])
        elif isinstance(old, str):
            others = [h[k] for h, k in places if isinstance(h[k], str)]
            holder[key] = rng.choice([*others, *_TYPES])
        else:
            holder["Strides" if isinstance(holder, dict) else key] = rng.choice(
                [[0], [1], [2], [1, 0], [1, 2]]
            )
    return value


def _reshaped(value: Any, rng: random.Random) -> Any:
    """All tensors of other sizes, or of another type; some with strides or flags."""
    tensors = [h[k] for h, k in _places(value) if isinstance(h[k], dict) and "Sizes" in h[k]]
    sizes = rng.choice(
        [[], [1], [0], [7], [2, 3], [1, 1, 2, 2], [1] * 8, [1] * 9, [2, 1, 3], [1, 2**31], [65536, 65536]]
    )
    dtype = rng.choice(_TYPES)
    both = rng.randrange(3)
    for tensor in tensors:
        if both != 0:
            tensor["Sizes"] = list(sizes)
        if both != 1:
            tensor["DataType"] = dtype
        if rng.random() < 0.3:
            tensor["Strides"] = [
                rng.choice([0, 1, 2, 3, 6, 2**20, 2**31, 2**32 - 1]) for _ in tensor["Sizes"]
            ]
        if rng.random() < 0.1:
            tensor["Flags"] = "OWNED_BY_DML"
        if rng.random() < 0.1:
            tensor["TotalTensorSizeInBytes"] = rng.choice([4, 16, 64, 2**32, 2**63])
    return value


_TYPES = [
    "FLOAT32",
    "FLOAT16",
    "FLOAT64",
    "INT8",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT4",
]


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list) and depth < 30:
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key], depth + 1)


def text(source: str, rng: random.Random, corpus: Corpus) -> bytes:
    """A damaged DxDispatch model."""
    if rng.random() < 0.3:
        return bytes_of(source.encode(), rng, lambda: rng.choice(corpus.texts)[1].encode())
    value = tree(json.loads(source), rng, python=False)
    if rng.random() < 0.02:
        depth = rng.choice([50, 990, 100_000])
        return b'{"resources": ' + b"[" * depth + b"]" * depth + b"}"
    return json.dumps(value).encode(errors="replace")
