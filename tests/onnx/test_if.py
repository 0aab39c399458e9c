"""`If` in sessions: opsets, scopes, conditions, shapes, and that only the taken branch runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import helper

import anydml
from tests.models import (
    COND,
    NEWEST,
    OPSETS,
    assert_same,
    branch,
    choice,
    constant,
    if_node,
    info,
    initializer,
    model,
    nested,
    node,
    one_if,
    run,
    seq_info,
    untyped,
)

TRUE, FALSE = np.array(True), np.array(False)
X = np.float32([[1, -2, 3], [-4, 5, -6]])
NEG = branch([node("Neg", ["x"], "t")], ["t"])
ABS = branch([node("Abs", ["x"], "e")], ["e"])


def test_the_versions_of_if():
    assert {1, 11, 13, 16, 19, 21, 23, 24, 25, NEWEST} <= set(OPSETS)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("cond", [True, False])
def test_every_opset(opset, cond):
    assert_same(run(choice(opset), cond=np.array(cond))[0], np.float32([1, 2] if cond else [3, 4]))
    got = run(one_if(NEG, ABS, info("x", sizes=[2, 3]), opset=opset), cond=np.array(cond), x=X)
    assert_same(got[0], -X if cond else np.abs(X))


@pytest.mark.parametrize("opset", [o for o in OPSETS if o >= 13])
@pytest.mark.parametrize("cond", [True, False])
def test_every_opset_with_sequences(opset, cond):
    def sequence(content):
        made = [constant("a", np.float32(content)), node("SequenceConstruct", ["a"], "s")]
        return branch(made, [seq_info("s")])

    chosen = if_node("cond", sequence([1, 2, 3, 4, 5]), sequence([5, 4, 3, 2, 1]))
    (got,) = run(model([chosen], [COND], [seq_info("y")], opset), cond=np.array(cond))
    assert_same(got, [np.float32([1, 2, 3, 4, 5] if cond else [5, 4, 3, 2, 1])])


@pytest.mark.parametrize("count", [0, 1, 12, 24, 25])
def test_nested_25_deep(count):
    conds = np.arange(25) < count
    assert_same(run(nested(25).SerializeToString(), conds=conds, x=X)[0], X + np.float32(min(count, 24)))


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_captures_several_scopes_out(outer, inner):
    """The innermost branches use an input, an initializer and a node's output of every scope around them."""
    deep = branch([node("Sum", ["x", "w", "m", "n"], "s")], ["s"])
    flat = branch([node("Sub", ["n", "w"], "d")], ["d"])
    middle = branch(
        [node("Mul", ["m", "v"], "n"), if_node("c2", deep, flat, "r", "inner")],
        ["r"],
        [initializer("v", np.float32(3))],
    )
    built = model(
        [
            node("Add", ["x", "w"], "m"),
            if_node("c1", middle, branch([node("Neg", ["m"], "g")], ["g"]), "y", "outer"),
        ],
        [info("c1", "bool", []), info("c2", "bool", []), info("x")],
        [info("y")],
        initializers=[initializer("w", np.float32(10))],
    )
    m = X + 10
    n = m * 3
    expected = (X + 10 + m + n if inner else n - 10) if outer else -m
    assert_same(run(built, c1=np.array(outer), c2=np.array(inner), x=X)[0], expected.astype(np.float32))


