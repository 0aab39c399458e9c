"""TOP_K by kernels: few elements of long rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.best import NAMES, BestSpec, BestWriter
from anydml.codegen.descriptor import DescriptorTemplate, template_of
from anydml.codegen.kernel import shared_out
from anydml.codegen.row_writer import body_address
from anydml.errors import require
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT16, FLOAT32, IN_ARRAYS, SIZE
from anydml.ops.enums import AxisDirection
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, copying, packed, scratch
from anydml.runtime.threads import pool

MAX_COUNT = 16
"""Elements that are found: code is written for each, and a better one may move all."""
BEST = ("TOP_K", "TOP_K1")


def best_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of TOP_K by a kernel; None where its definition is as good."""
    given, count, axis = tensors["InputTensor"], attributes["K"], attributes["Axis"]
    dtype = FLOAT32 if given.data_type is FLOAT16 else given.data_type
    if count > MAX_COUNT or SIZE[dtype] > 4:
        return None
    place = tensors["OutputIndexTensor"].data_type
    greatest = attributes.get("AxisDirection") is not AxisDirection.INCREASING
    launch = _BestLaunch(BestSpec(dtype, place, count, greatest), threads)
    copies = copying(dtype, threads), copying(place, threads)

    def compute(c: Call) -> tuple[Array, Array]:
        rows = packed(np.moveaxis(c.input, axis, -1), threads)
        sizes, kind = (*rows.shape[:-1], count), IN_ARRAYS[place]
        if axis == c.input.ndim - 1:
            values, places = empty(c.output_value, rows.dtype), empty(c.output_index, kind)
            launch.alone([rows, values, places])
            return values, places
        parts = scratch(sizes, rows.dtype), scratch(sizes, kind)
        launch.alone([rows, *parts])
        results = empty(c.output_value, rows.dtype), empty(c.output_index, kind)
        for copy, part, result in zip(copies, parts, results, strict=True):
            copy.alone([np.moveaxis(part, -1, axis), result])
        return results

    return compute


class _BestLaunch(RepeatedLaunch):
    """Of rows that are packed, as are the arrays of what is found and where."""

    def __init__(self, spec: BestSpec, threads: int | None) -> None:
        self._spec = spec
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec = self._spec
        rows, values, places = arrays
        require(
            all(a.flags.c_contiguous for a in arrays),
            values.shape == places.shape == (*rows.shape[:-1], spec.count),
            spec.count <= rows.shape[-1] < 1 << 32,
            rows.itemsize == values.itemsize == SIZE[spec.dtype],
            places.itemsize == SIZE[spec.place],
        )
        steps = {"source": rows.shape[-1] * rows.itemsize}
        steps |= {"values": spec.count * values.itemsize, "places": spec.count * places.itemsize}
        descriptor = shared_out(
            body_address(BestWriter, spec),
            prod(rows.shape[:-1]),
            [],
            [rows.shape[-1] if n == "length" else 0 for n in NAMES],
            [steps.get(n, 0) for n in NAMES],
            row=rows.shape[-1],
            cost=2 * SIZE[spec.dtype],
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))
