"""A DirectML graph in NumPy, node by node, as the records say: what kernels are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from anydml.ir.graph import Graph, Node, Value
from anydml.runtime.plan import tensor
from anydml.spec.enums import TensorDataType
from anydml.spec.scalar import evaluate
from anydml.spec.schema import Operator

Array = NDArray[Any]


def run_reference(graph: Graph, buffers: Mapping[str, Array]) -> None:
    """Compute a checked graph from the buffers of its inputs into those of its outputs, by name.

    Each buffer is flat memory of its tensor's type, read and written through the tensor's layout.
    """
    values: dict[Value, Array] = {v: _view(v, buffers) for v in graph.inputs}
    for node in graph.nodes:
        assert isinstance(node, Node)
        assert isinstance(node.op, Operator)
        inputs = [values[v] for v in node.inputs if v is not None]
        types = tuple(TensorDataType[str(a.dtype).upper()] for a in inputs)
        for value in node.writes:
            _, kind = tensor(value)
            result = TensorDataType[kind.dtype.upper()]
            values[value] = evaluate(node.op.expression(types, result, node.attributes), inputs)
    for value in graph.outputs:
        _view(value, buffers)[...] = values[value]


def _view(value: Value, buffers: Mapping[str, Array]) -> Array:
    name, type = tensor(value)
    flat = buffers[name].reshape(-1)
    assert type.known_sizes is not None
    assert type.strides is not None
    return as_strided(flat, type.known_sizes, [s * flat.itemsize for s in type.strides])


def empty_buffer(value: Value) -> Array:
    """Zeros that reach as far as a value's layout does."""
    _, type = tensor(value)
    assert type.known_sizes is not None
    assert type.strides is not None
    last = sum((n - 1) * s for n, s in zip(type.known_sizes, type.strides, strict=True))
    return np.zeros(last + 1, type.dtype)
