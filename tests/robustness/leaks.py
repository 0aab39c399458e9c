"""What stays behind: memory, file handles and threads, after many dispatches and many models.

Each scenario lets the first tenth pass, during which caches fill, and compares memory (the process's
resident set) at its end with memory at the very end.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

import anydml as dml
from tests.robustness import work
from tests.robustness.scenarios import Found, scenario

MOST = 4.0
"""Megabytes by which memory may differ: the allocator's own, not ours."""


def _memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def _flat(count: int, once: Callable[[int], object]) -> Found:
    """Do something `count` times, and see what stays."""
    early = max(count // 10, 1)
    for k in range(early):
        once(k)
    gc.collect()
    memory, handles, threads = _memory(), _handles(), threading.active_count()
    for k in range(early, count):
        once(k)
    gc.collect()
    more, files, left = _memory() - memory, _handles() - handles, threading.active_count() - threads
    note = f"{more:+.1f} MB, {files:+d} file handles, {left:+d} threads"
    return Found(count, int(more > MOST) + (files > 0) + (left > 0), note)


@scenario("dispatches of an operator, a graph and a session: what stays", bounded=100_000, long=1_000_000)
def dispatches(count: int) -> Found:
    calls = (
        work.operator_call(work.operator(100), 100, 1),
        work.graph_call(work.graph(100), 100, 2),
        work.session_call(work.session(), 100, 3),
    )
    return _flat(count, lambda k: calls[k % 3]())


@scenario("functions on new arrays of changing sizes: what stays", bounded=50_000, long=1_000_000)
def functions(count: int) -> Found:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5000, 512).tolist()

    def once(k: int) -> object:
        x = np.ones(sizes[k % 512], np.float32)
        return dml.add(x, x) if k % 2 else dml.activation_softmax1(x.reshape(1, -1), axes=[1])

    return _flat(count, once)


@scenario("sessions loaded, run and dropped: what stays", bounded=500, long=10_000)
def sessions(count: int) -> Found:
    return _flat(count, lambda k: work.session_call(work.session(), 10 + k % 20, k)())


@scenario("operators and graphs compiled, run and dropped: what stays", bounded=500, long=10_000)
def compiled(count: int) -> Found:
    def once(k: int) -> None:
        size = 10 + k % 50
        work.operator_call(work.operator(size), size, k)()
        work.graph_call(work.graph(size), size, k)()

    return _flat(count, once)


@scenario("one session on ever new shapes: what stays", bounded=1_000, long=50_000)
def shapes(count: int) -> Found:
    loaded = work.session()
    return _flat(count, lambda k: work.session_call(loaded, 1 + k, 1)())


@scenario("models refused: what stays", bounded=1_000, long=50_000)
def refusals(count: int) -> Found:
    proto = onnx.parser.parse_model(work.MODEL)
    proto.graph.node[0].attribute[0].g.node[0].input[0] = "nowhere"
    data = proto.SerializeToString()

    def once(k: int) -> None:
        try:
            dml.load(data)
        except dml.InvalidModel:
            return
        raise AssertionError("a model with an undefined input was taken")

    return _flat(count, once)


@scenario("models with external data, loaded, run and dropped: what stays", bounded=300, long=5_000)
def external_data(count: int) -> Found:
    weight = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    head = '<ir_version: 8, opset_import: ["": 17]>'
    proto = onnx.parser.parse_model(f"{head} m (float[N, 64] x) => (float[N, 64] y) {{ y = MatMul (x, w) }}")
    proto.graph.initializer.append(weight)
    x = np.ones((2, 64), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)

        def once(k: int) -> None:
            (y,) = dml.load(path, threads=1).run(None, {"x": x})
            assert (y == 64).all()

        return _flat(count, once)
