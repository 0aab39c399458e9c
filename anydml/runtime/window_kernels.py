"""Pooling as kernels: what the definitions mean, but that averages are of float32 sums where these suffice.

Windows that are whole planes are reductions. Those of which a row does not fit near by stay with the
definitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.descriptor import DescriptorTemplate, template_of
from anydml.codegen.kernel import shared_out
from anydml.codegen.row_writer import body_address
from anydml.codegen.windows import WindowSpec, WindowWriter, words_of
from anydml.errors import require
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, IN_ARRAYS, NUMPY, SIZE
from anydml.ops.enums import ReduceFunction, TensorDataType
from anydml.ops.expr import Expr, absolute, add, convert, div, maximum, mul, read, sqrt
from anydml.ops.opdef import Operator
from anydml.ops.pooling_windows import Window, are_whole_planes, divisors, lowest, windows_of
from anydml.ops.reduction import REDUCE
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, packed, scratch
from anydml.runtime.row_kernels import row_kernel
from anydml.runtime.threads import pool

MAX_TAPS = 16
"""Of a window along an axis: code is written for each along the last one."""
MAX_WIDE = 1 << 14
"""Elements up to which averages are of float64 sums, which are never too large: nobody has to look."""
MIN_BLOCK = 8
"""Outputs that one row near by must serve."""
MAX_PLANE = 1 << 31
"""Elements of a plane of windows of which places are wanted."""
POOLING = {
    "AVERAGE_POOLING": "AVERAGE",
    "AVERAGE_POOLING1": "AVERAGE",
    "LP_POOLING": "LP",
    "LP_POOLING1": "LP",
    "MAX_POOLING": "MAX",
    "MAX_POOLING1": "MAX",
    "MAX_POOLING2": "MAX",
}


def window_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of a pooling by a kernel; None where its definition is as good."""
    word, given = POOLING[operator.name], tensors["InputTensor"]
    if are_whole_planes(attributes, given.sizes):
        reduction = _of_planes(word, tensors, attributes, threads)
        if reduction is not None:
            return reduction
    window = attributes["WindowSize"]
    if max(window) > MAX_TAPS:
        return None
    places = tensors.get("OutputIndicesTensor")
    if places is not None and prod(given.sizes[2:]) >= MAX_PLANE:
        return None
    dtype = FLOAT32 if given.data_type is FLOAT16 else given.data_type
    if (word != "MAX" and dtype is not FLOAT32) or (word == "LP" and attributes["P"] > 2):
        return None
    dilations = attributes.get("Dilations") or [1] * len(window)
    exact = word == "AVERAGE" and prod(given.sizes) <= MAX_WIDE
    spec = window_spec(word, dtype, attributes.get("P", 0), window, attributes["Strides"], dilations, exact)
    spec = replace(spec, index=None if places is None else places.data_type)
    return _Pooling(spec, threads) if spec.block >= MIN_BLOCK else None


_OF_PLANES = {
    ("AVERAGE", 0): ReduceFunction.AVERAGE,
    ("LP", 1): ReduceFunction.L1,
    ("LP", 2): ReduceFunction.L2,
    ("MAX", 0): ReduceFunction.MAX,
}


