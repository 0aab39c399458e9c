"""Layouts: reach, minimum size, and the exact test for overlap."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anydml.errors import InvalidOperator
from anydml.ops.tensor_desc import TensorDesc, TooIntricate, last_element, overlaps_itself, packed_strides


def overlap_by_trying(sizes, strides, width):
    seen = set()
    for index in product(*map(range, sizes)):
        start = sum(i * s for i, s in zip(index, strides, strict=True))
        for byte in range(start, start + width):
            if byte in seen:
                return True
            seen.add(byte)
    return False


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(-16, 16)), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4, 8]),
)
def test_overlap_is_exact(dims, width):
    sizes, strides = zip(*dims, strict=True)
    assert overlaps_itself(sizes, strides, width) == overlap_by_trying(sizes, strides, width)


def test_overlap_of_layouts_too_large_to_try():
    assert not overlaps_itself((2**16, 2**15), (2**15, 1))
    assert overlaps_itself((2**16, 2**15), (2**15 - 1, 1))
    assert not overlaps_itself((2**31, 1, 2), (2, 0, 1))
    with pytest.raises(TooIntricate):
        overlaps_itself((4, 3), (2, 3), work=2)


def test_packed_strides():
    assert packed_strides((2, 3, 4)) == (12, 4, 1)
    assert packed_strides(()) == ()


@pytest.mark.parametrize(
    ("dtype", "sizes", "strides", "reach", "minimum"),
    [
        ("UINT8", (3,), None, 3, 4),
        ("FLOAT16", (3,), None, 6, 8),
        ("FLOAT32", (2, 3), None, 24, 24),
        ("FLOAT32", (2, 3), (0, 1), 12, 12),
        ("FLOAT32", (2, 3), (8, 2), 52, 52),
        ("INT64", (2, 2), (1, 2), 32, 32),
        ("INT8", (2, 3), (5, 1), 8, 8),
    ],
)
def test_reach_and_minimum_size(dtype, sizes, strides, reach, minimum):
    desc = TensorDesc(dtype, sizes, strides)
    assert (desc.reach, desc.minimum_size) == (reach, minimum)
    assert last_element(desc.sizes, desc.effective_strides) == reach // (reach if reach == 0 else 1) // {
        "UINT8": 1, "FLOAT16": 2, "FLOAT32": 4, "INT64": 8, "INT8": 1,
    }[dtype] - 1  # fmt: skip


def test_sizes_must_be_integers():
    with pytest.raises(InvalidOperator, match="Sizes: expected integers"):
        TensorDesc("FLOAT32", (2.5,))
    with pytest.raises(InvalidOperator, match="TotalTensorSizeInBytes: expected integers"):
        TensorDesc("FLOAT32", (2,), total_tensor_size_in_bytes="8")
    with pytest.raises(InvalidOperator, match="GuaranteedBaseOffsetAlignment: expected integers"):
        TensorDesc("FLOAT32", (2,), guaranteed_base_offset_alignment=4.0)
