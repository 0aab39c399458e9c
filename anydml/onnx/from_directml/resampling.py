"""Images at other sizes as ONNX nodes: Resize where it says the same, else what each axis does to it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOAT32, FLOAT64, FROM_NUMPY
from anydml.ops.enums import AxisDirection, InterpolationMode

_CENTERS, _CORNERS = (0.5, -0.5), (0.0, 0.0)
_TRANSFORMATIONS = {_CENTERS: "half_pixel", _CORNERS: "asymmetric"}
_ROUNDINGS = {None: "round_prefer_ceil", AxisDirection.INCREASING: "ceil", AxisDirection.DECREASING: "floor"}

Places = list[tuple[float, float]]
"""Of each axis, the input's and the output's offset."""


def resample(c: Call, o: OnnxNodes) -> Any:
    rank = c.input.ndim
    begins = getattr(c, "input_pixel_offsets", (0.5,) * rank)
    ends = getattr(c, "output_pixel_offsets", (-0.5,) * rank)
    places = list(zip(begins, ends, strict=True))
    found = _resized(c, o, c.scales, places)
    return _by_axes(c, o, "input", c.input, c.output.shape) if found is None else found


def upsample_2d(c: Call, o: OnnxNodes) -> Any:
    """Nearest elements, or bilinear; between centers. Resize has all of it."""
    scales = [*(1,) * (c.input.ndim - 2), *c.scale_size]
    return _resized(c, o, scales, [_CENTERS] * c.input.ndim)


def resample_grad(c: Call, o: OnnxNodes) -> Any:
    """ONNX has no such gradients; along each axis, one is a product with a matrix."""
    return _by_axes(c, o, "input_gradient", c.input_gradient, c.output_gradient.shape)


# ---- Resize ------------------------------------------------------------------------------------------------


def _resized(c: Call, o: OnnxNodes, scales: Sequence[float], places: Places) -> Any:
    """Resize, if it makes the same sizes of the scales, and has elements at the same places on all axes."""
    sizes = zip(c.input.shape, c.output.shape, scales, strict=True)
    if any(int(np.float32(n) * np.float32(s)) != m for n, m, s in sizes):
        return None
    changed = [k for k, s in enumerate(scales) if s != 1 or sum(places[k]) != 0]
    kinds = {places[k] for k in changed} or {_CENTERS}
    if len(kinds) > 1 or not kinds <= _TRANSFORMATIONS.keys():
        return None
    linear = c.interpolation_mode is InterpolationMode.LINEAR
    if linear and not _bilinear(c, changed, scales):
        return None
    rounding = None if linear else _ROUNDINGS[getattr(c, "rounding_direction", None)]
    return o(
        "Resize",
        "input",
        None,
        o.constant(scales, np.float32),
        mode="linear" if linear else "nearest",
        coordinate_transformation_mode=_TRANSFORMATIONS[kinds.pop()],
        nearest_mode=rounding,
    )


def _bilinear(c: Call, changed: Sequence[int], scales: Sequence[float]) -> bool:
    """What onnxruntime interpolates: floats, along the last two dimensions of four, or three of five.

    Integers it rounds otherwise; and DirectML's wider filter is not its own.
    """
    filtered = getattr(c, "antialiased", False) and any(scales[k] < 0.5 for k in changed)
    return (
        c.input.ndim in (4, 5)
        and 0 not in changed
        and 1 not in changed
        and not filtered
        and (c.input.dtype.kind == "f")
    )


# ---- axis by axis ------------------------------------------------------------------------------------------


def _by_axes(c: Call, o: OnnxNodes, name: str, given: Array, sizes: tuple[int, ...]) -> Any:
    """Elements are taken where one makes one; else each axis is multiplied by its matrix.

    Integers are summed up in float64, rounded to float32, and truncated, as by the definition.
    """
    matrices = [_matrix(c, k, given.shape[k], n) for k, n in enumerate(sizes)]
    whole = given.dtype.kind != "f" and not all(map(_moves, matrices))
    dtype = np.dtype(np.float64) if whole else given.dtype
    x, now = o.cast(name, FLOAT64) if whole else name, list(given.shape)
    for k, matrix in enumerate(matrices):
        if _changes_nothing(matrix):
            continue
        if _moves(matrix):
            x = o.take(x, matrix.argmax(0), k)
        else:
            x = o("MatMul", o.constant(matrix.T, dtype), o.reshape(x, [-1, now[k], prod(now[k + 1 :])]))
        now[k] = sizes[k]
        x = x if _moves(matrix) else o.reshape(x, now)
    if whole:  # truncated by hand: of two Casts in a row, onnxruntime drops the first
        x = o.cast(x, FLOAT32)
        return o.cast(o("Mul", o("Sign", x), o("Floor", o("Abs", x))), FROM_NUMPY[given.dtype])
    return o("Identity", x) if x == name else x


def _changes_nothing(matrix: Array) -> bool:
    return np.array_equal(matrix, np.eye(len(matrix)))


def _moves(matrix: Array) -> bool:
    """Whether each output is one of the elements."""
    return bool(((matrix == 0) | (matrix == 1)).all() and (matrix.sum(0) == 1).all())


_BY_AXIS = "scales", "input_pixel_offsets", "output_pixel_offsets"
_IDENTITY = 1.0, 0.5, -0.5


def _matrix(c: Call, k: int, size: int, made: int) -> Array:
    """What an axis does to the elements along it, {before, after}: to the unit matrix, by the definition."""
    values = {a.parameter: getattr(c, a.parameter) for a in c.operator.attributes}
    for name, same in zip(_BY_AXIS, _IDENTITY, strict=True):
        if name in values:
            values[name] = (same, values[name][k])
    (source,), (target,) = c.operator.inputs, c.operator.outputs
    values[source.parameter] = np.eye(size)
    values[target.parameter] = np.broadcast_to(np.zeros(()), (size, made))
    assert c.operator.compute is not None
    return np.asarray(c.operator.compute(Call(c.operator, values, {})))
