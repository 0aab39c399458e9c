"""Python's collector of cycles, kept from running in vain.

    with collector_paused():
        graph = read(model)

Reading and planning make tens of thousands of objects that stay. The collector takes their number as a sign
that it is time to look at everything that the process has, other libraries' objects included, and finds
nothing: with onnx and onnxruntime imported, that is 25 ms for each 40 that a first run takes.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from anydml.locks import Lock
from anydml.runtime.process import renew_after_fork


class _Pause:
    """One of them. It is over when nobody has it any more, whatever kept it from ending."""

    __slots__ = ("__weakref__",)


class _Pauses:
    """Those that there are now, in all threads: the first pauses the collector, the last lets it go on."""

    def __init__(self) -> None:
        self._now, self._ran = set[weakref.ref[_Pause]](), False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The child has one thread, which is in no pause: those of the others do not end there."""
        self._lock = Lock()
        if self._now:
            self._now.clear()
            self._resume()

    def _resume(self) -> None:
        if self._ran:
            gc.enable()
            self._ran = False

    def begin(self, pause: _Pause) -> None:
        with self._lock:
            if not self._now:
                self._ran = gc.isenabled()
            self._now.add(weakref.ref(pause, self._end))
            gc.disable()

    def end(self, pause: _Pause) -> None:
        """Of one that may not have begun, or have ended already, as far as a signal's handler let it."""
        self._end(weakref.ref(pause))

    def _end(self, pause: weakref.ref[_Pause]) -> None:
        with self._lock:
            self._now.discard(pause)
            if not self._now:
                self._resume()


_pauses = _Pauses()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing is collected meanwhile; what has no cycles goes as ever. Pauses may overlap."""
    pause = _Pause()
    try:
        _pauses.begin(pause)
        yield
    finally:
        try:
            _pauses.end(pause)
        except BaseException:  # of a signal's handler: the collector must go on all the same
            _pauses.end(pause)
            raise


def keep_for_good() -> None:
    """Take everything that is there for what stays, as an import's objects do.

    They go where the collector looks rarely. It would look at all of them when a pause ends, and once more
    soon after: 25 ms, in the middle of a first run. Whoever froze objects himself keeps them frozen.
    """
    if hasattr(gc, "freeze") and not gc.get_freeze_count():  # which PyPy has not
        try:
            gc.freeze()
        finally:  # whatever a signal's handler raises
            gc.unfreeze()
