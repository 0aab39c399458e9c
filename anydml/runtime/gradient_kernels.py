"""Steps of training by kernels: gradients of maxima, and Adam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.codegen.scattered import ScatteredSpec
from anydml.ops.call import Call, empty
from anydml.ops.dtypes import FLOAT32, FLOAT64, NUMPY, UINT32
from anydml.ops.expr import Expr, add, div, mul, read, sqrt, sub
from anydml.ops.opdef import Operator
from anydml.ops.pooling_windows import windows_of
from anydml.ops.tensor_desc import TensorDesc
from anydml.ops.training import rate_of
from anydml.runtime.launch import Array, RepeatedLaunch, packed, scratch
from anydml.runtime.taken_launch import ScatteredLaunch
from anydml.runtime.window_kernels import MAX_TAPS, MIN_BLOCK, WindowLaunch, maxima

Implementation = Callable[[Call], Any]


def gradient_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of the operator by kernels; None where its definition is as good."""
    if operator.name == "ADAM_OPTIMIZER":
        return _adam(attributes, threads)
    return _max_gradient(tensors, attributes, threads) if operator.name == "MAX_POOLING_GRAD" else None


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
        rate = np.broadcast_to(np.float32(rate_of(c)), c.gradient.shape)
        launch.alone([*given, rate, *results])
        return results[0], results[1], results[2]

    return compute


def _max_gradient(
    tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """Where the maxima are, and their gradients added up there: in FLOAT64 where there may be several."""
    window, strides = attributes["WindowSize"], attributes["Strides"]
    dilations = attributes.get("Dilations") or [1] * len(window)
    if max(window) > MAX_TAPS or prod(tensors["InputTensor"].sizes) >= 1 << 31:
        return None
    spec = replace(maxima(FLOAT32, window, strides, dilations), index=UINT32)
    if spec.block < MIN_BLOCK:
        return None
    spans = ((n - 1) * d + 1 for n, d in zip(window, dilations, strict=True))
    apart = all(span <= stride for span, stride in zip(spans, strides, strict=True))
    adding = ScatteredLaunch(ScatteredSpec(FLOAT32 if apart else FLOAT64, UINT32, added=True), threads)
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
            np.copyto(made, sums, casting="same_kind")
        return made

    return compute
