"""Operators that move elements, by kernels: bytes as the definitions', by several threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.codegen.taken import TakenSpec
from anydml.ops.call import Call, fields_of
from anydml.ops.dtypes import IN_ARRAYS, UINT8, UINT16, UINT32, UINT64
from anydml.ops.expr import read
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch
from anydml.runtime.taken_launch import TakenLaunch
from anydml.runtime.threads import default_threads

MIN_BYTES = 1 << 16
"""Of all that is moved: below, NumPy's calls take less than the launch of a kernel."""
MIN_SHARED_BYTES = 1 << 18
"""Of tensors that are put together or taken apart: below, and by one thread, NumPy does that as quickly."""
MIN_RUN_BYTES = 1 << 7
"""Of neighbours that stay neighbours."""
MAX_PARTS = 16
"""Of a tensor that is put together or taken apart: a kernel has so many inputs, and as many outputs."""

Implementation = Callable[[Call], Any]
_BITS = {1: UINT8, 2: UINT16, 4: UINT32, 8: UINT64}


def move_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of an operator by a kernel; None where its definition is as good."""
    make = MOVES.get(operator.name)
    if make is None:
        return None
    outputs = [
        tensors[n] for s in operator.outputs for n in (fields_of(s.name, tensors) if s.array else [s.name])
    ]
    width = IN_ARRAYS[outputs[0].data_type].itemsize
    if sum(prod(t.sizes) for t in outputs) * width < MIN_BYTES:
        return None
    return make(tensors, attributes["Axis"], width, threads)


def _gather(
    tensors: Mapping[str, TensorDesc], axis: int, width: int, threads: int | None
) -> Implementation | None:
    sizes = tensors["InputTensor"].sizes
    behind = prod(sizes[axis + 1 :])
    if (behind > 1 and behind * width < MIN_RUN_BYTES) or 0 in sizes:
        return None
    return _taken(tensors, axis, width, threads, own=False)


def _gather_elements(
    tensors: Mapping[str, TensorDesc], axis: int, width: int, threads: int | None
) -> Implementation | None:
    return None if 0 in tensors["InputTensor"].sizes else _taken(tensors, axis, width, threads, own=True)


def _taken(
    tensors: Mapping[str, TensorDesc], axis: int, width: int, threads: int | None, own: bool
) -> Implementation:
    rows = prod(tensors["InputTensor"].sizes[axis + 1 :]) > 1
    spec = TakenSpec(_BITS[width], tensors["IndicesTensor"].data_type, rows=rows, own=own)
    launch = TakenLaunch(spec, axis, threads)

    def compute(c: Call) -> Any:
        if not (c.input.flags.c_contiguous and c.indices.flags.c_contiguous):
            return c.by_definition()
        result = np.empty(c.output.shape, c.input.dtype)
        launch([c.input, result, c.indices])
        return result

    return compute


def _join(
    tensors: Mapping[str, TensorDesc], axis: int, width: int, threads: int | None
) -> Implementation | None:
    parts = [tensors[n].sizes for n in fields_of("InputTensors", tensors)]
    copies = _copies(parts, axis, width, threads)
    if copies is None:
        return None

    def compute(c: Call) -> Array:
        result = np.empty(c.output.shape, c.inputs[0].dtype)
        _copy(copies, c.inputs, _parts(result, axis, c.inputs))
        return result

    return compute


def _split(
    tensors: Mapping[str, TensorDesc], axis: int, width: int, threads: int | None
) -> Implementation | None:
    parts = [tensors[n].sizes for n in fields_of("OutputTensors", tensors)]
    copies = _copies(parts, axis, width, threads)
    if copies is None:
        return None

    def compute(c: Call) -> list[Array]:
        made = [np.empty(x.shape, c.input.dtype) for x in c.outputs]
        _copy(copies, _parts(c.input, axis, made), made)
        return made

    return compute


_Copies = Sequence[tuple[list[int], RepeatedLaunch]]
"""Parts of one shape, by their numbers, and what copies them."""


def _copies(parts: Sequence[tuple[int, ...]], axis: int, width: int, threads: int | None) -> _Copies | None:
    alone = (threads or default_threads()) == 1
    if alone or sum(map(prod, parts)) * width < MIN_SHARED_BYTES:
        return None
    alike: dict[tuple[int, ...], list[int]] = {}
    for k, sizes in enumerate(parts):
        if prod(sizes[axis:]) * width < MIN_RUN_BYTES:
            return None
        alike.setdefault(sizes, []).append(k)
    found = []
    for numbers in alike.values():
        for first in range(0, len(numbers), MAX_PARTS):
            some = numbers[first : first + MAX_PARTS]
            values = tuple(read(k, _BITS[width]) for k in range(len(some)))
            found.append((some, RepeatedLaunch(group((_BITS[width],) * len(some), values), threads)))
    return found


def _parts(whole: Array, axis: int, parts: Sequence[Array]) -> list[Array]:
    """Views of it, as long as these along an axis, one after the other."""
    before, found, start = (slice(None),) * axis, [], 0
    for x in parts:
        end = start + x.shape[axis]
        found.append(whole[(*before, slice(start, end))])
        start = end
    return found


def _copy(copies: _Copies, sources: Sequence[Array], targets: Sequence[Array]) -> None:
    for some, launch in copies:
        launch([*(sources[k] for k in some), *(targets[k] for k in some)])


MOVES: Mapping[str, Callable[[Mapping[str, TensorDesc], int, int, int | None], Implementation | None]] = {
    "GATHER": _gather,
    "GATHER_ELEMENTS": _gather_elements,
    "JOIN": _join,
    "SPLIT": _split,
}
