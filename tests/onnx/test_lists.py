"""Lists to which loops append, as scripts write them: they become rows where all items have one known shape."""

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import anydml

HEAD = '<ir_version: 8, opset_import: ["": 17]> main '
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def scripted(body, behind, outputs="float[] y", states="", results="", before=""):
    """A loop over five rows of x, whose list is l before an iteration and m after it."""
    return onnx.parser.parse_model(
        HEAD
        + f"""(float[n,3] x, float k) => ({outputs}) <int64 five = {{5}}, bool go = {{1}}, int64 zero = {{0}}>
    {{
        nothing = SequenceEmpty ()
        {before}
        list{results} = Loop (five, go, nothing{states}) <body = step
            (int64 i, bool c, seq(float[]) l{", float s" if states else ""})
            => (bool c2, seq(float[]) m{", float s2" if states else ""}
               {", float r" if results.count(",") > 1 else ""}) {{
            c2 = Identity (c)
            row = Gather (x, i)
            {body}
        }}>
        {behind}
    }}"""
    ).SerializeToString()


CASES = {
    "stacked": (
        "t = Mul (row, k) m = SequenceInsert (l, t)",
        "y = ConcatFromSequence <axis = 0, new_axis = 1> (list)",
    ),
    "stacked behind": (
        "t = Mul (row, k) m = SequenceInsert (l, t)",
        "y = ConcatFromSequence <axis = -1, new_axis = 1> (list)",
    ),
    "joined": ("t = Neg (row) m = SequenceInsert (l, t)", "y = ConcatFromSequence <axis = 0> (list)"),
    "joined at the end": (
        "w = Unsqueeze (row, at) t = Concat <axis = 0> (w, w) m = SequenceInsert (l, t)",
        "y = ConcatFromSequence <axis = -1> (list)",
    ),
    "of numbers": (
        "t = ReduceSum <keepdims = 0> (row) m = SequenceInsert (l, t)",
        "y = ConcatFromSequence <axis = 0, new_axis = 1> (list)",
    ),
    "one of them": ("t = Neg (row) m = SequenceInsert (l, t)", "y = SequenceAt (list, at0)"),
    "the last": ("t = Neg (row) m = SequenceInsert (l, t)", "y = SequenceAt (list, last)"),
    "how many": (
        "t = Neg (row) m = SequenceInsert (l, t)",
        "n = SequenceLength (list) f = Cast <to = 1> (n) y = Add (f, k)",
    ),
    "by an If": (
        """sum = ReduceSum <keepdims = 0> (row) up = Greater (sum, k)
        m = If (up) <then_branch = a () => (seq(float[]) p) { p = SequenceInsert (l, row) },
                     else_branch = b () => (seq(float[]) q) { u = Mul (row, k) q = SequenceInsert (l, u) }>""",
        "y = ConcatFromSequence <axis = 0, new_axis = 1> (list)",
    ),
    "by an If with more": (
        """sum = ReduceSum <keepdims = 0> (row) up = Greater (sum, k)
        m, o = If (up) <
            then_branch = a () => (seq(float[]) p, float[3] po) { po = Neg (row) p = SequenceInsert (l, po) },
            else_branch = b () => (seq(float[]) q, float[3] qo) { qo = Abs (row) q = SequenceInsert (l, row) }>
        o2 = Mul (o, k)""",
        "y = ConcatFromSequence <axis = 1, new_axis = 1> (list)",
    ),
    "twice read": (
        "t = Neg (row) m = SequenceInsert (l, t)",
        "a = ConcatFromSequence <axis = 0, new_axis = 1> (list) b = SequenceAt (list, at0) y = Add (a, b)",
    ),
    "by Identity": (
        "same = Identity (l) t = Neg (row) grown = SequenceInsert (same, t) m = Identity (grown)",
        "y = ConcatFromSequence <axis = 0, new_axis = 1> (list)",
    ),
    "ended by the data": None,
    "with a state": (
        "t = Mul (row, s) s2 = Add (s, k) m = SequenceInsert (l, t)",
        "joined = ConcatFromSequence <axis = 0, new_axis = 1> (list) y = Add (joined, left)",
        {"states": ", k", "results": ", left"},
    ),
    "with rows": (
        "t = Mul (row, s) s2 = Add (s, k) r = Neg (s2) m = SequenceInsert (l, t)",
        "joined = ConcatFromSequence <axis = 1, new_axis = 1> (list) y = Mul (joined, rows)",
        {"states": ", k", "results": ", left, rows"},
    ),
}
CONSTANTS = "at = Constant <value = int64[1] {0}> () at0 = Constant <value = int64 {2}> () last = Constant <value = int64 {-1}> ()"


