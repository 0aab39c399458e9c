"""Models as one function of machine code: what they compute, how they fail, and how they are called."""

import copy
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import lru_cache
from zlib import crc32

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import anydml as dml
from tests.robustness.guard_memory import Memory

HEAD = '<ir_version: 8, opset_import: ["": 17]> '
RNG = np.random.default_rng(7)
EMPTY = numpy_helper.from_array(np.zeros(0, np.int64))


@pytest.fixture(autouse=True)
def drawn_alike(request, monkeypatch):
    """Numbers that do not depend on which tests ran before."""
    monkeypatch.setattr(
        sys.modules[__name__], "RNG", np.random.default_rng(crc32(request.node.name.encode()))
    )


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def numbers(*shape, dtype=np.float32):
    return np.asarray(RNG.standard_normal(shape) * 4, dtype)


def native(made) -> dml.Session:
    return dml.load(made, threads=1, native=True)


def expected(made, feeds):
    """What onnxruntime gives, as the file is."""
    return as_it_is(made if isinstance(made, bytes) else made.SerializeToString()).run(None, feeds)


@lru_cache(2)  # a model is asked for several feeds, one after the other
def as_it_is(made):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(made, options, providers=["CPUExecutionProvider"])


def same(found, wanted, **tolerances):
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        if x.dtype.kind == "f":
            np.testing.assert_allclose(x, y, **({"rtol": 2e-6, "atol": 1e-6} | tolerances))
        else:
            np.testing.assert_array_equal(x, y)


def agree(made, *all_feeds, **tolerances):
    """One session on all feeds, twice each: the second time through the entry."""
    session = native(made)
    for feeds in all_feeds:
        wanted = expected(made, feeds)
        for _ in range(2):
            same(session.run(None, feeds), wanted, **tolerances)
    assert "program: " in session.explain(), session.explain()
    return session


# ---- operators --------------------------------------------------------------------------------------

SHAPES = [(), (1,), (3,), (16,), (17,), (5, 7), (4, 1, 33), (2, 3, 4, 5)]


def kind(dtype, sizes):
    """As ONNX's text has it: `float[3,4]`."""
    return dtype + (f"[{','.join(map(str, sizes))}]" if sizes else "")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("other", ["same", "scalar", "last"])
def test_element_by_element(shape, other):
    """In registers and in memory, with operands that broadcast."""
    sizes = {"same": shape, "scalar": (), "last": shape[-1:]}[other]
    made = model(
        f"m ({kind('float', shape)} x, {kind('float', sizes)} y) =>"
        f" ({kind('float', shape)} z, {kind('bool', shape)} b, {kind('int64', shape)} n) {{"
        " p = Mul (x, y) q = Tanh (p) r = Sub (q, x) s = Exp (q) b = Less (x, y) z = Where (b, r, s)"
        " n = Cast <to = 7> (p) }"
    )
    agree(made, {"x": numbers(*shape), "y": numbers(*sizes)})


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64"]
)
@pytest.mark.parametrize("size", [5, 16, 40, 129])
def test_types(dtype, size):
    name = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    made = model(
        f"m ({name}[{size}] x, {name}[{size}] y) => ({name}[{size}] z, bool[{size}] b) {{ w = Add (x, y) z = Mul (w, w) b = Equal (x, y) }}"
    )
    x, y = (RNG.integers(0, 5, size).astype(dtype) for _ in range(2))
    agree(made, {"x": x, "y": y})


