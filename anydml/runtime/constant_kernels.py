"""Operators without inputs, by a kernel: copies of what one gave the first time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from anydml.ops.attributes import as_type
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT16, FROM_NUMPY, IN_ARRAYS
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, copying

CONSTANTS = ("FILL_VALUE_CONSTANT", "FILL_VALUE_SEQUENCE", "DIAGONAL_MATRIX", "DIAGONAL_MATRIX1")
MAX_BYTES = 1 << 16
"""Of a result that is kept."""


def constant_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of an operator without tensors; None where its definition is as good."""
    output = tensors["OutputTensor"]
    dtype, fills = IN_ARRAYS[output.data_type], operator.name == "FILL_VALUE_CONSTANT"
    rounded = output.data_type is FLOAT16 and not operator.moves  # what is around a kernel would round again
    if len(tensors) > 1 or rounded or (prod(output.sizes) * dtype.itemsize > MAX_BYTES and not fills):
        return None
    bits = np.dtype(f"u{dtype.itemsize}")
    launch = copying(FROM_NUMPY[bits], threads)
    if fills:  # one element, however many there are
        launch.tables = [np.array([as_type(attributes["Value"], output.data_type)], dtype).view(bits)]

    def compute(c: Call) -> Array:
        if not launch.tables:
            made: Array = c.by_definition()
            launch.tables = [made.astype(dtype).view(bits)]
        result = empty(c.output, dtype)
        launch.alone([launch.tables[0], result.view(bits)])
        return result

    return compute
