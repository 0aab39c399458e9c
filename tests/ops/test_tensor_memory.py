"""Operators of whole tensors stay within the memory they are given: pages before and behind it are nobody's.

Every operator, with random types, ranks and layouts, by its definition and, where there are any, by kernels.
A read or write beyond ends the process; one between the elements is seen afterwards.
"""

import random

import numpy as np
import pytest
from tensor_descs import TENSOR_FACTS, Impossible, described, drafts

import anydml as dml
from anydml.ops.dtypes import BITS, IN_BUFFERS
from anydml.runtime import row_kernels, window_kernels
from anydml.runtime.launch import address
from tests.robustness.guard_memory import PATTERN, Memory

MEMORY = Memory()
CASES = 12


def drawn(facts, rng):
    """A valid description of random types and ranks."""
    table = facts.table("6_4")
    for _ in range(50):
        types = {letter: rng.choice(allowed) for letter, allowed in table.types.items()}
        ranks = {name: rng.choice(list(span)) for name, span in table.ranks.items()}
        try:
            fields = rng.choice(drafts(facts, ranks, types))
        except Impossible:
            continue
        desc = described(facts, types, fields)
        if not dml.validate(desc):
            return desc
    return None


def laid_out(tensor, rng):
    """The tensor with other strides: padded, or its dimensions in another order."""
    sizes = tensor["Sizes"] if isinstance(tensor, dict) else list(tensor.sizes)
    kind = tensor["DataType"] if isinstance(tensor, dict) else tensor.data_type
    order = rng.sample(range(len(sizes)), len(sizes)) if rng.random() < 0.5 else range(len(sizes))
    strides, step = [0] * len(sizes), rng.choice([1, 1, 2, 3])
    for d in reversed(list(order)):
        strides[d] = step
        step = step * sizes[d] + rng.choice([0, 0, 1, 5])
    return dml.TensorDesc(kind, sizes, strides)


def spread(desc, rng):
    fields = {}
    for name, value in desc["Desc"].items():
        if is_tensor(value):
            value = laid_out(value, rng)
        elif isinstance(value, list) and value and is_tensor(value[0]):
            value = [laid_out(v, rng) for v in value]
        fields[name] = value
    return {**desc, "Desc": fields}


def is_tensor(value):
    return isinstance(value, dml.TensorDesc) or (isinstance(value, dict) and "Sizes" in value)


def given(tensor, rng):
    """Memory of exactly as many bytes as the tensor reaches, at an end of its pages, and its content."""
    size = -(-tensor.reach // 8) * 8 if rng.random() < 0.3 else tensor.reach
    place = MEMORY.take(size, at_end=True, shift=0)
    whole = place.window[place.start : place.start + place.size]
    array = whole[
        : tensor.reach // IN_BUFFERS[tensor.data_type].itemsize * IN_BUFFERS[tensor.data_type].itemsize
    ]
    return place, array.view(IN_BUFFERS[tensor.data_type])


def fill(array, tensor, numbers):
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


def reached(tensor, place):
    """Which bytes of the window belong to elements."""
    mask = np.zeros(place.window.size, bool)
    offsets = np.zeros((), np.int64)
    for n, s in zip(tensor.sizes, tensor.effective_strides, strict=True):
        offsets = offsets[..., np.newaxis] + np.arange(n) * s
    bits = BITS[tensor.data_type]
    for k in range(max(bits // 8, 1)):
        mask[place.start + offsets.ravel() * bits // 8 + k] = True
    return mask


@pytest.mark.parametrize("kernels", [False, True], ids=["definitions", "kernels"])
@pytest.mark.parametrize("facts", TENSOR_FACTS.values(), ids=repr)
def test_nothing_beyond_the_tensors_is_read_or_written(facts, kernels, monkeypatch):
    if kernels:
        monkeypatch.setattr(row_kernels, "MIN_ELEMENTS", 1)
        monkeypatch.setattr(window_kernels, "MIN_ELEMENTS", 1)
    rng, numbers = random.Random(f"{facts!r} {kernels}"), np.random.default_rng(len(facts.name))
    device, ran = dml.Device(), 0
    for _ in range(CASES):
        desc = drawn(facts, rng)
        desc = spread(desc, rng) if desc is not None and rng.random() < 0.7 else desc
        if desc is None or dml.validate(desc):
            continue
        compiled = device.compile_operator(device.create_operator(desc))
        inputs, outputs, places, before = {}, {}, {}, {}
        for name, tensor in compiled.tensors.items():
            places[name], array = given(tensor, rng)
            if name in compiled.output_names:
                outputs[name] = array
            else:
                fill(array, tensor, numbers)
                inputs[name] = array
            before[name] = places[name].window.copy()
        compiled.dispatch(inputs, outputs)
        for name, tensor in compiled.tensors.items():
            window = places[name].window
            if name in inputs:
                assert np.array_equal(window, before[name]), f"{name} was written to: {desc}"
            else:
                outside = ~reached(tensor, places[name])
                assert (window[outside] == PATTERN).all(), f"{name} was written beyond its elements: {desc}"
                assert address(outputs[name])
        ran += 1
        MEMORY.take_back()
    assert ran >= CASES // 3, "few descriptions could be drawn"
