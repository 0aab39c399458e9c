"""Reductions and normalizations by kernels give what their definitions give."""

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors, heavy
from anydml.runtime.launch import RepeatedLaunch

NAN, INF = float("nan"), float("inf")
SHAPES = [
    ((3, 5, 7), (-1,)),
    ((4, 6, 5, 3), (-2, -1)),
    ((2, 3, 4, 5), (1, 3)),
    ((1000,), (0,)),
    ((6, 1, 7), (1, 2)),
]
SHAPES += [((9, 257), (1,)), ((2, 2, 3, 64), (1, 2, 3)), ((65, 16), (-1,))]
SHAPES += [((1, 5, 1, 9), (0, 3)), ((3, 1, 1, 40), (1, 3))]
COLUMNS = [((3, 5, 8), (1,)), ((40, 2, 35), (0, 1)), ((2, 6, 3, 70), (0, 2)), ((300, 150), (0,))]
SHAPES += COLUMNS
FUNCTIONS = "AVERAGE L1 L2 LOG_SUM LOG_SUM_EXP MAX MIN SUM SUM_SQUARE ARGMAX ARGMIN".split()


@pytest.fixture
def kernels(monkeypatch):
    """Kernels for arrays of any size; gives a function that switches them on and off, and tells if one ran."""
    used = []

    def switch(on):
        monkeypatch.setattr(heavy, "MIN_ELEMENTS", 1 if on else 1 << 60)
        used.clear()
        eager_tensors.forget()

    launch = RepeatedLaunch._run
    monkeypatch.setattr(RepeatedLaunch, "_run", lambda *a: (used.append(1), launch(*a)))
    switch.used = used
    return switch


def both(kernels, function, *args, **kwargs):
    kernels(False)
    wanted = function(*args, **kwargs)
    assert not kernels.used
    kernels(True)
    got = function(*args, **kwargs)
    assert kernels.used
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    return got, wanted


