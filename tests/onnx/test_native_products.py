"""Products with known factors in programs: packed for the tiles that read them, and waves by half."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from anydml.codegen.program.contraction import _Mirrored
from anydml.codegen.program.values import Known
from tests.onnx.test_native import agree, native, numbers

CLOSE = {"rtol": 1e-4, "atol": 1e-3}


def made(nodes, sizes, weights, dtype=np.float32):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", kind, sizes)],
        [helper.make_tensor_value_info(nodes[-1].output[0], kind, None)],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    graph.output[0].type.tensor_type.ClearField("shape")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("m", [1, 5, 32])
@pytest.mark.parametrize("n", [1, 5, 16, 33, 130, 300])
@pytest.mark.parametrize("k", [1, 4, 7, 65, 200])
@pytest.mark.drawn
def test_by_known_factors(m, k, n):
    """With what is done to each sum, and without."""
    weights = {"w": numbers(n, k), "c": numbers(n)}
    node = helper.make_node("Gemm", ["x", "w", "c"], ["z"], transB=1, alpha=0.5)
    agree(made([node], [m, k], weights), {"x": numbers(m, k)}, **CLOSE)
    weights = {"w": numbers(k, n)}
    node = helper.make_node("MatMul", ["x", "w"], ["z"])
    agree(made([node], [2, m, k], weights), {"x": numbers(2, m, k)}, **CLOSE)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 5, 40), (7, 33, 19), (40, 20, 9)])
def test_of_other_types(dtype, m, k, n):
    node = helper.make_node("MatMul", ["x", "w"], ["z"])
    agree(
        made([node], [m, k], {"w": numbers(k, n, dtype=dtype)}, dtype),
        {"x": numbers(m, k, dtype=dtype)},
        **CLOSE,
    )


@pytest.mark.parametrize(
    ("one", "other"), [((3, 4, 5), (3, 5, 40)), ((2, 1, 4, 5), (3, 5, 20)), ((7, 5), (2, 5, 3))]
)
def test_stacks_of_known_factors(one, other):
    node = helper.make_node("MatMul", ["x", "w"], ["z"])
    agree(made([node], one, {"w": numbers(*other)}), {"x": numbers(*one)}, **CLOSE)


def waves(depth, even, odd, first, alone=0.0):
    """Columns that are the same from both ends, and others that are negated."""
    w = numbers(depth, even + odd)
    ahead = w[first:]
    ahead[:, :even] += ahead[::-1, :even].copy()
    ahead[:, even:] -= ahead[::-1, even:].copy()
    w[:first, even:] = 0
    w[:first, :even] = alone
    return w


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("depth", [16, 17, 64, 129])
@pytest.mark.parametrize(("even", "odd"), [(20, 20), (33, 0), (0, 16), (1, 15)])
@pytest.mark.parametrize("alone", [0, 2])
@pytest.mark.drawn
def test_waves(first, depth, even, odd, alone):
    w = waves(depth, even, odd, first, alone)
    assert _Mirrored.of(Known.of(w)) is not None
    for m in (1, 3, 4, 9):
        node = helper.make_node("MatMul", ["x", "w"], ["z"])
        agree(made([node], [2, m, depth], {"w": w}), {"x": numbers(2, m, depth)}, **CLOSE)
    node = helper.make_node("Gemm", ["x", "w", "c"], ["z"], alpha=0.5)
    agree(made([node], [3, depth], {"w": w, "c": numbers(even + odd)}), {"x": numbers(3, depth)}, **CLOSE)


@pytest.mark.parametrize("place", [(0, 0), (1, 3), (5, 12), (15, 39)])
def test_one_other_factor_and_they_are_no_waves(place):
    for w in (waves(16, 20, 20, 0), waves(16, 20, 20, 1)):
        w[place] += 1
        found = _Mirrored.of(Known.of(w))
        assert found is None or (found.first, place) == (1, (0, 0))  # what stays alone is any
        node = helper.make_node("MatMul", ["x", "w"], ["z"])
        agree(made([node], [3, 16], {"w": w}), {"x": numbers(3, 16)}, **CLOSE)


def test_a_spectrum():
    """A Fourier transform as people write it as a convolution, by float64."""
    n, hop = 256, 128
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n) / n)
    window = np.concatenate([window[:1], window[1:] / 2 + window[:0:-1] / 2])
    spectrum = np.fft.fft(np.eye(n))[: n // 2 + 1]
    basis = np.concatenate([spectrum.real, spectrum.imag]) * window
    w = basis.astype(np.float32)[:, None]
    node = helper.make_node("Conv", ["x", "w"], ["z"], strides=[hop])
    x = numbers(1, 1, 640)
    (found,) = native(made([node], x.shape, {"w": w})).run(None, {"x": x})
    frames = np.stack([x[0, 0, k * hop : k * hop + n] for k in range(4)], 1).astype(np.float64)
    np.testing.assert_allclose(found[0], w[:, 0].astype(np.float64) @ frames, rtol=1e-5, atol=1e-4)
    assert _Mirrored.of(Known.of(w[:, 0].T)) is not None


def test_infinities_and_nan_stay_where_they_are():
    w = waves(32, 20, 20, 1)
    node = helper.make_node("MatMul", ["x", "w"], ["z"])
    x = numbers(4, 32)
    x[1, 3], x[2, 5], x[3, 7] = np.inf, -np.inf, np.nan
    agree(made([node], [4, 32], {"w": w}), {"x": x}, **CLOSE)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "GRU reset first", "RNN"])
@pytest.mark.parametrize(("steps", "hidden"), [(1, 80), (2, 48), (5, 80), (4, 130)])
@pytest.mark.parametrize("way", ["forward", "bidirectional"])
@pytest.mark.drawn
def test_layers_whose_factors_are_several_tiles(op, steps, hidden, way):
    """They go through these to and fro."""
    gates, ways = {"L": 4, "G": 3, "R": 1}[op[0]], 1 + (way == "bidirectional")
    weights = {
        "w": numbers(ways, gates * hidden, 20) / 20,
        "r": numbers(ways, gates * hidden, hidden) / 20,
        "b": numbers(ways, 2 * gates * hidden) / 4,
    }
    told = {"linear_before_reset": 1} if op == "GRU" else {}
    node = helper.make_node(
        op.split()[0], ["x", "w", "r", "b"], ["z"], hidden_size=hidden, direction=way, **told
    )
    for batch in (1, 3):
        agree(made([node], [steps, batch, 20], weights), {"x": numbers(steps, batch, 20)}, **CLOSE)


@pytest.mark.parametrize(
    ("sizes", "filters", "told"),
    [
        ((1, 1, 58, 12), (64, 1, 10, 4), {"strides": [2, 2]}),
        ((2, 3, 9, 8), (20, 3, 3, 3), {"pads": [1] * 4}),
        ((1, 3, 9, 8), (20, 3, 2, 3), {"dilations": [2, 1]}),
        ((2, 4, 7, 30), (6, 2, 1, 5), {"group": 2, "strides": [1, 3]}),
        ((1, 2, 5, 6, 7), (9, 2, 2, 1, 3), {}),
        ((1, 1, 40), (7, 1, 8), {"strides": [3]}),
    ],
)
def test_windows_that_are_not_copied(sizes, filters, told):
    """Lines of windows, each with places along two axes; and chains of them, which keep channels beside each
    other."""
    w, c, again = numbers(*filters) / 4, numbers(filters[0]), numbers(16, filters[0], *[1] * (len(sizes) - 2))
    nodes = [
        helper.make_node("Conv", ["x", "w", "c"], ["y"], **told),
        helper.make_node("Conv", ["y", "again"], ["z"]),
    ]
    x = numbers(*sizes)
    agree(made(nodes[:1], sizes, {"w": w, "c": c}), {"x": x}, **CLOSE)
    agree(made(nodes, sizes, {"w": w, "c": c, "again": again}), {"x": x}, rtol=1e-3, atol=1e-3)
