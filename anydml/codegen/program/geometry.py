"""Where elements lie: strides of views, runs of places, loops over dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.program.values import Memory
from anydml.dataclass import dataclass, replace

MAX_PIECES = 64
"""Copies of parts, of elements in an order that no strides have."""


def starts(count: int, width: int) -> list[int]:
    """Where vectors of so many elements begin: the last one earlier where it would not be full."""
    return [min(k, count - width) for k in range(0, count, width)]


def broadcast_strides(tensor: Memory, sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides through which memory is read over larger sizes."""
    own = [0 if n == 1 else s for n, s in zip(tensor.sizes, tensor.strides, strict=True)]
    return (0,) * (len(sizes) - len(own)) + tuple(own)


def reshaped_strides(
    sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...] | None:
    """The strides of the same elements under other sizes, in the same order; None where there are none.

    >>> reshaped_strides((4, 6), (12, 2), (2, 2, 3, 2))
    (24, 12, 4, 2)
    >>> reshaped_strides((4, 6), (1, 4), (24,)) is None
    True
    """
    runs: list[list[int]] = []
    """Dimensions, innermost first, that one stride passes: elements, stride."""
    for n, s in zip(reversed(sizes), reversed(strides), strict=True):
        if n == 1:
            continue
        if runs and s == runs[-1][0] * runs[-1][1]:
            runs[-1][0] *= n
        else:
            runs.append([n, s])
    left = iter(runs)
    rest, step = 1, 1
    result = []
    for n in reversed(wanted):
        if n == 1:
            result.append(1)
            continue
        if rest == 1:
            rest, step = next(left)
        if rest % n:
            return None
        result.append(step)
        rest, step = rest // n, step * n
    return tuple(reversed(result))


def over(tensor: Memory, sizes: tuple[int, ...]) -> Memory:
    """Repeated, to be of these sizes."""
    return replace(tensor, sizes=sizes, strides=broadcast_strides(tensor, sizes))


def reshaped(tensor: Memory, sizes: tuple[int, ...]) -> Memory | None:
    """Its elements in other sizes, where strides lead to that."""
    strides = reshaped_strides(tensor.sizes, tensor.strides, sizes)
    return None if strides is None else replace(tensor, sizes=sizes, strides=strides)


def strides_like(sizes: Sequence[int], like: Sequence[Memory]) -> tuple[int, ...]:
    """The strides of as many elements side by side, with their axes in the order that another tensor of that
    rank has, if there is one: what follows the channels then goes on along them."""
    order = list(range(len(sizes)))
    if like and _has_own_places(like[0]):
        order.sort(key=lambda axis: -abs(like[0].strides[axis]))
    return strides_in(order, sizes)


