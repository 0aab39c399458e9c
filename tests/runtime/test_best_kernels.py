"""TOP_K by kernels: the elements and places that the definition finds."""

import numpy as np
import pytest

import anydml as dml

TYPES = "float32 float16 int32 uint32 int16 uint16 int8 uint8".split()


@pytest.fixture
def both(by_both, same_bytes):
    def run(x, k, by_kernel=True, **kwargs):
        same_bytes(*by_both(lambda: dml.top_k1(x, k=k, **kwargs), by_kernel))

    return run


def inputs(rng, dtype, sizes):
    if np.dtype(dtype).kind != "f":
        info = np.iinfo(dtype)
        yield rng.integers(info.min, info.max, sizes, dtype, endpoint=True)
        yield rng.choice(np.array([info.min, info.min + 1, info.max], dtype), sizes)
        return
    x = rng.standard_normal(sizes).astype(dtype)
    yield x
    yield np.sort(x, -1)
    yield rng.choice(np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, 1e-7, -1e-7], dtype), sizes)
    yield np.full(sizes, np.nan, dtype)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("direction", ["INCREASING", "DECREASING"])
@pytest.mark.parametrize("place", ["UINT32", "UINT64"])
def test_the_best_of_rows(both, dtype, direction, place):
    rng = np.random.default_rng(len(dtype + direction))
    for length, k in [(1, 1), (16, 16), (17, 3), (70, 1), (99, 7), (300, 16), (1000, 5)]:
        for x in inputs(rng, dtype, (3, length)):
            both(x, k, axis=1, axis_direction=direction, output_data_type=place)


def test_other_axes_and_layouts(both):
    x = np.random.default_rng(0).standard_normal((4, 90, 7)).astype(np.float32)
    both(x, 4, axis=1, axis_direction="DECREASING")
    both(x, 2, axis=0, axis_direction="INCREASING")
    both(x[:, ::-2].transpose(2, 0, 1), 4, axis=2, axis_direction="DECREASING")


def test_what_stays_with_the_definition(both):
    x = np.arange(60).reshape(2, 30)
    both(x, 3, axis=1, axis_direction="DECREASING", by_kernel=False)
    both(x.astype(np.float32), 17, axis=1, axis_direction="DECREASING", by_kernel=False)
