"""Windows that slide over a tensor, as the pooling operators have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.ops.attributes import BOOLEAN, UINTS
from anydml.ops.call import Array, Call
from anydml.ops.opdef import Rule, attr
from anydml.ops.rules import holds
from anydml.ops.shapes import window


@dataclass(frozen=True)
class Window:
    """How windows lie along one axis. Padding is nothing in memory: windows are cut at the tensor's ends."""

    axis: int
    length: int
    """Of the axis, without padding."""
    places: int
    """How many windows there are."""
    stride: int
    size: int
    dilation: int
    start: int
    """Padding before the first element."""

    def taps(self) -> Iterator[tuple[Any, Any]]:
        """For each element of a window: the windows where it is not padding, and what they find there."""
        least = -(((self.places - 1) * self.stride - self.start) // self.dilation)
        last = min(self.size - 1, (self.length - 1 + self.start) // self.dilation)
        for k in range(max(least, 0), last + 1):
            offset = k * self.dilation - self.start
            low = max(0, -(offset // self.stride))
            high = min(self.places - 1, (self.length - 1 - offset) // self.stride)
            if low <= high:
                found = slice(low * self.stride + offset, high * self.stride + offset + 1, self.stride)
                yield self.at(slice(low, high + 1)), self.at(found)

    def at(self, part: slice | Array) -> tuple[Any, ...]:
        return (*(slice(None),) * self.axis, part)

    def counts(self) -> Array:
        """How many elements of each window are not padding."""
        first: Array = np.arange(self.places) * self.stride - self.start
        before = np.maximum(-(first // self.dilation), 0)
        within = np.minimum((self.length - 1 - first) // self.dilation + 1, self.size)
        found: Array = np.maximum(within - before, 0)
        return found

    def firsts(self) -> Array:
        """Each window's first element that is not padding; of nothing but padding, any."""
        first: Array = np.arange(self.places) * self.stride - self.start
        first += np.maximum(-(first // self.dilation), 0) * self.dilation
        return first.clip(0, self.length - 1)


def dilations_of(c: Call) -> Sequence[int]:
    """Those of the newer operators; 1 in the older ones."""
    return c.__dict__.get("dilations") or (1,) * len(c.strides)


def extents_of(c: Call) -> list[int]:
    """How far windows reach, dilated."""
    return [(n - 1) * d + 1 for n, d in zip(c.window_size, dilations_of(c), strict=True)]


def padded(c: Call, spatial: tuple[int, ...]) -> list[int]:
    return [n + a + b for n, a, b in zip(spatial, c.start_padding, c.end_padding, strict=True)]


@window(
    "pooled",
    "pooled(S) = (S + start_padding + end_padding - (window_size - 1) * dilations - 1) / strides + 1, "
    "rounded down, with dilations of 1 where there are none",
)
def places_of(c: Call, spatial: tuple[int, ...]) -> tuple[int, ...]:
    """How many windows there are along each axis of these sizes."""
    room = [n - e for n, e in zip(padded(c, spatial), extents_of(c), strict=True)]
    if min(room) < 0:
        raise ValueError("a window is larger than what it lies in")
    return tuple(n // s + 1 for n, s in zip(room, c.strides, strict=True))


def pooled(c: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that pooling makes of a tensor's."""
    return (*shape[:2], *places_of(c, shape[2:]))


def windows_of(c: Call, shape: tuple[int, ...]) -> list[Window]:
    """The windows in a tensor of these sizes, by axis."""
    places, dilations = places_of(c, shape[2:]), dilations_of(c)
    return [
        Window(k + 2, n, places[k], c.strides[k], c.window_size[k], dilations[k], c.start_padding[k])
        for k, n in enumerate(shape[2:])
    ]


def are_whole_planes(attributes: Mapping[str, Any], sizes: Sequence[int]) -> bool:
    """Whether the only window along each axis is all of a tensor of these sizes, and no padding."""
    untouched = all(
        n == neutral
        for name, neutral in (("Dilations", 1), ("StartPadding", 0), ("EndPadding", 0))
        for n in attributes.get(name) or ()
    )
    return untouched and tuple(attributes["WindowSize"]) == tuple(sizes[2:])


_SHORT = 16
"""Up to so many elements, adding slices is faster than one reduction of the axis."""


def reduced(x: Array, windows: list[Window], ufunc: np.ufunc, initial: Any, dtype: Any) -> Array:
    """Each window by `ufunc`, which takes one axis after the other."""
    for w in windows:
        if w.places == 1 and w.size > _SHORT:
            least = max(0, -(-w.start // w.dilation))
            last = min(w.size - 1, (w.length - 1 + w.start) // w.dilation)
            part = slice(least * w.dilation - w.start, last * w.dilation - w.start + 1, w.dilation)
            whole = x[w.at(part if least <= last else slice(0, 0))]
            x = ufunc.reduce(whole, axis=w.axis, keepdims=True, initial=initial, dtype=dtype)
            continue
        made = np.full((*x.shape[: w.axis], w.places, *x.shape[w.axis + 1 :]), initial, dtype)
        for here, there in w.taps():
            ufunc(made[here], x[there], out=made[here])
        x = made
    return x


def divisors(c: Call, windows: list[Window]) -> Array:
    """How many elements each average is of: an array over the axes of the windows."""
    if c.include_padding:
        return np.full((1,) * len(windows), float(prod(w.size for w in windows)), np.float32)
    total = np.ones((1,) * len(windows), np.float32)
    for k, w in enumerate(windows):
        total = total * w.counts().astype(np.float32).reshape((-1,) + (1,) * (len(windows) - 1 - k))
    return np.maximum(total, np.float32(1))


def lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def largest(x: Array, windows: list[Window]) -> tuple[Array, Array]:
    """The maximum of each window, and where its first one is in the tensor (of a flat index)."""
    if all(w.places == 1 and w.counts()[0] == w.length for w in windows):
        return _largest_of_planes(x)
    spatial = x.shape[2:]
    place = np.broadcast_to(np.arange(prod(spatial), dtype=np.uint32).reshape(1, 1, *spatial), x.shape)
    with_nan = x.dtype.kind == "f" and bool(np.isnan(x).any())
    for w in reversed(windows):  # the last axis first, so that the first row that has the maximum wins
        best, index = np.take(x, w.firsts(), w.axis), np.take(place, w.firsts(), w.axis)
        for here, there in w.taps():
            old, new = best[here], x[there]
            better = new > old
            if with_nan:
                better |= np.isnan(new) & ~np.isnan(old)
            np.copyto(old, new, where=better)
            np.copyto(index[here], place[there], where=better)
        empty = w.counts() == 0
        if empty.any():
            best[w.at(empty)] = lowest(x.dtype)
        x, place = best, index
    for w in windows:
        place[w.at(w.counts() == 0)] = 0
    planes = np.arange(x.shape[0] * x.shape[1], dtype=np.uint32) * np.uint32(prod(spatial))
    place += planes.reshape(*x.shape[:2], *(1,) * len(spatial))
    return x, place


def _largest_of_planes(x: Array) -> tuple[Array, Array]:
    """`largest` of windows that are whole planes. A NaN is the largest there, too."""
    rows = x.reshape(-1, prod(x.shape[2:]))
    place = rows.argmax(axis=1, keepdims=True)
    best = np.take_along_axis(rows, place, axis=1)
    place += np.arange(len(rows))[:, np.newaxis] * rows.shape[1]
    sizes = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return best.reshape(sizes), place.astype(np.uint32).reshape(sizes)


# ---- fields and rules --------------------------------------------------------------------------------------

_POSITIVE = (
    holds("Strides of at least 1", lambda c: min(c.strides) >= 1, lambda c: list(c.strides)),
    holds("WindowSize of at least 1", lambda c: min(c.window_size) >= 1, lambda c: list(c.window_size)),
)
_POSITIVE_DILATIONS = holds(
    "Dilations of at least 1", lambda c: min(c.dilations) >= 1, lambda c: list(c.dilations)
)


def window_rules(tensor: str = "Input", *, dilated: bool = False) -> tuple[Rule, ...]:
    """The rules of windows in a tensor (by its field, without `Tensor`)."""
    parameter = "output_gradient" if tensor == "OutputGradient" else "input"
    fits = holds(
        f"WindowSize that{', dilated,' if dilated else ''} fits into {tensor}Tensor with its padding",
        lambda c: all(
            e <= n for e, n in zip(extents_of(c), padded(c, getattr(c, parameter).shape[2:]), strict=True)
        ),
        lambda c: f"{extents_of(c)} in {padded(c, getattr(c, parameter).shape[2:])}",
    )
    return (*_POSITIVE, *((_POSITIVE_DILATIONS,) if dilated else ()), fits)


WINDOWS = (
    attr("Strides", UINTS, 1, per="spatial"),
    attr("WindowSize", UINTS, per="spatial"),
    attr("StartPadding", UINTS, 0, per="spatial"),
    attr("EndPadding", UINTS, 0, per="spatial"),
)
DILATIONS = attr("Dilations", UINTS, 1, per="spatial")
INCLUDE_PADDING = attr("IncludePadding", BOOLEAN)
