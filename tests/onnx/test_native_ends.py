"""What is done to sums on their way out, in programs; and filters for each channel, whose windows at the edges
see less."""

import numpy as np
import pytest
from onnx import helper

from tests.onnx.test_native import agree, numbers
from tests.onnx.test_native_products import CLOSE, made


def node(op, *names, **attributes):
    return helper.make_node(op, names[:-1], names[-1:], **attributes)


ENDS = {
    "nothing": [node("Identity", "y", "z")],
    "one": [node("Relu", "y", "z")],
    "another type": [node("Relu", "y", "a"), node("Cast", "a", "b", to=6), node("Cast", "b", "z", to=1)],
    "by channel": [node("Mul", "y", "scale", "a"), node("Add", "a", "shift", "b"), node("Relu", "b", "z")],
    "by row": [node("Mul", "y", "row", "a"), node("Relu", "a", "z")],
    "more of them": [node("Relu", "y", "a"), node("Mul", "a", "row", "b"), node("Add", "b", "whole", "z")],
    "longer": [node("Relu", "y", "a"), node("Add", "a", "longer", "z")],
    "two readers": [node("Relu", "y", "a"), node("Sigmoid", "a", "b"), node("Mul", "a", "b", "z")],
    "two readers of sums": [node("Sigmoid", "y", "b"), node("Mul", "y", "b", "z")],
    "much": [node("Erf", "y", "a"), node("Tanh", "a", "b"), node("Mul", "b", "scale", "z")],
    "a reduction": [node("Relu", "y", "a"), node("ReduceMean", "a", "b", axes=[-1]), node("Add", "a", "b", "z")],
    "turned": [node("Relu", "y", "a"), node("Transpose", "a", "b"), node("Add", "b", "turned", "z")],
}  # fmt: skip


def beside(sizes, channel):
    """What ends read, for a result of these sizes, with channels along an axis."""
    column = [n if k == channel else 1 for k, n in enumerate(sizes)]
    return {
        "scale": numbers(*column),
        "shift": numbers(*column),
        "row": numbers(*[1] * (len(sizes) - 1), sizes[-1]),
        "whole": numbers(*sizes),
        "longer": numbers(3, *sizes),
        "turned": numbers(*reversed(sizes)),
    }


def check(nodes, sizes, weights, **tolerances):
    used = {n for one in nodes for n in one.input}
    weights = {name: w for name, w in weights.items() if name in used}
    agree(made(nodes, sizes, weights), {"x": numbers(*sizes)}, **(tolerances or CLOSE))


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("sizes", "factors", "result"),
    [
        ((5, 7), (7, 19), (5, 19)),
        ((2, 3, 6), (6, 20), (2, 3, 20)),
        ((2, 3, 6), (2, 6, 9), (2, 3, 9)),
        ((40,), (40, 33), (33,)),
        ((2, 2, 8), (8,), (2, 2)),
    ],
)
def test_of_matrices(end, sizes, factors, result):
    weights = beside(result, len(result) - 1) | {"w": numbers(*factors)}
    check([node("MatMul", "x", "w", "y"), *ENDS[end]], sizes, weights)


@pytest.mark.parametrize("end", ENDS)
def test_of_gemm(end):
    weights = beside((9, 20), 1) | {"w": numbers(12, 20), "c": numbers(9, 1)}
    nodes = [node("Gemm", "x", "w", "c", "y", beta=0.5), *ENDS[end]]
    check(nodes, (9, 12), weights)


