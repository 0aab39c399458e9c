"""Small models without control flow: a library runs them, and after many runs a program."""

import threading

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import anydml
from anydml.codegen import jit
from anydml.onnx.execute import native
from anydml.onnx.execute.native import MAX_PLAIN_WORK, PLAIN_NODES

RUNS, ON_DISK = 5, 2


@pytest.fixture(autouse=True)
def soon(monkeypatch, tmp_path):
    """After fewer runs, and with nothing on disk."""
    monkeypatch.setattr(native, "PLAIN_RUNS", RUNS)
    monkeypatch.setattr(native, "PLAIN_RUNS_ON_DISK", ON_DISK)
    monkeypatch.setenv("ANYDML_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ANYDML_DETERMINISTIC", raising=False)


def layers(width: int = 8, count: int = 2) -> onnx.ModelProto:
    """Products with activations, and a constant output."""
    draw, made, x = np.random.default_rng(width), [], "x"
    weights = [onnx.numpy_helper.from_array(np.float32([1, 2]), "told")]
    for k in range(count):
        weight = draw.standard_normal((width, width)).astype(np.float32) / np.float32(np.sqrt(width))
        weights.append(onnx.numpy_helper.from_array(weight, f"w{k}"))
        made += [
            onnx.helper.make_node("MatMul", [x, f"w{k}"], [f"h{k}"]),
            onnx.helper.make_node("Tanh", [f"h{k}"], [f"t{k}"]),
        ]
        x = f"t{k}"
    made += [onnx.helper.make_node("Identity", [a], [b]) for a, b in ((x, "y"), ("told", "z"))]
    value = onnx.helper.make_tensor_value_info
    ends = [value("x", 1, ["n", width])], [value("y", 1, ["n", width]), value("z", 1, [2])]
    graph = onnx.helper.make_graph(made, "g", *ends, weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def fed(n: int, width: int = 8) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(n).standard_normal((n, width)).astype(np.float32)}


def is_program(session) -> bool:
    """Of the last plan, without asking for what it will be."""
    steps = session._program._last.plan.steps
    return [type(s).__name__ for s in steps] == ["NativeStep"]


def check(session, model, feed):
    for found, wanted in zip(session.run(None, feed), ReferenceEvaluator(model).run(None, feed), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_program_after_many_runs():
    model = layers()
    session = anydml.load(model)
    seen = []
    for _ in range(RUNS + 4):
        check(session, model, fed(3))
        seen.append(is_program(session))
    assert seen == sorted(seen)
    assert seen.count(False) == RUNS
    again, seen = anydml.load(model), []  # whose code is on disk by now
    for _ in range(RUNS):
        check(again, model, fed(3))
        seen.append(is_program(again))
    assert seen == sorted(seen)
    # where the system tells no processor from another, nobody knows that before
    assert seen.count(False) == (ON_DISK if jit._mark() else RUNS)


def test_by_each_shape():
    model = layers()
    session = anydml.load(model)
    for k in range(6 * RUNS):
        check(session, model, fed(1 + k % 4))
    assert is_program(session)
    for n in (1, 2, 3, 4, 17, 300):
        check(session, model, fed(n))


def test_bound_arrays():
    model = layers()
    session, feed = anydml.load(model), fed(2)
    y, z = np.empty((2, 8), np.float32), np.empty(2, np.float32)
    bound = session.bind(feed, {"y": y, "z": z})
    wanted = ReferenceEvaluator(model)
    for k in range(2 * RUNS + 4):
        feed["x"][:] = k
        bound.run()
        np.testing.assert_allclose(y, wanted.run(None, feed)[0], rtol=1e-5)
        np.testing.assert_array_equal(z, [1, 2])
    assert is_program(session)


def test_from_several_threads():
    model = layers()
    session, errors = anydml.load(model), []

    def work(n):
        try:
            for _ in range(3 * RUNS):
                check(session, model, fed(n))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(1 + k % 2,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert is_program(session)


def test_what_a_run_gives_is_the_callers():
    session = anydml.load(layers())
    for _ in range(2 * RUNS):
        y, z = session.run(None, fed(2))
        y[:], z[:] = 9, 9
        np.testing.assert_array_equal(session.run(None, fed(2))[1], [1, 2])


@pytest.mark.parametrize("model", [layers(8, PLAIN_NODES), layers(512, 1)], ids=["many nodes", "much work"])
def test_larger_ones_are_left_to_libraries(model):
    session = anydml.load(model)
    width = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    n = 1 if width < 100 else 1 + 8 * MAX_PLAIN_WORK // width**2
    for _ in range(2 * RUNS):
        check(session, model, fed(n, width))
    assert not is_program(session)


@pytest.mark.parametrize(
    ("node", "rows", "as_program"),
    [
        ("Add (x, x)", 256, True),
        ("Tanh (x)", 512, False),
        ("Softmax (x)", 32, True),
        ("Softmax (x)", 256, False),
        ("MatMul (x, w)", 8, True),
        ("MatMul (x, w)", 64, False),
    ],
)
def test_what_takes_no_longer_than_a_call_of_a_library(node, rows, as_program):
    """An element of a softmax takes seven times as long as one of a sum."""
    head = '<ir_version: 8, opset_import: ["": 17]> m (float[n,256] x) => (float[n,256] y)'
    model = onnx.parser.parse_model(f"{head} {{ y = {node} }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), "w"))
    session, x = anydml.load(model), np.ones((rows, 256), np.float32)
    for _ in range(2 * RUNS):
        session.run(None, {"x": x})
    assert is_program(session) == as_program


def test_quantized_ones_are_left_to_libraries():
    """They compute with integers there."""
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[4] x) => (float[4] y) {
        scale = Constant <value = float {0.1}> ()
        zero = Constant <value = uint8 {128}> ()
        a = QuantizeLinear (x, scale, zero)  b = DequantizeLinear (a, scale, zero)  c = Relu (b)
        d = QuantizeLinear (c, scale, zero)  y = DequantizeLinear (d, scale, zero)
    }"""
    session = anydml.load(onnx.parser.parse_model(text))
    for _ in range(2 * RUNS):
        session.run(None, {"x": np.float32([-1, 0, 1, 2])})
    assert not is_program(session)


def test_explain_tells_what_will_run():
    session = anydml.load(layers())
    session.run(None, fed(3))
    assert "program: MatMul, Tanh, MatMul, Tanh, as machine code" in session.explain()
    assert "program" not in anydml.load(layers(), native=False).explain()


def test_not_where_none_is_wanted():
    session = anydml.load(layers(), native=False)
    for _ in range(2 * RUNS):
        session.run(None, fed(3))
    assert not is_program(session)
