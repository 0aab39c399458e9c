"""Ifs in the bodies of loops: what holds in every iteration decides them, and nothing that one may change."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import anydml as dml

BRANCHES = "<then_branch = t () => (float[?, ?] p) { p = Neg (s) }, else_branch = e () => (float[?, ?] q) { q = Abs (s) }>"


def loop(condition, result="r = Add (w, x)", given="x"):
    """Three rounds of an If on `condition`, whose state begins as `given`."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    m (float[n, k] x, int64 limit) => (float[?, ?] y) {{
      three = Constant <value = int64 {{3}}> ()
      true = Constant <value = bool {{1}}> ()
      y = Loop (three, true, {given}) <body = b (int64 i, bool go, float[?, ?] s) => (bool on, float[?, ?] r) {{
        on = Identity (go)
        {condition}
        w = If (c) {BRANCHES}
        {result}
      }}>
    }}"""
    return onnx.parser.parse_model(text)


def agree(model, feeds):
    session = dml.load(model, threads=1)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    peer = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for feed in feeds:
        (found,), (expected,) = session.run(None, feed), peer.run(None, feed)
        np.testing.assert_array_equal(found, expected, err_msg=session.explain())
    return session.explain()


def feeds(*shapes, limit=2):
    rng = np.random.default_rng(0)
    return [{"x": rng.standard_normal(s).astype(np.float32), "limit": np.array(limit)} for s in shapes]


SIZE = """z = Constant <value = int64 {0}> () h = Shape (x) n = Gather (h, z)
    two = Constant <value = int64 {2}> () c = Greater (n, two)"""
RANK = """h = Shape (s) e = Size (h) two = Constant <value = int64 {2}> () c = Equal (e, two)"""
GROWS = """z = Constant <value = int64 {0}> () h = Shape (s) n = Gather (h, z)
    four = Constant <value = int64 {4}> () c = Less (n, four)"""
COUNTS = "c = Greater (i, limit)"
CONTENT = "two = Constant <value = int64 {2}> () c = Greater (three, two)"


@pytest.mark.parametrize(
    "condition", [SIZE, RANK, CONTENT], ids=["captured size", "rank", "captured content"]
)
def test_what_holds_in_every_iteration_decides(condition):
    text = agree(loop(condition), [*feeds((2, 3), (3, 3), (4, 3), (5, 3)), *feeds((2, 2), (3, 2), limit=9)])
    assert "folded: node 'w' (If)" in text
    assert "known only when it runs" not in text


@pytest.mark.parametrize("condition", [GROWS, COUNTS], ids=["a state's size", "the iteration"])
def test_what_an_iteration_may_change_does_not(condition):
    text = agree(
        loop(condition, "r = Concat <axis = 0> (w, x)"),
        [*feeds((1, 3), (2, 3), (4, 3)), *feeds((1, 2), limit=0)],
    )
    assert "folded" not in text


def test_a_size_that_the_file_declares_wrongly_decides_nothing():
    model = loop(GROWS, "r = Concat <axis = 0> (w, x)")
    state = model.graph.node[2].attribute[0].g.input[2].type.tensor_type.shape
    state.dim[0].dim_value = 1
    agree(model, feeds((1, 3), (2, 3)))


def test_in_loops_in_branches_and_loops():
    inner = f"""on2 = Identity (go2) {SIZE} w = If (c) {BRANCHES} r2 = Identity (w)"""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    m (float[n, k] x, bool d) => (float[?, ?] y) {{
      three = Constant <value = int64 {{3}}> ()
      true = Constant <value = bool {{1}}> ()
      f = ReduceSum <keepdims = 0> (x)
      g = Constant <value = float {{0}}> ()
      d2 = Greater (f, g)
      y = If (d2) <then_branch = a () => (float[?, ?] u) {{
        u = Loop (three, true, x) <body = b (int64 i, bool go, float[?, ?] o) => (bool on, float[?, ?] r) {{
          on = Identity (go)
          r = Loop (three, true, o) <body = b2 (int64 j, bool go2, float[?, ?] s) => (bool on2, float[?, ?] r2)
            {{ {inner} }}>
        }}>
      }}, else_branch = b () => (float[?, ?] v) {{ v = Neg (x) }}>
    }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    given = [
        {"x": sign * np.abs(rng.standard_normal(s)).astype(np.float32), "d": np.array(True)}
        for s in ((2, 3), (4, 3))
        for sign in (-1, 1)
    ]
    text = agree(model, given)
    assert "folded: node 'w' (If)" in text


@pytest.mark.parametrize("passed", ["c", "a"], ids=["a row", "a state"])
def test_rows_that_are_parameters_once_an_if_is_folded(passed):
    """onnxruntime gives memory that was never written for a row that its Scan's body returns as it got it."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    m (float[2] s, float[k, 2] x) => (float[2] e, float[k, 2] y) {{
      yes = Constant <value = bool {{1}}> ()
      e, y = Scan <num_scan_inputs = 1, body = b (float[2] a, float[2] c) => (float[2] d, float[2] r) {{
        d = Add (a, c)
        r = If (yes) <then_branch = t () => (float[2] p) {{ p = Identity ({passed}) }},
                      else_branch = f () => (float[2] q) {{ q = Neg (c) }}>
      }}> (s, x)
    }}"""
    model = onnx.parser.parse_model(text)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows = x if passed == "c" else np.float32([[7, 8], [7, 9], [9, 12]])
    flat, _ = dml.flatten(model)
    for session in (dml.load(model), dml.load(flat), ort.InferenceSession(flat.SerializeToString())):
        e, y = session.run(None, {"s": np.float32([7, 8]), "x": x})
        np.testing.assert_array_equal(e, np.float32([13, 17]))
        np.testing.assert_array_equal(y, rows)


def test_a_scan_whose_state_stays():
    """onnxruntime gives memory that was never written for a state that its Scan's body returns as it got it."""
    text = """<ir_version: 8, opset_import: ["": 17]>
    m (float[3] x) => (float[3] y, float[3, 3] z) {
      y, z = Scan <num_scan_inputs = 1, body = b (float[3] s, float c) => (float[3] s, float[3] w) { w = Add (x, c) }> (x, x)
    }"""
    model = onnx.parser.parse_model(text)
    x = np.float32([0, 2.5, -1.25])
    y, z = dml.load(model).run(None, {"x": x})
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, x + x[:, None])


