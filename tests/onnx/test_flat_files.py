"""Files that `flatten` writes: onnxruntime loads them, and gives what it gives for the original."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import anydml

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def parsed(text, opset=18):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> m {text}')


def ran(proto, feed):
    """What onnxruntime gives without optimisation; None where it fails when it runs."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    try:
        return session.run(None, {i.name: feed[i.name] for i in session.get_inputs()})
    except Exception:  # whatever class it has
        return None


def same(model, flat, *feeds):
    """Both give the same, or both fail; says how often they gave something."""
    count = 0
    for feed in feeds:
        before, after = ran(model, feed), ran(flat, feed)
        assert (before is None) == (after is None), feed
        for a, b in zip(before or (), after or (), strict=True):
            np.testing.assert_equal(b, a)
        count += before is not None
    return count


def is_true(condition=True, **others):
    return {"c": np.array(condition), "x": X, "w": np.ones(3, np.float32), **others}


@pytest.mark.parametrize("convert", ["auto", "always", "never"])
def test_a_branch_of_sequences_that_can_never_run(convert):
    """With these sizes MatMul is refused before anything runs."""
    model = parsed("""(bool c, float[n, m] x, float[k] w) => (seq(float[?, ?]) y) {
        y = If (c) <
            then_branch = t () => (seq(float[?, ?]) s) { a = MatMul (x, x) s = SequenceConstruct (a, x, a) },
            else_branch = e () => (seq(float[?, ?]) r) { b = Add (x, w) r = SequenceConstruct (b) }> }""")
    flat, _ = anydml.flatten(model, shapes={"x": (2, 3)}, convert=convert)
    assert same(model, flat, is_true(True), is_true(False)) == 1
    again, _ = anydml.flatten(flat, convert=convert)
    assert len(again.SerializeToString()) == len(flat.SerializeToString())


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_a_body_that_can_never_run(opset):
    model = parsed(
        """(int64 count, float[n, m] x, float[k] w) => (float[?, ?] y) {
        yes = Constant <value = bool {1}> ()
        y = Loop (count, yes, x) <body = b (int64 i, bool g, float[?, ?] s) => (bool h, float[?, ?] r) {
            h = Identity (g) a = MatMul (x, x) b = Add (a, w)
            r = If (h) <then_branch = t () => (float[?, ?] p) { p = MatMul (b, x) },
                        else_branch = e () => (float[?, ?] q) { q = Neg (b) }>
        }> }""",
        opset,
    )
    flat, _ = anydml.flatten(model, shapes={"x": (2, 3)})
    assert same(model, flat, *(is_true(count=np.array(n)) for n in (0, 1, 2))) == 1


LISTS = """(int64 n, bool c, float[2] x) => (seq(float[?]) one, seq(float[?]) two) {{
    yes = Constant <value = bool {{1}}> ()
    one = SequenceConstruct (x)
    two = Loop (n, yes, one) <body = b (int64 i, bool g, seq(float[?]) s) => (bool h, seq(float[?]) {result}) {{
        h = Identity (g) {nodes}
    }}> }}"""


@pytest.mark.parametrize("opset", [13, 14, 18])
def test_a_sequence_that_a_loop_returns_as_it_got_it(opset):
    """onnxruntime takes the items out of the sequence that it came from, in the original."""
    model = parsed(LISTS.format(result="s", nodes=""), opset)
    flat, report = anydml.flatten(model)
    assert report.verified.provider == "anydml"
    for n in (0, 1, 3):
        x = np.float32([3, 4])
        one, two = ran(flat, {"n": np.array(n), "c": np.array(True), "x": x})
        np.testing.assert_array_equal(one, [x])
        np.testing.assert_array_equal(two, [x])


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("opset", [13, 16])
def test_a_sequence_that_a_branch_passes_on(opset, words):
    """Before opset 14 Identity takes none."""
    branches = """r = If (c) <then_branch = t () => (seq(float[?]) a) { a = SequenceInsert (s, x) },
                              else_branch = e () => (seq(float[?]) s) { }>"""
    text = LISTS.format(result="r", nodes=branches)
    model = parsed(text.replace("float", "string") if words else text, opset)
    flat, report = anydml.flatten(model, convert="never")
    assert report.left == 1
    x = np.array(["a", "b"], object) if words else np.float32([3, 4])
    for c, n, length in ((True, 2, 3), (False, 2, 1), (True, 0, 1)):
        one, two = ran(flat, {"n": np.array(n), "c": np.array(c), "x": x})
        np.testing.assert_array_equal(one, [x])
        np.testing.assert_array_equal(two, [x] * length)


