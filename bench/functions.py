"""Functions and casts beside NumPy's, one thread, into memory that is there already."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import anydml as dml

Call = Callable[[], object]
POWER = 16
UNARY = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
CASTS = (("float32", "uint8"), ("float32", "int32"), ("float64", "int16"), ("float16", "float32"))


def pairs_of_functions() -> dict[str, tuple[Call, Call]]:
    """By name: ours, and NumPy's, on 2^16 elements of each function's domain."""
    found = {}
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float16):
        name = np.dtype(dtype).name
        for function, peer in UNARY.items():
            low, high = {"acosh": (1.0, 50.0), "log": (0.0, 50.0), "sqrt": (0.0, 50.0)}.get(
                function, (-6.0, 6.0)
            )
            low, high = (-0.99, 0.99) if function in ("asin", "acos", "atanh") else (low, high)
            x = rng.uniform(low, high, 1 << POWER).astype(dtype)
            found[f"{function}, {name}"] = _pair(getattr(dml, function), peer, x, np.empty_like(x))
        x, y = (rng.uniform(0.1, 4, 1 << POWER).astype(dtype) for _ in range(2))
        found[f"pow, {name}"] = _pair(dml.pow, np.power, x, np.empty_like(x), y)
    for given, wanted in CASTS:
        x, out = rng.uniform(0, 100, 1 << POWER).astype(given), np.empty(1 << POWER, wanted)
        found[f"cast, {given} to {wanted}"] = (
            partial(dml.cast, x, out=out),
            partial(np.copyto, out, x, casting="unsafe"),
        )
    return found


def _pair(ours: Any, peer: Any, *arrays: np.ndarray) -> tuple[Call, Call]:
    """`arrays`: an input, where to write, and further inputs."""
    x, out, *others = arrays
    return partial(ours, x, *others, out=out), partial(peer, x, *others, out=out)
