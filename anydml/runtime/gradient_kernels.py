"""Steps of training by kernels: gradients of maxima and of batch normalizations, and Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.codegen.scattered import ScatteredSpec
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT32, FLOAT64, NUMPY, UINT32
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, add, convert, div, mul, read, sqrt, sub
from anydml.ops.folding import spans
from anydml.ops.opdef import Operator
from anydml.ops.pooling_windows import windows_of
from anydml.ops.reductions import row_sum
from anydml.ops.tensor_desc import TensorDesc
from anydml.ops.training import rate_of
from anydml.runtime.launch import Array, RepeatedLaunch, packed, scratch
from anydml.runtime.taken_launch import ScatteredLaunch
from anydml.runtime.window_kernels import MAX_TAPS, MIN_BLOCK, WindowLaunch, window_spec

MAX_PLACES = 1 << 31
"""Elements of a tensor of which places are kept."""
MIN_ROW = 16
"""Elements of a channel, beside each other, of which NumPy is no quicker."""


GRADIENTS = (
    *("ADAM_OPTIMIZER", "MAX_POOLING_GRAD"),
    *("BATCH_NORMALIZATION_GRAD", "BATCH_NORMALIZATION_TRAINING_GRAD", "BATCH_NORMALIZATION_TRAINING"),
)


def gradient_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of the operator by kernels; None where its definition is as good."""
    if operator.name == "ADAM_OPTIMIZER":
        return _adam(attributes, threads)
    if operator.name == "MAX_POOLING_GRAD":
        return _max_gradient(tensors, attributes, threads)
    if operator.name == "BATCH_NORMALIZATION_TRAINING":
        return _batch_training(tensors, attributes, threads)
    return _batch_gradient(tensors, attributes, threads, "TRAINING" in operator.name)


def _adam(attributes: Mapping[str, Any], threads: int | None) -> Implementation:
    parameters, first, second, gradient, rate = (read(k, FLOAT32) for k in range(5))

    def mean(old: Expr, new: Expr, share: float) -> Expr:
        return add(mul(old, float(np.float32(share))), mul(new, float(np.float32(1 - share))))

    first = mean(first, gradient, attributes["Beta1"])
    second = mean(second, mul(gradient, gradient), attributes["Beta2"])
    change = mul(div(first, add(sqrt(second), float(np.float32(attributes["Epsilon"])))), rate)
    launch = RepeatedLaunch(group((FLOAT32,) * 5, (sub(parameters, change), first, second)), threads)

    def compute(c: Call) -> tuple[Array, Array, Array]:
        outputs = c.output_parameters, c.output_first_moment, c.output_second_moment
        results = tuple(empty(y, NUMPY[FLOAT32]) for y in outputs)
        given = c.input_parameters, c.input_first_moment, c.input_second_moment, c.gradient
        with np.errstate(all="ignore"):
            rate = np.broadcast_to(np.float32(rate_of(c)), c.gradient.shape)
        launch([*given, rate, *results])
        return results[0], results[1], results[2]

    return compute


