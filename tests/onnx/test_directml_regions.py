"""Convolutions of a DirectML graph that follow each other are run together, with the same results."""

import pickle
from functools import partial

import numpy as np
import pytest

import anydml as dml
from anydml import heavy
from anydml.onnx.from_directml import magnitudes


@pytest.fixture
def small(monkeypatch):
    """Convolutions of any size are worth the library."""
    monkeypatch.setattr(heavy, "WORTH", 1)


def values(*sizes):
    return np.random.default_rng(sum(sizes)).standard_normal(sizes).astype(np.float32)


def convolved(x, channels, activation=None):
    filters = values(channels, x.sizes[1], 3, 3) / 9
    bias = values(1, channels, 1, 1)
    return dml.convolution(x, filters, bias, start_padding=1, end_padding=1, fused_activation=activation)


def built(feed):
    """conv -> add -> gelu (which stays outside) -> conv, and a branch that meets both sides."""
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", feed.shape)
    a = convolved(x, 4, "RELU")
    b = convolved(a, 4) + a
    c = dml.max_pooling(b, window_size=2, strides=2)
    outside = dml.activation_gelu(c)
    d = convolved(outside, 3)
    e = dml.average_pooling(a * 2, window_size=2, strides=2, include_padding=False)
    joined = dml.join([c, e], axis=1)
    return g.compile({"d": d, "joined": joined, "a": a, "sum": dml.reduce(joined, "SUM", [2, 3])})


def test_results_are_the_same(small, monkeypatch):
    feed = values(2, 3, 8, 8)
    graph = built(feed)
    assert "CONVOLUTION x 2" in graph.explain()
    got = graph({"x": feed})
    monkeypatch.setattr(heavy, "WORTH", 1 << 60)
    plain = built(feed)
    assert "onnxruntime" not in plain.explain()
    for name, wanted in plain({"x": feed}).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-5, atol=1e-5)


def test_bound_pickled_and_again(small):
    feed = values(2, 3, 8, 8)
    graph = built(feed)
    wanted = graph({"x": feed})
    again = pickle.loads(pickle.dumps(graph))
    outputs = {name: np.zeros_like(y) for name, y in wanted.items()}
    bound = again.bind({"x": feed}, outputs)
    for factor in (1, 2, 1):
        feed *= factor
        bound.dispatch()
    bound.dispatch()
    fresh = graph({"x": feed})
    for name, y in outputs.items():
        np.testing.assert_array_equal(y, fresh[name])


def test_a_region_never_needs_what_others_make_of_it(small):
    """conv -> gelu -> add with the conv: the addition waits for gelu, and is of the region behind it."""
    feed = values(1, 2, 6, 6)
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", feed.shape)
    a = convolved(convolved(x, 2), 2)
    b = dml.activation_gelu(a) + a
    c = convolved(convolved(b, 2), 2)
    graph = g.compile({"c": c})
    told = graph.explain()
    assert told.count(": onnxruntime: ") == 2
    want = feed
    for _ in range(2):
        want = eager(want)
    want = np.asarray(dml.activation_gelu(want)) + want
    for _ in range(2):
        want = eager(want)
    np.testing.assert_allclose(graph({"x": feed})["c"], want, rtol=1e-4, atol=1e-4)


def eager(x):
    filters = values(2, 2, 3, 3) / 9
    return dml.convolution(x, filters, values(1, 2, 1, 1), start_padding=1, end_padding=1)


def test_policies_and_other_types_stay_outside(small):
    feed = values(1, 2, 6, 6)
    g = dml.GraphBuilder(tensor_policy="INTERLEAVED_CHANNEL")
    x = g.input("x", "FLOAT32", feed.shape)
    graph = g.compile({"y": convolved(convolved(x, 2), 2)})
    assert "onnxruntime" not in graph.explain()
    half = dml.GraphBuilder()
    z = half.input("x", "FLOAT16", feed.shape)
    f = (values(2, 2, 3, 3) / 9).astype(np.float16)
    made = half.compile({"y": dml.convolution(dml.convolution(z, f), f)})
    assert made({"x": feed.astype(np.float16)})["y"].dtype == np.float16


def test_sizes_are_those_that_nodes_see(small):
    """A node may see a tensor with more dimensions than it was made with."""
    feed, w, r = values(3, 2, 4), values(1, 1, 9, 4), values(1, 1, 9, 3)
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", feed.shape)
    _, last = dml.gru(x.reinterpret([1, 3, 2, 4]), w, r)
    image = dml.convolution(last.reinterpret([2, 3]).reinterpret([1, 1, 2, 3]), values(1, 1, 2, 2))
    made = g.compile({"y": image})({"x": feed})["y"]
    wanted = dml.convolution(dml.gru(feed[np.newaxis], w, r)[1], values(1, 1, 2, 2))
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


POOLS = [dml.max_pooling, lambda *a, **k: dml.max_pooling2(*a, **k)[0]]


def with_a_maximum(pool, sizes, before):
    """Two convolutions, `before`, a maximum, two convolutions, all of them by 1."""
    one = np.ones((1, 1, 1, 1), np.float32)
    g = dml.GraphBuilder()
    seen = before(dml.convolution(dml.convolution(g.input("x", "FLOAT32", sizes), one), one))
    most = pool(seen, [3, 3], strides=2, start_padding=1, end_padding=1)
    return g.compile({"y": dml.convolution(dml.convolution(most, one), one)})


