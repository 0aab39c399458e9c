"""How much a tensor may take: the machine's memory. More cannot be, and asking for it may end the process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from math import prod

from anydml.errors import Problem


@cache
def limit() -> int:
    """Bytes of the machine's memory; 1 TiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return 1 << 40


def size_problem(where: str, dtype: str, sizes: Sequence[int], itemsize: int) -> Problem | None:
    """What is wrong with a tensor of these sizes, if it is too large."""
    wanted = prod(n or 1 for n in sizes) * itemsize  # NumPy, too, counts so
    if wanted <= limit():
        return None
    shape = f"{dtype}[{','.join(map(str, sizes))}]"
    message = f"expected at most {_gibibytes(limit())}, this machine's memory, but got {_gibibytes(wanted)}"
    return Problem(where, f"{message} for {shape}")


def _gibibytes(count: int) -> str:
    if count >> 60:  # a file can tell sizes of hundreds of digits
        return "over 1,000,000,000 GiB"
    return f"{count / (1 << 30):,.1f} GiB"
