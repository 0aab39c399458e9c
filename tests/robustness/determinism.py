"""The same inputs give the same bits: in every process, with any number of threads, at any alignment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import anydml as dml
from anydml.ops.catalog import ELEMENT_WISE
from anydml.ops.opdef import ONE, Operator
from tests.robustness import work
from tests.robustness.processes import Limits, alone
from tests.robustness.scenarios import Found, scenario

THREADS = (1, 2, 3, 8)
SIZE = 70_001
"""Elements: odd, and so many that a call is shared between threads."""


def _aligned(values: NDArray[Any], offset: int) -> NDArray[Any]:
    """A copy that begins `offset` elements behind a page."""
    memory = np.empty(values.nbytes + 8192, np.uint8)
    start = -memory.ctypes.data % 4096 + offset * values.itemsize
    place = memory[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    place[...] = values
    return place


def _results(seed: int, offset: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every operator on random floats or integers, a graph, and a session."""
    for operator in ELEMENT_WISE:
        yield operator.name, _computed(operator, np.random.default_rng(seed), offset)
    _, a, b = work.feeds(SIZE, seed)
    given = {n: _aligned(x.reshape(1, -1), offset) for n, x in (("a", a), ("b", b))}
    yield "a graph", work.graph(SIZE)(given)["y"]
    feeds = {"c": np.array(True), "x": _aligned(a, offset), "w": _aligned(b, offset)}
    yield "a session", work.session().run(None, feeds)[0]


def _computed(operator: Operator, rng: np.random.Generator, offset: int) -> NDArray[Any]:
    inputs: list[Any] = []
    for operand, content in zip(operator.inputs, operator.example.inputs, strict=True):
        if content is None:
            inputs.append(None)
            continue
        dtype = np.dtype(operator.example_type(operand.dtype).label)
        shape = (1, 1) if operand.sizes == ONE else (1, SIZE)
        drawn = rng.standard_normal(shape) * 3 if dtype.kind == "f" else rng.integers(0, 100, shape)
        inputs.append(_aligned(np.asarray(drawn).astype(dtype), offset))
    attributes = {k: [1] if k == "axes" else v for k, v in operator.example.attributes.items()}
    with np.errstate(all="ignore"):
        result: NDArray[Any] = getattr(dml, operator.function)(*inputs, **attributes)
    return result


def _digests(seed: int, offset: int) -> list[str]:
    found = []
    for name, result in _results(seed, offset):
        found.append(f"{name} {hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()}")
    return found


@scenario(
    "the same bits in other processes, on other numbers of threads, at other alignments", bounded=1, long=5
)
def same_bits(count: int) -> Found:
    """92 operators, a graph and a session, on inputs of `count` seeds."""
    tried = wrong = 0
    names: set[str] = set()
    for seed in range(count):
        expected: list[str] | None = None
        for threads in THREADS:
            for offset in (0, 1, 5, 17):
                limits = Limits(600, environment={"ANYDML_NUM_THREADS": str(threads)})
                ended = alone(_digests, seed, offset, limits=limits)
                assert ended.how == "done", ended.about
                told: list[str] = ended.value
                expected = told if expected is None else expected
                different = {a.split(" ")[0] for a, b in zip(told, expected, strict=True) if a != b}
                tried += len(told)
                wrong += len(different)
                names |= different
    note = f"{len(ELEMENT_WISE)} operators, a graph, a session; threads {THREADS}, 4 alignments"
    return Found(tried, wrong, f"{note}; different: {sorted(names)}" if names else note)
