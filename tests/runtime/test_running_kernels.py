"""Running sums and products by kernels are those of the definitions."""

import numpy as np
import pytest

import anydml as dml

FUNCTIONS = {"cumulative_summation": "has_exclusive_sum", "cumulative_product": "has_exclusive_product"}


@pytest.fixture
def both(by_both):
    def run(function, x, **kwargs):
        one, other = by_both(lambda: function(x, **kwargs))
        assert one.dtype == other.dtype == x.dtype
        np.testing.assert_array_equal(one, other)
        return one

    return run


def inputs(rng, dtype, sizes):
    if np.dtype(dtype).kind != "f":
        info = np.iinfo(dtype)
        return [rng.integers(info.min, info.max, sizes, dtype, endpoint=True)]
    x = rng.standard_normal(sizes).astype(dtype)
    odd = x.copy()
    odd[rng.random(sizes) < 0.02] = np.nan
    odd[rng.random(sizes) < 0.02] = np.inf
    return [x, x * np.array(1e4, dtype), odd]


@pytest.mark.drawn
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", "float32 float16 int32 uint32 int64 uint64".split())
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("direction", ["INCREASING", "DECREASING"])
def test_the_same_numbers(both, name, dtype, exclusive, direction):
    function, rng = getattr(dml, name), np.random.default_rng(len(name + dtype))
    args = {"axis_direction": direction, FUNCTIONS[name]: exclusive}
    for sizes in ((3, 50, 71), (4, 1, 5), (7, 9, 1), (1, 33, 2)):
        for x in inputs(rng, dtype, sizes):
            for axis in range(3):
                both(function, x, axis=axis, **args)
            both(function, x.transpose(2, 0, 1), axis=1, **args)


def test_sums_are_rounded_once(both):
    x = np.full((1, 1 << 12), np.float32(0.1))
    got = both(dml.cumulative_summation, x, axis=1, axis_direction="INCREASING", has_exclusive_sum=False)
    wanted = np.arange(1, x.size + 1) * float(np.float32(0.1))
    np.testing.assert_allclose(got[0], wanted, rtol=6e-8)