def _max_gradient(
    tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """Where the maxima are, and their gradients added up there: in FLOAT64 where there may be several."""
    window, strides = attributes["WindowSize"], attributes["Strides"]
    dilations = attributes.get("Dilations") or [1] * len(window)
    if max(window) > MAX_TAPS or prod(tensors["InputTensor"].sizes) >= MAX_PLACES:
        return None
    spec = replace(window_spec("MAX", FLOAT32, 0, window, strides, dilations), index=UINT32)
    if spec.block < MIN_BLOCK:
        return None
    apart = all(span <= stride for span, stride in zip(spans(window, dilations), strides, strict=True))
    adding = ScatteredLaunch(ScatteredSpec(FLOAT32 if apart else FLOAT64, UINT32, added=True), threads)
    rounding = RepeatedLaunch(group((FLOAT64,), (convert(read(0, FLOAT64), FLOAT32),)), threads)
    finding: WindowLaunch | None = None

    def compute(c: Call) -> Array:
        nonlocal finding
        x, received = packed(c.input, threads), packed(c.input_gradient, threads)
        windows = windows_of(c, x.shape)
        if any((w.counts() == 0).any() for w in windows):  # what is nothing but padding has no maximum
            result: Array = c.by_definition()
            return result
        if finding is None:  # every call has the same sizes
            finding = WindowLaunch(spec, windows, threads)
        best, places = (scratch(received.shape, NUMPY[t]) for t in (FLOAT32, UINT32))
        finding.alone([x, best, places])
        made = empty(c.output_gradient, NUMPY[FLOAT32])
        sums = made if apart else scratch(made.shape, NUMPY[FLOAT64])
        planes, rows = prod(x.shape[:2]), prod(received.shape[2:])
        whole = sums.reshape(planes, -1)
        adding.alone([whole, whole, places.reshape(planes, rows), received.reshape(planes, rows)])
        if not apart:
            rounding.alone([sums, made])
        return made

    return compute


def _batch_gradient(
    tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None, training: bool
) -> Implementation | None:
    """Sums of rows, which are few, by a kernel; then each element. In FLOAT64."""
    view = _channels(tensors["InputTensor"].sizes, tensors["MeanTensor"].sizes)
    if view is None:
        return None
    column, count = (1, view[1], 1), view[0] * view[2]
    x, g = (convert(read(k, FLOAT32), FLOAT64) for k in range(2))
    apart = sub(x, convert(read(2, FLOAT32), FLOAT64))
    summed = row_sum(mul(g, apart), (-1,)), row_sum(g, (-1,))
    sums = RepeatedLaunch(group((FLOAT32,) * 3, summed), threads)
    shift, less, factor = (read(k, FLOAT64) for k in range(3, 6))
    if training:
        types: tuple[TensorDataType, ...] = (FLOAT32,) * 3 + (FLOAT64,) * 3
        result = mul(sub(add(mul(apart, shift), g), less), factor)
    else:
        types, result = (FLOAT32, FLOAT64), mul(x, read(1, FLOAT64))
    each = RepeatedLaunch(group(types, (convert(result, FLOAT32),)), threads)

    def compute(c: Call) -> tuple[Array, Array, Array]:
        given, received = (packed(a, threads).reshape(view) for a in (c.input, c.input_gradient))
        mean = packed(c.mean, threads).reshape(column)
        products, totals = (scratch((*view[:2], 1), NUMPY[FLOAT64]) for _ in range(2))
        sums([given, received, mean, products, totals], view)
        made = empty(c.output_gradient, NUMPY[FLOAT32])
        with np.errstate(all="ignore"):
            inverse = 1 / np.sqrt(c.variance.astype(np.float64) + attributes["Epsilon"])
            of_scale = products.sum(0).reshape(c.mean.shape) * inverse
            of_bias = totals.sum(0).reshape(c.mean.shape)
            factor = (c.scale * inverse).reshape(column)
            by = [(-of_scale * inverse / count).reshape(column), (of_bias / count).reshape(column), factor]
        if training:
            each([given, received, mean, *by, made.reshape(view)])
        else:
            each([received, factor, made.reshape(view)])
        return made, of_scale, of_bias

    return compute


def _channels(sizes: Sequence[int], kept: Sequence[int]) -> tuple[int, int, int] | None:
    """[before, channels, behind] of what has parameters of these sizes; None where kernels are no quicker."""
    axes = [k for k, n in enumerate(kept) if n != 1]
    if len(axes) != 1 or prod(sizes[axes[0] + 1 :]) < MIN_ROW:
        return None
    (axis,) = axes
    return prod(sizes[:axis]), sizes[axis], prod(sizes[axis + 1 :])


def _batch_training(
    tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """The mean, the variance around it, then each element: three passes, in FLOAT64."""
    view = _channels(tensors["InputTensor"].sizes, tensors["ScaleTensor"].sizes)
    if view is None:
        return None
    column, count = (1, view[1], 1), view[0] * view[2]
    x, more = (convert(read(k, FLOAT32), FLOAT64) for k in (0, 4))
    apart = sub(x, read(1, FLOAT64))
    totals = RepeatedLaunch(group((FLOAT32,), (row_sum(x, (-1,)),)), threads)
    squares = RepeatedLaunch(group((FLOAT32, FLOAT64), (row_sum(mul(apart, apart), (-1,)),)), threads)
    result = add(mul(apart, read(2, FLOAT64)), read(3, FLOAT64))
    types: tuple[TensorDataType, ...] = (FLOAT32,) + (FLOAT64,) * 3
    if "FusedAddTensor" in tensors:
        result, types = add(result, more), (*types, FLOAT32)
    each = RepeatedLaunch(group(types, (convert(result, FLOAT32),)), threads)

    def compute(c: Call) -> tuple[Array, Array, Array]:
        given = packed(c.input, threads).reshape(view)
        sums = np.empty((*view[:2], 1))
        made = empty(c.output, NUMPY[FLOAT32])
        totals([given, sums], view)
        with np.errstate(all="ignore"):
            mean = (sums.sum(0) / count).reshape(column)
            squares([given, mean, sums], view)
            variance = (sums.sum(0) / count).reshape(column)
            factor = c.scale.reshape(column) / np.sqrt(variance + attributes["Epsilon"])
            bias = c.bias.reshape(column).astype(np.float64)
        beside = [] if c.fused_add is None else [packed(c.fused_add, threads).reshape(view)]
        each([given, mean, factor, bias, *beside, made.reshape(view)])
        return made, mean.reshape(c.scale.shape), variance.reshape(c.scale.shape)

    return compute
