"""Random cases of any of the operators, of whole tensors too, between guard pages."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import anydml as dml
from anydml import heavy
from anydml.ops.dtypes import BITS, IN_BUFFERS
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime import launch
from tests.ops import random_descs
from tests.robustness.guard_cases import Case, Wrong
from tests.robustness.guard_memory import PATTERN, Array, Memory

MOST = 20_000
"""Bytes of a tensor of a description that is run."""
SMALL = ("Lengths", "Mask")
"""Of inputs whose numbers are drawn small: some others would be an error when it runs."""


def tensor_case(case: Case) -> None:
    """One of all operators, by its definition or by kernels."""
    rng = random.Random(int(case.own.integers(1 << 32)))
    heavy.MIN_ELEMENTS, launch.MIN_TURNED = rng.choice((1, 1 << 14)), rng.choice((1, 1 << 15))
    name = rng.choice(list(random_descs.ALL))
    case.facts.add(f"operator {name}")
    if not within_its_memory(name, rng, case.own, case.memory):
        case.facts.add("not run")


def within_its_memory(name: str, rng: random.Random, numbers: np.random.Generator, memory: Memory) -> bool:
    """Whether a random description could be run.

    Raises:
        Wrong: something was written that is not an output's element.
    """
    device, desc = dml.Device(), random_descs.changed(name, rng)
    operator = device.create_operator(desc) if not dml.validate(desc) else None
    if operator is None or any(t.reach > MOST for t in operator.tensors.values()):
        return False
    compiled = device.compile_operator(operator)
    arrays, places, before = {}, {}, {}
    for field, tensor in compiled.tensors.items():
        places[field], arrays[field] = given(tensor, rng, memory)
        if field not in compiled.output_names:
            fill(field, arrays[field], numbers)
        before[field] = places[field].window.copy()
    inputs = {n: x for n, x in arrays.items() if n not in compiled.output_names}
    compiled.dispatch(inputs, {n: arrays[n] for n in compiled.output_names})
    for field, tensor in compiled.tensors.items():
        window = places[field].window
        if field in inputs and not np.array_equal(window, before[field]):
            raise Wrong(f"{field} was written to: {desc}")
        if field not in inputs and (window[~reached(tensor, places[field])] != PATTERN).any():
            raise Wrong(f"{field} was written beyond its elements: {desc}")
    memory.take_back()
    return True


def given(tensor: TensorDesc, rng: random.Random, memory: Memory) -> tuple[Any, Array]:
    """Memory of exactly as many bytes as the tensor reaches, at an end of its pages, and its content."""
    size = -(-tensor.reach // 8) * 8 if rng.random() < 0.3 else tensor.reach
    place = memory.take(size, at_end=True, shift=0)
    dtype = IN_BUFFERS[tensor.data_type]
    whole = place.window[place.start : place.start + tensor.reach // dtype.itemsize * dtype.itemsize]
    return place, whole.view(dtype)


def fill(field: str, array: Array, numbers: np.random.Generator) -> None:
    """Random contents: NaN and infinities among floats, and many small integers."""
    if any(word in field for word in SMALL):
        array[:] = numbers.integers(0, 2, array.size)
        return
    content: Array
    if array.dtype.kind == "f":
        content = numbers.standard_normal(array.size) * 3
        content[numbers.random(array.size) < 0.05] = np.nan
        content[numbers.random(array.size) < 0.05] = np.inf
    else:
        info = np.iinfo(array.dtype)
        content = numbers.integers(info.min, info.max, array.size, array.dtype, endpoint=True)
        few = numbers.random(array.size) < 0.5
        content = np.where(few, numbers.integers(0, 4, array.size).astype(array.dtype), content)
    array[:] = content.astype(array.dtype)


def reached(tensor: TensorDesc, place: Any) -> Array:
    """Which bytes of the window belong to elements."""
    mask = np.zeros(place.window.size, bool)
    offsets = np.zeros((), np.int64)
    for n, s in zip(tensor.sizes, tensor.effective_strides, strict=True):
        offsets = offsets[..., np.newaxis] + np.arange(n) * s
    bits = BITS[tensor.data_type]
    for k in range(max(bits // 8, 1)):
        mask[place.start + offsets.ravel() * bits // 8 + k] = True
    return mask
