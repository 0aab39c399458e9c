"""What becomes of threads when a process forks, and when it ends.

A forked child has one thread. Libraries' objects that own threads wait for them when they are destroyed,
for ever in a child: there they are leaked, and made anew when they are used. A lock is held by whoever
held it in the parent: there it is replaced.

A process that ends takes the interpreter away from daemon threads. One that comes out of onnxruntime after
that ends the process in its own way, with SIGABRT: so those inside are waited for, and others kept out.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from itertools import count
from typing import Protocol

from anydml.locks import Lock

RUN_GRACE_SECONDS = 1.0
"""Seconds that a run may take to end by itself, when the process ends."""
MAX_EXIT_DELAY_SECONDS = 5.0
"""Seconds that the end of a process is held up at most."""
ENDED_WAIT_SECONDS = 2.0
"""Seconds that a thread is kept out for: if there is no end by then, it is this thread that is waited for."""


class Renewable(Protocol):
    def after_fork(self) -> None:
        """In a forked child: leak what must not be destroyed, and forget what only the parent has."""
        ...


_numbers = count()
_renewable: weakref.WeakValueDictionary[int, Renewable] = weakref.WeakValueDictionary()
_held: list[Renewable] = []
"""While the process forks: what the child is to renew. What only other threads hold would go before."""


def renew_after_fork(thing: Renewable) -> None:
    """Have `thing.after_fork()` called in every forked child, before anything else uses it."""
    _renewable[next(_numbers)] = thing


class RenewedLock:
    """A lock, for one thread at a time as often as it likes, that nobody holds in a forked child.

    `with` its `lock`: what a signal's handler raises comes between the lines of methods, and would leave it
    held by one around it.
    """

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self.lock = Lock()


def leak(*things: object) -> None:
    """Keep things for ever, whoever forgets them."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _living() -> list[Renewable]:
    return [thing for ref in _renewable.valuerefs() if (thing := ref()) is not None]


def _before_fork() -> None:
    _held[:] = _living()


def _after_fork_in_child() -> None:
    collects = gc.isenabled()
    gc.disable()  # what is garbage already must not be destroyed before it is leaked
    for thing in {id(thing): thing for thing in (*_held, *_living())}.values():
        thing.after_fork()
        collects = collects or gc.isenabled()  # of a pause that is over
        gc.disable()
    _held.clear()
    if collects:
        gc.enable()


class Stoppable(Protocol):
    """What a library's call can be ended by: onnxruntime's RunOptions."""

    terminate: bool


class Calls:
    """The calls of a library that threads are in, and the public API to it when the process ends.

    Args:
        make: options for calls that need none of their own, so that they can be ended, too.
    """

    def __init__(self, make: Callable[[], Stoppable]) -> None:
        self._make = make
        self.options = make()
        self._inside: list[tuple[int, Stoppable]] = []
        """By their threads. A signal's handler may keep one from leaving."""
        self._ender: int | None = None
        """The thread that ends the process, once it does: it alone goes in and out as before."""
        self._until = 0.0
        self._never = threading.Semaphore(0)
        renew_after_fork(self)
        atexit.register(self.end)

    def enter(self, options: Stoppable) -> None:
        """To be called before the library is, each time; and `leave` after it, whatever happened."""
        call = threading.get_ident(), options
        self._inside.append(call)
        if self._ender is not None:
            self._inside.remove(call)
            self._stay()
            self._inside.append(call)

    def leave(self, options: Stoppable) -> None:
        call = threading.get_ident(), options
        if call in self._inside:  # else it went in before a fork, or a signal's handler raised before
            self._inside.remove(call)
        if self._ender is not None:
            self._stay()

    def _stay(self) -> None:
        """Wait for the end, for a while."""
        left = self._until - time.monotonic()
        if threading.get_ident() != self._ender and left > 0:
            self._never.acquire(timeout=left)

    def end(self) -> None:
        """Keep other threads out from now on, and wait for those inside; end them if that lasts."""
        begin = time.monotonic()
        self._ender, self._until = threading.get_ident(), begin + MAX_EXIT_DELAY_SECONDS + ENDED_WAIT_SECONDS
        self.options = self._make()
        while (others := self._others()) and (waited := time.monotonic() - begin) < MAX_EXIT_DELAY_SECONDS:
            if waited > RUN_GRACE_SECONDS:
                for options in others:
                    options.terminate = True
            time.sleep(0.001)
        self._until = time.monotonic() + ENDED_WAIT_SECONDS

    def _others(self) -> list[Stoppable]:
        """Those of other threads than the one that ends the process."""
        return [options for thread, options in list(self._inside) if thread != self._ender]

    def after_fork(self) -> None:
        self._inside = []
        self._never = threading.Semaphore(0)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_held.clear, after_in_child=_after_fork_in_child)