@pytest.mark.parametrize("opset", [13, 14, 17])
def test_a_sequence_that_a_loop_returns_as_it_got_it(opset):
    """onnxruntime takes the items out of the sequence that it came from."""
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    m (float[2] x, int64 n) => (seq(float[2]) one, seq(float[2]) two) {{
      yes = Constant <value = bool {{1}}> ()
      one = SequenceConstruct (x)
      two = Loop (n, yes, one) <body = b (int64 i, bool c, seq(float[2]) s) => (bool d, seq(float[2]) s) {{ d = Identity (c) }}>
    }}"""
    session = dml.load(onnx.parser.parse_model(text))
    x = np.float32([3, 4])
    for n in (2, 0):
        for found in session.run(None, {"x": x, "n": np.array(n)}):
            np.testing.assert_array_equal(found, [x])


@pytest.mark.parametrize("x", [0.5, 3.5])
def test_rows_of_one_rank_or_another(x):
    """ONNX's inference takes the rank of one branch, before opset 13."""
    text = """<ir_version: 6, opset_import: ["": 11]>
    m (float[n] v, float x) => (float[?] y) {
      trips = Constant <value = int64[1] {2}> ()
      yes = Constant <value = bool {1}> ()
      state, rows = Loop (trips, "", yes) <body = b (int64 i, bool c, bool s) => (bool d, bool t, float[?] r) {
        d = Identity (c)
        t = Identity (s)
        one = Constant <value = float {1}> ()
        above = Greater (x, one)
        r = If (above) <then_branch = a () => (float[?] p) { p = Unsqueeze <axes = [0]> (x) },
                        else_branch = e () => (float[?] q) { q = MatMul (v, v) }>
      }>
      flat = Constant <value = int64[1] {-1}> ()
      y = Reshape (rows, flat)
    }"""
    model = onnx.parser.parse_model(text)
    feed = {"v": np.ones(3, np.float32), "x": np.float32(x)}
    (found,) = dml.load(model).run(None, feed)
    np.testing.assert_array_equal(found, np.float32([x, x] if x > 1 else [3, 3]))
    flat, _ = dml.flatten(model)
    np.testing.assert_array_equal(dml.load(flat).run(None, feed)[0], found)


ROWS_OF_TEXTS = {
    "from outside": ("", "r = Identity (s)"),
    "of a state": ("s", "d = Identity (c)  e = Identity (c)  r = Identity (e)"),
    "of an If": (
        "",
        "r = If (k) <then_branch = t () => (string[] a) { a = Identity (s) }, else_branch = e () => (string[] f) { f = Identity (s) }>",
    ),
    "computed": ("", "z = Constant <value = int64[2] {1, 0}> ()  r = Gather (s, z)"),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", ROWS_OF_TEXTS)
def test_rows_of_texts_that_a_body_hands_on(name, inside):
    """onnxruntime takes the texts out of where they come from: the second row is of empty ones."""
    state, body = ROWS_OF_TEXTS[name]
    takes, gives = (", string[] c", "string[] d, ") if state else ("", "")
    loop = f"""{"w, " if state else ""}y = Loop (n, ""{", s" if state else ""})
      <body = b (int64 i, bool k{takes}) => (bool g, {gives}string[] r) {{ g = Identity (k)  {body} }}>"""
    if inside:
        loop = f"""y = If (q) <then_branch = t0 () => (string[] h) {{ {loop.replace("y = Loop", "h = Loop")} }},
          else_branch = e0 () => (string[] j) {{ o = Constant <value = int64[1] {{0}}> ()  j = Unsqueeze (s, o) }}>"""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> m (string[m] s, int64 n, bool q) => (string[] y) {{ {loop} }}'
    )
    s = np.array(["a", "bb", "c"], object)
    row = s[[1, 0]] if name == "computed" else s
    for native in (None, False):
        session = dml.load(model, native=native)
        for n in (3, 1, 2):
            (made,) = session.run(None, {"s": s, "n": np.array(n), "q": np.array(True)})
            assert made.tolist() == [row.tolist()] * n
    _, report = dml.flatten(model)
    assert report.verified is not None
