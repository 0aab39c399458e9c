"""Operators that take regions of interest (ROIs) out of images, one definition each."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.ops.attributes import BOOLEAN, UINT, Size2DKind
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, UINT32, UINT64
from anydml.ops.enums import InterpolationMode, ReduceFunction
from anydml.ops.families import FL_1_0, FL_3_0, FL_4_0, FL_4_1, FL_5_0
from anydml.ops.opdef import Asked, Table, at, attr, example, inp, of_tensors, out
from anydml.ops.region_samples import (
    Samples,
    applied,
    channels_last,
    largest_samples,
    maxima,
    of_few_samples,
    samples_of,
)
from anydml.ops.rules import holds
from anydml.ops.shapes import said

# ---- pooling -----------------------------------------------------------------------------------------------


def _bins(first: int, last: int, places: int, size: int) -> list[slice]:
    """Where the bins between two corners (both included) are along an axis of the image."""
    length = max(last - first + 1, 1)
    edges = ((k * length // places, -(-(k + 1) * length // places)) for k in range(places))
    return [slice(*(min(max(first + e, 0), size) for e in edge)) for edge in edges]


def _roi_pooling(c: Call) -> Array:
    images = channels_last(c.input)
    rois = c.roi.reshape(-1, 5)
    corners = np.rint(np.nan_to_num(rois[:, 1:] * np.float32(c.spatial_scale))).clip(-(2**31), 2**31)
    batches = np.nan_to_num(rois[:, 0]).clip(0, len(images) - 1).astype(np.intp)
    height, width = c.pooled_size
    result = np.zeros((len(rois), height, width, images.shape[3]), c.input.dtype)
    for k, (x1, y1, x2, y2) in enumerate(corners.astype(np.int64).tolist()):
        image = images[batches[k]]
        columns = _bins(x1, x2, width, image.shape[1])
        for i, rows in enumerate(_bins(y1, y2, height, image.shape[0])):
            if rows.start >= rows.stop:
                continue
            row = image[rows, columns[0].start : columns[-1].stop].max(axis=0, initial=-np.inf)
            for j, part in enumerate(columns):
                if part.start < part.stop:
                    origin = columns[0].start
                    result[k, i, j] = row[part.start - origin : part.stop - origin].max(axis=0)
    return np.moveaxis(result, -1, 1)


ROI_POOLING = of_tensors(
    name="ROI_POOLING",
    doc="Output is, of each region, the maxima of PooledSize bins: a row of ROI is "
    "[batch index, x1, y1, x2, y2], its corners included.",
    text="output[r, c, y, x] = max(input[roi[r, 0], c] in bin (y, x) between the rounded corners "
    "roi[r, 1:] * spatial_scale)",
    operands=(
        inp("InputTensor", dtype="T"),
        inp("ROITensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        attr("SpatialScale", default=1.0),
        attr("PooledSize", Size2DKind()),
    ),
    levels={
        FL_1_0: at(
            rank=(4, 4),
            T=FLOATS_UP_TO_32_BIT,
            rules=(
                holds(
                    "ROITensor {1, 1, NumROIs, 5}",
                    lambda c: c.roi.shape[:2] == (1, 1) and c.roi.shape[3] == 5,
                    lambda c: c.roi.shape,
                ),
                holds("PooledSize of at least 1 by 1", lambda c: min(c.pooled_size) >= 1, "pooled_size"),
            ),
        )
    },
    sizes=lambda c: (c.roi.shape[2], c.input.shape[1], *c.pooled_size),
    shapes={
        "input": "N C H W",
        "roi": "1 1 R 5",
        "output": said("[R, C, pooled_size[0], pooled_size[1]]"),
    },
    compute=_roi_pooling,
    example=example(
        [[[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]]],
        [[[[0, 0, 0, 3, 1], [0, 1, 1, 3, 2]]]],
        [[[[6, 8]]], [[[11, 12]]]],
        pooled_size=(1, 2),
    ),
    notes="Corners are rounded to the nearest whole number, halves to even. A region is at least one "
    "element wide and high. Bins are cut at the input's edges; of an empty one the maximum is 0. A batch "
    "index beyond the input is taken as the nearest one. A NaN in a bin is its maximum.",
)

# ---- sampling ---------------------------------------------------------------------------------------------

_REDUCTION = attr("ReductionFunction", ReduceFunction)
_SCALES = (
    attr("InterpolationMode", InterpolationMode),
    attr("SpatialScaleX"),
    attr("SpatialScaleY"),
)
_OFFSETS = (attr("InputPixelOffset"), attr("OutputPixelOffset"))
_COUNTS = (attr("MinimumSamplesPerOutput", UINT), attr("MaximumSamplesPerOutput", UINT))
_OUT_OF_BOUNDS = attr("OutOfBoundsInputValue")
_ALIGN = attr("AlignRegionsToCorners", BOOLEAN)
_REGIONS = (inp("ROITensor", dtype="T"), inp("BatchIndicesTensor", dtype="I"))
_REGION_SHAPES = {"roi": said("[1..., R, 4]"), "batch_indices": said("[1..., R]")}
_SHAPES = _REGION_SHAPES | {
    "input": "N C H W",
    "output": said("[R, C, output_size[0], output_size[1]]"),
}

_RULES = (
    holds(
        "ROITensor {[1,] [1,] NumROIs, 4}",
        lambda c: c.roi.shape[-1] == 4 and all(n == 1 for n in c.roi.shape[:-2]),
        lambda c: c.roi.shape,
    ),
    holds(
        "BatchIndicesTensor {[1,] [1,] [1,] NumROIs}",
        lambda c: (
            c.batch_indices.shape[-1] == c.roi.shape[-2] and all(n == 1 for n in c.batch_indices.shape[:-1])
        ),
        lambda c: f"{c.batch_indices.shape} beside ROITensor {c.roi.shape}",
    ),
    holds(
        "ReductionFunction AVERAGE or MAX",
        lambda c: c.reduction_function in (ReduceFunction.AVERAGE, ReduceFunction.MAX),
        lambda c: c.reduction_function.name,
    ),
    holds(
        "MaximumSamplesPerOutput of at least 1, and MinimumSamplesPerOutput not above it",
        lambda c: c.maximum_samples_per_output >= max(c.minimum_samples_per_output, 1),
        lambda c: f"{c.maximum_samples_per_output} and {c.minimum_samples_per_output}",
    ),
)
_RANKS = {"ROITensor": (2, 4), "BatchIndicesTensor": (1, 4), "OutputROIGradientTensor": (2, 4)}
_NOTES = (
    "An output is of ceil(region / output size) samples along each axis, at least MinimumSamplesPerOutput "
    "(or 1; or 65536, if that is less) and at most MaximumSamplesPerOutput; in a mirrored region they are "
    "the least. A sample less than one element outside of the input is that of the nearest edge; {beyond} "
    "The nearest neighbor of a half is the lower one. {corners}A batch index beyond the input is taken as "
    "the last one."
)
_CORNERS = (
    "With AlignRegionsToCorners the first sample is at the region's start and the last one at its end "
    "(before the offsets); a single one is in the middle. "
)


def _levels(first: Any) -> dict[Any, Table]:
    return {
        level: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, I=indices, rules=_RULES, ranks=_RANKS)
        for level, indices in ((first, UINT32), (FL_5_0, (UINT64, UINT32)))
    }


_OUTPUT_SIZE = Asked(
    "output_size", "tuple[int, int]", "(height, width) of the output", lambda c: c.output.shape[2:]
)


def _aligned_sizes(c: Call) -> tuple[int, ...]:
    height, width = c.output_size
    return (c.roi.shape[-2], c.input.shape[1], height, width)


def _batches(c: Call, count: int) -> Array:
    return np.minimum(c.batch_indices.reshape(-1), count - 1).astype(np.intp)  # type: ignore[no-any-return]


def _roi_align(c: Call) -> Array:
    images = channels_last(c.input)
    batches = _batches(c, len(images))
    rois = c.roi.reshape(-1, 4)
    result = np.empty((len(batches), *c.output.shape[2:], images.shape[3]), np.float32)
    for k in of_few_samples(c, images, batches, rois, result):
        ys, xs = samples_of(c, rois[k], images.shape[1:3], c.output.shape[2:])
        image = images[batches[k], ys.part, xs.part]
        inside = np.multiply.outer(ys.inside, xs.inside)
        total = float(ys.count) * xs.count
        some = inside < total
        if c.reduction_function is ReduceFunction.MAX:
            made = maxima(image, ys, xs)
            made[some] = np.maximum(made[some], np.float32(c.out_of_bounds_input_value))
        else:
            made = applied(ys.matrix(), xs.matrix(), image)
            made[some] += ((1 - inside[some] / total) * c.out_of_bounds_input_value)[:, None]
        result[k] = made
    return np.moveaxis(result, -1, 1)


_EXAMPLE_INPUT = [[[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]]]
_EXAMPLE_ROIS = [[0, 0, 2, 2], [1, 1, 4, 3]]
_EXAMPLE: dict[str, Any] = {
    "reduction_function": "AVERAGE",
    "interpolation_mode": "LINEAR",
    "spatial_scale_x": 1,
    "spatial_scale_y": 1,
    "minimum_samples_per_output": 1,
    "maximum_samples_per_output": 1,
}

ROI_ALIGN = of_tensors(
    name="ROI_ALIGN",
    doc="Output is each region of its image, a row [x1, y1, x2, y2] of ROI, resized to the output's "
    "height and width.",
    text="output[r, c, y, x] = reduction_function(samples of input[batch_indices[r], c] in element (y, x) of "
    "region roi[r] * spatial_scale)",
    operands=(
        inp("InputTensor", dtype="T"),
        *_REGIONS,
        out("OutputTensor", dtype="T"),
        _REDUCTION,
        *_SCALES,
        _OUT_OF_BOUNDS,
        *_COUNTS,
    ),
    levels=_levels(FL_3_0),
    asks=(_OUTPUT_SIZE,),
    sizes=_aligned_sizes,
    shapes=_SHAPES,
    compute=_roi_align,
    example=example(
        _EXAMPLE_INPUT,
        _EXAMPLE_ROIS,
        [0, 0],
        [[[[3, 4]]], [[[8.25, 9.75]]]],
        output_size=(1, 2),
        out_of_bounds_input_value=0,
        **_EXAMPLE,
        types={"I": UINT32},
    ),
    notes=_NOTES.format(beyond="one farther out is OutOfBoundsInputValue.", corners=""),
)

ROI_ALIGN1 = of_tensors(
    name="ROI_ALIGN1",
    doc="Output is each region of its image, a row [x1, y1, x2, y2] of ROI, resized to the output's "
    "height and width; where the samples of a region are can be chosen.",
    text="output[r, c, y, x] = reduction_function(samples of input[batch_indices[r], c] in element (y, x) of "
    "region roi[r] * spatial_scale); sample k of n along an axis is at (k - output_pixel_offset) * "
    "region_size / n + region_start - input_pixel_offset",
    operands=(
        inp("InputTensor", dtype="T"),
        *_REGIONS,
        out("OutputTensor", dtype="T"),
        _REDUCTION,
        *_SCALES,
        *_OFFSETS,
        _OUT_OF_BOUNDS,
        *_COUNTS,
        _ALIGN,
    ),
    levels=_levels(FL_4_0),
    asks=(_OUTPUT_SIZE,),
    sizes=_aligned_sizes,
    shapes=_SHAPES,
    compute=_roi_align,
    example=example(
        _EXAMPLE_INPUT,
        [[0, 0, 3, 2]],
        [0],
        [[[[1, 2.5, 4], [9, 10.5, 12]]]],
        output_size=(2, 3),
        input_pixel_offset=0,
        output_pixel_offset=0,
        out_of_bounds_input_value=0,
        align_regions_to_corners=True,
        **_EXAMPLE,
        types={"I": UINT32},
    ),
    notes=_NOTES.format(beyond="one farther out is OutOfBoundsInputValue.", corners=_CORNERS),
)

# ---- the gradient ------------------------------------------------------------------------------------------


def _average_gradient(
    dy: Array, ys: Samples, xs: Samples, image: Array | None, spread: Array | None, rois: Array | None
) -> None:
    """Adds a region's share to the gradient of its image, and to that of its corners."""
    rows, columns = ys.matrix(), xs.matrix()
    if spread is not None:
        spread[ys.part, xs.part] += applied(rows.T, columns.T, dy)
    if rois is None or image is None:
        return
    part = image[ys.part, xs.part]
    for end in (0, 1):
        by_x, by_y = (rows, xs.slope_matrix(end)), (ys.slope_matrix(end), columns)
        for k, (left, right) in enumerate((by_x, by_y)):
            rois[2 * end + k] = np.sum(applied(left, right, part) * dy, dtype=np.float64)


