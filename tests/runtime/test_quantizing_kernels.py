"""Quantization by a scale that is found first: by a kernel the same bytes as by the definition."""

import numpy as np
import pytest

import anydml as dml


def drawn(dtype):
    rng = np.random.default_rng(3)
    for size in (1, 3, 17, 1000):
        x = np.asarray(rng.standard_normal((2, size)) * 10, dtype)
        yield from (x, np.abs(x), -np.abs(x), np.zeros_like(x), x[:, ::-1], x.T, x + np.asarray(100, dtype))
        for odd in (np.nan, np.inf, -np.inf, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal):
            y = x.copy()
            y[0, 0] = odd
            yield y
        yield np.full_like(x, np.finfo(dtype).smallest_subnormal)
        yield np.broadcast_to(x[:, :1], x.shape)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("to", ["UINT8", "INT8"])
def test_by_a_scale_that_is_found(by_both, same_bytes, dtype, to):
    for x in drawn(dtype):
        same_bytes(*by_both(lambda x=x: dml.dynamic_quantize_linear(x, output_data_type=to), True))
