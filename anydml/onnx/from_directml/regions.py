"""Regions of interest as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.onnx.arrays import from_array
from anydml.onnx.from_directml.indexing import bounded
from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.enums import InterpolationMode, ReduceFunction

_UNBOUNDED = 65536
"""From so many samples on, a bound on them is none."""


def roi_pooling(c: Call, o: OnnxNodes) -> Any:
    """Corners are rounded before: ONNX does not say how, and onnxruntime takes halves away from zero."""
    rois = o.reshape("roi", [-1, 5])
    bounds = (o.constant(n, c.roi.dtype) for n in (0, c.input.shape[0] - 1))
    batch = o("Floor", o("Clip", o.slice(rois, 1, 0, 1), *bounds))
    corners = o("Round", o("Mul", o.slice(rois, 1, 1, 5), o.constant(c.spatial_scale, c.roi.dtype)))
    return o("MaxRoiPool", "input", o("Concat", batch, corners, axis=1), pooled_shape=list(c.pooled_size))


def roi_align(c: Call, o: OnnxNodes) -> Any:
    """RoiAlign, where it takes the same samples; else a grid of them, if it is known how many there are.

    RoiAlign has means of interpolated samples; its maxima are of weighted elements, not of samples.
    """
    least, most = max(c.minimum_samples_per_output, 1), c.maximum_samples_per_output
    if not _is_usual(c):
        return _of_grid(c, o, most) if least == most else None
    if least == most:
        return _of_roi_align(c, o, most)
    return _of_roi_align(c, o, 0) if least == 1 and most >= _UNBOUNDED else None


def _is_usual(c: Call) -> bool:
    return (
        c.reduction_function is ReduceFunction.AVERAGE
        and c.interpolation_mode is InterpolationMode.LINEAR
        and getattr(c, "output_pixel_offset", -0.5) == -0.5
        and not getattr(c, "align_regions_to_corners", False)
    )


def _batches(c: Call, o: OnnxNodes) -> str:
    return o.reshape(bounded(o, "batch_indices", c.batch_indices, c.input.shape[0]), [-1])


# ---- RoiAlign ----------------------------------------------------------------------------------------------


def _of_roi_align(c: Call, o: OnnxNodes, samples: int) -> Any:
    """`samples`: of each output along each axis; 0: as many as it has elements."""
    rois = _placed(c, o)
    made = _aligned(c, o, "input", rois, _batches(c, o), samples)
    return made if c.out_of_bounds_input_value == 0 else _with_outside(c, o, made, rois, samples)


def _placed(c: Call, o: OnnxNodes) -> str:
    """Regions scaled; and moved, where half an element is not what is taken off them."""
    scales = [c.spatial_scale_x, c.spatial_scale_y] * 2
    rois = o("Mul", o.reshape("roi", [-1, 4]), o.constant(scales, c.roi.dtype))
    offset = 0.5 - getattr(c, "input_pixel_offset", 0.5)
    return str(rois if offset == 0 else o("Add", rois, o.constant(offset, c.roi.dtype)))


def _aligned(c: Call, o: OnnxNodes, images: str, rois: str, batches: str, samples: int) -> Any:
    return o(
        "RoiAlign",
        images,
        rois,
        batches,
        mode="avg",
        coordinate_transformation_mode="half_pixel",
        output_height=c.output.shape[2],
        output_width=c.output.shape[3],
        sampling_ratio=samples,
    )


def _with_outside(c: Call, o: OnnxNodes, made: str, rois: str, samples: int) -> Any:
    """Of an image of ones, it makes the part of the samples that are within it."""
    one = from_array(np.ones(1, c.input.dtype))
    ones = o("ConstantOfShape", o.integers([1, 1, *c.input.shape[2:]]), value=one)
    batches = o.zeros([c.roi.shape[-2]], np.int64)
    inside = _aligned(c, o, ones, rois, batches, samples)
    outside = o("Sub", o.constant(1, c.input.dtype), inside)
    return o("Add", made, o("Mul", outside, o.constant(c.out_of_bounds_input_value, c.input.dtype)))


# ---- a grid of samples -------------------------------------------------------------------------------------


def _of_grid(c: Call, o: OnnxNodes, samples: int) -> Any:
    """Samples of each region's image, then their means or maxima."""
    (height, width), size = c.output.shape[2:], c.roi.shape[-2]
    y, y_inside = _along(c, o, samples, 1, c.spatial_scale_y, c.input.shape[2], height)
    x, x_inside = _along(c, o, samples, 0, c.spatial_scale_x, c.input.shape[3], width)
    sizes = [size, height * samples, width * samples, 1]
    rows = o.reshape(y, [size, -1, 1, 1]), o.reshape(y_inside, [size, 1, -1, 1])
    columns = o.reshape(x, [size, 1, -1, 1]), o.reshape(x_inside, [size, 1, 1, -1])
    grid = o("Concat", *(o("Expand", place, o.integers(sizes)) for place in (columns[0], rows[0])), axis=3)
    images = o("Gather", "input", _batches(c, o), axis=0)
    found = o("GridSample", images, grid, mode="linear", padding_mode="border", align_corners=1)
    outside = o.constant(c.out_of_bounds_input_value, c.input.dtype)
    found = o("Where", o("And", rows[1], columns[1]), found, outside)
    pool = "MaxPool" if c.reduction_function is ReduceFunction.MAX else "AveragePool"
    return o(pool, found, kernel_shape=[samples] * 2, strides=[samples] * 2)


def _along(
    c: Call, o: OnnxNodes, samples: int, corner: int, scale: float, size: int, outputs: int
) -> tuple[str, str]:
    """Where samples are along an axis, {regions, samples}, from -1 to 1; and which are within the image."""
    dtype, rois = c.roi.dtype, o.reshape("roi", [-1, 4])
    first, last = (
        o("Mul", o.slice(rois, 1, k, k + 1), o.constant(scale, dtype)) for k in (corner, corner + 2)
    )
    count = samples * outputs
    steps = count - bool(getattr(c, "align_regions_to_corners", False))
    along = np.full(1, 0.5) if steps == 0 else (np.arange(count) - _output_offset(c)) / steps
    moved = o("Mul", o("Sub", last, first), o.constant(along, dtype))
    place = o("Sub", o("Add", moved, first), o.constant(getattr(c, "input_pixel_offset", 0.5), dtype))
    bounds = (o.constant(n, dtype) for n in (-1, size))
    inside = o("And", o("Greater", place, next(bounds)), o("Less", place, next(bounds)))
    place = o("Clip", place, *(o.constant(n, dtype) for n in (0, size - 1)))
    if c.interpolation_mode is InterpolationMode.NEAREST_NEIGHBOR:  # of a half, the lower one
        place = o("Ceil", o("Sub", place, o.constant(0.5, dtype)))
    half = o.constant(max(size - 1, 1) / 2, dtype)
    return o("Sub", o("Div", place, half), o.constant(1, dtype)), inside


def _output_offset(c: Call) -> float:
    return float(getattr(c, "output_pixel_offset", -0.5))
