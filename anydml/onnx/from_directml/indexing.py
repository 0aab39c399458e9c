"""What reads or writes where a tensor of indices says, as ONNX nodes.

Indices are bounded: ONNX fails where DirectML takes the nearest element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.dtypes import INT64


def bounded(o: OnnxNodes, name: str, tensor: Any, sizes: int | Sequence[int]) -> str:
    """Indices into dimensions of these sizes, as ONNX takes them; negative ones count from the end."""
    size = np.array(sizes, np.int64)
    if tensor.dtype == np.uint64:  # INT64 does not have them all
        return o.cast(o("Min", name, o.constant(size - 1, np.uint64)), INT64)
    indices = name if tensor.dtype == np.int64 else o.cast(name, INT64)
    if tensor.dtype.kind == "i":
        indices = o("Max", indices, o.constant(-size))
    return str(o("Min", indices, o.constant(size - 1)))


# ---- along an axis -----------------------------------------------------------------------------------------


def gather(c: Call, o: OnnxNodes) -> Any:
    shape = c.indices.shape[c.indices.ndim - c.index_dimensions :]
    indices = o.reshape(bounded(o, "indices", c.indices, c.input.shape[c.axis]), shape)
    return o.reshape(o("Gather", "input", indices, axis=c.axis), c.output.shape)


def gather_elements(c: Call, o: OnnxNodes) -> Any:
    return o("GatherElements", "input", bounded(o, "indices", c.indices, c.input.shape[c.axis]), axis=c.axis)


def scatter(c: Call, o: OnnxNodes) -> Any:
    indices = bounded(o, "indices", c.indices, c.input.shape[c.axis])
    return o("ScatterElements", "input", indices, "updates", axis=c.axis)


def one_hot(c: Call, o: OnnxNodes) -> Any:
    """The second value at an index, and elsewhere the first: onnxruntime's OneHot has few types."""
    size, rank = c.output.shape[c.axis], c.output.ndim
    number = o.constant(np.int64(size))
    indices = o("Min", "indices", o.constant(size, np.uint64)) if c.indices.dtype == np.uint64 else "indices"
    indices = o.cast(indices, INT64)
    counted = o("Where", o("Less", indices, o.constant(np.int64(0))), o("Add", indices, number), indices)
    places = np.arange(size).reshape([-1 if d == c.axis else 1 for d in range(rank)])
    values = o.reshape("values", [-1])
    off, on = (o.take(values, k, 0) for k in (0, 1))
    return o("Where", o("Equal", counted, o.constant(places)), on, off)


# ---- tuples ------------------------------------------------------------------------------------------------


def _tuples(c: Call, o: OnnxNodes) -> tuple[tuple[int, ...], int, str]:
    """The input's sizes without irrelevant 1s, how many of them are batches, and the tuples of indices."""
    shape = c.input.shape[c.input.ndim - c.input_dimension_count :]
    sizes = c.indices.shape[c.indices.ndim - c.indices_dimension_count :]
    batches = getattr(c, "batch_dimension_count", 0)
    indices = bounded(o, "indices", c.indices, shape[batches : batches + sizes[-1]])
    return shape, batches, o.reshape(indices, sizes)


def gather_nd(c: Call, o: OnnxNodes) -> Any:
    shape, batches, indices = _tuples(c, o)
    found = o("GatherND", o.reshape("input", shape), indices, batch_dims=batches)
    return o.reshape(found, c.output.shape)


def scatter_nd(c: Call, o: OnnxNodes) -> Any:
    shape, _, indices = _tuples(c, o)
    sizes = c.indices.shape[c.indices.ndim - c.indices_dimension_count :]
    updates = o.reshape("updates", [*sizes[:-1], *shape[sizes[-1] :]])
    return o.reshape(o("ScatterND", o.reshape("input", shape), indices, updates), c.output.shape)
