"""Libraries that run the operators anydml does not exist for."""

import atexit
import os
import sys
import time

from anydml.runtime.process import MAX_EXIT_DELAY_SECONDS

# From 1.29 on onnxruntime's telemetry has a thread, which a forked child that ends by sys.exit waits for, for
# ever. It is read when onnxruntime is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_CALLS = "anydml.onnx.providers.bound_memory"


def _end() -> None:
    """Wait where another thread imports onnxruntime: it lets go of Python's lock meanwhile, and would end the
    process with SIGABRT when it does not get it back. Then keep it out of onnxruntime."""
    until = time.monotonic() + MAX_EXIT_DELAY_SECONDS
    while any(map(_is_imported_now, ("onnxruntime", _CALLS))) and time.monotonic() < until:
        time.sleep(0.001)
    calls = getattr(sys.modules.get(_CALLS), "calls", None)
    if calls is not None:
        calls.end()


def _is_imported_now(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


atexit.register(_end)
