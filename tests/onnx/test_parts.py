"""Loops over what a tensor consists of, as scripts write them: no list of its parts is made."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import anydml

HEAD = '<ir_version: 8, opset_import: ["": 17]> main '
X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
CONSTANTS = "int64 one = {1}, bool go = {1}, int64 last = {-1}, int64 at2 = {2}, int64[1] first = {0}, float half = {0.5}"


def loop(body, split="p = SplitToSequence <axis = 0, keepdims = 0> (x, one)", state="s0 = Gather (x, at2)"):
    """A loop over the list p of a tensor's parts: s before an iteration and s2 after it."""
    return f"""{{
        {split}
        {state}
        n = SequenceLength (p)
        y = Loop (n, go, s0) <body = step (int64 i, bool c, float[k] s) => (bool c2, float[k] s2) {{
            c2 = Identity (c)
            {body}
        }}>
    }}"""


ROW = "row = SequenceAt (p, i)"
CHOICE = """sum = ReduceSum <keepdims = 0> (row) zero = Sub (sum, sum) up = Greater (sum, zero)
    s2 = If (up) <then_branch = a () => (float[k] t) { t = Add (s, row) },
                  else_branch = b () => (float[k] e) { e = Mul (s, half) }>"""
AWAY = {
    "added": loop(f"{ROW} s2 = Add (s, row)"),
    "chosen": loop(f"{ROW} {CHOICE}"),
    "read in branches": loop(
        """row = Gather (x, at2) sum = ReduceSum <keepdims = 0> (row) zero = Sub (sum, sum)
        up = Greater (sum, zero)
        s2 = If (up) <then_branch = a () => (float[k] t) { r = SequenceAt (p, i) t = Add (s, r) },
                      else_branch = b () => (float[k] e) { q = SequenceAt (p, last) e = Mul (s, q) }>"""
    ),
    "from the end": loop("l = Sub (n, one) at = Sub (l, i) row = SequenceAt (p, at) s2 = Add (s, row)"),
    "from the end, counted inside": loop(
        "n2 = SequenceLength (p) l = Sub (n2, one) at = Sub (l, i) row = SequenceAt (p, at) s2 = Add (s, row)"
    ),
    "from the end, with their axis": loop(
        "l = Sub (n, one) at = Sub (l, i) row = SequenceAt (p, at) f = Squeeze (row) s2 = Add (s, f)",
        "p = SplitToSequence <axis = 0> (x, one)",
    ),
    "columns": loop(
        f"{ROW} s2 = Add (s, row)",
        "p = SplitToSequence <axis = -1, keepdims = 0> (x)",
        "s0 = Gather <axis = 1> (x, at2)",
    ),
    "with their axis": loop(
        f"{ROW} f = Squeeze (row) s2 = Add (s, f)", "p = SplitToSequence <axis = 0> (x, one)"
    ),
    "columns with their axis": loop(
        f"{ROW} f = Squeeze (row) s2 = Add (s, f)",
        "p = SplitToSequence <axis = 1, keepdims = 1> (x)",
        "s0 = Gather <axis = 1> (x, at2)",
    ),
    "one of them": "{ p = SplitToSequence <keepdims = 0> (x) y = SequenceAt (p, k) }",
    "at one in a vector": """{ p = SplitToSequence <keepdims = 0> (x) at = Unsqueeze (k, first)
        y = SequenceAt (p, at) }""",
    "at one in a vector, with its axis": """{ p = SplitToSequence (x) at = Unsqueeze (k, first)
        y = SequenceAt (p, at) }""",
    "how many": """{ p = SplitToSequence <axis = 1, keepdims = 0> (x) n = SequenceLength (p)
        f = Cast <to = 1> (n) h = Mul (half, f) y = Mul (x, h) }""",
    "of a branch": """{ sum = ReduceSum <keepdims = 0> (x) up = Greater (sum, half)
        y = If (up) <then_branch = a () => (float[m] t) {
                         p = SplitToSequence <axis = 0, keepdims = 0> (x, one) t = SequenceAt (p, k) },
                     else_branch = b () => (float[m] e) { e = Gather (x, at2) }> }""",
}
STAY = {
    "given on": "{ y = SplitToSequence <axis = 0, keepdims = 0> (x, one) }",
    "joined": """{ p = SplitToSequence <axis = 0> (x, one)
        y = ConcatFromSequence <axis = 0, new_axis = 1> (p) }""",
    "at the first of two": """{ p = SplitToSequence <keepdims = 0> (x) u = Unsqueeze (k, first)
        at = Concat <axis = 0> (u, u) y = SequenceAt (p, at) }""",
    "of texts": """{ t = Cast <to = 8> (x) p = SplitToSequence <keepdims = 0> (t) r = SequenceAt (p, k)
        y = Cast <to = 1> (r) }""",
    "at what a body computes": """{ p = SplitToSequence <axis = 0> (x) zero = Sub (one, one)
        c, y = Scan <num_scan_inputs = 1, body = b (int64 a, float[3] r) => (int64 a2, float[u,3] o) {
            n = SequenceLength (p) at = Sub (n, one) a2 = Add (a, one) o = SequenceAt (p, at) }> (zero, x) }""",
    "of two": "{ p = SplitToSequence <axis = 0> (x, at2) y = SequenceAt (p, k) }",
    "grown": """{ p = SplitToSequence <axis = 0, keepdims = 0> (x, one) r = Gather (x, at2)
        q = SequenceInsert (p, r) y = SequenceAt (q, k) }""",
}


