"""`If` beside the other nodes with bodies (Loop, Scan, functions), and inputs that have defaults."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import anydml
from tests.models import (
    COND,
    assert_same,
    branch,
    constant,
    if_node,
    info,
    initializer,
    model,
    node,
    run,
)

TRUE, FALSE = np.array(True), np.array(False)
X = np.float32([1, -2, 3])
KEEP = branch([node("Identity", ["x"], "kept")], ["kept"])
NEG = branch([node("Neg", ["x"], "t")], ["t"])
ABS = branch([node("Abs", ["x"], "e")], ["e"])
COUNT = constant("count", np.int64(3))
DECIDE = [node("ReduceSum", ["x"], "sum", keepdims=0), node("Greater", ["sum", "zero"], "c")]
ZERO = initializer("zero", np.float32(0))


def loop(added, start="x", output="y", extra=(), name="loop", state="state"):
    """`output` = `start` + 3 x (the outer value `added`), by a Loop of 3 rounds."""
    body = helper.make_graph(
        [*extra, node("Add", [state, added], "next"), node("Identity", ["go"], "on")],
        "body",
        [info("i", "int64", []), info("go", "bool", []), info(state)],
        [info("on", "bool", []), info("next")],
    )
    return node("Loop", ["count", "", start], [output], name, body=body)


def attempt(built, **feeds):
    """The outputs, or None and the message if that much is not supported."""
    try:
        return run(built, **feeds), ""
    except anydml.Unsupported as error:
        return None, str(error)


@pytest.mark.parametrize("added", ["x", "w", "m"])
def test_a_loop_captures_an_input_an_initializer_or_a_value(added):
    built = model(
        [COUNT, node("Abs", ["x"], "m"), loop(added), if_node("cond", KEEP, NEG, "z")],
        [COND, info("x")],
        [info("y"), info("z")],
        initializers=[initializer("w", np.float32(10))],
    )
    y, z = run(built, cond=TRUE, x=X)
    assert_same(y, X + 3 * {"x": X, "w": np.float32(10), "m": abs(X)}[added])
    assert_same(z, X)


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("origin", ["known", "fed", "computed"])
@pytest.mark.parametrize("added", ["x", "w", "m", "n", "v"])
def test_a_loop_in_a_branch_captures_from_every_scope(truth, origin, added):
    then = branch(
        [COUNT, node("Add", ["x", "x"], "n"), loop(added, output="t")],
        ["t"],
        [initializer("v", np.float32(7))],
    )
    known = [initializer("c", np.array(truth))] if origin == "known" else []
    before = DECIDE if origin == "computed" else []
    built = model(
        [*before, node("Abs", ["x"], "m"), if_node("c", then, NEG)],
        [info("x"), *([info("c", "bool", [])] if origin == "fed" else [])],
        [info("y")],
        initializers=[ZERO, initializer("w", np.float32(10)), *known],
    )
    x = X if truth else -X
    values = {"x": x, "w": np.float32(10), "m": abs(x), "n": x + x, "v": np.float32(7)}
    feeds = {"c": np.array(truth)} if origin == "fed" else {}
    assert_same(run(built, x=x, **feeds)[0], x + 3 * values[added] if truth else -x)


def test_a_loop_captures_what_identity_made():
    """Where an Identity goes away, the body must still find its value."""
    built = model([COUNT, node("Identity", ["x"], "same"), loop("same")], [info("x")], [info("y")])
    assert_same(run(built, x=X)[0], X * 4)


@pytest.mark.parametrize("origin", ["known", "fed"])
def test_a_loop_captures_what_an_if_made(origin):
    """Where an If on a known condition becomes its branch, the body must still find the output."""
    built = model(
        [COUNT, if_node("cond", ABS, NEG, "chosen"), loop("chosen")],
        [info("x"), *([COND] if origin == "fed" else [])],
        [info("y")],
        initializers=[initializer("cond", TRUE)] if origin == "known" else [],
    )
    assert_same(run(built, x=X, **({"cond": TRUE} if origin == "fed" else {}))[0], X + 3 * abs(X))


def test_a_loop_in_a_branch_captures_the_condition():
    picked = [node("Where", ["c", "x", "zero"], "picked")]
    then = branch([COUNT, loop("picked", output="t", extra=picked)], ["t"])
    built = model([*DECIDE, if_node("c", then, NEG)], [info("x")], [info("y")], initializers=[ZERO])
    assert_same(run(built, x=X)[0], X * 4)
    assert_same(run(built, x=-X)[0], X)


@pytest.mark.parametrize("origin", ["fed", "computed"])
def test_a_body_uses_names_of_a_sibling_branch(origin):
    """`state` and `next` are values of one branch, and names inside the Loop of the other one."""
    first = branch([COUNT, node("Neg", ["x"], "step"), loop("step", output="t")], ["t"])
    more, one = node("Add", ["next", "one"], "t"), initializer("one", np.float32(1))
    second = branch([node("Abs", ["x"], "state"), node("Exp", ["state"], "next"), more], ["t"], [one])
    built = model(
        [
            *(DECIDE if origin == "computed" else []),
            if_node("c", first, second, "p", "1"),
            if_node("c", second, first, "q", "2"),
            node("Sub", ["p", "q"], "y"),
        ],
        [info("x"), *([info("c", "bool", [])] if origin == "fed" else [])],
        [info("y")],
        initializers=[ZERO],
    )
    for x in (X, -X):
        p, q = x - 3 * x, np.exp(abs(x)) + 1
        truth = x is X
        (y,) = run(built, x=x, **({"c": np.array(truth)} if origin == "fed" else {}))
        np.testing.assert_allclose(y, p - q if truth else q - p, rtol=1e-6)


def test_a_loop_without_if_and_one_with():
    """A Loop that contains an If may be refused; one without must run, in the same model."""
    inside = if_node(
        "go", branch([], ["state"]), branch([node("Neg", ["state"], "n")], ["n"]), "picked", "inner"
    )
    both = model(
        [COUNT, loop("x", output="y"), loop("picked", output="z", extra=[inside], name="outer")],
        [info("x")],
        [info("y"), info("z")],
    )
    got, told = attempt(both, x=X)
    assert got is not None or ("'outer' (Loop)" in told and "If" in told)
    if got is not None:
        assert_same(got[0], X * 4)
        assert_same(got[1], X * 8)
    assert_same(run(model([COUNT, loop("x")], [info("x")], [info("y")]), x=X)[0], X * 4)


@pytest.mark.parametrize("with_if", [True, False])
def test_scan(with_if):
    inner = if_node(
        "flag", branch([], ["item"]), branch([node("Neg", ["item"], "n")], ["n"]), "picked", "inner"
    )
    body = helper.make_graph(
        [
            inner if with_if else node("Identity", ["item"], "picked"),
            node("Add", ["total", "picked"], "sum"),
            node("Identity", ["sum"], "each"),
        ],
        "body",
        [info("total", sizes=[]), info("item", sizes=[])],
        [info("sum", sizes=[]), info("each", sizes=[])],
    )
    scan = node("Scan", ["start", "x"], ["last", "y"], "scanning", body=body, num_scan_inputs=1)
    built = model(
        [scan],
        [info("x", sizes=[3]), info("flag", "bool", [])],
        [info("last"), info("y")],
        initializers=[initializer("start", np.float32(0))],
    )
    if not with_if:
        built.graph.input.pop()
    got, told = attempt(built, x=X, **({"flag": TRUE} if with_if else {}))
    assert got is not None or (with_if and "'scanning' (Scan)" in told)
    if got is not None:
        assert_same(got[0], np.array(2, np.float32))
        assert_same(got[1], np.cumsum(X))


def test_a_refused_loop_in_a_branch_not_taken():
    inside = if_node(
        "go", branch([], ["state"]), branch([node("Neg", ["state"], "n")], ["n"]), "picked", "inner"
    )
    then = branch([COUNT, loop("picked", output="t", extra=[inside])], ["t"])
    built = model([*DECIDE, if_node("c", then, NEG)], [info("x")], [info("y")], initializers=[ZERO])
    assert_same(run(built, x=-X)[0], X)


# ---- functions ---------------------------------------------------------------------------------------


def chooser(name, then="Neg", otherwise="Abs"):
    """A function of the model: out = If(flag) {then(data)} else {otherwise(data)}."""
    body = if_node(
        "flag",
        branch([node(then, ["data"], "t")], ["t"]),
        branch([node(otherwise, ["data"], "e")], ["e"]),
        "out",
        "pick",
    )
    return helper.make_function(
        "mine", name, ["flag", "data"], ["out"], [body], [helper.make_opsetid("", 21)]
    )


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("origin", ["fed", "computed"])
def test_functions_that_contain_ifs(truth, origin):
    """Called twice, from the graph and from a branch; the names inside must not meet."""
    call = node("Choose", ["c", "x"], "p", domain="mine")
    inner = node("Choose", ["c", "p"], "t", domain="mine")
    built = model(
        [
            *(DECIDE if origin == "computed" else []),
            call,
            if_node("c", branch([inner], ["t"]), ABS, "q"),
            node("Add", ["p", "q"], "y"),
        ],
        [info("x"), *([info("c", "bool", [])] if origin == "fed" else [])],
        [info("y")],
        initializers=[ZERO],
        functions=[chooser("Choose")],
        domains={"mine": 1},
    )
    x = X if truth else -X
    p = -x if truth else abs(x)
    q = -p if truth else abs(x)
    assert_same(run(built, x=x, **({"c": np.array(truth)} if origin == "fed" else {}))[0], p + q)


def test_functions_that_call_functions_and_pass_attributes():
    scaled = node("Constant", [], "k")
    scaled.attribute.append(onnx.AttributeProto(name="value_float", type=1, ref_attr_name="factor"))
    then = branch([scaled, node("Mul", ["data", "k"], "t")], ["t"])
    body = if_node("flag", then, branch([node("Choose", ["flag", "data"], "e", domain="mine")], ["e"]), "out")
    scale = helper.make_function(
        "mine",
        "Scale",
        ["flag", "data"],
        ["out"],
        [body],
        [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)],
        attributes=["factor"],
    )
    built = model(
        [
            node("Scale", ["cond", "x"], "y", domain="mine", factor=2.5),
            node("Scale", ["cond", "y"], "z", domain="mine", factor=4.0),
        ],
        [COND, info("x")],
        [info("y"), info("z")],
        functions=[scale, chooser("Choose", otherwise="Exp")],
        domains={"mine": 1},
    )
    for got, expected in zip(run(built, cond=TRUE, x=X), [X * 2.5, X * 10], strict=True):
        assert_same(got, expected.astype(np.float32))
    for got, expected in zip(run(built, cond=FALSE, x=X), [np.exp(X), np.exp(np.exp(X))], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


# ---- inputs with defaults ----------------------------------------------------------------------------


@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("fed", [None, True, False])
def test_a_condition_that_has_a_default(default, fed):
    built = model(
        [if_node("cond", NEG, ABS)],
        [COND, info("x")],
        [info("y")],
        initializers=[initializer("cond", np.array(default))],
    )
    session = anydml.load(built, threads=1)
    assert [i.name for i in session.get_inputs()] == ["x"]
    feeds = {"x": X} if fed is None else {"x": X, "cond": np.array(fed)}
    for _ in range(2):
        truth = default if fed is None else fed
        assert_same(session.run(None, feeds)[0], -X if truth else abs(X))


def test_a_captured_value_that_has_a_default():
    """The default, another value, another shape, the default again: each run sees its own."""
    then = branch([node("Mul", ["x", "w"], "t")], ["t"])
    built = model(
        [*DECIDE, if_node("c", then, branch([], ["w"]))],
        [info("x"), info("w", sizes=["K"])],
        [info("y")],
        initializers=[ZERO, initializer("w", np.float32([2]))],
    )
    session = anydml.load(built, threads=1)
    for w in (None, np.float32([5]), np.float32([1, 2, 3]), None):
        fed = {} if w is None else {"w": w}
        used = np.float32([2]) if w is None else w
        assert_same(session.run(None, {"x": X, **fed})[0], X * used)
        (y,) = session.run(None, {"x": -X, **fed})
        assert_same(y, used)
        y[...] = 99


def test_a_default_of_wrong_type_when_fed():
    built = model(
        [if_node("cond", NEG, ABS)], [COND, info("x")], [info("y")], initializers=[initializer("cond", TRUE)]
    )
    with pytest.raises(anydml.InvalidInput, match=r"input 'cond': expected bool, but got int64"):
        run(built, x=X, cond=np.array(1))
