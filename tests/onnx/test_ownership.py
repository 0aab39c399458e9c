"""What `run` returns is the caller's: not the model's memory, not what was fed, not another result's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import parser

import anydml

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
X = np.arange(6, dtype=np.float32).reshape(2, 3)
BIG = np.ones(100_000, np.float32)
BRANCHES = """<then_branch = t () => (float[a, b] p) { p = Identity (x) },
              else_branch = e () => (float[a, b] q) { k = Constant <value = float[1, 2] {7, 8}> () q = Identity (k) }>"""
LOOP = """Loop (n, t, {start}) <body = b (int64 i, bool go, float[p, q] s) => (bool more, float[p, q] s2, float[p, q] row) {{
    more = Identity (go)
    s2 = If (c) <then_branch = g () => (float[p, q] u) {{ u = Neg (s) }}, else_branch = h () => (float[p, q] v) {{ v = Identity (s) }}>
    row = Identity (s2) }}>"""
CASES = {
    "an input": ("m (float[n, 3] x) => (float[n, 3] y) { y = Identity (x) }", {"x": X}),
    "an input twice": (
        "m (float[n, 3] x) => (float[n, 3] y, float[n, 3] z) { y = Identity (x) z = Identity (x) }",
        {"x": X},
    ),
    "a constant": (
        "m (float[n, 3] x) => (float[2] y, float[2] z) <float[2] w = {5, 6}> { y = Identity (w) z = Identity (w) }",
        {"x": X},
    ),
    "folded": (
        "m (float[n, 3] x) => (int64[2] y, int64[2] z) { y = Shape (x) z = Identity (y) }",
        {"x": X},
    ),
    "kernels": (
        "m (float[n] x) => (float[n] y, float[n] z) { a = Abs (x) y = Neg (a) z = Neg (x) }",
        {"x": BIG},
    ),
    "a region": ("m (float[n, 3] x) => (float[3, n] y) { y = Transpose (x) }", {"x": X}),
    "reshaped": (
        "m (float[n] x) => (float[a, b] y, float[n] z) <int64[2] s = {2, -1}> { z = Neg (x) y = Reshape (z, s) }",
        {"x": BIG},
    ),
    "a view of the reference": (
        "m (double[n, 3] x) => (double[3, n] y) { a = Atan (x) y = Transpose (a) }",
        {"x": X.astype(np.float64)},
    ),
    "a fed condition": (
        f"m (bool c, float[n, 3] x) => (float[a, b] y) {{ y = If (c) {BRANCHES} }}",
        {"c": np.array(True), "x": X},
    ),
    "a branch that returns its capture": (
        f"""m (float[n, 3] x) => (float[a, b] y, float[a, b] z) <float zero = {{0}}, int64 k = {{0}}> {{
            r = ReduceSum <keepdims = 0> (x) c = Greater (r, zero) y = If (c) {BRANCHES} z = If (c) {BRANCHES} }}""",
        {"x": X},
    ),
    "a branch that returns its constant": (
        f"""m (float[n, 3] x) => (float[a, b] y) <float zero = {{0}}> {{
            r = ReduceSum <keepdims = 0> (x) c = Less (r, zero) y = If (c) {BRANCHES} }}""",
        {"x": X},
    ),
    **{
        f"a loop of {n} over {what}": (
            f"""m (bool c, int64 n, float[n, 3] x) => (float[a, b] y, float[d, e, f] rows)
                <bool t = {{1}}, float[1, 2] w = {{5, 6}}> {{ y, rows = {LOOP.format(start=start)} }}""",
            {"c": np.array(c), "n": np.array(n), "x": X},
        )
        for n, (what, start), c in itertools.product(
            (0, 1, 2), (("an input", "x"), ("a constant", "w")), (True, False)
        )
    },
    "a sequence": (
        "m (seq(float[n, 3]) x) => (seq(float[n, 3]) y, seq(float[n, 3]) z) { y = Identity (x) z = Identity (x) }",
        {"x": [X.copy(), X.copy()]},
    ),
    "items of a sequence": (
        "m (float[n, 3] x) => (seq(float[n, 3]) y, float[n, 3] z) <int64 k = {0}> { y = SequenceConstruct (x, x) z = SequenceAt (y, k) }",
        {"x": X},
    ),
    "a scan": (
        """m (float[n, 3] x, float[3] s) => (float[3] y, float[n, 3] z) {
            y, z = Scan <num_scan_inputs = 1, body = b (float[3] a, float[3] e) => (float[3] a2, float[3] o) {
                t = Constant <value_float = 0.0> () r = ReduceSum <keepdims = 0> (e) c = Greater (r, t)
                a2 = If (c) <then_branch = g () => (float[3] u) { u = Identity (a) }, else_branch = h () => (float[3] v) { v = Identity (e) }>
                o = Identity (e) }> (s, x) }""",
        {"x": X, "s": np.float32([1, 2, 3])},
    ),
}


def arrays(values):
    for value in values:
        yield from arrays(value) if isinstance(value, list) else [value]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_results_are_the_callers(case, threads):
    text, feed = CASES[case]
    session = anydml.load(parser.parse_model(HEAD + text), threads=threads)
    before = [a.copy() for a in arrays(feed.values())]
    runs = [session.run(None, feed) for _ in range(3)]
    wanted = [a.copy() for a in arrays(runs[0])]
    for one, other in itertools.combinations(
        [*arrays(feed.values()), *(a for r in runs for a in arrays(r))], 2
    ):
        assert not np.shares_memory(one, other)
    for got in runs:
        for a, b in zip(arrays(got), wanted, strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.flags.writeable
            a.fill(99)
    for a, b in zip(arrays(session.run(None, feed)), wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(arrays(feed.values()), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_result_keeps_its_memory_while_somebody_has_a_view_of_it():
    text, _ = CASES["kernels"]
    session = anydml.load(parser.parse_model(HEAD + text), threads=1)
    seen, kept = [], []
    for k in range(12):
        y, z = session.run(None, {"x": np.full_like(BIG, k)})
        seen.append(y[::7] if k % 2 else memoryview(y))
        kept.append(z if k % 3 else None)
        del y, z
    for k, (view, z) in enumerate(zip(seen, kept, strict=True)):
        assert (np.asarray(view) == -k).all()
        assert z is None or (z == -k).all()


def test_arrays_given_to_bind_are_the_callers():
    text, _ = CASES["kernels"]
    session = anydml.load(parser.parse_model(HEAD + text), threads=1)
    x, y = BIG.copy(), np.zeros_like(BIG)
    bound = session.bind({"x": x}, {"y": y})
    first, z = bound.run()
    assert first is y
    x[:] = 3
    other = bound.run()[1]
    assert (y == -3).all()
    assert (z == -1).all()
    assert (other == -3).all()
