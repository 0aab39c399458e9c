"""Results that fit into float32 though what lies between does not: squares, differences, sums and powers.

The oracle computes in longdouble, whose exponents have 15 bits, by loops and formulas of its own.
"""

import math

import numpy as np
import pytest

import anydml as dml
from anydml import eager_tensors, heavy

RNG = np.random.default_rng(3)
SCALES = [1e-40, 1e-30, 1e-20, 1.0, 1e20, 1e30, 3e38]
by_both_ways = pytest.mark.parametrize("kernels", [False, True], ids=["definition", "kernel"])
each_scale = pytest.mark.parametrize("scale", SCALES)
wide = np.longdouble


@pytest.fixture(autouse=True)
def way(request, monkeypatch):
    parameters = getattr(request.node, "callspec", None)
    by_kernels = parameters is not None and parameters.params.get("kernels")
    least = 1 if by_kernels else 1 << 62
    monkeypatch.setattr(heavy, "MIN_ELEMENTS", least)
    eager_tensors.forget()
    yield
    eager_tensors.forget()


def drawn(scale, *sizes):
    """Of both signs, the largest of them as large as the scale."""
    x = RNG.uniform(-1, 1, sizes)
    return (x / abs(x).max() * scale).astype(np.float32)


def close(got, wanted):
    """A few units of the last place of the largest, and of subnormal numbers."""
    wanted = np.asarray(wanted)
    assert np.isfinite(wanted.astype(np.float32)).all(), "the oracle's result must fit"
    limit = 4e-7 * abs(wanted).max() + wide(2e-45)
    assert got.shape == wanted.shape
    assert (abs(got.astype(wide) - wanted) <= limit).all(), (got, wanted)


# ---- normalizations ------------------------------------------------------------------------------------


def normalized(x, axes, mean=True):
    y = x.astype(wide)
    y = y - y.mean(axes, keepdims=True) if mean else y
    return y / np.sqrt((y * y).mean(axes, keepdims=True))


@by_both_ways
@each_scale
@pytest.mark.parametrize("mean", [True, False])
def test_mean_and_variance(scale, mean, kernels):
    x, epsilon = drawn(scale, 3, 40), 0.0
    got = dml.mean_variance_normalization2(x, axes=[1], use_mean=mean, use_variance=True, epsilon=epsilon)
    close(got, normalized(x, 1, mean))


@by_both_ways
@pytest.mark.parametrize("factor", [1e-10, 1e10])
@pytest.mark.parametrize("axes", [[0], [1]])
def test_large_values_times_a_scale(axes, factor, kernels):
    x, each = drawn(1e30, 30, 30), np.full((30, 30), factor, np.float32)
    bias = drawn(factor, 30, 30)
    got = dml.mean_variance_normalization1(x, each, bias, axes=axes, normalize_variance=True, epsilon=0.0)
    close(got, normalized(x, axes[0]) * each + bias)


@by_both_ways
@each_scale
@pytest.mark.parametrize("activation", [None, "ACTIVATION_TANH"])
def test_batches(scale, activation, kernels):
    x, mean = drawn(scale, 2, 3, 4, 5), -drawn(scale, 1, 3, 1, 1)
    variance = np.full((1, 3, 1, 1), min(scale * scale, 3e38), np.float32)
    bias = drawn(1, 1, 3, 1, 1)
    epsilon = 1e-38
    factor = 1 / np.sqrt(variance.astype(wide) + wide(np.float32(epsilon)))
    each = (0.5 / abs(factor * scale)).astype(np.float32)
    got = dml.batch_normalization(x, mean, variance, each, bias, epsilon=epsilon, fused_activation=activation)
    wanted = (x.astype(wide) - mean) * factor * each + bias
    close(got, wanted if activation is None else np.tanh(wanted))


@each_scale
def test_batches_in_training(scale):
    x, axes = drawn(scale, 4, 3, 5), (0, 2)
    each, bias = drawn(2, 1, 3, 1), drawn(2, 1, 3, 1)
    got, mean, _ = dml.batch_normalization_training(x, each, bias, epsilon=0.0)
    close(got, normalized(x, axes) * each + bias)
    close(mean, x.astype(wide).mean(axes, keepdims=True))


@each_scale
def test_gradients_of_batches(scale):
    x, gradient = drawn(scale, 4, 3, 5), drawn(1e-3, 4, 3, 5)
    mean = x.astype(wide).mean((0, 2), keepdims=True).astype(np.float32)
    variance = np.full((1, 3, 1), min(scale * scale, 3e38), np.float32)
    each = np.full((1, 3, 1), min(scale, 1), np.float32)
    epsilon = np.float32(1e-38)
    given = (x, gradient, mean, variance, each)
    inverse = 1 / np.sqrt(variance.astype(wide) + epsilon)
    gradient, each = gradient.astype(wide), each.astype(wide)
    centred = x.astype(wide) - mean
    of_scale = (gradient * centred * inverse).sum((0, 2), keepdims=True)
    plain = dml.batch_normalization_grad(*given, epsilon=float(epsilon))
    close(plain[0], gradient * each * inverse)
    close(plain[1], of_scale)
    trained = dml.batch_normalization_training_grad(*given, epsilon=float(epsilon))
    rest = gradient - gradient.mean((0, 2), dtype=wide, keepdims=True) - centred * of_scale * inverse / 20
    close(trained[0], each * inverse * rest)


