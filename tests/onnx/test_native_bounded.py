"""Programs of tensors of which the data decides how long they are: NonZero, and what reads what it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import anydml as dml
from tests.onnx.native_bounded import CHAINS, SIZES, check, feeds_of, made
from tests.onnx.test_native import expected, model, native, same

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.drawn
def test_chains(chain, size):
    """None, some and all of the elements, in registers and in memory, between guard pages."""
    text = made(chain, size)
    session = native(text)
    for feeds in feeds_of(size):
        found = np.count_nonzero(feeds["s"] > 0.5)
        assert check(session, text, feeds) or found < 2, session.explain()
    assert "program: " in session.explain(), session.explain()


FILTERED = "m = Greater (s, half) nz = NonZero (m) i = Squeeze (nz, z1) v = Gather <axis = 0> (s, i)"


@pytest.mark.parametrize("size", [5, 30])
def test_an_index_beyond_what_there_is(size):
    """Though there is room for it."""
    text = model(
        f"m (float[{size}] s, int64[2] at) => (float[2] y) <float half = {{0.5}}, int64[1] z1 = {{0}}>"
        f" {{ {FILTERED} y = Gather <axis = 0> (v, at) }}"
    )
    session, s = (
        native(text),
        np.arange(1, size + 1, dtype=np.float32) - 3,
    )  # of which the first three are not
    length = size - 3
    for at in ([0, length - 1], [-length, 1]):
        feeds = {"s": s, "at": np.array(at)}
        same(session.run(None, feeds), expected(text, feeds))
    for wrong in (length, -length - 1, size - 1, 2**62, -(2**63)):
        for _ in range(2):
            with pytest.raises(
                dml.ExecutionFailed, match=f"expected an index of what there is, but got {wrong}"
            ):
                session.run(None, {"s": s, "at": np.array([0, wrong])})
    assert "program: " in session.explain()


@pytest.mark.parametrize("size", [5, 30])
def test_lengths_that_differ_are_left_to_others(size):
    """Of which one may have one element, so that it is repeated; else the node fails."""
    text = model(
        f"m (float[{size}] s, float[{size}] t) => (float[k] y) <float half = {{0.5}}, int64[1] z1 = {{0}}>"
        f" {{ {FILTERED} n = Greater (t, half) w = Compress <axis = 0> (t, n) y = Add (v, w) }}"
    )
    session = native(text)

    def of(count):
        return (np.arange(size) < count).astype(np.float32)

    for one, other in ((3, 3), (3, 1), (1, 4), (0, 0), (0, 1), (1, 1)):
        feeds = {"s": of(one), "t": of(other)}
        for _ in range(2):
            same(session.run(None, feeds), expected(text, feeds))
    with pytest.raises(dml.ExecutionFailed):
        session.run(None, {"s": of(3), "t": of(2)})
    same(session.run(None, {"s": of(2), "t": of(2)}), expected(text, {"s": of(2), "t": of(2)}))
    assert "program: " in session.explain()


def test_squeeze_of_all_axes():
    """One that is left has no axis any more."""
    text = model(
        "m (float[20] s) => (int64[k] y) <float half = {0.5}> { m = Greater (s, half) nz = NonZero (m) y = Squeeze (nz) }"
    )
    text.graph.output[0].type.tensor_type.ClearField("shape")
    session = native(text)
    for count in (5, 1, 2, 20, 1):
        feeds = {"s": (np.arange(20) < count).astype(np.float32)}
        same(session.run(None, feeds), expected(text, feeds))
    assert "program: " in session.explain()


@pytest.mark.parametrize("name", ["tf_nms_cond", "ts_det_post"])
def test_exporters_models(name):
    """Without being asked for."""
    folder = DATA / "exporters" / name
    text = onnx.load(folder / "model.onnx")
    for file in sorted(folder.glob("feed_*.npz")):
        session, feeds = dml.load(text, threads=1), dict(np.load(file))
        check(session, text, feeds)
        assert "program: " in session.explain(), session.explain()


@pytest.mark.parametrize("size", [4, 30])
def test_patterns(size):
    """Boxes of several kinds, and the worst places of an image computed anew."""
    rng = np.random.default_rng(size)
    corner = rng.random((size, 2)) * 3
    feeds = {
        "boxes": np.concatenate([corner, corner + rng.random((size, 2))], 1).astype(np.float32),
        "scores": rng.random(size).astype(np.float32),
        "labels": rng.integers(0, 3, size),
    }
    text = onnx.load(DATA / "patterns" / "batched_nms.onnx")
    assert check(dml.load(text, threads=1), text, feeds)
    text = onnx.load(DATA / "patterns" / "refine_patches.onnx")
    session = dml.load(text, threads=1)
    for worst in (0.5, 0.9, 2):
        errors = (rng.random((1, 1, size, 7)) * worst).astype(np.float32)
        image = rng.random((1, 3, size, 7)).astype(np.float32)
        assert check(session, text, {"err": errors, "x": image})


def test_more_of_the_best_than_there_are():
    text = model(
        "m (float[20] s, int64[1] k) => (float[k] y, int64[k] at) <float half = {0.5}, int64[1] z1 = {0}>"
        f" {{ {FILTERED} y, at = TopK (v, k) }}"
    )
    session, s = native(text), (np.arange(20) * 7 % 20 / 20).astype(np.float32)
    for k in (0, 1, 5, 9):
        check(session, text, {"s": s, "k": np.array([k])})
    for wrong in (10, 20, 2**62, -1):
        with pytest.raises(
            dml.ExecutionFailed, match=f"expected as many as there are, or fewer, but got {wrong}"
        ):
            session.run(None, {"s": s, "k": np.array([wrong])})
    assert "program: " in session.explain()


@pytest.mark.parametrize("size", [9, 40])
def test_parts_that_are_computed(size):
    """Ends at random, also far out of what there is, of all elements and of those that are found."""
    text = model(
        f"m (float[{size}] s, float[{size},4] b, int64[2] a, int64[2] e) => (float[j] y, float[i,k] z, float[l] w)"
        " <float half = {0.5}, int64[1] z1 = {0}, int64[1] one = {1}, int64[2] axes = {1, 0}>"
        f" {{ {FILTERED} a0 = Slice (a, z1, one) e0 = Slice (e, z1, one) y = Slice (v, a0, e0) w = Slice (s, a0, e0)"
        " g = Gather <axis = 0> (b, i) p = Neg (g) z = Slice (p, a0, e0) }"
    )
    session, rng = native(text), np.random.default_rng(size)
    for k in range(60):
        s = np.where(rng.random(size) < rng.random(), 0.75, 0.25).astype(np.float32)
        far = rng.choice([1, 1, 2**62])
        a, e = rng.integers(-size - 2, size + 3, (2, 2)) * far
        feeds = {"s": s, "b": rng.random((size, 4)).astype(np.float32), "a": a, "e": e}
        same(session.run(None, feeds), expected(text, feeds))
        if k < 3:
            check(session, text, feeds)
    assert "program: " in session.explain()


@pytest.mark.parametrize("node", ["ArgMax (v)", "ArgMin <keepdims = 0> (v)", "ArgMax (w)", "ArgMin (w)"])
@pytest.mark.parametrize("size", [6, 50])
def test_where_the_best_of_them_is(size, node):
    """Of none, onnxruntime fails; of equal ones the first is told, also where they are the worst there are."""
    text = model(
        f"m (float[{size}] s) => (int64[k] y) <float half = {{0.5}}, int64[1] z1 = {{0}}>"
        f" {{ {FILTERED} n = Neg (i) w = Add (n, i) y = {node} }}"
    )
    text.graph.output[0].type.tensor_type.ClearField("shape")
    session, rng = native(text), np.random.default_rng(size)
    for part in (0.5, 1, 0.2, 0.9):
        s = np.where(rng.random(size) < part, rng.choice([0.75, 1, np.inf, 2], size), 0.25).astype(np.float32)
        s[-1] = np.inf
        assert check(session, text, {"s": s})
    for _ in range(2):
        with pytest.raises(dml.ExecutionFailed):
            session.run(None, {"s": np.zeros(size, np.float32)})


def test_a_c_function_tells_what_it_does_not_compute():
    compiled = dml.compile_model(made("mean", 40))
    (failure,) = (f for f in compiled.failures if "no error" in f)
    assert (
        "expected more than the number in memory, which is no error, but nothing that this function computes"
        in failure
    )


@pytest.mark.parametrize("form", ["d = Concat <axis = 0> (k, rest) y = Reshape (g, d)",
    "u = Unsqueeze (g, z) d = Concat <axis = 0> (k, two, two) y = Reshape (u, d)"])  # fmt: skip
def test_forms_of_nothing(form):
    """-1 is no size then, and 0 the input's."""
    text = model(
        "m (float[20] s, float[20,4] b) => (float[k] y) <float half = {0.5}, int64[1] rest = {-1},"
        " int64[1] z = {0}, int64[1] two = {2}> {"
        f" m = Greater (s, half) g = Compress <axis = 0> (b, m) k = Shape <end = 1> (g) {form} }}"
    )
    text.graph.output[0].type.tensor_type.ClearField("shape")
    session, b = native(text), np.random.default_rng(0).random((20, 4)).astype(np.float32)
    feeds = {"s": (np.arange(20) < 3).astype(np.float32), "b": b}
    for _ in range(2):
        assert check(session, text, feeds)
        with pytest.raises(dml.ExecutionFailed, match="cannot be reshaped"):
            session.run(None, {"s": np.zeros(20, np.float32), "b": b})


