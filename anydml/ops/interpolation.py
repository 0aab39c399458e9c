"""What becomes of an axis that is resampled: a sum of terms, each an element and its weight."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.ops.call import Array
from anydml.ops.enums import AxisDirection


@dataclass(frozen=True)
class Axis:
    """What becomes of one axis: output = (input + input_offset) * scale + output_offset."""

    n_in: int
    n_out: int
    scale: float
    input_offset: float
    output_offset: float

    def positions(self) -> Array:
        """Where in the input each output element lies, in float32 as GPUs have it."""
        outputs: Array = np.arange(self.n_out, dtype=np.float32)
        return (outputs - np.float32(self.output_offset)) / np.float32(self.scale) - np.float32(
            self.input_offset
        )

    def inside(self, positions: Array) -> Array:
        """The elements that positions name; beyond an edge, the one at the edge."""
        last = self.n_in - 1
        found: Array = np.clip(positions, 0, last).astype(np.intp)
        return np.minimum(found, last)  # a float32 may be above it


Term = tuple[Any, Array, Array | None]
"""Targets (all of them, or a list), the source of each, and its weight (None: 1)."""


def nearest(axis: Axis, direction: AxisDirection | None) -> list[Term]:
    x = axis.positions()
    if direction is AxisDirection.INCREASING:
        x = np.ceil(x)
    else:
        x = np.floor(x if direction is AxisDirection.DECREASING else x + np.float32(0.5))
    return [(slice(None), axis.inside(x), None)]


def linear(axis: Axis) -> list[Term]:
    x = np.clip(axis.positions(), 0, axis.n_in - 1)
    low = axis.inside(x)
    share = x - low
    if not share.any():
        return [(slice(None), low, None)]
    return [(slice(None), low, 1 - share), (slice(None), axis.inside(low + (share > 0)), share)]


def antialiased(axis: Axis) -> list[Term]:
    """A triangle that is wider than two elements: as wide as needed that none is passed over."""
    n, scale = axis.n_in, float(np.float32(axis.scale))
    reach = 1 / scale
    x = np.clip(axis.positions().astype(np.float64), -reach - 1, n + reach)
    count = int(min(np.ceil(2 * reach), n))
    first = np.clip(np.floor(x - reach) + 1, 0, n - count).astype(np.intp)
    elements = first + np.arange(count)[:, np.newaxis]
    inner = np.maximum(0, 1 - np.abs(elements - x) * scale)
    weights = np.stack([*inner, _before(x, scale), _before(n - 1 - x, scale)])
    weights = (weights / weights.sum(0)).astype(np.float32)
    edges = [np.full(axis.n_out, edge) for edge in (0, n - 1)]
    return [(slice(None), k, w) for k, w in zip([*elements, *edges], weights, strict=True) if w.any()]


def _before(x: Array, scale: float) -> Array:
    """The weights of all elements before the first one, for triangles around x, which count for that one."""

    def ramp(t: Array) -> Array:
        terms = np.maximum(np.ceil(t), 0)
        found: Array = terms * t - terms * (terms - 1) / 2
        return found

    begin = -1 - x
    total: Array = scale * (ramp(begin + 1 / scale) - 2 * ramp(begin) + ramp(begin - 1 / scale))
    return total.clip(min=0)


def transposed(terms: list[Term], n_in: int) -> list[Term]:
    """The terms that bring what each source gave back to it: at most one for each source at a time."""
    sources = np.concatenate([source for _, source, _ in terms])
    outputs = np.tile(np.arange(len(terms[0][1])), len(terms))
    weights = np.concatenate([np.ones(len(s), np.float32) if w is None else w for _, s, w in terms])
    given = weights != 0
    order = np.argsort(sources[given], kind="stable")
    sources, outputs, weights = (v[given][order] for v in (sources, outputs, weights))
    counts = np.bincount(sources, minlength=n_in)
    starts = np.cumsum(counts) - counts
    found: list[Term] = []
    for k in range(counts.max()):
        targets = np.flatnonzero(counts > k)
        chosen = starts[targets] + k
        whole = len(targets) == n_in
        found.append((slice(None) if whole else targets, outputs[chosen], weights[chosen]))
    return found


def _along(x: Array, axis: int, length: int, terms: list[Term]) -> Array:
    """The sum of terms, along an axis."""
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    total: Array | None = None
    for targets, sources, weights in terms:
        part = np.take(x, sources, axis)
        if weights is not None:
            part *= weights.reshape(-1, *(1,) * (x.ndim - axis - 1)).astype(x.dtype, copy=False)
        if total is None and isinstance(targets, slice):
            total = part
        else:
            total = np.zeros(shape, x.dtype) if total is None else total
            total[(*(slice(None),) * axis, targets)] += part
    return np.zeros(shape, x.dtype) if total is None else total


# ---- all axes ------------------------------------------------------------------------------------------


def is_identity(axis: Axis, terms: list[Term]) -> bool:
    one = len(terms) == 1 and axis.n_in == axis.n_out
    return one and bool(np.array_equal(terms[0][1], np.arange(axis.n_in)))


_AT_ONCE = 1 << 16  # elements of an output, about: what lies between stays near


def apply(x: Array, lengths: Sequence[int], terms: Sequence[list[Term]]) -> Array:
    """All axes. The first ones, that stay as they are, are cut."""
    if prod(lengths) <= _AT_ONCE or all(len(t) <= 1 for t in terms):
        return _apply_at_once(x, lengths, terms)
    first = next(k for k in range(x.ndim) if terms[k])
    count, size = prod(x.shape[:first]), prod(lengths[first:])
    rows, result = x.reshape(count, *x.shape[first:]), np.empty((count, *lengths[first:]), x.dtype)
    block, own = max(1, _AT_ONCE // size), [[], *terms[first:]]
    for k in range(0, count, block):
        part = result[k : k + block]
        part[...] = _apply_at_once(rows[k : k + block], part.shape, own)
    return result.reshape(lengths)


def in_order(before: Sequence[int], after: Sequence[int]) -> list[int]:
    """Axes as they are resampled: those that make it smaller first, then last ones."""
    return sorted(range(len(before)), key=lambda k: (after[k] / before[k], -k))


def _apply_at_once(x: Array, lengths: Sequence[int], terms: Sequence[list[Term]]) -> Array:
    """Many terms are added in float64."""
    for k in in_order(x.shape, lengths):
        if terms[k]:
            wide = x.astype(np.float64) if len(terms[k]) > 64 and x.dtype == np.float32 else x
            x = _along(wide, k, lengths[k], terms[k]).astype(x.dtype, copy=False)
    return x
