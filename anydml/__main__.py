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
            again = threading.Timer(SOON, signal.raise_signal, (number,))
            again.daemon = True
            again.start()
            return
        importing = importing.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
