"""Every element type through `If`, and selection and infinity tests inside branches; who owns the results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import anydml
from tests.models import (
    COND,
    DTYPES,
    FLOATS,
    INTEGERS,
    assert_same,
    branch,
    code,
    constant,
    if_node,
    info,
    initializer,
    model,
    node,
    one_if,
    run,
    sample,
    seq_info,
)

DECIDE = [node("ReduceSum", ["d"], "sum", keepdims=0), node("Greater", ["sum", "zero"], "cond")]
ZERO = initializer("zero", np.float32(0))
"""Compute the condition from floats, so that it cannot be known before the run."""


@pytest.fixture(params=["known", "fed", "computed"])
def chooser(request):
    """Makes and runs a model with `y = If(...)` for a truth that is known, fed or computed."""

    def call(then, otherwise, truth, inputs, y, opset=13, **feeds):
        origin = request.param
        before = DECIDE if origin == "computed" else []
        weights = [ZERO] if origin == "computed" else []
        extra = []
        if origin == "known":
            weights = [initializer("cond", np.array(truth))]
        elif origin == "fed":
            extra, feeds = [COND], {**feeds, "cond": np.array(truth)}
        else:
            extra, feeds = [info("d", sizes=[2])], {**feeds, "d": np.float32([1, 2]) * (1 if truth else -1)}
        built = model([*before, if_node("cond", then, otherwise)], [*inputs, *extra], [y], opset, weights)
        return run(built, **feeds)[0]

    return call


# ---- the thirty types --------------------------------------------------------------------------------


def test_the_types_of_opset_13():
    schema = onnx.defs.get_schema("If", 13)
    (types,) = (c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == "V")
    assert (len(DTYPES), len(set(types))) == (15, 30)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("how", ["as it is", "Identity", "Reshape"])
def test_captured_tensors(chooser, dtype, truth, how):
    a, b = sample(dtype, (2, 3)), sample(dtype, (6,), 2)

    def passed(name):
        if how == "as it is":
            return branch([], [info(name, dtype)])
        inputs = [name] if how == "Identity" else [name, "s"]
        made = [] if how == "Identity" else [constant("s", np.int64([3, -1]))]
        return branch([*made, node(how, inputs, "t")], [info("t", dtype)])

    inputs = [info("a", dtype, [2, 3]), info("b", dtype)]
    got = chooser(passed("a"), passed("b"), truth, inputs, info("y", dtype), a=a, b=b)
    expected = a if truth else b
    assert_same(got, expected.reshape(3, 2) if how == "Reshape" else expected)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("truth", [True, False])
def test_constant_tensors(chooser, dtype, truth):
    """One branch has a Constant node, the other an initializer."""
    a, b = sample(dtype, (2, 3)), sample(dtype, (), 1)
    then = branch([constant("t", a)], [info("t", dtype)])
    otherwise = branch([node("Identity", ["b"], "e")], [info("e", dtype)], [initializer("b", b)])
    assert_same(chooser(then, otherwise, truth, [], info("y", dtype)), a if truth else b)


@pytest.mark.drawn
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("how", ["as it is", "SequenceInsert"])
def test_captured_sequences(chooser, dtype, truth, how):
    a, b = [sample(dtype), sample(dtype, (4,), 1)], [sample(dtype, (1,), 3)]

    def passed(name):
        if how == "as it is":
            return branch([], [seq_info(name, dtype)])
        return branch(
            [constant("i", sample(dtype, (3,))), node("SequenceInsert", [name, "i"], "t")],
            [seq_info("t", dtype)],
        )

    inputs = [seq_info("a", dtype), seq_info("b", dtype)]
    got = chooser(passed("a"), passed("b"), truth, inputs, seq_info("y", dtype), a=a, b=b)
    assert_same(got, (a if truth else b) + ([] if how == "as it is" else [sample(dtype, (3,))]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("truth", [True, False])
def test_constant_sequences(chooser, dtype, truth):
    a, b = sample(dtype), sample(dtype, (4,), 1)
    made = [constant("a", a), constant("b", b), node("SequenceConstruct", ["a", "b", "a"], "s")]
    empty = [node("SequenceEmpty", [], "s", dtype=code(dtype))]
    built = branch(made, [seq_info("s", dtype)]), branch(empty, [seq_info("s", dtype)])
    assert_same(chooser(*built, truth, [], seq_info("y", dtype)), [a, b, a] if truth else [])


@pytest.mark.parametrize("truth", [True, False])
def test_sequences_go_on_after_the_if(chooser, truth):
    """What comes out of an If can be used: its length, an item, the whole joined."""
    rows = branch([node("SequenceConstruct", ["x", "x", "x"], "t")], [seq_info("t")])
    inner = if_node(
        "cond", rows, branch([node("SequenceConstruct", ["x"], "e")], [seq_info("e")]), "s", "inner"
    )
    after = [
        constant("k", np.int64(0)),
        node("SequenceAt", ["s", "k"], "at"),
        node("SequenceLength", ["s"], "n"),
    ]
    joined = [
        node("ConcatFromSequence", ["s"], "all", axis=0),
        node("Cast", ["n"], "m", to=TensorProto.FLOAT),
    ]
    then = branch(
        [inner, *after, *joined, node("Mul", ["all", "m"], "big"), node("Add", ["big", "at"], "t")], ["t"]
    )
    x = np.float32([[1, 2]])
    got = chooser(then, then, truth, [info("x")], info("y"), x=x)
    count = 3 if truth else 1
    assert_same(got, np.float32(np.repeat(x, count, 0) * count + x))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8e4m3fn", "float8e5m2", "int4", "uint4"])
@pytest.mark.parametrize("truth", [True, False])
def test_younger_types(chooser, dtype, truth):
    number = TensorProto.DataType.Value(dtype.upper())
    held = helper.tensor_dtype_to_np_dtype(number)
    a, b = np.array([1, 2, 3, -0]).astype(held), np.array([[3], [4]]).astype(held)
    declared = {n: helper.make_tensor_value_info(n, number, None) for n in "abey"}
    then, otherwise = branch([], [declared["a"]]), branch([node("Identity", ["b"], "e")], [declared["e"]])
    got = chooser(then, otherwise, truth, [declared["a"], declared["b"]], declared["y"], 21, a=a, b=b)
    assert_same(got, a if truth else b)


# ---- Where and IsInf in branches ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("truth", [True, False])
def test_where(chooser, dtype, truth):
    """Broadcasting: of captured values in one branch, of a constant and a captured one in the other."""
    c = np.array([[True, False, True], [False, False, True]])
    a, b = sample(dtype, (2, 3)), sample(dtype, (3,), 1)
    then = branch([node("Where", ["c", "a", "b"], "t")], [info("t", dtype)])
    otherwise = branch(
        [constant("k", sample(dtype, (2, 1), 3)), node("Where", ["c", "k", "b"], "e")], [info("e", dtype)]
    )
    inputs = [info("c", "bool"), info("a", dtype), info("b", dtype)]
    got = chooser(then, otherwise, truth, inputs, info("y", dtype), c=c, a=a, b=b)
    assert_same(got, np.where(c, a if truth else sample(dtype, (2, 1), 3), b))


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("dtype", "opset"), [("float32", 10), ("float64", 10), *((t, o) for t in FLOATS for o in (20, 25))]
)
@pytest.mark.parametrize("signs", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_is_inf(chooser, dtype, opset, signs):
    x = sample(dtype, (3, 4))
    positive, negative = signs
    tested = node("IsInf", ["x"], "t", detect_positive=positive, detect_negative=negative)
    then = branch([tested], [info("t", "bool")])
    otherwise = branch([node("IsNaN", ["x"], "e")], [info("e", "bool")])
    wide = x.astype(np.float64)
    expected = ((wide == np.inf) & bool(positive)) | ((wide == -np.inf) & bool(negative))
    for truth, answer in ((True, expected), (False, np.isnan(wide))):
        got = chooser(then, otherwise, truth, [info("x", dtype)], info("y", "bool"), opset, x=x)
        assert_same(got, answer)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1, 1, 1, 1, 1), (5, 1, 7)])
def test_shapes_of_where_and_is_inf(chooser, shape):
    x = np.resize(np.float32([np.inf, 1, -np.inf]), shape)
    chosen = [node("IsInf", ["x"], "i"), node("Where", ["i", "k", "x"], "t")]
    then = branch(chosen, ["t"], [initializer("k", np.float32(7))])
    got = chooser(then, branch([], ["x"]), True, [info("x")], info("y"), 20, x=x)
    assert_same(got, np.where(np.isinf(x), np.float32(7), x))


# ---- memory ------------------------------------------------------------------------------------------

PASSING = {
    "input": ([], "x"),
    "initializer": ([], "w"),
    "constant": ([constant("k", np.float32([[1, 2, 3]]))], "k"),
    "Identity": ([node("Identity", ["x"], "i")], "i"),
    "Reshape": ([constant("s", np.int64([-1])), node("Reshape", ["x", "s"], "r")], "r"),
    "Transpose": ([node("Transpose", ["x"], "r")], "r"),
    "Squeeze": ([node("Squeeze", ["x"], "r")], "r"),
    "Cast": ([node("Cast", ["x"], "r", to=1)], "r"),
    "outer": ([], "outer"),
    "Where": ([node("Where", ["always", "x", "w"], "r")], "r"),
    "shape": ([node("Shape", ["x"], "n"), node("Cast", ["n"], "r", to=1)], "r"),
}


@pytest.mark.parametrize(
    ("what", "dtype"),
    [
        *((what, "float32") for what in PASSING),
        *((what, "complex64") for what in PASSING if what not in ("Cast", "shape", "constant")),
    ],
)
def test_results_belong_to_the_caller(what, dtype):
    """Writing to a result changes neither the feeds nor another result, nor what the next run answers."""
    nodes, result = PASSING[what]
    nodes = [node("Reshape", ["x", "keep"], "outer"), *nodes]
    chosen = branch(nodes, [info(result, dtype)])
    weights = [initializer("w", np.ones((1, 3), dtype)), initializer("always", np.array([True]))]
    built = model(
        [
            node("ReduceSum", ["d"], "sum", keepdims=0),
            node("Greater", ["sum", "zero"], "computed"),
            if_node("computed", chosen, chosen, "y"),
            if_node("fed", chosen, chosen, "z"),
            node("Identity", ["z"], "again"),
        ],
        [info("x", dtype), info("fed", "bool", []), info("d")],
        [info("y", dtype), info("z", dtype), info("again", dtype)],
        initializers=[*weights, ZERO, initializer("keep", np.int64([0, 0]))],
    )
    session = anydml.load(built, threads=1)
    feeds = {"x": np.array([[4, 5, 6]], dtype), "fed": np.array(True), "d": np.float32([1])}
    first = session.run(None, feeds)
    kept = [r.copy() for r in first]
    for k, r in enumerate(first):
        assert r.flags.writeable
        assert not any(np.shares_memory(r, other) for other in [*first[:k], *feeds.values()])
        r[...] = -1
    assert_same(feeds["x"], np.array([[4, 5, 6]], dtype))
    for got, expected in zip(session.run(None, feeds), kept, strict=True):
        assert_same(got, expected)


def test_results_of_sequences_belong_to_the_caller():
    chosen = branch([node("SequenceConstruct", ["x", "w"], "t")], [seq_info("t")])
    built = model(
        [if_node("cond", chosen, branch([], [seq_info("s")]))],
        [COND, info("x"), seq_info("s")],
        [seq_info("y")],
        initializers=[initializer("w", np.float32([7]))],
    )
    session = anydml.load(built, threads=1)
    for truth in (True, False):
        feeds = {"cond": np.array(truth), "x": np.float32([1, 2]), "s": [np.float32([3]), np.float32([4])]}
        expected = [np.float32([1, 2]), np.float32([7])] if truth else [np.float32([3]), np.float32([4])]
        for _ in range(2):
            (got,) = session.run(None, feeds)
            assert_same(got, expected)
            for item in got:
                item[...] = -1
            got.clear()
        assert_same(feeds["x"], np.float32([1, 2]))
        assert_same(feeds["s"], [np.float32([3]), np.float32([4])])


@pytest.mark.parametrize(
    "layout", ["transposed", "reversed", "every second", "broadcast", "big-endian", "read-only"]
)
@pytest.mark.parametrize("op", ["Where", "Neg", "as it is"])
def test_feeds_of_any_layout(chooser, layout, op):
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = {
        "transposed": plain.T.copy().T,
        "reversed": plain[::-1, ::-1],
        "every second": np.repeat(plain, 2, 1)[:, ::2],
        "broadcast": np.broadcast_to(plain[:1], (3, 4)),
        "big-endian": plain.astype(">f4"),
        "read-only": plain.copy(),
    }[layout]
    x.flags.writeable = layout not in ("read-only", "broadcast") and x.flags.writeable
    used = {
        "Where": [constant("k", np.array([[True, False, True, False]])), node("Where", ["k", "x", "z"], "t")],
        "Neg": [node("Neg", ["x"], "t")],
    }
    then = branch(used[op], ["t"], [initializer("z", np.float32(0))]) if op in used else branch([], ["x"])
    want = {"Where": np.where([True, False, True, False], x, np.float32(0)), "Neg": -x, "as it is": x}[op]
    got = chooser(then, then, True, [info("x")], info("y"), x=x)
    assert got.flags.writeable
    assert_same(np.ascontiguousarray(got), np.ascontiguousarray(want).astype(np.float32))


@pytest.mark.parametrize("dtype", ["U3", object])
def test_strings_of_both_kinds(dtype):
    built = one_if(branch([], [info("x", "string")]), branch([], [info("x", "string")]), info("x", "string"))
    built.graph.output[0].CopyFrom(info("y", "string"))
    (got,) = run(built, cond=np.array(True), x=np.array(["ä", "", "abc"], dtype))
    assert_same(got, np.array(["ä", "", "abc"], object))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_arithmetic_in_branches(chooser, dtype):
    x = np.array([1, 2, 3], dtype)
    then = branch([node("Add", ["x", "x"], "t")], [info("t", dtype)])
    otherwise = branch([node("Mul", ["x", "x"], "e")], [info("e", dtype)])
    inputs, y = [info("x", dtype)], info("y", dtype)
    assert_same(chooser(then, otherwise, True, inputs, y, 14, x=x), x + x)
    assert_same(chooser(then, otherwise, False, inputs, y, 14, x=x), x * x)
