"""`flatten`: what goes, what stays and why, and that the result does the same."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace

import hypothesis.strategies as st
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import anydml
from anydml.onnx import closeness, model_pair
from anydml.onnx import verification as verify
from anydml.onnx.providers.provider import RegionFailed
from bench.fixtures import fixtures
from demo.speech import model_path
from tests.models import branch, constant, if_node, info, initializer, model, node, seq_info
from tests.onnx.test_random_models import feeds as random_feeds
from tests.onnx.test_random_models import models as random_models

FIXTURES = {f.name: f for f in fixtures()}
X = np.float32([1, -2, 3])


def parsed(text, opset=18):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> m {text}')


def session(proto):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_ort(proto, feeds):
    return session(proto).run(None, feeds)


def ran(run, feeds):
    try:
        return run(None, feeds)
    except Exception:  # whatever class the library has for it
        return None


def agrees(original, flat, many):
    """Both give the same, or both refuse; says how often they ran."""
    a, b = session(original), session(flat)
    count = 0
    for feeds in many:
        before = ran(a.run, feeds)
        after = ran(b.run, {i.name: feeds[i.name] for i in b.get_inputs()})
        assert (before is None) == (after is None), feeds
        if before is not None and after is not None:
            count += 1
            assert all(closeness.same(x, y) for x, y in zip(before, after, strict=True))
    return count


def decisions(report):
    return [(one.path, one.decision) for one in report.ifs]


# ---- the fixtures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIXTURES)
def test_fixture(name):
    fixture = FIXTURES[name]
    flat, report = anydml.flatten(fixture.model, **fixture.options)
    assert report.left == fixture.left
    assert report.left == sum(one.decision == "kept" for one in report.ifs)
    assert report.verified.agreed >= verify.MIN_TRIALS
    onnx.checker.check_model(flat, full_check=True)
    session(flat)
    original = onnx.load_model_from_string(fixture.model)
    fixed = set(fixture.options.get("fixed", {}))
    assert [i.name for i in flat.graph.input] == [i.name for i in original.graph.input if i.name not in fixed]
    assert [o.name for o in flat.graph.output] == [o.name for o in original.graph.output]
    again, after = anydml.flatten(flat, convert=fixture.options.get("convert", "auto"), verify=False)
    assert after.left == report.left
    assert (report.after.nodes, report.after.operators) == (after.after.nodes, after.after.operators)
    same, _ = anydml.flatten(fixture.model, **fixture.options, verify=False)
    assert same.SerializeToString(deterministic=True) == flat.SerializeToString(deterministic=True)
    assert len(again.SerializeToString()) <= len(flat.SerializeToString()) * 1.05


# ---- Silero VAD --------------------------------------------------------------------------------------

WHOLE = {"input": (1, 576), "state": (2, 1, 128)}
OTHERS = {
    "silero_vad_16k_op15.onnx": 12,
    "silero_vad_half.onnx": 12,
    "silero_vad_op18_ifless.onnx": 1,
}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, 1),
        ({"convert": "always"}, 0),
        ({"fixed": {"sr": 16000}}, 0),
        ({"fixed": {"sr": 8000}}, 0),
        ({"fixed": {"sr": 16000}, "shapes": WHOLE}, 0),
        ({"fixed": {"sr": 8000}, "shapes": {"input": (1, 288), "state": (2, 1, 128)}}, 0),
        ({"shapes": WHOLE, "convert": "always"}, 0),
    ],
)
def test_silero(options, left):
    """Every length: what the original accepts is right, and what it refuses is refused."""
    flat, report = anydml.flatten(model_path(), **options)
    assert (report.before.ifs, report.left) == (25, left)
    assert report.after.bytes < report.before.bytes
    onnx.checker.check_model(flat, full_check=True)
    rates = [options["fixed"]["sr"]] if "fixed" in options else [16000, 8000, 44100]
    lengths = (
        [options["shapes"]["input"][1]]
        if "shapes" in options
        else [1, 64, 65, *range(100, 1200, 37), 512, 576]
    )
    batches = [1] if "shapes" in options else [1, 2]
    rng = np.random.default_rng(0)
    many = [
        {
            "input": (rng.standard_normal((batch, length)) * 0.1).astype(np.float32),
            "state": rng.standard_normal((2, batch, 128)).astype(np.float32),
            "sr": np.array(rate),
        }
        for rate in rates
        for batch in batches
        for length in lengths
    ]
    assert 0 < agrees(onnx.load(model_path()), flat, many) <= len(many)


@pytest.mark.parametrize("name", OTHERS)
def test_sileros_other_models(name):
    path = model_path().with_name(name)
    flat, report = anydml.flatten(path, fixed={"sr": 16000} if "ifless" in name else None)
    assert (report.before.ifs, report.left) == (OTHERS[name], 0)
    assert report.verified.agreed >= verify.MIN_TRIALS
    session(flat)


# ---- random models -----------------------------------------------------------------------------------


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(
    random_models(),
    st.lists(random_feeds(), min_size=4, max_size=4),
    st.sampled_from(["auto", "always", "never"]),
    st.booleans(),
)
def test_random_models(built, many, convert, fix):
    note(onnx.printer.to_text(built))
    fixed = {"flag": many[0]["flag"], "j": many[0]["j"]} if fix else {}
    flat, report = anydml.flatten(built, convert=convert, fixed=fixed, verify=False)
    assert report.after.ifs == sum(one.decision == "kept" for one in report.ifs)
    original, result = ReferenceEvaluator(built), ReferenceEvaluator(flat)
    names = [i.name for i in flat.graph.input]
    assert not set(fixed) & set(names)
    for feeds in many:
        feeds = {**feeds, **fixed}
        with np.errstate(all="ignore"):
            expected = original.run(None, feeds)
            got = result.run(None, {n: feeds[n] for n in names})
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)
            assert (np.asarray(a).dtype, np.shape(a)) == (np.asarray(b).dtype, np.shape(b))


# ---- folding -----------------------------------------------------------------------------------------

FREE = "(float[n, 4] x, bool c) => (float[a, b] y)"
BRANCHES = """<then_branch = t () => (float[p, q] v) { v = Relu (x) },
               else_branch = e () => (float[r, s] w) { w = Neg (x) }>"""


@pytest.mark.parametrize(
    "decide",
    [
        "s = Shape (x)  l = Size (s)  two = Constant <value_int = 2> ()  d = Equal (l, two)",
        "s = Shape <start = 1> (x)  four = Constant <value_ints = [4]> ()  d = Equal (s, four)",
        """s = Shape <start = 0, end = 1> (x)  one = Constant <value_ints = [1]> ()  more = Add (s, one)
           d = Greater (more, s)""",
        """r = Relu (x)  s = Shape <end = 1> (x)  u = Shape <end = 1> (r)  d = Equal (s, u)""",
        """s = Shape <end = 1> (x)  z = Constant <value_ints = [-1]> ()  e = Less (s, z)  d = Not (e)""",
    ],
    ids=["rank", "size", "symbol plus one", "the same symbol", "no size is negative"],
)
def test_conditions_that_follow_from_what_is_declared(decide):
    built = parsed(f"{FREE} {{ {decide}  y = If (d) {BRANCHES} }}")
    flat, report = anydml.flatten(built)
    assert decisions(report) == [("y", "folded")]
    assert report.ifs[0].because == "then: the condition is true"
    assert [n.op_type for n in flat.graph.node] == ["Relu"]


def test_within_a_branch_its_condition_is_known():
    """Also through Not, through Equal on an input, and where it is computed again."""
    built = parsed("""(int64 k, float[3] x) => (float[3] y) <int64 seven = {7}> {
        c = Equal (k, seven)
        y = If (c) <
            then_branch = t () => (float[3] a3) {
                n = Not (c)
                a1 = If (n) <then_branch = t1 () => (float[3] u1) { u1 = Exp (x) }, else_branch = e1 () => (float[3] u2) { u2 = Abs (x) }>
                d = Equal (k, seven)
                a2 = If (d) <then_branch = t2 () => (float[3] u3) { u3 = Neg (a1) }, else_branch = e2 () => (float[3] u4) { u4 = Exp (x) }>
                f = Cast <to = 1> (k)  a3 = Add (a2, f) },
            else_branch = e () => (float[3] b) {
                d2 = Equal (k, seven)
                b = If (d2) <then_branch = t3 () => (float[3] u5) { u5 = Exp (x) }, else_branch = e3 () => (float[3] u6) { u6 = Abs (x) }>
            }>
    }""")
    flat, report = anydml.flatten(built)
    assert [d for _, d in decisions(report)].count("folded") == 3
    names = [n.op_type for n in flat.graph.node]
    assert report.left == names.count("Exp") == names.count("Not") == names.count("Cast") == 0
    assert names.count("Where") == 1


def test_a_rank_that_cannot_be_is_not_waited_for():
    """Of a squeeze that exporters write as an If, only one branch leads to an LSTM that can run."""
    text = """(float[n, 2, m] x, float[1, 8, 2] w, float[1, 8, 2] r) => (float[a, b, c, d] y) <int64[1] axis = {2}, int64[1] front = {0}> {
        s = Shape <start = 2, end = 3> (x)  one = Constant <value_ints = [1]> ()  d = Equal (s, one)
        u = If (d) <then_branch = t () => (float[p, q] v) { v = Squeeze (x, axis) },
                    else_branch = e () => (float[h, i, j] k) { k = Identity (x) }>
        z = Unsqueeze (u, front)
        y = LSTM <hidden_size = 2> (z, w, r) }"""
    built = parsed(text)
    flat, report = anydml.flatten(built)
    assert report.left == 0
    assert "otherwise" in report.ifs[0].because
    assert "LSTM" in report.ifs[0].because
    rng = np.random.default_rng(0)
    draw = lambda *sizes: rng.standard_normal(sizes).astype(np.float32)  # noqa: E731
    many = [{"x": draw(n, 2, m), "w": draw(1, 8, 2), "r": draw(1, 8, 2)} for n in (1, 3) for m in (1, 2)]
    assert agrees(built, flat, many) == 2


def test_the_shape_of_one_input_decides_by_a_symbol_of_another():
    built = parsed("""(float[n] x, float[n] z) => (float[n] y) {
        s = Shape (x)  t = Shape (z)  c = Equal (s, t)
        y = If (c) <then_branch = tb () => (float[n] a) { a = Add (x, z) }, else_branch = eb () => (float[n] b) { b = Neg (x) }> }""")
    flat, report = anydml.flatten(built)
    assert decisions(report) == [("y", "folded")]
    assert [n.op_type for n in flat.graph.node] == ["Add"]


def test_nodes_that_both_branches_have_run_once():
    built = parsed("""(bool c, float[n] x) => (float[n] y, float[n] z) {
        y, z = If (c) <
            then_branch = t () => (float[n] p, float[n] p2) { a = Exp (x)  b = Abs (a)  p = Neg (b)  p2 = Identity (b) },
            else_branch = e () => (float[n] q, float[n] q2) { u = Exp (x)  v = Abs (u)  q = Sqrt (v)  q2 = Identity (v) }> }""")
    flat, report = anydml.flatten(built)
    assert sorted(n.op_type for n in flat.graph.node if n.op_type != "Identity") == [
        "Abs",
        "Exp",
        "Neg",
        "Sqrt",
        "Where",
    ]
    flat, report = anydml.flatten(built, convert="never")
    assert report.left == 1
    assert [n.op_type for n in flat.graph.node].count("Exp") == 1


# ---- converting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 7, 8, 9, 11, 13, 16, 18, 21])
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float16",
        "float64",
        "bool",
        "int8",
        "int16",
        "int64",
        "uint8",
        "uint16",
        "uint64",
        "string",
    ],
)
def test_every_type_and_opset(opset, dtype):
    """Where lacks types in onnxruntime, and opsets before 9 lack Where: then Gather chooses."""
    built = model(
        [if_node("c", branch([], [info("a", dtype, [2, 3])]), branch([], [info("b", dtype, [2, 3])]))],
        [info("c", "bool", [1]), info("a", dtype, [2, 3]), info("b", dtype, [2, 3])],
        [info("y", dtype, [2, 3])],
        opset,
    )
    del built.graph.value_info[:]
    for attribute in built.graph.node[0].attribute:  # onnxruntime wants a copy
        name = "a" if attribute.name == "then_branch" else "b"
        attribute.g.node.append(helper.make_node("Identity", [name], [f"{name}_copy"]))
        attribute.g.output[0].name = f"{name}_copy"
    flat, report = anydml.flatten(built, verify=False)
    lost = dtype == "string" and opset < 9
    assert report.left == lost
    if lost:
        return
    a, b = (np.arange(6).reshape(2, 3) % 2 == k for k in (0, 1))
    a, b = (np.where(x, "p", "q").astype(object) if dtype == "string" else x.astype(dtype) for x in (a, b))
    if opset == 1:  # onnx.reference does not know how its Cast was written, onnxruntime does not know opset 1
        onnx.checker.check_model(flat)
        for cast in (n for n in flat.graph.node if n.op_type == "Cast"):
            cast.attribute[0].CopyFrom(helper.make_attribute("to", 7))
    runner = session(flat) if opset > 6 else ReferenceEvaluator(flat)
    for truth in (True, False):
        (y,) = runner.run(None, {"c": np.array([truth]), "a": a, "b": b})
        np.testing.assert_array_equal(y, a if truth else b)
    chooses = {"And", "Or"} if dtype == "bool" and opset >= 7 else {"Where", "Gather"}
    assert chooses & {n.op_type for n in flat.graph.node}


@pytest.mark.parametrize(
    ("then", "other", "nodes"),
    [
        ("a", "no", ["And"]),
        ("yes", "b", ["Or"]),
        ("no", "b", ["Not", "And"]),
        ("a", "yes", ["Not", "Or"]),
        ("a", "mixed", ["And", "Not", "And", "Or"]),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_bools_beside_known_ones(then, other, nodes, rank):
    built = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]> m (bool{[1] * rank or ""} c, bool[2,3] a, bool[2,3] b) => (bool[2,3] y)
        <bool[2,3] no = {{0,0,0,0,0,0}}, bool[2,3] yes = {{1,1,1,1,1,1}}, bool[2,3] mixed = {{1,0,0,1,0,0}}> {{
          y = If (c) <then_branch = t () => (bool[2,3] p) {{ p = Identity ({then}) }},
                      else_branch = e () => (bool[2,3] q) {{ q = Identity ({other}) }}> }}"""
    )
    flat, _ = anydml.flatten(built, verify=False)
    assert [n.op_type for n in flat.graph.node] == nodes
    a, b = (np.random.default_rng(k).random((2, 3)) < 0.5 for k in (1, 2))
    for truth in (True, False):
        feeds = {"c": np.full([1] * rank, truth), "a": a, "b": b}
        np.testing.assert_array_equal(*(session(m).run(None, feeds)[0] for m in (flat, built)))


