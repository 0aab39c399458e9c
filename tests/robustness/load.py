"""Threads and processes: the same operator, graph and session from many at once.

python -m tests.robustness abuse --only load
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np

import anydml as dml
from tests.robustness import work
from tests.robustness.scenarios import Found, scenario

THREADS = 16


def _from_threads(make: Callable[[int], Callable[[], bool]], count: int) -> Found:
    """`count` calls in each of many threads."""
    calls = [make(k) for k in range(THREADS)]

    def driven(call: Callable[[], bool]) -> int:
        return sum(not call() for _ in range(count))

    with ThreadPoolExecutor(THREADS) as pool:
        wrong = sum(pool.map(driven, calls))
    return Found(THREADS * count, wrong, f"{THREADS} threads, {count:,} calls each")


@scenario("one operator from 16 threads", bounded=5_000, long=100_000)
def operator_from_threads(count: int) -> Found:
    compiled = work.operator(100)
    return _from_threads(lambda k: work.operator_call(compiled, 100, k), count)


@scenario("one graph from 16 threads", bounded=2_000, long=100_000)
def graph_from_threads(count: int) -> Found:
    compiled = work.graph(64)
    return _from_threads(lambda k: work.graph_call(compiled, 64, k), count)


@scenario("one session with an If from 16 threads", bounded=2_000, long=100_000)
def session_from_threads(count: int) -> Found:
    loaded = work.session()
    return _from_threads(lambda k: work.session_call(loaded, 64 + k % 3, k), count)


@scenario("one operator that shares its work, from 16 threads", bounded=100, long=500)
def shared_work_from_threads(count: int) -> Found:
    size = 1 << 17
    compiled = work.operator(size, threads=4)
    return _from_threads(lambda k: work.operator_call(compiled, size, k), count)


@scenario("kernels made and dropped while others run", bounded=60, long=500)
def kernels_that_go(count: int) -> Found:
    """Each thread compiles, runs, drops and collects, in turns with the others."""

    def turn(k: int) -> Callable[[], bool]:
        rng = np.random.default_rng(k)

        def call() -> bool:
            size = int(rng.integers(1, 300))
            made = work.graph(size) if rng.integers(2) else None
            right = work.operator_call(work.operator(size), size, k)()
            if made is not None:
                right &= work.graph_call(made, size, k)()
            del made
            gc.collect(0)
            return right

        return call

    return _from_threads(turn, count)


def _in_a_worker(pickled: bytes) -> bool:
    """What a worker process is asked: a session that came to it, and work of its own."""
    loaded = pickle.loads(pickled)
    return work.session_call(loaded, 50, os.getpid() % 7)() and work.all_right()


@scenario("process pools, by fork and by spawn, with pickled sessions", bounded=16, long=200)
def pools(count: int) -> Found:
    assert work.all_right()  # the parent's threads and plans are there when it forks
    pickled = pickle.dumps(work.session())
    wrong = 0
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
            wrong += sum(not right for right in pool.map(_in_a_worker, [pickled] * count))
    return Found(2 * count, wrong)


@scenario("forks while other threads compute", bounded=30, long=300)
def forks(count: int) -> Found:
    """A child of a busy parent does everything anew; then the parent goes on."""
    assert work.all_right()  # all modules are there: a fork amid an import leaves Python's lock behind
    compiled, loaded = work.operator(1 << 16, threads=2), work.session()
    stop = threading.Event()

    def busy(seed: int) -> int:
        call = work.operator_call(compiled, 1 << 16, seed)
        wrong = 0
        while not stop.is_set():
            wrong += not call()
        return wrong

    wrong = 0
    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(busy, k) for k in range(3)]
        for k in range(count):
            child = os.fork()
            if child == 0:
                right = work.session_call(loaded, 20, k)() and work.operator_call(compiled, 1 << 16, k)()
                os._exit(0 if right else 1)
            wrong += _status(child) != 0
        stop.set()
        wrong += sum(other.result() for other in others)
    return Found(count, wrong)


def _status(child: int) -> int:
    """How a child ended; 1 if it hangs."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


@scenario("Ctrl-C during long dispatches and runs, then the same again", bounded=20, long=200)
def interrupted(count: int) -> Found:
    """Wherever it comes, what is there stays usable, and the next result is right."""
    size = 1 << 20
    compiled, made, loaded = work.operator(size), work.graph(size), work.session()
    calls = [work.operator_call(compiled, size, 1), work.graph_call(made, size, 2)]
    calls.append(work.session_call(loaded, size, 3))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    wrong = caught = 0
    rng = np.random.default_rng(0)
    for k in range(count):
        timer = threading.Timer(float(rng.uniform(0.01, 0.05)), os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            while True:
                calls[k % 3]()
        except KeyboardInterrupt:
            caught += 1
        timer.join()
        wrong += sum(not call() for call in calls)
    return Found(3 * count, wrong, f"{caught} interrupted")


@scenario("pickled and copied: sessions, errors, descriptions", bounded=1, long=1)
def pickles(count: int) -> Found:
    things: list[Any] = [
        work.session(),
        dml.InvalidModel(dml.Problem("here", "expected this", "do that")),
        dml.OperatorDesc("ELEMENT_WISE_IF", {}),
        dml.TensorDesc("FLOAT32", [2, 2]),
        dml.FeatureLevel.newest(),
    ]
    wrong = 0
    for thing in things:
        again = pickle.loads(pickle.dumps(thing))
        if isinstance(thing, dml.Session):
            wrong += not work.session_call(again, 10, 1)()
        elif isinstance(thing, dml.AnyDMLError):
            wrong += str(again) != str(thing) or type(again) is not type(thing)
        else:
            wrong += again != thing
    return Found(len(things), wrong)