def _max_gradient(
    dy: Array, ys: Samples, xs: Samples, image: Array | None, spread: Array | None, rois: Array | None
) -> None:
    """The same; here all goes to the first sample that is the maximum."""
    assert image is not None  # a rule sees to it
    part = image[ys.part, xs.part]
    j, i, some = largest_samples(part, ys, xs)
    dy = np.where(some[:, :, None], dy, 0)
    channel = np.arange(dy.shape[2])
    taps = {
        (b, a): ((ys.low, ys.high)[b][j], (xs.low, xs.high)[a][i], channel) for b in (0, 1) for a in (0, 1)
    }
    y, x = ys.weight[j], xs.weight[i]
    if spread is not None:
        target = spread[ys.part, xs.part]
        shares = {(0, 0): (1 - y) * (1 - x), (0, 1): (1 - y) * x, (1, 0): y * (1 - x), (1, 1): y * x}
        for tap, place in taps.items():
            flat = np.ravel_multi_index(np.broadcast_arrays(*place), part.shape)
            share = np.where(shares[tap] == 0, 0, shares[tap] * dy)
            sums = np.bincount(flat.reshape(-1), share.reshape(-1), part.size)
            target += sums.reshape(part.shape)
    if rois is None:
        return
    v = {tap: part[place].astype(np.float64) for tap, place in taps.items()}
    by_x = ((1 - y) * (v[0, 1] - v[0, 0]) + y * (v[1, 1] - v[1, 0])) * dy
    by_y = ((1 - x) * (v[1, 0] - v[0, 0]) + x * (v[1, 1] - v[0, 1])) * dy
    for end in (0, 1):
        rois[2 * end] = np.sum(by_x * xs.slopes[end][i])
        rois[2 * end + 1] = np.sum(by_y * ys.slopes[end][j])