def made(name):
    if name == "ended by the data":
        data = scripted("t = Neg (row) m = SequenceInsert (l, t)", CASES["stacked"][1], before=CONSTANTS)
        proto = onnx.ModelProto.FromString(data)
        (body,) = (a.g for n in proto.graph.node for a in n.attribute if a.name == "body")
        text = "(float[3] row, float k) => (bool c2) { s = ReduceSum <keepdims = 0> (row) c2 = Less (s, k) }"
        nodes = onnx.parser.parse_graph("g " + text).node
        del body.node[0]
        body.node.extend(nodes)
        return proto.SerializeToString()
    text, behind, *more = CASES[name]
    return scripted(text, behind, before=CONSTANTS, **(more[0] if more else {}))


def theirs(data, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)


@pytest.mark.parametrize("native", [None, False], ids=["program", "regions"])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_what_the_list_was(name, native):
    data = made(name)
    session = anydml.load(data, native=native)
    for k in (-0.3, 0.2, 2.5):
        feeds = {"x": X, "k": np.array(k, np.float32)}
        for ours, others in zip(session.run(None, feeds), theirs(data, feeds), strict=True):
            assert (ours.shape, ours.dtype) == (others.shape, others.dtype)
            np.testing.assert_allclose(ours, others, rtol=1e-6)
    assert "Sequence" not in session.explain()
    if native is None:
        assert "program: " in session.explain()


KEPT = {
    "read in the loop": "n = SequenceLength (l) f = Cast <to = 1> (n) t = Mul (row, f) m = SequenceInsert (l, t)",
    "put before": "t = Neg (row) m = SequenceInsert (l, t, zero)",
    "in one branch": """sum = ReduceSum <keepdims = 0> (row) up = Greater (sum, k)
        m = If (up) <then_branch = a () => (seq(float[]) p) { p = SequenceInsert (l, row) },
                     else_branch = b () => (seq(float[]) q) { q = Identity (l) }>""",
    "of several sizes": """j = Unsqueeze (i, at) one = Constant <value = int64[1] {1}> () e = Add (j, one)
        t = Slice (x, at, e) u = ReduceSum <keepdims = 0> (t, two) m = SequenceInsert (l, u)""",
}


@pytest.mark.parametrize("name", KEPT)
def test_other_lists_stay_what_they_are(name):
    before = CONSTANTS + " two = Constant <value = int64[1] {1}> ()"
    data = scripted(KEPT[name], "y = ConcatFromSequence <axis = 0> (list)", before=before)
    session = anydml.load(data)
    for k in (-30.0, 0.2):
        feeds = {"x": X, "k": np.array(k, np.float32)}
        np.testing.assert_allclose(session.run(None, feeds)[0], theirs(data, feeds)[0], rtol=1e-6)
    assert "Sequence" in session.explain()


def test_a_list_that_is_given_stays_a_list():
    data = scripted("t = Neg (row) m = SequenceInsert (l, t)", "y = Identity (list)", "seq(float[]) y")
    found, wanted = (run(data, {"x": X, "k": np.array(1, np.float32)}) for run in (ours, theirs))
    np.testing.assert_array_equal(found[0], wanted[0])


def ours(data, feeds):
    return anydml.load(data).run(None, feeds)