@pytest.mark.parametrize("sizes", [[], [1], [1, 1, 1]])
def test_a_condition_of_any_rank(sizes):
    built = model(
        [if_node("c", branch([node("Exp", ["x"], "t")], ["t"]), branch([node("Neg", ["x"], "e")], ["e"]))],
        [info("c", "bool", sizes), info("x", sizes=[])],
        [info("y", sizes=[])],
    )
    flat, report = anydml.flatten(built)
    assert report.left == 0
    for truth in (True, False):
        (y,) = session(flat).run(None, {"c": np.full(sizes, truth), "x": np.array(2, np.float32)})
        assert y.shape == ()
        np.testing.assert_allclose(y, np.exp(2) if truth else -2, rtol=1e-6)


def test_nan_and_infinity_of_the_branch_not_taken_do_not_leak():
    built = parsed("""(bool c, float[3] x) => (float[3] y) {
        y = If (c) <then_branch = t () => (float[3] p) { z = Sub (x, x)  p = Div (x, z) },
                    else_branch = e () => (float[3] q) { q = Neg (x) }> }""")
    flat, _ = anydml.flatten(built)
    assert "If" not in {n.op_type for n in flat.graph.node}
    np.testing.assert_array_equal(session(flat).run(None, {"c": np.array(False), "x": X})[0], -X)


