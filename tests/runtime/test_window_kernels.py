"""Pooling by kernels gives what the definitions give."""

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors, heavy
from anydml.runtime.launch import RepeatedLaunch

NAN, INF = float("nan"), float("inf")
WINDOWS = [
    {"window_size": [2, 2], "strides": [2, 2]},
    {"window_size": [3, 3], "strides": [2, 2], "start_padding": [1, 1], "end_padding": [1, 1]},
    {"window_size": [3, 1], "strides": [1, 3], "start_padding": [0, 0], "end_padding": [2, 0]},
    {"window_size": [4, 4], "strides": [1, 1], "start_padding": [3, 0], "end_padding": [0, 3]},
    {"window_size": [1, 5], "strides": [5, 2]},
]


@pytest.fixture
def both(monkeypatch):
    """The same call by a kernel and by the definition."""
    used = []
    launch = RepeatedLaunch._run
    monkeypatch.setattr(RepeatedLaunch, "_run", lambda *a: (used.append(1), launch(*a)))

    def run(function, *args, **kwargs):
        found = []
        for least in (1, 1 << 60):
            monkeypatch.setattr(heavy, "MIN_ELEMENTS", least)
            eager_tensors.forget()
            used.clear()
            found.append(function(*args, **kwargs))
            assert bool(used) is (least == 1)
        return found

    return run


def random_window(rng, axes):
    """A window that fits into what it lies in, and how large that is."""
    window = {
        "window_size": rng.integers(1, 6, axes),
        "strides": rng.integers(1, 7, axes),
        "dilations": rng.integers(1, 4, axes),
        "start_padding": rng.integers(0, 9, axes),
        "end_padding": rng.integers(0, 9, axes),
    }
    reach = (window["window_size"] - 1) * window["dilations"] + 1
    least = np.maximum(reach - window["start_padding"] - window["end_padding"], 1)
    sizes = least + rng.integers(0, rng.choice([3, 40, 400]), axes)
    sizes[:-1] = np.minimum(sizes[:-1], least[:-1] + 5)
    return {name: n.tolist() for name, n in window.items()}, sizes.tolist()


