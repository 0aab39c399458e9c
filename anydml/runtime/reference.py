"""A DirectML graph in NumPy, node by node, as the records say: what kernels are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from anydml.ir.graph import DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.ops.interpret import evaluate
from anydml.ops.opdef import ONE, Operator
from anydml.runtime.tensor_step import reach

Array = NDArray[Any]


def run_reference(graph: DirectMLGraph, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Compute a checked graph from the buffers of its inputs into those of its outputs, in their order.

    Each buffer is flat memory of its tensor's type, read and written through the tensor's layout.
    """
    memory: dict[Value, Array] = {v: x.reshape(-1) for v, x in zip(graph.inputs, inputs, strict=True)}
    results = dict(zip(graph.outputs, outputs, strict=True))
    memory |= {v: c.content.reshape(-1) for v, c in graph.constants.items()}
    for node in graph.nodes:
        assert isinstance(node, DirectMLNode)
        assert isinstance(node.op, Operator)
        (output,) = node.writes
        sizes = output.tensor.static_sizes
        operands, types = [], []
        for k, value in enumerate(node.inputs):
            types.append(None if value is None else node.read_type(k))
            if value is not None:
                seen = _view(node.views.get(k) or value.tensor, memory[value])
                operands.append(seen.reshape((1,) * len(sizes)) if node.op.inputs[k].sizes == ONE else seen)
        meaning = node.op.expression(tuple(types), output.data_type, node.attributes, len(sizes))
        content = np.broadcast_to(evaluate(meaning, operands), sizes)
        buffer = results[output] if output in results else empty_buffer(output)
        memory[output] = buffer.reshape(-1)
        _view(output.tensor, memory[output])[...] = content


def _view(type: TensorType, flat: Array) -> Array:
    strides = [s * flat.itemsize for s in type.element_strides]
    return as_strided(flat.view(type.dtype), type.static_sizes, strides)


def empty_buffer(value: Value) -> Array:
    """Zeros that reach as far as a value's layout does, and what is read of it."""
    dtype = np.dtype(value.tensor.dtype)
    return np.zeros(-(-reach(value) // dtype.itemsize), dtype)