HAZARDS = {
    "Gather": "p = Gather (x, k)",
    "Reshape": "p = Reshape (x, ks)",
    "Squeeze": "p = Squeeze (z, ks)",
    "Expand": "p = Expand (x, ks)",
    "Split": "p, rest = Split (z, ks)",
    "MatMul": "p = MatMul (x, z)",
    "Add": "p = Add (x, z)",
    "Conv": "p = Conv (im, w)",
    "RandomNormalLike": "p = RandomNormalLike (x)",
    "OneHot": "p = OneHot (ks, k, z)",
    "NonZero": "p = NonZero (x)",
    "Loop": "p = Loop (k, c, x) <body = b (int64 i, bool g, float[3] s) => (bool g1, float[3] s1) { g1 = Identity (g)  s1 = Neg (s) }>",
    "an integer by 0": "d = Div (ks, kd)  p = Cast <to = 1> (d)",
    "a reduction of nothing": "p = ReduceMax <keepdims = 1> (z)",
    "an own operator": "p = own.Thing (x)",
}


@pytest.mark.parametrize("convert", ["auto", "always"])
@pytest.mark.parametrize("what", HAZARDS)
def test_what_may_fail_is_not_speculated(what, convert):
    built = parsed(f"""(bool c, float[3] x, float[m] z, int64 k, int64[q] ks, int64[q] kd, float[1, 2, h] im, float[1, 2, 3] w) => (y) {{
        y = If (c) <then_branch = t () => (p) {{ {HAZARDS[what]} }}, else_branch = e () => (e1) {{ e1 = Neg (x) }}> }}""")
    if what == "an own operator":
        built.opset_import.extend([helper.make_opsetid("own", 1)])
    flat, report = anydml.flatten(built, convert=convert, verify=False)
    (one,) = report.ifs
    if one.decision == "converted":  # it never sees what could fail
        assert "when it is not taken" in one.because
        assert what not in ("RandomNormalLike", "OneHot", "an own operator")
    else:
        assert one.decision == "kept"
        reasons = ("then-branch speculatively", "differ in shape", "times as long")
        assert any(reason in one.because for reason in reasons)
        assert "If" in {n.op_type for n in flat.graph.node}


def test_shapes_that_differ_by_branch():
    text = """(bool c, float[n, 3] x) => (float[a, b] y) {
        y = If (c) <then_branch = t () => (float[p, q] v) { v = Concat <axis = 0> (x, x) },
                    else_branch = e () => (float[r, s] w) { w = Neg (x) }> }"""
    _, report = anydml.flatten(parsed(text))
    assert decisions(report) == [("y", "kept")]
    assert "times as long" in report.ifs[0].because
    flat, report = anydml.flatten(parsed(text), convert="always")
    assert report.left == 0
    many = [{"c": np.array(c), "x": np.ones((n, 3), np.float32)} for c in (True, False) for n in (0, 1, 4)]
    assert agrees(parsed(text), flat, many) == 6


def test_a_branch_that_always_fails_still_does():
    built = parsed(
        """(bool c, float[2, 3] x, float[3, 3, 1] w) => (float[2, 3] y) {
        y = If (c) <then_branch = t () => (float[2, 3] v) { v = Relu (x) },
                    else_branch = e () => (float[2, 3] u) { u = Conv (x, w) }> }""",
        18,
    )
    flat, report = anydml.flatten(built, convert="always", verify=False)
    assert decisions(report) == [("y", "guarded")]
    runner, feeds = session(flat), {"x": np.ones((2, 3), np.float32), "w": np.ones((3, 3, 1), np.float32)}
    assert runner.run(None, {"c": np.array(True), **feeds})[0].sum() == 6
    with pytest.raises(Exception, match=r"out of (data )?bounds"):
        runner.run(None, {"c": np.array(False), **feeds})


def test_what_is_left_of_a_failing_branch_may_return_what_another_if_gave():
    """The inner If goes, as both of its branches do the same; then the outer one's guard needs what it gave."""
    built = parsed("""(bool c, bool d, float[2, 3] x, float[3, 3, 1] w) => (float[2, 3] y) {
        y = If (c) <
            then_branch = t () => (float[2, 3] v) {
                v = If (d) <then_branch = t2 () => (float[2, 3] a) { a = Relu (x) }, else_branch = e2 () => (float[2, 3] b) { b = Relu (x) }> },
            else_branch = e () => (float[2, 3] u) { u = Conv (x, w) }> }""")
    flat, report = anydml.flatten(built, convert="always", verify=False)
    assert report.left == 0
    feeds = {
        "c": np.array(True),
        "d": np.array(True),
        "x": -np.ones((2, 3), np.float32),
        "w": np.ones((3, 3, 1), np.float32),
    }
    assert (
        session(flat).run(None, {i.name: feeds[i.name] for i in flat.graph.input})[0].tolist()
        == [[0] * 3] * 2
    )


