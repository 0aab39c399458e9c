"""Small models without control flow: `python -m bench.plain`, for docs/programs.md.

Microseconds of a run by onnxruntime; by anydml in its first 1,000 runs, which it leaves to onnxruntime; and
as the program that it has from then on, or after 100 in other processes; one thread. And milliseconds of the
run that makes the program.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import parser
from rich.console import Console
from rich.table import Table

import anydml
from anydml.onnx.execute.native import PLAIN_RUNS

MODELS: dict[str, tuple[dict[str, tuple[int, ...]], str]] = {
    "an element-wise chain on 64 floats": (
        {"x": (64,)},
        """(float[64] x) => (float[64] y) {
            a = Sigmoid (x) b = Mul (x, a) c = Tanh (b) d = Add (c, x) e = Exp (d) y = Neg (e)
        }""",
    ),
    "a policy: dense layers of 17, 64, 64 and 7": (
        {"x": (1, 17), "w1": (17, 64), "b1": (64,), "w2": (64, 64), "b2": (64,), "w3": (64, 7), "b3": (7,)},
        """(float[1, 17] x) => (float[1, 7] y) {
            a = Gemm (x, w1, b1) b = Tanh (a) c = Gemm (b, w2, b2) d = Tanh (c) y = Gemm (d, w3, b3)
        }""",
    ),
    "layer normalisation and softmax of 20 x 64": (
        {"x": (20, 64), "scale": (64,), "bias": (64,)},
        """(float[20, 64] x) => (float[20, 64] y) {
            a = LayerNormalization (x, scale, bias) y = Softmax (a)
        }""",
    ),
    "an LSTM of 16, 8 steps": (
        {"x": (8, 1, 8), "w": (1, 64, 8), "r": (1, 64, 16), "b": (1, 128)},
        """(float[8, 1, 8] x) => (float[8, 1, 1, 16] y) {
            y = LSTM <hidden_size = 16> (x, w, r, b)
        }""",
    ),
    "two convolutions of 8 channels on 8 x 8": (
        {"x": (1, 3, 8, 8), "w1": (8, 3, 3, 3), "w2": (8, 8, 3, 3)},
        """(float[1, 3, 8, 8] x) => (float[1, 8, 4, 4] y) {
            a = Conv (x, w1) b = Relu (a) c = Conv (b, w2) y = Relu (c)
        }""",
    ),
}


def made(shapes: dict[str, tuple[int, ...]], text: str) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """The model, whose weights are all that is there beside x; and something to feed it."""
    draw = np.random.default_rng(0)
    arrays = {n: draw.standard_normal(sizes).astype(np.float32) / 4 for n, sizes in shapes.items()}
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> plain {text}')
    for name, x in arrays.items():
        if name != "x":
            model.graph.initializer.add(name=name, data_type=1, dims=x.shape, raw_data=x.tobytes())
    return model.SerializeToString(), {"x": arrays["x"]}


def seconds(call: Callable[[], object], times: int) -> list[float]:
    """Of each call."""
    found = []
    for _ in range(times):
        begin = perf_counter()
        call()
        found.append(perf_counter() - begin)
    return found


def rows() -> Iterator[tuple[str, ...]]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    for name, given in MODELS.items():
        model, feed = made(*given)
        theirs = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        peer = median(seconds(lambda: theirs.run(None, feed), 3 * PLAIN_RUNS))  # noqa: B023
        ours = anydml.load(model, threads=1)
        first = seconds(lambda: ours.run(None, feed), PLAIN_RUNS + 10)  # noqa: B023
        after = median(seconds(lambda: ours.run(None, feed), 3 * PLAIN_RUNS))  # noqa: B023
        before, making = median(first[10 : PLAIN_RUNS - 10]), max(first[PLAIN_RUNS - 10 :])
        yield (
            name,
            f"{1e6 * peer:.1f} µs",
            f"{1e6 * before:.1f} µs",
            f"{1e6 * after:.2f} µs",
            f"{after / peer:.2f}",
            f"{1e3 * making:.0f} ms",
        )


def main() -> None:
    """Print the table, with nothing on disk."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ANYDML_CACHE_DIR"] = folder
        table = Table("model", "onnxruntime", "anydml at first", "as a program", "ratio", "making it")
        for row in rows():
            table.add_row(*row)
        Console().print(table)


if __name__ == "__main__":
    main()
