"""Reductions and normalizations on arrays, by kernels: the meaning is that of `ops.row_expressions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT32
from anydml.ops.expr import read, walk
from anydml.ops.opdef import Operator
from anydml.ops.row_expressions import RowExpression, batch_factors, batch_normalized, row_expression
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, packed, scratch


def row_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of the operator by a kernel; None where its definition is as good, or better."""
    found = row_expression(operator, tensors, attributes)
    if found is None:
        return None
    if operator.name == "BATCH_NORMALIZATION":
        return _batch(found, attributes["Epsilon"], threads)
    parameters = {s.name: s.parameter for s in operator.inputs}
    names = [parameters[n] for n in found.operands]
    launch = _launch(found, threads)
    dtype = np.dtype(found.meaning.dtype.label)

    def compute(c: Call) -> Array:
        first, *rest = (getattr(c, n) for n in names)
        result = empty(c.output, dtype)
        launch.alone([packed(first, threads), *rest, result], first.shape)
        return result

    return compute


def _launch(found: RowExpression, threads: int | None) -> RepeatedLaunch:
    types = {e.value: e.dtype for e in walk(found.meaning) if e.opcode == "read"}
    return RepeatedLaunch(group(tuple(types[k] for k in range(len(types))), (found.meaning,)), threads)


def _batch(found: RowExpression, epsilon: float, threads: int | None) -> Implementation:
    """What is the same for all of a row is computed once for it; otherwise first, by a kernel of its own."""
    mean, variance, scale = (read(k, FLOAT32) for k in range(3))
    first = RepeatedLaunch(group((FLOAT32,) * 3, batch_factors(mean, variance, scale, epsilon)), 1)
    given = [read(k, FLOAT32) for k in range(5)]
    second = RepeatedLaunch(group((FLOAT32,) * 5, (batch_normalized(*given),)), threads)
    whole = _launch(found, threads)

    def compute(c: Call) -> Array:
        given = [c.mean, c.variance, c.scale]
        result = empty(c.output, c.input.dtype)
        if all(x.shape[-1] == 1 or x.strides[-1] == 0 for x in given):
            whole.alone([c.input, *given, c.bias, result])
            return result
        sizes = np.broadcast_shapes(*(x.shape for x in given))
        parts = [scratch(sizes, np.dtype(np.float32)) for _ in given]
        first.alone([*given, *parts])
        second.alone([c.input, *parts, c.bias, result])
        return result

    return compute
