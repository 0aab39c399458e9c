"""Memory of values that nobody has any more, for those that come next.

A large array that is freed goes back to the system, and the next one is paid for page by page. So an arena
keeps the memory of its arrays, and gives it out again after the last array over it has died, whoever had it:
a step, a result that was returned, or a view that a user made of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.runtime.process import renew_after_fork

Array = NDArray[Any]
MIN_POOLED_BYTES = 1 << 16
"""Less is as quickly had anew."""
MAX_BLOCKS_PER_SIZE = 4
MAX_POOLED_SIZES = 16
"""Different sizes of which memory is kept."""


class Arena:
    """Safe from several threads."""

    def __init__(self, least: int = MIN_POOLED_BYTES, most: int | None = None) -> None:
        """`least`: bytes of an array whose memory is kept; `most`: bytes that are kept in all."""
        self._least, self._most = least, most
        self._blocks: dict[int, list[Array]] = {}
        """By bytes. Each is the base of every array over it, which so counts as a reference to it."""
        self._unwanted = False
        """Whether `clear` was called while a block was looked for."""
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def empty(self, sizes: Sequence[int], dtype: np.dtype) -> Array:
        """An array of any contents, in memory that is free again, if there is some of its size."""
        count = prod(sizes) * dtype.itemsize
        if count < self._least:
            return np.empty(sizes, dtype)
        # a finalizer or a signal's handler may come here amid this very function, and must not wait for it
        if not self._lock.acquire(blocking=False):
            return np.empty(sizes, dtype)
        try:
            return self._block(count).view(dtype).reshape(sizes)
        finally:
            if self._unwanted:
                self._blocks, self._unwanted = {}, False
            self._lock.release()

    def clear(self) -> None:
        """Keep nothing: what arrays still have goes with them."""
        self._unwanted = True
        if self._lock.acquire(blocking=False):
            self._blocks, self._unwanted = {}, False
            self._lock.release()

    def _block(self, count: int) -> Array:
        blocks = self._blocks.get(count, [])
        for k in range(len(blocks)):
            if _references(blocks, k) == _FREE:
                return blocks[k]
        block = np.empty(count, np.uint8)
        if len(blocks) < MAX_BLOCKS_PER_SIZE and (self._most is None or count <= self._most):
            while self._blocks and not self._has_room(count):
                del self._blocks[next(iter(self._blocks))]
            self._blocks.setdefault(count, blocks).append(block)
        return block

    def _has_room(self, count: int) -> bool:
        if count not in self._blocks and len(self._blocks) >= MAX_POOLED_SIZES:
            return False
        return self._most is None or count + sum(n * len(b) for n, b in self._blocks.items()) <= self._most


def _references(blocks: list[Array], k: int) -> int:
    return getrefcount(blocks[k])


_FREE = _references([np.empty(1, np.uint8)], 0)
"""References to a block that nobody but its list has, as this Python counts them."""
