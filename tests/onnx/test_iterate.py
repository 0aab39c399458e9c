"""Loop, Scan and SequenceMap whose bodies contain an If: they run as programs of ours."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import anydml as dml
from anydml.onnx.execute.partition import Partition

X = np.float32([1, -2, 3])


def parsed(text, opset=18):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> m {text}')


def agrees(model, feeds):
    session = dml.load(model, threads=1)
    wanted = ReferenceEvaluator(model).run(None, feeds)
    for _ in range(2):
        for a, b in zip(session.run(None, feeds), wanted, strict=True):
            for got, exact in zip(*((x,) if not isinstance(x, list) else x for x in (a, b)), strict=True):
                np.testing.assert_allclose(got, exact, rtol=1e-6)
                assert (got.shape, got.dtype) == (exact.shape, exact.dtype)
    return session


LOOP = """{out} = Loop (n, go, x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1, float[3] row) {{
    half = Constant <value_int = 2> ()  odd = Mod (i, half)  one = Constant <value_int = 1> ()
    c = Equal (odd, one)  k1 = Identity (k)
    s1 = If (c) <then_branch = t () => (float[3] p) {{ p = Add (s, w) }},
                 else_branch = e () => (float[3] q) {{ q = Mul (s, s) }}>
    row = Sub (s1, x)
  }}>"""


@pytest.mark.parametrize("count", [0, 1, 4])
def test_an_if_in_a_loop(count):
    model = parsed(
        "(int64 n, bool go, float[3] x, float[3] w) => (float[3] y, float[a, 3] rows) { "
        + LOOP.format(out="y, rows")
        + " }"
    )
    feeds = {"n": np.array(count), "go": np.array(True), "x": X, "w": X * 10}
    session = dml.load(model, threads=1)
    y, rows = session.run(None, feeds)
    state, wanted = X, []
    for i in range(count):
        state = state + X * 10 if i % 2 else state * state
        wanted.append(state - X)
    np.testing.assert_allclose(y, state)
    assert rows.shape == (count, 3)
    np.testing.assert_allclose(rows, np.reshape(wanted, (count, 3)))
    if count:
        assert "onnxruntime: Loop" in session.explain()


@pytest.mark.parametrize("outer", [True, False])
def test_an_if_in_a_loop_in_an_if(outer):
    model = parsed(
        "(bool d, int64 n, bool go, float[3] x, float[3] w) => (float[3] y) { "
        f"y = If (d) <then_branch = tt () => (float[3] u) {{ {LOOP.format(out='u, r')} }}, "
        "else_branch = ee () => (float[3] v) { v = Neg (x) }> }"
    )
    agrees(
        model,
        {"d": np.array(outer), "n": np.array(3), "go": np.array(True), "x": X, "w": np.float32([1, 2, 3])},
    )


def test_a_condition_ends_a_loop():
    model = parsed(
        """(bool go, float x) => (float y) {
        y = Loop (, go, x) <body = b (int64 i, bool k, float s) => (bool k1, float s1) {
            two = Constant <value_float = 2.0> ()  most = Constant <value_float = 100.0> ()
            big = Greater (s, most)
            s1 = If (big) <then_branch = t () => (float p) { p = Neg (s) },
                           else_branch = e () => (float q) { q = Mul (s, two) }>
            k1 = Greater (s1, i0)  i0 = Constant <value_float = 0.0> () } > }""".replace(
            "k1 = Greater (s1, i0)  i0 = Constant <value_float = 0.0> ()",
            "z = Constant <value_float = 0.0> ()  k1 = Greater (s1, z)",
        )
    )
    session = dml.load(model)
    assert session.run(None, {"go": np.array(True), "x": np.array(3, np.float32)})[0] == -192
    assert session.run(None, {"go": np.array(False), "x": np.array(3, np.float32)})[0] == 3


def scan(direction):
    return parsed(
        f"""(float[2] s0, float[n, 2] x, float z) => (float[2] s, float[a, 2] rows) {{
        s, rows = Scan (s0, x) <num_scan_inputs = 1, scan_input_directions = [{direction}], body = b (float[2] s, float[2] e)
          => (float[2] s1, float[2] row) {{
            sum = ReduceSum <keepdims = 0> (e)  c = Greater (sum, z)
            s1 = If (c) <then_branch = t () => (float[2] p) {{ p = Add (s, e) }},
                         else_branch = o () => (float[2] q) {{ q = Sub (s, e) }}>
            row = Identity (s1) }}> }}"""
    )


def test_an_if_in_a_scan():
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    feeds = {"s0": np.zeros(2, np.float32), "x": x, "z": np.array(0, np.float32)}
    agrees(scan(0), feeds)
    backward = dml.load(scan(1)).run(None, feeds)
    for a, b in zip(backward, ReferenceEvaluator(scan(0)).run(None, feeds | {"x": x[::-1]}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_an_if_in_a_sequence_map():
    model = parsed(
        """(seq(float[n]) q, float z) => (seq(float[n]) y) {
        y = SequenceMap (q) <body = b (float[n] e) => (float[n] r) {
            sum = ReduceSum <keepdims = 0> (e)  c = Greater (sum, z)
            r = If (c) <then_branch = t () => (float[n] p) { p = Neg (e) },
                        else_branch = o () => (float[n] w) { w = Abs (e) }> }> }"""
    )
    session = dml.load(model)
    (got,) = session.run(None, {"q": [X, -X, X[:1]], "z": np.array(0, np.float32)})
    assert [g.tolist() for g in got] == [[-1, 2, -3], [1, 2, 3], [-1]]


def test_what_a_sequence_map_gives_is_a_sequence_to_what_reads_it():
    model = parsed(
        """(seq(float[n]) q, float[n] k) => (float[m] y, float[n] last) {
        s = SequenceMap (q) <body = b (float[n] e) => (float[n] r) { r = Mul (e, k) }>
        y = ConcatFromSequence <axis = 0> (s)  end = Constant <value_int = -1> ()  last = SequenceAt (s, end) }"""
    )
    session = dml.load(model)
    for k in (np.float32([2, 3, 4]), np.float32([0, 1, 2])):
        y, last = session.run(None, {"q": [X, -X], "k": k})
        assert y.tolist() == [*(X * k), *(-X * k)]
        assert last.tolist() == [*(-X * k)]


def test_a_failure_names_the_way_to_it():
    model = parsed(
        """(int64 n, bool go, float[a] x, float[b] w) => (float[c] y) {
        y = Loop (n, go, x) <body = b (int64 i, bool k, float[c] s) => (bool k1, float[c] s1) {
            k1 = Identity (k)
            s1 = If (k) <then_branch = t () => (float[c] p) { p = Add (s, w) },
                         else_branch = e () => (float[c] q) { q = Neg (s) }> }> }"""
    )
    feeds = {"n": np.array(1), "go": np.array(True), "x": X, "w": np.float32([1, 2])}
    with pytest.raises(dml.ExecutionFailed, match=r"'p' \(Add\).*broadcast"):
        dml.load(model).run(None, feeds)


def test_a_body_with_other_outputs_than_its_node():
    model = parsed(
        "(int64 n, bool go, float[3] x, float[3] w) => (float[3] y) { " + LOOP.format(out="y") + " }"
    )
    feeds = {"n": np.array(1), "go": np.array(True), "x": X, "w": X}
    with pytest.raises(
        dml.InvalidModel, match="expected a body with 3 inputs and 2 outputs, but got 3 and 3"
    ):
        dml.load(model).run(None, feeds)


@pytest.mark.parametrize("by", ["a program", "a library", "steps"])
@pytest.mark.parametrize("limit", ["n", ""], ids=["limited", "unlimited"])
def test_a_loop_that_begins_without_a_condition(limit, by, monkeypatch):
    """What its body says counts, as in onnxruntime, whoever runs it."""
    if by == "steps":
        obstacle = Partition._obstacle

        def no_loops(self, node, typed):
            return "not here" if node.op.name == "Loop" else obstacle(self, node, typed)

        monkeypatch.setattr(Partition, "_obstacle", no_loops)
    text = f"""(float[3] x) => (float[3] y, float[a, 3] rows) {{
        n = Constant <value_int = 10> ()
        y, rows = Loop ({limit}, , x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1, float[3] row) {{
            two = Constant <value_int = 2> ()  k1 = Less (i, two)
            s1 = Add (s, x)  row = Mul (s, s) }}> }}"""
    model = parsed(text).SerializeToString()
    theirs = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": X})
    assert len(theirs[1]) == 3
    session = dml.load(model, threads=1, native=by == "a program")
    for _ in range(3):
        for own, wanted in zip(session.run(None, {"x": X}), theirs, strict=True):
            np.testing.assert_array_equal(own, wanted)
    expected = {"a program": "program: ", "a library": "onnxruntime: Loop", "steps": "an iteration at a time"}
    assert expected[by] in session.explain()


def test_a_flat_model_of_a_loop_that_begins_without_a_condition():
    text = """(float[3] x) => (float[3] y) {
        n = Constant <value_int = 4> ()
        y = Loop (n, , x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1) {
            two = Constant <value_int = 2> ()  k1 = Less (i, two)
            s1 = Add (s, x) }> }"""
    model = parsed(text)
    flat, _ = dml.flatten(model)
    wanted = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": X}
    )
    found = ort.InferenceSession(flat.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": X}
    )
    np.testing.assert_array_equal(found[0], wanted[0])
    assert "Loop" not in [n.op_type for n in flat.graph.node]