MOVES = [
    "Transpose <perm = [2, 0, 1]> (x)",
    "Transpose (x)",
    "Reshape (x, {60})",
    "Reshape (t, {12, -1})",
    "Slice (x, {1}, {-1}, {2})",
    "Slice (x, {3, -1}, {0, -100}, {1, 2}, {-1, -2})",
    "Tile (x, {1, 2, 3})",
    "Expand (r, {2, 3, 4, 5})",
    "Concat <axis = 0> (x, x)",
    "Concat <axis = 2> (x, u, x)",
    "Gather <axis = 1> (x, {3, 0, -1, 0})",
    "Gather <axis = 2> (x, {1})",
    "Pad (x, {1, 0, 2, 0, 3, 1})",
    'Pad <mode = "reflect"> (x, {1, 2, 2, 0, 1, 3})',
    'Pad <mode = "edge"> (x, {0, 2, 2, 2, 1, 3})',
    "Unsqueeze (x, {0, -1})",
    "Flatten <axis = 2> (x)",
]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("first", [True, False], ids=["input", "computed"])
def test_moves(move, first):
    """What is read by strides, and what has to be copied."""
    lists = re.findall(r"\{([-\d, ]+)\}", move)
    for k, listed in enumerate(lists):
        move = move.replace("{" + listed + "}", f"k{k}", 1)
    constants = ", ".join(f"int64[{len(t.split(','))}] k{k} = {{{t}}}" for k, t in enumerate(lists))
    constants += ", int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}"
    made = model(
        f"m (float[3,4,5] a) => (float[q] z) <{constants.lstrip(', ')}> {{ x = {'Identity' if first else 'Neg'} (a)"
        " t = Transpose <perm = [1, 2, 0]> (x) u = Transpose <perm = [0, 1, 2]> (x) s = Slice (x, one, two)"
        f" r = Squeeze (s, zero) y = {move} z = Abs (y) }}"
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    agree(made, {"a": numbers(3, 4, 5)})


@pytest.mark.drawn
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare"])
@pytest.mark.parametrize("axes", [[0], [1], [2], [0, 2], [0, 1], [1, 2], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 4, 35), (2, 20, 17)], ids=str)
def test_reductions(op, axes, sizes):
    keep = len(axes) % 2
    told = "(x, axes)" if op == "Sum" else "(x)"
    attribute = "" if op == "Sum" else f", axes = {axes}"
    made = model(
        f"m (float{list(sizes)} x) => (float[q] z) <int64[{len(axes)}] axes = {{{', '.join(map(str, axes))}}}>"
        f" {{ z = Reduce{op} <keepdims = {keep}{attribute}> {told} }}"
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    agree(made, {"x": numbers(*sizes) / (2 if op == "Prod" else 1)}, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_places_of_extremes(op, axis):
    made = model(
        f"m (int64[4,5,6] x) => (int64[q] z) {{ z = {op} <axis = {axis}, keepdims = {axis % 2}> (x) }}"
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    agree(made, {"x": RNG.integers(0, 4, (4, 5, 6))})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_places_of_extremes_beside_nan(op, axis):
    """The first NaN is the extreme, as NumPy has it; onnxruntime has it so along the last axis only."""
    made = model(f"m (float[7,9] x) => (int64[q, r] z) {{ z = {op} <axis = {axis}> (x) }}")
    x = RNG.integers(-3, 4, (7, 9)).astype(np.float32)
    x[RNG.random((7, 9)) < 0.15] = np.nan
    (found,) = native(made).run(None, {"x": x})
    place = np.argmax if op == "ArgMax" else np.argmin
    np.testing.assert_array_equal(found, place(x, axis, keepdims=True))


@pytest.mark.drawn
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", ["float", "double", "int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 100, 257])
def test_places_of_extremes_along_rows(op, dtype, n):
    """Vectors that overlap at the end, few values so that many are equal, and NaN in some rows."""
    made = model(f"m ({dtype}[40,{n}] x) => (int64[40] z) {{ z = {op} <axis = 1, keepdims = 0> (x) }}")
    x = RNG.integers(0, 3, (40, n)).astype({"float": "f4", "double": "f8"}.get(dtype, dtype))
    if x.dtype.kind == "f":
        x[RNG.random((40, n)) < 0.02] = np.nan
        x[RNG.random((40, n)) < 0.1] = -np.inf
        x[::7] = np.inf
    (found,) = native(made).run(None, {"x": x})
    np.testing.assert_array_equal(found, (np.argmax if op == "ArgMax" else np.argmin)(x, 1))


@pytest.mark.drawn
@pytest.mark.parametrize("m", [1, 3, 4, 6, 9])
@pytest.mark.parametrize("n", [1, 5, 16, 33, 130])
@pytest.mark.parametrize("k", [1, 4, 7, 65])
def test_products(m, k, n):
    """Tiles that are whole, and that are not."""
    made = model(
        f"m (float[{m},{k}] x, float[{k},{n}] y, float[{n}] c) => (float[{m},{n}] z, float[{m},{n}] g) {{"
        " z = MatMul (x, y) t = Transpose <perm = [1, 0]> (y) g = Gemm <transB = 1, alpha = 0.5> (x, t, c) }"
    )
    agree(made, {"x": numbers(m, k), "y": numbers(k, n), "c": numbers(n)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((3, 4, 5), (3, 5, 6)),
        ((2, 1, 4, 5), (3, 5, 20)),
        ((4, 5), (2, 5, 3)),
        ((5,), (2, 5, 3)),
        ((2, 4, 5), (5,)),
    ],
)
def test_stacks_of_products(one, other):
    made = model(f"m (float{list(one)} x, float{list(other)} y) => (float[q] z) {{ z = MatMul (x, y) }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    agree(made, {"x": numbers(*one), "y": numbers(*other)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axis", [1, -1])
def test_layer_normalization(axis):
    sizes = (4, 20) if axis == 1 else (20,)
    made = model(
        f"m (float[3,4,20] x, float{list(sizes)} s, float{list(sizes)} b) => (float[3,4,20] y, float[q] m, float[q] d)"
        f" {{ y, m, d = LayerNormalization <axis = {axis}> (x, s, b) }}"
    )
    for output in made.graph.output[1:]:
        output.type.tensor_type.ClearField("shape")
    agree(
        made, {"x": numbers(3, 4, 20) + 9, "s": numbers(*sizes), "b": numbers(*sizes)}, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("size", [3, 30])
@pytest.mark.parametrize("ways", [[0, 0], [1, 0], [0, 1]])
def test_scan(size, ways):
    """A sequence along the second axis, and one from the end."""
    made = model(
        f"""m (float[{size}] s, float[{size},4] x, float[4] f) => (float[{size}] y, float[q] r, float[4] t) {{
        y, r, t = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_input_directions = {ways}, scan_output_axes = [1, 0],
          scan_output_directions = {ways[::-1]}, body = b (float[{size}] a, float[{size}] c, float g) => (float[{size}] d, float[{size}] row, float k) {{
          p = Mul (c, g) d = Add (a, p) row = Neg (d) k = ReduceMax <keepdims = 0> (d) }}> (s, x, f) }}"""
    )
    made.graph.output[1].type.tensor_type.ClearField("shape")
    agree(made, {"s": numbers(size), "x": numbers(size, 4), "f": numbers(4)})


@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(("batch", "h"), [(1, 20), (3, 20), (1, 3)])
def test_lstm(way, steps, batch, h):
    d = 1 + (way == "bidirectional")
    weights = {"w": numbers(d, 4 * h, 6) / 8, "r": numbers(d, 4 * h, h) / 8, "b": numbers(d, 8 * h) / 8}
    made = model(
        f"m (float[{steps},{batch},6] x, float[{d},{batch},{h}] h, float[{d},{batch},{h}] c) =>"
        f" (float[{steps},{d},{batch},{h}] y, float[{d},{batch},{h}] yh, float[{d},{batch},{h}] yc)"
        f' {{ y, yh, yc = LSTM <hidden_size = {h}, direction = "{way}"> (x, w, r, b, , h, c) }}'
    )
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in weights.items())
    feeds = {
        "x": numbers(steps, batch, 6),
        "h": numbers(d, batch, h) / 4,
        "c": numbers(d, batch, h),
    }
    agree(made, feeds, rtol=1e-4, atol=1e-5)


CONVOLUTIONS = [
    ((1, 3, 12), (5, 3, 3), "pads = [1, 1]"),
    ((2, 4, 33), (6, 4, 5), "strides = [3], dilations = [2]"),
    ((1, 3, 9, 8), (7, 3, 3, 2), "pads = [1, 0, 2, 1], strides = [2, 1]"),
    ((2, 3, 6, 6), (4, 3, 1, 1), "strides = [1, 1]"),
    ((1, 5, 9, 9), (5, 1, 3, 3), "group = 5, pads = [1, 1, 1, 1]"),
    ((2, 4, 40), (4, 1, 9), "group = 4, strides = [2]"),
    ((1, 3, 8, 8), (4, 3, 3, 3), 'auto_pad = "SAME_UPPER", strides = [2, 2]'),
]


@pytest.mark.parametrize(("sizes", "filters", "attributes"), CONVOLUTIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_convolutions(sizes, filters, attributes, bias):
    made = model(
        f"m (float{list(sizes)} x) => (float[q] y)"
        f" {{ n = Neg (x) c = Conv <{attributes}> (n, w{', b' if bias else ''}) y = Relu (c) }}"
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.graph.initializer.append(onnx.numpy_helper.from_array(numbers(*filters) / 4, "w"))
    if bias:
        made.graph.initializer.append(onnx.numpy_helper.from_array(numbers(filters[0]), "b"))
    agree(made, {"x": numbers(*sizes)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "attributes"),
    [
        ((1, 2, 20), "kernel_shape = [3]"),
        ((2, 3, 9, 8), "kernel_shape = [2, 3], strides = [2, 2], pads = [1, 1, 0, 1]"),
        ((1, 5, 7, 7), "kernel_shape = [3, 3], pads = [1, 1, 1, 1]"),
    ],
)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "AveragePool <count_include_pad = 1>"])
def test_pools(sizes, attributes, op):
    name, _, more = op.partition(" <")
    told = f"{attributes}, {more.removesuffix('>')}" if more else attributes
    made = model(
        f"m (float{list(sizes)} x) => (float[q] y, float[q] z, float[q] w)"
        f" {{ y = {name} <{told}> (x) z = GlobalAveragePool (x) w = GlobalMaxPool (x) }}"
    )
    for output in made.graph.output:
        output.type.tensor_type.ClearField("shape")
    agree(made, {"x": numbers(*sizes)}, rtol=1e-5)


@pytest.mark.parametrize(
    ("sizes", "kernel", "strides"),
    [
        ((1, 2, 30), (3,), (1,)),
        ((1, 2, 30), (2,), (2,)),
        ((1, 2, 9, 8), (2, 2), (2, 1)),
        ((1, 1, 4, 5, 6), (2, 3, 2), (1, 1, 1)),
    ],
)
def test_nan_is_the_largest_of_a_window(sizes, kernel, strides):
    """As in NumPy; onnxruntime's answer depends on where it lies, as does that of onnx.reference."""
    told = f"kernel_shape = {list(kernel)}, strides = {list(strides)}"
    made = model(f"m (float{list(sizes)} x) => (float[q] y) {{ y = MaxPool <{told}> (x) }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    x = numbers(*sizes)
    x[RNG.random(sizes) < 0.2] = np.nan
    x[..., :4] = np.nan
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel, tuple(range(2, x.ndim)))
    windows = windows[(..., *(slice(None, None, s) for s in strides), *[slice(None)] * len(kernel))]
    right = windows.max(tuple(range(-len(kernel), 0)))
    assert 0 < np.isnan(right).sum() < right.size
    (found,) = native(made).run(None, {"x": x})
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("sizes", [(120, 90, 1), (9000, 1), (2, 70, 80, 1, 1), (1, 9000)])
def test_many_elements_moved(sizes):
    """Also where the last axis has one, of which NumPy's own function loses count."""
    order = list(range(len(sizes)))[::-1]
    made = model(
        f"m (float{list(sizes)} x) => (float[q] y, float[r] z) {{ t = Neg (x) y = Transpose <perm = {order}> (t)"
        f" last = Constant <value_ints = [{len(sizes)}]> () u = Unsqueeze (t, last)"
        f" z = Concat <axis = 0> (u, u) }}"
    )
    for output in made.graph.output:
        output.type.tensor_type.ClearField("shape")
    agree(made, {"x": numbers(*sizes)})


@pytest.mark.parametrize(
    ("sizes", "kernel", "pads"),
    [
        ((3, 16, 9, 8), (2, 1), (0, 2, 0, 2)),
        ((1, 64, 9, 8), (1, 1), (2, 2, 2, 2)),
        ((2, 16, 500), (1,), (1, 1)),
    ],
)
def test_padded_convolutions_of_many_elements(sizes, kernel, pads):
    made = model(f"m (float{list(sizes)} x) => (float[q] y) {{ y = Conv <pads = {list(pads)}> (x, w) }}")
    made.graph.output[0].type.tensor_type.ClearField("shape")
    made.graph.initializer.append(numpy_helper.from_array(numbers(3, sizes[1], *kernel) / 8, "w"))
    agree(made, {"x": numbers(*sizes)}, rtol=1e-4, atol=1e-4)


def test_constants_of_many_elements():
    """More of them than are known before."""
    made = model(
        "m (float[50,60] x) => (float[50,60] y) <int64[2] s = {50, 60}>"
        " { c = ConstantOfShape <value = float[1] {2.5}> (s) y = Mul (x, c) }"
    )
    agree(made, {"x": numbers(50, 60)})


def test_constant_outputs_without_elements():
    """As merged decoders give for what a step has no use for; also behind an If of several shapes."""
    made = model(
        "m (float[6] x, float[4] y) => (float[n] z, float[0,3] nothing, int64[m] none, float[q] w)"
        " <float[0,3] nothing = {}, float zero = {0}> {"
        " s = ReduceSum <keepdims = 0> (x) c = Less (s, zero) none = Constant <value = float {0}> ()"
        " z = If (c) <then_branch = t () => (float[a] p) { p = Neg (x) },"
        " else_branch = e () => (float[a] q) { q = Abs (x) }>"
        " v = If (c) <then_branch = f () => (float[a] r) { r = Neg (x) },"
        " else_branch = g () => (float[a] u) { u = Abs (y) }> w = ReduceMean <axes = [0]> (v) }"
    )
    made.graph.node[2].CopyFrom(helper.make_node("Constant", [], ["none"], value=EMPTY))
    agree(made, {"x": numbers(6), "y": numbers(4)}, {"x": -abs(numbers(6)), "y": numbers(4)})


def test_logarithms_of_infinite_sums():
    made = model(
        "m (float[4,20] x) => (float[4] y, float[4,1] z)"
        " { y = ReduceLogSumExp <keepdims = 0, axes = [1]> (x) z = ReduceLogSumExp <axes = [-1]> (x) }"
    )
    x = numbers(4, 20)
    x[0], x[1, 3], x[2, 5] = -np.inf, np.inf, np.nan
    agree(made, {"x": x})


# ---- control flow -----------------------------------------------------------------------------------

BRANCHES = """then_branch = t () => (float[n] p) {{ p = Mul (x, x) }},
    else_branch = e () => (float[n] q) {{ w = Add (x, y) q = Tanh (w) }}"""


@pytest.mark.parametrize("size", [4, 40])
def test_if_on_data(size):
    made = model(
        f"m (float[{size}] x, float[{size}] y) => (float[{size}] z) {{ s = ReduceSum <keepdims = 0> (x)"
        f" zero = Constant <value = float {{0}}> () c = Less (s, zero) z = If (c) <{BRANCHES.format()}> }}"
    )
    x = numbers(size)
    agree(made, {"x": x, "y": x}, {"x": np.abs(x), "y": x}, {"x": -np.abs(x), "y": x})


def test_what_branches_pass_on():
    """Captures, inputs and constants, and the same twice."""
    made = model(
        "m (float[20] x, bool c) => (float[20] a, float[20] b, float[20] d) { n = Neg (x) a, b = If (c) <"
        "then_branch = t () => (float[20] p, float[20] p2) { p = Identity (n) p2 = Identity (x) },"
        "else_branch = e () => (float[20] q, float[20] q2) { q = Identity (x) q2 = Identity (x) }> d = Identity (a) }"
    )
    x = numbers(20)
    session = agree(made, {"x": x, "c": np.array(True)}, {"x": x, "c": np.array(False)})
    a, b, d = session.run(None, {"x": x, "c": np.array(False)})
    a[:] = 0
    assert x.any()
    for other in (b, d):
        np.testing.assert_array_equal(other, x)


LOOP = """m (float[{size}] x, int64 n, float limit) => (float[{size}] y, float[{size}] z, int64 k) {{
    true = Constant <value = bool {{1}}> () zero = Constant <value = int64 {{0}}> ()
    y, z, k = Loop (n, true, x, x, zero) <body = b (int64 i, bool go, float[{size}] s, float[{size}] t, int64 j)
      => (bool on, float[{size}] s2, float[{size}] t2, int64 j2) {{
        h = Constant <value = float {{0.5}}> () one = Constant <value = int64 {{1}}> ()
        s2 = Mul (t, h) t2 = Identity (s) j2 = Add (j, one) m = ReduceMax <keepdims = 0> (s2) on = Greater (m, limit) }}> }}"""


@pytest.mark.parametrize("size", [3, 50])
def test_loop_that_ends_itself(size):
    """States in registers and in memory, which take each other's place."""
    made = model(LOOP.format(size=size))
    x = np.abs(numbers(size)) + 1
    feeds = [
        {"x": x, "n": np.array(n), "limit": np.float32(limit)}
        for n in (0, 1, 2, 7, 1000)
        for limit in (0.1, 2)
    ]
    agree(made, *[f | {"limit": np.array(f["limit"])} for f in feeds])


def test_a_condition_that_begins_with_none():
    made = model(
        """m (float[20] x) => (float[20] y) { n = Constant <value = int64 {3}> ()
        y = Loop (n, , x) <body = b (int64 i, bool go, float[20] s) => (bool on, float[20] s2) {
          on = Constant <value = bool {0}> () s2 = Add (s, x) }> }"""
    )
    x = numbers(20)
    session = native(made)
    same(session.run(None, {"x": x}), [x + x])
    assert "program: " in session.explain()
    made.graph.node[1].attribute[0].g.node[0].CopyFrom(onnx.helper.make_node("Identity", ["go"], ["on"]))
    agree(made, {"x": x})


def test_rows():
    made = model(
        """m (float[5] x) => (float[5] y, float[4,5] r, float[4,30] w) { n = Constant <value = int64 {4}> ()
        long = Constant <value = int64[1] {6}> () yes = Constant <value = bool {1}> ()
        y, r, w = Loop (n, yes, x) <body = b (int64 i, bool go, float[5] s) => (bool on, float[5] s2, float[5] row, float[30] wide) {
          on = Identity (go) s2 = Add (s, s) row = Neg (s2) wide = Tile (s, long) }> }"""
    )
    agree(made, {"x": numbers(5)})


def test_loops_and_ifs_in_each_other():
    made = model(
        """m (float[6] x, int64 n) => (float[6] y) { true = Constant <value = bool {1}> ()
        y = Loop (n, true, x) <body = b (int64 i, bool go, float[6] s) => (bool on, float[6] s2) { on = Identity (go)
          two = Constant <value = int64 {2}> () h = Div (i, two) d = Mul (h, two) c = Equal (i, d)
          s2 = If (c) <then_branch = t () => (float[6] p) { p = Loop (i, on, s) <body = d (int64 j, bool g, float[6] u)
              => (bool o, float[6] u2) { o = Identity (g) u2 = Sub (u, x) }> },
            else_branch = e () => (float[6] q) { q = Add (s, s) }> }> }"""
    )
    x = numbers(6)
    agree(made, *({"x": x, "n": np.array(n)} for n in (0, 1, 2, 5)))


# ---- failing ----------------------------------------------------------------------------------------

PICK = model("m (float[4,20] x, int64 k) => (float[20] y) { y = Gather (x, k) }")


def test_an_index_out_of_range():
    session = native(PICK)
    x = numbers(4, 20)
    for _ in range(2):
        for k in (0, 3, -4, -1):
            (y,) = session.run(None, {"x": x, "k": np.array(k)})
            np.testing.assert_array_equal(y, x[k])
        for k in (4, -5, 2**62, -(2**63)):
            with pytest.raises(
                dml.ExecutionFailed, match=rf"Gather.*expected an index from -4 to 3, but got {k}"
            ):
                session.run(None, {"x": x, "k": np.array(k)})
    assert "program: " in session.explain()


ENDLESS = """
import signal, sys, threading, time
import numpy as np, onnx, anydml
made = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]> m (float x, int64 n) => (float y) {
  true = Constant <value = bool {1}> () y = Loop (n, true, x) <body = b (int64 i, bool go, float s) => (bool on, float s2) {
    on = Identity (go) h = Constant <value = float {0.5}> () s2 = Mul (s, h) }> }''')
session = anydml.load(made, threads=1, native=True)
feeds = {"x": np.array(1, np.float32), "n": np.array(3)}
session.run(None, feeds), session.run(None, feeds)
assert "program: " in session.explain()
ticks = []
def tick():
    while True:
        ticks.append(0)
        time.sleep(0.001)
threading.Thread(target=tick, daemon=True).start()
print("ready", flush=True)
try:
    session.run(None, feeds | {"n": np.array(2**62)})
except KeyboardInterrupt:
    assert len(ticks) > 5, ticks
    assert session.run(None, feeds)[0] == 0.125
    print("ended", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_ctrl_c_ends_an_endless_loop():
    """Other threads run meanwhile."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out == "ended\n", err


# ---- how it is called -------------------------------------------------------------------------------

SUM = model(
    "m (float[3,4] x, float[4] y) => (float[3,4] z, float[20] w)"
    " { z = Add (x, y) s = Constant <value = int64[1] {5}> () f = Tile (y, s) w = Neg (f) }"
)
X, Y = numbers(3, 4), numbers(4)


def test_feeds_that_are_not_as_before():
    """Whatever is no plain array of the sizes and type goes the ordinary way."""
    session, plain = native(SUM), dml.load(SUM, threads=1)
    session.run(None, {"x": X, "y": Y})
    raw = np.zeros(49, np.uint8)
    unaligned = raw[1:].view(np.float32).reshape(3, 4)
    unaligned[...] = X

    class Sub(np.ndarray):
        pass

    for x in (
        X.T.copy().T,
        X[::-1],
        X.astype(">f4"),
        unaligned,
        X.view(Sub),
        np.asfortranarray(X),
    ):
        for feeds in ({"x": x, "y": Y}, {"y": Y, "x": x}):
            same(session.run(None, feeds), plain.run(None, feeds))
    frozen = X.copy()
    frozen.flags.writeable = False
    same(session.run(None, {"x": frozen, "y": Y}), plain.run(None, {"x": X, "y": Y}))
    for feeds in (
        {"x": X},
        {"x": X, "y": Y, "z": Y},
        {"x": X, "w": Y},
        {"x": X.astype(np.float64), "y": Y},
        {"x": X[:2], "y": Y},
        {"x": X[0], "y": Y},
        {"x": None, "y": Y},
        {},
    ):
        with pytest.raises(dml.InvalidInput) as ours:
            session.run(None, feeds)
        with pytest.raises(dml.InvalidInput) as theirs:
            plain.run(None, feeds)
        assert str(ours.value) == str(theirs.value)
    assert [y.shape for y in session.run(["w", "z"], {"x": X, "y": Y})] == [(20,), (3, 4)]


def test_other_sizes_get_programs_of_their_own():
    made = model("m (float[n] x) => (float[n] y) { y = Add (x, x) }")
    session = native(made)
    for _ in range(3):
        for n in (3, 5, 40):
            x = numbers(n)
            same(session.run(None, {"x": x}), [x + x])


def test_contents_that_decide():
    made = model(
        "m (float[3] x, int64 k) => (float[3] y) { two = Constant <value = int64 {2}> () c = Equal (k, two)"
        " y = If (c) <then_branch = t () => (float[3] p) { p = Neg (x) }, else_branch = e () => (float[3] q) { q = Abs (x) }> }"
    )
    session = native(made)
    x = numbers(3)
    for k in (2, 1, 2, 3, 2, 2, 1, 1):
        same(session.run(None, {"x": x, "k": np.array(k)}), [-x if k == 2 else np.abs(x)])


def test_results_are_the_callers():
    session = native(SUM)
    feeds = {"x": X.copy(), "y": Y}
    first = session.run(None, feeds)
    kept = [y.copy() for y in first]
    second = session.run(None, {"x": X + 1, "y": Y})
    for y, k, other in zip(first, kept, second, strict=True):
        assert y.flags.owndata
        assert y.flags.writeable
        assert not np.may_share_memory(y, other)
        np.testing.assert_array_equal(y, k)


def test_references_stay():
    session = native(SUM)
    x = X.copy()
    feeds = {"x": x, "y": Y}
    session.run(None, feeds)
    before = [sys.getrefcount(o) for o in (x, feeds, X.dtype, None)]
    for _ in range(5000):
        session.run(None, feeds)
    after = [sys.getrefcount(o) for o in (x, feeds, X.dtype, None)]
    assert all(abs(a - b) < 100 for a, b in zip(before, after, strict=True))


def test_memory_that_is_poisoned():
    """Nothing is read that was not written, nor written behind what it has."""
    made = model(LOOP.format(size=50))
    session = native(made)
    feeds = {"x": np.abs(numbers(50)) + 1, "n": np.array(9), "limit": np.array(0.01, np.float32)}
    wanted = expected(made, feeds)
    strided = feeds | {"x": np.repeat(feeds["x"], 2)[::2]}  # which takes the ordinary way
    session.run(None, strided)
    (planned,) = session._program._plans
    program = planned.plan.steps[0].program
    for pattern in (0x00, 0xFF, 0x7F):
        program._spare[:] = []
        block, address = program._memory()
        block[:] = pattern
        program._spare.append((block, address))
        same(session.run(None, strided), wanted)


@pytest.mark.skipif(os.name == "nt", reason="needs mprotect")
@pytest.mark.parametrize("at_end", [True, False])
@pytest.mark.parametrize("size", [1, 3, 16, 17, 35, 64, 65])
def test_inputs_between_guard_pages(at_end, size):
    made = model(
        f"m (float[5,{size}] x, uint8[{size}] u) => (float[5,{size}] y, float[5] s, float[{size}] t, uint8[{size}] v, float[5,5] p) {{"
        " y = Tanh (x) s = ReduceMean <axes = [1], keepdims = 0> (x) t = ReduceMax <axes = [0], keepdims = 0> (x)"
        " v = Add (u, u) w = Transpose (x) p = MatMul (x, w) }"
    )
    memory = Memory()

    def held(array):
        place = memory.take(array.nbytes, at_end=at_end)
        found = place.window[place.start : place.start + place.size].view(array.dtype).reshape(array.shape)
        found[...] = array
        return found

    x, u = numbers(5, size), RNG.integers(0, 99, size).astype(np.uint8)
    session = agree(made, {"x": held(x), "u": held(u)}, rtol=1e-4, atol=1e-4)
    outputs = session.run(None, {"x": x, "u": u})
    bound = {i.name: held(y) for i, y in zip(session.get_outputs(), outputs, strict=True)}
    binding = session.bind({"x": held(x), "u": held(u)}, bound)
    for _ in range(2):
        same(binding.run(), outputs)


def test_several_threads():
    made = model(LOOP.format(size=300))
    session = native(made)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(200):
            x = rng.random(300, np.float32) + 1
            y, _, k = session.run(None, {"x": x, "n": np.array(4), "limit": np.array(-1, np.float32)})
            if k != 4 or not (y == x / 4).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child():
    script = """
    import os, numpy as np, onnx, anydml
    made = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> m (float[40] x) => (float[40] y) { y = Add (x, x) }')
    session = anydml.load(made, threads=1, native=True)
    feeds = {"x": np.ones(40, np.float32)}
    session.run(None, feeds)
    child = os.fork()
    assert (session.run(None, feeds)[0] == 2).all()
    if child == 0:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


def test_pickles_and_copies():
    session = native(SUM)
    feeds = {"x": X, "y": Y}
    wanted = session.run(None, feeds)
    for other in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
        same(other.run(None, feeds), wanted)
        assert "program: " in other.explain()
    assert "program: " not in dml.load(SUM, threads=1).explain()


def test_what_programs_leave_to_others():
    """Strings, sequences, sizes of nothing, too much work: as without."""
    texts = model("m (string[2] x) => (string[2] y) { y = Identity (x) }")
    session = native(texts)
    assert session.run(None, {"x": np.array(["a", "b"], object)})[0].tolist() == ["a", "b"]
    assert "program: " not in session.explain()
    large = model("m (float[700,700] x) => (float[700,700] y) { y = MatMul (x, x) }")
    session = native(large)
    x = numbers(700, 700)
    same(session.run(None, {"x": x}), expected(large, {"x": x}), rtol=1e-3, atol=1e-2)
    assert "program: " not in session.explain()
    session = native(model("m (float[n] x) => (float[n] y) { y = Neg (x) }"))
    assert session.run(None, {"x": np.zeros(0, np.float32)})[0].shape == (0,)
    assert "program: " not in session.explain()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_code_goes_with_its_sessions():
    def maps():
        with open("/proc/self/maps") as file:
            return len(file.readlines())

    def load_and_run(k):
        session = native(
            model(
                f"m (float[5] x) => (float[5] y) {{ c = Constant <value = float {{{k}}}> () y = Mul (x, c) }}"
            )
        )
        assert session.run(None, {"x": np.ones(5, np.float32)})[0].tolist() == [k] * 5
        return session

    load_and_run(1)
    before = maps()
    for k in range(50):
        load_and_run(k % 5)
    assert maps() < before + 20
    last = load_and_run(7)
    entry = last._program.entry
    del last
    assert entry({"x": np.ones(5, np.float32)})[0].tolist() == [7] * 5  # of a session that is gone
    assert len(load_and_run(3)._program._plans)


def test_emit():
    session = native(SUM)
    with pytest.raises(dml.InvalidInput, match="there is none so far; load with native=True"):
        session.emit()
    session.run(None, {"x": X, "y": Y})
    assert "define i32 @program(ptr %words)" in session.emit("llvm")
    assert "program:" in session.emit("asm")
    with pytest.raises(dml.InvalidInput, match="form: expected 'llvm' or 'asm', but got 'c'"):
        session.emit("c")


# ---- bound arrays --------------------------------------------------------------------------------------

GATED = """m (float[n] x, bool loud, int64[1] at) => (float[n] y, float z) {
    y = If (loud) <then_branch = t () => (float[n] a) { a = Add (x, x) },
                   else_branch = e () => (float[n] b) { b = Neg (x) }>
    picked = Gather (x, at)
    z = ReduceSum <keepdims = 0> (picked)
}"""


def test_bound_runs_are_the_program_and_see_what_changes():
    session = dml.load(model(GATED))
    feeds = {"x": numbers(6), "loud": np.array(True), "at": np.array([2])}
    y, z = np.zeros(6, np.float32), np.zeros((), np.float32)
    bound = session.bind(feeds, {"y": y, "z": z})
    for loud in (True, True, True, False, False, True):
        feeds["loud"][...] = loud
        feeds["x"][...] += 1
        found = bound.run()
        assert found[0] is y
        assert found[1] is z
        same([y, z], [feeds["x"] * 2 if loud else -feeds["x"], feeds["x"][2]])
    assert bound._entry is not None
    feeds["at"][...] = 17
    with pytest.raises(dml.ExecutionFailed, match="17"):
        bound.run()
    feeds["at"][...] = 5
    same(bound.run(), [feeds["x"] * 2, feeds["x"][5]])
    with pytest.raises(ValueError, match="resize"):
        y.resize(2, refcheck=False)


def test_bound_runs_leave_nothing_behind():
    session = dml.load(model(GATED))
    feeds = {"x": numbers(6), "loud": np.array(True), "at": np.array([2])}
    outputs = {"y": np.zeros(6, np.float32), "z": np.zeros((), np.float32)}
    bound = session.bind(feeds, outputs)
    for _ in range(3):
        bound.run()
    counts = [sys.getrefcount(a) for a in (*feeds.values(), *outputs.values(), bound._all)]
    for _ in range(10_000):
        bound.run()
    assert [sys.getrefcount(a) for a in (*feeds.values(), *outputs.values(), bound._all)] == counts


def test_bound_outputs_that_overlap_inputs_go_the_ordinary_way():
    session = dml.load(model(GATED))
    x = numbers(6)
    feeds = {"x": x, "loud": np.array(True), "at": np.array([2])}
    bound = session.bind(feeds, {"y": x, "z": np.zeros((), np.float32)})
    for _ in range(4):
        wanted = [x * 2, x[2]]
        same(bound.run(), wanted)
    assert bound._entry is None
