"""Programs for inputs of which one size is not fixed: from the third size on, one for all of them."""

from __future__ import annotations

import numpy as np
import pytest

import anydml as dml
from anydml.onnx.execute.native import MIN_ROOM
from tests.onnx.native_bounded import CHAINS, check, feeds_of, made
from tests.onnx.test_native import expected, model, native, numbers, same

FIRST = (4, 6)
"""Sizes that get plans of their own."""


def opened(text, *all_feeds):
    """A session that has seen two sizes."""
    session = native(text)
    for feeds in all_feeds:
        for _ in range(2):
            session.run(None, feeds)
    return session


def is_open(session):
    """Whether one of its plans is a program for sizes that are not fixed."""
    plans = session.explain().split("plan for ")
    return any("?" in p.splitlines()[0] and "program: " in p for p in plans if p)


NOT_OPEN = {
    "by conditions",
    "of all by conditions",
    "products",
    "products of columns",
    "sums of products",
    "sums of products of columns",
}
"""Chains that are left to others."""


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.drawn
def test_chains(chain):
    """In memory that was something else, and between guard pages."""
    text = made(chain, "n")
    session = opened(text, *(list(feeds_of(n))[2] for n in FIRST))
    for size in (17, 3, 40, 1, 64, 65, 4):
        for feeds in feeds_of(size):
            check(session, text, feeds)
    assert is_open(session) == (chain not in NOT_OPEN), session.explain()


MODELS = {
    "a branch": """m (float[n, 3] x) => (float[q, 3] y) <float zero = {0}> {
        t = ReduceSum <keepdims = 0> (x) c = Greater (t, zero)
        y = If (c) <then_branch = p () => (float[j, 3] a) { a = Exp (x) },
                    else_branch = q () => (float[j, 3] b) { b = Neg (x) }> }""",
    "a loop": """m (float[n, 3] x) => (float[3] y) <int64 zero = {0}, bool go = {1}, float[3] none = {0, 0, 0}> {
        s = Shape (x) k = Gather (s, zero)
        y = Loop (k, go, none) <body = l (int64 i, bool on, float[3] h) => (bool still, float[3] next) {
            still = Identity (on) row = Gather <axis = 0> (x, i) d = Add (h, row) next = Tanh (d) }> }""",
    "in the middle": """m (float[2, n, 3] x) => (float[2, q, 3] y) <float half = {0.5}> {
        e = Mul (x, half) s = ReduceMax <axes = [1]> (e) y = Sub (e, s) }""",
    "at the end": """m (float[2, 3, n] x) => (float[2, 3] y) <int64[1] a = {2}> {
        e = Exp (x) y = ReduceSum <keepdims = 0> (e, a) }""",
    "an index": """m (float[n, 3] x) => (float[3] y) <int64[1] all = {-1}, int64 one = {1}> {
        f = Reshape (x, all) k = ArgMax <axis = 0, keepdims = 0> (f) z = Sub (k, k)
        y = Gather <axis = 0> (x, z) }""",
    "shares": "m (float[n, 40] x) => (float[q, 40] y) { s = Softmax <axis = 1> (x) y = Sub (x, s) }",
    "a product": """m (float[n, 20] x) => (float[q, 30] y) <int64[2] d = {20, 30}> {
        w = ConstantOfShape <value = float[1] {0.5}> (d) p = MatMul (x, w) r = Relu (p) y = Add (r, p) }""",
    "bools": """m (float[n, 3] x) => (float[q, 3] y) <float half = {0.5}> {
        c = Greater (x, half) d = Not (c) e = Or (c, d) f = And (e, c) y = Where (f, x, half) }""",
}  # fmt: skip


def sized(name, size):
    """Feeds of the model of this name."""
    shapes = {
        "in the middle": (2, size, 3),
        "at the end": (2, 3, size),
        "shares": (size, 40),
        "a product": (size, 20),
    }
    return {"x": numbers(*shapes.get(name, (size, 3)))}