def test_lists_at_an_older_opset():
    model = parsed(LISTS.format(result="s", nodes=""), 18)
    flat, _ = anydml.flatten(model, opset=13)
    x = np.float32([3, 4])
    one, two = ran(flat, {"n": np.array(2), "c": np.array(True), "x": x})
    np.testing.assert_array_equal([one, two], [[x], [x]])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "ReduceMax", "ReduceSum"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_an_axis_counted_from_the_end(op, keepdims):
    """Of nothing, onnxruntime gives something else, or fails, where it is counted from the front. (From 1.32
    on it refuses one of these for both.)"""
    dtype = "int64" if op.startswith("Arg") else "float"
    told = (
        f"<axis = -1, keepdims = {keepdims}> (z)"
        if op.startswith("Arg")
        else f"<keepdims = {keepdims}> (z, k)"
    )
    model = parsed(f"""(float[n, m] x) => ({dtype} y) {{
        k = Constant <value = int64[1] {{-1}}> () z = Neg (x) y = {op} {told} }}""")
    flat, _ = anydml.flatten(model)
    feeds = [{"x": np.ones(sizes, np.float32)} for sizes in ((2, 3), (2, 0), (0, 3), (0, 0))]
    assert same(model, flat, *feeds) >= len(feeds) - 1


@pytest.mark.parametrize("op", ["ArgMax", "ReduceMean"])
def test_an_axis_counted_from_the_end_in_a_branch(op):
    """Which runs in vain on no rows, of which onnxruntime makes something of another rank."""
    reduced = {
        "ArgMax": "i = ArgMax <axis = -1, keepdims = 0> (x) a = Cast <to = 1> (i)",
        "ReduceMean": "k = Constant <value = int64[1] {-1}> () a = ReduceMean <keepdims = 0> (x, k)",
    }
    model = parsed(f"""(bool c, float[n, 2] x, float[m] w) => (float[?] y) {{
        y = If (c) <then_branch = t () => (float[?] a) {{ {reduced[op]} }},
                    else_branch = e () => (float[?] b) {{ b = Neg (w) }}> }}""")
    flat, report = anydml.flatten(model, convert="always")
    assert report.left == 0
    feeds = [is_true(c, x=np.ones((n, 2), np.float32)) for c, n in ((True, 3), (False, 3), (False, 0))]
    assert same(model, flat, *feeds) == 3


@pytest.mark.parametrize("swapped", [False, True])
def test_two_ifs_that_give_the_same_where_either_is_not_taken(swapped):
    """Of other ranks, so that one has to stay."""
    inner = """s = Shape (w) k = Constant <value = int64[1] {0}> () n = Gather (s, k)
        three = Constant <value = int64[1] {3}> () d = Equal (n, three)
        a = If (d) <then_branch = t2 () => (float[?, ?] p) { p = Unsqueeze (x, k) }, else_branch = e2 () => (float[?, ?] q) { q = Identity (x) }>"""
    branches = [f"() => (float[?, ?] a) {{ {inner} }}", "() => (float[?, ?] b) { b = Identity (x) }"]
    first, second = branches[::-1] if swapped else branches
    model = parsed(f"""(bool c, float[n, m] x, float[k] w) => (float[?, ?] y) {{
        y = If (c) <then_branch = t {first}, else_branch = e {second}> }}""")
    flat, report = anydml.flatten(model, convert="always")
    assert report.left == 1
    assert [one.decision for one in report.ifs].count("kept") == 1
    feeds = [is_true(c, w=np.ones(n, np.float32)) for c in (True, False) for n in (3, 2)]
    assert same(model, flat, *feeds) == 4


def test_nothing_of_one_kind_is_made_once():
    """Or the flat model would lose a node when it is flattened again."""
    model = parsed("""(float[a, b, c] x, float[d, e, f] z) => (float[g, b, c] y, float[d, e, f] w) {
        e = Constant <value = float[0, 1, 1] {}> ()  f = Constant <value = float[0, 1, 1] {}> ()
        k = Constant <value = bool[1] {0}> ()  y = Add (x, e)  w = Where (k, z, f) }""")
    flat, _ = anydml.flatten(model)
    assert [n.op_type for n in flat.graph.node].count("ConstantOfShape") == 1
    again, _ = anydml.flatten(flat)
    assert again.SerializeToString(deterministic=True) == flat.SerializeToString(deterministic=True)
    nothing = np.ones((0, 2, 2), np.float32)
    assert same(model, flat, {"x": nothing, "z": nothing}) == 1


def test_an_input_whose_default_is_sparse_keeps_it():
    proto = parsed(
        "(float[2,3] x, float[2,3] y) => (float[2,3] z) { n = Neg (y)  i = Identity (n)  z = Add (x, i) }"
    )
    sparse = onnx.helper.make_sparse_tensor(
        onnx.helper.make_tensor("y", onnx.TensorProto.FLOAT, [2], [4, 5]),
        onnx.helper.make_tensor("places", onnx.TensorProto.INT64, [2], [0, 4]),
        [2, 3],
    )
    proto.graph.sparse_initializer.append(sparse)
    flat, _ = anydml.flatten(proto)
    for given in ({}, {"y": -X}):
        want, got = (
            ort.InferenceSession(p.SerializeToString()).run(None, {"x": X, **given})[0] for p in (proto, flat)
        )
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(anydml.load(flat).run(None, {"x": X, **given})[0], want)
