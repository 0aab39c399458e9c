"""Memory of values that nobody needs any more, for those that come next.

A large array that is freed goes back to the system, and the next one is paid for page by page.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from anydml.runtime.launch import Array

LEAST = 1 << 16
"""Bytes from which memory is kept; less is as quickly had anew."""
KEPT = 4
"""Pieces of one size that are kept at most."""


class Arena:
    """Safe from several threads: what one has taken, no other has."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}

    def empty(self, sizes: Sequence[int], dtype: np.dtype) -> Array:
        """An array of any contents, in memory that was given back, if there is some of its size."""
        count = prod(sizes) * dtype.itemsize
        if count < LEAST:
            return np.empty(sizes, dtype)
        free = self._free.get(count)
        try:
            memory = free.pop() if free else np.empty(count, np.uint8)
        except IndexError:  # another thread was quicker
            memory = np.empty(count, np.uint8)
        return memory.view(dtype).reshape(sizes)

    def give_back(self, array: Array) -> None:
        """Memory of an array from here, that nobody reads any more."""
        memory = array
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        if memory.dtype == np.uint8 and memory.ndim == 1 and memory.nbytes >= LEAST:
            free = self._free.setdefault(memory.nbytes, [])
            if len(free) < KEPT:
                free.append(memory)
