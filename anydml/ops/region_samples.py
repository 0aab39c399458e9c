"""Where regions of interest are sampled, and what the samples make of an image.

Samples lie on a grid, so that each axis has its own. An image is {height, width, channels} here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from anydml.dataclass import dataclass
from anydml.ops.call import Array, Call
from anydml.ops.enums import InterpolationMode, ReduceFunction

_MOST = 65536
"""So many samples along an axis are taken for a small region's output at most."""


@dataclass(frozen=True)
class Samples:
    """The samples along one axis that are not out of bounds, in order; of MAX those that may be greatest."""

    outputs: int
    count: int
    """Of samples for each output, those that are out of bounds included."""
    inside: Array
    """Of samples of each output that are not, those that cannot be greatest included."""
    output: Array
    """Which output each sample is for."""
    part: slice
    """The elements of the image that are read."""
    low: Array
    """The element before each sample, counted in `part`."""
    high: Array
    """The one after it: the same if the sample is at an element."""
    weight: Array
    """How much of `high` is in it."""
    slopes: tuple[Array, Array]
    """How far each sample moves for the start of the region and for its end."""

    def _matrix(self, low: Array, high: Array) -> Array:
        width = self.part.stop - self.part.start
        size = self.outputs * width
        made = np.bincount(self.output * width + self.low, low, size)
        made += np.bincount(self.output * width + self.high, high, size)
        made = (made / self.count).astype(np.float32)
        return made.reshape(self.outputs, width)

    def matrix(self) -> Array:
        """The average of each output's samples, as a matrix {outputs, elements of `part`}."""
        return self._matrix(1 - self.weight, self.weight)

    def slope_matrix(self, end: int) -> Array:
        """What that average gains as the start of the region (0) or its end (1) grows."""
        return self._matrix(-self.slopes[end], self.slopes[end])

    def grid(self) -> tuple[Array, Array]:
        """Samples {outputs, most samples of any}, the first one repeated; and which outputs have any."""
        here = np.bincount(self.output, minlength=self.outputs)
        first = np.cumsum(here) - here
        k = np.arange(here.max())
        return np.where(k < here[:, None], first[:, None] + k, first[:, None]).clip(
            0, len(self.low) - 1
        ), here > 0


def samples_of(
    c: Call, roi: Array, image: tuple[int, int], output: tuple[int, int]
) -> tuple[Samples, Samples]:
    """The samples of a region [x1, y1, x2, y2] along y and x."""
    return (
        _samples(c, roi[1], roi[3], np.float32(c.spatial_scale_y), image[0], output[0]),
        _samples(c, roi[0], roi[2], np.float32(c.spatial_scale_x), image[1], output[1]),
    )


