"""Caches that grow by what is appended in each run, as decoders have them: which sizes these are, and that
a session leaves them open from the first plan on."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anydml
from anydml.onnx.execute.input_roles import input_roles
from anydml.onnx.execute.plan_keys import (
    ANY_SIZE,
    fits,
    join,
    quick_key,
    quick_pattern,
    quickly_fits,
    shape_key,
)
from anydml.onnx.execute.plan_table import MAX_SHAPES, RUNS_ALIKE
from anydml.onnx.execute.program import RUNS_OF_VARIED

DECODER = """
<ir_version: 8, opset_import: ["": 17]>
decoder (int64[batch, new] ids, int64[batch, past_length_and_new] mask, float[batch, 2, past_length, 4] past)
    => (float[batch, new, 8] logits, float[batch, 2, total, 4] present)
    <float[16, 8] words, float[8, 8] weights, int64[4] heads = {0, 0, 2, 4}, int64[3] whole = {0, 0, 8}>
{
    x = Gather (words, ids)
    h = MatMul (x, weights)
    split = Reshape (h, heads)
    key = Transpose <perm = [0, 2, 1, 3]> (split)
    present = Concat <axis = 2> (past, key)
    turned = Transpose <perm = [0, 1, 3, 2]> (present)
    scores = MatMul (key, turned)
    least = Constant <value_float = -1e9> ()
    one = Constant <value_int = 1> ()
    inverse = Sub (one, mask)
    floats = Cast <to = 1> (inverse)
    axes = Constant <value_ints = [1, 2]> ()
    bias = Unsqueeze (floats, axes)
    masked = Mul (bias, least)
    told = Add (scores, masked)
    shares = Softmax <axis = -1> (told)
    mixed = MatMul (shares, present)
    back = Transpose <perm = [0, 2, 1, 3]> (mixed)
    joined = Reshape (back, whole)
    logits = Tanh (joined)
}"""


def parsed(text):
    model = onnx.parser.parse_model(text)
    for value in model.graph.input:  # exporters write sums, which the parser does not take
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.dim_param = size.dim_param.replace("_and_", " + ")
    rng = np.random.default_rng(0)
    for weight in model.graph.value_info:
        sizes = [size.dim_value for size in weight.type.tensor_type.shape.dim]
        content = rng.standard_normal(sizes, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, weight.name))
    return model.SerializeToString()


@pytest.fixture(scope="module")
def decoder():
    return parsed(DECODER)


def growing(text):
    graph = anydml.load(parsed(text))._program.graph
    return {(graph.inputs[k].name, axis) for k, axis in input_roles(graph).growing}


def test_of_a_decoder(decoder):
    assert growing(DECODER) == {("past", 2), ("mask", 1)}


def test_what_may_be_nothing(decoder):
    sizes = {
        "only joined": (
            graph("float[n, 3] x, float[1, 3] y", "float[m, 3] z", "z = Concat <axis = 0> (x, y)"),
            {0},
        ),
        "declared": (
            graph("float[4, 3] x, float[1, 3] y", "float[5, 3] z", "z = Concat <axis = 0> (x, y)"),
            set(),
        ),
        "both": (
            graph("float[n, 3] x, float[m, 3] y", "float[t, 3] z", "z = Concat <axis = 0> (x, y)"),
            set(),
        ),
        "computed with": (
            graph(
                "float[n, 3] x, float[1, 3] y",
                "float[m, 3] z, float[3] w",
                "z = Concat <axis = 0> (x, y) w = ReduceMax <axes = [0], keepdims = 0> (x)",
            ),
            set(),
        ),
    }
    for text, expected in sizes.values():
        assert {k for k, _ in input_roles(anydml.load(parsed(text))._program.graph).from_nothing} == expected
    assert len(input_roles(anydml.load(decoder)._program.graph).from_nothing) == 1


def graph(inputs, outputs, body):
    return f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => ({outputs}) {{ {body} }}'


FOUND = {
    "at an axis from the end": (
        graph("float[n, m] x, float[n, k] y", "float[n, t] z", "z = Concat <axis = -1> (x, y)"),
        {("x", 1), ("y", 1)},
    ),
    "moved before and behind": (
        graph(
            "float[2, n, 3] x, float[1, k, 3] y",
            "float[t, 3] z",
            """zero = Constant <value_int = 0> ()
            first = Gather <axis = 0> (x, zero)
            flat = Squeeze (y)
            both = Concat <axis = 0> (first, flat)
            z = Identity (both)""",
        ),
        {("x", 1), ("y", 1)},
    ),
    "in a branch": (
        graph(
            "bool c, float[n, 3] x, float[1, 3] y",
            "float[t, 3] z",
            """z = If (c) <then_branch = a () => (float[p, 3] z1) { z1 = Concat <axis = 0> (x, y) },
                           else_branch = b () => (float[q, 3] z2) { z2 = Identity (x) }>""",
        ),
        {("x", 0)},
    ),
    "nothing is appended": (
        graph("float[n, 3] x, float[n, 3] y", "float[n, 3] z", "z = Add (x, y)"),
        set(),
    ),
    "what is appended is computed": (
        graph("float[n, 3] x", "float[m, 3] z", "a = Exp (x) b = Tanh (x) z = Concat <axis = 0> (a, b)"),
        set(),
    ),
    "what is joined is computed with": (
        graph(
            "float[n, 3] x, float[1, 3] y",
            "float[t, 3] z",
            "a = Concat <axis = 0> (x, y) z = Exp (a)",
        ),
        set(),
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_which_sizes_grow(name):
    text, expected = FOUND[name]
    assert growing(text) == expected


def assert_close(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def generated(run, prompt, tokens, batch=1):
    """What a session gives, token by token."""
    ids = np.random.default_rng(prompt).integers(0, 16, (batch, prompt))
    past, found = np.zeros((batch, 2, 0, 4), np.float32), []
    for _ in range(tokens):
        mask = np.ones((batch, past.shape[2] + ids.shape[1]), np.int64)
        logits, past = run(None, {"ids": ids, "mask": mask, "past": past})
        ids = logits[:, -1:].argmax(-1)
        found += [logits, past]
    return found


def test_one_plan_for_prompts_and_tokens(decoder):
    session, peer = anydml.load(decoder, threads=1), ort.InferenceSession(decoder)
    for prompt in (5, 9, 2, 13):
        assert_close(generated(session.run, prompt, 6), generated(peer.run, prompt, 6))
    plans = re.findall("^plan for (.*)", session.explain(), re.MULTILINE)
    assert plans == ["ids int64[1,?], mask int64[1,?], past float32[1,2,*,4]"]


def test_other_batches(decoder):
    session, peer = anydml.load(decoder, threads=1), ort.InferenceSession(decoder)
    for batch in (1, 3, 2, 1):
        assert_close(generated(session.run, 4, 4, batch), generated(peer.run, 4, 4, batch))
    plans = re.findall("^plan for (.*)", session.explain(), re.MULTILINE)
    assert plans == [
        "ids int64[1,?], mask int64[1,?], past float32[1,2,*,4]",
        "ids int64[?,?], mask int64[?,?], past float32[?,2,*,4]",
    ]


def test_what_does_not_fit_is_told_as_ever(decoder):
    session = anydml.load(decoder, threads=1)
    generated(session.run, 5, 4)
    ids, mask, past = np.array([[1]]), np.ones((1, 8), np.int64), np.zeros((1, 2, 7, 4), np.float32)
    session.run(None, {"ids": ids, "mask": mask, "past": past})
    for wrong, told in (
        (past.astype(np.float64), "expected float32, but got float64"),
        (past[0], "expected rank 4"),
        (np.zeros((1, 3, 20, 4), np.float32), r"expected shape \(batch, 2, past_length, 4\)"),
        (np.ma.masked_array(np.zeros((1, 2, 20, 4), np.float32)), "expected an array"),
    ):
        with pytest.raises(anydml.InvalidInput, match=told):
            session.run(None, {"ids": ids, "mask": mask, "past": wrong})
    with pytest.raises(anydml.InvalidInput, match="missing"):
        session.run(None, {"ids": ids, "mask": mask})


def test_a_condition_that_is_fed_is_one_bool_still():
    text = graph(
        "bool[k] c, float[n, 3] x, float[m, 3] y",
        "float[t, 3] z",
        """z = If (c) <then_branch = a () => (float[p, 3] z1) { z1 = Concat <axis = 0> (x, y) },
                       else_branch = b () => (float[q, 3] z2) { z2 = Identity (x) }>""",
    )
    session = anydml.load(parsed(text))
    y = np.ones((1, 3), np.float32)
    for n in range(2, 9):
        x = np.zeros((n, 3), np.float32)
        for c in (True, False):
            assert session.run(None, {"c": np.array([c]), "x": x, "y": y})[0].shape[0] == n + c
    with pytest.raises(anydml.InvalidInput, match="expected one bool"):
        session.run(None, {"c": np.array([True, True]), "x": np.zeros((20, 3), np.float32), "y": y})


def test_a_plan_that_ran_often_stays_beside_one_for_all():
    model = parsed(graph("float[n, 3] x", "float[n, 3] y", "y = Softmax (x)"))
    session = anydml.load(model, threads=1, native=False)
    for n in (*[3] * (RUNS_ALIKE + 1), 4, 5):
        session.run(None, {"x": np.ones((n, 3), np.float32)})
    plans = [shapes[0][1] for shapes, _, _ in session._program._plans.items()]
    assert plans == [(3, 3), (None, 3)]


@pytest.mark.parametrize("native", [None, True])
def test_a_plan_of_growing_sizes_waits_for_code(native, monkeypatch, tmp_path):
    """Unless it is asked for."""
    monkeypatch.setenv("ANYDML_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ANYDML_DETERMINISTIC", raising=False)
    text = graph(
        "float[n] past, float[1] x",
        "float[m] cache",
        """zero = Constant <value_float = 0.0> ()
        s = ReduceSum <keepdims = 0> (x)
        c = Greater (s, zero)
        z = If (c) <then_branch = a () => (float[1] z1) { z1 = Exp (x) },
                    else_branch = b () => (float[1] z2) { z2 = Tanh (x) }>
        cache = Concat <axis = 0> (past, z)""",
    )
    session, cache = anydml.load(parsed(text), threads=1, native=native), np.ones(2, np.float32)
    programs = []
    for _ in range(RUNS_OF_VARIED + 3):
        (cache,) = session.run(None, {"past": cache, "x": np.ones(1, np.float32)})
        programs.append(any(p.is_program for p in session._program._plans))
    np.testing.assert_allclose(cache, [1, 1, *[np.e] * len(programs)], rtol=1e-6)
    assert programs == [True] * len(programs) if native else not any(programs[: RUNS_OF_VARIED - 1])
    assert programs[-1]


def test_what_comes_again_and_again_has_a_plan_of_its_own(decoder):
    session, peer = anydml.load(decoder, threads=1), ort.InferenceSession(decoder)
    ids, mask, past = np.array([[1]]), np.ones((1, 8), np.int64), np.ones((1, 2, 7, 4), np.float32)
    feed = {"ids": ids, "mask": mask, "past": past}
    wanted = peer.run(None, feed)
    seen = []
    for _ in range(RUNS_ALIKE + 6):
        assert_close(session.run(None, feed), wanted)
        seen.append(len(session._program._plans))
    assert seen == sorted(seen)
    assert seen.count(1) > RUNS_ALIKE
    assert seen[-1] == 2
    assert "past float32[1,2,7,4]" in session.explain()


def test_but_not_where_sizes_take_turns_nor_more_than_a_few(decoder):
    session = anydml.load(decoder, threads=1)
    ids = np.array([[1]])

    def run(n):
        past = np.ones((1, 2, n, 4), np.float32)
        session.run(None, {"ids": ids, "mask": np.ones((1, n + 1), np.int64), "past": past})

    for k in range(3 * RUNS_ALIKE):
        run(3 + k % 2)
    assert len(session._program._plans) == 1
    for n in range(3, 3 + 2 * MAX_SHAPES):
        for _ in range(RUNS_ALIKE + 2):
            run(n)
    assert len(session._program._plans) == MAX_SHAPES


def test_of_sizes_that_vary_those_that_come_often_have_plans_of_their_own():
    model = parsed(graph("float[n, 3] x", "float[n, 3] y", "y = Softmax (x)"))
    session, peer = anydml.load(model, threads=1, native=False), ort.InferenceSession(model)
    rng, plans = np.random.default_rng(0), session._program._plans

    def run(n):
        feed = {"x": rng.standard_normal((n, 3), np.float32)}
        np.testing.assert_allclose(session.run(None, feed)[0], peer.run(None, feed)[0], rtol=1e-5)
        return len(plans)

    assert [run(n) for n in range(2, 8)] == [1] * 6  # one for 2, and then one for all
    for _ in range(2 * RUNS_ALIKE):
        run(9), run(10)
    assert [shapes[0][1] for shapes, _, _ in plans.items()] == [(None, 3), (9, 3), (10, 3)]
    for n in range(11, 11 + 2 * MAX_SHAPES):
        for _ in range(RUNS_ALIKE + 2):
            run(n)
    assert len(plans) == MAX_SHAPES


@pytest.mark.parametrize("native", [None, True])
def test_nothing_and_something_take_turns(native):
    text = graph(
        "float[n, 3] x, float[1, 3] y",
        "float[t, 3] z, float[3] w",
        """z = Concat <axis = 0> (x, y)
        least = ReduceMin <axes = [0], keepdims = 0> (z)
        w = Exp (least)""",
    )
    session = anydml.load(parsed(text), threads=1, native=native)
    rng, y = np.random.default_rng(0), np.float32([[1, 2, 3]])
    for n in (3, 3, 3, 0, 0, 4, 0, 500, 0, 1):
        x = rng.standard_normal((n, 3), np.float32)
        joined, found = session.run(None, {"x": x, "y": y})
        np.testing.assert_array_equal(joined, np.concatenate([x, y]))
        np.testing.assert_allclose(found, np.exp(joined.min(0)), rtol=1e-6)
    assert "x float32[*,3]" in session.explain()


DTYPES = st.sampled_from([np.dtype(np.float32), np.dtype(np.int64)])
SIZES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def patterns(draw):
    """Arrays, a pattern of shapes that is for them, and others that may be or not."""
    arrays = [np.zeros(s, d) for s, d in draw(st.lists(st.tuples(SIZES, DTYPES), min_size=1, max_size=3))]
    shapes = tuple(
        (x.dtype, tuple(draw(st.sampled_from([n, ANY_SIZE, None if n else n])) for n in x.shape))
        for x in arrays
    )
    others = [
        np.zeros(tuple(draw(st.integers(0, 3)) if draw(st.booleans()) else n for n in x.shape), x.dtype)
        if draw(st.integers(0, 5))
        else np.zeros(draw(SIZES), draw(DTYPES))
        for x in arrays
    ]
    return arrays, shapes, others


@given(patterns())
@settings(max_examples=250, deadline=None)
def test_the_quick_question_has_the_same_answer(made):
    arrays, shapes, others = made
    pattern = quick_pattern(arrays, (), shapes, ())
    assert quickly_fits(pattern, tuple(quick_key(arrays)))
    expected = fits(shapes, tuple(map(shape_key, others)))
    assert quickly_fits(pattern, tuple(quick_key(others))) == expected
    if expected:  # what both have in common is the pattern again
        assert join(shapes, tuple(map(shape_key, others))) == shapes


def test_sizes_of_inputs_that_decide_stay():
    arrays = [np.zeros((2, 3), np.float32), np.ones((2,), np.int64)]
    shapes = tuple((x.dtype, (None,) * x.ndim) for x in arrays)
    pattern = quick_pattern(arrays, (1,), shapes, {1})
    assert quickly_fits(pattern, tuple(quick_key([np.zeros((5, 6), np.float32), arrays[1]], (1,))))
    for other in (np.ones((2, 1), np.int64), np.ones((3,), np.int64), np.zeros((2,), np.int64)):
        assert not quickly_fits(pattern, tuple(quick_key([arrays[0], other], (1,))))


def test_ifs_that_only_the_data_decides_do_not_keep_sizes_from_being_open():
    text = graph(
        "float[n, 3] x, float[1, 3] y",
        "float[t, 3] z, float[t, 3] w",
        """z = Concat <axis = 0> (x, y)
        sum = ReduceSum <keepdims = 0> (y)
        zero = Constant <value_float = 0.0> ()
        c = Greater (sum, zero)
        w = If (c) <then_branch = a () => (float[p, 3] w1) { w1 = Exp (z) },
                    else_branch = b () => (float[q, 3] w2) { w2 = Tanh (z) }>""",
    )
    session = anydml.load(parsed(text), threads=1)
    for n in range(1, 9):
        for y in (np.ones((1, 3), np.float32), -np.ones((1, 3), np.float32)):
            x = np.ones((n, 3), np.float32)
            joined, found = session.run(None, {"x": x, "y": y})
            np.testing.assert_array_equal(joined, np.concatenate([x, y]))
            np.testing.assert_allclose(found, np.exp(joined) if y.sum() > 0 else np.tanh(joined), rtol=1e-6)
    assert len(session._program._plans) == 1


def test_attention_that_appends_to_caches_itself():
    text = """<ir_version: 11, opset_import: ["": 23]> g (float[batch, 2, new, 4] x,
        float[batch, 2, past, 4] key, float[batch, 2, past, 4] value)
        => (float[batch, 2, new, 4] y, float[batch, 2, total, 4] keys, float[batch, 2, total, 4] values)
        { y, keys, values = Attention (x, x, x, , key, value) }"""
    assert growing(text) == {("key", 2), ("value", 2)}
    session, peer = anydml.load(parsed(text), threads=1), ort.InferenceSession(parsed(text))
    rng = np.random.default_rng(0)
    key = value = rng.random((1, 2, 1, 4), np.float32)
    for _ in range(5):
        feed = {"x": rng.random((1, 2, 1, 4), np.float32), "key": key, "value": value}
        mine, theirs = session.run(None, feed), peer.run(None, feed)
        assert_close(mine, theirs)
        _, key, value = mine
    assert len(session._program._plans) == 1
