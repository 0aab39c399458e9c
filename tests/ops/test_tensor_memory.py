"""Operators stay within the memory they are given: pages before and behind it are nobody's.

Every operator, with random types, sizes, attributes and layouts, by its definition and, where there are any, by
kernels. A read or write beyond ends the process; one between the elements is seen afterwards.
"""

import random

import numpy as np
import pytest

from anydml import heavy
from anydml.runtime import move_kernels
from tests.ops.random_descs import ALL
from tests.robustness.guard_memory import Memory
from tests.robustness.guard_tensors import within_its_memory

MEMORY = Memory()
CASES = 8


@pytest.mark.parametrize("kernels", [False, True], ids=["definitions", "kernels"])
@pytest.mark.parametrize("name", ALL)
def test_nothing_beyond_the_tensors_is_read_or_written(name, kernels, monkeypatch):
    monkeypatch.setattr(heavy, "MIN_ELEMENTS", 1 if kernels else 1 << 62)
    if kernels:
        monkeypatch.setattr(move_kernels, "MIN_RUN_BYTES", 1)
        monkeypatch.setattr(move_kernels, "MIN_PADDED_BYTES", 1)
    rng, numbers = random.Random(f"{name} {kernels}"), np.random.default_rng(len(name))
    ran = sum(within_its_memory(name, rng, numbers, MEMORY) for _ in range(CASES))
    assert ran >= CASES // 3, "few descriptions could be drawn"
