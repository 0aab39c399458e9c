"""Nodes that keep all elements in their order go, or become one Reshape."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import anydml as dml

X = np.random.default_rng(0).standard_normal((2, 1, 3)).astype(np.float32)


def ran(text, opset=18, **feeds):
    """The nodes that were left, after the outputs were compared."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> m {text}')
    session = dml.load(model, threads=1)
    for _ in range(2):
        got = session.run(None, feeds)
    for a, b in zip(got, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert a.dtype == b.dtype
        assert not any(np.shares_memory(a, x) for x in feeds.values())
    return [line.split(": ")[1] for line in session.explain().splitlines()[1:] if ": " in line]


def test_a_chain_that_ends_as_it_began_goes():
    left = ran(
        """(float[2, 1, 3] x) => (float[a, b, c] y) <int64[1] one = {1}, int64[1] two = {2}> {
        a = Squeeze (x, one)  b = Unsqueeze (a, two)  c = Cast <to = 1> (b)  d = Squeeze (c, two)
        e = Unsqueeze (d, one)  y = Softmax (e) }""",
        x=X,
    )
    assert left == ["Softmax"]


def test_a_chain_becomes_one_reshape():
    left = ran(
        """(float[2, 1, 3] x) => (float[a, b] y) <int64[1] one = {1}, int64[2] s = {3, 2}> {
        a = Squeeze (x, one)  b = Flatten (a)  c = Reshape (b, s)  y = Softmax (c) }""",
        x=X,
    )
    assert left == ["Reshape, Softmax"]


@pytest.mark.parametrize("name", ["ReduceMean", "ReduceMax"])
def test_a_reduction_over_one_element(name):
    left = ran(
        f"(float[2, 1, 3] x) => (float[a, b] y) {{ y = {name} <axes = [1], keepdims = 0> (x) }}", 13, x=X
    )
    assert left == ["Reshape"]


def test_slices():
    """All of it; but not backwards."""
    start = "<int64[1] zero = {0}, int64[1] last = {-1}, int64[1] end = {9}, int64[1] before = {-9}>"
    assert ran(
        f"(float[3] x) => (float[a] y) {start} {{ a = Slice (x, zero, end)  y = Softmax (a) }}", x=X[0, 0]
    ) == ["Softmax"]
    left = ran(
        f"(float[3] x) => (float[a] y) {start} {{ a = Slice (x, last, before, zero, last)  y = Softmax (a) }}",
        x=X[0, 0],
    )
    assert left == ["Slice, Softmax"]


def test_what_changes_elements_stays():
    left = ran(
        """(float[2, 1, 3] x) => (float[a, b, c] y, int32[2, 1, 3] z) <int64[3] s = {2, 4, 3}> {
        a = Expand (x, s)  y = Softmax (a)  z = Cast <to = 6> (x) }""",
        x=X,
    )
    assert sorted(", ".join(left).split(", ")) == ["Cast", "Expand", "Softmax"]


def test_an_input_that_is_an_output_is_a_copy():
    assert (
        ran("(float[2, 3] x) => (float[2, 3] y) <int64[2] s = {2, 3}> { y = Reshape (x, s) }", x=X[:, 0])
        == []
    )
