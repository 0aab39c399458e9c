"""When code may be made: once at a time, where nothing interrupts it, and not while the process ends."""

from __future__ import annotations

import _thread
import atexit
import os
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from anydml.codegen.resting import give_back
from anydml.locks import Lock

P = ParamSpec("P")
T = TypeVar("T")

LONGEST = 5.0
"""Seconds that the end of the process waits for a kernel that is being made."""
STAY = 2.0
"""Seconds that a thread then is kept from making another: if there is no end by then, it is waited for."""
RESTS = 4.0
"""How often LLVM may rest at once; then it is once a second, as it has to be read again after each."""
LEAST_STACK = 1 << 20
"""Bytes that LLVM may take of a thread's stack."""


class _Compiling:
    def __init__(self) -> None:
        self.lock = Lock()
        """Held while code is made, which is not to be made twice. (`with` it, and no method of ours around
        it: what a signal's handler raises comes between a method's lines, and would leave it held.)"""
        self.active = False
        """Whether LLVM was imported, or has compiled, since it was told to rest."""
        self._ender, self._until = 0, 0.0
        self._rests, self._rested = RESTS, time.monotonic()
        atexit.register(self.end)
        if hasattr(os, "register_at_fork"):  # a child must not inherit it held by a thread it does not have
            released = self.lock.release
            os.register_at_fork(before=self._hold, after_in_parent=released, after_in_child=released)

    def _hold(self) -> None:
        """Have the lock, whatever signals' handlers raise until then."""
        raised: BaseException | None = None
        while True:
            try:
                self.lock.acquire()
                break
            except BaseException as error:
                raised = error
        if raised is not None:
            raise raised

    def end(self) -> None:
        """The process ends, and LLVM is taken apart, which nobody must be inside of."""
        inside = not self.lock.acquire(timeout=LONGEST)
        self._ender, self._until = threading.get_ident(), time.monotonic() + STAY
        if not inside:
            self.lock.release()

    def stay_out(self) -> None:
        """Wait for the end of the process, for a while, if another thread ends it."""
        if self._ender not in (0, threading.get_ident()):
            time.sleep(max(0.0, self._until - time.monotonic()))

    def rest(self) -> None:
        """All that was wanted is compiled for now: LLVM's own code need not stay in memory."""
        if not self.active:
            return
        now = time.monotonic()
        self._rests, self._rested = min(self._rests + now - self._rested, RESTS), now
        if self._rests >= 1:
            self._rests -= 1
            self.active = False
            give_back("libllvmlite")


compiling = _Compiling()


def uninterrupted(function: Callable[P, T]) -> Callable[P, T]:
    """The function in a thread of its own where the main thread calls it.

    Handlers of signals run in the main thread, and what they raise may leave it anywhere in between: within
    LLVM, with locks that llvmlite holds. So it is raised when the function is done. The caller holds no lock
    that the function takes; for what enters LLVM it holds `compiling.lock`.
    """

    @wraps(function)
    def apart(*args: P.args, **kwargs: P.kwargs) -> T:
        compiling.stay_out()
        small = 0 < threading.stack_size() < LEAST_STACK
        if small or threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        context = copy_context()  # that of np.errstate, too
        return _apart(lambda: context.run(function, *args, **kwargs))

    return apart


def _apart(function: Callable[[], T]) -> T:
    """The function's result, or what it raises, from another thread; and then what a signal raised here."""
    found: list[tuple[Any, BaseException | None]] = []
    turn, working = _thread.allocate_lock(), _thread.allocate_lock()
    working.acquire()

    def work() -> None:
        if not turn.acquire(blocking=False):  # it was started twice
            return
        try:
            found.append((function(), None))
        except BaseException as error:
            found.append((None, error))
        finally:
            working.release()

    raised: BaseException | None = None
    started = False
    while not found:
        try:
            if not started:
                _thread.start_new_thread(work, ())
                started = True
            working.acquire()
        except RuntimeError as error:
            if not started and turn.acquire(blocking=False):  # the system has no thread, or the process ends
                return function()
            raised = error
        except BaseException as error:
            raised = error
    result, failure = found.pop()
    try:
        if raised is not None or failure is not None:
            raise raised or failure or AssertionError
        return result  # type: ignore[no-any-return]
    finally:  # what is raised refers to this frame, which must not refer to it
        del raised, failure