@pytest.mark.parametrize("counts", [(2, 2), (2, 1)])
def test_sequences(counts):
    def built(count, op, prefix):
        made = [node(op, ["x"], f"{prefix}{k}") for k in range(count)]
        return branch(
            [*made, node("SequenceConstruct", [f"{prefix}{k}" for k in range(count)], f"{prefix}s")],
            [seq_info(f"{prefix}s")],
        )

    original = model(
        [if_node("c", built(counts[0], "Neg", "t"), built(counts[1], "Abs", "e"))],
        [info("c", "bool", []), info("x", sizes=["n"])],
        [seq_info("y")],
    )
    flat, report = anydml.flatten(original)
    assert report.left == (counts[0] != counts[1])
    if not report.left:
        for truth in (True, False):
            (y,) = session(flat).run(None, {"c": np.array(truth), "x": X})
            assert [a.tolist() for a in y] == [(-X if truth else abs(X)).tolist()] * 2


def test_cost_decides():
    heavy = FIXTURES["early exit"].model
    _, report = anydml.flatten(heavy)
    assert "times as long" in report.ifs[0].because
    _, report = anydml.flatten(heavy, max_extra_cost=1e6)
    assert report.left == 0
    assert report.ifs[0].extra_work > 50_000
    _, report = anydml.flatten(heavy, convert="never")
    assert report.left == 1


def test_nodes_saved_and_added():
    text = """(bool c, float[n] x) => (float[n] y) {
        y = If (c) <then_branch = t () => (float[n] p) { a = Neg (x)  p = Exp (a) }, else_branch = e () => (float[n] q) { q = Abs (x) }> }"""
    assert [one.nodes for one in anydml.flatten(parsed(text))[1].ifs] == [0], "the If, for a Where"
    assert [one.nodes for one in anydml.flatten(parsed(text), fixed={"c": True})[1].ifs] == [-2]
    assert [one.nodes for one in anydml.flatten(parsed(text), fixed={"c": False})[1].ifs] == [-3]


def test_a_witness_that_the_user_gives():
    built = parsed("""(bool c, float[1, 1, n] x) => (float[d, e, a] y) <int64[3] k = {1, 1, 5000}> {
        y = If (c) <then_branch = t () => (float[g, h, p] u) { w = ConstantOfShape (k)  u = Conv (x, w) },
                    else_branch = e () => (float[i, j, q] v) { v = Neg (x) }> }""")
    _, report = anydml.flatten(built, convert="always")
    assert report.left == 1
    flat, report = anydml.flatten(built, convert="always", witness={"x": (1, 1, 6000)})
    assert report.left == 0
    many = [
        {"c": np.array(c), "x": np.arange(n, dtype=np.float32)[None, None]}
        for c in (True, False)
        for n in (1, 5000, 7000)
    ]
    assert agrees(built, flat, many) == 5


# ---- files -------------------------------------------------------------------------------------------


def test_what_the_file_says_stays():
    built = parsed("""(bool c, float[n] x) => (float[n] y) <float[3] w = {1, 2, 3}> {
        y = If (c) <then_branch = t () => (float[n] p) { p = Add (x, w) }, else_branch = e () => (float[n] q) { q = Sub (x, w) }> }""")
    built.producer_name, built.model_version, built.doc_string = "somebody", 7, "about it"
    helper.set_model_props(built, {"licence": "free"})
    built.graph.doc_string = "the graph"
    flat, _ = anydml.flatten(built)
    assert (flat.producer_name, flat.model_version, flat.doc_string, flat.graph.doc_string) == (
        "somebody",
        7,
        "about it",
        "the graph",
    )
    assert {p.key: p.value for p in flat.metadata_props} == {"licence": "free"}
    assert (flat.ir_version, [o.version for o in flat.opset_import]) == (8, [18])
    assert [t.name for t in flat.graph.initializer] == ["w"]
    assert flat.graph.name == "m"
    assert flat.graph.input[1] == built.graph.input[1]


def test_types_that_the_file_notes_are_noted_again():
    built = onnx.shape_inference.infer_shapes(
        onnx.load_model_from_string(FIXTURES["a sign by its data"].model), strict_mode=True
    )
    assert built.graph.value_info
    annotation = built.graph.quantization_annotation.add(tensor_name="sum")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="zero")
    flat, report = anydml.flatten(built)
    assert report.left == 0
    onnx.shape_inference.infer_shapes(flat, check_type=True, strict_mode=True)
    onnx.checker.check_model(flat, full_check=True)
    noted = {v.name: v.type.tensor_type for v in flat.graph.value_info}
    assert noted["p"].shape.dim[0].dim_param == "n"
    assert noted["up"].elem_type == TensorProto.BOOL
    assert list(flat.graph.quantization_annotation) == [annotation]


