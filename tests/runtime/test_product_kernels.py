"""Products by kernels: exact but for rounding, whatever is too large or too small on the way."""

from fractions import Fraction
from math import prod

import numpy as np
import pytest

import anydml as dml
from anydml.runtime import product_kernels

CASES = [
    ((3, 5, 7), [2]),
    ((3, 5, 7), [1]),
    ((3, 5, 70), [0]),
    ((3, 5, 170), [0, 1]),
    ((3, 50, 7), [2, 1]),
    ((9, 1000), [1]),
    ((1, 2003), [0, 1]),
    ((3, 1, 1200), [2]),
    ((6, 1), [1]),
]


@pytest.fixture
def both(by_both, monkeypatch):
    monkeypatch.setattr(product_kernels, "MIN_PART", 8)

    def run(x, axes, by_kernel=True):
        call = lambda: dml.reduce(x, "MULTIPLY", axes)  # noqa: E731
        return by_both(call, by_kernel)

    return run


def exact(x, axes):
    """Products as fractions, by place."""
    kept = [k for k in range(x.ndim) if k not in axes]
    rows = x.transpose(*kept, *sorted(axes)).reshape(prod(x.shape[k] for k in kept), -1)
    return [prod(map(Fraction, row.tolist())) for row in rows]


@pytest.mark.parametrize(("sizes", "axes"), CASES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_of_floats(both, sizes, axes, dtype):
    rng = np.random.default_rng(len(sizes) + sizes[-1])
    x = rng.standard_normal(sizes).astype(dtype)
    if dtype == "float32":
        half = rng.random(sizes) < 0.5  # numbers and what makes 1 of them, in any order
        x = np.where(half, 1 / x, x) * np.where(rng.random(sizes) < 0.5, 2.0**60, 2.0**-60)
        x = x.astype(np.float32)
    wanted = np.array([np.float64(min(max(f, -(1 << 200)), 1 << 200)) for f in exact(x, axes)])
    with np.errstate(over="ignore", under="ignore"):
        wanted = wanted.astype(dtype)
    for got in both(x, axes):
        assert got.dtype == x.dtype
        np.testing.assert_array_max_ulp(got.ravel(), wanted, 1)


@pytest.mark.parametrize(("sizes", "axes"), CASES)
@pytest.mark.parametrize("dtype", "int32 uint32 int64 uint64".split())
def test_products_of_integers_wrap(both, sizes, axes, dtype):
    rng, info = np.random.default_rng(1), np.iinfo(dtype)
    x = rng.integers(info.min, info.max, sizes, dtype, endpoint=True) | 1
    wanted = [int(f) % (1 << info.bits) for f in exact(x, axes)]
    for got in both(x, axes):
        assert got.dtype == x.dtype
        assert [int(v) % (1 << info.bits) for v in got.ravel()] == wanted


def test_what_is_not_a_number(both):
    x = np.full((5, 300), -2, np.float32)
    x[0, 7], x[1, [3, 200]], x[2, 299], x[3, 16] = np.nan, [0, np.inf], -np.inf, -0.0
    for got in both(x, [1]):
        np.testing.assert_array_equal(got.ravel(), [np.nan, np.nan, np.inf, 0, np.inf])
        assert not np.signbit(got[3, 0])


def test_nothing_is_lost_on_the_way(both):
    x = np.float32([2.0**127, 2.0**-149] * 4000 + [2.0**22] * 4000 + [3])
    for order in (x, np.sort(x), np.random.default_rng(0).permutation(x)):
        for sizes, axis in (((1, -1), 1), ((-1, 1), 0)):
            assert [y.item() for y in both(order.reshape(sizes), [axis])] == [3, 3]
    columns = np.repeat(np.sort(x)[:, np.newaxis], 77, 1)
    assert all((y == 3).all() for y in both(columns, [0]))


def test_of_any_layout_and_axes(both):
    x = np.random.default_rng(0).standard_normal((6, 7, 40)).astype(np.float32)
    wanted = both(x, [1])[1]
    np.testing.assert_array_equal(both(np.asfortranarray(x), [1])[1], wanted)
    apart = [y.ravel() for y in both(x, [0, 2], by_kernel=False)]
    np.testing.assert_array_equal(*apart)


def test_the_same_bits_on_any_number_of_threads():
    x = np.random.default_rng(0).standard_normal((2, 40_001)).astype(np.float32)
    x /= np.abs(x) ** 0.9
    desc = {
        "Type": "REDUCE",
        "Function": "MULTIPLY",
        "Axes": [1],
        "InputTensor": {"DataType": "FLOAT32", "Sizes": x.shape},
        "OutputTensor": {"DataType": "FLOAT32", "Sizes": [2, 1]},
    }
    found = []
    for threads in (1, 2, 3):
        device, y = dml.Device(threads=threads), np.zeros((2, 1), np.float32)
        compiled = device.compile_operator(device.create_operator(desc))
        compiled.dispatch({"InputTensor": x}, {"OutputTensor": y})
        found.append(y.tobytes())
    assert len({*found}) == 1
