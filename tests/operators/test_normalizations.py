"""Normalizations against formulas in float64 and onnxruntime; gradients against derivatives by complex steps.

The formulas are analytic, so that f(x + ih) is f(x) + ih f'(x): with a tiny h nothing cancels out.
"""

import math

import numpy as np
import pytest

import anydml as dml
from tests.onnx.ops.checking import computed

from .tensors import scattered

ROUNDING = {"float32": 0, "float16": 6e-4}
"""Of a result, beside what float32 on the way loses."""
every_float = pytest.mark.parametrize("dtype", ROUNDING)
every_seed = pytest.mark.parametrize("seed", range(8))
ACTIVATIONS = {
    None: lambda y: y,
    "ACTIVATION_RELU": lambda y: np.maximum(y, 0),
    "ACTIVATION_TANH": np.tanh,
    "ACTIVATION_LINEAR": lambda y: 0.5 * y - 2,
}


def activation(rng):
    """One to fuse, as an argument and as a function."""
    name = rng.choice(list(ACTIVATIONS))
    given = {"Type": name, "Desc": {"Alpha": 0.5, "Beta": -2}} if name == "ACTIVATION_LINEAR" else name
    return given, ACTIVATIONS[name]


def drawn(rng, shape, dtype, low=-3.0, high=3.0):
    return scattered(rng, rng.uniform(low, high, shape).astype(dtype))


def sizes(rng, rank=None):
    return tuple(map(int, rng.integers(1, 5, rank or rng.integers(1, 6))))


def repeated(rng, shape):
    """These sizes, some of them 1 instead."""
    return tuple(int(n) if rng.random() < 0.5 else 1 for n in shape)


def close(got, wanted, slack=1.0):
    """Equal but for rounding of the result's type, which is relative to the largest elements there are."""
    limit = slack * 1e-6 + ROUNDING[got.dtype.name]
    np.testing.assert_allclose(got.astype(float), wanted, rtol=limit, atol=limit * max(1, abs(wanted).max()))


def wide(*arrays):
    return [None if x is None else x.astype(float) for x in arrays]


def derivative(function, x, weights):
    """Of sum(weights * function(x)), for each element of x."""
    found = np.empty(x.shape)
    for at in np.ndindex(*x.shape):
        moved = x.astype(complex)
        moved[at] += 1e-30j
        found[at] = (weights * function(moved)).sum().imag / 1e-30
    return found


# ---- batches -------------------------------------------------------------------------------------------


def normalized(x, mean, variance, scale, bias, epsilon):
    return scale * (x - mean) / (variance + epsilon) ** 0.5 + bias


def trained(x, scale, bias, epsilon, axes):
    mean = x.mean(axes, keepdims=True)
    variance = ((x - mean) * (x - mean)).mean(axes, keepdims=True)
    return normalized(x, mean, variance, scale, bias, epsilon), mean, variance


@every_float
@every_seed
def test_batch_normalization(seed, dtype):
    rng = np.random.default_rng([21, seed])
    shape, epsilon = sizes(rng), float(rng.choice([0, 1e-5, 0.5]))
    x, mean, scale, bias = (drawn(rng, s, dtype) for s in (shape, *(repeated(rng, shape) for _ in range(3))))
    variance = drawn(rng, repeated(rng, shape), dtype, 0.1, 4)
    fused, function = activation(rng)
    for spatial in (True, False):
        y = dml.batch_normalization(x, mean, variance, scale, bias, spatial, epsilon, fused)
        assert (y.dtype, y.shape) == (dtype, shape)
        close(y, function(normalized(*wide(x, mean, variance, scale, bias), epsilon)), 4)


def test_batch_normalization_is_that_of_onnxruntime():
    rng = np.random.default_rng(22)
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    scale, bias, mean = rng.normal(size=(3, 3)).astype(np.float32)
    variance = rng.uniform(0.1, 4, 3).astype(np.float32)
    wanted = computed("BatchNormalization", [x, scale, bias, mean, variance], 15, epsilon=1e-3)[0]
    channels = (v.reshape(1, 3, 1, 1) for v in (mean, variance, scale, bias))
    close(dml.batch_normalization(x, *channels, epsilon=1e-3), wanted)


@every_float
@every_seed
def test_batch_normalization_training(seed, dtype):
    rng = np.random.default_rng([23, seed])
    shape, epsilon = sizes(rng), float(rng.choice([1e-5, 0.5]))
    channels = repeated(rng, shape)
    axes = tuple(k for k, n in enumerate(channels) if n == 1)
    x, scale, bias = drawn(rng, shape, dtype), drawn(rng, channels, dtype), drawn(rng, channels, dtype)
    added = drawn(rng, shape, dtype) if rng.random() < 0.5 else None
    fused, function = activation(rng)
    y, *rest = dml.batch_normalization_training(x, scale, bias, added, epsilon, fused)
    wanted, *others = trained(*wide(x, scale, bias), epsilon, axes)
    close(y, function(wanted + (0 if added is None else added.astype(float))), 20)
    for got, exact in zip(rest, others, strict=True):
        assert (got.dtype, got.shape) == (dtype, channels)
        close(got, exact)


