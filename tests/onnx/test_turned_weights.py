"""Weights beside Transposes: onnxruntime turns some when it moves these, and they must not be taken for others.

All sizes are alike, so that nothing but the result tells.
"""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydml

SIDE = 36
BESIDE = "Add Sub Mul Max Min Where PRelu MatMul Gather Concat Reshape Pow Div Clip Mean".split()


def model_of(seed: int, names=BESIDE):
    """A row of Transposes and operators with a weight each, of which every one is square or cubic."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(2, 4))
    weights, nodes, x = [], [], "x"

    def weight(*sizes, dtype=np.float32):
        made = rng.random(sizes) < 0.5 if dtype is bool else rng.standard_normal(sizes) / 6
        if dtype is np.int64:
            made = rng.permutation(sizes[0])
        weights.append(numpy_helper.from_array(np.asarray(made, dtype), f"w{len(weights)}"))
        return weights[-1].name

    def node(operator, *inputs, **attributes):
        nodes.append(helper.make_node(operator, inputs, [f"y{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    for _ in range(int(rng.integers(2, 6))):
        for _ in range(2):
            if rng.random() < 0.7:
                x = node("Transpose", x, perm=rng.permutation(rank).tolist())
        operator = str(rng.choice(names))
        sizes = (SIDE,) * int(rng.integers(2, rank + 1))
        if operator == "Where":
            x = node("Where", weight(*sizes, dtype=bool), x, weight(*sizes))
        elif operator == "Gather":
            x = node("Gather", x, weight(SIDE, dtype=np.int64), axis=int(rng.integers(rank)))
        elif operator == "Concat":
            axis = int(rng.integers(rank))
            joined = node("Concat", x, weight(*(SIDE,) * rank), axis=axis)
            places = numpy_helper.from_array(rng.permutation(2 * SIDE)[:SIDE], f"w{len(weights)}")
            weights.append(places)
            x = node("Gather", joined, places.name, axis=axis)
        elif operator == "Reshape":
            x = node("Reshape", x, weight_of_sizes(weights, [SIDE] * rank))
        elif operator == "Clip":
            x = node("Clip", x)
        elif operator in ("Pow", "Div"):
            x = node("Div", x, node("Exp", weight(*sizes)))
        else:
            given = [x, weight(*sizes)]
            if operator in ("Sub", "MatMul") and rng.random() < 0.5:
                given.reverse()
            x = node(operator, *given)
    x = node("Transpose", x, perm=rng.permutation(rank).tolist())
    end = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [SIDE] * rank) for n in ("x", x)]
    graph = helper.make_graph(nodes, "turned", end[:1], end[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made, rng.standard_normal([SIDE] * rank).astype(np.float32)


def weight_of_sizes(weights, sizes):
    weights.append(numpy_helper.from_array(np.int64(sizes), f"w{len(weights)}"))
    return weights[-1].name


def compare(seed, names=BESIDE, path=None):
    model, x = model_of(seed, names)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (wanted,) = session.run(None, {"x": x})
    if path is not None:
        path.write_bytes(model.SerializeToString())
    (got,) = anydml.load(model if path is None else path, native=False).run(None, {"x": x})
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", BESIDE)
def test_each_operator_with_a_weight(name):
    for seed in range(4):
        compare(seed, [name])


@pytest.mark.parametrize("seed", range(100, 130))
def test_rows_of_operators(seed):
    compare(seed)


def test_from_a_file(tmp_path):
    for seed in range(200, 206):
        compare(seed, path=tmp_path / "model.onnx")