CONVOLUTIONS = [
    ((1, 3, 8, 9), (20, 3, 3, 3), {"pads": [1] * 4}),
    ((2, 4, 7, 8), (6, 2, 2, 3), {"group": 2}),
    ((2, 4, 30), (6, 4, 1), {}),
    ((2, 20, 7, 5), (20, 1, 3, 3), {"group": 20, "pads": [1] * 4}),
    ((1, 6, 4, 40), (6, 1, 3, 3), {"group": 6, "pads": [1] * 4}),
    ((1, 3, 5, 5), (4, 3, 5, 5), {}),
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(("sizes", "filters", "told"), CONVOLUTIONS)
@pytest.mark.drawn
def test_of_convolutions(end, sizes, filters, told):
    """Also behind one of single elements, which leaves channels beside each other."""
    channels = filters[0]
    w = {"w": numbers(*filters) / 4, "c": numbers(channels)}
    pads, stride = told.get("pads", [0] * 4), told.get("strides", [1] * 2)
    spatial = [
        (n + 2 * p - k) // s + 1 for n, k, p, s in zip(sizes[2:], filters[2:], pads, stride, strict=False)
    ]
    nodes = [node("Conv", "x", "w", "c", "y", **told), *ENDS[end]]
    weights = beside((sizes[0], channels, *spatial), 1) | w
    check(nodes, sizes, weights)
    first = {"first": numbers(sizes[1], sizes[1], *[1] * len(spatial)) / 4}
    nodes[0] = node("Conv", "x~", "w", "c", "y", **told)
    check([node("Conv", "x", "first", "x~"), *nodes], sizes, weights | first, rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(
    ("sizes", "kernel", "told"),
    [
        ((2, 16, 9, 6), (3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 16, 9, 6), (3, 3), {"pads": [2, 0, 0, 2]}),
        ((1, 16, 9, 6), (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 3]}),
        ((1, 16, 9, 6), (2, 3), {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
        ((1, 16, 3, 3), (3, 3), {"pads": [3, 3, 3, 3]}),
        ((1, 16, 2, 2), (5, 5), {"pads": [4, 4, 4, 4], "strides": [3, 3]}),
        ((1, 20, 30), (9,), {"auto_pad": "SAME_UPPER", "strides": [2]}),
        ((1, 16, 9, 9), (7, 7), {"pads": [3] * 4}),
        ((1, 17, 4, 3, 2), (3, 2, 2), {"pads": [1] * 6}),
        ((1, 16, 1, 1), (3, 3), {"pads": [1] * 4}),
    ],
)
def test_a_filter_for_each_channel(channels_last, sizes, kernel, told):
    """Also windows that see nothing but what is around the input."""
    channels = sizes[1]
    weights = {"w": numbers(channels, 1, *kernel) / 4, "c": numbers(channels)}
    nodes = [node("Conv", "x", "w", "c", "y", group=channels, **told)]
    if channels_last:
        weights["first"] = numbers(channels, channels, *[1] * len(kernel)) / 4
        nodes = [node("Conv", "x", "first", "x~"), node("Conv", "x~", "w", "c", "y", group=channels, **told)]
    for end in ([], [node("Relu", "y", "z")]):
        check([*nodes, *end], sizes, weights, rtol=1e-3, atol=1e-3)


def test_sums_that_wait_while_something_else_runs():
    """Between a product and what is done to its sums stands an If, a loop, and what needs memory."""
    text = """m (float[8,12] x) => (float[8,20] z)
      <float[12,20] w = {WEIGHTS}, float zero = {0}, int64 three = {3}, bool go = {1}> {
        y = MatMul (x, w)
        s = ReduceSum <keepdims = 0> (x)
        c = Greater (s, zero)
        other = If (c) <
          then_branch = t () => (float[8,12] a) { p = Exp (x) a = Sin (p) },
          else_branch = e () => (float[8,12] b) { q = Neg (x) b = Cos (q) } >
        last = Loop (three, go, other) <
          body = l (int64 i, bool on, float[8,12] h) => (bool still, float[8,12] next)
            { still = Identity (on) u = Tanh (h) next = Add (u, x) } >
        f = MatMul (last, w)
        r = Relu (y)
        z = Add (r, f) }"""
    from onnx import parser

    weights = ", ".join(f"{float(w):.4f}" for w in numbers(12 * 20))
    source = '<ir_version: 8, opset_import: ["" : 17]> ' + text.replace("WEIGHTS", weights)
    model = parser.parse_model(source)
    agree(model, {"x": numbers(8, 12)}, {"x": -np.abs(numbers(8, 12))}, rtol=1e-3, atol=1e-2)
