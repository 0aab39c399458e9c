"""How much a tensor may take: the machine's memory. More cannot be, and asking for it may end the process.
And memory that stays where it is."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from anydml.errors import Problem
from anydml.runtime import control_groups
from anydml.runtime.addresses import address


@cache
def limit() -> int:
    """Bytes of the machine's memory, or what its container may have; 1 TiB where the system does not tell."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        whole = 1 << 40
    return min(whole, control_groups.memory() or whole)


def size_problem(where: str, dtype: str, sizes: Sequence[int], itemsize: int) -> Problem | None:
    """What is wrong with a tensor of these sizes, if it is too large."""
    wanted = prod(n or 1 for n in sizes) * itemsize  # NumPy, too, counts so
    if wanted <= limit():
        return None
    shape = f"{dtype}[{','.join(map(str, sizes))}]"
    message = f"expected at most {_gibibytes(limit())}, all the memory there is, but got {_gibibytes(wanted)}"
    return Problem(where, f"{message} for {shape}")


def is_memory_of(y: np.ndarray, x: Any) -> bool:
    """Whether an array has the very memory of another one."""
    return isinstance(x, np.ndarray) and x.nbytes == y.nbytes > 0 and x.ctypes.data == y.ctypes.data


def overlaps(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays share memory; a case too intricate to decide counts as shared."""
    if not np.may_share_memory(x, y):
        return False
    try:
        return np.shares_memory(x, y, max_work=100_000)  # type: ignore[arg-type]  # NumPy's stub knows two values
    except np.exceptions.TooHardError:
        return True


def overlap_among(arrays: Iterable[np.ndarray]) -> bool:
    """Whether any two of the arrays share memory."""
    bounds = sorted(((*_bounds(x), x) for x in arrays), key=lambda b: b[:2])
    for k, (_, end, x) in enumerate(bounds):
        for start, _, y in bounds[k + 1 :]:
            if start >= end:
                break
            if overlaps(x, y):
                return True
    return False


def _bounds(x: np.ndarray) -> tuple[int, int]:
    """Where its memory begins and ends. NumPy's takes ten times as long."""
    return (address(x), address(x) + x.nbytes) if x.flags.c_contiguous else byte_bounds(x)


def kept_in_place(array: object) -> list[weakref.ref[Any]]:
    """Keep an array where it is for as long as the result lives, and every array that it is a view of.

    NumPy refuses to resize an array that has a weak reference, whatever the caller says about reference
    counts.
    """
    held: list[weakref.ref[Any]] = []
    while isinstance(array, np.ndarray | memoryview):
        if isinstance(array, np.ndarray):
            held.append(weakref.ref(array))
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return held


def _gibibytes(count: int) -> str:
    if count >> 60:  # a file can tell sizes of hundreds of digits
        return "over 1,000,000,000 GiB"
    return f"{count / (1 << 30):,.1f} GiB"
