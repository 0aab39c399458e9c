"""Quantization by a scale that is found first, by a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.ops.block_quantization import scale_and_zero_point
from anydml.ops.call import Array, Call, Implementation, empty
from anydml.ops.dtypes import FLOAT32, IN_ARRAYS
from anydml.ops.expr import add, convert, div, read, rint
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import RepeatedLaunch

QUANTIZING = ("DYNAMIC_QUANTIZE_LINEAR",)


def quantizing_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of an operator by a kernel; None of others."""
    dtype = tensors["OutputTensor"].data_type
    x, scale, zero = (read(k, FLOAT32) for k in range(3))  # FLOAT16 is handed on as FLOAT32
    # a conversion to integers stays in their range, and makes 0 of NaN
    meaning = convert(add(rint(div(x, scale)), zero), dtype)
    launch = RepeatedLaunch(group((FLOAT32,) * 3, (meaning,)), threads)

    def compute(c: Call) -> tuple[Array, Array, Array]:
        scale, zero_point = scale_and_zero_point(c)
        result = empty(c.output, IN_ARRAYS[dtype])
        launch([c.input, scale, zero_point.astype(np.float32), result])
        return result, scale, zero_point

    return compute