def inputs(dtype):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind != "f":
        info = np.iinfo(dtype)
        return [rng.integers(info.min, info.max, (2, 3, 13, 17), dtype, endpoint=True)]
    x = rng.standard_normal((2, 3, 13, 17)).astype(dtype)
    odd = x.copy()
    odd[rng.random(odd.shape) < 0.05] = NAN
    odd[rng.random(odd.shape) < 0.3] = -INF
    return [x, odd, x.transpose(0, 1, 3, 2)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", "float32 float16 int8 uint8 int32 uint64".split())
def test_maxima(both, window, dtype):
    for x in inputs(dtype):
        kernel, definition = both(dml.max_pooling, x, **window)
        np.testing.assert_array_equal(kernel, definition)


def test_rows_of_one_element_at_any_stride(both):
    packed = np.random.default_rng(1).normal(size=(2, 3, 70, 1)).astype(np.float32)
    x = np.lib.stride_tricks.as_strided(packed, packed.shape, (*packed.strides[:-1], 36))
    both(dml.max_pooling1, x, [3, 1])
    both(dml.lp_pooling, x, [3, 1], p=1)
    assert np.array_equal(dml.max_pooling(x, [70, 1]), packed.max(2, keepdims=True))


@pytest.mark.parametrize("sizes", [(13, 17), (3, 40, 2), (1, 1)])
def test_whole_planes(both, sizes):
    """However long; against NumPy, too."""
    rng, axes = np.random.default_rng(len(sizes)), tuple(range(2, 2 + len(sizes)))
    for dtype in ("float32", "float16", "int8", "uint64"):
        x = (rng.standard_normal((2, 3, *sizes)) * 40).clip(0 if dtype == "uint64" else -100, 100)
        x = x.astype(dtype)
        for function in (dml.max_pooling, lambda *a, **k: same_places("UINT32")(*a, **k)[0]):
            made = function(x, window_size=sizes, strides=[9] * len(sizes))
            np.testing.assert_array_equal(made, x.max(axes, keepdims=True), strict=True)
        np.testing.assert_array_equal(*both(dml.max_pooling, x, window_size=sizes))
        if x.dtype.kind != "f":
            continue
        wide = np.abs(x, dtype=np.float64)
        for p in (1, 2):
            found, definition = both(dml.lp_pooling, x, window_size=sizes, p=p)
            np.testing.assert_allclose(found, definition, rtol=1e-3 if dtype == "float16" else 1e-6)
            wanted = (wide**p).sum(axes, keepdims=True) ** (1 / p)
            np.testing.assert_allclose(found, wanted, rtol=1e-3 if dtype == "float16" else 1e-6)
        for padding in (False, True):
            found, _ = both(dml.average_pooling, x, window_size=sizes, include_padding=padding)
            wanted = x.astype(np.float64).mean(axes, keepdims=True).astype(dtype)
            np.testing.assert_allclose(found, wanted, rtol=1e-3 if dtype == "float16" else 1e-6)


def test_places_in_whole_planes():
    """The first of equal ones, and the first NaN; in any layout, and where padding surrounds the plane."""
    rng = np.random.default_rng(3)
    x = rng.integers(-2, 3, (4, 5, 30, 20)).astype(np.float32)
    x[1:, 2, 7:9, 11] = NAN
    wanted = [row.argmax() + k * row.size for k, row in enumerate(x.reshape(20, -1))]
    for other in (x, np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
        for window in ({"window_size": [30, 20]}, {"window_size": [32, 21], "start_padding": [2, 1]}):
            values, places = dml.max_pooling2(other, **window)
            assert values.shape == places.shape == (4, 5, 1, 1)
            np.testing.assert_array_equal(places.ravel(), wanted)
            np.testing.assert_array_equal(values.ravel(), x.ravel()[wanted])


def test_whole_planes_of_any_layout():
    x = np.random.default_rng(4).standard_normal((2, 40, 30, 32)).astype(np.float32)
    turned = x.transpose(0, 3, 1, 2)
    wanted = x.max((1, 2), keepdims=True).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(dml.max_pooling(turned, [40, 30]), wanted)
    means = dml.average_pooling(turned, [40, 30], include_padding=False)
    wanted = x.astype(np.float64).mean((1, 2), keepdims=True).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(means, wanted, rtol=1e-5, atol=1e-7)


def test_dilated_windows(both):
    x = inputs("float32")[0]
    for dilations in ([2, 1], [1, 3], [3, 2]):
        args = {"window_size": [3, 3], "strides": [1, 2], "dilations": dilations}
        kernel, definition = both(dml.average_pooling1, x, include_padding=True, **args)
        np.testing.assert_allclose(kernel, definition, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", "float32 float16 int8 uint8 int32 uint64".split())
def test_places_of_maxima(both, window, dtype):
    for x in inputs(dtype):
        x = x // 64 * 64 if x.dtype.kind != "f" else x.round()  # many that are equal
        for kind in ("UINT32", "UINT64"):
            (found, at), (wanted, places) = both(same_places(kind), x, **window)
            np.testing.assert_array_equal(found, wanted)
            np.testing.assert_array_equal(at, places)
            assert at.dtype == places.dtype == kind.lower()


def same_places(kind):
    return lambda x, **window: dml.max_pooling2(x, **window, output_data_type=kind)


def first_place(x, window, n, c, y, z):
    """The first place in the flat input of the greatest element of a window; a NaN is greater than all."""
    (h, w), (s, t), (d, e) = (window[k] for k in ("window_size", "strides", "dilations"))
    top, left = (k * step - pad for k, step, pad in zip((y, z), (s, t), window["start_padding"], strict=True))
    places = [
        (n, c, top + i * d, left + j * e)
        for i in range(h)
        for j in range(w)
        if 0 <= top + i * d < x.shape[2] and 0 <= left + j * e < x.shape[3]
    ]
    best = max(places, key=lambda at: (np.isnan(x[at]), 0 if np.isnan(x[at]) else x[at]))  # the first
    return np.ravel_multi_index(best, x.shape)


@pytest.mark.parametrize("seed", range(10))
def test_places_are_the_first(both, seed):
    rng = np.random.default_rng([seed, 7])
    window, sizes = random_window(rng, 2)
    window["start_padding"] = [
        min(p, (n - 1) * d)
        for p, n, d in zip(*map(window.get, ("start_padding", "window_size", "dilations")), strict=True)
    ]
    window["end_padding"] = [0, 0]
    sizes = [
        max(n, (k - 1) * d + 1)
        for n, k, d in zip(sizes, window["window_size"], window["dilations"], strict=True)
    ]
    x = rng.integers(-2, 3, (2, 2, *sizes)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = NAN
    (values, found), _ = both(dml.max_pooling2, x, **window)
    for at in np.ndindex(found.shape):
        assert found[at] == first_place(x, window, *at), at
    np.testing.assert_array_equal(x.ravel()[found], values)


@pytest.mark.parametrize("window", WINDOWS)
def test_means_and_norms(both, window):
    for dtype in ("float32", "float16"):
        limits = {"rtol": 2e-3, "atol": 1e-3} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-6}
        for x in inputs(dtype):
            kernel, definition = both(dml.average_pooling, x, include_padding=True, **window)
            np.testing.assert_allclose(kernel, definition, **limits)
            for p in (1, 2):
                kernel, definition = both(dml.lp_pooling, x, p=p, **window)
                np.testing.assert_allclose(kernel, definition, **limits)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.drawn
def test_any_windows(both, share_all_work, seed, axes):
    """Long and short rows, windows of nothing but padding, all steps; by several threads."""
    share_all_work()
    rng = np.random.default_rng([seed, axes])
    for _ in range(4):
        window, sizes = random_window(rng, axes)
        x = rng.standard_normal((2, 3, *sizes)).astype(np.float32)
        x[rng.random(x.shape) < 0.02] = NAN
        args = {"include_padding": bool(rng.integers(2)), **window}
        found, wanted = both(dml.average_pooling1, x, **args)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        found, wanted = both(dml.lp_pooling1, x, p=2, **window)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        (found, at), (wanted, places) = both(dml.max_pooling2, x, **window)
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(at, places)
        if set(window.pop("dilations")) == {1}:
            np.testing.assert_array_equal(*both(dml.max_pooling, x, **window))
        window["window_size"] = [1 if n < 3 else 2 for n in sizes]
        for dtype in ("float32", "int8", "int64"):
            kept = (np.nan_to_num(x) * 20).astype(dtype) if dtype != "float32" else x
            np.testing.assert_array_equal(*both(dml.max_pooling, kept, **window))


def test_averages_of_numbers_whose_sums_are_too_large(both):
    x = np.full((1, 2, 9, 40), 3e38, np.float32)
    x[0, 0, 4, 20] = NAN
    found, wanted = both(dml.average_pooling, x, window_size=[3, 3], include_padding=False)
    np.testing.assert_array_equal(found, wanted)
    assert np.isfinite(found[0, 1]).all()
    assert np.isnan(found).any()
