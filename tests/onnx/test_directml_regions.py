"""Convolutions of a DirectML graph that follow each other are run together, with the same results."""

import pickle

import numpy as np
import pytest

import anydml as dml
from anydml import heavy


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


@pytest.mark.parametrize("pool", [dml.max_pooling, lambda *a, **k: dml.max_pooling2(*a, **k)[0]])
def test_maxima_stand_between_regions(small, pool):
    """A NaN is the maximum of its window; the library passes over it, and over -infinity beside padding."""
    x = values(1, 1, 9, 9)
    x[0, 0, 4, 5], x[0, 0, :3, :3] = np.nan, -np.inf
    one = np.ones((1, 1, 1, 1), np.float32)
    g = dml.GraphBuilder()
    seen = g.input("x", "FLOAT32", x.shape)
    before = dml.convolution(dml.convolution(seen, one), one)
    most = pool(before, [3, 3], strides=2, start_padding=1, end_padding=1)
    graph = g.compile({"y": dml.convolution(dml.convolution(most, one), one)})
    assert graph.explain().count(": onnxruntime: CONVOLUTION x 2") == 2
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(graph({"x": x})["y"], windows.max((4, 5)))


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