@pytest.mark.parametrize("cond", [True, False])
def test_several_outputs_of_different_rank(cond):
    then = branch(
        [node("Neg", ["x"], "a"), node("ReduceSum", ["x"], "b", keepdims=0), constant("c", np.int64([7, 8]))],
        [info("a"), info("b"), info("c", "int64")],
    )
    otherwise = branch(
        [
            node("Flatten", ["x"], "d", axis=0),
            node("Size", ["x"], "f"),
            node("Transpose", ["x"], "g", perm=[1, 0]),
        ],
        [info("d"), info("g"), info("f", "int64")],
    )
    built = model(
        [if_node("cond", then, otherwise, ["p", "q", "r"]), node("Identity", ["q"], "s")],
        [COND, info("x", sizes=[2, 3])],
        [info("p"), info("r", "int64"), info("s")],
    )
    p, r, s = run(built, cond=np.array(cond), x=X)
    assert_same(p, -X if cond else X.reshape(1, 6))
    assert_same(r, np.int64([7, 8]) if cond else np.array(6, np.int64))
    assert_same(s, np.array(X.sum()) if cond else X.T)


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1)])
@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("origin", ["fed", "initializer", "node", "computed", "from floats"])
def test_condition(sizes, truth, origin):
    """The branches return the condition too: its shape stays what it was."""
    shape = initializer("shape", np.int64(sizes))
    before = {
        "fed": [],
        "initializer": [],
        "node": [constant("c", np.full(sizes, truth))],
        "computed": [node("Greater", ["k", "zero"], "c")],
        "from floats": [
            node("ReduceSum", ["x"], "sum", keepdims=0),
            node("Reshape", ["sum", "shape"], "column"),
            node("Greater", ["column", "fzero"], "c"),
        ],
    }[origin]
    then = branch([node("Neg", ["x"], "t"), node("Identity", ["c"], "tc")], [info("t"), info("tc", "bool")])
    otherwise = branch([node("Abs", ["x"], "e"), node("Not", ["c"], "ec")], [info("e"), info("ec", "bool")])
    extra = {"fed": [info("c", "bool", sizes)], "computed": [info("k", "int64", sizes)]}.get(origin, [])
    known = [initializer("c", np.full(sizes, truth))] if origin == "initializer" else []
    built = model(
        [*before, if_node("c", then, otherwise, ["y", "z"])],
        [info("x"), *extra],
        [info("y"), info("z", "bool")],
        initializers=[*known, shape, initializer("zero", np.int64(0)), initializer("fzero", np.float32(0))],
    )
    feeds = {"x": X if truth == (X.sum() > 0) else -X}
    if origin == "fed":
        feeds["c"] = np.full(sizes, truth)
    if origin == "computed":
        feeds["k"] = np.full(sizes, 5 if truth else -5, np.int64)
    y, z = run(built, **feeds)
    assert_same(y, -feeds["x"] if truth else np.abs(feeds["x"]))
    assert_same(z, np.full(sizes, True))


@pytest.mark.parametrize(
    "then_out", [info("t"), info("t", sizes=[None, None]), info("t", sizes=["A", "B"]), untyped("t")]
)
@pytest.mark.parametrize("y", [info("y"), info("y", sizes=[None]), info("y", sizes=["Q"]), untyped("y")])
@pytest.mark.parametrize("cond", [True, False])
def test_declared_outputs(then_out, y, cond):
    then = branch([node("Neg", ["x"], "t")], [then_out])
    otherwise = branch([node("Abs", ["x"], "e")], [untyped("e")])
    flat = [if_node("c", then, otherwise, "r"), node("Reshape", ["r", "minus"], "y")]
    decide = [node("ReduceMax", ["x"], "top", keepdims=0), node("Greater", ["top", "limit"], "c")]
    weights = [initializer("minus", np.int64([-1])), initializer("limit", np.float32(5))]
    x = X * 2 if cond else X
    got = run(model([*decide, *flat], [info("x", sizes=["M", "N"])], [y], initializers=weights), x=x)
    assert_same(got[0], -x.ravel() if cond else np.abs(x).ravel())


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("cond", [True, False])
def test_a_branch_may_return_what_it_did_not_compute(cond, known):
    """An input, an outer value, an outer and an inner initializer; one branch has no node at all."""
    w, v = np.float32([1, 2]), np.float32([3])
    then = branch([], ["x", "outer", "w", "v"], [initializer("v", v)])
    otherwise = branch([node("Neg", ["w"], "e")], ["e", "w", "outer", "x"])
    built = model(
        [node("Abs", ["x"], "outer"), if_node("cond", then, otherwise, ["a", "b", "c", "d"])],
        [info("x")] if known else [COND, info("x")],
        [info(n) for n in "abcd"],
        initializers=[initializer("w", w), *([initializer("cond", np.array(cond))] if known else [])],
    )
    feeds = {"x": X} if known else {"x": X, "cond": np.array(cond)}
    for got, expected in zip(
        run(built, **feeds), [X, abs(X), w, v] if cond else [-w, w, abs(X), X], strict=True
    ):
        assert_same(got, np.asarray(expected))


@pytest.mark.parametrize("cond", [True, False])
def test_inner_names_that_shadow_outer_ones_and_siblings_that_share(cond):
    """`a` is three values: outside, in the one branch (made from the outer one) and in the other."""
    then = branch(
        [node("Add", ["a", "x"], "b"), node("Neg", ["b"], "a"), node("Mul", ["a", "b"], "t")], ["t"]
    )
    otherwise = branch(
        [node("Sub", ["x", "x"], "b"), node("Exp", ["b"], "a"), node("Sub", ["a", "x"], "t")], ["t"]
    )
    built = model(
        [node("Abs", ["x"], "a"), if_node("cond", then, otherwise, "b"), node("Add", ["a", "b"], "y")],
        [COND, info("x")],
        [info("y")],
    )
    a, b = abs(X), abs(X) + X
    assert_same(run(built, cond=np.array(cond), x=X)[0], a + (-b * b if cond else 1 - X))


