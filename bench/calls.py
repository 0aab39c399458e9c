"""Calls of so little work that the call itself is what takes time, beside NumPy's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import anydml as dml

Call = Callable[[], object]
OTHER_WORK_SECONDS = 100e-6


def pairs_of_calls() -> dict[str, tuple[Call, Call]]:
    """On 16 elements."""
    x, y, out = (np.linspace(start, 3, 16, dtype=np.float32) for start in (-3, 1, 0))
    condition = x > 0
    tensors: dict[str, Any] = {"ConditionTensor": condition.view(np.uint8), "ATensor": x, "BTensor": y}
    descs = {n: {"DataType": str(a.dtype).upper(), "Sizes": [16]} for n, a in tensors.items()}
    descs["OutputTensor"] = descs["ATensor"]
    device = dml.Device()
    operator = device.create_operator({"Type": "ELEMENT_WISE_IF", "Desc": descs})
    dispatch = device.compile_operator(operator).bind(tensors, {"OutputTensor": out}).dispatch
    return {
        "add(x, y, out=out) / NumPy's": (lambda: dml.add(x, y, out=out), lambda: np.add(x, y, out=out)),
        "add(x, 2.0) / NumPy's": (lambda: dml.add(x, 2.0), lambda: np.add(x, 2.0)),
        "if_(c, x, y) / np.where": (lambda: dml.if_(condition, x, y), lambda: np.where(condition, x, y)),
        "clip(x, 0.0, 1.0) / NumPy's": (lambda: dml.clip(x, 0.0, 1.0), lambda: np.clip(x, 0.0, 1.0)),
        "is_infinity(x) / np.isinf": (lambda: dml.is_infinity(x), lambda: np.isinf(x)),
        "if_: bound.dispatch() / np.where": (dispatch, lambda: np.where(condition, x, y)),
    }


def calls_between_work() -> Iterator[tuple[str, float, float]]:
    """Median seconds of ours and NumPy's, where other work lies between: other threads sleep by then."""
    other = np.random.default_rng(0).random(3000)

    def timed(call: Call) -> float:
        until = time.perf_counter() + OTHER_WORK_SECONDS
        while time.perf_counter() < until:
            np.sqrt(other)
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    for power in (14, 16, 18):
        x, y, out = (np.ones(1 << power, np.float32) for _ in range(3))

        def ours(x: Any = x, y: Any = y, out: Any = out) -> object:
            return dml.add(x, y, out=out)

        def peer(x: Any = x, y: Any = y, out: Any = out) -> object:
            return np.add(x, y, out=out)

        times = [(timed(ours), timed(peer)) for _ in range(2000)]
        own, its = (float(np.median(column)) for column in zip(*times, strict=True))
        yield f"2^{power} elements, add(x, y, out=out) after 100 µs of other work / NumPy's", own, its