def _roi_align_gradient(c: Call) -> tuple[Array | None, Array | None]:
    dy = channels_last(c.input_gradient)
    shape = (c.input if c.output_gradient is None else c.output_gradient).shape
    images = None if c.input is None else channels_last(c.input)
    batches = _batches(c, shape[0])
    rois = c.roi.reshape(-1, 4)
    spread = None if c.output_gradient is None else np.zeros((shape[0], *shape[2:], shape[1]))
    by_roi = None if c.output_roi_gradient is None else np.zeros(rois.shape)
    for k, roi in enumerate(rois):
        ys, xs = samples_of(c, roi, shape[2:], dy.shape[1:3])
        b = batches[k]
        if not len(ys.low) or not len(xs.low):
            continue
        gradient = _max_gradient if c.reduction_function is ReduceFunction.MAX else _average_gradient
        gradient(
            dy[k],
            ys,
            xs,
            images if images is None else images[b],
            spread if spread is None else spread[b],
            by_roi if by_roi is None else by_roi[k],
        )
    return (
        None if spread is None else np.moveaxis(spread, -1, 1),
        None if by_roi is None else by_roi.reshape(c.roi.shape),
    )


def _channels(c: Call) -> tuple[int, int]:
    """Those of the incoming gradient, and those it should have."""
    return c.input_gradient.shape[1], (c.input if c.input is not None else c.output_gradient).shape[1]


