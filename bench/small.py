"""Small models that `native=True` makes programs of: what runs on microphones, and a decoder that speaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from bench.models import Case

Weights = dict[str, NDArray[np.generic]]


def small_models() -> Iterator[Case]:
    yield _model("keyword spotting, 49 frames, 64 channels", *_keywords(64, 4), {"x": (1, 1, 49, 10)}, "y")
    for width in (64, 128):
        made = _tagger(32, width, 20)
        yield _model(f"an LSTM tagger, 32 steps, width {width}", *made, {"x": (32, 1, width)}, "z")
    yield _model("greedy decoding, 32 words, width 64", *_decoder(32, 64, 100), {"h": (1, 64)}, "words")


def _random(*sizes: int) -> NDArray[np.float32]:
    return np.asarray(np.random.default_rng(sum(sizes)).standard_normal(sizes) / 10, np.float32)


def _model(
    what: str, nodes: list[NodeProto], weights: Weights, inputs: dict[str, tuple[int, ...]], output: str
) -> Case:
    feeds = {name: _random(*sizes) for name, sizes in inputs.items()}
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in feeds.items()]
    integers = output == "words"
    made = helper.make_tensor_value_info(output, TensorProto.INT64 if integers else TensorProto.FLOAT, None)
    made.type.tensor_type.ClearField("shape")
    initializers = [numpy_helper.from_array(np.asarray(w), name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "small", given, [made], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return what, bytes(model.SerializeToString()), feeds


def _keywords(channels: int, blocks: int) -> tuple[list[NodeProto], Weights]:
    """A convolution over sound's spectrum, filters for each channel and 1 x 1 by turns, a mean, 12 words."""
    nodes: list[NodeProto] = []
    weights: Weights = {}

    def convolve(x: str, filters: NDArray[np.float32], **attributes: Any) -> str:
        name = f"c{len(nodes)}"
        weights[f"{name}w"], weights[f"{name}b"] = filters, _random(len(filters))
        nodes.append(helper.make_node("Conv", [x, f"{name}w", f"{name}b"], [name], **attributes))
        nodes.append(helper.make_node("Relu", [name], [f"{name}r"]))
        return f"{name}r"

    x = convolve("x", _random(channels, 1, 10, 4), strides=[2, 2], pads=[4, 1, 5, 1])
    for _ in range(blocks):
        x = convolve(x, _random(channels, 1, 3, 3), group=channels, pads=[1] * 4)
        x = convolve(x, _random(channels, channels, 1, 1))
    weights |= {"w": _random(channels, 12), "b": _random(12)}
    nodes += [
        helper.make_node("GlobalAveragePool", [x], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["y"], axis=1),
    ]
    return nodes, weights


def _tagger(steps: int, width: int, tags: int) -> tuple[list[NodeProto], Weights]:
    weights: Weights = {
        "w": _random(1, 4 * width, width),
        "r": _random(1, 4 * width, width),
        "b": _random(1, 8 * width),
        "sizes": np.array([steps, width]),
        "tags": _random(width, tags),
    }
    return [
        helper.make_node("LSTM", ["x", "w", "r", "b"], ["states"], hidden_size=width),
        helper.make_node("Reshape", ["states", "sizes"], ["rows"]),
        helper.make_node("MatMul", ["rows", "tags"], ["z"]),
    ], weights


def _decoder(steps: int, width: int, words: int) -> tuple[list[NodeProto], Weights]:
    """A recurrent cell that is fed the word that it found most likely, until it has said so many."""
    weights: Weights = {
        "known": _random(words, width) * 10,
        "by_word": _random(width, width) * 3,
        "by_state": _random(width, width) * 3,
        "to_words": _random(width, words) * 3,
        "first_axis": np.array([0]),
        "steps": np.array(steps),
        "begin": np.array(True),
        "first": np.array(3),
    }
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["known", "word"], ["one"]),
            helper.make_node("Unsqueeze", ["one", "first_axis"], ["row"]),
            helper.make_node("MatMul", ["row", "by_word"], ["a"]),
            helper.make_node("MatMul", ["state", "by_state"], ["b"]),
            helper.make_node("Add", ["a", "b"], ["both"]),
            helper.make_node("Tanh", ["both"], ["after"]),
            helper.make_node("MatMul", ["after", "to_words"], ["scores"]),
            helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
            helper.make_node("Squeeze", ["best", "first_axis"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Identity", ["next"], ["said"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("k", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("word", TensorProto.INT64, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, width]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.INT64, []),
            helper.make_tensor_value_info("after", TensorProto.FLOAT, [1, width]),
            helper.make_tensor_value_info("said", TensorProto.INT64, []),
        ],
    )
    loop = helper.make_node(
        "Loop", ["steps", "begin", "first", "h"], ["last", "state_end", "words"], body=body
    )
    return [loop], weights
