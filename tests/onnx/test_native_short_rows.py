"""Rows that stay in registers, in programs: normalizations, with what comes after them; and elements between
two of their neighbours."""

import numpy as np
import pytest

from tests.onnx.test_native import agree, numbers
from tests.onnx.test_native_ends import ENDS, beside, check, node
from tests.onnx.test_native_products import made

LENGTHS = [2, 5, 16, 17, 33, 64, 77, 128, 129, 300]
BY_ROWS = {
    "softmax": [node("Softmax", "x", "y")],
    "log": [node("LogSoftmax", "x", "y")],
    "layer": [node("LayerNormalization", "x", "scale", "shift", "y")],
    "without bias": [node("LayerNormalization", "x", "scale", "y", epsilon=0.1)],
    "one for all": [node("LayerNormalization", "x", "single", "row", "y")],
    "of rows": [node("LayerNormalization", "x", "each", "y")],
    "of matrices": [node("LayerNormalization", "x", "matrix", "y", axis=1)],
    "norm": [node("LpNormalization", "x", "y", p=1, axis=-1)],
    "length": [node("LpNormalization", "x", "y")],
    "of two axes": [node("MeanVarianceNormalization", "x", "y", axes=[1, 2])],
    "of axes apart": [node("MeanVarianceNormalization", "x", "y", axes=[0, 2])],
    "computed scale": [node("Exp", "row", "e"), node("LayerNormalization", "x", "e", "y")],
}


def weights(sizes):
    n = sizes[-1]
    more = {"scale": numbers(n), "shift": numbers(n), "single": numbers(1), "matrix": numbers(*sizes[1:])}
    return beside(sizes, len(sizes) - 1) | more | {"each": numbers(*sizes[:-1], 1)}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rule", BY_ROWS)
@pytest.mark.drawn
def test_of_a_length(rule, length):
    sizes = (3, 4, length)
    check([*BY_ROWS[rule], node("Identity", "y", "z")], sizes, weights(sizes))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("rule", BY_ROWS)
@pytest.mark.drawn
def test_with_an_end(rule, end):
    sizes = (2, 3, 21)
    check([*BY_ROWS[rule], *ENDS[end]], sizes, weights(sizes))


@pytest.mark.parametrize("length", LENGTHS)
def test_of_newer_operators(length):
    nodes = [node("RMSNormalization", "x", "row", "y"),
             node("GroupNormalization", "y", "scale", "shift", "z", num_groups=2)]  # fmt: skip
    model = made(nodes, (2, 6, length), {"row": numbers(length), "scale": numbers(6), "shift": numbers(6)})
    model.opset_import[0].version, model.ir_version = 23, 11
    agree(model, {"x": numbers(2, 6, length)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", LENGTHS)
def test_of_each_channel(length):
    scales = {"scale": numbers(6), "shift": numbers(6)}
    check([node("InstanceNormalization", "x", "scale", "shift", "z")], (2, 6, length), scales)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3)])
def test_in_memory_of_another_order(order):
    """Rows that lie side by side, though their axis is not the last one; and those that do not, though it is."""
    sizes = (1, 9, 20, 33)
    channels = sizes[order[1]]
    nodes = [node("Relu", "x", "r"), node("Transpose", "r", "t", perm=order),
             node("InstanceNormalization", "t", "scale", "shift", "n"), node("Softmax", "n", "s"),
             node("Add", "s", "t", "z")]  # fmt: skip
    check(nodes, sizes, {"scale": numbers(channels), "shift": numbers(channels)})


def test_what_is_not_finite():
    x = numbers(8, 40)
    x[0, 3], x[1, 5], x[2, :] = np.inf, np.nan, -np.inf
    for rule in ("softmax", "log", "layer"):
        nodes = [*BY_ROWS[rule], node("Identity", "y", "z")]
        used = {n: w for n, w in weights((8, 40)).items() if any(n in one.input for one in nodes)}
        session = agree(made(nodes, (8, 40), used), {"x": numbers(8, 40)}, rtol=1e-4, atol=1e-4)
        result = session.run(None, {"x": x})[0]
        assert np.isnan(result[:3]).any(1).all(), rule
        assert np.isfinite(result[3:]).all(), rule


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("after", [(3, 7), (16, 16), (24, 20), (50, 33), (2, 90), (24, 3), (9, 20)])
@pytest.mark.parametrize("turned", [False, True])
def test_between_neighbours(mode, after, turned):
    order, before = ([0, 1, 3, 2], (2, 3, 20, 24)) if turned else ([0, 1, 2, 3], (2, 3, 24, 20))
    nodes = [node("Relu", "x", "r"), node("Transpose", "r", "t", perm=order),
             node("Resize", "t", "", "", "sizes", "y", mode="linear", coordinate_transformation_mode=mode),
             node("Mul", "y", "y", "z")]  # fmt: skip
    sizes = {"sizes": np.array([2, 3, *after], np.int64)}
    agree(made(nodes, before, sizes), {"x": numbers(*before)}, rtol=1e-4, atol=1e-4)
