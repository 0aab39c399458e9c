"""Pooling as kernels, axis by axis: the taps of a window are operands, the input seen from other starts.

    y[i] = max(x[2i], x[2i + 1], x[2i + 2])        three views of x along an axis, with steps of 2

What a window reaches beyond the input stands around it in a copy. Long windows, and small outputs, stay with
the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.group import KernelSpec
from anydml.codegen.kernel import group
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOATING, NUMPY
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, absolute, add, maximum, mul, read, sqrt
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch

MAX_TAPS = 16
"""Of a window along an axis: a kernel has so many operands, and a few more."""
MIN_ELEMENTS = 1 << 14
"""Of the output."""
POOLING = {
    "AVERAGE_POOLING": "AVERAGE",
    "AVERAGE_POOLING1": "AVERAGE",
    "LP_POOLING": "LP",
    "LP_POOLING1": "LP",
    "MAX_POOLING": "MAX",
    "MAX_POOLING1": "MAX",
    "MAX_POOLING2": "MAX",
}

Implementation = Callable[[Call], Any]


def window_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of a pooling by kernels; None where its definition is as good."""
    word, given = POOLING.get(operator.name), tensors.get("InputTensor")
    if word is None or given is None:
        return None
    window, sizes = attributes["WindowSize"], tensors["OutputTensor"].sizes
    if prod(sizes) < MIN_ELEMENTS or max(window) > MAX_TAPS or "OutputIndicesTensor" in tensors:
        return None
    dtype = FLOAT32 if given.data_type is FLOAT16 else given.data_type
    padded = any(attributes["StartPadding"]) or any(attributes["EndPadding"])
    if word == "AVERAGE" and padded and not attributes["IncludePadding"]:
        return None  # windows at the edges have fewer elements
    if (word != "MAX" and dtype is not FLOAT32) or (word == "LP" and attributes["P"] > 2):
        return None
    return _axis_by_axis(
        _meanings(word, window, attributes, dtype), attributes, sizes, _edge(word, dtype), threads
    )


def _edge(word: str, dtype: TensorDataType) -> Any:
    """What stands beyond the input."""
    if word != "MAX":
        return 0
    return -np.inf if dtype in FLOATING else np.iinfo(NUMPY[dtype]).min


def _meanings(
    word: str, window: Sequence[int], attributes: Mapping[str, Any], dtype: TensorDataType
) -> list[KernelSpec]:
    """The kernel of each axis: of all its taps."""
    kernels = []
    for d, count in enumerate(window):
        taps: list[Expr] = [read(k, dtype) for k in range(count)]
        if word == "LP" and d == 0:
            taps = [absolute(t) if attributes["P"] == 1 else mul(t, t) for t in taps]
        total = reduce(maximum if word == "MAX" else add, taps)
        if d == len(window) - 1 and word == "AVERAGE":
            total = mul(total, 1.0 / prod(window))
        elif d == len(window) - 1 and word == "LP" and attributes["P"] == 2:
            total = sqrt(total)
        kernels.append(group((dtype,) * count, (total,)))
    return kernels


def _axis_by_axis(
    kernels: Sequence[KernelSpec],
    attributes: Mapping[str, Any],
    sizes: tuple[int, ...],
    edge: Any,
    threads: int | None,
) -> Implementation:
    strides, window = attributes["Strides"], attributes["WindowSize"]
    dilations = attributes.get("Dilations", (1,) * len(window))
    start = attributes["StartPadding"]
    spans = zip(sizes[2:], strides, window, dilations, strict=True)
    reach = [(n - 1) * s + (w - 1) * d + 1 for n, s, w, d in spans]

    launches = [RepeatedLaunch(kernel, threads) for kernel in kernels]

    def compute(c: Call) -> Any:
        x = _surrounded(c.input, start, reach, edge)
        for axis, launch in enumerate(launches):
            n, stride, dilation = sizes[2 + axis], strides[axis], dilations[axis]
            before = (slice(None),) * (2 + axis)
            firsts = [tap * dilation for tap in range(window[axis])]
            taps = [x[(*before, slice(k, k + (n - 1) * stride + 1, stride))] for k in firsts]
            made = np.empty(taps[0].shape, x.dtype)
            launch([*taps, made])
            x = made
        return (x, None) if len(c.operator.outputs) > 1 else x

    return compute


def _surrounded(x: Array, start: tuple[int, ...], reach: list[int], edge: Any) -> Array:
    """The input with what stands beyond it, as far as windows reach."""
    if not any(start) and all(r <= n for r, n in zip(reach, x.shape[2:], strict=True)):
        return x
    around = np.full((*x.shape[:2], *reach), edge, x.dtype)
    ends = [min(s + n, r) for s, n, r in zip(start, x.shape[2:], reach, strict=True)]
    inside = tuple(slice(s, e) for s, e in zip(start, ends, strict=True))
    part = tuple(slice(0, e - s) for s, e in zip(start, ends, strict=True))
    around[(slice(None), slice(None), *inside)] = x[(slice(None), slice(None), *part)]
    return around