def test_names_made_unique_do_not_collide_with_the_models_own():
    """A model may itself use the names that a reader would make up for the second `t`."""
    first = branch([node("Neg", ["x"], "t~2"), node("Neg", ["t~2"], "t")], ["t"])
    second = branch([node("Abs", ["x"], "t"), node("Add", ["t", "x"], "t~2")], ["t~2"])
    built = model(
        [
            if_node("cond", first, second, "p", "1"),
            if_node("cond", second, first, "q", "2"),
            node("Sub", ["p", "q"], "y"),
        ],
        [COND, info("x")],
        [info("y")],
    )
    assert_same(run(built, cond=TRUE, x=X)[0], X - (abs(X) + X))
    assert_same(run(built, cond=FALSE, x=X)[0], (abs(X) + X) - X)


@pytest.mark.parametrize("known", [True, False])
def test_outputs_that_nobody_names_or_uses(known):
    two = branch([node("Neg", ["x"], "t"), node("Abs", ["x"], "u")], ["t", "u"])
    nodes = [
        if_node("cond", two, two, ["", "y"], "first"),
        if_node("cond", two, two, ["unused", "z"], "second"),
        if_node("cond", two, two, ["n1", "n2"], "third"),
    ]
    built = model(
        nodes,
        [info("x")] if known else [COND, info("x")],
        [info("y"), info("z")],
        initializers=[initializer("cond", TRUE)] if known else [],
    )
    y, z = run(built, x=X) if known else run(built, x=X, cond=FALSE)
    assert_same(y, abs(X))
    assert_same(z, abs(X))


@pytest.mark.parametrize("x", [X, -X])
@pytest.mark.parametrize("source", ["fed", "computed"])
def test_several_ifs_on_one_condition_and_on_its_opposite(x, source):
    nodes = [
        node("ReduceSum", ["x"], "sum", keepdims=0),
        *([node("Less", ["sum", "zero"], "cond")] if source == "computed" else []),
        node("Not", ["cond"], "other"),
        if_node("cond", NEG, ABS, "p", "first"),
        if_node("other", branch([if_node("cond", NEG, ABS, "u", "inner")], ["u"]), NEG, "q", "second"),
        if_node("cond", branch([if_node("cond", ABS, NEG, "u", "again")], ["u"]), NEG, "r", "third"),
        node("Sum", ["p", "q", "r"], "y"),
    ]
    built = model(
        nodes,
        [info("x"), *([COND] if source == "fed" else [])],
        [info("p"), info("q"), info("r"), info("y")],
        initializers=[initializer("zero", np.float32(0))],
    )
    cond = bool(x.sum() < 0)
    p, q, r = (-x, -x, abs(x)) if cond else (abs(x), abs(x), -x)
    got = run(built, x=x, **({"cond": np.array(cond)} if source == "fed" else {}))
    for a, b in zip(got, [p, q, r, p + q + r], strict=True):
        assert_same(a, b)


# ---- only the taken branch runs ----------------------------------------------------------------------

IMPOSSIBLE = {
    "Reshape": [constant("s", np.int64([7, 7])), node("Reshape", ["x", "s"], "bad", "culprit")],
    "Gather": [constant("i", np.int64([99])), node("Gather", ["x", "i"], "bad", "culprit")],
    "Gather of known contents": [
        constant("i", np.int64([99])),
        constant("d", np.float32([1, 2])),
        node("Gather", ["d", "i"], "bad", "culprit"),
    ],
    "Add of shapes that do not fit": [
        constant("a", np.ones((2, 5), np.float32)),
        node("Add", ["x", "a"], "bad", "culprit"),
    ],
    "Where of shapes that do not fit": [
        constant("a", np.ones((2, 5), np.float32)),
        node("Greater", ["x", "x"], "b"),
        node("Where", ["b", "x", "a"], "bad", "culprit"),
    ],
}


