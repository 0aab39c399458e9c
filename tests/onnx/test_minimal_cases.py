"""Small models on which results were once wrong, or a process ended: each with what is right, and why."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

import anydml

F, I64 = np.float32, np.int64


def run(text, feed, opset=17):
    return anydml.load(parsed(text, opset), threads=1).run(None, feed)


def parsed(text, opset=17):
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> m {text}')


def same(found, wanted):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


CONSTANTS = {
    "LogSoftmax without a shift overflows": (
        "() => (float[a] y) <float[3] x = {0, 120, -30}> { y = LogSoftmax <axis = 0> (x) }",
        F([-120, 0, -150]),
    ),
    "QuantizeLinear saturates": (
        "() => (uint8[a] y) <float[3] x = {3.0, -1.0, 0.5}, float s = {1e-9}, uint8 z = {0}> { y = QuantizeLinear (x, s, z) }",
        np.uint8([255, 0, 255]),
    ),
    "ReduceSumSquare keeps its type": (
        "() => (int32[a] y) <int32[3] x = {1, 2, 3}> { y = ReduceSumSquare (x) }",
        np.int32([14]),
    ),
    "Resize takes the nearest, and nothing of its neighbours": (
        """() => (float[a, b, c] y) <float[1, 1, 2] x = {1e38, 1}, float[3] s = {1, 1, 2}> { i = Mul (x, x)
        y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (i, , s) }""",
        F([[[np.inf, np.inf, 1, 1]]]),
    ),
    "BatchNormalization before opset 14": (
        """() => (float[a, b] y) <float[2, 2] x = {1, 2, 3, 4}, float[2] s = {2, 1}, float[2] b = {0, 1}, float[2] m = {1, 1},
        float[2] v = {3.99999, 0.99999}> { y = BatchNormalization <epsilon = 0.00001> (x, s, b, m, v) }""",
        F([[0, 2], [2, 4]]),
    ),
}


@pytest.mark.parametrize("case", CONSTANTS)
def test_what_is_known_beforehand(case):
    text, wanted = CONSTANTS[case]
    same(run(text, {}, 12 if "before" in case else 17)[0], wanted)


def test_what_decides_a_branch_keeps_its_type():
    text = """(int32[3] c) => (int32[k] y) <int32 z = {14}> { q = ReduceSumSquare <keepdims = 0> (c) e = Equal (q, z)
        y = If (e) <then_branch = t () => (int32[3] r) { r = Mul (q, c) }, else_branch = f () => (int32[3] r) { r = Neg (c) }> }"""
    same(run(text, {"c": np.int32([1, 2, 3])})[0], np.int32([14, 28, 42]))


LOOP = """(double%s x, int64 k) => (double%s y, double%s z) <bool t = {1}> { y, z = Loop (k, t, x)
    <body = b (int64 i, bool c, double%s s) => (bool c2, double%s s2, double%s o) { c2 = Identity (c) s2 = Atan (s) o = Identity (s2) }> }"""
ONE, TABLE = math.atan(1.0), np.array([[1.0, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("sizes", "x", "trips", "wanted"),
    [
        (
            ("", "", "[p]", "", "", ""),
            np.array(1.0),
            2,
            [np.array(math.atan(ONE)), np.array([ONE, math.atan(ONE)])],
        ),
        (
            ("[n,p]", "[a,b]", "[q,r,s]", "[n,p]", "[n,p]", "[n,p]"),
            TABLE,
            2,
            [np.arctan(np.arctan(TABLE)), np.stack([np.arctan(TABLE), np.arctan(np.arctan(TABLE))])],
        ),
        (
            ("[n]", "[a]", "[p,q]", "[n]", "[n]", "[n]"),
            np.array([1.0, 2]),
            0,
            [np.array([1.0, 2]), np.zeros((0, 2))],
        ),
    ],
)
def test_loops_of_what_onnxruntime_lacks(sizes, x, trips, wanted):
    """Scan outputs are stacked along a new axis; without a trip they are empty, of the sizes that they would have."""
    for a, b in zip(run(LOOP % sizes, {"x": x, "k": np.array(trips)}), wanted, strict=True):
        same(a, b)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceSum", "ReduceProd", "ReduceL2", "ReduceLogSumExp"])
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions_over_nothing_counted_from_the_end(op, keep):
    neutral = {"ReduceMax": -np.inf, "ReduceProd": 1, "ReduceLogSumExp": -np.inf}.get(op, 0)
    text = f"(float[n, k] x) => (float[a, b] y) {{ y = {op} <axes = [-1], keepdims = {keep}> (x) }}"
    session = anydml.load(parsed(text, 12), threads=1)
    for width in (0, 2, 0):
        (y,) = session.run(None, {"x": np.ones((3, width), F)})
        assert y.shape == ((3, 1) if keep else (3,))
        assert width or (y == F(neutral)).all()


def test_a_range_down_to_the_smallest_integer():
    text = "(int64[n] x) => (int64[k] y) <int64 a = {1}, int64 d = {2}> { l = ReduceMax <keepdims = 0> (x) y = Range (a, l, d) }"
    same(run(text, {"x": np.zeros(0, I64)})[0], np.zeros(0, I64))


def test_a_matrix_by_a_vector_of_nothing():
    """onnxruntime leaves the result as it finds it: what another request computed."""
    session = anydml.load(
        parsed("(float[n, k] x, float[k] r) => (float[a] y) { q = MatMul (x, r) y = Neg (q) }"), threads=1
    )
    seen = set()
    for k in range(1, 100):
        full = session.run(None, {"x": np.full((3, 4), k, F), "r": np.ones(4, F)})[0]
        assert (full == -4 * k).all()
        del full
        seen |= set(session.run(None, {"x": np.zeros((3, 0), F), "r": np.zeros(0, F)})[0].tolist())
    assert seen == {0}


def test_a_matrix_by_a_vector_that_only_the_data_empties():
    text = """(float[n] x) => (float[a] y) <int64[1] m = {-1}, int64[1] first = {0}> {
        z = NonZero (x) i = Reshape (z, m) v = Gather (x, i) row = Unsqueeze (v, first)
        a = Concat <axis = 0> (row, row, row) y = MatMul (a, v) }"""
    session = anydml.load(parsed(text), threads=1)
    for k in range(1, 20):
        assert (session.run(None, {"x": np.full(4, k, F)})[0] == 4 * k * k).all()
        assert session.run(None, {"x": np.zeros(4, F)})[0].tolist() == [0, 0, 0]


DATA = {
    "Div": (
        "(int64[n] x, int64[n] y) => (int64[n] z) { z = Div (x, y) }",
        [-(2**63), 7, -7],
        [-1, -2, 2],
        [-(2**63), -3, -3],
    ),
    "Mod": (
        "(int64[n] x, int64[n] y) => (int64[n] z) { z = Mod (x, y) }",
        [-(2**63), 7, -7],
        [-1, -2, 2],
        [0, -1, 1],
    ),
}
CHILD = """
import sys, numpy as np, anydml
from onnx import parser
for text, x, y in eval(sys.argv[1]):
    session = anydml.load(parser.parse_model('<ir_version: 8, opset_import: ["": 17]> m ' + text), threads=1)
    try:
        print(session.run(None, {"x": np.array(x), "y": np.array(y)})[0].tolist(), flush=True)
    except anydml.AnyDMLError as error:
        print(type(error).__name__, flush=True)