def test_outputs_that_are_inputs_constants_or_one_another():
    built = parsed("""(bool c, float[3] x) => (float[3] y, float[3] z, float[3] u, float[3] v) <float[3] w = {1, 2, 3}, bool yes = {1}> {
        y, z, u, v = If (yes) <
            then_branch = t () => (float[3] x1, float[3] w1, float[3] p, float[3] p1) { x1 = Identity (x)  w1 = Identity (w)  p = Relu (x)  p1 = Identity (p) },
            else_branch = e () => (float[3] a, float[3] b, float[3] d, float[3] f) { a = Neg (x)  b = Neg (x)  d = Neg (x)  f = Neg (x) }> }""")
    flat, report = anydml.flatten(built)
    assert report.left == 0
    got = session(flat).run(None, {"c": np.array(True), "x": X})
    for a, b in zip(got, (X, [1, 2, 3], np.maximum(X, 0), np.maximum(X, 0)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "made", ["y = Shape (x)  z = Identity (x)", "y = Constant <value_ints = [1, 3]> ()  z = Neg (x)"]
)
def test_outputs_that_become_constants(made):
    built = parsed(f"(float[1, 3] x) => (int64[2] y, float[1, 3] z) {{ {made} }}")
    flat, _ = anydml.flatten(built)
    onnx.checker.check_model(flat, full_check=True)
    y, z = session(flat).run(None, {"x": X[None]})
    assert y.tolist() == [1, 3]
    assert abs(z).tolist() == abs(X[None]).tolist()


def test_an_output_that_takes_the_name_of_a_value_inside():
    """Both outputs become one value, whose name one of them has."""
    built = parsed("""(bool c, float[3] x) => (float[3] a, float[3] b) <bool yes = {1}> {
        n = Neg (x)  a = Exp (n)
        b = If (yes) <then_branch = t () => (float[3] e) { m = Neg (x)  e = Exp (m) }, else_branch = f () => (float[3] g) { g = Abs (x) }> }""")
    flat, report = anydml.flatten(built)
    assert report.left == 0
    assert [n.op_type for n in flat.graph.node].count("Exp") == 1
    for got in session(flat).run(None, {"c": np.array(True), "x": X}):
        np.testing.assert_allclose(got, np.exp(-X), rtol=1e-6)


def test_functions_with_an_if_are_inlined_and_others_stay():
    text = """<ir_version: 8, opset_import: ["": 18, "own": 1]>
    m (bool c, float[3] x) => (float[3] y) { a = own.Chosen (c, x)  y = own.Twice (a) }
    <domain: "own", opset_import: ["": 18]> Twice (x) => (y) { y = Add (x, x) }
    <domain: "own", opset_import: ["": 18]> Chosen (c, x) => (y) {
        y = If (c) <then_branch = t () => (p) { p = Neg (x) }, else_branch = e () => (q) { q = Abs (x) }> }
    <domain: "own", opset_import: ["": 18]> Unused (x) => (y) { y = Neg (x) }"""
    built = onnx.parser.parse_model(text)
    flat, report = anydml.flatten(built)
    assert (report.before.ifs, report.left) == (1, 0)
    assert [f.name for f in flat.functions] == ["Twice"]
    onnx.checker.check_model(flat, full_check=True)
    for truth in (True, False):
        (y,) = session(flat).run(None, {"c": np.array(truth), "x": X})
        np.testing.assert_array_equal(y, 2 * (-X if truth else abs(X)))


def test_external_data(tmp_path):
    """Kept where it is when the result lies beside it; else copied."""
    weights = np.arange(3000, dtype=np.float32).reshape(3, 1000)
    built = parsed("""(bool c, float[n, 3] x) => (float[n, 1000] y) {
        y = If (c) <then_branch = t () => (float[n, 1000] p) { p = MatMul (x, w) },
                    else_branch = e () => (float[n, 1000] q) { r = MatMul (x, w)  q = Neg (r) }> }""")
    built.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    onnx.save(built, here / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    from anydml.onnx.serde.serialize import save

    flat, report = anydml.flatten(here / "m.onnx", verify=False)
    assert report.left == 0
    (tensor,) = flat.graph.initializer
    assert tensor.data_location == TensorProto.EXTERNAL
    for folder in (here, there):
        save(flat, here, folder / "flat.onnx")
        x = np.ones((2, 3), np.float32)
        for truth in (True, False):
            (y,) = anydml.load(folder / "flat.onnx", threads=1).run(None, {"c": np.array(truth), "x": x})
            np.testing.assert_allclose(y, x @ weights * (1 if truth else -1), rtol=1e-6)
    assert sorted(p.name for p in here.iterdir()) == ["flat.onnx", "m.onnx", "w.bin"]
    assert sorted(p.name for p in there.iterdir()) == ["flat.onnx", "flat.onnx.data"]
    flat, report = anydml.flatten(here / "m.onnx")
    assert report.verified.agreed >= verify.MIN_TRIALS


# ---- what is asked for -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fixed": {"cc": True}}, r"fixed: expected a name of an input, but got 'cc'; did you mean 'c'"),
        ({"shapes": {"z": (1,)}}, "shapes: expected a name of an input, but got 'z'"),
        ({"witness": {"xx": (3, 4)}}, "witness: expected a name of an input, but got 'xx'; did you mean 'x'"),
        ({"fixed": {"c": 2}}, "fixed 'c': expected bool, but got 2"),
        ({"fixed": {"c": "yes"}}, "fixed 'c': expected bool"),
        ({"fixed": {"k": 1.5}}, r"fixed 'k': expected int64, but got 1\.5"),
        ({"fixed": {"k": 1 << 70}}, "fixed 'k': expected int64"),
        ({"fixed": {"k": 1 << 63}}, r"fixed 'k': expected int64, but got \d+; int64 does not hold \d+"),
        ({"fixed": {"k": None}}, "fixed 'k': expected int64, but got None; None is no number"),
        ({"fixed": {"x": [1.0, 2.0]}}, "fixed 'x': expected 2 sizes, but got"),
        ({"shapes": {"x": (3,)}}, r"shapes 'x': expected 2 sizes, but got \[3\]"),
        ({"shapes": {"x": (2, 5)}}, "shapes 'x', axis 1: expected 4, but got 5"),
        ({"shapes": {"x": (2, 4), "z": (3,)}}, r"shapes 'z', axis 0: expected 2 \(n\), but got 3"),
        ({"shapes": {"x": (-1, 4)}}, "shapes 'x': expected sizes"),
        ({"shapes": {"x": 4}}, "shapes 'x': expected sizes"),
        ({"convert": "sometimes"}, "convert: expected auto, always or never"),
    ],
)
def test_requests_that_make_no_sense(options, message):
    built = parsed("""(bool c, int64 k, float[n, 4] x, float[n] z) => (float[n, 4] y) {
        y = If (c) <then_branch = t () => (float[n, 4] p) { p = Neg (x) }, else_branch = e () => (float[n, 4] q) { q = Abs (x) }> }""")
    if message.startswith("shapes: expected a name"):
        options = {"shapes": {"zz": (1,)}}
        message = message.replace("'z'", "'zz'")
    with pytest.raises(anydml.InvalidInput, match=message):
        anydml.flatten(built, **options)


def test_a_fault_would_be_found(monkeypatch):
    """Verification sees a result that is not the same, and names the seed."""
    from anydml.onnx import node_builder as nodes

    built = parsed("""(bool c, float[n] x) => (float[n] y) {
        y = If (c) <then_branch = t () => (float[n] p) { p = Neg (x) }, else_branch = e () => (float[n] q) { q = Abs (x) }> }""")
    right = nodes.NodeBuilder._where
    monkeypatch.setattr(nodes.NodeBuilder, "_where", lambda self, c, a, b, v: right(self, c, b, a, v))
    flat, report = anydml.flatten(built, seed=3)
    assert report.left == 1
    assert re.fullmatch(
        r"without it, .* differ: .* on c = .*, x float32\[.*seed 3: up to .*", report.ifs[0].because
    )
    assert report.verified.agreed >= verify.MIN_TRIALS
    assert agrees(built, flat, [{"c": np.array(c), "x": X} for c in (True, False)]) == 2


def test_only_the_if_with_the_fault_is_kept(monkeypatch):
    """One of nine choices is wrong, and the model keeps that If."""
    from anydml.onnx import node_builder as nodes

    chain = "\n".join(
        f"""v{k + 1} = If (c{k}) <then_branch = t () => (float[n] p{k}) {{ p{k} = Neg (v{k}) }},
            else_branch = e () => (float[n] q{k}) {{ q{k} = Abs (v{k}) }}>"""
        for k in range(9)
    )
    inputs = ", ".join(f"bool c{k}" for k in range(9))
    built = parsed(f"({inputs}, float[n] v0) => (float[n] v9) {{ {chain} }}")
    right = nodes.NodeBuilder._where

    def wrong(self, c, a, b, v):
        right(self, c, *((b, a) if v.name == "v6" else (a, b)), v)

    monkeypatch.setattr(nodes.NodeBuilder, "_where", wrong)
    _, report = anydml.flatten(built)
    assert report.left == 1
    assert [one.decision for one in report.ifs].count("converted") == 8
    assert next(one for one in report.ifs if one.decision == "kept").path == "v6"


