"""Resampling by kernels gives the bits that the definitions give."""

import numpy as np
import pytest

import anydml as dml

PLACES = [
    ([1, 1, 2, 2], [0.5] * 4, [-0.5] * 4),
    ([1, 1, 1.7, 3.3], [0.5] * 4, [-0.5] * 4),
    ([1, 2, 0.4, 0.7], [0.5] * 4, [-0.5] * 4),
    ([2, 1, 1, 0.3], [0.0] * 4, [0.0] * 4),
    ([1, 1, 3, 1], [-1.0, 0.25, 3.0, 0.5], [0.0, -0.5, 0.25, 0.5]),
]


@pytest.fixture
def both(by_both):
    def run(function, x, by_kernel=True, **kwargs):
        one, other = by_both(lambda: function(x, **kwargs), by_kernel)
        assert one.dtype == other.dtype == x.dtype
        assert one.shape == other.shape
        return one, other

    return run


@pytest.mark.parametrize("mode", ["NEAREST_NEIGHBOR", "LINEAR"])
@pytest.mark.parametrize(("scales", "begin", "end"), PLACES)
def test_the_same_bits(both, mode, scales, begin, end):
    rng = np.random.default_rng(len(scales))
    args = {"scales": scales, "input_pixel_offsets": begin, "output_pixel_offsets": end}
    for sizes in ((2, 3, 9, 37), (1, 4, 20, 1), (3, 2, 1, 8)):
        x = rng.standard_normal(sizes).astype(np.float32)
        for given in (x, x.astype(np.float16), x.transpose(0, 1, 3, 2)):
            got, wanted = both(dml.resample1, given, interpolation_mode=mode, **args)
            assert got.tobytes() == wanted.tobytes()
        x[rng.random(sizes) < 0.1] = np.nan
        x[rng.random(sizes) < 0.1] = np.inf
        np.testing.assert_array_equal(*both(dml.resample1, x, interpolation_mode=mode, **args))


def test_bytes_and_wide_triangles(both):
    """Means of bytes have float64 in between, and triangles many terms: as the definition has them."""
    rng = np.random.default_rng(0)
    small = rng.integers(-128, 128, (1, 2, 30, 40), np.int8)
    args = {"input_pixel_offsets": [0.5] * 4, "output_pixel_offsets": [-0.5] * 4}
    args |= {"scales": [1, 1, 1.5, 1.5], "rounding_direction": "DECREASING"}
    for antialiased in (False, True):
        more = args | {"antialiased": antialiased}
        got, wanted = both(dml.resample3, small, interpolation_mode="NEAREST_NEIGHBOR", **more)
        np.testing.assert_array_equal(got, wanted)
        both(dml.resample3, small, by_kernel=False, interpolation_mode="LINEAR", **more)
    args |= {"scales": [1, 1, 0.1, 0.45], "antialiased": True, "interpolation_mode": "LINEAR"}
    both(dml.resample3, small.astype(np.float32), by_kernel=False, **args)
    args["scales"] = [1, 1, 0.45, 1]
    got, wanted = both(dml.resample3, small.astype(np.float32), **args)
    assert got.tobytes() == wanted.tobytes()


def test_upsampling(both):
    x = np.random.default_rng(1).standard_normal((1, 2, 3, 9, 17)).astype(np.float32)
    for mode in ("NEAREST_NEIGHBOR", "LINEAR"):
        got, wanted = both(dml.upsample_2d, x, scale_size=(2, 3), interpolation_mode=mode)
        assert got.tobytes() == wanted.tobytes()
