"""Feeds that do not fit, and nodes that fail or that nothing runs: who is told what."""

from __future__ import annotations

import numpy as np
import pytest

import anydml
from tests.models import (
    COND,
    assert_same,
    branch,
    choice,
    constant,
    if_node,
    info,
    initializer,
    model,
    node,
    one_if,
    run,
    untyped,
)

TRUE, FALSE = np.array(True), np.array(False)
X = np.float32([1, -2, 3])
NEG = branch([node("Neg", ["x"], "t")], ["t"])
ABS = branch([node("Abs", ["x"], "e")], ["e"])


# ---- feeds -------------------------------------------------------------------------------------------


def test_all_problems_of_a_feed_at_once():
    session = anydml.load(one_if(NEG, ABS, info("x", sizes=["N", 3]), info("weights"), info("extra")))
    with pytest.raises(anydml.InvalidInput) as caught:
        session.run(None, {"cond": np.array(1), "x": X, "weigths": X})
    assert [str(p) for p in caught.value.problems] == [
        "inputs: expected a name of an input, but got 'weigths'; did you mean 'weights'?",
        "input 'cond': expected bool, but got int64",
        "input 'x': expected rank 2, but got shape (3,)",
        "input 'weights': expected tensor(float), but it is missing",
        "input 'extra': expected tensor(float), but it is missing",
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        ["one", "two"],
        [X, X[:1]],
        X.astype(np.float64),
        [[1.0], [2.0, 3.0]],
        X.astype(int),
        X.astype(str),
        object(),
    ],
)
def test_a_feed_of_wrong_kind(value):
    session = anydml.load(one_if(NEG, ABS, info("x")), threads=1)
    with pytest.raises(anydml.InvalidInput, match=r"input 'x': expected .*float"):
        session.run(None, {"cond": TRUE, "x": value})
    assert_same(session.run(None, {"cond": TRUE, "x": X})[0], -X)


def test_a_feed_of_wrong_size_after_right_ones():
    """What was accepted once is not accepted under another shape or type."""
    session = anydml.load(one_if(NEG, ABS, info("x", sizes=["N", 2])), threads=1)
    good = np.float32([[1, 2]])
    session.run(None, {"cond": TRUE, "x": good})
    for bad, text in (
        (np.float32([[1, 2, 3]]), r"\(1, 3\)"),
        (good[0], r"\(2,\)"),
        (good.astype(np.float64), "float64"),
        (good.astype(np.int32), "int32"),
    ):
        with pytest.raises(anydml.InvalidInput, match=text):
            session.run(None, {"cond": TRUE, "x": bad})
    with pytest.raises(anydml.InvalidInput, match="'z'"):
        session.run(None, {"cond": TRUE, "x": good, "z": good})
    assert_same(session.run(None, {"cond": TRUE, "x": good})[0], -good)


def test_symbols_that_disagree_are_no_problem_of_ours_but_the_nodes():
    """Two inputs share the symbol N; the node that cannot add them says so, with its name."""
    then = branch([node("Add", ["x", "w"], "t", "adder")], ["t"])
    built = one_if(then, ABS, info("x", sizes=["N"]), info("w", sizes=["N"]))
    with pytest.raises(anydml.AnyDMLError, match=r"adder|N"):
        run(built, cond=TRUE, x=X, w=X[:2])


def test_no_threads():
    with pytest.raises(anydml.InvalidInput, match="threads: expected a positive integer, but got 0"):
        anydml.load(choice(), threads=0)


# ---- while it runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["taken", "not taken", "outer"])
def test_an_unknown_operator(where):
    strange = node("Frobnicate", ["x"], "t", "odd", domain="com.example")
    nodes = (
        [if_node("cond", branch([strange], ["t"]), ABS)]
        if where != "outer"
        else [strange, node("Abs", ["t"], "y")]
    )
    built = model(nodes, [COND, info("x")], [info("y")], domains={"com.example": 1})
    if where == "not taken":
        assert_same(run(built, cond=FALSE, x=X)[0], abs(X))
        return
    with pytest.raises(anydml.Unsupported, match=r"'odd' \(com\.example\.Frobnicate\)"):
        run(built, cond=TRUE, x=X)


def test_an_operator_that_onnx_does_not_have():
    built = one_if(branch([node("Frobnicate", ["x"], "t", "odd")], ["t"]), ABS, info("x"))
    assert_same(run(built, cond=FALSE, x=X)[0], abs(X))
    with pytest.raises(anydml.Unsupported, match=r"'odd' \(Frobnicate\) in choose/then"):
        run(built, cond=TRUE, x=X)


