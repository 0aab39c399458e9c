"""The worker threads that share a kernel's chunks with its caller.

A worker is a Python thread that spends its life inside compiled code (forkjoin.ll), without the GIL: it
claims chunks, spins for a bounded while, and sleeps on one of CPython's own locks, which exist on every
platform. Workers start with the first dispatch that may have them; a forked child has none until then.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import warnings
from array import array
from functools import cache
from math import ceil

from anydml.codegen.compiling import uninterrupted
from anydml.codegen.jit import driver, places_workers
from anydml.errors import InvalidInput, Problem, short_repr
from anydml.locks import Lock
from anydml.runtime import control_groups
from anydml.runtime.process import leak, renew_after_fork

MAX_WORKERS = 63
_BUSY, _WORKERS, _STOP, _CALLER_LOCK, _TICKET, _FIRST_WORKER, _PROCESSORS = 0, 2, 3, 4, 8, 32, 544
_PARKED, _LOCK, _THREAD, _LEFT = range(4)
"""Of a worker's words."""


@cache
def asked_threads() -> int | None:
    """What ANYDML_NUM_THREADS asks for, if anything; else what a container may use, if less than all.

    Many threads that share the time of few processors use it up at once, and then all stand still. Two do no
    harm where there is something to do now and then, which then takes half as long.
    """
    asked = os.environ.get("ANYDML_NUM_THREADS", "")
    if asked.isdecimal() and (digits := asked.lstrip("0")):
        return min(int(digits[:4]), MAX_WORKERS + 1)  # Python does not read thousands of digits
    if asked:
        message = f"ANYDML_NUM_THREADS: expected a positive integer, but got {short_repr(asked)}; ignored"
        warnings.warn(message, stacklevel=2)
    quota = control_groups.processors()
    allowed = None if quota is None else min(max(ceil(quota), 2), MAX_WORKERS + 1)
    return allowed if allowed is not None and allowed < cores() else None


@cache
def default_threads() -> int:
    """Threads of one dispatch, its caller included: what is asked for, else the cores at our disposal."""
    return asked_threads() or min(cores(), MAX_WORKERS + 1)


def cores() -> int:
    """Those at our disposal."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(threads: object) -> int | None:
    """A caller's number of threads; None, for the default, stays None.

    Raises:
        InvalidInput: not a positive integer.
    """
    if threads is None:
        return None
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise InvalidInput(Problem("threads", f"expected a positive integer, but got {short_repr(threads)}"))
    return min(threads, MAX_WORKERS + 1)


class Pool:
    """One per process. `address` is what launch descriptors name; it never changes, also across a fork."""

    def __init__(self) -> None:
        words = array("Q", bytes(8 * (_PROCESSORS + 16 + 8)))
        start = words.buffer_info()[0]
        skip = -start % 64 // 8  # begin on a cache line
        self._words, self._skip = words, skip
        leak(words)  # a daemon thread may be inside a launch descriptor when the interpreter has ended
        self.address = start + 8 * skip
        self._lock = Lock()
        self._threads: list[threading.Thread] = []
        self.size = 1
        """Threads that can serve a launch descriptor: the caller and the workers started so far."""
        self._ended = self._refused = False
        """Whether there are to be no more workers: the process ends, or the system has no thread for one."""
        renew_after_fork(self)

    def start(self, threads: int) -> None:
        """Have at least `threads` - 1 workers. Cheap when they are there already."""
        if self.size < threads and not (self._ended or self._refused):
            self._start(threads)

    @uninterrupted  # a worker that was started, and not noted, would be started twice
    def _start(self, threads: int) -> None:
        with self._lock:
            if self._ended or self._refused:
                return
            if not self._threads:
                self._set(_CALLER_LOCK, _new_lock())
                self._note_processors()
            work = driver().work
            for w in range(len(self._threads), min(threads - 1, MAX_WORKERS)):
                own = _FIRST_WORKER + 8 * w
                self._set(own + _PARKED, 0)
                self._set(own + _LOCK, _new_lock())
                self._set(own + _LEFT, 0)
                thread = threading.Thread(
                    target=work, args=(self.address, w), name=f"anydml-worker-{w}", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # the system has no more: fewer do the work
                    self._refused = True
                    break
                self._set(own + _THREAD, thread.native_id or 0)
                self._threads.append(thread)
                self._set(_WORKERS, w + 1)
            self.size = len(self._threads) + 1

    def _note_processors(self) -> None:
        """Tell where workers may run: see placement.ll."""
        if not places_workers():
            return
        every = sum(1 << k for k in os.sched_getaffinity(0) if k < 64 * 16)
        for k in range(16):
            self._set(_PROCESSORS + k, every >> 64 * k & (1 << 64) - 1)

    def stop(self) -> None:
        """End the workers. The next large dispatch starts others."""
        with self._lock:
            if self._threads:
                driver().stop(self.address)
                for thread in self._threads:
                    thread.join()
                self._forget(_WORKERS, _STOP)  # a caller amid a launch descriptor finishes it alone

    def end(self) -> None:
        """End the workers when the process ends: callers work alone from now on."""
        self._ended = True
        self.stop()

    def after_fork(self) -> None:
        """In the child: the parent's workers are not here, and nobody is waiting for them."""
        self._lock = Lock()
        self._forget(_WORKERS, _STOP, _TICKET, _BUSY)

    def _forget(self, *words: int) -> None:
        self._threads.clear()
        self.size, self._refused = 1, False
        for word in words:
            self._set(word, 0)

    def _set(self, word: int, value: int) -> None:
        self._words[self._skip + word] = value


def _new_lock() -> int:
    """A locked PyThread lock: waiting on it sleeps until somebody releases it. Lives with the process."""
    allocate = ctypes.pythonapi.PyThread_allocate_lock
    allocate.restype = ctypes.c_void_p
    lock = allocate()
    acquire = ctypes.pythonapi.PyThread_acquire_lock
    acquire.argtypes = [ctypes.c_void_p, ctypes.c_int]
    acquire(lock, 1)
    return int(lock)


pool = Pool()
atexit.register(pool.end)