@every_float
@every_seed
@pytest.mark.parametrize("training", [False, True])
def test_batch_normalization_gradients(training, seed, dtype):
    """Of all three: input, scale and bias. In training the mean and the variance follow the input."""
    rng = np.random.default_rng([24, seed])
    shape, epsilon = sizes(rng), float(rng.choice([1e-3, 0.5]))
    channels = repeated(rng, shape)
    axes = tuple(k for k, n in enumerate(channels) if n == 1)
    x, dy, scale = drawn(rng, shape, dtype), drawn(rng, shape, dtype), drawn(rng, channels, dtype)
    if training:
        mean, variance = (v.astype(dtype) for v in trained(x.astype(float), 1, 0, epsilon, axes)[1:])
        gradients = dml.batch_normalization_training_grad(x, dy, mean, variance, scale, epsilon)
    else:
        mean, variance = drawn(rng, channels, dtype), drawn(rng, channels, dtype, 0.1, 3)
        gradients = dml.batch_normalization_grad(x, dy, mean, variance, scale, epsilon)
    a, b, m, v, s = wide(x, dy, mean, variance, scale)
    by_input = [lambda x: normalized(x, m, v, s, 0, epsilon), lambda x: trained(x, s, 0, epsilon, axes)[0]]
    wanted = [
        derivative(by_input[training], a, b),
        derivative(lambda s: normalized(a, m, v, s, 0, epsilon), s, b),
        derivative(lambda bias: normalized(a, m, v, s, bias, epsilon), np.zeros(channels), b),
    ]
    for got, exact in zip(gradients, wanted, strict=True):
        assert (got.dtype, got.shape) == (dtype, exact.shape)
        close(got, exact, 3000 if training and dtype == "float16" else 20)  # a mean that was rounded before


# ---- means and variances -------------------------------------------------------------------------------


def over(x, axes, use_mean, use_variance, scale, bias, epsilon):
    y = x - x.mean(axes, keepdims=True) if use_mean else x
    if use_variance:
        y = y / np.sqrt((y * y).mean(axes, keepdims=True) + epsilon)
    return y * (1 if scale is None else scale) + (0 if bias is None else bias)


@every_float
@pytest.mark.parametrize("seed", range(24))
def test_mean_variance_normalizations(seed, dtype):
    """All three, of any axes, with a scale and a bias of any sizes that repeat, or without."""
    rng = np.random.default_rng([25, seed])
    kind = seed % 3
    shape, epsilon = sizes(rng, 4 if kind == 0 else None), float(rng.choice([1e-5, 0.5]))
    x, (fused, function) = drawn(rng, shape, dtype), activation(rng)
    scale, bias = (drawn(rng, repeated(rng, shape), dtype) if rng.random() < 0.6 else None for _ in "ab")
    use_mean, use_variance, wide_axes = map(bool, rng.integers(0, 2, 3))
    rest = {"epsilon": epsilon, "fused_activation": fused}
    if kind == 0:
        axes, use_mean = ((1, 2, 3) if wide_axes else (2, 3)), True
        how = {"cross_channel": wide_axes, "normalize_variance": use_variance}
        y = dml.mean_variance_normalization(x, scale, bias, **how, **rest)
    else:
        axes = tuple(map(int, rng.permutation(len(shape))[: rng.integers(0, len(shape) + 1)]))
        if kind == 1:
            use_mean, how = True, {"axes": list(axes), "normalize_variance": use_variance}
            y = dml.mean_variance_normalization1(x, scale, bias, **how, **rest)
        else:
            how = {"axes": list(axes), "use_mean": use_mean, "use_variance": use_variance}
            y = dml.mean_variance_normalization2(x, scale, bias, **how, **rest)
    assert (y.dtype, y.shape) == (dtype, shape)
    a, s, b = wide(x, scale, bias)
    close(y, function(over(a, axes, use_mean, use_variance, s, b, epsilon)), 20)


@pytest.mark.parametrize("length", [6, 300])
def test_mean_variance_normalizations_are_those_of_onnxruntime(length):
    """Small, and large enough for a kernel."""
    rng = np.random.default_rng(26)
    x = rng.normal(3, 2, size=(2, 3, 10, length)).astype(np.float32)
    scale, bias = rng.normal(size=(2, 10, length)).astype(np.float32)
    how = {"axes": [2, 3], "epsilon": 1e-3}
    last = scale[None, None], bias[None, None]
    wanted = computed("LayerNormalization", [x, scale, bias], 17, axis=2, epsilon=1e-3)[0]
    close(dml.mean_variance_normalization1(x, *last, normalize_variance=True, **how), wanted, 4)
    for use_mean, bias_there in ((True, last[1]), (False, None)):
        op = "LayerNormalization" if use_mean else "RMSNormalization"
        given = [x, scale, bias] if use_mean else [x, scale]
        wanted = computed(op, given, 17 if use_mean else 23, axis=2, epsilon=1e-3)[0]
        how_much = {"use_mean": use_mean, "use_variance": True}
        close(dml.mean_variance_normalization2(x, last[0], bias_there, **how, **how_much), wanted, 4)
    channels = [v[0, :3].copy() for v in (scale, bias)]
    wanted = computed("InstanceNormalization", [x, *channels], 6, epsilon=1e-3)[0]
    a, b = (v.reshape(1, 3, 1, 1) for v in channels)
    made = dml.mean_variance_normalization(
        x, a, b, cross_channel=False, normalize_variance=True, epsilon=1e-3
    )
    close(made, wanted, 4)