@pytest.mark.parametrize("origin", ["fed", "computed"])
@pytest.mark.parametrize("failing", ["Reshape", "Where", "complex Reshape"])
def test_a_failure_names_the_node_and_its_path(origin, failing):
    bad = {
        "Reshape": [constant("s", np.int64([7])), node("Reshape", ["x", "s"], "t", "culprit")],
        "Where": [
            constant("k", np.float32([1, 2])),
            constant("b", TRUE),
            node("Where", ["b", "x", "k"], "t", "culprit"),
        ],
        "complex Reshape": [
            constant("k", np.complex64([1, 2])),
            constant("s", np.int64([7])),
            node("Reshape", ["k", "s"], "t", "culprit"),
        ],
    }[failing]
    inner = if_node("cond", ABS, branch(bad, [untyped("t")]), "u", "inner")
    outer = if_node("first", branch([inner], ["u"]), ABS, "y", "outer")
    decide = [node("ReduceSum", ["x"], "sum", keepdims=0), node("Greater", ["sum", "big"], "cond")]
    built = model(
        [*(decide if origin == "computed" else []), outer],
        [info("first", "bool", []), info("x"), *([COND] if origin == "fed" else [])],
        [info("y")],
        initializers=[initializer("big", np.float32(100))],
    )
    session = anydml.load(built, threads=1)
    feeds = {"cond": FALSE} if origin == "fed" else {}
    error, told = anydml.ExecutionFailed, r"'culprit' \(\w+\) in outer/then/inner/else"
    if origin == "fed" and "complex" in failing:  # which the model's output is not
        error, told = anydml.InvalidModel, "'y': expected float32, which the model declares, but .* complex64"
    for _ in range(2):
        with pytest.raises(error, match=told):
            session.run(None, {"x": X, "first": TRUE, **feeds})
        assert_same(session.run(None, {"x": X, "first": FALSE, **feeds})[0], abs(X))


def test_a_failure_names_the_right_one_of_many_nodes():
    chain = [
        node("Neg" if k % 2 else "Abs", [f"v{k}" if k else "x"], f"v{k + 1}", f"n{k}") for k in range(20)
    ]
    chain.insert(11, node("Add", ["v3", "w"], "sum", "culprit"))
    then = branch([*chain, node("Add", ["v20", "sum"], "t")], ["t"])
    built = one_if(then, ABS, info("x"), info("w"))
    with pytest.raises(anydml.ExecutionFailed, match=r"'culprit' \(Add\) in choose/then"):
        run(built, cond=TRUE, x=X, w=X[:2])


HUGE = 1 << 22
BEYOND = {"column": np.ones((HUGE, 1), np.float32), "row": np.ones(HUGE, np.float32)}


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Add", "Tile"])
def test_sizes_beyond_the_memory(op):
    """Told before it is tried, so nothing else in the process suffers."""
    inputs = {"ConstantOfShape": ["n"], "Add": ["column", "row"]}.get(op, ["one", "n"])
    nodes = [node(op, inputs, "big", "absurd"), node("Shape", ["big"], "s"), node("Neg", ["big"], "y")]
    weights = [initializer("n", np.int64([HUGE, HUGE])), initializer("one", np.float32([[1]]))]
    built = model(nodes, [info("column"), info("row")], [info("y"), info("s", "int64")], initializers=weights)
    with pytest.raises(anydml.OutOfMemory, match=r"absurd.*at most .* GiB, all the memory there is"):
        run(built, **BEYOND)


@pytest.mark.parametrize(
    ("after", "message"), [("Neg", "all the memory there is"), ("Softmax", "no more memory")]
)
def test_sizes_beyond_the_memory_that_the_plan_does_not_know(after, message):
    """Our kernels ask first, onnxruntime tries."""
    nodes = [node("Add", ["column", "row"], "big", "absurd"), node(after, ["big"], "y")]
    session = anydml.load(model(nodes, [info("column"), info("row")], [info("y")]), threads=1)
    for n in (1, 2, 3):
        session.run(None, {"column": np.ones((n, 1), np.float32), "row": np.ones(n, np.float32)})
    with pytest.raises(anydml.OutOfMemory, match=f"absurd.*{message}"):
        session.run(None, BEYOND)