def test_means_of_no_rows():
    """By NumPy: onnxruntime gives the rows themselves."""
    text = model(
        "m (float[20] s, float[20,4] b) => (float[k,1] y) <float half = {0.5}> {"
        " m = Greater (s, half) g = Compress <axis = 0> (b, m) y = ReduceMean <axes = [1]> (g) }"
    )
    session, b = native(text), np.random.default_rng(0).random((20, 4)).astype(np.float32)
    for count in (0, 3):
        (y,) = session.run(None, {"s": (np.arange(20) < count).astype(np.float32), "b": b})
        assert y.shape == (count, 1)
        np.testing.assert_allclose(y, b[:count].mean(1, keepdims=True), rtol=1e-6)
    assert "program: " in session.explain()


REFUSED = {
    "two axes": "t = Transpose (nz) q = Mul (nz, t) y = Cast <to = 1> (q)",
    "a state": "one1 = Constant <value_int = 1> () y = Loop (one1, , v) <body = b (int64 k, bool c, float[a] x)"
    " => (bool d, float[a] w) { d = Identity (c) w = Exp (x) }>",
    "no rule": "y = Hardmax <axis = 0> (v)",
    "a condition that may be none": "f = Slice (v, z1, one) c = Greater (f, half) y = If (c) <then_branch = a ()"
    " => (float[q] w) { w = Neg (v) }, else_branch = b () => (float[q] w) { w = Exp (v) }>",
    "a count that may be none": "f = Slice (i, z1, one) y = Loop (f, , half) <body = b (int64 k, bool c, float x)"
    " => (bool d, float w) { d = Identity (c) w = Exp (x) }>",
    "a sequence": "y = Scan <num_scan_inputs = 1, body = b (float x) => (float w) { w = Exp (x) }> (v)",
    "rows": "one1 = Constant <value_int = 2> () z, y = Loop (one1, , half) <body = b (int64 k, bool c, float x)"
    " => (bool d, float w, float[q] r) { d = Identity (c) w = Exp (x) r = Exp (v) }>",
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_stays_with_others(why):
    text = model(
        "m (float[20] s) => (float[k] y) <float half = {0.5}, int64[1] z1 = {0}, int64[1] one = {1}>"
        f" {{ {FILTERED} {REFUSED[why]} }}"
    )
    text.graph.output[0].type.tensor_type.ClearField("shape")
    session = native(text)
    feeds = {"s": np.random.default_rng(0).random(20).astype(np.float32)}
    same(session.run(None, feeds), expected(text, feeds))
    assert "program: " not in session.explain()


@pytest.mark.parametrize("lengths", [(1, 2), (2, 1), (1, 3), (0, 2)])
@pytest.mark.parametrize("outer", [False, True])
def test_results_of_several_lengths_behind_an_if_that_is_split(lengths, outer):
    """What follows is written once for each of its branches, where the same If needs room for other lengths."""
    one, other = lengths
    first = f"p = Constant <value = int64[{one}] {{{', '.join(['7'] * one)}}}> ()"
    text = f"""m (int64[{other}] x, float c, float d) => (int64[k] y) {{
      cb = Cast <to = 9> (c)  db = Cast <to = 9> (d)
      a = If (cb) <then_branch = t () => (int64[q] p) {{ {first} }}, else_branch = e () => (int64[{other}] q) {{ q = Identity (x) }}>
      b = If (db) <then_branch = t2 () => (int64[0] r) <int64[0] r = {{}}> {{ }}, else_branch = e2 () => (int64[v] s) {{ s = Neg (a) }}>
      {"y = Concat <axis = 0> (b, a)" if outer else "y = Identity (b)"} }}"""
    made_ = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    theirs = ort.InferenceSession(made_.SerializeToString(), providers=["CPUExecutionProvider"])
    sessions = [dml.load(made_, native=native) for native in (None, True, False)]
    for c in (-1.5, 0):
        for d in (-0.75, 0):
            feeds = {"x": np.arange(other) + 3, "c": np.float32(c), "d": np.float32(d)}
            feeds = {n: np.asarray(v) for n, v in feeds.items()}
            (wanted,) = theirs.run(None, feeds)
            for session in sessions:
                for _ in range(2):
                    np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)
