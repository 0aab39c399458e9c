"""Reductions in sessions: by kernels where a library takes longer, and of the same answers."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import anydml
from anydml.onnx.execute import cost_model

FUNCTIONS = "Sum Mean Max Min L1 L2 SumSquare LogSumExp".split()
CASES = [
    ((4, 16, 8, 40), (1,)),
    ((4, 16, 8, 40), (2, 3)),
    ((4, 16, 8, 40), (0, 2)),
    ((4, 16, 8, 40), (-1,)),
    ((4, 16, 8, 40), (0, 1, 2, 3)),
    ((1, 64, 40), (1,)),
    ((3, 1, 1, 50), (1, -1)),
]


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """However little is saved."""
    monkeypatch.setattr("anydml.onnx.execute.partition.CALL_SECONDS", 0.0)
    monkeypatch.setattr("anydml.onnx.execute.partition.MIN_GAIN", 0.0)
    monkeypatch.setattr(cost_model, "seconds_for_each", lambda node, reduction: 1.0)


def _model(op, axes, keeps, opset=18, sizes=None, dtype=TensorProto.FLOAT, **attributes):
    given, inputs = [], ["x"]
    if axes is not None and opset >= 18 and not op.startswith("Arg"):
        given, inputs = [onnx.numpy_helper.from_array(np.array(axes, np.int64), "axes")], ["x", "axes"]
    elif axes is not None:
        attributes |= {"axis": axes[0]} if op.startswith("Arg") else {"axes": axes}
    node = helper.make_node(op, inputs, ["y"], keepdims=keeps, **attributes)
    made = TensorProto.INT64 if op.startswith("Arg") else dtype
    x, y = helper.make_tensor_value_info("x", dtype, sizes), helper.make_tensor_value_info("y", made, None)
    graph = helper.make_graph([node], "reduction", [x], [y], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _inputs(shape):
    """Plain numbers, then what sums and extremes may stumble over; several times the greatest."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape).astype(np.float32)
    yield x
    yield np.where(rng.random(shape) < 0.02, np.float32(np.inf), x)
    yield np.where(rng.random(shape) < 0.02, np.float32(-np.inf), x)
    yield np.full(shape, -np.inf, np.float32)
    yield abs(x) * np.float32(1e25)
    yield np.round(x)
    yield np.zeros(shape, np.float32)


def _compare(model, xs):
    session = anydml.load(model, threads=1)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for x in xs:
        (got,), (wanted,) = session.run(None, {"x": x}), theirs.run(None, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, strict=True)
    return session.explain()


@pytest.mark.drawn
@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize(("shape", "axes"), CASES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_of_the_same_answers(function, shape, axes, keeps):
    op = f"Reduce{function}"
    told = _compare(_model(op, axes, keeps, sizes=shape), _inputs(shape))
    assert told.endswith(f"  kernels: {op}")
    told = _compare(_model(op, axes, keeps, opset=11, sizes=[None] * len(shape)), _inputs(shape))
    assert told.endswith(f"  kernels: {op}")


@pytest.mark.parametrize("keeps", [0, 1])
@pytest.mark.parametrize(("shape", "axes"), [c for c in CASES if len(c[1]) == 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places(op, shape, axes, keeps):
    for opset in (11, 18):  # the former has no select_last_index
        told = _compare(_model(op, axes, keeps, opset, sizes=shape), _inputs(shape))
        assert told.endswith(f"kernels: {op}")


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceL2", "ReduceLogSumExp", "ArgMax"])
def test_along_one_element(op):
    _compare(_model(op, (0,), 1, sizes=(1, 64, 40)), _inputs((1, 64, 40)))
    _compare(_model(op, (0,), 0, sizes=[None] * 3), _inputs((1, 64, 40)))


def test_last_places_are_the_librarys():
    told = _compare(_model("ArgMax", (1,), 1, sizes=(2, 3, 4), select_last_index=1), _inputs((2, 3, 4)))
    assert "kernels" not in told


@pytest.mark.parametrize("dtype", [TensorProto.DOUBLE, TensorProto.INT32])
def test_other_types_are_the_librarys(dtype):
    given = np.arange(24, dtype=helper.tensor_dtype_to_np_dtype(dtype)).reshape(2, 3, 4)
    assert "kernels" not in _compare(_model("ReduceSum", (1,), 1, sizes=(2, 3, 4), dtype=dtype), [given])


def test_all_axes_and_none_are_the_librarys():
    assert "kernels" not in _compare(_model("ReduceSum", None, 0, sizes=(2, 3, 4)), _inputs((2, 3, 4)))


def test_shapes_change_and_may_be_empty():
    model = _model("ReduceL1", (1,), 1, sizes=[None, None, None])
    shapes = [(2, 3, 40), (2, 5, 40), (3, 3, 1), (2, 1, 40), (0, 3, 4), (2, 3, 0), (2, 3, 40)]
    rng = np.random.default_rng(0)
    _compare(model, [rng.standard_normal(s).astype(np.float32) for s in shapes])
    _compare(model, [rng.standard_normal((40, 3, 4)).astype(np.float32).T for _ in range(2)])


def test_a_result_is_the_callers():
    session = anydml.load(_model("ReduceSum", (1,), 1, sizes=(2, 3, 40)))
    first = session.run(None, {"x": np.ones((2, 3, 40), np.float32)})[0]
    session.run(None, {"x": np.zeros((2, 3, 40), np.float32)})
    np.testing.assert_array_equal(first, np.full((2, 1, 40), 3, np.float32))


def test_neighbours_stay_where_they_are(monkeypatch):
    """Between products it is a step of its own, and the library runs the products."""
    text = """
        <ir_version: 8, opset_import: ["" : 18]>
        norm (float[1,64,48] x, float[48,48] w) => (float[1,64,48] y) {
            axes = Constant<value = int64[1] {1}>()
            a = MatMul(x, w)
            n = ReduceL2(a, axes)
            b = Div(a, n)
            y = MatMul(b, w)
        }
    """
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(1)
    feed = {"x": rng.random((1, 64, 48), np.float32), "w": rng.random((48, 48), np.float32)}
    session = anydml.load(model)
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(2):
        np.testing.assert_allclose(session.run(None, feed)[0], theirs.run(None, feed)[0], rtol=1e-5)
    assert "kernels: ReduceL2" in session.explain()
    assert "MatMul" in session.explain()
