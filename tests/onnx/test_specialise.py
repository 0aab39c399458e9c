"""What a session makes of what it knows: plans by shape and by deciding contents, and the passes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import anydml
from anydml.ir.graph import Graph, If, Node, OnnxOp, TensorType, Value
from anydml.ir.text import graph_text
from anydml.ir.transforms import eliminate_dead_code
from anydml.onnx.execute import plan_table, specialization
from anydml.onnx.execute.partition import Partition
from anydml.onnx.execute.plan_table import MAX_PLANS
from anydml.onnx.rewrites.matcher import rewrite, rules_by_root
from anydml.onnx.rewrites.pipeline import CHAINS, simplify
from tests.models import (
    COND,
    assert_same,
    branch,
    constant,
    if_node,
    info,
    initializer,
    model,
    nested,
    node,
)

NEG = branch([node("Neg", ["x"], "t")], ["t"])
ABS = branch([node("Abs", ["x"], "e")], ["e"])
WEIGHTS = [
    initializer("zero", np.float32(0)),
    initializer("three", np.int64(3)),
    initializer("first", np.int64(0)),
]
BY_SHAPE = [
    node("Shape", ["x"], "sizes"),
    node("Gather", ["sizes", "first"], "n"),
    node("Greater", ["n", "three"], "c"),
]
BY_DATA = [node("ReduceSum", ["x"], "sum", keepdims=0), node("Greater", ["sum", "zero"], "c")]
BY_INTEGER = [node("Greater", ["k", "three"], "c")]


@pytest.fixture
def ifs_stay(monkeypatch):
    """Small branches are not run both, and onnxruntime has no If."""
    monkeypatch.setattr(specialization, "MAX_SELECTED_NODES", -1)
    obstacle = Partition._obstacle

    def no_if(self, node, typed):
        return "it has no If" if isinstance(node, If) else obstacle(self, node, typed)

    monkeypatch.setattr(Partition, "_obstacle", no_if)


def plans(session):
    """How many plans of the whole model there are, those of branches aside."""
    return len(re.findall(r"^plan for", session.explain(), re.MULTILINE))


def ifs(session):
    return sum("(If)" in line and "folded:" not in line for line in session.explain().splitlines())


def loaded(nodes, *inputs, outputs=("y",), weights=()):
    return anydml.load(
        model(nodes, [info("x"), *inputs], [info(o) for o in outputs], initializers=[*WEIGHTS, *weights]),
        threads=1,
        native=False,
    )


# ---- conditions that become known --------------------------------------------------------------------


def test_nothing_is_planned_before_the_first_run():
    assert loaded([*BY_SHAPE, if_node("c", NEG, ABS)]).explain() == "not run yet"


def test_a_condition_that_follows_from_the_shape():
    session = loaded([*BY_SHAPE, if_node("c", NEG, ABS)])
    for count, n in enumerate((2, 5, 2, 5), 1):
        x = np.arange(n, dtype=np.float32) - 1
        assert_same(session.run(None, {"x": x})[0], -x if n > 3 else abs(x))
        assert (ifs(session), plans(session)) == (0, min(count, 2))
    assert "float32[2]" in session.explain()
    assert "float32[5]" in session.explain()


ARITHMETIC = {
    "Size": [node("Size", ["x"], "n")],
    "Transpose": [
        node("Transpose", ["x"], "u"),
        node("Shape", ["u"], "m"),
        node("ReduceMax", ["m"], "n", keepdims=0),
    ],
    "Concat": [
        node("Concat", ["x", "x"], "u", axis=0),
        node("Shape", ["u"], "m", start=0, end=1),
        node("Div", ["m", "two"], "n"),
    ],
}


@pytest.mark.parametrize("how", ARITHMETIC)
def test_shape_arithmetic(how):
    decide = [*ARITHMETIC[how], node("Greater", ["n", "three"], "c")]
    session = loaded([*decide, if_node("c", NEG, ABS)], weights=[initializer("two", np.int64([2]))])
    for n in (2, 5):
        x = np.arange(n, dtype=np.float32) - 1
        assert_same(session.run(None, {"x": x})[0], -x if n > 3 else abs(x))
        assert ifs(session) == 0


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_condition_that_follows_from_a_small_input(dtype, shape):
    decide = [
        node("Cast", ["k"], "wide", to=7),
        node("Mul", ["wide", "three"], "m"),
        node("Equal", ["m", "three"], "c"),
    ]
    session = loaded([*decide, if_node("c", NEG, ABS)], info("k", dtype, shape))
    x = np.float32([1, -2])
    for value in (0, 1, 0, 1):
        (y,) = session.run(None, {"x": x, "k": np.full(shape, value, dtype)})
        assert_same(y, -x if value else abs(x))
        assert ifs(session) == 0
    assert plans(session) == 2
    assert "k = " in session.explain()


def test_nested_conditions_of_which_all_are_known():
    session = anydml.load(nested(20), threads=1)
    x = np.float32([1])
    for count in (0, 7, 20):
        conds = np.arange(20) < count
        if count == 7:
            conds = conds[::-1].copy()
        expected = x + np.float32(min(int(np.argmin(conds)) if not conds.all() else 19, 19))
        assert_same(session.run(None, {"conds": conds, "x": x})[0], expected)
    assert anydml.load(nested(3)).run(None, {"conds": np.array([True, True, False]), "x": x})[0] == 3


def test_the_program_of_a_nested_model_has_no_if_left():
    session = anydml.load(nested(16), threads=1)
    session.run(None, {"conds": np.ones(16, bool), "x": np.float32([1])})
    assert ifs(session) == 0


def test_a_condition_that_depends_on_data_keeps_its_branches(ifs_stay):
    session = loaded([*BY_DATA, if_node("c", NEG, ABS)])
    x = np.float32([1, -2, 3])
    for sign in (1, -1, 1):
        assert_same(session.run(None, {"x": x * sign})[0], -x if sign == 1 else abs(x))
    assert ifs(session) == 1
    assert plans(session) == 1
    text = session.explain()
    assert "'choose' (If): the condition is known only when it runs; it has no If" in text
    assert "kernels: Neg" in text
    assert "kernels: Abs" in text


@pytest.mark.parametrize("before", ["kernels", "a library"])
def test_small_branches_both_run_and_every_bit_is_kept(before):
    decide = BY_DATA if before == "a library" else [node("Greater", ["limit", "zero"], "c")]
    session = loaded([*decide, if_node("c", NEG, ABS)], info("limit", "float32", []))
    for x in (np.float32([0.0, np.nan, np.inf, 3]), np.float32([-0.0, -np.inf, -4, -5])):
        for limit in (1, -1):
            truth = limit > 0 if before == "kernels" else np.nansum(x) > 0 and not np.isnan(x.sum())
            assert_same(session.run(None, {"x": x, "limit": np.float32(limit)})[0], -x if truth else abs(x))
    assert ifs(session) == (before == "a library")
    how = "both branches run, and one is selected" if before == "kernels" else "it runs; onnxruntime runs it"
    assert how in session.explain()


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint64", "float16", "float64"])
def test_small_branches_of_other_types(dtype):
    built = model(
        [
            node("Greater", ["x", "zero"], "c"),
            if_node("c", branch([], [info("a", dtype)]), branch([], [info("b", dtype)])),
        ],
        [info("x"), info("a", dtype, [2]), info("b", dtype, [2])],
        [info("y", dtype)],
        initializers=WEIGHTS,
    )
    session = anydml.load(built, threads=1)
    a, b = np.array([0, 1], dtype), np.array([1, 1], dtype)
    for sign in (1, -1):
        assert_same(session.run(None, {"x": np.float32([sign]), "a": a, "b": b})[0], a if sign > 0 else b)
    assert ifs(session) == 0


def test_a_branch_that_was_never_taken_is_not_planned(ifs_stay):
    session = loaded([*BY_DATA, if_node("c", NEG, ABS)])
    session.run(None, {"x": np.float32([1])})
    assert "Neg" in session.explain()
    assert "Abs" not in session.explain()


def test_a_branch_that_stays_specialises_by_what_reaches_it(ifs_stay):
    """Inside a branch of unknown condition, a condition on the shape is known."""
    then = branch(
        [*BY_SHAPE[:2], node("Greater", ["n", "three"], "c2"), if_node("c2", NEG, ABS, "u", "inner")], ["u"]
    )
    session = loaded([*BY_DATA, if_node("c", then, branch([], ["x"]), name="outer")])
    for n in (2, 5):
        x = np.arange(n, dtype=np.float32) + 1
        assert_same(session.run(None, {"x": x})[0], -x if n > 3 else x)
        assert_same(session.run(None, {"x": -x})[0], -x)
    lines = [line for line in session.explain().splitlines() if "folded" not in line]
    assert "'inner'" not in "".join(lines)
    assert "'outer'" in "".join(lines)


def test_within_a_branch_its_condition_is_known(ifs_stay):
    inner = branch([if_node("c", NEG, ABS, "u", "inner")], ["u"])
    session = loaded([*BY_DATA, if_node("c", inner, inner, name="outer")])
    x = np.float32([1, -3, 4])
    assert_same(session.run(None, {"x": x})[0], -x)
    assert_same(session.run(None, {"x": -x})[0], abs(x))
    assert all("'inner'" not in line for line in session.explain().splitlines() if "folded" not in line)


# ---- many kinds of input -----------------------------------------------------------------------------


@pytest.mark.parametrize("decide", [BY_SHAPE, BY_DATA], ids=["by shape", "by data"])
def test_fifty_shapes(decide):
    session = loaded(
        [
            *decide,
            if_node("c", NEG, ABS, "u"),
            node("Shape", ["u"], "m"),
            node("Cast", ["m"], "z", to=1),
            node("Identity", ["u"], "y"),
        ],
        outputs=("y", "z"),
    )
    for _ in range(2):
        for n in range(50):
            for x in (np.arange(n, dtype=np.float32) - 2, np.ones((n, 2), np.float32)):
                y, z = session.run(None, {"x": x})
                truth = len(x) > 3 if decide is BY_SHAPE else x.sum() > 0
                assert_same(y, -x if truth else abs(x))
                assert_same(z, np.float32(x.shape))
    assert plans(session) <= MAX_PLANS
    assert session.explain().count("plan for") <= 3 * MAX_PLANS


def test_a_hundred_values_of_a_deciding_input():
    session = loaded(
        [
            *BY_INTEGER,
            if_node("c", NEG, ABS, "u"),
            node("Cast", ["k"], "f", to=1),
            node("Add", ["u", "f"], "y"),
        ],
        info("k", "int64", []),
    )
    x = np.float32([1, -2])
    for _ in range(2):
        for k in range(-50, 50):
            assert_same(
                session.run(None, {"x": x, "k": np.array(k)})[0], (-x if k > 3 else abs(x)) + np.float32(k)
            )
    assert plans(session) <= MAX_PLANS


def test_the_plan_that_was_not_used_longest_goes(monkeypatch, caplog):
    """Also where its runs have found it by the quick way. The log tells once that there are too many."""
    monkeypatch.setattr(plan_table, "MAX_PLANS", 3)
    session = loaded([*BY_INTEGER, if_node("c", NEG, ABS)], info("k", "int64", []))
    x = np.float32([1, -2])

    def run(k):
        assert_same(session.run(None, {"x": x, "k": np.array(k)})[0], -x if k > 3 else abs(x))

    for k in (1, 2, 9, 1, 1, 2, 7):
        run(k)
    text = session.explain()
    assert [f"k = {k}" in text for k in (1, 2, 9, 7)] == [True, True, False, True]
    run(9)
    assert "k = 1\n" not in session.explain()
    assert [r.getMessage()[:30] for r in caplog.records] == ["inputs of more than 3 kinds: p"]


def test_values_and_shapes_together():
    session = loaded([*BY_INTEGER, if_node("c", NEG, ABS)], info("k", "int64"))
    rng = np.random.default_rng(0)
    for _ in range(400):
        x = rng.integers(-9, 9, rng.integers(0, 6, rng.integers(0, 3))).astype(np.float32)
        k = int(rng.integers(-20, 20))
        shape = [(), (1,), (1, 1)][rng.integers(3)]
        assert_same(session.run(None, {"x": x, "k": np.full(shape, k)})[0], -x if k > 3 else abs(x))
    assert plans(session) <= MAX_PLANS


def test_a_deciding_input_of_equal_contents_and_other_shape():
    """(1, 2) and (2, 1) may hold the same bytes; also when there are too many shapes to plan for each."""
    decide = [node("ReduceSum", ["k"], "total", keepdims=0), node("Greater", ["total", "three"], "c")]
    session = loaded(
        [
            *decide,
            if_node("c", NEG, ABS),
            node("Shape", ["k"], "s"),
            node("Cast", ["s"], "z", to=1),
            node("Cast", ["k"], "w", to=1),
        ],
        info("k", "int64"),
        outputs=("y", "z", "w"),
    )
    x = np.float32([1, -2])
    shapes = [(n,) for n in range(1, 12)] + [(1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (1, 2), (2, 1)]
    for shape in shapes:
        k = np.full(shape, 2)
        y, z, w = session.run(None, {"x": x, "k": k})
        assert_same(y, -x if k.sum() > 3 else abs(x))
        assert_same(z, np.float32(shape))
        assert_same(w, k.astype(np.float32))


def test_a_deciding_input_of_equal_bytes_and_other_type():
    decide = [node("Cast", ["k"], "wide", to=7), node("Greater", ["wide", "three"], "c")]
    session = anydml.load(
        model(
            [*decide, if_node("c", NEG, ABS)],
            [info("x"), model([], [], []).graph.input.add(name="k")],
            [info("y")],
            initializers=WEIGHTS,
        ),
        threads=1,
    )
    x = np.float32([1, -2])
    for k in (np.int8([-1]), np.uint8([255]), np.int8([5]), np.uint8([1])):
        assert_same(session.run(None, {"x": x, "k": k})[0], -x if int(k[0]) > 3 else abs(x))


def test_a_large_integer_input_is_data(ifs_stay):
    decide = [node("ReduceSum", ["k"], "total", keepdims=0), node("Greater", ["total", "three"], "c")]
    session = loaded([*decide, if_node("c", NEG, ABS)], info("k", "int64"))
    x = np.float32([1, -2])
    for seed in range(20):
        k = np.random.default_rng(seed).integers(-3, 4, 1000)
        assert_same(session.run(None, {"x": x, "k": k})[0], -x if k.sum() > 3 else abs(x))
    assert plans(session) == 1
    assert ifs(session) == 1


def test_a_guard_that_is_an_output_too():
    session = anydml.load(
        model([if_node("cond", NEG, ABS)], [COND, info("x")], [info("y"), info("cond", "bool")]), threads=1
    )
    for truth in (True, False, True):
        feeds = {"cond": np.array(truth), "x": np.float32([1, -2])}
        _, cond = session.run(None, feeds)
        assert_same(cond, np.array(truth))
        cond[...] = not truth
        assert feeds["cond"] == truth


def test_random_numbers_are_drawn_at_every_run():
    """What is random is not known, though all its inputs are."""
    draw = node("RandomUniform", [], "r", shape=[8])
    session = anydml.load(
        model(
            [if_node("cond", branch([draw], ["r"]), branch([], ["k"]))],
            [COND],
            [info("y")],
            initializers=[initializer("k", np.zeros(8, np.float32))],
        ),
        threads=1,
    )
    first, second = (session.run(None, {"cond": np.array(True)})[0] for _ in range(2))
    assert first.tobytes() != second.tobytes()


# ---- passes ------------------------------------------------------------------------------------------


def op(name, inputs, outputs):
    return Node(OnnxOp("", name, 21), inputs, outputs)


def values(names, dtype="float32"):
    return [Value(n, TensorType(dtype, ())) for n in names]


def drop_identities(graph):
    return rewrite(graph, rules_by_root(rule for rule in CHAINS if rule.name == "identity"))


def test_drop_identities():
    x, a, b, d = values("xabd")
    graph = Graph(
        "main", (x,), (d, b), (op("Identity", (x,), (a,)), op("Identity", (a,), (b,)), op("Neg", (b,), (d,)))
    )
    assert graph_text(graph) == (
        "graph main(%x: float32[]) -> (%d, %b) {\n"
        "  %a = Identity(%x)\n"
        "  %b = Identity(%a)\n"
        "  %d = Neg(%b)\n"
        "}\n"
    )
    assert (
        graph_text(drop_identities(graph)) == "graph main(%x: float32[]) -> (%d, %x) {\n  %d = Neg(%x)\n}\n"
    )


def test_drop_identities_reaches_into_branches():
    x, a, t, y = values("xaty")
    (c,) = values("c", "bool")
    chosen = If(c, Graph("then", (a,), (t,), (op("Neg", (a,), (t,)),)), Graph("else", (a,), (a,), ()), (y,))
    graph = Graph("main", (c, x), (y,), (op("Identity", (x,), (a,)), chosen))
    assert graph_text(drop_identities(graph)) == (
        "graph main(%c: bool[], %x: float32[]) -> (%y) {\n"
        "  %y = If(%c) {\n"
        "    then(%x) -> (%t) {\n"
        "      %t = Neg(%x)\n"
        "    }\n"
        "    else(%x) -> (%x) {\n"
        "    }\n"
        "  }\n"
        "}\n"
    )


def test_drop_identities_leaves_other_domains_alone():
    x, y = values("xy")
    graph = Graph("main", (x,), (y,), (Node(OnnxOp("other", "Identity", 1), (x,), (y,)),))
    assert drop_identities(graph) is graph


def test_dead_code():
    x, a, b, d, e = values("xabde")
    (c,) = values("c", "bool")
    unused = If(c, Graph("then", (a,), (a,), ()), Graph("else", (x,), (x,), ()), (e,))
    graph = Graph(
        "main",
        (c, x),
        (d,),
        (op("Neg", (x,), (a,)), op("Abs", (x,), (b,)), unused, op("Split", (b,), (d, None))),
    )
    assert graph_text(eliminate_dead_code(graph)) == (
        "graph main(%c: bool[], %x: float32[]) -> (%d) {\n  %b = Abs(%x)\n  %d, _ = Split(%b)\n}\n"
    )


def test_dead_code_keeps_what_only_a_branch_reads():
    x, a, t, y = values("xaty")
    (c,) = values("c", "bool")
    chosen = If(c, Graph("then", (a,), (a,), ()), Graph("else", (x,), (t,), (op("Abs", (x,), (t,)),)), (y,))
    graph = Graph("main", (c, x), (y,), (op("Neg", (x,), (a,)), chosen))
    assert graph_text(eliminate_dead_code(graph)) == graph_text(graph)


def test_the_pipeline_drops_what_identities_leave_behind():
    x, a, b, d = values("xabd")
    graph = Graph(
        "main", (x,), (a,), (op("Identity", (x,), (a,)), op("Identity", (a,), (b,)), op("Neg", (b,), (d,)))
    )
    assert graph_text(simplify(graph)) == "graph main(%x: float32[]) -> (%x) {\n}\n"


def test_a_constant_that_only_a_dead_node_reads():
    session = loaded([constant("k", np.float32(2)), node("Mul", ["x", "k"], "dead"), node("Neg", ["x"], "y")])
    session.run(None, {"x": np.float32([1])})
    assert "Mul" not in session.explain()
