"""Graphs of small tensors: kernels from the first to the last, and nothing of Python between them."""

import numpy as np
import pytest

import anydml as dml
from anydml import heavy
from anydml.runtime.tensor_step import TensorStep

rng = np.random.default_rng(7)


def some(*sizes):
    return rng.standard_normal(sizes).astype(np.float32)


PADDED = {"start_padding": [1, 1], "end_padding": [1, 1]}


def layers(x):
    h = dml.gemm(x, some(1, 1, 6, 8), some(1, 1, 1, 8), fused_activation="ACTIVATION_RELU")
    return [dml.activation_softmax(dml.gemm(h, some(1, 1, 3, 8), trans_b="TRANSPOSE"))]


def convolutions(x):
    h = dml.convolution(x, some(4, 2, 3, 3), some(1, 4, 1, 1), fused_activation="ACTIVATION_RELU", **PADDED)
    h = dml.convolution(h, some(4, 1, 3, 3), group_count=4, strides=[2, 2], **PADDED)
    h = dml.convolution(h, some(6, 2, 1, 1), some(1, 6, 1, 1), group_count=2)
    return [dml.average_pooling(h, 2, False, **PADDED), dml.max_pooling(h, 2)]


def moved(x):
    one, two = dml.split(x, [1, 1], axis=1)
    joined = dml.join([two, one, one], axis=3)
    padded = dml.padding(joined, "REFLECTION", 0, start_padding=[0, 0, 1, 2], end_padding=[0, 0, 2, 1])
    seen = dml.slice(padded, [0, 0, 1, 1], [1, 1, 3, 9], [1, 1, 1, 2])
    places = np.uint32([[[[2, 0, 1]]]])
    return [dml.gather(seen, places, axis=3, index_dimensions=1), dml.tile(one, [1, 2, 1, 1])]


def normalized(x):
    by_channel, by_place = ([np.abs(some(*s)) for _ in range(4)] for s in ((1, 2, 1, 1), (1, 1, 5, 6)))
    h = dml.batch_normalization(x, *by_channel, spatial=True, epsilon=0.1)
    larger = dml.resample(x, interpolation_mode="LINEAR", scales=[1, 1, 2, 2])
    return [dml.batch_normalization(h, *by_place, spatial=False, epsilon=0.1), larger]


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (layers, (1, 1, 2, 6)),
        (convolutions, (1, 2, 6, 5)),
        (convolutions, (3, 2, 7, 7)),
        (moved, (1, 2, 4, 5)),
        (normalized, (1, 2, 5, 6)),
    ],
)
def test_small_graphs_are_kernels_alone(monkeypatch, make, sizes):
    """The same as by the definitions, run after run."""
    found = []
    inputs = [some(*sizes) for _ in range(3)]
    before = rng.bit_generator.state
    for least in (1, 1 << 60):
        monkeypatch.setattr(heavy, "MIN_ELEMENTS", least)
        rng.bit_generator.state = before
        g = dml.GraphBuilder()
        made = make(g.input("x", "FLOAT32", sizes))
        graph = g.compile({f"y{k}": y for k, y in enumerate(made)})
        x = inputs[0].copy()
        outputs = {n: np.empty(y.shape, y.dtype) for n, y in graph({"x": x}).items()}
        binding = graph.bind({"x": x}, outputs)
        results = []
        for content in inputs:
            x[...] = content
            binding.dispatch()
            results.append({n: y.copy() for n, y in outputs.items()})
        found.append(results)
        steps = [s for s in graph._plan.steps if isinstance(s, TensorStep)]
        assert steps
        assert all(s._may_be_launches for s in steps) == (least == 1)
    for ours, wanted in zip(*found, strict=True):
        for name, y in wanted.items():
            np.testing.assert_allclose(ours[name], y, rtol=1e-5, atol=2e-5, strict=True)
