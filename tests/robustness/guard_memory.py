"""Tensors between two pages that nobody may touch: one byte too far, and the process ends.

A tensor ends exactly where the page behind it begins, or begins exactly where the page before it ends.
What lies on its other side, up to a page of it, is filled with a pattern and looked at afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.ops.tensor_desc import packed_strides

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

PAGE = mmap.PAGESIZE
PATTERN = 0xA7
DRAWN = 1 << 15
"""Elements that are drawn at random; larger tensors repeat them."""
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, 65504.0)


_LIBRARY = ctypes.CDLL("kernel32.dll") if os.name == "nt" else ctypes.CDLL(None, use_errno=True)
"""Of the system: to find it takes ten times as long as a call."""


def _forbid(page: int) -> None:
    """Have nobody read or write a page."""
    address, size = ctypes.c_void_p(page), ctypes.c_size_t(PAGE)
    if os.name == "nt":
        no_access, before = 1, ctypes.c_uint32()
        if not _LIBRARY.VirtualProtect(address, size, no_access, ctypes.byref(before)):
            raise OSError("VirtualProtect")
    elif _LIBRARY.mprotect(address, size, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")


class Region:
    """Pages for use, with one in front and one behind that can be neither read nor written."""

    def __init__(self, pages: int) -> None:
        self._map = mmap.mmap(-1, (pages + 2) * PAGE)
        whole = np.frombuffer(self._map, np.uint8)
        for page in (0, pages + 1):
            _forbid(whole.ctypes.data + page * PAGE)
        self.pages = pages
        self.whole = whole
        """The two pages included, for addresses; they are not to be touched."""


@dataclass(frozen=True)
class Place:
    """Some bytes in a region: `window[start : start + size]`, and what may be looked at around them."""

    window: Bytes
    start: int
    size: int


class Memory:
    """Regions, lent to one case and taken back when it is over, so that their number stays small."""

    def __init__(self) -> None:
        self._free: dict[int, list[Region]] = {}
        self._lent: list[Region] = []

    def take(self, size: int, *, at_end: bool, shift: int = 0) -> Place:
        """`size` bytes at one of a region's ends, or `shift` bytes away from it."""
        region = self._region(size + shift)
        inside = region.whole[PAGE:-PAGE]
        start = inside.size - size - shift if at_end else shift
        first = max(start - PAGE, 0)
        window = inside[first : start + size + PAGE]
        window[:] = PATTERN
        return Place(window, start - first, size)

    def scratch(self, size: int) -> Bytes:
        """Bytes for intermediate values, which begin at a multiple of 64 and may be 64 fewer than asked for.

        They begin just behind such a multiple, so that exactly one byte is not for use: the last one,
        which lies in the page behind.
        """
        used = size - 64
        region = self._region(used + 63)
        first = region.whole.size - PAGE - used - 63
        return region.whole[first : first + size]

    def take_back(self) -> None:
        """All that was lent. Nobody may use it any more."""
        for region in self._lent:
            self._free.setdefault(region.pages, []).append(region)
        self._lent.clear()

    def _region(self, size: int) -> Region:
        pages = 1
        while pages * PAGE < size:
            pages *= 4
        free = self._free.get(pages)
        region = free.pop() if free else Region(pages)
        self._lent.append(region)
        return region


@dataclass(frozen=True)
class Layout:
    """Sizes, and elements between neighbours along each dimension: 0 repeats, negative ones walk back."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def lowest(self) -> int:
        """The first element in memory, counted from the one of index 0."""
        return self._ends(-1)

    @property
    def span(self) -> int:
        """Elements of memory from the first to the last."""
        return self._ends(1) - self._ends(-1) + 1 if prod(self.sizes) else 0

    def _ends(self, sign: int) -> int:
        steps = zip(self.sizes, self.strides, strict=True)
        return sum((n - 1) * s for n, s in steps if s * sign > 0 and n > 1)


class Held:
    """A tensor in guarded memory, and how everything around it looked before."""

    def __init__(
        self,
        memory: Memory,
        rng: np.random.Generator,
        dtype: np.dtype,
        layout: Layout,
        *,
        short: int = 0,
    ) -> None:
        """`short`: elements that are missing, which is a mistake that somebody has to notice."""
        self.dtype, self.layout = dtype, layout
        width = dtype.itemsize
        count = max(layout.span - short, 0)
        shift = int(rng.integers(1, width)) if width > 1 and rng.random() < 0.1 else 0
        self.place = memory.take(count * width, at_end=bool(rng.random() < 0.65), shift=shift)
        p = self.place
        self.flat: Array = p.window[p.start : p.start + p.size].view(dtype)
        """All of its memory, one dimension."""
        self.fill(contents(rng, dtype, count))

    def fill(self, flat: Array) -> None:
        """Other contents for all of its memory."""
        self.flat[:] = flat
        self.before = self.place.window.copy()

    @property
    def packed(self) -> bool:
        return self.layout.strides == packed_strides(self.layout.sizes)

    def seen(self, window: Bytes | None = None, dtype: np.dtype | None = None) -> Array:
        """Its elements, here or in a copy of the window. NumPy checks that all lie inside."""
        width = self.dtype.itemsize
        return np.ndarray(
            self.layout.sizes,
            dtype or self.dtype,
            self.place.window if window is None else window,
            self.place.start - (self.layout.lowest * width if self.layout.span else 0),
            [s * width for s in self.layout.strides],
        )

    def damage(self, *, written: bool) -> str:
        """What was changed that should not have been; of an output, all but its elements."""
        wanted, found = self.before.copy(), self.place.window
        if written:
            bits = np.dtype(f"u{self.dtype.itemsize}")
            self.seen(wanted, bits)[...] = self.seen(found, bits)
        changed = np.flatnonzero(wanted != found)
        if not len(changed):
            return ""
        at, size = changed - self.place.start, self.place.size
        where = "within" if at[0] >= 0 and at[-1] < size else "beyond"
        return f"{len(at)} bytes changed {where} {size}, from byte {at[0]} on ({self.dtype})"


def contents(rng: np.random.Generator, dtype: np.dtype, count: int) -> Array:
    """Random elements, with special ones among them."""
    n = min(count, DRAWN)
    if dtype.kind == "f":
        numbers = rng.standard_normal(n, np.float32) * rng.choice([0.1, 1, 30])
        if n >= 16:
            numbers[rng.integers(0, n, n // 16)] = rng.choice(SPECIAL, n // 16)
        with np.errstate(over="ignore"):
            drawn = numbers.astype(dtype)
    elif rng.random() < 0.3:
        drawn = np.frombuffer(rng.bytes(n * dtype.itemsize), dtype)
    else:
        drawn = rng.integers(-9 if dtype.kind == "i" else 0, 9, n).astype(dtype)
    return drawn if n == count else np.resize(drawn, count)
