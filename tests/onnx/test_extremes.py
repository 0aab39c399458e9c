"""Minima and maxima of INT64 that no sign of a lower half may decide, in what a library runs."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydml as dml

RNG = np.random.default_rng(5)
WEIGHTS = RNG.standard_normal((64, 64)).astype(np.float32)
SHIFT = np.array(2**31 - 32, np.int64)
BOUNDS = np.array([2**31], np.int64), np.array(2**31 - 5, np.int64), np.array(2**31 + 5, np.int64)

CASES = {
    "Min": (["j", "one"], lambda j: np.minimum(j, BOUNDS[0])),
    "Max": (["j", "one"], lambda j: np.maximum(j, BOUNDS[0])),
    "Max of three": (["low", "j", "one"], lambda j: np.maximum(j, BOUNDS[0])),
    "Min of one": (["j"], lambda j: j),
    "Clip": (["j", "low", "high"], lambda j: j.clip(BOUNDS[1], BOUNDS[2])),
    "Clip below": (["j", "low"], lambda j: np.maximum(j, BOUNDS[1])),
    "Clip above": (["j", "", "high"], lambda j: np.minimum(j, BOUNDS[2])),
    "Clip crossed": (["j", "high", "low"], lambda j: np.minimum(np.maximum(j, BOUNDS[2]), BOUNDS[1])),
}


def _model(nodes, weights):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, ["n"])
    graph = helper.make_graph(nodes, "extremes", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _constants():
    found = {"w": WEIGHTS, "shift": SHIFT, "one": BOUNDS[0], "low": BOUNDS[1], "high": BOUNDS[2]}
    return [numpy_helper.from_array(content, name) for name, content in found.items()]


HEAD = [
    helper.make_node("MatMul", ["x", "w"], ["m"]),
    helper.make_node("ArgMax", ["m"], ["i"], axis=1, keepdims=0),
    helper.make_node("Add", ["i", "shift"], ["j"]),
]


@pytest.mark.parametrize("case", CASES)
def test_values_around_a_lower_half(case):
    inputs, right = CASES[case]
    model = _model([*HEAD, helper.make_node(case.split()[0], inputs, ["y"])], _constants())
    session = dml.load(model.SerializeToString())
    for n in (2000, 3, 1):
        x = RNG.standard_normal((n, 64)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(y, right((x @ WEIGHTS).argmax(1) + SHIFT))


@pytest.mark.parametrize("opset", [13, 17, 18, 20])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("word", ["Min", "Max"])
def test_of_a_whole_tensor(word, keepdims, opset):
    nodes = [
        *HEAD,
        helper.make_node(f"Reduce{word}", ["j"], ["z"], keepdims=keepdims),
        helper.make_node("Add", ["z", "nothing"], ["y"]),
    ]
    model = _model(nodes, [*_constants(), numpy_helper.from_array(np.zeros(1, np.int64), "nothing")])
    model.opset_import[0].version = opset
    session = dml.load(model.SerializeToString())
    for n in (2000, 9, 2):
        x = RNG.standard_normal((n, 64)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        found = (x @ WEIGHTS).argmax(1) + SHIFT
        assert y.tolist() == [found.min() if word == "Min" else found.max()]


AXES = [[1], [-1], [0], [0, 1], [0, 2], [1, 2], [2, 0], [-2], [0, 1, 2], []]


def _of_several_axes(word, axes, keepdims, opset, computed=False):
    """Of [n, 4, 6] around 2^31, around -2^31 and, in one place, far from both."""
    spread = RNG.integers(-40, 40, (4, 6)) + np.array([0, 0, -(2**32), 2**40])[:, np.newaxis]
    spread[0, 0] = 2**62
    weights = [*_constants(), numpy_helper.from_array(spread, "spread")]
    weights.append(numpy_helper.from_array(np.array([-1, 1, 1]), "to"))
    nodes = [*HEAD, helper.make_node("Reshape", ["j", "to"], ["k"])]
    nodes.append(helper.make_node("Add", ["k", "spread"], ["l"]))
    inputs, attributes = ["l"], {"keepdims": keepdims} | ({"axes": axes} if opset < 18 and axes else {})
    if opset >= 18 and axes:
        inputs.append("axes")
        weights.append(numpy_helper.from_array(np.array(axes), "given"))
        nodes.append(helper.make_node("Add", ["given", "none"], ["axes"]))
        none = np.zeros(1, np.int64)
        if computed:  # 0, but only a run can tell
            nodes[-1:-1] = [
                helper.make_node("ReduceMax", ["m"], ["most"], keepdims=0),
                helper.make_node("IsNaN", ["most"], ["spoiled"]),
                helper.make_node("Cast", ["spoiled"], ["none"], to=TensorProto.INT64),
            ]
        else:
            weights.append(numpy_helper.from_array(none, "none"))
    nodes.append(helper.make_node(f"Reduce{word}", inputs, ["y"], **attributes))
    model = _model(nodes, weights)
    model.opset_import[0].version = opset
    rank = 3 if keepdims else 3 - (len(axes) or 3)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [None] * rank))
    session = dml.load(model.SerializeToString())
    for n in (33, 2, 1):
        x = RNG.standard_normal((n, 64)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        found = ((x @ WEIGHTS).argmax(1) + SHIFT).reshape(-1, 1, 1) + spread
        extreme = np.min if word == "Min" else np.max
        right = extreme(found, axis=tuple(axes) or None, keepdims=bool(keepdims))
        np.testing.assert_array_equal(y, right)


@pytest.mark.drawn
@pytest.mark.parametrize("opset", [11, 13, 18, 20])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("word", ["Min", "Max"])
def test_along_axes(word, axes, keepdims, opset):
    _of_several_axes(word, axes, keepdims, opset)


@pytest.mark.parametrize("axes", AXES[:-1], ids=str)
@pytest.mark.parametrize("word", ["Min", "Max"])
def test_along_axes_that_are_computed(word, axes):
    _of_several_axes(word, axes, 1, 18, computed=True)


@pytest.mark.parametrize("word", ["Min", "Max"])
def test_of_nothing(word):
    """The extreme of no elements is the type's last one."""
    nodes = [*HEAD, helper.make_node("Reshape", ["j", "to"], ["k"])]
    nodes.append(helper.make_node("Slice", ["k", "end", "end", "last"], ["none"]))
    nodes.append(helper.make_node(f"Reduce{word}", ["none", "last"], ["y"], keepdims=0))
    contents = {"to": [-1, 3], "end": [3], "last": [1]}
    weights = [numpy_helper.from_array(np.array(v), n) for n, v in contents.items()]
    session = dml.load(_model(nodes, [*_constants(), *weights]).SerializeToString())
    (y,) = session.run(None, {"x": RNG.standard_normal((6, 64)).astype(np.float32)})
    limits = np.iinfo(np.int64)
    assert y.tolist() == [limits.max if word == "Min" else limits.min] * 2


def test_in_a_branch_that_the_data_decides():
    small, large = (
        helper.make_graph(
            [helper.make_node(op, ["j", "one"], [f"z{op}"])],
            op,
            [],
            [helper.make_tensor_value_info(f"z{op}", TensorProto.INT64, ["n"])],
        )
        for op in ("Min", "Max")
    )
    nodes = [
        *HEAD,
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=small, else_branch=large),
    ]
    weights = [*_constants(), numpy_helper.from_array(np.float32(0), "zero")]
    session = dml.load(_model(nodes, weights).SerializeToString())
    for _ in range(6):
        x = RNG.standard_normal((50, 64)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        extreme = np.minimum if x.sum(dtype=np.float64) > 0 else np.maximum
        np.testing.assert_array_equal(y, extreme((x @ WEIGHTS).argmax(1) + SHIFT, BOUNDS[0]))
