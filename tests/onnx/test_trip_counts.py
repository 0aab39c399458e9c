"""Loops that count for themselves: how often they run is known before, where no data decides it."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import anydml

KERAS = Path(__file__).parents[1] / "data" / "exporters" / "tf_keras_gru"

HEAD = '<ir_version: 8, opset_import: ["": 17]> '


def loop(trips, body, first="true", state="zero", constants=""):
    """A loop of a counter and a vector, which gathers a row in each iteration."""
    trips = {"": "", "input": "m"}.get(trips, "trips")
    return onnx.parser.parse_model(
        HEAD
        + f"""m (float[3] x, int64 m, int64 n) => (int64 last, float[3] y, float[r, 3] rows)
        <bool true = {{1}}, bool false = {{0}}, int64 zero = {{0}}, int64 one = {{1}}, int64 five = {{5}},
         int64 trips = {{4}} {constants}> {{
          last, y, rows = Loop ({trips}, {first}, {state}, x) <body = b (int64 k, bool c, int64 i, float[3] v)
            => (bool go, int64 j, float[3] w, float[3] row) {{ {body} w = Mul (v, v) row = Neg (v) }}> }}"""
    )


COUNTED = {
    "as frontends write it": ("", "j = Add (i, one) go = Less (j, five)", 5),
    "with a bound that ends it before": ("4", "j = Add (i, one) go = Less (j, five)", 4),
    "with a bound that does not": ("4", "j = Add (i, one) go = LessOrEqual (j, one)", 2),
    "by the number of the iteration": ("", "j = Add (i, five) go = Less (k, five)", 6),
    "by halves": ("", "two = Add (one, one) t = Add (i, five) j = Div (t, two) go = Less (j, trips)", 3),
    "both at once": (
        "",
        "j = Add (i, one) a = Less (j, five) f = Cast <to = 1> (j) l = Cast <to = 1> (trips)"
        " b = Less (f, l) go = And (a, b)",
        4,
    ),
    "and only once": ("", "j = Add (i, one) go = Identity (false)", 1),
    "by its condition": ("", "j = Add (i, one) d = Less (j, five) go = And (c, d)", 5),
}
FEEDS = {"x": np.float32([0.5, -1, 1.25]), "m": np.array(3), "n": np.array(2)}


def expected(made):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(made.SerializeToString(), options).run(None, FEEDS)


def same(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("native", [True, False])
def test_loops_that_count(name, native):
    trips, body, count = COUNTED[name]
    made = loop(trips, body)
    wanted = expected(made)
    assert len(wanted[2]) == count
    session = anydml.load(made, threads=1, native=native)
    same(session.run(None, FEEDS), wanted)
    assert ("program: " in session.explain()) == native, session.explain()  # whose rows it has to know
    flat, _ = anydml.flatten(made, verify=False)
    assert not any(n.op_type == "Loop" for n in flat.graph.node)
    same(expected(flat), wanted)


NOT_COUNTED = {
    "data": (
        "",
        "j = Add (i, one) s = ReduceSum <keepdims = 0> (v) p = Cast <to = 7> (s) go = Less (p, zero)",
    ),
    "a number that is fed": ("", "j = Add (i, one) go = Less (j, n)"),
    "a bound that is fed": ("input", "j = Add (i, one) go = Less (j, five)"),
}


@pytest.mark.parametrize("name", NOT_COUNTED)
def test_loops_that_something_else_ends(name):
    made = loop(*NOT_COUNTED[name])
    session = anydml.load(made, threads=1)
    same(session.run(None, FEEDS), expected(made))
    flat, _ = anydml.flatten(made, verify=False)
    assert [n.op_type for n in flat.graph.node].count("Loop") == 1
    same(expected(flat), expected(made))


def test_states_that_are_fed_do_not_count():
    made = loop("", "j = Add (i, one) go = Less (j, five)", state="n")
    session = anydml.load(made, threads=1)
    for n in (0, 3, 9):
        feeds = {**FEEDS, "n": np.array(n)}
        wanted = ort.InferenceSession(made.SerializeToString()).run(None, feeds)
        same(session.run(None, feeds), wanted)


def test_a_loop_that_never_ends_stays_one():
    """It is not waited for."""
    made = loop("", "j = Add (i, one) go = Less (zero, five)")
    flat, _ = anydml.flatten(made, verify=False)
    assert any(n.op_type == "Loop" for n in flat.graph.node)


def test_states_that_grow_are_not_followed():
    made = onnx.parser.parse_model(
        HEAD
        + """m (float[3] x) => (int64[r] z) <bool true = {1}, int64[1] one = {1}, int64 last = {20}> {
          z = Loop (, true, one) <body = b (int64 k, bool c, int64[q] a) => (bool go, int64[p] d) {
            d = Concat <axis = 0> (a, a) s = ReduceSum <keepdims = 0> (d) t = Sub (s, s) u = Add (t, k)
            go = Less (u, last) }> }"""
    )
    (found,) = anydml.load(made, threads=1).run(None, {"x": FEEDS["x"]})
    assert found.shape == (1 << 21,)


def test_loops_in_branches_and_bodies():
    made = onnx.parser.parse_model(
        HEAD
        + """m (float[3] x, bool c) => (float[3] y, float[r, 3] rows)
        <bool true = {1}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 three = {3}> {
          y, rows = If (c) <
            then_branch = t () => (float[3] a, float[p, 3] b) {
              i, a, b = Loop (, true, zero, x) <body = o (int64 k, bool g, int64 n, float[3] v)
                => (bool h, int64 m, float[3] w, float[3] row) {
                  m = Add (n, one) h = Less (m, three)
                  u, w = Loop (, true, zero, v) <body = q (int64 k2, bool g2, int64 n2, float[3] v2)
                    => (bool h2, int64 m2, float[3] w2) {
                      m2 = Add (n2, one) h2 = Less (m2, two) w2 = Tanh (v2) }>
                  row = Neg (w) }> },
            else_branch = e () => (float[3] d, float[p, 3] f) {
              d = Neg (x) s = Constant <value_ints = [3, 3]> () f = Expand (x, s) }> }"""
    )
    session = anydml.load(made, threads=1)
    for c in (True, False):
        feeds = {"x": FEEDS["x"], "c": np.array(c)}
        same(session.run(None, feeds), ort.InferenceSession(made.SerializeToString()).run(None, feeds))
    assert "program: " in session.explain(), session.explain()


def test_while_of_keras():
    """tf2onnx writes the loop of a GRU layer without Loop's count."""
    feeds = dict(np.load(KERAS / "feed_a.npz"))
    session = anydml.load(KERAS / "model.onnx", threads=1)
    wanted = ort.InferenceSession(KERAS / "model.onnx").run(None, feeds)
    same(session.run(None, feeds), wanted)
    assert "program: " in session.explain()
    flat, _ = anydml.flatten(KERAS / "model.onnx", shapes={"x": feeds["x"].shape})
    assert not any(n.op_type == "Loop" for n in flat.graph.node)


