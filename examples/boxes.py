"""What comes behind a detector, as one kernel: boxes from a grid's numbers, those of low score emptied.

    python examples/boxes.py

Ten operators in NumPy, each a pass over memory; as a graph of DirectML operators they are one kernel, which a
device of feature level 3_0 would take.
"""

import time
from collections.abc import Callable

import numpy as np

import anydml as dml

CELLS = 20_000


def with_numpy(raw: np.ndarray, score: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """[n, 4] offsets and logarithms of sizes, [n, 1] scores before the sigmoid: left, top, width, height."""
    size = np.exp(np.clip(raw, -4, 4))
    place = centre + np.tanh(raw) - size / 2
    sure = 1 / (1 + np.exp(-score)) > 0.5
    return np.where(sure, np.where(np.arange(4) < 2, place, size), np.float32(0))


def as_graph() -> dml.CompiledGraph:
    g = dml.GraphBuilder(dml.Device("3_0"))
    raw = g.input("raw", "FLOAT32", [CELLS, 4])
    score = g.input("score", "FLOAT32", [CELLS, 1])
    centre = g.input("centre", "FLOAT32", [CELLS, 4])
    first = g.input("first", "UINT8", [1, 4])
    size = dml.exp(dml.clip(raw, -4, 4))
    place = centre + dml.tanh(raw) - size * 0.5
    sure = dml.greater_than(dml.activation_sigmoid(score), 0.5)
    return g.compile({"boxes": dml.if_(sure, dml.if_(first, place, size), 0.0)})


def median(work: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    times = []
    for _ in range(50):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return float(np.median(times) * 1e3)


def main() -> None:
    rng = np.random.default_rng(0)
    raw, centre = (rng.standard_normal((CELLS, 4), np.float32) for _ in range(2))
    score = rng.standard_normal((CELLS, 1), np.float32)
    graph = as_graph()
    print(graph.explain())

    boxes = np.empty((CELLS, 4), np.float32)
    inputs = {"raw": raw, "score": score, "centre": centre, "first": np.array([[1, 1, 0, 0]], np.uint8)}
    bound = graph.bind(inputs, {"boxes": boxes})
    bound.dispatch()
    wanted = with_numpy(raw, score, centre)
    print(f"largest difference from NumPy: {np.abs(boxes - wanted).max():.1e}")
    slow, fast = median(lambda: with_numpy(raw, score, centre)), median(bound.dispatch)
    print(f"NumPy {slow:.2f} ms, one kernel {fast:.2f} ms")


if __name__ == "__main__":
    main()
