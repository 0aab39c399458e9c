"""Memory that LLVM's own code takes while it compiles, given back: 50 MB, which its file has."""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

from anydml.errors import by_a_handler

_DONT_NEED = 4
"""As madvise has it on Linux: pages of a file that nobody wrote to are read again if they are needed."""


def give_back(library: str) -> None:
    """Take the code of a library of this name, and the constants in front of it, out of this process's
    memory; from where the system cannot do that, nothing.

    What a loader writes to (addresses, data) lies behind the code, and stays. Whoever is inside of the code
    meanwhile goes on. To read it again takes 5 to 10 milliseconds of the next compilation.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError) as error:
        if by_a_handler(error):
            raise
        return
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    behind = False
    for line in lines:
        place, kind, *_, name = line.split(maxsplit=5)
        if library not in name or not name.startswith("/"):
            continue
        if kind == "r-xp" or (kind == "r--p" and not behind):
            first, end = (int(part, 16) for part in place.split("-"))
            madvise(first, end - first, _DONT_NEED)
        behind = behind or kind == "r-xp"
