"""Transposes in sessions: by kernels where a library moves elements one by one, and of the same results."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import anydml
from anydml.onnx.execute.turns import Turn

TYPES = "float32 float16 float64 int64 int32 uint8 bool".split()


def _load(nodes, given, weights=(), declared=None):
    graph = helper.make_graph(
        nodes,
        "turns",
        [
            helper.make_tensor_value_info(
                "x", helper.np_dtype_to_tensor_dtype(given.dtype), declared or given.shape
            )
        ],
        [helper.make_empty_tensor_value_info("y")],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True)
    model.graph.output[0].CopyFrom(inferred.graph.output[0])
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return anydml.load(model, threads=1), theirs


def _turn(source, result, order):
    return helper.make_node("Transpose", [source], [result], perm=[int(a) for a in order])


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dtype", TYPES)
def test_random_orders_between_elementwise_nodes(dtype, seed, monkeypatch):
    monkeypatch.setattr("anydml.onnx.execute.partition.CALL_SECONDS", 0.0)
    monkeypatch.setattr("anydml.onnx.execute.partition.MIN_GAIN", 0.0)
    rng = np.random.default_rng([seed, TYPES.index(dtype)])
    rank = int(rng.integers(1, 7))
    sizes = [int(n) for n in rng.choice([1, 2, 3, 5, 8, 17], rank)]
    order, back = rng.permutation(rank), rng.permutation(rank)
    given = (rng.standard_normal(sizes) * 50).astype(dtype)
    if dtype == "bool":
        before, after = helper.make_node("Not", ["x"], ["a"]), helper.make_node("Xor", ["b", "c"], ["d"])
    else:
        before, after = (
            helper.make_node("Max", ["x", "x"], ["a"]),
            helper.make_node("Where", ["k", "b", "c"], ["d"]),
        )
    nodes = [before, _turn("a", "b", order), _turn("x", "c", order), after, _turn("d", "y", back)]
    weights = [numpy_helper.from_array(rng.random([sizes[a] for a in order]) < 0.5, "k")]
    declared = [f"n{k}" for k in range(rank)] if seed % 2 else None
    ours, theirs = _load(nodes, given, weights if dtype != "bool" else (), declared)
    for _ in range(2):
        (got,), (wanted,) = ours.run(None, {"x": given}), theirs.run(None, {"x": given})
        np.testing.assert_array_equal(got, wanted, strict=True)
    assert "kernels" in ours.explain() or "Reshape" in ours.explain()


def test_without_elements_and_with_other_sizes():
    nodes = [_turn("x", "t", (2, 0, 1)), helper.make_node("Relu", ["t"], ["y"])]
    ours, theirs = _load(nodes, np.zeros((2, 3, 4), np.float32), declared=["a", "b", "c"])
    for sizes in ((2, 3, 4), (0, 3, 4), (2, 3, 0), (1, 1, 1), (70, 9, 33), (2, 3, 4)):
        given = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
        (got,), (wanted,) = ours.run(None, {"x": given}), theirs.run(None, {"x": given})
        np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.mark.parametrize(
    ("order", "slow"),
    [
        ((0, 1, 2), False),
        ((0, 2, 1), False),
        ((2, 0, 1), False),
        ((1, 2, 0), False),
        ((1, 0, 2), False),
        ((2, 1, 0), True),
        ((0, 1, 4, 2, 5, 3), True),
        ((1, 0, 3, 2), True),
        ((2, 0, 3, 1, 4), False),
        ((3, 0, 2, 1), True),
    ],
)
def test_which_a_library_does_one_by_one(order, slow):
    assert Turn(order, "float32").is_slow is slow


def test_a_pixel_shuffle_behind_a_convolution():
    rng = np.random.default_rng(0)
    given = rng.standard_normal((1, 8, 96, 96)).astype(np.float32)
    weights = [
        numpy_helper.from_array(rng.standard_normal((64, 8, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(np.array([1, 16, 2, 2, 96, 96]), "apart"),
        numpy_helper.from_array(np.array([1, 16, 192, 192]), "together"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "apart"], ["r"]),
        _turn("r", "t", (0, 1, 4, 2, 5, 3)),
        helper.make_node("Reshape", ["t", "together"], ["y"]),
    ]
    ours, theirs = _load(nodes, given, weights)
    (got,), (wanted,) = ours.run(None, {"x": given}), theirs.run(None, {"x": given})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    assert "kernels: Transpose" in ours.explain()


def test_transposes_that_a_library_does_well_stay():
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32), "w")]
    nodes = [_turn("x", "t", (0, 2, 1)), helper.make_node("MatMul", ["t", "w"], ["y"])]
    ours, theirs = _load(nodes, rng.standard_normal((8, 64, 512)).astype(np.float32), weights)
    given = np.ones((8, 64, 512), np.float32)
    np.testing.assert_allclose(
        ours.run(None, {"x": given})[0], theirs.run(None, {"x": given})[0], rtol=1e-5, atol=1e-4
    )
    assert "kernels" not in ours.explain()
