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


def watch_ctrl_c(options: Options) -> None:
    """From now on, Ctrl-C also tells the library. Nothing happens outside of the main thread."""
    global _watch
    if threading.get_ident() != _MAIN or sys.platform == "win32":  # where only sockets can be woken
        return
    if _watch is None or _watch.process != os.getpid():
        _watch = _Watch()
    before = signal.set_wakeup_fd(_watch.write, warn_on_full_buffer=False)
    if before != _watch.write:  # nobody watches, whatever signals' handlers left there
        _watch.other = before
        _watch.options.clear()
    _watch.options.append(options)


def unwatch_ctrl_c(options: Options) -> None:
    """No longer, if `watch_ctrl_c` came so far."""
    watch = _watch
    if watch is None or threading.get_ident() != _MAIN or options not in watch.options:
        return
    if watch.options[0] is options:
        signal.set_wakeup_fd(watch.other)
    while watch.options.pop() is not options:
        pass  # one within this one, which a handler kept from coming here
