"""Ctrl-C while a library is busy: Python handles signals between its own steps only, and a loop may last.

A signal's number goes through a pipe to a thread, which asks the library to end; then Python's handler has
its turn. That thread is started when the first loop runs, and again in a forked child.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Protocol


class Options(Protocol):
    """What a library's run was given: onnxruntime's RunOptions."""

    terminate: bool


class _Watch:
    """The pipe and the thread behind it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.options: list[Options] = []
        """Of the loops that run: a signal's handler, or a finalizer, may run one amid another."""
        self.other = -1
        """Who got the signals' numbers before; that it misses none, they are passed on."""
        self._read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        threading.Thread(target=self._listen, name="anydml-interrupt", daemon=True).start()

    def _listen(self) -> None:
        while numbers := os.read(self._read, 64):
            if signal.SIGINT in numbers:
                for options in list(self.options):
                    options.terminate = True
            if self.other != -1:
                with suppress(OSError):
                    os.write(self.other, numbers)


_watch: _Watch | None = None
_MAIN = threading.main_thread().ident


def watch_ctrl_c(options: Options) -> _Watch | None:
    """From now on, Ctrl-C also tells the library. Nothing happens outside of the main thread."""
    global _watch
    if threading.get_ident() != _MAIN or sys.platform == "win32":  # where only sockets can be woken
        return None
    if _watch is None or _watch.process != os.getpid():
        _watch = _Watch()
    _watch.options.append(options)
    if len(_watch.options) == 1:
        _watch.other = signal.set_wakeup_fd(_watch.write, warn_on_full_buffer=False)
    return _watch


def unwatch_ctrl_c(watch: _Watch | None) -> None:
    """No longer; `watch` is what `watch_ctrl_c` gave."""
    if watch is not None:
        watch.options.pop()
        if not watch.options:
            signal.set_wakeup_fd(watch.other)
