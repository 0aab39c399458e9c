"""A lock that a signal's handler does not leave held.

    with lock:  # what the handler raises comes before, or after, or amid these lines
        ...

For one thread at a time, as often as it likes. Ctrl-C in a notebook raises wherever the main thread is, and
goes on with all that there was: a lock that it leaves held has every other thread wait for ever.
"""

from __future__ import annotations

import _thread
import sys

if sys.version_info[:2] == (3, 14):

    class Lock(_thread.RLock):  # type: ignore[misc]
        """There Python may run a handler between `__enter__` and the block: with its own locks, `__exit__` is
        not called then (github.com/python/cpython/issues/148874)."""

        def __enter__(self) -> bool:  # type: ignore[override]
            before: int = self._recursion_count()  # type: ignore[attr-defined]
            try:
                return self.acquire()
            except BaseException:
                while self._recursion_count() > before:  # type: ignore[attr-defined]
                    self.release()
                raise

else:
    Lock = _thread.RLock