@pytest.mark.parametrize("failing", IMPOSSIBLE)
@pytest.mark.parametrize("origin", ["initializer", "fed", "shape", "integers", "floats"])
@pytest.mark.parametrize("place", ["then", "else"])
def test_only_the_taken_branch_runs(failing, origin, place):
    """The branch not taken would fail; taken, it does, which shows that the test tests something."""
    bad, good = branch(IMPOSSIBLE[failing], ["bad"]), ABS
    branches = (bad, good) if place == "then" else (good, bad)
    decide = {
        "initializer": [],
        "fed": [],
        "shape": [
            node("Shape", ["x"], "n"),
            node("ReduceMax", ["n"], "m", keepdims=0),
            node("Less", ["m", "n3"], "c"),
        ],
        "integers": [node("ReduceSum", ["k"], "m", keepdims=0), node("Greater", ["m", "n3"], "c")],
        "floats": [node("ReduceSum", ["x"], "m", keepdims=0), node("Greater", ["m", "fzero"], "c")],
    }[origin]
    weights = [initializer("n3", np.int64(4)), initializer("fzero", np.float32(0))]

    def attempt(truth):
        given = {"fed": [info("c", "bool", [])], "integers": [info("k", "int64", ["K"])]}.get(origin, [])
        known = [initializer("c", np.array(truth))] if origin == "initializer" else []
        built = model(
            [*decide, if_node("c", *branches)], [info("x"), *given], [info("y")], initializers=weights + known
        )
        x = (
            np.float32([[3]] * (3 if truth else 4))
            if origin == "shape"
            else np.float32([[3.5 if truth else -3.5]] * 4)
        )
        feeds = {"fed": {"c": np.array(truth)}, "integers": {"k": np.full(40, 1 if truth else -1)}}.get(
            origin, {}
        )
        return x, lambda: run(built, x=x, **feeds)

    x, call = attempt(place != "then")
    assert_same(call()[0], abs(x))
    with pytest.raises(anydml.ExecutionFailed, match="culprit"):
        attempt(place == "then")[1]()


# ---- sessions ----------------------------------------------------------------------------------------


def test_eight_threads_share_a_session():
    session = anydml.load(nested(6), threads=1)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            count = int(rng.integers(0, 7))
            x = rng.integers(-9, 9, rng.integers(1, 5, 2)).astype(np.float32)
            (y,) = session.run(None, {"conds": np.arange(6) < count, "x": x})
            assert_same(y, x + np.float32(min(count, 5)))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [True] * 8


def test_signature():
    session = anydml.load(
        model([if_node("cond", NEG, ABS)], [COND, info("x", sizes=["N", None, 3])], [info("y")])
    )
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("cond", "tensor(bool)", []),
        ("x", "tensor(float)", ["N", None, 3]),
    ]
    follows = ["N", None, 3]  # the file says none
    assert [(o.name, o.type, o.shape) for o in session.get_outputs()] == [("y", "tensor(float)", follows)]


def test_outputs_by_name():
    two = branch([node("Neg", ["x"], "t"), node("Abs", ["x"], "u")], ["t", "u"])
    session = anydml.load(
        model([if_node("cond", two, two, ["y", "z"])], [COND, info("x")], [info("y"), info("z")]), threads=1
    )
    z, y = session.run(["z", "y"], {"cond": TRUE, "x": X})
    assert_same(z, abs(X))
    assert_same(y, -X)
    with pytest.raises(anydml.InvalidInput, match=r"'yy'.*did you mean 'y'"):
        session.run(["yy"], {"cond": TRUE, "x": X})


def test_sources(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(choice().SerializeToString())
    for source in (path, str(path), path.read_bytes(), choice()):
        assert_same(run(source, cond=FALSE)[0], np.float32([3, 4]))


def test_optional_types():
    """The specification's third example: an optional sequence, empty in one branch."""
    optional = helper.make_optional_type_proto(
        helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [5]))
    )
    empty = [node("Optional", [], "none", type=optional.optional_type.elem_type)]
    full = [
        constant("x", np.float32([1, 2, 3, 4, 5])),
        node("SequenceConstruct", ["x"], "s"),
        node("Optional", ["s"], "some"),
    ]
    chosen = if_node(
        "cond",
        branch(empty, [helper.make_value_info("none", optional)]),
        branch(full, [helper.make_value_info("some", optional)]),
    )
    built = model([chosen], [COND], [helper.make_value_info("y", optional)], 16)
    assert_same(run(built, cond=FALSE)[0], [np.float32([1, 2, 3, 4, 5])])
    assert run(built, cond=TRUE) == [None]