def _of_planes(
    word: str, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """Each plane is a row. Of those whose last axis is not packed NumPy is as good."""
    function = _OF_PLANES.get((word, attributes.get("P", 0)))
    if function is None or "OutputIndicesTensor" in tensors:
        return None
    axes = range(2, len(tensors["InputTensor"].sizes))
    reduction = row_kernel(REDUCE, tensors, {"Function": function, "Axes": axes}, threads)
    if reduction is None:
        return None

    def compute(c: Call) -> Any:
        if c.input.strides[-1] != c.input.itemsize:
            return c.by_definition()
        return (reduction(c), None) if len(c.operator.outputs) > 1 else reduction(c)

    return compute


def window_spec(
    word: str,
    dtype: TensorDataType,
    p: int,
    window: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    exact: bool = False,
) -> WindowSpec:
    """Of sums of squares, float64 has all that are in between; `exact`: so it is to be with all sums."""
    wide = FLOAT64 if exact or word == "LP" else dtype
    x, so_far, other = convert(read(0, dtype), wide), read(0, wide), read(1, wide)
    after: Expr = so_far
    if word == "LP":
        x, after = (absolute(x), so_far) if p == 1 else (mul(x, x), sqrt(so_far))
    if word == "AVERAGE":
        after = div(so_far, convert(read(1, FLOAT32), wide))
    return WindowSpec(
        source=dtype,
        wide=wide,
        before=x,
        combined=(maximum if word == "MAX" else add)(so_far, other),
        after=convert(after, dtype),
        nothing=lowest(NUMPY[dtype]) if word == "MAX" else 0,
        divided=word == "AVERAGE",
        axes=len(window),
        size=window[-1],
        stride=strides[-1],
        dilation=dilations[-1],
    )


class WindowLaunch(RepeatedLaunch):
    """A kernel over windows. Arrays: the input, the output, and for averages divisors and marks of rows, or
    the places of maxima."""

    def __init__(self, spec: WindowSpec, windows: Sequence[Window], threads: int | None) -> None:
        self._spec, self._windows = spec, windows
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, windows = self._spec, self._windows
        x, y, *others = arrays
        first = x.ndim - spec.axes
        require(
            x.shape == (*x.shape[:first], *(w.length for w in windows)),
            y.shape == (*x.shape[:first], *(w.places for w in windows)),
            x.itemsize == SIZE[spec.source],
            x.strides[-1] == x.itemsize or x.shape[-1] == 1,  # the stride of one element is any
            y.itemsize == SIZE[spec.after.dtype],
        )
        if spec.index:
            require(
                x.flags.c_contiguous,
                [(z.shape, z.itemsize) for z in others] == [(y.shape, SIZE[spec.index])],
            )
        else:
            require([z.shape for z in others] == ([y.shape[first:], y.shape[:-1]] if spec.divided else []))
        require(all(z.flags.c_contiguous for z in (y, *others)))
        *rows, last = windows
        names, rank = words_of(spec), y.ndim - 1
        values = {"length": last.length, "places": last.places, "padding": last.start}
        steps = {"source": [*x.strides[:first], *[0] * len(rows)], "target": y.strides[:-1]}
        if spec.divided:
            steps |= {"divisors": [*[0] * first, *others[0].strides[:-1]], "marks": others[1].strides}
        if spec.index:
            steps |= {"indices": others[0].strides[:-1]}
            steps |= {"origin": [*(s // x.itemsize for s in x.strides[:first]), *[0] * len(rows)]}
        for a, w in enumerate(rows):
            values |= {f"first{a}": -w.start, f"length{a}": w.length, f"size{a}": w.size}
            values |= {f"pitch{a}": x.strides[first + a], f"dilation{a}": w.dilation}
            steps[f"first{a}"] = [w.stride if d == first + a else 0 for d in range(rank)]
        along = [[steps[n][d] if n in steps else 0 for n in names] for d in range(rank)]
        descriptor = shared_out(
            body_address(WindowWriter, spec),
            y.shape[-2],
            list(zip(y.shape[:-2], along, strict=False)),
            [values.get(n, 0) for n in names],
            along[-1],
            row=last.places,
            cost=SIZE[spec.source] * last.stride * prod(w.size for w in rows) + SIZE[spec.wide] * last.size,
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))


class _Pooling:
    def __init__(self, spec: WindowSpec, threads: int | None) -> None:
        self._spec, self._threads = spec, threads
        self._divisors: Array | None = None
        self._launch: WindowLaunch | None = None

    def __call__(self, c: Call) -> Any:
        x = c.input
        if x.strides[-1] != x.itemsize or self._spec.index:
            x = packed(x, self._threads)
        if self._launch is None:  # every call has the same sizes
            windows = windows_of(c, x.shape)
            if self._spec.divided:
                places = [w.places for w in windows]
                self._divisors = np.ascontiguousarray(np.broadcast_to(divisors(c, windows), places))
            self._launch = WindowLaunch(self._spec, windows, self._threads)
            self._launch.tables = [] if self._divisors is None else [self._divisors]
        result = empty(c.output, x.dtype)
        if self._spec.index:
            found = empty(c.output_indices, IN_ARRAYS[self._spec.index])
            self._launch.alone([x, result, found])
            return result, found
        if self._divisors is None:
            self._launch.alone([x, result])
        else:
            marks = scratch(result.shape[:-1], np.dtype(np.uint8))
            exact = self._spec.wide is FLOAT64
            run = self._launch.alone if exact else self._launch
            run([x, result, self._divisors, marks])
            # sums may be too large for float32 where averages are not (`any` takes six times as long)
            if not exact and 1 in marks.tobytes():
                result = c.by_definition()
        return (result, None) if len(c.operator.outputs) > 1 else result
