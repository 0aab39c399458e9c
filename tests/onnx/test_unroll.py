"""Loops of known counts become what they do; sequences that are known become their items."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, parser

import anydml

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def model(text: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')


def operators(built: ModelProto) -> set[str]:
    return {n.op_type for n in built.graph.node}


def check(built: ModelProto, many: list[dict], **options: object) -> tuple[ModelProto, anydml.Report]:
    flat, report = anydml.flatten(built, **options)  # type: ignore[arg-type]
    runners = [ort.InferenceSession(m.SerializeToString()) for m in (built, flat)]
    for feeds in many:
        truth, found = (r.run(None, feeds) for r in runners)
        for a, b in zip(found, truth, strict=True):
            np.testing.assert_array_equal(a, b)
    return flat, report


LOOP = """(float[3, 4] x, bool c) => (y, rows) <int64 count = {COUNT}, bool yes = {1}, float two = {2}> {
    y, rows = Loop (count, yes, x) <body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t, float[3, 4] r) {
        on = Identity (go)
        f = Cast <to = 1> (i)
        d = If (c) <then_branch = p () => (u) { u = Mul (s, two) }, else_branch = q () => (v) { v = Neg (s) }>
        t = Add (d, f)
        r = Mul (t, f)
    }> }"""


def test_a_loop_of_known_count() -> None:
    feeds = [{"x": X, "c": np.array(c)} for c in (True, False)]
    built = model(LOOP.replace("COUNT", "3"))
    flat, report = check(built, feeds, convert="always")
    assert not operators(flat) & {"Loop", "If"}
    (unrolled,) = [one for one in report.ifs if one.decision == "unrolled"]
    assert unrolled.because == "3 iterations"
    assert (report.left, report.loops_left) == (0, 0)
    _, report = check(built, feeds, unroll=2)
    assert report.loops_left == 1
    assert "loop remains" in report.verdict
    _, report = check(built, feeds, unroll=0)
    assert report.loops_left == 1


def test_what_a_body_needs_no_more_goes() -> None:
    text = """(float[?] x, int64 n) => (y) <bool yes = {1}, bool other = {1}> {
        y = Loop (n, yes, x) <body = b (int64 i, bool go, float[?] s) => (bool on, float[?] t) {
            on = Identity (go)
            three = Constant <value_int = 3> ()
            t, unread = Loop (three, "", s, other) <body = c (int64 j, bool more, float[?] u, bool v) =>
                (bool w, float[?] z, bool q) { w = Identity (more) z = Neg (u) q = Not (v) }>
        }> }"""
    flat, _ = check(model(text), [{"x": X[0], "n": np.array(2)}])
    (loop,) = [n for n in flat.graph.node if n.op_type == "Loop"]
    assert {n.op_type for n in loop.attribute[0].g.node} <= {"Neg", "Identity"}
    assert [i.name for i in flat.graph.initializer] == ["yes"]
    again, _ = anydml.flatten(flat)
    assert again == flat


def test_rows_of_several_ranks_stay_rows_of_a_loop() -> None:
    """onnxruntime joins their elements, which a Concat does not."""
    text = """(float[3, 4] x) => (rows) <int64 count = {3}, bool yes = {1}, int64 one = {1}> {
        rows = Loop (count, yes) <body = b (int64 i, bool go) => (bool on, int64[] r) {
            on = Identity (go)
            late = Greater (i, one)
            row = If (late) <then_branch = p () => (u) { u = Identity (i) },
                             else_branch = q () => (v) { v = Constant <value_ints = [-1]> () }>
            r = Identity (row)
        }> }"""
    _, report = check(model(text), [{"x": X}])
    assert report.loops_left == 1


@pytest.mark.parametrize("count", [0, 1])
def test_a_loop_that_runs_once_or_never(count: int) -> None:
    _, report = check(model(LOOP.replace("COUNT", str(count))), [{"x": X, "c": np.array(True)}])
    assert report.loops_left == 0


def test_a_loop_that_may_end_before() -> None:
    built = model("""(float[4] x) => (y) <int64 count = {5}, bool yes = {1}, float most = {100}> {
        y = Loop (count, yes, x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
            t = Add (s, s)  m = ReduceMax <keepdims = 0> (t)  on = Less (m, most) }> }""")
    _, report = check(built, [{"x": np.full(4, n, np.float32)} for n in (1, 60)])
    assert report.loops_left == 1


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan(backwards: int, axis: int) -> None:
    size = 4 if axis == 0 else 3
    built = model(f"""(float[{size}] s, float[3, 4] x) => (last, rows) {{
        last, rows = Scan <num_scan_inputs = 1, scan_input_axes = [{axis}], scan_input_directions = [{backwards}],
            scan_output_axes = [{1 - axis}], scan_output_directions = [{1 - backwards}],
            body = b (float[{size}] a, float[{size}] p) => (float[{size}] t, float[{size}] r) {{
                t = Add (a, p)  r = Mul (t, p) }}> (s, x) }}""")
    flat, _ = check(built, [{"s": np.ones(size, np.float32), "x": X}])
    assert "Scan" not in operators(flat)


def test_a_loop_in_a_loop() -> None:
    built = model("""(float[4] x) => (y) <int64 two = {2}, int64 three = {3}, bool yes = {1}> {
        y = Loop (two, yes, x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
            t = Loop (three, go, s) <body = b2 (int64 j, bool go2, float[4] u) => (bool on2, float[4] v) {
                f = Cast <to = 1> (j)  g = Cast <to = 1> (i)  h = Add (f, g)  v = Add (u, h)  on2 = Identity (go2) }>
            on = Identity (go) }> }""")
    flat, report = check(built, [{"x": X[0]}])
    assert operators(flat) <= {"Add", "Cast", "Identity"}
    assert report.loops_left == 0


def test_a_list_that_a_loop_fills() -> None:
    built = model("""(float[3, 4] x) => (y) <int64 count = {3}, bool yes = {1}> {
        none = SequenceEmpty <dtype = 1> ()
        all = Loop (count, yes, none) <body = b (int64 i, bool go, seq(float[4]) s) => (bool on, seq(float[4]) t) {
            row = Gather (x, i)  more = Exp (row)  t = SequenceInsert (s, more)  on = Identity (go) }>
        y = ConcatFromSequence <axis = 0, new_axis = 1> (all) }""")
    flat, _ = check(built, [{"x": X}])
    assert not any("Sequence" in name or name == "Loop" for name in operators(flat))


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("s = SequenceConstruct (x, z)  y = SequenceAt (s, one)", True),
        ("s = SequenceConstruct (x, z)  y = SequenceAt (s, k)", False),
        ("s = SequenceConstruct (x, z)  t = SequenceErase (s, zero)  y = SequenceAt (t, zero)", True),
        ("s = SequenceConstruct (x, z)  t = SequenceInsert (s, x, one)  y = SequenceAt (t, last)", True),
        ("s = SequenceConstruct (x, z)  n = SequenceLength (s)  y = Cast <to = 1> (n)", True),
        ("s = SequenceConstruct (x, z, x)  y = ConcatFromSequence <axis = 1> (s)", True),
        ("s = SequenceConstruct (x, z)  y = ConcatFromSequence <axis = -1, new_axis = 1> (s)", True),
        ("s = SplitToSequence <axis = 1> (x, two)  y = SequenceAt (s, one)", True),
        ("s = SplitToSequence <axis = 0, keepdims = 0> (x)  y = SequenceAt (s, last)", True),
        ("s = SplitToSequence <axis = 1> (x, parts)  y = SequenceAt (s, one)", True),
    ],
)
def test_sequences(text: str, gone: bool) -> None:
    built = model(f"""(float[3, 4] x, float[3, 4] z, int64 k) => (y)
        <int64 zero = {{0}}, int64 one = {{1}}, int64 last = {{-1}}, int64 two = {{2}}, int64[2] parts = {{1, 3}}> {{ {text} }}""")
    flat, _ = check(built, [{"x": X, "z": -X, "k": np.array(1)}])
    assert any("Sequence" in name for name in operators(flat)) != gone


def test_a_constant_of_a_body_and_of_a_branch_in_it():
    """Both read it: in every iteration it is the same."""
    built = model("""(float[3] x) => (int64[3] y) {
        y = Scan <num_scan_inputs = 1, body = b (float e) => (int64 r) <int64 seven = {7}> {
            i = Cast <to = 7> (e)  d = Equal (i, seven)
            r = If (d) <then_branch = t () => (int64 p) { p = Identity (seven) },
                        else_branch = f () => (int64 q) { q = Add (i, seven) }>
        }> (x) }""")
    flat, report = anydml.flatten(built, convert="never")
    assert report.loops_left == 0
    (y,) = anydml.load(flat).run(None, {"x": np.float32([7, 1, 2])})
    assert y.tolist() == [7, 8, 9]


# ---- loops that something may end before -------------------------------------------------------------

EARLY = """(float[3] x, bool begin, float limit) => (y, last) <int64 count = {COUNT}, bool yes = {1}, int64 nil = {0}, int64 one = {1}> {
    last, y = Loop (count, FIRST, nil, x) <body = b (int64 i, bool go, int64 k, float[3] s) => (bool on, int64 n, float[3] t) {
        n = Add (k, one)
        top = ReduceMax <keepdims = 0> (s)
        small = Less (top, limit)
        t = If (small) <then_branch = p () => (float[3] u) { u = Add (s, s) }, else_branch = q () => (float[3] v) { v = Neg (s) }>
        after = ReduceMax <keepdims = 0> (t)
        on = Less (after, limit)
    }> }"""


def early_feeds() -> list[dict]:
    return [
        {"x": np.float32([first, -1, 0.5]), "begin": np.array(begin), "limit": np.array(limit, np.float32)}
        for first in (0.5, 3, 70, 200)
        for begin in (True, False)
        for limit in (100, 4)
    ]


@pytest.mark.parametrize("first", ["yes", "begin"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_loop_that_data_may_end_before(first: str, count: int) -> None:
    built = model(EARLY.replace("COUNT", str(count)).replace("FIRST", first))
    flat, report = check(built, early_feeds(), convert="always")
    assert not operators(flat) & {"Loop", "If"}
    (unrolled,) = [one for one in report.ifs if one.decision == "unrolled"]
    assert unrolled.because == f"at most {count} iteration{'s' * (count > 1)}"
    assert {one.path for one in report.ifs} == {"last", "last/b/t"}
    flat, report = check(built, early_feeds())
    assert operators(flat) & {"Loop"}, "which is quicker"
    flat, report = check(built, early_feeds(), convert="always", unroll=0)
    assert report.loops_left == 1


def test_a_loop_that_may_end_before_a_failure() -> None:
    """An iteration that does not run any more must not fail."""
    built = model(
        """(int64 k, float[4] x) => (y, j) <int64 count = {6}, bool yes = {1}, int64 one = {1}, int64 last = {3}> {
        j, y = Loop (count, yes, k, x) <body = b (int64 i, bool go, int64 a, float[4] s) => (bool on, int64 n, float[4] t) {
            n = Add (a, one)
            item = Gather (x, a)
            t = Add (s, item)
            on = Less (a, last)
        }> }"""
    )
    feeds = [{"k": np.array(k), "x": np.float32([1, 2, 4, 8])} for k in (0, 1, 3)]
    flat, _ = check(built, feeds, convert="always")
    assert not operators(flat) & {"Loop", "If"}


def test_loops_whose_iterations_cannot_be_chosen_stay_one() -> None:
    """Not as many Ifs as it has iterations."""
    built = model(
        """(float[n, m] x) => (y) <int64 count = {4}, bool yes = {1}, float limit = {100}> {
        y = Loop (count, yes, x) <body = b (int64 i, bool go, float[n, m] s) => (bool on, float[n, m] t) {
            d = Det (s)
            t = Mul (s, d)
            on = Less (d, limit)
        }> }"""
    )
    feeds = [{"x": np.float32([[f, 0], [0, 2]])} for f in (0.1, 3, 20)]
    flat, report = check(built, feeds, convert="always")
    assert [n.op_type for n in flat.graph.node] == ["Loop"]
    assert report.left == 0
    assert all(one.decision != "unrolled" for one in report.ifs)


def test_rows_of_a_loop_that_data_may_end_keep_it() -> None:
    """Nobody knows how many they are."""
    built = model(
        """(float[3] x) => (y, rows) <int64 count = {4}, bool yes = {1}, float limit = {10}> {
        y, rows = Loop (count, yes, x) <body = b (int64 i, bool go, float[3] s) => (bool on, float[3] t, float[3] row) {
            t = Add (s, s)
            row = Neg (s)
            top = ReduceMax <keepdims = 0> (t)
            on = Less (top, limit)
        }> }"""
    )
    flat, _ = check(built, [{"x": np.float32([f, 0, 0])} for f in (0.1, 3, 20)], convert="always")
    assert "Loop" in operators(flat)


@pytest.mark.parametrize("convert", ["auto", "always"])
def test_a_first_condition_of_one_element_becomes_a_scalar(convert: str) -> None:
    """Libraries take it, but not a file that says so, as flat ones do; the branch with the loop does not fail."""
    built = model(
        """(float[2] x, int64[] start) => (y) <int64 count = {4}, int64 two = {2}, float nil = {0}> {
        total = ReduceSum <keepdims = 0> (x)
        less = Less (total, nil)
        y = If (less) <then_branch = t () => (float[2] a) { a = Neg (x) }, else_branch = e () => (float[2] d) {
            begin = LessOrEqual (start, two)
            d = Loop (count, begin, x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
                on = Identity (go) w = Add (v, v) }> }> }"""
    )
    feeds = [{"x": x, "start": np.array([k])} for x in np.float32([[1, 2], [-1, -2]]) for k in (0, 5)]
    check(built, feeds, convert=convert, shapes={"start": (1,)})


@pytest.mark.parametrize(("count", "goes_on"), [(0, 1), (-3, 1), (5, 0), (0, 0)])
@pytest.mark.parametrize("unroll", [0, 16])
def test_a_loop_that_never_runs(count: int, goes_on: int, unroll: int) -> None:
    """Its rows are none, of the sizes that they would have; its body may be whatever it is."""
    text = """(float[3, 4] x, bool c) => (y, rows) <int64 count = {COUNT}, bool yes = {YES}> {
        y, rows = Loop (count, yes, x) <body = b (int64 i, bool go, float[3, 4] s) => (bool on, float[3, 4] t, int64[2] r) {
            on = Identity (c)  t = Neg (s)  r = Constant <value = int64[2] {1, 2}> ()
        }> }"""
    built = model(text.replace("COUNT", str(count)).replace("YES", str(goes_on)))
    flat, report = check(built, [{"x": X, "c": np.array(True)}], unroll=unroll)
    assert operators(flat) <= {"Identity", "Constant"}
    assert "loop" not in str(report)


def test_a_loop_that_never_runs_whose_rows_are_of_unknown_sizes() -> None:
    text = """(float[n, 4] x) => (rows) <int64 count = {0}, bool yes = {1}> {
        rows = Loop (count, yes) <body = b (int64 i, bool go) => (bool on, float[n, 4] r) {
            on = Identity (go)  r = Neg (x) }> }"""
    assert "Loop" in operators(check(model(text), [{"x": X}])[0])
