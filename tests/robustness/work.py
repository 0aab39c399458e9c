"""What the scenarios run: an operator, a graph and a session with an If, whose results NumPy tells, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import anydml as dml

Array = NDArray[Any]

MODEL = """<ir_version: 8, opset_import: ["": 17]> m (bool c, float[N] x, float[N] w) => (float[N] y) {
    y = If (c) <then_branch = t () => (float[N] p) { p = Add (x, w) },
                else_branch = e () => (float[N] r) { r = Mul (x, w) }>
}"""


def operator(size: int, threads: int | None = None) -> Any:
    """ELEMENT_WISE_IF on `size` floats, compiled."""
    tensor = {"DataType": "FLOAT32", "Sizes": [size]}
    device = dml.Device(threads=threads)
    made = device.create_operator(
        {
            "Type": "ELEMENT_WISE_IF",
            "Desc": {
                "ConditionTensor": {"DataType": "UINT8", "Sizes": [size]},
                "ATensor": tensor,
                "BTensor": tensor,
                "OutputTensor": tensor,
            },
        }
    )
    return device.compile_operator(made)


def graph(size: int, threads: int | None = None) -> Any:
    """(a + b) * a where that is positive, else a softmax of b."""
    g = dml.GraphBuilder(dml.Device(threads=threads))
    a, b = (g.input(name, "FLOAT32", [1, size]) for name in "ab")
    both = (a + b) * a
    return g.compile({"y": dml.if_(both > 0.0, both, dml.activation_softmax1(b, axes=[1]))})


def session() -> dml.Session:
    """An If whose branches add or multiply."""
    return dml.load(onnx.parser.parse_model(MODEL), threads=1)


def feeds(size: int, seed: int) -> tuple[Array, Array, Array]:
    """A condition and two arrays."""
    rng = np.random.default_rng(seed)
    condition = rng.integers(0, 2, size).astype(np.uint8)
    a, b = (rng.standard_normal(size).astype(np.float32) for _ in range(2))
    return condition, a, b


def operator_call(compiled: Any, size: int, seed: int) -> Callable[[], bool]:
    """A dispatch on arrays of its own, and whether the result is right."""
    condition, a, b = feeds(size, seed)
    y, expected = np.zeros(size, np.float32), np.where(condition, a, b)
    bound = compiled.bind({"ConditionTensor": condition, "ATensor": a, "BTensor": b}, {"OutputTensor": y})

    def call() -> bool:
        y[:] = 0
        bound.dispatch()
        return bool((y == expected).all())

    return call


def graph_call(compiled: Any, size: int, seed: int) -> Callable[[], bool]:
    """A call of a graph, and whether the result has the bits of the first."""
    _, a, b = feeds(size, seed)
    given = {"a": a.reshape(1, -1), "b": b.reshape(1, -1)}
    expected = compiled(given)["y"].copy()
    both = (given["a"] + given["b"]) * given["a"]
    soft = np.exp(given["b"] - given["b"].max())
    near = np.where(both > 0, both, soft / soft.sum())
    assert np.allclose(expected, near, rtol=1e-5, atol=1e-6)
    return lambda: bool((compiled(given)["y"] == expected).all())


def session_call(loaded: dml.Session, size: int, seed: int) -> Callable[[], bool]:
    """Runs of a session, whose condition changes, and whether the result is right."""
    _, x, w = feeds(size, seed)
    expected = {True: x + w, False: x * w}
    turn = [seed % 2 == 0]

    def call() -> bool:
        turn[0] = not turn[0]
        (y,) = loaded.run(None, {"c": np.array(turn[0]), "x": x, "w": w})
        return bool((y == expected[turn[0]]).all())

    return call


def all_right() -> bool:
    """One of each kind, once."""
    return (
        operator_call(operator(100), 100, 1)()
        and graph_call(graph(100), 100, 2)()
        and session_call(session(), 100, 3)()
    )