def model(text, made="float[] y"):
    text = text.replace("{", f"<{CONSTANTS}> {{", 1)
    return onnx.parser.parse_model(f"{HEAD} (float[n,m] x, int64 k) => ({made}) {text}").SerializeToString()


def theirs(data, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(data, options).run(None, feeds)[0]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", AWAY)
def test_parts_are_what_the_list_had(name, native):
    data = model(AWAY[name])
    session = anydml.load(data, native=native)
    for rows in (4, 3, 7, 3):
        for k in (0, -2):
            x = np.resize(X, (rows, 3)).astype(np.float32)
            feeds = {"x": x, "k": np.array(k)}
            np.testing.assert_array_equal(session.run(None, feeds)[0], theirs(data, feeds))
    assert "Sequence" not in session.explain()


@pytest.mark.parametrize("name", AWAY)
def test_files_have_no_list(name):
    data = model(AWAY[name])
    flat, _ = anydml.flatten(data, convert="always")
    kinds = {n.op_type for g in _graphs(flat.graph) for n in g.node}
    assert not any("Sequence" in kind for kind in kinds)
    feeds = {"x": X, "k": np.array(1)}
    fed = {i.name: feeds[i.name] for i in flat.graph.input}
    np.testing.assert_array_equal(theirs(flat.SerializeToString(), fed), theirs(data, feeds))


def _graphs(graph):
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


@pytest.mark.parametrize("name", STAY)
def test_other_lists_stay(name):
    data = model(STAY[name], "seq(float[]) y" if name == "given on" else "float[] y")
    feeds = {"x": X, "k": np.array(1)}
    flat, _ = anydml.flatten(data, convert="always")
    fed = {i.name: feeds[i.name] for i in flat.graph.input}
    wanted = theirs(data, feeds)
    for got in (anydml.load(data).run(None, feeds)[0], theirs(flat.SerializeToString(), fed)):
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_axis_that_is_not_there_is_an_error():
    """Where no lengths are given, too."""
    data = onnx.parser.parse_model(
        HEAD
        + """(float[] x) => (float[] y) <int64 zero = {0}> {
            p = SplitToSequence <axis = 1, keepdims = 0> (x) y = SequenceAt (p, zero) }"""
    ).SerializeToString()
    session = anydml.load(data)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X[:, 0])
    with pytest.raises(anydml.ExecutionFailed):
        session.run(None, {"x": X[0]})


@pytest.mark.parametrize("name", ["one of them", "columns with their axis"])
def test_parts_of_which_nothing_is_inferred(name):
    """As when a library has given another rank once: also where no lengths are given."""
    data, feeds = model(AWAY[name]), {"x": X, "k": np.array(1)}
    session = anydml.load(data)
    nodes = [n for n in session._model.graph.nodes if n.is_onnx("SplitToSequence")]
    session._program.libraries.fast.unbelieved |= {n.op for n in nodes}
    np.testing.assert_array_equal(session.run(None, feeds)[0], theirs(data, feeds))


def test_nothing_to_go_over():
    text = AWAY["added"].replace("s0 = Gather (x, at2)", "s0 = ReduceMax <axes = [1], keepdims = 0> (x)")
    data = model(text)
    feeds = {"x": np.zeros((0, 3), np.float32), "k": np.array(0)}
    np.testing.assert_array_equal(anydml.load(data).run(None, feeds)[0], np.zeros(0, np.float32))


@pytest.mark.parametrize("native", [True, False])
def test_a_place_beyond_is_an_error(native):
    session = anydml.load(model(AWAY["one of them"]), native=native)
    for k in (4, -5, 1 << 40):
        with pytest.raises(anydml.ExecutionFailed):
            session.run(None, {"x": X, "k": np.array(k)})
