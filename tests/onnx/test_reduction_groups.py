"""Reductions and what is element-wise around them, in sessions: random graphs, beside onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydml
from anydml.onnx.execute import cost_model

REDUCTIONS = "Sum Mean Max Min L1 L2 SumSquare LogSumExp".split()
SIZES = [(4, 40), (3, 5, 7), (2, 16, 33), (1, 8, 20), (2, 3, 4, 33), (64, 3), (5,), (2, 1, 40)]
UNARY = "Relu Sigmoid Tanh Abs Neg Softplus".split()
BINARY = "Add Sub Mul Max Min".split()


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little is saved."""
    monkeypatch.setattr("anydml.onnx.execute.partition.CALL_SECONDS", 0.0)
    monkeypatch.setattr("anydml.onnx.execute.partition.MIN_GAIN", 0.0)
    monkeypatch.setattr(cost_model, "seconds_for_each", lambda node, reduction: 1.0)


def _model(seed):
    """A graph, all of whose values have a bounded size; and the sizes of its input."""
    rng = np.random.default_rng(seed)
    sizes = SIZES[rng.integers(len(SIZES))]
    nodes, weights, shapes = [], [], {"x": sizes}
    opset = int(rng.choice([13, 18]))

    def add(op, inputs, shape, **attributes):
        name = f"v{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        shapes[name] = shape
        return name

    def weight(content):
        weights.append(numpy_helper.from_array(content, f"w{len(weights)}"))
        return weights[-1].name

    def pick():
        names = [*shapes]
        return names[max(0, len(names) - 1 - int(rng.integers(4)))]

    for _ in range(rng.integers(3, 10)):
        name = pick()
        shape, kind = shapes[name], rng.integers(5)
        if kind < 2 and shape:
            count = int(rng.integers(1, len(shape) + 1))
            axes = sorted(int(a) for a in rng.choice(len(shape), count, replace=False))
            keeps = int(rng.integers(4) > 0)
            kept = [1 if a in axes else n for a, n in enumerate(shape)]
            result = tuple(kept if keeps else [n for a, n in enumerate(shape) if a not in axes])
            function = str(rng.choice(REDUCTIONS))
            if opset >= 18 or function == "Sum":
                reduced = add(
                    f"Reduce{function}", [name, weight(np.array(axes, np.int64))], result, keepdims=keeps
                )
            else:
                reduced = add(f"Reduce{function}", [name], result, axes=axes, keepdims=keeps)
            if keeps and rng.integers(3):
                add(str(rng.choice(BINARY)), [name, reduced], shape)
        elif kind == 2:
            add(str(rng.choice(UNARY)), [name], shape)
        elif kind == 3:
            n = shape[-1] if shape and rng.integers(2) else 1
            content = rng.uniform(-1, 1, n).astype(np.float32)
            add(str(rng.choice(BINARY)), [name, weight(content)], shape or (1,))
        else:
            other = pick()
            try:
                shape = np.broadcast_shapes(shape, shapes[other])
            except ValueError:
                continue
            add(str(rng.choice(BINARY)), [name, other], shape)
    read = {name for node in nodes for name in node.input}
    outputs = [n for n in shapes if n not in read and n != "x"] or [nodes[-1].output[0]]
    if rng.integers(2):
        outputs = list(dict.fromkeys([*outputs, nodes[int(rng.integers(len(nodes)))].output[0]]))
    declared = sizes if rng.integers(2) else [f"n{k}" for k in range(len(sizes))]
    graph = helper.make_graph(
        nodes,
        "reductions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, declared)],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        weights,
    )
    opsets = [helper.make_opsetid("", opset)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), sizes


def _compare(seed):
    model, sizes = _model(seed)
    session = anydml.load(model, threads=1 + seed % 2)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(seed)
    for _ in range(2):
        x = rng.uniform(-2, 2, sizes).astype(np.float32)
        for got, wanted in zip(session.run(None, {"x": x}), theirs.run(None, {"x": x}), strict=True):
            scale = max(np.abs(wanted).max(initial=1), 1)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5 * scale, strict=True)
    return session.explain()


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.drawn
def test_random_graphs(seed):
    assert "kernels" in _compare(seed)


def test_they_are_one_step_with_their_neighbours():
    axes = numpy_helper.from_array(np.array([-1], np.int64), "axes")
    nodes = [
        helper.make_node("ReduceMax", ["x", "axes"], ["most"]),
        helper.make_node("Sub", ["x", "most"], ["near"]),
        helper.make_node("Exp", ["near"], ["powers"]),
        helper.make_node("ReduceSum", ["powers", "axes"], ["total"]),
        helper.make_node("Div", ["powers", "total"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [16, 200]) for n in "xy")
    graph = helper.make_graph(nodes, "softmax", [x], [y], [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = anydml.load(model)
    given = np.random.default_rng(0).standard_normal((16, 200)).astype(np.float32)
    (got,) = session.run(None, {"x": given})
    powers = np.exp(given.astype(np.float64) - given.max(-1, keepdims=True))
    np.testing.assert_allclose(got, powers / powers.sum(-1, keepdims=True), rtol=1e-6)
    assert session.explain().endswith("kernels: ReduceMax, Sub, Exp, ReduceSum, Div")


@pytest.mark.parametrize(
    "nodes",
    [
        "m = ReduceMean (x, k)  y = Sub (x, m)",
        "m = ReduceMax (x, k)  d = Sub (x, m)  e = Exp (d)  s = ReduceSum (e, k)  y = Div (e, s)",
        "e = Exp (x)  y = Transpose <perm = [2, 1, 0]> (e)",
    ],
)
def test_nothing_is_made_for_ever_new_lengths(nodes):
    text = f"g (float[1,n,m] x) => (float[a,b,c] y) <int64[1] k = {{1}}> {{ {nodes} }}"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    session = anydml.load(model)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for n in range(40, 60):
        x = np.random.default_rng(n).standard_normal((1, n, n)).astype(np.float32)
        (got,), (wanted,) = session.run(None, {"x": x}), theirs.run(None, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, strict=True)
    *_, last = session.explain().split("plan for ")
    assert "onnxruntime: " in last
