"""How long a model's runs take, beside onnxruntime in the same process.

anydml        p50 171 us  p99 205 us   5,790 runs/s
onnxruntime   p50 233 us  p99 280 us   4,270 runs/s
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass
from anydml.errors import AnyDMLError, InvalidInput, Unsupported
from anydml.onnx.input_shapes import sized, unknown_names
from anydml.onnx.partial_eval.annotate import read_typed
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import RegionFailed
from anydml.onnx.random_inputs import drawn
from anydml.onnx.serde.deserialize import read
from anydml.onnx.serde.parse import ModelSource
from anydml.onnx.serde.region_model import fatal_optimisations
from anydml.onnx.serde.whole_model import whole_model
from anydml.session import load

MAX_TURNS = 10
"""Each contender gets its time in so many turns, so that all meet the same machine."""


@dataclass(frozen=True)
class Timing:
    """One contender: seconds of each run that counted, and megabytes that loading and warming up took."""

    name: str
    seconds: NDArray[np.float64]
    memory: float

    def percentile(self, p: float) -> float:
        return float(np.percentile(self.seconds, p))

    @property
    def throughput(self) -> float:
        """Runs a second."""
        return float(len(self.seconds) / self.seconds.sum())

    def as_dict(self) -> dict[str, Any]:
        percentiles = {f"p{p}": self.percentile(p) for p in (10, 50, 90, 99)}
        return {
            "name": self.name,
            "runs": len(self.seconds),
            **percentiles,
            "mean": float(self.seconds.mean()),
            "throughput": self.throughput,
            "memory_mb": self.memory,
        }


def bench(
    model: ModelSource,
    feeds: Mapping[str, Any] | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    seconds: float = 2.0,
    iterations: int | None = None,
    warmup: int = 10,
    threads: int = 1,
    against: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Timing]:
    """Times of a model's runs.

    Args:
        model: a path, a file's bytes, or an `onnx.ModelProto`.
        feeds: inputs by name; random ones for those that are missing.
        shapes: sizes of the random ones; 1 for what is not known.
        seconds: to spend on each contender.
        iterations: runs of each instead.
        warmup: runs of each that do not count.
        threads: of one run, for both.
        against: whether onnxruntime runs it, too. What it does not run is left out.
        progress: is told how many turns of how many are done.

    Raises:
        InvalidInput, InvalidModel, ExecutionFailed, Unsupported, OSError: as `load` and `Session.run` do.
    """
    before = _megabytes()
    session = load(model, threads=threads)
    given = _inputs(model, dict(feeds or {}), dict(shapes or {}), seed)
    runs: dict[str, Callable[[], object]] = {"anydml": lambda: session.run(None, given)}
    memory = {}
    for _ in range(max(warmup, 1)):
        runs["anydml"]()
    memory["anydml"] = _megabytes() - before
    if against:
        before = _megabytes()
        peer = _peer(model, given, threads)
        if peer is not None:
            runs["onnxruntime"] = peer
            for _ in range(max(warmup, 1)):
                peer()
            memory["onnxruntime"] = _megabytes() - before
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(MAX_TURNS):
        for name, run in runs.items():
            count = None if iterations is None else max(1, -(-iterations // MAX_TURNS))
            _spend(run, times[name], seconds / MAX_TURNS, count)
        if progress is not None:
            progress(turn + 1, MAX_TURNS)
    return [Timing(n, np.array(t[: iterations or None]), memory[n]) for n, t in times.items()]


def _spend(run: Callable[[], object], times: list[float], seconds: float, count: int | None) -> None:
    clock = time.perf_counter
    end, done = clock() + seconds, 0
    while done < count if count is not None else clock() < end or not done:
        start = clock()
        run()
        times.append(clock() - start)
        done += 1


def _inputs(
    model: ModelSource, feeds: dict[str, Any], shapes: dict[str, tuple[int, ...]], seed: int
) -> dict[str, Any]:
    """What is fed: what was given, and random contents for the rest."""
    found = read(model)
    names = {v.name: v for v in found.graph.inputs}
    types, wrong = sized(names, shapes)
    wrong += [*unknown_names("shapes", shapes, names), *unknown_names("feeds", feeds, names)]
    if wrong:
        raise InvalidInput(*wrong)
    sizes: dict[object, int] = {}
    for name, value in names.items():
        known = getattr(types.get(value), "sizes", None) or ()
        for k, (n, m) in enumerate(zip(value.sizes or (), known, strict=False)):
            if not isinstance(n, int):
                sizes[n or (name, k)] = m if isinstance(m, int) else 1
    random = drawn(found.graph, feeds, [0, 1], sizes, np.random.default_rng(seed))
    optional = {v.name for v in found.defaults}
    return {n: x for n, x in random.items() if n in feeds or n not in optional}


def _peer(model: ModelSource, given: Mapping[str, Any], threads: int) -> Callable[[], object] | None:
    proto, _, folder, _, typed = read_typed(model, OnnxRuntime())
    names = tuple(given)
    without = list(fatal_optimisations(typed.nodes, typed.constants))
    values = list(given.values())
    try:
        call = OnnxRuntime().compile(whole_model(proto, names, folder, without), threads)
        call(values)
    except (Unsupported, RegionFailed, AnyDMLError):
        return None
    return lambda: call(values)


def _megabytes() -> float:
    """Memory of the process now; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE / 1e6
    except OSError:
        return 0.0