def inputs(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        x = rng.standard_normal(shape).astype(dtype)
        odd = x.copy()
        odd[rng.random(shape) < 0.1] = NAN
        odd[rng.random(shape) < 0.1] = -INF
        return [x, np.abs(x), odd, np.full(shape, -INF, dtype), np.round(x)]
    info = np.iinfo(dtype)
    return [rng.integers(info.min, info.max, shape, dtype, endpoint=True), rng.integers(0, 3, shape, dtype)]


@pytest.mark.drawn
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_reduce_of_floats(kernels, function, shape, axes):
    for dtype in (np.float32, np.float16):
        for x in inputs(shape, dtype):
            got, wanted = both(kernels, dml.reduce, x, function, list(axes))
            limits = {"rtol": 2e-3, "atol": 1e-3} if dtype == np.float16 else {"rtol": 1e-6, "atol": 1e-6}
            np.testing.assert_allclose(got.astype(float), wanted.astype(float), **limits)


@pytest.mark.parametrize("function", ["L1", "MAX", "MIN", "SUM", "SUM_SQUARE", "ARGMAX", "ARGMIN"])
def test_reduce_of_integers(kernels, function):
    for dtype in "int32 uint32 int64 uint64 int8 uint8 int16 uint16".split():
        if function in ("L1", "SUM", "SUM_SQUARE") and dtype not in ("int32", "uint32", "int64", "uint64"):
            continue
        for x in inputs((5, 130), dtype):
            for axis in (1, 0):
                kernels(False)
                wanted = dml.reduce(x, function, [axis])
                kernels(True)
                np.testing.assert_array_equal(dml.reduce(x, function, [axis]), wanted)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("direction", ["INCREASING", "DECREASING"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_argmax(kernels, name, direction, shape, axes):
    for dtype in (np.float32, np.int8):
        for x in inputs(shape, dtype):
            got, wanted = both(kernels, getattr(dml, name), x, list(axes), direction)
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_mean_variance_normalization(kernels, shape, axes):
    rng = np.random.default_rng(1)
    x = rng.standard_normal(shape).astype(np.float32)
    row = [n if d - len(shape) in axes or d in axes else 1 for d, n in enumerate(shape)]
    scale, bias = (rng.standard_normal(row).astype(np.float32) for _ in range(2))
    axes = [a % len(shape) for a in axes]
    for given in ((), (scale, bias), (scale,), (None, bias)):
        for mean in (True, False):
            for variance in (True, False):
                args = dict(zip(("scale", "bias"), given, strict=False))
                args |= {"axes": axes, "use_mean": mean, "use_variance": variance, "epsilon": 1e-3}
                got, wanted = both(kernels, dml.mean_variance_normalization2, x, **args)
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_turned_rows_are_packed_first(kernels):
    """Against NumPy; a launch for the copy, and one for the rows."""
    x = np.random.default_rng(6).standard_normal((2, 50, 60, 12)).astype(np.float32).transpose(0, 3, 1, 2)
    wide, axes = x.astype(np.float64), (2, 3)
    mean, variance = (f(wide, axis=axes, keepdims=True) for f in (np.mean, np.var))
    kernels(True)
    for function, wanted in (
        (lambda: dml.reduce(x, "SUM", axes), wide.sum(axes, keepdims=True)),
        (lambda: dml.reduce(x, "MAX", axes), x.max(axes, keepdims=True)),
        (
            lambda: dml.argmin(x, axes, output_data_type="INT64"),
            np.ascontiguousarray(x).reshape(2, 12, -1).argmin(2).reshape(2, 12, 1, 1),
        ),
        (
            lambda: dml.mean_variance_normalization1(x, axes=axes, normalize_variance=True),
            (wide - mean) / np.sqrt(variance + 1e-5),
        ),
    ):
        kernels.used.clear()
        np.testing.assert_allclose(function(), wanted, rtol=1e-5, atol=1e-5)
        assert len(kernels.used) == 2


@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(kernels, p):
    x = np.random.default_rng(2).standard_normal((9, 100)).astype(np.float32)
    x[3] = 0
    got, wanted = both(kernels, dml.lp_normalization, x, axis=1, p=p)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_batch_normalization(kernels):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    for shape in ((1, 3, 1, 1), (1, 3, 4, 5), (2, 1, 1, 5)):
        mean, variance, scale, bias = (rng.random(shape, np.float32) for _ in range(4))
        args = (x, mean, variance, scale, bias)
        got, wanted = both(kernels, dml.batch_normalization, *args, fused_activation="RELU")
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_batch_normalization_by_rows_and_by_elements(kernels):
    """Where a mean is the same for a row it is prepared once for that, otherwise for each: the same bits."""
    kernels(True)
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2, 3, 4, 50)).astype(np.float32)
    parts = [rng.random((1, 3, 1, 1), np.float32) for _ in range(4)]
    whole = [np.ascontiguousarray(np.broadcast_to(p, x.shape)) for p in parts]
    assert dml.batch_normalization(x, *parts).tobytes() == dml.batch_normalization(x, *whole).tobytes()
    assert len(kernels.used) == 3


def test_layouts(kernels):
    """Strided, turned, reversed and repeated inputs; an output of a device through strides."""
    x = np.random.default_rng(3).standard_normal((40, 60)).astype(np.float32)
    for view in (
        x.T,
        x[::2, ::-1],
        x[:, ::3],
        np.broadcast_to(x[0], (8, 60)),
        np.broadcast_to(x[:, :1], (40, 9)),
    ):
        for function in ("SUM", "MAX", "LOG_SUM_EXP"):
            got, wanted = both(kernels, dml.reduce, view, function, [1])
            np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_threads_give_the_same_bits(kernels):
    kernels(True)
    x = np.random.default_rng(4).standard_normal((300, 700)).astype(np.float32)
    tensors = {"DataType": "FLOAT32", "Sizes": [300, 700]}
    desc = {
        "Type": "REDUCE",
        "Desc": {
            "Function": "SUM",
            "InputTensor": tensors,
            "OutputTensor": {"DataType": "FLOAT32", "Sizes": [300, 1]},
            "Axes": [1],
        },
    }
    found = []
    for threads in (1, 2, 3):
        device = dml.Device(threads=threads)
        y = np.zeros(300, np.float32)
        device.compile_operator(device.create_operator(desc)).dispatch(
            {"InputTensor": x}, {"OutputTensor": y}
        )
        found.append(y)
    assert all(np.array_equal(y, found[0]) for y in found)
