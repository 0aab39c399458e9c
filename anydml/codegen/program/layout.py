"""Where values lie in a program's memory, and constants in its block of weights: fixed before it runs."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import Buffer

ALIGNMENT = 64
"""Of buffers and constants, in bytes: a cache line, and the widest vector."""
ARENA, WEIGHTS, DETAIL, FIRST = range(4)
"""Words that a program is given: addresses of its memory, of its constants, of where to leave a number, and
from the first one on addresses of inputs' and outputs' data pointers."""
DETAIL_BYTES = 256
"""In front of a program's memory: the number that a failure leaves, and sizes that the data decided."""
MAX_BYTES = 1 << 24
"""Of memory, and of weights: more is not what programs are for."""


class ArenaPlan:
    """Offsets in one block of memory.

    Code is written in the order in which it runs, so what nobody uses any more when a buffer is asked for is
    free at that place of the code, too. The branches of an If exclude each other.
    """

    def __init__(self) -> None:
        self.size = 0
        self._taken: list[Buffer] = []
        """By offset."""

    def allocate(self, size: int) -> Buffer:
        """The first gap that holds it."""
        used, size = size, _rounded(size)
        offset, place = 0, 0
        for place, buffer in enumerate(self._taken):  # noqa: B007  (read behind the loop)
            if offset + size <= buffer.offset:
                break
            offset = buffer.offset + buffer.size
        else:
            place = len(self._taken)
        return self._take(offset, used, place)

    def append(self, size: int) -> Buffer:
        """A buffer behind all that there were."""
        return self._take(self.size, size, len(self._taken))

    def _take(self, offset: int, used: int, place: int) -> Buffer:
        found = Buffer(offset, _rounded(used), used)
        self._taken.insert(place, found)
        self.size = max(self.size, offset + found.size)
        if self.size > MAX_BYTES:
            raise NotNative("more memory than programs take")
        return found

    @property
    def taken(self) -> tuple[Buffer, ...]:
        """What is in use, by offset."""
        return tuple(self._taken)

    def return_to(self, taken: Collection[Buffer]) -> None:
        """Go on with what was in use at another place of the code, which this one does not follow."""
        self._taken = sorted(taken, key=lambda buffer: buffer.offset)

    def keep(self, used: Collection[Buffer]) -> None:
        """All other buffers are free from here on."""
        self._taken = [b for b in self._taken if b in used]


class WeightBlock:
    """Constants in one block that programs read: each content once."""

    def __init__(self) -> None:
        self.size = 0
        self._places: dict[tuple[str, bytes], int] = {}

    def add(self, array: NDArray[np.generic]) -> int:
        """The offset of a content."""
        key = (array.dtype.str, array.tobytes())
        if key not in self._places:
            self._places[key] = self.size
            self.size += _rounded(array.nbytes)
            if self.size > MAX_BYTES:
                raise NotNative("more constants than programs take")
        return self._places[key]

    def content(self) -> NDArray[np.uint8]:
        """The block, aligned."""
        block = aligned(self.size)
        for (_, content), offset in self._places.items():
            block[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        return block


def _rounded(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def aligned(size: int) -> NDArray[np.uint8]:
    """Bytes that begin at a multiple of the alignment."""
    block = np.zeros(size + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + size]