@by_both_ways
@each_scale
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1])
def test_norms(scale, axis, p, kernels):
    x = drawn(scale, 20, 30)
    size = abs(x.astype(wide))
    norm = size.sum(axis, keepdims=True) if p == 1 else np.sqrt((size * size).sum(axis, keepdims=True))
    close(dml.lp_normalization(x, axis=axis, p=p, epsilon=0.0), x / norm)


def region(x, channel):
    """Sums of the squares of three channels."""
    first, last = max(channel - 1, 0), min(channel + 2, x.shape[1])
    return (x[:, first:last].astype(wide) ** 2).sum(1)


@each_scale
def test_neighbours(scale):
    x, alpha, beta = drawn(scale, 1, 5, 2, 3), 0.3, 0.5
    got = dml.local_response_normalization(
        x, cross_channel=True, local_size=3, alpha=alpha, beta=beta, bias=0.0
    )
    divisor = np.stack([region(x, k) for k in range(5)], 1) * wide(np.float32(alpha)) / 3
    close(got, x / divisor ** wide(beta))


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e20, 1e30])
def test_gradients_of_neighbours(scale):
    """Of one channel x / (alpha x^2)^(1/2), which is constant, and so only 0 but for what cancels."""
    x, gradient = drawn(scale, 1, 1, 2, 3), drawn(1, 1, 1, 2, 3)
    attributes = {"cross_channel": True, "local_size": 1, "alpha": 1.0, "beta": 0.5, "bias": 0.0}
    got = dml.local_response_normalization_grad(x, gradient, **attributes)
    assert (abs(got * x) <= 1e-6).all()


# ---- windows -------------------------------------------------------------------------------------------


def of_windows(x, function):
    """Windows of 2 x 3, one beside the other."""
    n, c, h, w = x.shape
    parts = x.astype(wide).reshape(n, c, h // 2, 2, w // 3, 3).transpose(0, 1, 2, 4, 3, 5)
    return function(parts.reshape(n, c, h // 2, w // 3, 6))


WINDOWS = {"window_size": [2, 3], "strides": [2, 3]}


@by_both_ways
@pytest.mark.parametrize("sign", [1, -1])
def test_averages(sign, kernels):
    x = sign * abs(drawn(3.4e38, 2, 3, 8, 9))
    got = dml.average_pooling(x, **WINDOWS, include_padding=False)
    close(got, of_windows(x, lambda parts: parts.mean(-1)))


@by_both_ways
@each_scale
@pytest.mark.parametrize("p", [1, 2, 3, 6, 7, 8, 300, 10**6, 2**32 - 1])
def test_norms_of_windows(scale, p, kernels):
    x = drawn(scale / 8, 2, 3, 8, 9)
    x[0, 0, :2, :3] = 0
    x[0, 1, :2, :3] = np.float32(scale / 1e5)

    def norm(parts):
        size = abs(parts)
        most = size.max(-1, keepdims=True)
        shares = np.divide(size, most, where=most > 0, out=np.zeros_like(size))
        return most[..., 0] * (shares ** wide(p)).sum(-1) ** (1 / wide(p))

    close(dml.lp_pooling(x, **WINDOWS, p=p), of_windows(x, norm))


def test_norms_of_windows_with_infinity_and_nan():
    x = np.ones((1, 1, 2, 9), np.float32)
    x[0, 0, 0, 0], x[0, 0, 1, 4], x[0, 0, 1, 5] = np.inf, np.nan, -np.inf
    for p in (2, 5, 300):
        found = dml.lp_pooling(x, **WINDOWS, p=p).ravel()
        assert np.isposinf(found[0])
        assert np.isnan(found[1])
        assert math.isclose(found[2], 6 ** (1 / p), rel_tol=1e-6)


def test_gradients_of_averages_that_cancel():
    gradient = np.array([3e38, 3e38, -3e38], np.float32).reshape(1, 1, 1, 3)
    got = dml.average_pooling_grad(
        gradient, output_sizes=[1, 1, 1, 3], window_size=[1, 3], start_padding=[0, 1], end_padding=[0, 1],
        include_padding=False,
    )  # fmt: skip
    first, second, last = (g / n for g, n in zip(gradient.ravel().astype(wide), (2, 3, 2), strict=True))
    close(got.ravel(), [first + second, first + second + last, second + last])


# ---- reductions ----------------------------------------------------------------------------------------


@by_both_ways
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("value", [1e-45, 1e-38, 1.0, 1e30, 3e38])
def test_logarithms_of_sums(value, axis, kernels):
    x = np.full((70, 70), value, np.float32)
    got = dml.reduce(x, "LOG_SUM", [axis])
    close(got, np.log(x.astype(wide).sum(axis, keepdims=True)))


@by_both_ways
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("function", ["AVERAGE", "L2"])
@each_scale
def test_means_and_lengths(scale, function, axis, kernels):
    x = drawn(scale / 16, 70, 70)
    total = x.astype(wide)
    wanted = total.mean(axis, keepdims=True)
    if function == "L2":
        wanted = np.sqrt((total * total).sum(axis, keepdims=True))
    close(dml.reduce(x, function, [axis]), wanted)