def _samples(c: Call, start: Any, end: Any, scale: Any, size: int, outputs: int) -> Samples:
    """ROI_ALIGN has the offsets 0.5 and -0.5. Regions are computed in float32, as their counts are."""
    first = start * scale
    length = end * scale - first
    count = int(_counts(c, length, outputs))
    output_offset, origin, steps = _origin(c, first, count * outputs)
    if steps:
        step = float(length) / steps
        k = _within(step, origin - output_offset * step, size, count * outputs)
        along = (k - output_offset) / steps
    else:
        k, along = np.zeros(1, np.int64), np.full(1, 0.5)
    place = along * float(length) + origin
    found = (place > -1) & (place < size)
    k, along, place = k[found], along[found], place[found].clip(0, size - 1)
    low, high = _around(c, place)
    part = slice(int(low.min()), int(high.max()) + 1) if len(k) else slice(0, 0)
    inside = np.bincount(k // count, minlength=outputs)
    if c.reduction_function is ReduceFunction.MAX:
        ends = _ends(k // count, low)
        k, along, place, low, high = (x[ends] for x in (k, along, place, low, high))
    slopes = (1 - along) * float(scale), along * float(scale)
    weight = place - low if c.interpolation_mode is InterpolationMode.LINEAR else np.zeros(len(k))
    low, high = low - part.start, high - part.start
    return Samples(outputs, count, inside, k // count, part, low, high, weight, slopes)


def _origin(c: Call, first: Any, samples: int) -> tuple[float, Any, int]:
    """The output's pixel offset, where the region starts in the image, in float64, and the steps of all its
    samples."""
    steps = samples - bool(c.__dict__.get("align_regions_to_corners"))
    origin = np.asarray(first, np.float64)[()] - c.__dict__.get("input_pixel_offset", 0.5)
    return c.__dict__.get("output_pixel_offset", -0.5), origin, steps


def _around(c: Call, place: Array) -> tuple[Array, Array]:
    """The elements before and after each sample: one and the same of nearest neighbors."""
    if c.interpolation_mode is InterpolationMode.LINEAR:
        return np.floor(place).astype(np.intp), np.ceil(place).astype(np.intp)
    nearest = np.ceil(place - 0.5).astype(np.intp)
    return nearest, nearest


def _counts(c: Call, length: Array, outputs: int) -> Array:
    """Samples for each output along an axis, of one region or of many."""
    wanted = np.nan_to_num(np.ceil(length / np.float32(outputs)))
    least = max(min(c.minimum_samples_per_output, _MOST), 1)
    return np.asarray(np.minimum(np.maximum(wanted, least), c.maximum_samples_per_output))


def _ends(output: Array, low: Array) -> Array:
    """Which samples are the first or last of an output between two elements: what is linear there has its
    extremes at them."""
    first = np.ones(len(low), bool)
    first[1:] = (output[1:] != output[:-1]) | (low[1:] != low[:-1])
    last = np.ones(len(low), bool)
    last[:-1] = first[1:]
    return first | last


def _within(step: float, origin: float, size: int, count: int) -> Array:
    """The samples that can be within an axis: all of a step of 0, none where there is no telling."""
    if not np.isfinite(step) or not np.isfinite(origin):
        return np.arange(0)
    if step == 0:
        return np.arange(count)
    ends = sorted(((-1 - origin) / step, (size - origin) / step))
    return np.arange(int(min(max(ends[0] - 1, 0), count)), int(min(max(ends[1] + 2, 0), count)))


# ---- few samples of many regions ---------------------------------------------------------------------


class _Grid(NamedTuple):
    """All samples of many regions along one axis, {regions, outputs, elements around each, samples}."""

    places: Array
    """Of the element before and that after each sample; of nearest neighbors there is one."""
    weights: Array
    """0 of what is out of bounds."""
    found: Array
    """What is not."""


def _grid(c: Call, start: Array, end: Array, scale: Any, size: int, outputs: int, count: int) -> _Grid:
    """As `_samples` has them."""
    first = start * scale
    length = (end * scale - first).astype(np.float64)
    output_offset, origin, steps = _origin(c, first, count * outputs)
    along = (np.arange(count * outputs) - output_offset) / steps if steps else np.full(1, 0.5)
    place = along * length[:, np.newaxis] + origin[:, np.newaxis]
    found = (place > -1) & (place < size)
    place = np.where(found, place.clip(0, size - 1), 0)
    shape = len(start), outputs, 1, count
    found = found.reshape(shape)
    there = found.astype(np.float32)
    low, high = _around(c, place)
    if c.interpolation_mode is not InterpolationMode.LINEAR:
        return _Grid(low.reshape(shape), there, found)
    weight = (place - low).astype(np.float32).reshape(shape)
    places = np.concatenate([low.reshape(shape), high.reshape(shape)], axis=2)
    return _Grid(places, np.concatenate([(1 - weight) * there, weight * there], axis=2), found)


def of_few_samples(c: Call, images: Array, batches: Array, rois: Array, result: Array) -> Array:
    """Write the results of regions whose samples are fewer than the elements they lie in; the numbers of the
    other regions, which are all where an image has numbers that are not finite."""
    _, height, width, channels = images.shape
    y_outputs, x_outputs = result.shape[1:3]
    y_scale, x_scale = np.float32(c.spatial_scale_y), np.float32(c.spatial_scale_x)
    y_length, x_length = (rois[:, k + 2] * s - rois[:, k] * s for k, s in ((1, y_scale), (0, x_scale)))
    counts = np.stack([_counts(c, y_length, y_outputs), _counts(c, x_length, x_outputs)], axis=1)
    corners = 4 if c.interpolation_mode is InterpolationMode.LINEAR else 1
    read = counts[:, 0] * counts[:, 1] * (corners * y_outputs * x_outputs * channels)
    rows = np.nan_to_num(abs(y_length)).clip(1, height)
    columns = np.nan_to_num(abs(x_length)).clip(1, width)
    multiplied = (rows + x_outputs) * columns * (y_outputs * channels)
    few = (read <= multiplied / 4 + _READ_AT_ONCE / 8) & (read <= _MOST_READ)
    if not few.any() or not images.size or not np.isfinite(images).all():
        return np.arange(len(rois))
    flat = images.reshape(-1, channels)
    for pair in np.unique(counts[few], axis=0):
        y_count, x_count = map(int, pair)
        alike = np.flatnonzero(few & (counts == pair).all(axis=1))
        size = max(int(_READ_AT_ONCE // read[alike[0]]), 1)
        for part in (alike[k : k + size] for k in range(0, len(alike), size)):
            ys = _grid(c, rois[part, 1], rois[part, 3], y_scale, height, y_outputs, y_count)
            xs = _grid(c, rois[part, 0], rois[part, 2], x_scale, width, x_outputs, x_count)
            above = (batches[part] * height).reshape(-1, 1, 1, 1)
            result[part] = _reduced(c, flat, ys._replace(places=(above + ys.places) * width), xs)
    return np.flatnonzero(~few)


_READ_AT_ONCE = 1 << 20
"""Elements of images that samples are made of."""
_MOST_READ = 1 << 22
"""For one region."""


def _reduced(c: Call, flat: Array, ys: _Grid, xs: _Grid) -> Array:
    """What samples give, {regions, height, width, channels}; places along y are those of whole lines."""

    def beside(y: Array, x: Array) -> tuple[Array, Array]:
        """{regions, outputs along y, along x, elements along y, samples, elements along x, samples}"""
        return y[:, :, None, :, :, None, None], x[:, None, :, None, None, :, :]

    (y, x), (y_weight, x_weight) = beside(ys.places, xs.places), beside(ys.weights, xs.weights)
    weights, values = y_weight * x_weight, flat[y + x]
    y_inside, x_inside = beside(ys.found, xs.found)
    inside = (y_inside & x_inside)[:, :, :, 0, :, 0, :]
    if c.reduction_function is ReduceFunction.MAX:
        samples = np.einsum("rhwajbk,rhwajbkc->rhwjkc", weights, values)
        samples[~inside] = -np.inf
        made = samples.max(axis=(3, 4))
        some = ~inside.all(axis=(3, 4))
        made[some] = np.maximum(made[some], np.float32(c.out_of_bounds_input_value))
        return made  # type: ignore[no-any-return]
    made = np.einsum("rhwajbk,rhwajbkc->rhwc", weights, values)
    share = inside.mean(axis=(3, 4))
    made /= np.float32(inside.shape[3] * inside.shape[4])
    some = share < 1
    made[some] += ((1 - share[some]) * c.out_of_bounds_input_value)[:, np.newaxis]
    return made  # type: ignore[no-any-return]


def channels_last(x: Array) -> Array:
    """{N, C, H, W} as {N, H, W, C}, so that what is done for all channels is done at once."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _multiplied(left: Array, right: Array, x: Array) -> Array:
    rows = (left @ x.reshape(len(x), x.shape[1] * x.shape[2])).reshape(len(left), *x.shape[1:])
    return np.matmul(right, rows)  # type: ignore[no-any-return]


def applied(left: Array, right: Array, x: Array) -> Array:
    """Matrices on the first two axes. An infinity or NaN stays where it has a weight: 0 times it is 0."""
    finite = np.isfinite(x)
    if finite.all():
        return _multiplied(left, right, x)
    made = _multiplied(left, right, np.where(finite, x, 0))
    left, right = (left != 0).astype(np.float32), (right != 0).astype(np.float32)
    for odd in (np.inf, -np.inf):
        touched = _multiplied(left, right, (x == odd).astype(np.float32)) > 0
        made[touched] += np.float32(odd)
    made[_multiplied(left, right, np.isnan(x).astype(np.float32)) > 0] = np.nan
    return made


def _between(x: Array, samples: Samples, index: Array) -> Array:
    """Samples along the first axis, by their numbers."""
    low = x[samples.low[index]]
    if not samples.weight.any():
        return low
    weight = samples.weight[index].astype(np.float32)
    weight = weight.reshape(weight.shape + (1,) * (x.ndim - 1))
    return np.where(weight == 0, low, low * (1 - weight) + x[samples.high[index]] * weight)


def maxima(image: Array, ys: Samples, xs: Samples) -> Array:
    """The greatest sample of each output; -infinity where all are out of bounds."""
    best = np.full((ys.outputs, xs.outputs, image.shape[2]), -np.inf, np.float32)
    if not len(ys.low) or not len(xs.low):
        return best
    (rows, some_y), (columns, some_x) = ys.grid(), xs.grid()
    for j in range(rows.shape[1]):
        line = _between(image, ys, rows[:, j]).swapaxes(0, 1)
        np.maximum(best, _between(line, xs, columns).max(axis=1).swapaxes(0, 1), out=best)
    best[~np.logical_and.outer(some_y, some_x)] = -np.inf
    return best


def largest_samples(image: Array, ys: Samples, xs: Samples) -> tuple[Array, Array, Array]:
    """Of each output and channel, the numbers of the first sample along y and x that is the greatest;
    and which outputs have any."""
    (rows, some_y), (columns, some_x) = ys.grid(), xs.grid()
    shape = ys.outputs, xs.outputs, image.shape[2]
    best = np.full(shape, -np.inf, np.float32)
    j_best = np.broadcast_to(rows[:, 0, None, None], shape).copy()
    i_best = np.broadcast_to(columns[None, :, 0, None], shape).copy()
    for j in range(rows.shape[1]):
        line = _between(image, ys, rows[:, j]).swapaxes(0, 1)
        values = _between(line, xs, columns).transpose(2, 0, 3, 1)
        i = values.argmax(axis=3)
        value = np.take_along_axis(values, i[..., None], axis=3)[..., 0]
        better = value > best
        np.copyto(best, value, where=better)
        np.copyto(j_best, rows[:, j, None, None], where=better)
        np.copyto(i_best, np.take_along_axis(columns[None, :, :], i, axis=2), where=better)
    return j_best, i_best, np.logical_and.outer(some_y, some_x)