def test_what_only_decided_is_gone():
    """A second flattening would take it away."""
    text = """<ir_version: 8, opset_import: ["": 17]> main (float[2,3] x) => (float[2,3] y)
        <int64 five = {5}, int64 zero = {0}, bool go = {1}> {
        y = Scan <num_scan_inputs = 1, body = row (float[3] r) => (float[3] s) {
            n, s = Loop ("", go, zero, r) <body = step (int64 k, bool c, int64 i, float[3] v) => (bool more, int64 j, float[3] w) {
                one = Constant <value = int64 {1}> ()  j = Add (i, one)  more = Less (j, five)  w = Neg (v) }> }> (x) }"""
    flat, _ = anydml.flatten(onnx.parser.parse_model(text), convert="never", unroll=0)
    assert "five" not in {i.name for i in flat.graph.initializer}
    again, _ = anydml.flatten(flat, convert="never", unroll=0)
    assert again.graph == flat.graph


@pytest.mark.parametrize("condition", ["And (l, d)", "And (d, l)", "And (e, d)"])
@pytest.mark.parametrize("limit", ["", "m", "more"])
def test_a_count_and_what_the_data_decides(condition, limit):
    """Such a loop is unrolled, and ends where the data says so."""
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[4] x, float least) => (float[4] y, int64 n) {{
        zero = Constant <value = int64 {{0}}> ()  yes = Constant <value = bool {{1}}> ()
        m = Constant <value = int64 {{5}}> ()  more = Constant <value = int64 {{9}}> ()
        y, n = Loop ({limit}, yes, x, zero) <body = f (int64 i, bool c, float[4] s, int64 j) => (bool on, float[4] t, int64 j1) {{
            one = Constant <value = int64 {{1}}> ()  half = Constant <value = float {{0.5}}> ()
            j1 = Add (j, one)  t = Mul (s, half)  mx = ReduceMax <keepdims = 0> (t)
            d = Greater (mx, least)  l = Less (j1, m)  k = And (l, yes)  e = Identity (k)
            on = {condition} }}> }}"""
    model = onnx.parser.parse_model(text)
    flat, report = anydml.flatten(model, convert="always")
    assert not any(n.op_type in ("Loop", "If") for n in flat.graph.node), report
    for least in (0.0, 0.3, 1.0, 100.0):
        feeds = {"x": np.float32([1, 2, 3, 4]), "least": np.array(least, np.float32)}
        wanted = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
        for found in (anydml.load(flat).run(None, feeds), anydml.load(model).run(None, feeds)):
            assert [f.tolist() for f in found] == [w.tolist() for w in wanted]


@pytest.mark.parametrize("count", [0, -1, -(2**63)])
@pytest.mark.parametrize("given", ["constant", "decides"])
def test_a_negative_trip_count_lets_nothing_run(count, given):
    """Known from the file, or as an If depends on it; the body would end by itself as well."""
    first = f"n = Constant <value = int64 {{{count}}}> ()" if given == "constant" else "n = Identity (m)"
    text = f"""m (float[1] x, float p, int64 m) => (float[] y, int64 rows, float[1] z) {{ {first}
      y, r = Loop (n, , p) <body = b (int64 i, bool c, float[] v) => (bool d, float[] w, float[1] s) {{
        one = Constant <value = int64 {{1}}> ()  d = Less (i, one)  w = Identity (x)  s = Neg (x) }}>
      rows = Size (r)  t = Constant <value = int64 {{-3}}> ()  g = Greater (m, t)
      z = If (g) <then_branch = th () => (float[1] a) {{ a = Neg (x) }}, else_branch = e () => (float[1] f) {{ f = Abs (x) }}> }}"""
    made = onnx.parser.parse_model(HEAD + text)
    feeds = {"x": np.float32([5]), "p": np.array(7, np.float32), "m": np.array(count)}
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = ort.InferenceSession(made.SerializeToString(), options).run(None, feeds)
    flat, _ = anydml.flatten(made, verify=True)
    for model in (made, flat):
        for native in (None, True, False):
            session = anydml.load(model, native=native)
            for _ in range(2):
                same(session.run(None, feeds), wanted)