def test_a_fault_that_no_if_is_to_blame_for_is_told(monkeypatch):
    from anydml import flattening

    built = parsed("(bool c, float[n] x) => (float[n] y) { a = Exp (x) y = Neg (a) }")

    right = flattening.model_proto

    def wrong(graph, original):
        proto = right(graph, original)
        proto.graph.node[-1].op_type = "Abs"
        return proto

    monkeypatch.setattr(flattening, "model_proto", wrong)
    with pytest.raises(
        anydml.VerificationFailed, match=r"output 'y': differs on .*seed 0: up to \S+ apart, of"
    ):
        anydml.flatten(built)


def test_what_nobody_needs_may_fail():
    """In branches too, and beside a result that is needed; both models are compared without it."""
    built = parsed("""(bool c, float[n] x, float[k] w) => (float[n] y) {
        dead = Add (x, w)
        y, other = If (c) <
            then_branch = t () => (float[n] p, float[m] q) { p = Neg (x) q = Mul (x, w) },
            else_branch = e () => (float[n] r, float[m] s) { r = Abs (x) s = Sub (x, w) z = Div (x, w) }> }""")
    flat, report = anydml.flatten(built)
    assert report.left == 0
    assert report.verified.agreed >= verify.MIN_TRIALS
    assert [n.op_type for n in flat.graph.node] == ["Neg", "Abs", "Where"]


@pytest.mark.drawn
@pytest.mark.parametrize("name", FIXTURES)
@pytest.mark.parametrize("convert", ["never", "auto", "always"])
def test_flatten_again_changes_nothing(name, convert):
    fixture = FIXTURES[name]
    once, _ = anydml.flatten(fixture.model, **{**fixture.options, "convert": convert}, verify=False)
    twice, _ = anydml.flatten(once, convert=convert, verify=False)
    assert twice.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


BODY = """(float[k] x, bool f, int64 n) => (int64[m] y) {
    z, s = Loop (n, f, x) <body = b (int64 i, bool go, float[j] v) => (bool go2, float[j] w, float[] r) <bool c = {0}> {
        go2 = Identity (go)
        w = Neg (v)
        r = If (c) <then_branch = t () => (float p) { p = ReduceSum <keepdims = 0> (v) },
            else_branch = e () => (float[1] q) { q = ReduceSum <keepdims = 1> (v) }> }>
    y = If (f) <then_branch = t () => (int64[a] p) { k0 = Constant <value_ints = [1]> () k1 = Constant <value_ints = [2]> ()
                    sh = Shape (s) p = Slice (sh, k0, k1) },
                else_branch = e () => (int64[b] q) { sh = Shape (x) one = Shape (sh) q = Add (one, one) }> }"""


@pytest.mark.parametrize(
    "text",
    [
        # a rewrite drops what hides that a size is never below 0
        """(float[a, b] x) => (int64[2] s, bool[2] y) { c = Constant <value_ints = [3]> () z = Constant <value_int = 0> ()
            s0 = Shape (x) s = CastLike (s0, c) y = Less (s, z) }""",
        # the rank of what a loop stacks is known once the If in its body has gone
        BODY,
    ],
)
def test_what_a_rewrite_lets_know_is_known_at_once(text):
    once, _ = anydml.flatten(parsed(text), convert="never", verify=False)
    twice, _ = anydml.flatten(once, convert="never", verify=False)
    assert twice.SerializeToString(deterministic=True) == once.SerializeToString(deterministic=True)


def test_equal_sequences_stay_two():
    """Before opset 14 no Identity makes two outputs of one sequence."""
    built = parsed(
        """() => (seq(float[n]) a, seq(float[n]) b) {
        a = SequenceEmpty <dtype = 1> () b = SequenceEmpty <dtype = 1> () }""",
        12,
    )
    flat, _ = anydml.flatten(built)
    assert run_ort(flat, {}) == [[], []]


def test_a_thorough_verification_takes_more_inputs():
    told = []
    _, report = anydml.flatten(
        FIXTURES["a sign by its data"].model,
        verify="thorough",
        progress=lambda done, of: told.append((done, of)),
    )
    assert report.verified.agreed == 240
    assert told[-1] == (240, 240)


def test_verification_of_a_slow_model_ends(monkeypatch):
    monkeypatch.setattr("anydml.flattening.MIN_VERIFY_SECONDS", 0.0)
    clock = iter(range(10**6))
    monkeypatch.setattr(
        verify, "time", SimpleNamespace(monotonic=lambda: next(clock), perf_counter=time.perf_counter)
    )
    _, report = anydml.flatten(FIXTURES["a sign by its data"].model)
    assert report.verified.agreed == verify.MIN_TRIALS


def test_verification_of_a_model_that_declares_wrong_types():
    """onnxruntime refuses what is declared, and takes what follows."""
    built = parsed("""(bool c, float[n] x) => (int64[n] y) {
        y = If (c) <then_branch = t () => (float[n] p) { p = Neg (x) }, else_branch = e () => (float[n] q) { q = Abs (x) }> }""")
    flat, report = anydml.flatten(built)
    assert report.verified.provider == "onnxruntime"
    assert report.verified.agreed > 0
    assert flat.graph.output == built.graph.output


@pytest.mark.parametrize(("ir", "opset"), [(8, 13), (3, 8)])
def test_weights_that_are_inputs(ir, opset):
    """Before IR 4 they are constants all the same; since, they may be fed."""
    built = onnx.parser.parse_model(
        f"""<ir_version: {ir}, opset_import: ["": {opset}]>
        m (bool c, float[2] x, float[2] w = {{1.0, 2.0}}) => (float[2] y) {{
            y = If (c) <then_branch = t () => (float[2] a) {{ a = Mul (x, w) }},
                        else_branch = e () => (float[2] b) {{ b = Neg (x) }}> }}"""
    )
    flat, report = anydml.flatten(built)
    onnx.checker.check_model(flat)
    assert report.verified.agreed > 0
    assert "w" in [i.name for i in flat.graph.input]
    x = np.float32([3, 5])
    for c, wanted in ((True, [3, 10]), (False, [-3, -5])):
        for one in (flat, built):
            assert anydml.load(one).run(None, {"c": np.array(c), "x": x})[0].tolist() == wanted
        assert run_ort(flat, {"c": np.array(c), "x": x})[0].tolist() == wanted
    fed = {"c": np.array(True), "x": x, "w": np.float32([2, 2])}
    if ir < 4:
        with pytest.raises(anydml.InvalidInput, match="'w'"):
            anydml.load(built).run(None, fed)
    else:
        assert anydml.load(flat).run(None, fed)[0].tolist() == [6, 10]


def test_types_in_a_branch_that_sees_a_stand_in():
    """Those that the file declares do not hold there: onnxruntime would reuse memory that is too small."""
    built = parsed("""(bool c, float[b, 4] x) => (float[b, 4] y) {
        h = If (c) <then_branch = t () => (float[b, 4] h1) { mx = ReduceMax <keepdims = 0> (x)  h1 = Sub (x, mx) },
                    else_branch = e () => (float[b, 4] h2) { h2 = Neg (x) }>
        r = Abs (h)  y = Add (h, r) }""")
    flat, report = anydml.flatten(onnx.shape_inference.infer_shapes(built), convert="always")
    assert report.left == 0
    for rows in (1, 2, 5):
        for c in (True, False):
            feeds = {"c": np.array(c), "x": np.float32(np.arange(rows * 4).reshape(rows, 4))}
            np.testing.assert_array_equal(run_ort(flat, feeds)[0], run_ort(built, feeds)[0])


