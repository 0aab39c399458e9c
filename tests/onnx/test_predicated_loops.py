"""Loops and Scans in branches: while the branch is not taken, a Loop has no iteration, and a Scan one row."""

import numpy as np
import pytest

import anydml
from tests.onnx.test_flat_files import parsed, same

HUGE = np.array(1 << 60)


def floats(*sizes):
    return np.random.default_rng(len(sizes)).standard_normal(sizes).astype(np.float32)


def operators(flat):
    return [n.op_type for n in flat.graph.node]


def scan(body, attributes="", given="(w, x)", state="w"):
    return parsed(f"""(bool c, float[k] w, float[n, k] x, float[m, k] y, int64 j) => (float[?] z) {{
        z = If (c) <
            then_branch = t () => (float[?] a) {{
                a, rows = Scan <num_scan_inputs = {given.count(",")}{attributes}, body = b ({body}> {given}
            }},
            else_branch = e () => (float[?] b) {{ b = Neg (w) }}> }}""")


ADDED = "float[k] s, float[k] r) => (float[k] t, float[k] u) { t = Add (s, r) u = Mul (s, r) }"
TWO = "float[k] s, float[k] r, float[k] q) => (float[k] t, float[k] u) { t = Add (s, r) u = Mul (t, q) }"
FEEDS = [
    {"c": np.array(c), "w": floats(k), "x": floats(n, k), "y": floats(m, k), "j": np.array(j)}
    for c in (True, False)
    for n, m, k, j in ((3, 3, 2, 0), (1, 1, 4, 1), (0, 2, 3, 0), (2, 5, 1, 7), (4, 4, 0, 0))
]


@pytest.mark.parametrize(
    "model", [scan(ADDED), scan(TWO, given="(w, x, y)")], ids=["one input", "two inputs"]
)
def test_a_scan(model):
    flat, report = anydml.flatten(model, convert="always")
    assert report.left == 0
    assert "Scan" in operators(flat)
    assert same(model, flat, *FEEDS) > len(FEEDS) // 2


def test_a_scan_along_the_last_axis_from_its_end():
    body = "float[n] s, float[n] r) => (float[n] t, float[n] u) { t = Add (s, r) u = Mul (s, r) }"
    told = ", scan_input_axes = [-1], scan_input_directions = [1]"
    model = parsed(f"""(bool c, float[n] w, float[n, k] x) => (float[?, ?] z) {{
        z = If (c) <
            then_branch = t () => (float[?, ?] u) {{ s, u = Scan <num_scan_inputs = 1{told}, body = b ({body}> (w, x) }},
            else_branch = e () => (float[?, ?] v) {{ v = Neg (x) }}> }}""")
    flat, report = anydml.flatten(model, convert="always")
    assert report.left == 0
    cases = ((True, 2), (True, 1), (False, 2), (False, 0))  # of nothing onnxruntime ends the process
    feeds = [{"c": np.array(c), "w": floats(3), "x": floats(3, k)} for c, k in cases]
    assert same(model, flat, *feeds) == len(feeds)


@pytest.mark.parametrize(
    "body",
    [
        "float[k] s, float[k] r) => (float[k] t, float u) { t = Add (s, r) u = Gather (r, j) }",
        "float[?] s, float[k] r) => (float[?] t, float[k] u) { t = Concat <axis = 0> (s, r) u = Mul (r, r) }",
        "float[k] s, float[k] r) => (float[k] t, float[?] u) { t = Add (s, r) o = NonZero (r) p = Shape (o) u = ConstantOfShape (p) }",
    ],
    ids=["an index", "a state that grows", "rows of any size"],
)
def test_a_scan_that_could_fail_on_one_row(body):
    model = scan(body)
    flat, report = anydml.flatten(model, convert="always")
    assert report.left == 1
    assert "'a' (Scan)" in report.ifs[0].because
    same(model, flat, *FEEDS)


def loop(count, go, result="Identity (go)", rows=""):
    kept, given = (", float[2] row", " row = Mul (s, s)") if rows else ("", "")
    return parsed(f"""(bool c, int64 n, float[2] x, float limit) => (float[2] z) {{
        z = If (c) <
            then_branch = t () => (float[2] a) {{
                yes = Constant <value = bool {{1}}> ()
                p{rows} = Loop ({count}, {go}, x) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] r{kept}) {{
                    one = Constant <value = float {{1}}> () r = Add (s, one)
                    sum = ReduceSum <keepdims = 0> (r) on = {result}{given} }}>
                {"none = Constant <value = int64[1] {0}> () q = ReduceSum <keepdims = 0> (rows, none) a = Add (p, q)" if rows else "a = Neg (p)"}
            }},
            else_branch = e () => (float[2] b) {{ b = Abs (x) }}> }}""")


def looped(c, n, limit=5):
    return {"c": np.array(c), "n": np.array(n), "x": floats(2), "limit": np.array(limit, np.float32)}


def test_a_loop_of_a_count_that_is_fed():
    model = loop("n", "yes")
    flat, report = anydml.flatten(model, convert="always")
    assert report.left == 0
    assert same(model, flat, *(looped(True, n) for n in (0, 1, 5, -1)), looped(False, HUGE)) == 5


@pytest.mark.parametrize("count", ["n", '""'])
def test_a_loop_that_ends_by_what_it_computes(count):
    """While the branch is not taken, it would never end."""
    model = loop(count, "yes", "Less (sum, limit)")
    flat, report = anydml.flatten(model, convert="always", verify=False)
    assert report.left == 0
    feeds = [*(looped(True, 4, limit) for limit in (-9, 3, 20)), looped(False, HUGE, np.inf)]
    assert same(model, flat, *feeds) == 4


def test_a_loop_with_rows():
    """Libraries do not agree on the sizes of no rows."""
    model = loop("n", "yes", rows=", rows")
    flat, report = anydml.flatten(model, convert="always")
    assert report.left == 1
    assert same(model, flat, *(looped(c, n) for c in (True, False) for n in (1, 3))) == 4


def test_a_loop_of_a_known_count_is_unrolled_all_the_same():
    model = loop("n", "yes")
    flat, report = anydml.flatten(model, convert="always", fixed={"n": 3})
    assert (report.left, report.loops_left) == (0, 0)
    assert "Loop" not in operators(flat)
    assert same(model, flat, looped(True, 3), looped(False, 3)) == 2
