"""Models with control flow that are run against onnxruntime, one thread each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Feeds = dict[str, Any]
Case = tuple[str, bytes, Feeds]

_HEAD = '<ir_version: 8, opset_import: ["": 17]> m '
_OTHERWISE = "{ w = Mul (x, x) }"
_TEN = """h = Constant <value_float = 0.5> ()  a1 = Mul (x, h)  a2 = Add (a1, x)  a3 = Abs (a2)
    a4 = Sub (a3, h)  a5 = LeakyRelu <alpha = 0.1> (a4)  a6 = Mul (a5, a5)  a7 = Add (a6, h)
    a8 = Sqrt (a7)  a9 = Sub (a8, x)  a10 = Mul (a9, h)"""


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    four, truth = np.ones(4, np.float32), np.array(True)
    yield from _silero(rng)
    yield (
        "one If on 4 floats",
        _model(f"(bool c, float[4] x) => (float[4] y) {{ {_nested(1)} }}"),
        {
            "c": truth,
            "x": four,
        },
    )
    yield (
        "20 nested Ifs on 4 floats",
        _model(f"(bool c, float[4] x) => (float[4] y) {{ {_nested(20)} }}"),
        {
            "c": truth,
            "x": four,
        },
    )
    condition = "z = Constant <value_float = 0.0> ()  c = Greater (t, z)"
    yield (
        "an If on 4 floats, its condition computed",
        _model(f"(float t, float[4] x) => (float[4] y) {{ {condition}  {_nested(1)} }}"),
        {"t": np.array(1, np.float32), "x": four},
    )
    ten = f"""y = If (c) <then_branch = t () => (float[n] a10) {{ {_TEN} }},
                          else_branch = e () => (float[n] w) {_OTHERWISE}>"""
    yield (
        "a branch of ten element-wise nodes on 2^20 floats",
        _model(f"(bool c, float[n] x) => (float[n] y) {{ {ten} }}"),
        {"c": truth, "x": rng.standard_normal(1 << 20).astype(np.float32)},
    )

    yield (
        "a convolutional network without If",
        _convolutions(rng),
        {"x": rng.standard_normal((1, 3, 64, 64)).astype(np.float32)},
    )


def _convolutions(rng: np.random.Generator) -> bytes:
    """Six convolutions of 3 x 3 with Relu, then a mean."""
    nodes, weights, channels, x = [], [], 3, "x"
    for k, width in enumerate((32, 32, 32, 64, 64, 64)):
        w = (rng.standard_normal((width, channels, 3, 3)) / (9 * channels) ** 0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        stride = 2 if k in (1, 3) else 1
        nodes.append(helper.make_node("Conv", [x, f"w{k}"], [f"c{k}"], pads=[1] * 4, strides=[stride] * 2))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"]))
        channels, x = width, f"r{k}"
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["y"]))
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 64, 64])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "convolutions", [given], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def _silero(rng: np.random.Generator) -> Iterator[Case]:
    from demo.speech import CONTEXT, WINDOW, model_path

    for rate in (16000, 8000):
        feeds = {
            "input": (rng.standard_normal((1, WINDOW[rate] + CONTEXT[rate])) * 0.1).astype(np.float32),
            "state": rng.standard_normal((2, 1, 128)).astype(np.float32),
            "sr": np.array(rate),
        }
        yield f"Silero VAD, a window at {rate} Hz", model_path().read_bytes(), feeds


def _nested(depth: int, result: str = "y") -> str:
    if depth == 0:
        return f"{result} = Add (x, x)"
    inner = f"v{depth}"
    taken = f"t{depth} () => (float[4] {inner}) {{ {_nested(depth - 1, inner)} }}"
    other = f"e{depth} () => (float[4] w) {_OTHERWISE}"
    return f"{result} = If (c) <then_branch = {taken}, else_branch = {other}>"


def _model(text: str) -> bytes:
    return bytes(onnx.parser.parse_model(_HEAD + text).SerializeToString())