def named(name):
    return model(MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    text = named(name)
    session = opened(text, *(sized(name, n) for n in FIRST))
    for size in (9, 3, 20, 1, 36, 4, 7):
        for _ in range(2):
            feeds = sized(name, size)
            same(session.run(None, feeds), expected(text, feeds), rtol=1e-4, atol=1e-5)
            check_close(session, text, feeds)
    assert is_open(session), session.explain()


def check_close(session, text, feeds):
    """As `check`, of sums that may be rounded otherwise."""
    plan = session._program.plan([*feeds.values()])
    step = plan.steps[0]
    if not hasattr(step, "program"):
        return
    wanted = session.run(None, feeds)
    for pattern in (0x00, 0xFF, 0x7F):
        block, address = step.program._memory()
        block[:] = pattern
        step.program._spare[:] = [(block, address)]
        same(plan.run_owned([*feeds.values()]), wanted)


def test_more_than_there_is_room_for_and_nothing():
    text = named("bools")
    session = opened(text, *(sized("bools", n) for n in FIRST))
    for size in (5, 1000, 6, 5000, 7):
        feeds = sized("bools", size)
        same(session.run(None, feeds), expected(text, feeds))
    feeds = {"x": np.zeros((0, 3), np.float32)}
    same(session.run(None, feeds), expected(text, feeds))
    assert is_open(session)


def test_room_is_made():
    """As inputs get longer, as far as work allows."""
    text = named("shares")
    session = opened(text, *(sized("shares", n) for n in FIRST))
    for size in (5, 70, 8, 400, 20000, 9, 500):
        for _ in range(2):
            feeds = sized("shares", size)
            same(session.run(None, feeds), expected(text, feeds), rtol=1e-5, atol=1e-6)
        step = session._program.plan([feeds["x"]]).steps[0]
        if size > MIN_ROOM and size < 1000:
            assert step.has_room([feeds["x"]])
    assert is_open(session)
    assert not step.has_room([np.empty((20000, 40), np.float32)])
    assert session._program.plan([np.empty((20000, 40), np.float32)]).steps[0] is not step
    assert session._program.plan([np.empty((500, 40), np.float32)]).steps[0] is step
    assert "for longer inputs" in session.explain()


def test_arrays_in_any_order():
    text = named("shares")
    session = opened(text, *(sized("shares", n) for n in FIRST))
    for size in (9, 30):
        x = numbers(40, size).T
        for given in (x, x[::-1], np.asfortranarray(x)):
            feeds = {"x": np.array(given, order="C")}
            same(session.run(None, {"x": given}), expected(text, feeds), rtol=1e-5, atol=1e-6)


def test_two_that_are_not_as_long():
    """As steps say it, whether one could be repeated or not."""
    text = model("m (float[n, 3] x, float[k, 3] z) => (float[q, 3] y) { e = Mul (x, z) y = Exp (e) }")

    def feeds(n, k):
        return {"x": numbers(n, 3) / 9, "z": numbers(k, 3) / 9}

    session = opened(text, feeds(4, 4), feeds(6, 6), feeds(9, 9))
    for n, k in ((9, 9), (9, 1), (1, 9), (3, 3)):
        given = feeds(n, k)
        same(session.run(None, given), expected(text, given), rtol=1e-5)
    with pytest.raises(dml.ExecutionFailed):
        session.run(None, feeds(9, 8))
    given = feeds(5, 5)
    same(session.run(None, given), expected(text, given), rtol=1e-5)
    assert is_open(session), session.explain()


def test_a_trip_count_and_an_index_by_sizes():
    """An index beyond what there is is an error, though there is room."""
    text = model("m (float[n] x, int64[1] at) => (float[1] y) { e = Exp (x) y = Gather <axis = 0> (e, at) }")
    session = opened(text, *({"x": numbers(n), "at": np.array([0])} for n in FIRST))
    x = numbers(9)
    for at in (0, 8, -9):
        given = {"x": x, "at": np.array([at])}
        same(session.run(None, given), expected(text, given), rtol=1e-5)
    for at in (9, -10, 12):
        with pytest.raises(dml.ExecutionFailed):
            session.run(None, {"x": x, "at": np.array([at])})
    assert is_open(session), session.explain()


def test_bound_arrays():
    text = named("a branch")
    session = opened(text, *(sized("a branch", n) for n in FIRST))
    feeds = sized("a branch", 9)
    (wanted,) = expected(text, feeds)
    y = np.empty_like(wanted)
    bound = session.bind(feeds, {"y": y})
    for _ in range(3):
        y[...] = 0
        bound.run()
        np.testing.assert_allclose(y, wanted, rtol=1e-5)
