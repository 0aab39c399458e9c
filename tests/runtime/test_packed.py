"""Copies of turned arrays by kernels are NumPy's."""

import numpy as np
import pytest

import anydml as dml
from anydml.runtime.launch import MIN_TURNED, RepeatedLaunch, packed

TYPES = "float32 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()


@pytest.fixture
def launches(monkeypatch):
    """As many as there were."""
    made = []
    launch = RepeatedLaunch._run
    monkeypatch.setattr(RepeatedLaunch, "_run", lambda *a: (made.append(1), launch(*a)))
    return made


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("threads", [1, None])
def test_turned_arrays(launches, dtype, threads):
    x = np.random.default_rng(0).integers(0, 256, (3, 70, 41, 30 * np.dtype(dtype).itemsize), np.uint8)
    x = x.view(dtype)  # of floats NaNs, too, whose bits stay
    views = [
        x.transpose(0, 3, 1, 2),
        x.T,
        x[..., ::2],
        x[:, ::-1, :, ::-1],
        x.transpose(2, 0, 3, 1)[1:, :, 3:],
    ]
    views.append(np.broadcast_to(x[:1, :, :, :1], (3, 70, 41, 30)))
    for count, view in enumerate(views, 1):
        copy = packed(view, threads)
        assert copy.flags.c_contiguous
        assert copy.tobytes() == view.tobytes()
        assert len(launches) == count
        assert copy.dtype == view.dtype


def test_what_numpy_copies_as_fast(launches):
    x = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    assert packed(x) is x
    odd = np.frombuffer(bytes(1 + x.nbytes), np.uint8)[1:].view(np.float32).reshape(x.shape)
    assert not odd.flags.aligned
    for view in (x[:, :200], x[::-1], x[:20].T, odd.T):
        copy = packed(view)
        assert copy.flags.c_contiguous
        assert copy.flags.aligned
        np.testing.assert_array_equal(copy, view)
    assert x[:20].size < MIN_TURNED
    assert not launches


@pytest.mark.parametrize("function", ["max_pooling", "average_pooling", "cumulative_summation", "resample"])
def test_operators_on_channels_that_lie_last(function):
    given = {"window_size": [3, 3]}
    given |= {"include_padding": False} if function == "average_pooling" else {}
    if function == "cumulative_summation":
        given = {"axis": 2, "axis_direction": "INCREASING", "has_exclusive_sum": False}
    if function == "resample":
        given = {"interpolation_mode": "LINEAR", "scales": [1, 1, 2, 1.5]}
    x = np.random.default_rng(1).standard_normal((2, 40, 50, 12)).astype(np.float32).transpose(0, 3, 1, 2)
    made, wanted = (getattr(dml, function)(y, **given) for y in (x, np.ascontiguousarray(x)))
    np.testing.assert_array_equal(made, wanted)