def test_what_is_far_from_0_keeps_its_variance():
    """The variance is that of what is left of the mean, not the difference of two large numbers."""
    x = np.float32([[4096, 4097, 4098, 4099]])
    y = dml.mean_variance_normalization1(x, axes=[1], normalize_variance=True, epsilon=0.0)
    close(y, np.array([[-1.5, -0.5, 0.5, 1.5]]) / math.sqrt(1.25))
    y, mean, variance = dml.batch_normalization_training(x, np.float32([[2]]), np.float32([[1]]), epsilon=0.0)
    close(y, 2 * np.array([[-1.5, -0.5, 0.5, 1.5]]) / math.sqrt(1.25) + 1)
    assert (mean.item(), variance.item()) == (4097.5, 1.25)


# ---- neighbours ----------------------------------------------------------------------------------------


def local(x, cross_channel, size, alpha, beta, bias):
    """By a loop over the region: of an even size the element more lies behind."""
    region = [range(-((size - 1) // 2), size // 2 + 1)] * 2
    sums = np.zeros(x.shape, x.dtype)
    for at in np.ndindex(*x.shape):
        n, c, h, w = at
        moves = (
            [(i, 0, 0) for i in region[0]]
            if cross_channel
            else [(0, i, j) for i in region[0] for j in region[1]]
        )
        for i, j, k in moves:
            there = (c + i, h + j, w + k)
            if all(0 <= p < m for p, m in zip(there, x.shape[1:], strict=True)):
                sums[at] += x[(n, *there)] ** 2
    return x / (bias + alpha / size * sums) ** beta


LOCAL = [(c, size) for c in (True, False) for size in (1, 2, 3, 4, 9)]


@every_float
@pytest.mark.parametrize(("cross_channel", "size"), LOCAL)
def test_local_response_normalization_and_its_gradient(cross_channel, size, dtype):
    rng = np.random.default_rng([27, size, cross_channel])
    for shape in [(1, 1, 1, 1), (2, 5, 1, 1), (1, 2, 3, 4)]:
        x, dy = drawn(rng, shape, dtype), drawn(rng, shape, dtype)
        values = rng.uniform(0.2, 2), float(rng.choice([0.5, 0.75, 1, 2])), rng.uniform(0.5, 2)
        given = cross_channel, size, *map(float, values)
        a, b = wide(x, dy)
        close(dml.local_response_normalization(x, *given), local(a, *given), 4)
        wanted = derivative(lambda v, given=given: local(v, *given), a, b)
        close(dml.local_response_normalization_grad(x, dy, *given), wanted, 10)


@pytest.mark.parametrize("size", [1, 3, 5, 2**31 + 1])
def test_local_response_normalization_is_that_of_onnxruntime(size):
    x = np.random.default_rng(28).normal(size=(2, 7, 3, 2)).astype(np.float32)
    y = dml.local_response_normalization(x, True, size, 0.3, 0.75, 1.5)
    same = size if size < 100 else 15  # all channels
    alpha = 0.3 * same / size
    close(y, computed("LRN", [x], 13, size=same, alpha=alpha, beta=0.75, bias=1.5)[0])
    many = dml.local_response_normalization(np.full((1, 1, 3, 2), 2, np.float32), False, size, 3.0, 1.0, 0.5)
    if size > 5:
        np.testing.assert_allclose(many, 2 / (0.5 + 3 / size * 24))


# ---- norms ---------------------------------------------------------------------------------------------


@every_float
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p, dtype):
    rng = np.random.default_rng([29, p])
    for shape, axis in [((5,), 0), ((1, 1), 1), ((3, 4), 0), ((2, 3, 4), 1), ((2, 1, 2, 1, 2, 1, 2, 3), 6)]:
        for epsilon in (1e-5, 3.0):
            x = drawn(rng, shape, dtype)
            norm = (abs(x.astype(float)) ** p).sum(axis, keepdims=True) ** (1 / p)
            close(dml.lp_normalization(x, axis, epsilon, p), x.astype(float) / np.maximum(norm, epsilon))
        if dtype == "float32":
            close(dml.lp_normalization(x, axis, p=p), computed("LpNormalization", [x], 1, axis=axis, p=p)[0])
    zeros = dml.lp_normalization(np.zeros((2, 3), dtype), 1, 1e-5, p)
    assert not zeros.any()