"""


def child(*questions):
    """The answers of a process that may end before."""
    command = [sys.executable, "-c", CHILD, repr(questions)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("op", DATA)
def test_integers_that_end_a_process(op):
    """The smallest integer by -1, and anything by 0: the processor traps, and onnxruntime lets it."""
    text, x, y, wanted = DATA[op]
    inside = f"""(int64[n] x, int64[n] y) => (int64[n] z) <int64 k = {{1}}, bool t = {{1}}> {{
        z = Loop (k, t, x) <body = b (int64 i, bool c, int64[n] s) => (bool d, int64[n] r) {{ d = Identity (c) r = {op} (s, y) }}> }}"""
    found = child((text, x, y), (text, x, [1, 0, 1]), (inside, x, y))
    assert found == [str(wanted), "ExecutionFailed", str(wanted)]


def test_division_by_what_is_harmless_is_quick():
    session = anydml.load(
        parsed("(int64[n] x) => (int64[n] z) <int64 two = {2}> { a = Div (x, two) z = Mod (a, two) }"),
        threads=1,
    )
    assert session.run(None, {"x": I64([7, -7])})[0].tolist() == [1, 1]
    assert session.explain().splitlines()[1:] == ["  kernels: Div, Mod"]


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
def test_einsums_of_nothing(shape):
    text = '(float[n, k] x) => (float[n, m] y) { y = Einsum <equation = "ij,kj->ik"> (x, x) }'
    (y,) = run(text, {"x": np.zeros(shape, F)})
    same(y, np.zeros((shape[0], shape[0]), F))


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_recurrent_operators_on_an_empty_batch(op):
    rows = {"LSTM": 16, "GRU": 12, "RNN": 4}[op]
    text = f"""(float[t, b, 3] x, float[1, {rows}, 3] w, float[1, {rows}, 4] r) => (float[a, b, c, d] y) {{
        y = {op} <hidden_size = 4> (x, w, r) }}"""
    feed = {"w": np.ones((1, rows, 3), F), "r": np.ones((1, rows, 4), F)}
    session = anydml.load(parsed(text), threads=1)
    assert session.run(None, {"x": np.ones((2, 3, 3), F), **feed})[0].shape == (2, 1, 3, 4)
    try:
        assert session.run(None, {"x": np.ones((2, 0, 3), F), **feed})[0].shape == (2, 1, 0, 4)
    except anydml.AnyDMLError:
        assert op != "RNN", "an error is an answer where no library has one"


def test_split_to_sequence_without_keepdims():
    """As torch.where is exported: parts of length 1 lose the axis, whatever shape inference says."""
    text = """(float[n] s, float[n] v) => (float[k] o) {
        z = Constant <value_int = 0> () one = Constant <value_int = 1> () h = Constant <value_float = 0.5> ()
        l = Constant <value_ints = [-1]> () c = Greater (s, h) nz = NonZero (c) t = Transpose <perm = [1, 0]> (nz)
        q = SplitToSequence <axis = 1, keepdims = 0> (t, one) i = SequenceAt (q, z) g = Gather (v, i) sh = Shape (g)
        kk = Gather (sh, l) o, oi = TopK (g, kk) }"""
    (o,) = run(text, {"s": F([0.1, 0.9, 0.8, 0.2, 0.7]), "v": F([1, 2, 3, 4, 5])})
    same(o, F([5, 3, 2]))


@pytest.mark.parametrize("opset", [15, 18, 21])
@pytest.mark.parametrize("kind", ["tensor", "sequence"])
def test_optional_inputs(opset, kind):
    """Fed with content, and without, by turns."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [None])
    inner = tensor if kind == "tensor" else helper.make_sequence_type_proto(tensor)
    x = helper.make_value_info("x", helper.make_optional_type_proto(inner))
    get = [helper.make_node("OptionalGetElement", ["x"], ["g"])]
    get.append(
        helper.make_node("Neg", ["g"], ["a"])
        if kind == "tensor"
        else helper.make_node("SequenceAt", ["g", "z"], ["a"])
    )
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None]) for n in ("a", "b", "y")]
    then_branch = helper.make_graph(get, "t", [], ends[:1])
    else_branch = helper.make_graph([helper.make_node("Identity", ["d"], ["b"])], "e", [], ends[1:2])
    nodes = [
        helper.make_node("OptionalHasElement", ["x"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch),
    ]
    initializers = [
        helper.make_tensor("d", TensorProto.FLOAT, [1], [7.0]),
        helper.make_tensor("z", TensorProto.INT64, [], [0]),
    ]
    graph = helper.make_graph(
        nodes, "g", [x], [*ends[2:], helper.make_tensor_value_info("c", TensorProto.BOOL, [])], initializers
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session, array = anydml.load(proto, threads=1), F([1, 2])
    for _ in range(2):
        y, c = session.run(None, {"x": array if kind == "tensor" else [array, array]})
        assert (y.tolist(), c.item()) == ([-1, -2] if kind == "tensor" else [1, 2], True)
        y, c = session.run(None, {"x": None})
        assert (y.tolist(), c.item()) == ([7], False)


def test_ranks_that_a_library_gives_win(monkeypatch):
    """Were nothing known of SplitToSequence, the first run would find it out, and conclude nothing from it any more."""
    monkeypatch.setattr("anydml.onnx.partial_eval.shape_inference.rank_unsure", lambda node: False)
    text = """(float[n] s, float[n] v) => (float[k] o, int64 r) {
        one = Constant <value_int = 1> () h = Constant <value_float = 0.5> () z = Constant <value_int = 0> ()
        c = Greater (s, h) nz = NonZero (c) t = Transpose <perm = [1, 0]> (nz)
        p = SplitToSequence <axis = 1, keepdims = 0> (t, one) i0 = SequenceAt (p, z) q = SequenceInsert (p, i0)
        i = SequenceAt (q, z) o = Gather (v, i) sh = Shape (o) r = Size (sh) }"""
    session = anydml.load(parsed(text), threads=1)
    for _ in range(2):
        o, r = session.run(None, {"s": F([0.1, 0.9, 0.8, 0.2, 0.7]), "v": F([1, 2, 3, 4, 5])})
        same(o, F([2, 3, 5]))
        assert r == 1
    assert any(op.name == "SplitToSequence" for op in session._program.libraries.fast.unbelieved)
    inside = """(bool c, float[n] s, float[n] v) => (float[k] o, int64 r) {
        one = Constant <value_int = 1> () h = Constant <value_float = 0.5> () z = Constant <value_int = 0> ()
        m = ReduceMax <keepdims = 0> (s) big = Greater (m, h)
        o = If (big) <then_branch = t () => (float[p] a) {
            d = Greater (s, h) nz = NonZero (d) t = Transpose <perm = [1, 0]> (nz)
            p = SplitToSequence <axis = 1, keepdims = 0> (t, one) i0 = SequenceAt (p, z)
            q = SequenceInsert (p, i0) i = SequenceAt (q, z) a = Gather (v, i) },
            else_branch = e () => (float[q, u] b) { first = Constant <value_ints = [0]> () b = Unsqueeze (v, first) }>
        sh = Shape (o) r = Size (sh) }"""
    session = anydml.load(parsed(inside), threads=1)
    for s, rank in (([0.1, 0.9, 0.8, 0.2, 0.7], 1), ([0.1] * 5, 2), ([0.1, 0.9, 0.8, 0.2, 0.7], 1)):
        o, r = session.run(None, {"c": np.array(True), "s": F(s), "v": F([1, 2, 3, 4, 5])})
        assert (o.ndim, r.item()) == (rank, rank)


def test_a_transposed_matrix_by_a_vector():
    text = (
        "(float[a, b] x, float[c] v) => (float[d] y) { t = Transpose <perm = [1, 0]> (x) y = MatMul (t, v) }"
    )
    x, v = F([[1, 2, 3], [4, 5, 7]]), F([1, -2])
    same(run(text, {"x": x, "v": v})[0], x.T @ v)


@pytest.mark.parametrize("opset", [13, 19, 21, 23])
def test_rounding_before_a_reshape(opset):
    text = """(float[a, b] x) => (float[c] y) <float s = {0.25}, int8 z = {7}, int64[1] k = {-1}>
    { q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z) y = Reshape (d, k) }"""
    session = anydml.load(parsed(text, opset), threads=1)
    same(session.run(None, {"x": F([[1.1, 99], [-99, 0.3]])})[0], F([1, 30, -33.75, 0.25]))
    assert "onnxruntime: QuantizeLinear" in str(session.explain())


def test_a_shape_from_a_reshape():
    text = """(float[a, b] x, int64[1, 2] k) => (float[c, d] y) <int64[1] f = {-1}>
    { r = Reshape (k, f) y = Reshape (x, r) }"""
    x = F([[1, 2, 3], [4, 5, 7]])
    same(run(text, {"x": x, "k": I64([[3, 2]])}, 21)[0], x.reshape(3, 2))


def test_products_of_scales_by_row():
    """onnxruntime fuses a DequantizeLinear of many scales into a product that has room for one."""
    text = """(uint8[n, k] a) => (float[n, m] y) <float[2] s = {0.5, 2}, uint8[2] z = {1, 3}> {
        x = DequantizeLinear <axis = 1> (a, s, z) y = MatMul (x, x) }"""
    x = F([[0.5, 2], [1, -2]])
    same(run(text, {"a": np.uint8([[2, 4], [3, 2]])})[0], x @ x)


def test_a_scan_whose_body_declares_other_ranks():
    """onnxruntime refuses it where it knows what is scanned, and runs it where it does not."""
    built = parsed("""(float[4, n, 4] x, bool c, float[k] z) => (int64[a, b] y) {
        w = If (c) <then_branch = t () => (float[a, b] p) { p = Unsqueeze (z, z0) },
                    else_branch = e () => (float[] q) { q = Identity (x) }>
        y = Scan <num_scan_inputs = 1, body = b (float[i] s) => (int64[1] r) { r = Shape (z) }> (w) }""")
    built.graph.node[0].attribute[0].g.initializer.append(
        helper.make_tensor("z0", TensorProto.INT64, [1], [0])
    )
    feed = {"x": np.ones((4, 2, 4), F), "c": np.array(False), "z": np.ones(3, F)}
    same(anydml.load(built).run(None, feed)[0], I64([[3]] * 4))
    flat, _ = anydml.flatten(built, fixed={"c": False})
    same(anydml.load(flat).run(None, {n: feed[n] for n in ("x", "z")})[0], I64([[3]] * 4))


NEGATIVE = {
    "AveragePool": "p = AveragePool <kernel_shape = [1, 3]> (x)",
    "MaxPool": "p = MaxPool <kernel_shape = [1, 3]> (x)",
    "LpPool": "p = LpPool <kernel_shape = [1, 3]> (x)",
    "Conv": "w = ConstantOfShape (three) p = Conv (x, w)",
    "ConvTranspose": "w = ConstantOfShape (ones) p = ConvTranspose <pads = [0, 3, 0, 3]> (x, w)",
    "Split": "q0, q1, p = Split <num_outputs = 3, axis = 3> (x)",
    "Pad": "p = Pad (x, ends)",
    "Tile": "p = Tile (x, less)",
    "Expand": "p = Expand (x, less)",
    "OneHot": "p = OneHot (x0, minus, values)",
    "Resize": "s = Cast <to = 1> (less) p = Resize (x, , s)",
    "CenterCropPad": "one = Neg (three) p = CenterCropPad (x, one)",
}


@cache
def told_of_negative_sizes():
    """By the operators, in a process that may end by them: then what comes behind is missing, too."""
    script = f"""
import numpy as np, onnx.parser, anydml
for op, text in {NEGATIVE}.items():
    model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 18]> m (float[n, a, b] x0) => (float[c, d, e, f] y)
    <int64[4] ones = {{1, 1, 1, 1}}, int64[4] three = {{1, 1, 1, 3}}, int64[4] less = {{1, 1, 1, -3}},
     int64[8] ends = {{0, 0, 0, 0, 0, 0, 0, -3}}, int64[1] axis = {{1}}, int64[1] start = {{-1}},
     int64[1] end = {{9223372036854775807}}, int64[1] last = {{-1}},
     int64 minus = {{-3}}, float[2] values = {{0, 1}}> {{
    x = Unsqueeze (x0, axis) ''' + text + ''' y = Slice (p, start, end, last) }}''')
    try:
        anydml.load(model).run(None, {{"x0": np.ones((5, 5, 1), np.float32)}})
    except anydml.AnyDMLError as error:
        print(op, type(error).__name__, *str(error).splitlines(), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    lines = (line.split(" ", 1) for line in done.stdout.splitlines())
    return dict(lines), done


@pytest.mark.parametrize("op", NEGATIVE)
def test_less_than_no_elements_is_an_error(op):
    """Of such sizes, once it is told them, onnxruntime's inference for a Slice ends the process."""
    told, done = told_of_negative_sizes()
    assert op in told, done.stderr
    assert told[op].startswith(("ExecutionFailed", "InvalidModel"))
    assert op in told[op]
    assert done.returncode == 0, done.stderr


ROWS_BY_IF = """
(float[n, 2] x, float[n] c) => (float[a, b, d] y) <float zero = {0}> {
  y = Scan <num_scan_inputs = 2, body = b (float[2] row, float s) => (float[u, v] r) {
    t = Greater (s, zero)
    r = If (t) <then_branch = p () => (float[u, v] a) { i = Constant <value = int64[2] {1, 2}> () a = Reshape (row, i) },
                else_branch = q () => (float[u, v] e) { j = Constant <value = int64[1] {0}> () e = Unsqueeze (row, j) }> }> (x, c)
}"""


def test_rows_of_a_scan_that_an_if_gives():
    """onnxruntime has no memory for them where their sizes are not known."""
    model = parsed(ROWS_BY_IF)
    x, c = F([[1, 2], [3, 4]]), F([1, -1])
    for node in model.graph.node[0].attribute[0].g.output:
        node.type.tensor_type.ClearField("shape")
    (y,) = anydml.load(model, threads=1).run(None, {"x": x, "c": c})
    same(y, x[:, None])


@pytest.mark.parametrize("c", [2, 0])
def test_a_branch_whose_rank_is_known_beside_one_whose_rank_is_not(c):
    """Before opset 13, onnxruntime folds the Shape behind by the first one's."""
    text = """(float[2, a] d, float x, float[b, 1, e] v) => (int64 y) <float one = {1}, float k = {1.5}> {
      t = Greater (x, one)
      z = If (t) <then_branch = g () => (float[p] r) { s = Constant <value = int64[1] {-1}> () r = Reshape (v, s) },
                  else_branch = h () => (float[p, q] i) { i = Identity (d) }>
      w = If (t) <then_branch = g2 () => (float r2) { r2 = Identity (k) },
                  else_branch = h2 () => (float[p, q] i2) { i2 = Identity (z) }>
      n = Shape (w)  y = Size (n)
    }"""
    model = parsed(text, 12)
    for node in model.graph.node:
        for attribute in node.attribute:
            for output in attribute.g.output:
                output.type.tensor_type.ClearField("shape")
    feeds = {"d": np.ones((2, 3), F), "x": F(c), "v": np.ones((2, 1, 3), F)}
    (y,) = anydml.load(model, threads=1).run(None, feeds)
    same(y, np.array(0 if c > 1 else 2))


def test_the_sign_of_nan_in_a_kernel():
    (y,) = run("(float[3] x) => (float[3] y) { y = Sign (x) }", {"x": F([np.nan, -2, 0])})
    assert np.isnan(y[0])
    assert y[1:].tolist() == [-1, 0]


@pytest.mark.parametrize("trips", [1, 2, 5])
@pytest.mark.parametrize("direct", [True, False])
def test_the_number_of_an_iteration_that_a_loop_returns(trips, direct):
    """onnxruntime counts on in the tensor that its body got; behind a folded If nothing stands between."""
    given = "else_branch = e () => (int64 a) { a = Identity (i) }, then_branch = t () => (int64 b) { b = Identity (two) }"
    text = f"""(float[r, c] f) => (int64 y, int64 z) <int64 two = {{2}}, int64 trips = {{{trips}}}, bool yes = {{1}}> {{
      y, z = Loop (trips, yes, two, two) <body = g (int64 i, bool go, int64 s, int64 t) => (bool on, int64 s2, int64 t2) {{
        n = Size (f) zero = Constant <value_int = 0> () c = Equal (n, zero) s2 = If (c) <{given}>
        on = Identity (go) t2 = Identity (s) }}> }}"""
    model = parsed(text)
    if direct:
        (body,) = (a.g for a in model.graph.node[0].attribute)
        del body.node[:-2]
        body.output[1].name = "i"
    y, z = anydml.load(model, threads=1, native=False).run(None, {"f": np.ones((1, 3), F)})
    same(y, np.array(trips - 1, I64))
    same(z, np.array(trips - 2 if trips > 1 else 2, I64))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_what_is_no_number_quantized_in_a_program(dtype):
    """As by onnxruntime: the least; infinities and what is too large saturate."""
    x = np.float32([np.nan, np.inf, -np.inf, 1e30, -1e30, 0.4, -0.6])
    text = f"""(float[7] x) => ({dtype}[7] y) <float s = {{0.5}}, {dtype} z = {{3}}> {{ y = QuantizeLinear (x, s, z) }}"""
    model = parsed(text, 21)
    program = anydml.load(model, threads=1, native=True)
    assert np.array_equal(
        *(s.run(None, {"x": x})[0] for s in (program, anydml.load(model, threads=1, native=False)))
    )
    assert "program" in program.explain()


@pytest.mark.parametrize("wanted_program", [False, True])
@pytest.mark.parametrize("between", ["", "q = MatMul (p, w)"])
def test_one_group_normalization_after_another(wanted_program, between):
    """ONNX's inference has no rule for that of opset 18, and onnxruntime refuses one of unknown sizes."""
    made = parsed(
        f"""(float[3,2,3] x) => (float[a, b, c] y) <float[2] s = {{1, 2}}, float[2] b = {{0, 1}}, float[3,3] w = {{1,0,0,0,1,0,0,0,2}}> {{
        p = GroupNormalization <num_groups = 2> (x, s, b) {between}
        y = GroupNormalization <num_groups = 2> ({"q" if between else "p"}, s, b) }}""",
        18,
    )
    x = np.random.default_rng(3).standard_normal((3, 2, 3)).astype(F)

    def normal(x):
        apart = x - x.mean(2, keepdims=True)
        return apart / np.sqrt(np.square(apart).mean(2, keepdims=True) + 1e-5) * F([[[1], [2]]]) + F(
            [[[0], [1]]]
        )

    once = normal(x.astype(np.float64))
    wanted = normal(once @ np.diag([1, 1, 2]) if between else once)
    session = anydml.load(made, threads=1, **({"native": True} if wanted_program else {}))
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)
    assert "NumPy" not in session.explain()


@pytest.mark.parametrize("wanted_program", [False, True])
def test_shrink_by_a_negative_threshold(wanted_program):
    """Where both sides meet, the first of ONNX's cases counts; DirectML's order is another."""
    made = parsed("(float[5] x) => (float[5] y) { y = Shrink <lambd = -0.2, bias = 0.5> (x) }", 9)
    x = F([-1, -0.2, 0, 0.2, 1])
    session = anydml.load(made, threads=1, **({"native": True} if wanted_program else {}))
    (found,) = session.run(None, {"x": x})
    same(found, F([-0.5, 0.3, 0.5, -0.3, 0.5]))


def test_a_first_condition_of_one_element():
    """onnxruntime takes it for a scalar, which the body declares."""
    made = parsed(
        """(float[1] x) => (int64[n] y) <int64[1] zero = {0}, int64[1] first = {0}, int64 two = {2}, int64 many = {9}> {
        c = LessOrEqual (zero, two)
        s, rows = Loop (many, c, x) <body = b (int64 i, bool[] on, float[] v) => (bool[] go, float[] w, int64[] row) {
            w = Unsqueeze (v, first) go = Constant <value = bool {0}> () row = Identity (i) }>
        y = Shape (rows) }""",
        14,
    )
    (found,) = anydml.load(made, threads=1).run(None, {"x": F([1])})
    same(found, np.array([1]))


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("told", ["roi, none, sizes", "roi, twice"])
def test_aligned_corners_of_whole_sizes(mode, told):
    """Only by scales that give fractions onnxruntime and ONNX disagree; all else is its own, and quick."""
    made = parsed(
        f"""(float[n, 3, h, w] x) => (float[n, 3, p, q] y)
            <float[0] roi = {{}}, float[0] none = {{}}, int64[4] sizes = {{1, 3, 9, 6}}, float[4] twice = {{1, 1, 2, 2}}> {{
            y = Resize <mode = "{mode}", coordinate_transformation_mode = "align_corners"> (x, {told}) }}"""
    )
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32)
    session = anydml.load(made, threads=1, native=False)
    (wanted,) = ReferenceEvaluator(made).run(None, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, atol=2e-5)
    assert "onnxruntime: Resize" in session.explain()


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("ends", ["step, window", "step, window, size", 'step, "", size'])
@pytest.mark.parametrize("sizes", [(2, 5000), (2, 5000, 1), (1, 5000, 2)])
def test_short_time_transforms(sizes, ends, onesided):
    """Of the ranks that ONNX and torch's exporter have; more frames than are transformed at once."""
    if onesided and sizes[-1] == 2:
        return  # of complex numbers there is no half
    rank = ", ".join("abc"[: len(sizes)])
    made = parsed(
        f"""(float[{rank}] x, float[w] window) => (float[p, q, r, s] y) <int64 step = {{4}}, int64 size = {{32}}> {{
            y = STFT <onesided = {onesided}> (x, {ends}) }}"""
    )
    r = np.random.default_rng(0)
    x, window = r.standard_normal(sizes).astype(np.float32), r.random(32).astype(np.float32)
    session = anydml.load(made, threads=1)
    (y,) = session.run(None, {"x": x, "window": window})
    numbers = x.reshape(*sizes[:2], -1).astype(np.float64)
    signal = numbers[..., 0] + 1j * numbers[..., 1] if sizes[-1] == 2 else numbers[..., 0]
    frames = np.stack([signal[:, k : k + 32] for k in range(0, 5000 - 31, 4)], 1)
    wanted = np.fft.fft(frames * window if "window" in ends else frames)[..., : 17 if onesided else 32]
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, atol=1e-4)
    assert "NumPy: STFT" in session.explain()