_GRADIENT_RULES = (
    *_RULES,
    holds(
        "at least one of OutputGradientTensor and OutputROIGradientTensor",
        lambda c: c.output_gradient is not None or c.output_roi_gradient is not None,
    ),
    holds(
        "InputTensor where OutputROIGradientTensor is wanted or ReductionFunction is MAX",
        lambda c: (
            c.input is not None
            or (c.output_roi_gradient is None and c.reduction_function is not ReduceFunction.MAX)
        ),
    ),
    holds(
        "InputGradientTensor of as many regions as ROITensor",
        lambda c: c.input_gradient.shape[0] == c.roi.shape[-2],
        lambda c: f"{c.input_gradient.shape} beside {c.roi.shape}",
    ),
    holds(
        "InputGradientTensor of as many channels as the images",
        lambda c: _channels(c)[0] == _channels(c)[1],
        lambda c: f"{_channels(c)[0]} where they have {_channels(c)[1]}",
    ),
)

ROI_ALIGN_GRAD = of_tensors(
    name="ROI_ALIGN_GRAD",
    doc="OutputGradient is the gradient of ROI_ALIGN1's input, OutputROIGradient that of its ROIs; "
    "InputGradient is that of its output.",
    text="output_gradient = sum of input_gradient[r, c, y, x] * d output[r, c, y, x] / d input; "
    "output_roi_gradient = sum of input_gradient[r, c, y, x] * d output[r, c, y, x] / d roi",
    operands=(
        inp("InputTensor", dtype="T", sizes="S", optional=FL_4_1),
        inp("InputGradientTensor", dtype="T"),
        *_REGIONS,
        out("OutputGradientTensor", dtype="T", sizes="S", optional=FL_4_1),
        out("OutputROIGradientTensor", dtype="T", optional=FL_4_1),
        _REDUCTION,
        *_SCALES,
        *_OFFSETS,
        *_COUNTS,
        _ALIGN,
    ),
    levels={
        FL_4_1: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, I=UINT32, rules=_GRADIENT_RULES, ranks=_RANKS),
    },
    asks=(
        Asked(
            "output_sizes",
            "Sequence[int] | None",
            "OutputGradient's sizes: those of the images. None: input's",
            lambda c: None if c.output_gradient is None else c.output_gradient.shape,
            None,
        ),
    ),
    sizes=lambda c: (c.output_sizes, None if c.input is None else c.roi.shape),
    shapes=_REGION_SHAPES
    | {
        "input": "N C H W",
        "input_gradient": "R C Y X",
        "output_gradient": "N C H W",
        "output_roi_gradient": said("as roi"),
    },
    compute=_roi_align_gradient,
    example=example(
        _EXAMPLE_INPUT,
        [[[[1, 2]]], [[[4, 8]]]],
        _EXAMPLE_ROIS,
        [0, 0],
        (
            [[[[0.5, 1, 0, 0], [0.5, 2.5, 1.5, 3], [0, 1.5, 1.5, 3], [0, 0, 0, 0]]]],
            [[0, 6, 0, 6], [5, 24, 7, 24]],
        ),
        input_pixel_offset=0.5,
        output_pixel_offset=-0.5,
        align_regions_to_corners=False,
        **_EXAMPLE,
        types={"I": UINT32},
    ),
    notes=_NOTES.format(beyond="one farther out has no part in the gradients.", corners=_CORNERS)
    + " A maximum's gradient goes to the first sample that has it. The gradient of a ROI is that of the "
    "samples' places: 0 at elements (where it jumps), beyond the edges, and between nearest neighbors.",
)