def maxima(x):
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    return windows.max((4, 5))


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_maxima_of_everything(small, pool, odd):
    """A NaN is the maximum of its window; the library passes over it, and over -infinity beside padding."""
    x = values(1, 1, 9, 9)
    graph = with_a_maximum(pool, x.shape, lambda y: y)
    assert ": onnxruntime: CONVOLUTION x 4, MAX_POOLING" in graph.explain()
    y = np.empty((1, 1, 5, 5), np.float32)
    bound = graph.bind({"x": x}, {"y": y})
    for value in (1, odd, 2):
        x[0, 0, 4, 5], x[0, 0, :3, :3] = value, -value
        wanted = maxima(x)
        np.testing.assert_array_equal(graph({"x": x})["y"], wanted)
        bound.dispatch()
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("pool", POOLS)
def test_maxima_of_what_may_be_nan_stand_between_regions(small, pool):
    x, zero, one = values(1, 1, 9, 9), np.zeros((1, 1, 9, 9), np.float32), np.ones((1, 1, 9, 9), np.float32)
    variance = values(1, 1, 9, 9)  # below 0 as often as not

    def normalized(y):
        return dml.batch_normalization(y, zero, variance, one, zero, spatial=False, epsilon=0.0)

    graph = with_a_maximum(pool, x.shape, normalized)
    assert graph.explain().count(": onnxruntime: CONVOLUTION x 2") == 2
    wanted = maxima(normalized(x))
    assert np.isnan(wanted).any()
    np.testing.assert_allclose(graph({"x": x})["y"], wanted, rtol=1e-6)


def steps(rng):
    """Operators before a maximum, as functions of expressions and of arrays alike."""
    for kind in rng.integers(0, 7, rng.integers(1, 6)):
        w = np.ones((2, 2, 3, 3), np.float32)  # alike, so that inputs of one sign reach the most there is
        (w if rng.integers(2) else w.swapaxes(0, 1))[rng.integers(2)] *= 8
        b = np.float32(rng.choice([-1, 1], (1, 2, 1, 1)) * rng.choice([1, 2000]))
        low, high = [(-5000.0, -3000.0), (3000.0, 5000.0), (-5.0, 2.0**39)][rng.integers(3)]
        way, alpha = rng.choice(["FORWARD", "BACKWARD"]), float(rng.choice([0.25, -3.0]))
        yield (
            partial(dml.convolution, filter=w, bias=b, start_padding=1, end_padding=1, direction=way),
            lambda y: dml.add(y, y),
            partial(dml.multiply, np.full((1, 2, 6, 6), 8 * rng.standard_normal(), np.float32)),
            partial(dml.activation_leaky_relu, alpha=alpha),
            partial(dml.clip, min=low, max=high),
            dml.activation_relu,
            partial(dml.max_pooling, window_size=[3, 3], start_padding=1, end_padding=1),
        )[kind]


def test_limits_of_inputs(monkeypatch):
    """Within the magnitude that is found no value is beyond the limit; far above it, some are."""
    monkeypatch.setattr(magnitudes, "LIMIT", most := 2.0**13)
    monkeypatch.setattr(magnitudes, "EXPONENTS", range(13, -20, -1))
    beyond = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        g = dml.GraphBuilder()
        made, todo = g.input("x", "FLOAT32", [1, 2, 6, 6]), list(steps(rng))
        for step in todo:
            made = step(made)
        graph = g.compile({"y": dml.max_pooling(made, [2, 2])})._graph
        limit = magnitudes.largest_input(graph.nodes, graph.constants, graph.nodes[-1:])
        x = rng.choice([-1.0, 1.0], (1, 2, 6, 6))
        for signs in (x, np.abs(x), -np.abs(x)):
            for factor in (1, 2.0**16):
                y, largest = (signs * limit * factor).astype(np.float32), []
                for step in todo:
                    y = step(y)
                    largest.append(np.abs(y).max())
                assert max(largest) <= most or factor > 1 or not limit
            beyond += max(largest) > most
    assert beyond > 120


def test_several_regions(small):
    """What one region makes another one takes, along with what a third one made."""
    feed = values(1, 2, 6, 6)
    g = dml.GraphBuilder()
    a = g.input("x", "FLOAT32", feed.shape)
    made = []
    for _ in range(3):
        made.append(convolved(convolved(a, 2), 2, "RELU"))
        a = dml.activation_gelu(made[-1])
    joined = dml.join([made[0], a, made[1]], axis=1)
    graph = g.compile({"y": convolved(convolved(joined, 2), 2), "first": made[0], "a": a})
    assert graph.explain().count(": onnxruntime: ") == 4
    wanted, of_all = feed, []
    for _ in range(3):
        of_all.append(np.maximum(eager(eager(wanted)), 0))
        wanted = dml.activation_gelu(of_all[-1])
    got = graph({"x": feed})
    np.testing.assert_allclose(got["first"], of_all[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["a"], wanted, rtol=1e-4, atol=1e-5)
    last = np.concatenate([of_all[0], wanted, of_all[1]], axis=1)
    filters = values(2, 6, 3, 3) / 9
    last = dml.convolution(last, filters, values(1, 2, 1, 1), start_padding=1, end_padding=1)
    np.testing.assert_allclose(got["y"], eager(last), rtol=1e-4, atol=1e-5)
