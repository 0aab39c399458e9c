"""`python -m anydml`, and the command `anydml`."""

import signal
import sys
import threading
from types import FrameType

SOON = 0.02
"""Seconds until Ctrl-C is tried again."""


def main() -> None:
    """The command line; Ctrl-C is as quiet while it is still being loaded."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    try:
        from anydml.cli.main import main as run

        run()
    except KeyboardInterrupt:
        print("anydml: interrupted", file=sys.stderr)
        sys.exit(130)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Ctrl-C waits while something is imported: libraries turn it into errors of theirs then, or crash."""
    importing = frame
    while importing is not None:
        if importing.f_code.co_filename == "<frozen importlib._bootstrap>":
            if not _waiting:
                _waiting.append(threading.Timer(SOON, _again, (number,)))
                _waiting[0].daemon = True
                _waiting[0].start()
            return
        importing = importing.f_back
    raise KeyboardInterrupt


_waiting: list[threading.Timer] = []
"""What tries again."""


def _again(number: int) -> None:
    """The signal once more, to the main thread: one of another thread does not end its waiting for a file."""
    _waiting.clear()
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, number)


if __name__ == "__main__":
    main()
