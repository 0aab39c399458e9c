"""Python's collector of cycles, kept from running in vain.

    with collector_paused():
        graph = read(model)

Reading and planning make tens of thousands of objects that stay. The collector takes their number as a sign
that it is time to look at everything that the process has, other libraries' objects included, and finds
nothing: with onnx and onnxruntime imported, that is 25 ms for each 40 that a first run takes.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from anydml.runtime.process import renew_after_fork


class _Pauses:
    """How many there are now, in all threads: the first pauses the collector, the last lets it go on."""

    def __init__(self) -> None:
        self._count, self._ran = 0, False
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The child has one thread, which is in no pause: those of the others do not end there."""
        self._lock = threading.Lock()
        if self._count:
            self._count = 0
            self._resume()

    def _resume(self) -> None:
        if self._ran:
            gc.enable()

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._ran = gc.isenabled()
                gc.disable()

    def end(self) -> None:
        with self._lock:
            self._count = max(self._count - 1, 0)
            if not self._count:
                self._resume()


_pauses = _Pauses()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing is collected meanwhile; what has no cycles goes as ever. Pauses may overlap."""
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()