def test_nothing_appended_is_an_error_as_before():
    """Nothing cannot be joined: a loop that may not run at all keeps its list."""
    data = scripted("t = Neg (row) m = SequenceInsert (l, t)", CASES["stacked"][1])
    proto = onnx.ModelProto.FromString(data)
    five = next(t for t in proto.graph.initializer if t.name == "five")
    five.CopyFrom(onnx.numpy_helper.from_array(np.array(0), "five"))
    feeds = {"x": X, "k": np.array(1, np.float32)}
    with pytest.raises(anydml.AnyDMLError):
        ours(proto.SerializeToString(), feeds)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Abs (x) s = SequenceConstruct (x, a) y = ConcatFromSequence <axis = 0> (s)",
        "one = Constant <value_ints = [1]> () v = Reshape (x, one) s = SequenceConstruct (v, v) "
        "y = ConcatFromSequence <axis = 1> (s)",
        "three = Constant <value_int = 3> () e = SequenceEmpty () s = Loop (three, , e) <body = b "
        "(int64 i, bool c, seq(float) p) => (bool d, seq(float) q) { d = Identity (c) "
        "q = SequenceInsert (p, x) }> y = ConcatFromSequence <axis = 0> (s)",
    ],
    ids=["numbers", "another axis", "numbers by a loop"],
)
def test_items_that_cannot_be_joined_are_an_error_when_they_are(nodes, monkeypatch):
    """A flat file with them loads, as the original does, and fails in the same branch."""
    monkeypatch.setattr("anydml.flattening.MIN_VERIFY_SECONDS", 0.0)  # no input can be verified
    branch = nodes.replace(" y = ", " t = ")
    chosen = f"""{HEAD}(float x, bool c) => (float[?] y) {{ y = If (c) <
        then_branch = f () => (float[?] t) {{ {branch} }},
        else_branch = g () => (float[?] u) {{ k = Constant <value_ints = [1]> () u = Reshape (x, k) }}> }}"""
    alone = f"{HEAD}(float x) => (float[?] y) {{ {nodes} }}"
    for text, feeds in ((chosen, {"c": np.array(True)}), (alone, {})):
        model = onnx.parser.parse_model(text)
        for fixed in ({}, feeds):
            flat, _ = anydml.flatten(model, fixed=fixed, convert="always")
            ort.InferenceSession(flat.SerializeToString(), providers=["CPUExecutionProvider"])
            given = {"x": np.float32(3), **feeds}
            session = anydml.load(flat)
            with pytest.raises(anydml.ExecutionFailed):
                session.run(None, {i.name: given[i.name] for i in session.get_inputs()})


@pytest.mark.parametrize(
    "made",
    [
        "u = SequenceConstruct (x, n, e)",
        "s0 = SequenceConstruct (x, n)  u = SequenceInsert (s0, e)",
        "s0 = SequenceConstruct (n, e)  u = SequenceInsert (s0, x, zero)",
        "s0 = SequenceEmpty ()  s1 = SequenceInsert (s0, x)  s2 = SequenceInsert (s1, e)  u = SequenceInsert (s2, n, one)",
        "u = SequenceInsert (outer, e)",
    ],
)
def test_items_that_are_put_in_one_after_the_other_are_chosen_one_by_one(made):
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (bool f, float[2,3] x) => (float[q,3] y) {{
        zero = Constant <value = int64 {{0}}> ()  one = Constant <value = int64 {{1}}> ()
        n = Neg (x)  outer = SequenceConstruct (x, n)
        s = If (f) <then_branch = t () => (seq(float[2,3]) u) {{ e = Exp (x)  {made} }},
                    else_branch = e () => (seq(float[2,3]) v) {{ v = SequenceConstruct (x, x, x) }}>
        y = ConcatFromSequence <axis = 0> (s) }}"""
    flat, report = anydml.flatten(onnx.parser.parse_model(text), convert="always")
    assert report.left == 0
    x = np.float32([[1, 2, 3], [-1, 0, 1]])
    for f, wanted in ((True, [x, -x, np.exp(x)]), (False, [x] * 3)):
        (y,) = anydml.load(flat).run(None, {"f": np.array(f), "x": x})
        assert np.allclose(y, np.concatenate(wanted), rtol=1e-6)