def strides_in(order: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of elements side by side, with these axes from the outermost to the innermost."""
    strides, step = [0] * len(sizes), 1
    for axis in reversed(order):
        strides[axis], step = step, step * sizes[axis]
    return tuple(strides)


def offsets_of(places: NDArray[np.int64], sizes: Sequence[int], strides: Sequence[int]) -> NDArray[np.int64]:
    """Where elements lie, which are counted row by row.

    (`np.unravel_index` of NumPy 2.4 is wrong from the 8192nd place on, if the last axis of `places` has one.)
    """
    found, rest = np.zeros_like(places), places
    for n, step in zip(reversed(sizes), reversed(strides), strict=True):
        rest, at = np.divmod(rest, n)
        found = found + at * step
    return found


def strides_of(offsets: NDArray[np.int64]) -> tuple[int, ...] | None:
    """The strides by which all offsets follow from the first one; None where there are none."""
    strides = []
    for axis, n in enumerate(offsets.shape):
        one = tuple(int(axis == k) for k in range(offsets.ndim))
        strides.append(int(offsets[one] - offsets.flat[0]) if n > 1 else 0)
    steps = (np.arange(n) * s for n, s in zip(offsets.shape, strides, strict=True))
    grid = np.ix_(*steps) if offsets.ndim else ()
    return tuple(strides) if (offsets == sum(grid, offsets.flat[0])).all() else None


Piece = tuple[tuple[int, ...], NDArray[np.int64]]
"""Where a part begins, and its offsets."""


def pieces(offsets: NDArray[np.int64]) -> list[Piece] | None:
    """Parts that strides lead through; None where there are too many.

    Where each axis adds what only its own place decides, they are blocks of runs along each axis; else the
    first axis is gone through one by one.
    """
    shape, lines = offsets.shape, lines_of(offsets)
    found: list[Piece] = []
    if lines is not None:
        runs = [_runs(line) for line in lines]
        if prod(map(len, runs)) <= MAX_PIECES:
            for block in product(*runs):
                found.append((tuple(a for a, _ in block), offsets[tuple(slice(a, b) for a, b in block)]))
    else:
        axis = next(k for k, n in enumerate(shape) if n > 1)
        for at in range(min(shape[axis], MAX_PIECES + 1)):
            parts = pieces(offsets[(slice(None),) * axis + (slice(at, at + 1),)])
            if parts is None or len(found) + len(parts) > MAX_PIECES:
                return None
            found += [((*start[:axis], at, *start[axis + 1 :]), piece) for start, piece in parts]
    return found if 0 < len(found) <= MAX_PIECES else None


def lines_of(offsets: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
    """What each axis adds, where only its own place decides that."""
    rank, base = offsets.ndim, offsets.flat[0]
    lines = [offsets[(0,) * k + (slice(None),) + (0,) * (rank - k - 1)] - base for k in range(rank)]
    return lines if (sum(np.ix_(*lines), base) == offsets).all() else None


def nested(line: NDArray[np.int64]) -> list[tuple[int, int]] | None:
    """A line as (size, stride) of axes in each other; None where there are no two that lead to it."""
    n = len(line)
    for inner in (k for k in range(1, n + 1) if n % k == 0):
        strides = strides_of(line.reshape(-1, inner))
        if strides is not None:
            return [(m, s) for m, s in zip((n // inner, inner), strides, strict=True) if m > 1]
    return None


def _runs(line: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges along which numbers grow by the same."""
    found, start = [], 0
    while start < len(line):
        end = start + 2
        while end < len(line) and line[end] - line[end - 1] == line[start + 1] - line[start]:
            end += 1
        found.append((start, min(end, len(line))))
        start = end
    return found


def is_dense(tensor: Memory) -> bool:
    """Whether its elements fill their memory, in whatever order of axes."""
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.sizes, tensor.strides, strict=True))
    return reach == tensor.count and _has_own_places(tensor)


def _has_own_places(tensor: Memory) -> bool:
    """Whether no stride is 0 but those of axes of one element, which lead nowhere."""
    return all(s or n == 1 for n, s in zip(tensor.sizes, tensor.strides, strict=True))


@dataclass(frozen=True)
class Dim:
    """A dimension of a loop nest.

    Attributes:
        steps: strides of the operands.
        each: elements for each one along the axis whose length the data decides; None: `size` is how many.
    """

    size: int
    steps: tuple[int, ...]
    each: int | None = None


def loops(sizes: Sequence[int], strides: Sequence[Sequence[int]], open_axis: int | None = None) -> list[Dim]:
    """Dimensions, outermost first by the first operand's strides, as few as these allow.

    Args:
        open_axis: one whose size is only the most. Within another one, there are gaps behind its end.
    """
    order = sorted((d for d, n in enumerate(sizes) if n > 1), key=lambda d: -strides[0][d])
    found: list[Dim] = []
    for d in order:
        n, steps, each = sizes[d], tuple(s[d] for s in strides), 1 if d == open_axis else None
        last = found[-1] if found else None
        if (
            last is not None
            and each is None
            and all(outer == inner * n for outer, inner in zip(last.steps, steps, strict=True))
        ):
            found[-1] = Dim(last.size * n, steps, None if last.each is None else last.each * n)
        else:
            found.append(Dim(n, steps, each))
    return found or [Dim(1, (0,) * len(strides))]
