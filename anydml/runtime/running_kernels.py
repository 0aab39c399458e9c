"""Running sums and products by kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from anydml.codegen.descriptor import DescriptorTemplate, template_of
from anydml.codegen.kernel import shared_out
from anydml.codegen.row_writer import body_address
from anydml.codegen.running import NAMES, RunningSpec, RunningWriter
from anydml.errors import require
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT16, FLOAT32, SIZE
from anydml.ops.enums import AxisDirection
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, packed
from anydml.runtime.threads import pool

RUNNING = {"CUMULATIVE_SUMMATION": "HasExclusiveSum", "CUMULATIVE_PRODUCT": "HasExclusiveProduct"}


def running_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of a running sum or product; None where its definition is as good."""
    given, axis = tensors["InputTensor"], attributes["Axis"]
    spec = RunningSpec(
        FLOAT32 if given.data_type is FLOAT16 else given.data_type,
        product=operator.name == "CUMULATIVE_PRODUCT",
        exclusive=bool(attributes[RUNNING[operator.name]]),
        beside=prod(given.sizes[axis + 1 :]) > 1,
    )
    backwards = attributes["AxisDirection"] is AxisDirection.DECREASING
    launch = _RunningLaunch(spec, axis, backwards, threads)

    def compute(c: Call) -> Array:
        result = empty(c.output, c.input.dtype)
        launch.alone([packed(c.input, threads), result])
        return result

    return compute


class _RunningLaunch(RepeatedLaunch):
    """Along an axis of packed arrays: the input and the output."""

    def __init__(self, spec: RunningSpec, axis: int, backwards: bool, threads: int | None) -> None:
        self._spec, self._axis, self._backwards = spec, axis, backwards
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, (x, y) = self._spec, arrays
        width, length = SIZE[spec.dtype], x.shape[self._axis]
        before, behind = prod(x.shape[: self._axis]), prod(x.shape[self._axis + 1 :])
        require(
            x.shape == y.shape,
            all(a.flags.c_contiguous for a in arrays),
            x.itemsize == y.itemsize == width,
            length > 0,
        )
        along, whole = behind * width, length * behind * width
        values = {"length": length, "along": along, "first": 0}
        if self._backwards:
            values |= {"along": -along, "first": whole - along}
        inner, step, outer = (behind, width, [(before, [whole, whole, 0, 0, 0])])
        if not spec.beside:
            require(behind == 1)
            inner, step, outer = before, whole, []
        descriptor = shared_out(
            body_address(RunningWriter, spec),
            inner,
            outer,
            [values.get(n, 0) for n in NAMES],
            [step, step, 0, 0, 0],
            row=length,
            cost=4 * width,
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))
