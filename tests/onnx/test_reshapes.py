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


def test_what_works_element_by_element_moves_before_a_reshape():
    left = ran(
        """(float[2, 1, 3] x) => (float[a, b] y) <int64[2] s = {3, 2}, int64[1] all = {-1}> {
        a = Softmax (x)  b = Reshape (a, s)  c = Relu (b)  d = Sigmoid (c)  e = Reshape (d, all)
        f = Reshape (e, s)  y = Softmax (f) }""",
        x=X,
    )
    assert left == ["Softmax, Relu, Sigmoid, Reshape, Softmax"]


@pytest.mark.parametrize(
    ("perm", "shape", "left"),
    [
        ([1, 0, 2], (2, 1, 3), ["Reshape, Softmax"]),
        ([2, 0, 1], (1, 4, 1), ["Reshape, Softmax"]),
        ([1, 2, 0], (2, 1, 3), ["Transpose, Softmax"]),
        (None, (1, 1, 3), ["Reshape, Softmax"]),
        (None, (2, 1, 3), ["Transpose, Softmax"]),
    ],
)
def test_a_transpose_that_moves_only_ones(perm, shape, left):
    told = "" if perm is None else f"<perm = {perm}>"
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    text = f"(float{list(shape)} x) => (float[a, b, c] y) {{ a = Transpose {told} (x)  y = Softmax (a) }}"
    assert ran(text, x=x) == left


@pytest.mark.parametrize(
    ("axis", "sizes", "left"), [(0, [1, 1, 3], 1), (-1, [2, 1, 1], 1), (0, [3, 1, 1], 2)]
)
def test_an_axis_that_comes_back(axis, sizes, left):
    nodes = ran(
        f"""(float[2, 1, 3] x) => (float[a, b, c] y) <int64 k = {{1}}, int64[3] s = {{{str(sizes)[1:-1]}}}> {{
        g = Gather <axis = {axis}> (x, k)  r = Reshape (g, s)  y = Softmax (r) }}""",
        x=X,
    )
    assert nodes == ["Gather, Softmax" if left == 1 else "Gather, Reshape, Softmax"]


# ---- convolutions and norms --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "kernel", "told", "single"),
    [
        ((1, 4, 1), (3,), "pads = [1, 1]", True),
        ((1, 4, 2), (3,), "pads = [1, 1], strides = [2]", True),
        ((2, 4, 3), (3,), "", True),
        ((3, 4, 2, 3), (2, 3), "", True),
        ((3, 4, 2, 2), (3, 5), "pads = [0, 3, 1, 0]", True),
        ((1, 4, 3), (2,), "dilations = [2], strides = [2]", False),
        ((1, 4, 5), (3,), "strides = [3]", False),
        ((1, 4, 4), (3,), "pads = [1, 1]", False),
        ((1, 4, 1), (1,), 'auto_pad = "SAME_UPPER"', False),
    ],
)
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_of_one_position(sizes, kernel, told, single, bias):
    rng = np.random.default_rng(1)
    x = rng.standard_normal(sizes).astype(np.float32)
    w = rng.standard_normal((5, 4, *kernel)).astype(np.float32)
    b = rng.standard_normal(5).astype(np.float32)
    letters = ", ".join("nopq"[: len(sizes)])
    graph = onnx.parser.parse_graph(
        f"g (float{list(sizes)} x) => (float[{letters}] y) {{ c = Conv {told and f'<{told}>'} (x, w{', b' * bias})  y = Relu (c) }}"
    )
    graph.initializer.extend([onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    session = dml.load(model, threads=1)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, ReferenceEvaluator(model).run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)
    assert ("Gemm" in session.explain()) == single
    assert ("Conv" in session.explain()) != single


def test_weights_made_from_weights_are_shared_by_plans():
    graph = onnx.parser.parse_graph(
        "g (float[n, 4, 1] x) => (float[n, 5, 1] y) { y = Conv <pads = [1, 1]> (x, w) }"
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.ones((5, 4, 3), np.float32), "w"))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    session = dml.load(model, threads=1)
    for n in (1, 2):
        (y,) = session.run(None, {"x": np.ones((n, 4, 1), np.float32)})
        np.testing.assert_array_equal(y, np.full((n, 5, 1), 4, np.float32))
    (weight,) = session._model.graph.constants.values()
    assert len(weight._derived) == 1


@pytest.mark.parametrize("square", ["Mul", "Pow"])
@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize(
    ("first", "second"), [((0, 3), (3, 6)), ((3, 9), (0, 3)), ((0, 3), (2, 5)), ((0, 2), (2, 4))]
)
def test_the_length_of_complex_numbers(square, opset, first, second):
    x = np.random.default_rng(2).standard_normal((2, 6, 4)).astype(np.float32)
    squares = [
        f"{v} = {square} ({u}, {u if square == 'Mul' else 'two'})" for u, v in (("a", "aa"), ("b", "bb"))
    ]
    left = ran(
        f"""(float[2, 6, 4] x) => (float[p, q, r] y) <int64[1] a0 = {{{first[0]}}}, int64[1] a1 = {{{first[1]}}},
        int64[1] b0 = {{{second[0]}}}, int64[1] b1 = {{{second[1]}}}, int64[1] axis = {{1}}, float two = {{2}}> {{
        a = Slice (x, a0, a1, axis)  b = Slice (x, b0, b1, axis)  {"  ".join(squares)}
        s = Add (aa, bb)  t = Sqrt (s)  y = Softmax (t) }}""",
        opset,
        x=x,
    )
    halves = {first, second} <= {(0, 3), (3, 6), (3, 9)}
    assert ("ReduceL2" in left[0]) == halves