@pytest.mark.parametrize(("dtype", "opset"), [("int4", 21), ("float8e4m3fn", 19)])
def test_types_that_nothing_chooses(dtype, opset):
    built = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": {opset}]> m (bool c, float[2] x) => (float[2] y) {{
            q = If (c) <then_branch = t () => ({dtype}[2] a) {{ a = Cast <to = {TensorProto.DataType.Value(dtype.upper())}> (x) }},
                        else_branch = e () => ({dtype}[2] b) {{ n = Neg (x)  b = Cast <to = {TensorProto.DataType.Value(dtype.upper())}> (n) }}>
            y = Cast <to = 1> (q) }}"""
    )
    flat, report = anydml.flatten(built, convert="always")
    onnx.checker.check_model(flat, full_check=True)
    assert report.left == 1
    assert "a type that ONNX's Where, Concat and Gather do not take" in report.ifs[0].because


def test_verification_of_a_loop_that_may_never_end(monkeypatch):
    """Halves x until it is small enough, which it never is below zero."""
    monkeypatch.setattr(model_pair, "MAX_RUN_SECONDS", 0.2)
    built = parsed("""(float[n] x, float limit) => (float[n] y) {
        a = Abs (x)  m = ReduceMax <keepdims = 0> (a)  c = Greater (m, limit)
        y = Loop ("", c, x) <body = b (int64 i, bool k, float[n] s) => (bool more, float[n] t) {
            half = Constant <value_float = 0.5> ()  t = Mul (s, half)
            d = Abs (t)  e = ReduceMax <keepdims = 0> (d)  more = Greater (e, limit) }> }""")
    _, report = anydml.flatten(built)
    assert report.verified.agreed >= verify.MIN_TRIALS
    assert report.verified.refused > 0


def test_verification_of_reductions_from_the_end_is_onnxruntimes_on_nothing_too(monkeypatch):
    """Only regions have such axes counted from the front: a file does not end the process for them."""
    tried, drawn = [], verify.drawn

    def noted(*rest):
        feeds = drawn(*rest)
        tried.append(feeds["x"].size)
        return feeds

    monkeypatch.setattr(verify, "drawn", noted)
    built = parsed(
        """(float[n, m] x, bool c) => (float[k] y) {
        y = If (c) <then_branch = t () => (float[k] a) { a = ReduceSum <axes = [-1], keepdims = 0> (x) },
                    else_branch = e () => (float[k] b) { b = ReduceMean <axes = [-1], keepdims = 0> (x) }> }""",
        11,
    )
    _, report = anydml.flatten(built, convert="always")
    assert report.verified.provider == "onnxruntime"
    assert report.verified.agreed + report.verified.refused > verify.MIN_TRIALS
    assert 0 in tried


def test_verification_of_what_onnxruntime_refuses_of_the_original(monkeypatch):
    """As a loop whose body captures what it finds by no name. Our plans run it, and so does the result."""
    compiled = model_pair._compile

    def refusing(*rest):
        provider, declared, _ = compiled(*rest)

        def call(values):
            raise RegionFailed(None, "Missing Input")

        return provider, declared, call

    monkeypatch.setattr(model_pair, "_compile", refusing)
    built = parsed("""(float[n] x, bool c) => (float[n] y) {
        y = If (c) <then_branch = t () => (float[n] a) { a = Neg (x) },
                    else_branch = e () => (float[n] b) { b = Exp (x) }> }""")
    _, report = anydml.flatten(built, convert="always")
    assert report.left == 0
    assert report.verified.agreed >= verify.MIN_TRIALS


def test_verification_of_a_loop_that_may_never_end_by_our_own_plans(monkeypatch):
    """As random integers make the count 2^63, and onnxruntime's whole files might divide by -1."""
    monkeypatch.setattr(model_pair, "MAX_RUN_SECONDS", 0.2)
    built = parsed("""(int64 n, int64 x) => (int64 y) <int64 one = {1}> {
        yes = Constant <value = bool {1}> ()  m = Sub (n, one)
        y = Loop (m, yes, x) <body = f (int64 i, bool c, int64 s) => (bool on, int64 t) {
            d = Add (i, one)  p = Mul (s, d)  t = Mod (p, d)  on = Identity (c) }> }""")
    _, report = anydml.flatten(built)
    assert report.verified.provider == "anydml"
    assert report.verified.refused > 0


def test_a_chain_of_branches_of_different_lengths():
    """What the inner choice is made of cannot fail, so the outer one can be made, too."""
    built = parsed("""(int64 rate, float[12] x) => (float[k] y)
        <int64[1] z = {0}, int64[1] e = {12}, int64[1] two = {2}, int64[1] three = {3}, int64 a = {16}, int64 b = {24}> {
        c = Equal (rate, a)
        y = If (c) <then_branch = t () => (float[p] p1) { p1 = Slice (x, z, e, z, two) }, else_branch = q () => (float[r] r1) {
            d = Equal (rate, b)
            r1 = If (d) <then_branch = t2 () => (float[s] s1) { s1 = Slice (x, z, e, z, three) },
                         else_branch = q2 () => (float[u] u1) { u1 = Identity (x) }> }> }""")
    flat, report = anydml.flatten(built, convert="always")
    assert report.left == 0
    x = np.float32(np.arange(12))
    for rate, step in ((16, 2), (24, 3), (48, 1)):
        assert run_ort(flat, {"rate": np.array(rate), "x": x})[0].tolist() == x[::step].tolist()


