"""Gradients of maxima, and Adam, by kernels: what their definitions give, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors, heavy
from tests.runtime.test_window_kernels import random_window

RNG = np.random.default_rng(5)


def drawn(*sizes, dtype=np.float32):
    return RNG.standard_normal(sizes).astype(dtype)


@pytest.fixture
def both(monkeypatch):
    """The same call by kernels and by the definition."""

    def run(function, *args, **kwargs):
        found = []
        for least in (1, 1 << 60):
            monkeypatch.setattr(heavy, "MIN_ELEMENTS", least)
            eager_tensors.forget()
            found.append([function(*args, **kwargs) for _ in range(2)][-1])
        return found

    return run


def same(one, other):
    for x, y in zip(one, other, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}"))


def pooled(x, window):
    """What arrives: of the sizes that pooling makes."""
    return drawn(*dml.max_pooling2(x, **window)[0].shape, dtype=x.dtype)


WINDOWS = [
    {"window_size": [2, 2], "strides": [2, 2]},
    {"window_size": [3, 3], "strides": [2, 2], "start_padding": [1, 1], "end_padding": [1, 1]},
    {"window_size": [3, 1], "strides": [1, 3]},
    {"window_size": [4, 4], "strides": [1, 1], "start_padding": [3, 0], "end_padding": [0, 3]},
    {"window_size": [2, 3], "strides": [4, 4], "dilations": [2, 1]},
]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("sizes", [(2, 3, 13, 17), (1, 1, 40, 64), (3, 20, 8, 8)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gradients_of_maxima(both, window, sizes, dtype):
    x = drawn(*sizes, dtype=dtype)
    received = pooled(x, window)
    same(*[[y] for y in both(dml.max_pooling_grad, x, received, **window)])


def test_the_first_of_several_maxima_and_nan(both):
    x = np.maximum(drawn(2, 4, 24, 24), 0).round()  # many are equal
    x[0, 0, 3, 5] = x[1, 2, 7, 7] = np.nan
    x[1, 1] = -np.inf
    for window in WINDOWS:
        same(*[[y] for y in both(dml.max_pooling_grad, x, pooled(x, window), **window)])


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(60))
def test_drawn_windows(both, seed):
    """Those of nothing but padding, too."""
    rng = np.random.default_rng(seed)
    window, sizes = random_window(rng, 2)
    x = drawn(int(rng.integers(1, 3)), int(rng.integers(1, 4)), *sizes)
    same(*[[y] for y in both(dml.max_pooling_grad, x, pooled(x, window), **window)])


def test_layouts(both):
    x, window = drawn(3, 24, 4, 30).transpose(0, 2, 1, 3)[..., ::2], WINDOWS[1]
    received = pooled(x, window)[..., ::-1]
    same(*[[y] for y in both(dml.max_pooling_grad, x, received, **window)])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("step", [1, 2, 1000])
@pytest.mark.parametrize(
    "told", [{}, {"beta1": 0.5, "beta2": 0.25, "epsilon": 0.0}, {"beta1": 0.0, "epsilon": 1.0}]
)
def test_adam(both, dtype, step, told):
    given = [drawn(1, 3, 40, 33, dtype=dtype) for _ in range(4)]
    given[2] = np.abs(given[2])
    number = np.full((1, 1, 1, 1), step, np.uint32)
    one, other = both(dml.adam_optimizer, *given, number, learning_rate=0.01, **told)
    same(one, other)


def test_adam_in_place_and_in_a_graph():
    given = [drawn(1, 2, 20, 33) for _ in range(4)]
    given[2] = np.abs(given[2])
    number = np.ones((1, 1, 1, 1), np.uint32)
    wanted = dml.adam_optimizer(*given, number, learning_rate=0.1)
    own = [x.copy() for x in given]
    dml.adam_optimizer(*own, number, learning_rate=0.1, out=tuple(own[:3]))
    same(own[:3], wanted)


@pytest.mark.parametrize("window", WINDOWS)
def test_compiled(window):
    """Dispatches of a graph, again and again, on other contents: as functions, which have no launch recorded."""
    sizes = (2, 3, 13, 20)
    first = pooled(drawn(*sizes), window)
    builder = dml.GraphBuilder()
    x, received = (builder.input(n, "float32", s) for n, s in (("x", sizes), ("received", first.shape)))
    compiled = builder.compile({"y": dml.max_pooling_grad(x, received, **window)})
    arrays = {"x": drawn(*sizes), "received": first}
    y = np.empty(sizes, np.float32)
    binding = compiled.bind(arrays, {"y": y})
    for _ in range(3):
        arrays["x"][...], arrays["received"][...] = drawn(*sizes), drawn(*first.shape)
        binding.dispatch()
        same([y], [dml.max_pooling_grad(arrays["x"], arrays["received"], **window)])


def test_steps_that_count():
    """Functions and graphs look at the number of the step each time."""
    given = [drawn(1, 2, 40, 33) for _ in range(4)]
    given[2] = np.abs(given[2])
    number = np.ones((1, 1, 1, 1), np.uint32)
    builder = dml.GraphBuilder()
    names = ("parameters", "first", "second", "gradient")
    inputs = [builder.input(n, "float32", x.shape) for n, x in zip(names, given, strict=True)]
    step = builder.input("step", "uint32", (1, 1, 1, 1))
    made = dml.adam_optimizer(*inputs, step, learning_rate=0.1)
    compiled = builder.compile({"parameters_": made[0], "first_": made[1], "second_": made[2]})
    fed = dict(zip(names, given, strict=True)) | {"step": number}
    results = {f"{n}_": np.empty_like(given[0]) for n in names[:3]}
    binding = compiled.bind(fed, results)
    found = []
    for count in (1, 2, 3, 1000, 1):
        number[...] = count
        found.append(dml.adam_optimizer(*given, number, learning_rate=0.1))
        binding.dispatch()
        same(list(results.values()), found[-1])
    assert (found[0][0] != found[3][0]).any()
    same(found[0], found[4])


def test_memory_that_others_may_not_read():
    """Gradients, and what they are of, end with their pages."""
    from tests.robustness.guard_memory import Memory

    memory, window = Memory(), WINDOWS[1]
    x = drawn(2, 3, 20, 24)
    received = pooled(x, window)
    wanted = dml.max_pooling_grad(x, received, **window)
    for at_end in (True, False):
        held = []
        for array in (x, received, wanted):
            place = memory.take(array.nbytes, at_end=at_end)
            one = place.window[place.start : place.start + array.nbytes].view(np.float32).reshape(array.shape)
            one[...] = array
            held.append(one)
        held[2][...] = 0
        dml.max_pooling_grad(held[0], held[1], **window, out=held[2])
        same([held[2]], [wanted])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("function", [dml.batch_normalization_grad, dml.batch_normalization_training_grad])
def test_batch_gradients(both, function, axis, dtype):
    """Of sums in another order, in FLOAT64: what is rounded in the end is nearly always the same."""
    sizes = (3, 5, 4, 24)
    x, received = drawn(*sizes, dtype=dtype) + dtype(2), drawn(*sizes, dtype=dtype)
    rest = tuple(k for k in range(4) if k != axis)
    mean, variance = (f(x.astype(np.float32), rest, keepdims=True).astype(dtype) for f in (np.mean, np.var))
    scale = drawn(*mean.shape, dtype=dtype)
    one, other = both(function, x, received, mean, variance, scale, epsilon=0.01)
    for a, b in zip(one, other, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6 if dtype is np.float32 else 2e-3, atol=1e-7)
    turned = x.transpose(3, 2, 1, 0).copy().transpose(3, 2, 1, 0)
    again = function(turned, received, mean, variance, scale, epsilon=0.01)
    for a, b in zip(again, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6 if dtype is np.float32 else 2e-3, atol=1e-7)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_batches_in_training(both, axis, added, dtype):
    """The order of sums is another one, in FLOAT64."""
    x = drawn(4, 5, 6, 20, dtype=dtype)
    x = np.concatenate([x, x[:, :, ::-1] + 300], axis=2)
    scale, bias = (drawn(*(n if k == axis else 1 for k, n in enumerate(x.shape)), dtype=dtype) for _ in "ab")
    for given in (x, np.asfortranarray(x)):
        more = drawn(*x.shape, dtype=dtype) if added else None
        one, other = both(
            dml.batch_normalization_training, given, scale, bias, more, epsilon=1e-3, fused_activation="RELU"
        )
        for y, right in zip(one, other, strict=True):
            assert y.dtype == right.dtype == dtype
            rounding = 2e-3 if dtype == np.float16 else 1e-6
            np.testing.assert_allclose(y, right, rtol=rounding, atol=rounding, strict=True)