HARMLESS = {
    "QuantizeLinear": ("OP (IN, half, zero)", "uint8[2, 4]"),
    "QuantizeLinear of axes": ("QuantizeLinear <axis = 1> (IN, halves, zeros)", "uint8[2, 4]"),
    "DequantizeLinear": ("q_W = QuantizeLinear (IN, half, zero)  R = OP (q_W, half, zero)", "float[2, 4]"),
    "DynamicQuantizeLinear": ("q_W, scale_W, R = OP (IN)", "uint8[]"),
    "Resize": ('OP (IN, "", scales)', "float[2, 8]"),
    "Tile": ("OP (IN, repeats)", "float[2, 8]"),
    "TopK": ("R, at_W = OP (IN, two)", "float[2, 2]"),
    "Einsum": ('OP <equation = "ij->j"> (IN)', "float[4]"),
    "Hardmax": ("OP (IN)", "float[2, 4]"),
    "LpNormalization": ("OP (IN)", "float[2, 4]"),
    "ReduceLogSumExp": ("OP <keepdims = 0> (IN)", "float[]"),
    "Shrink": ("OP (IN)", "float[2, 4]"),
    "Dropout": ("OP (IN)", "float[2, 4]"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_operators_that_are_speculated(name):
    text, result = HARMLESS[name]

    def body(word, given):
        made = text if " R = " in text or text.startswith("R,") or ", R = " in text else f"R = {text}"
        for old, new in (("OP", name), ("IN", given), ("_W", word), ("R", f"r_{word}")):
            made = re.sub(rf"(?<![A-Za-z]){old}(?![A-Za-z])", new, made)
        return made

    built = parsed(f"""(bool c, float[2, 4] x) => ({result} y)
        <float half = {{0.5}}, uint8 zero = {{3}}, float[4] halves = {{0.5, 0.5, 1.0, 1.0}}, uint8[4] zeros = {{3, 3, 3, 3}},
         float[2] scales = {{1.0, 2.0}}, int64[2] repeats = {{1, 2}}, int64[1] two = {{2}}> {{
        n = Neg (x)
        y = If (c) <then_branch = t () => ({result} r_t) {{ {body("t", "x")} }},
                    else_branch = e () => ({result} r_e) {{ {body("e", "n")} }}> }}""")
    _, report = anydml.flatten(built)
    assert [i.decision for i in report.ifs] == ["converted"], report.ifs[0].because
    assert report.verified.agreed >= verify.MIN_TRIALS


def test_functions_that_ifs_depend_on_are_inlined():
    built = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 18, "my": 1]> m (float[n] x) => (float[n] y) {
            big = my.large (x)
            other = my.twice (x)
            z = If (big) <then_branch = t () => (float[n] a) { a = my.outer (other) }, else_branch = e () => (float[n] b) { b = Neg (other) }>
            y = my.square (z) }
        <domain: "my", opset_import: ["": 18]> large (v) => (r) { s = ReduceSum <keepdims = 0> (v)  o = Constant <value_float = 9.0> ()  r = Greater (s, o) }
        <domain: "my", opset_import: ["": 18, "my": 1]> outer (v) => (r) { r = my.inner (v) }
        <domain: "my", opset_import: ["": 18]> inner (v) => (r) { e = Exp (v)  r = Add (e, v) }
        <domain: "my", opset_import: ["": 18]> twice (v) => (r) { r = Add (v, v) }
        <domain: "my", opset_import: ["": 18]> square (v) => (r) { r = Mul (v, v) }"""
    )
    flat, report = anydml.flatten(built)
    assert (report.left, [f.name for f in flat.functions]) == (0, ["square"])
    assert report.verified.agreed >= verify.MIN_TRIALS
    for x in (np.float32([1, 2]), np.float32([8, 3])):
        np.testing.assert_allclose(run_ort(flat, {"x": x})[0], run_ort(built, {"x": x})[0], 1e-6)


def test_constant_weights_are_computed_now():
    built = parsed("""(float[2, 4] x) => (float[2, 2] y) <int64[2] shape = {2, 4}, float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
        m = Reshape (w, shape)  t = Transpose (m)  y = MatMul (x, t) }""")
    flat, _ = anydml.flatten(built)
    assert [n.op_type for n in flat.graph.node] == ["MatMul"]
    assert [t.name for t in flat.graph.initializer] == ["t"]


def test_constants_of_branches_become_initializers():
    built = model(
        [
            if_node(
                "c",
                branch([constant("k", X), node("Add", ["x", "k"], "t")], ["t"]),
                branch([node("Sub", ["x", "l"], "e")], ["e"], [initializer("l", X)]),
            )
        ],
        [info("c", "bool", []), info("x", sizes=[3])],
        [info("y", sizes=[3])],
    )
    flat, report = anydml.flatten(built)
    assert report.left == 0
    assert sorted(t.name for t in flat.graph.initializer) == ["k", "l"]


NEEDED_FOR_SIZES = {
    "a Reshape": """m (float[n,k] x) => (int64[4] y) { s = Constant <value = int64[2] {4, 4}> ()  r = Reshape (x, s)
        y = Scan <num_scan_inputs = 1, body = b (float[4] q) => (int64 z) { z = Constant <value = int64 {2}> () }> (r) }""",
    "what a loop writes over": """m (float[n,k] x, float[k] d) => (float[] y) { t = Constant <value = int64 {1}> ()
        a, y = Loop (t, , d) <body = b (int64 i, bool c, float[] p) => (bool g, float[] q, float[] s) {
          g = Identity (c)  w = Constant <value = float[1,6] {1, 2, 3, 4, 5, 6}> ()  q = Add (p, w)  s = Identity (x) }> }""",
    "rows of nothing": """m (int64[k] x, int64 trips) => (int64[] y) { one = Constant <value = int64[1] {1}> ()
        v, i = TopK <axis = 0> (x, one)
        y = Loop (trips, "") <body = b (int64 j, bool c) => (bool g, int64[] r) { g = Identity (c)  r = Identity (v) }> }""",
}


@pytest.mark.parametrize("name", NEEDED_FOR_SIZES)
def test_what_only_the_original_refuses_or_leaves_open(name):
    """It is gone, as nothing depends on what it computes; and how long rows are of which there are none."""
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + NEEDED_FOR_SIZES[name])
    flat, report = anydml.flatten(model)
    assert report.verified.agreed >= 3
    theirs = ort.InferenceSession(flat.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [o.name for o in theirs.get_outputs()] == ["y"]


def test_a_difference_is_not_taken_for_what_is_left_out():
    """A node that is needed fails in both, or its absence is found."""
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[n,k] x) => (float[4,4] y) {
        s = Constant <value = int64[2] {4, 4}> ()  y = Reshape (x, s) }"""
    _, report = anydml.flatten(onnx.parser.parse_model(text))
    assert report.verified.refused > 0


OLD = {
    "constants of bodies before IR 4": """<ir_version: 3, opset_import: ["": 7]> m (bool[1] x, float f) => (bool[] y) {
        n = Constant <value = int64 {5}> ()  t = Constant <value = bool {1}> ()
        y = Loop (n, t, x) <body = b (int64 i, bool c, bool[] p) => (bool q, bool[] p) {
          h = Constant <value = float {0.5}> ()  q = Less (f, h) }> }""",
    "Pad before opset 11": """<ir_version: 5, opset_import: ["": 10]> m (float[1,k] x, bool c) => (float[] y) {
        y = If (c) <then_branch = t () => (float[] a) <float[2,1] w = {-1.25, -0.5}, float[1,1] b = {0.25}> { a = Gemm (x, w, b) },
          else_branch = e () => (float[] d) { d = Constant <value = float[1,1] {-0.5}> () }> }""",
}


@pytest.mark.parametrize("convert", ["never", "auto", "always"])
@pytest.mark.parametrize("name", OLD)
def test_old_files_stay_what_they_were(name, convert):
    model = onnx.parser.parse_model(OLD[name])
    flat, report = anydml.flatten(model, convert=convert)
    assert report.verified.agreed >= 3
    assert [i.name for i in flat.graph.input] == [i.name for i in model.graph.input]
    assert flat.ir_version == model.ir_version
    ort.InferenceSession(flat.SerializeToString(), providers=["CPUExecutionProvider"])
