"""DirectML's larger operators beside onnxruntime with bound memory, each by one operator of ONNX.

`python -m bench.tensors anydml|onnxruntime --threads N` is one library alone in its process: it is told
places of operators, line by line, and answers with the seconds of one call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

import anydml as dml
from bench.measure import ROUNDS, middle, rounds, until_quiet

Call = Callable[[], object]
_PROVIDER = "CPUExecutionProvider"
_RNG = np.random.default_rng(0)


def main() -> None:
    """Answer each line, the place of an operator, with the seconds of one call of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.tensors", description=__doc__)
    parser.add_argument("library", choices=["anydml", "onnxruntime"])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--only", default="", help="operators whose name contains this")
    asked = parser.parse_args()
    every = [pair for pair in pairs_of_tensors(asked.threads) if asked.only in pair[0]]
    calls = [ours if asked.library == "anydml" else theirs for _, ours, theirs in every]
    print(json.dumps([name for name, _, _ in every]), flush=True)
    for line in sys.stdin:
        seconds = rounds({"": calls[int(line)]}, 0.04, 1)[""][0]
        until_quiet()  # threads that spin take the other process's cores
        print(json.dumps(seconds), flush=True)


def tensors_alone(threads: int, only: str = "") -> Iterator[tuple[str, float, float]]:
    """Of each operator our seconds and onnxruntime's: each library alone in its process, in turns, so that
    both meet the same machine and neither the other's threads."""
    workers = [_worker(library, threads, only) for library in ("anydml", "onnxruntime")]

    def answer(worker: subprocess.Popen[str], asked: str = "") -> Any:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(asked)
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())

    names, _ = (answer(worker) for worker in workers)
    try:
        for k, name in enumerate(names):
            found = [tuple(answer(worker, f"{k}\n") for worker in workers) for _ in range(ROUNDS)]
            yield name, *middle([(ours, theirs) for ours, theirs in found[1:]])
    finally:
        for worker in workers:
            worker.kill()


def _worker(library: str, threads: int, only: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.tensors", library, "--threads", str(threads), "--only", only]
    around = os.environ | {"ANYDML_NUM_THREADS": str(threads)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=around, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def pairs_of_tensors(threads: int) -> Iterator[tuple[str, Call, Call]]:
    """What it is about; ours into new arrays, onnxruntime's into bound ones."""

    def bound(op: str, inputs: list[Any], outputs: int = 1, /, **attributes: Any) -> Call:
        return _bound(op, inputs, outputs, attributes, threads)

    for n in (256, 512, 1024):
        a, b = _floats(n, n), _floats(n, n)
        yield f"GEMM {n}", partial(dml.gemm, a, b), bound("MatMul", [a, b])
    whole, factors = (_RNG.integers(0, 128, (256, 256)).astype(t) for t in (np.uint8, np.int8))
    yield (
        "MATRIX_MULTIPLY_INTEGER 256",
        lambda: dml.matrix_multiply_integer(whole, None, factors, None),
        bound("MatMulInteger", [whole, factors]),
    )
    heads, keys = _floats(1, 12, 128, 64), _floats(1, 12, 64, 128)
    yield "GEMM, 12 of 128 x 64 x 128", partial(dml.gemm, heads, keys), bound("MatMul", [heads, keys])
    for given in (
        (64, 64, 56, 3, 1, 1),
        (256, 64, 56, 1, 1, 1),
        (3, 64, 224, 7, 2, 1),
        (96, 96, 56, 3, 1, 96),
    ):
        yield _convolution(*given, bound)
    for sizes in ((64, 64, 3, 1), (256, 64, 1, 1), (96, 96, 3, 96)):
        yield _quantized_convolution(*sizes, bound)
    x = _floats(1, 64, 112, 112)
    window: dict[str, Any] = {"strides": 2, "window_size": 3, "start_padding": 1, "end_padding": 1}
    same: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}
    yield "MAX_POOLING 3x3", lambda: dml.max_pooling(x, **window), bound("MaxPool", [x], **same)
    yield (
        "MAX_POOLING1 3x3, with indices",
        lambda: dml.max_pooling1(x, **window),
        bound("MaxPool", [x], 2, **same),
    )
    yield (
        "AVERAGE_POOLING 3x3",
        lambda: dml.average_pooling(x, include_padding=True, **window),
        bound("AveragePool", [x], count_include_pad=1, **same),
    )
    yield from _rows(bound)
    yield from _moves(bound)
    steps, weights = _floats(1, 32, 8, 128), _floats(1, 1, 512, 128)
    yield (
        "LSTM 32 x 8 x 128",
        lambda: dml.lstm(steps, weights, weights),
        bound("LSTM", [steps[0], weights[0], weights[0]], 3, hidden_size=128),
    )
    yield "a graph of seven small operators", *_graph(_small, (1, 16, 32, 32), threads)
    yield "a graph of ResNet-18", *_graph(_resnet18, (1, 3, 224, 224), threads)


def _convolution(
    channels: int, filters: int, size: int, window: int, stride: int, groups: int, bound: Callable[..., Call]
) -> tuple[str, Call, Call]:
    x, w = _floats(1, channels, size, size), _floats(filters, channels // groups, window, window)
    pad = window // 2
    return (
        f"CONVOLUTION {channels} to {filters}, {size} x {size}, {window} x {window}"
        + " by channel" * (groups > 1),
        lambda: dml.convolution(x, w, strides=stride, start_padding=pad, end_padding=pad, group_count=groups),
        bound("Conv", [x, w], strides=[stride] * 2, pads=[pad] * 4, group=groups),
    )


def _quantized_convolution(
    channels: int, filters: int, window: int, groups: int, bound: Callable[..., Call]
) -> tuple[str, Call, Call]:
    x = _RNG.integers(0, 256, (1, channels, 56, 56)).astype(np.uint8)
    w = _RNG.integers(-128, 128, (filters, channels // groups, window, window)).astype(np.int8)
    one, pad = (1, 1, 1, 1), window // 2
    scale, made = np.full(one, 0.02, np.float32), np.full(one, 1, np.float32)
    x_zero, w_zero, y_zero = np.full(one, 7, np.uint8), np.zeros(one, np.int8), np.full(one, 3, np.uint8)
    scales = np.full((1, filters, 1, 1), 0.02, np.float32)
    padding: dict[str, Any] = {"start_padding": pad, "end_padding": pad, "group_count": groups}
    numbers = [v.reshape(()) for v in (scale, x_zero, scale, w_zero, made, y_zero)]
    return (
        f"QUANTIZED_LINEAR_CONVOLUTION {channels} to {filters}, 56 x 56, {window} x {window}"
        + " by channel" * (groups > 1),
        lambda: dml.quantized_linear_convolution(
            x, scale, x_zero, w, scales, None, None, made, y_zero, **padding
        ),
        bound("QLinearConv", [x, *numbers[:2], w, *numbers[2:]], pads=[pad] * 4, group=groups),
    )


def _rows(bound: Callable[..., Call]) -> Iterator[tuple[str, Call, Call]]:
    """Reductions and normalizations."""
    x = _floats(1024, 1024)
    functions = {
        "SUM": "ReduceSum",
        "AVERAGE": "ReduceMean",
        "MAX": "ReduceMax",
        "MULTIPLY": "ReduceProd",
        "LOG_SUM_EXP": "ReduceLogSumExp",
    }
    for function, op in functions.items():
        for axes, place in (([1], "last axis"), ([0], "first axis"), ([0, 1], "all axes")):
            yield (
                f"REDUCE {function}, {place} of 1024 x 1024",
                partial(dml.reduce, x, function, axes),
                bound(op, [x, np.array(axes, np.int64)]),
            )
    yield "ARGMAX, last axis", lambda: dml.argmax(x, [1]), bound("ArgMax", [x], axis=1)
    row, scale, bias = _floats(128, 768), _floats(1, 768), _floats(1, 768)
    yield (
        "MEAN_VARIANCE_NORMALIZATION1, 128 x 768",
        lambda: dml.mean_variance_normalization1(row, scale, bias, axes=[1], normalize_variance=True),
        bound("LayerNormalization", [row, scale[0], bias[0]], axis=-1),
    )
    image = _floats(1, 64, 56, 56)
    parts = [np.abs(_floats(1, 64, 1, 1)) for _ in range(4)]
    flat = [p.ravel() for p in (parts[2], parts[3], parts[0], parts[1])]
    yield (
        "BATCH_NORMALIZATION",
        partial(dml.batch_normalization, image, *parts),
        bound("BatchNormalization", [image, *flat]),
    )
    yield (
        "LOCAL_RESPONSE_NORMALIZATION",
        lambda: dml.local_response_normalization(image, cross_channel=True, local_size=5),
        bound("LRN", [image], size=5),
    )


def _moves(bound: Callable[..., Call]) -> Iterator[tuple[str, Call, Call]]:
    """Operators that move elements."""
    table, rows = _floats(30000, 256), _RNG.integers(0, 30000, (1, 512)).astype(np.int32)
    yield (
        "GATHER 512 rows of 256",
        lambda: dml.gather(table, rows, axis=0, index_dimensions=1),
        bound("Gather", [table, rows[0]]),
    )
    where = _RNG.integers(0, 1024, (1024, 256)).astype(np.int32)
    square, updates = _floats(1024, 1024), _floats(1024, 256)
    yield (
        "SCATTER 256 of 1024, last axis",
        lambda: dml.scatter(square, where, updates, axis=1),
        bound("ScatterElements", [square, where, updates], axis=1),
    )
    steps, lengths = _floats(1, 128, 32, 64), _RNG.integers(1, 129, 32)
    yield (
        "REVERSE_SUBSEQUENCES, 32 of 128 x 64",
        partial(
            dml.reverse_subsequences,
            steps,
            np.broadcast_to(lengths.astype(np.uint32).reshape(1, 1, 32, 1), (1, 1, 32, 64)),
            axis=1,
        ),
        bound("ReverseSequence", [steps[0], lengths], batch_axis=1, time_axis=0),
    )
    images = [_floats(1, 64, 56, 56) for _ in range(4)]
    image = images[0]
    yield "JOIN, channels", lambda: dml.join(images, axis=1), bound("Concat", images, axis=1)
    yield (
        "SPLIT, channels",
        lambda: dml.split(image, [32, 32], axis=1),
        bound("Split", [image], 2, axis=1, num_outputs=2),
    )
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    for mode, theirs in (("CONSTANT", "constant"), ("REFLECTION", "reflect"), ("EDGE", "edge")):
        yield (
            f"PADDING by 1, {mode}",
            partial(
                dml.padding,
                image,
                padding_mode=mode,
                padding_value=0,
                start_padding=[0, 0, 1, 1],
                end_padding=[0, 0, 1, 1],
            ),
            bound("Pad", [image, pads], mode=theirs),
        )
    for mode, theirs in (("NEAREST_NEIGHBOR", "nearest"), ("LINEAR", "linear")):
        yield (
            f"RESAMPLE1, {theirs}, twice as large",
            partial(
                dml.resample1,
                image,
                interpolation_mode=mode,
                scales=[1, 1, 2, 2],
                input_pixel_offsets=[0.5] * 4,
                output_pixel_offsets=[-0.5] * 4,
            ),
            bound(
                "Resize", [image, np.zeros(0, np.float32), np.array([1, 1, 2, 2], np.float32)], mode=theirs
            ),
        )
    yield (
        "DEPTH_TO_SPACE",
        lambda: dml.depth_to_space(image, block_size=2),
        bound("DepthToSpace", [image], blocksize=2),
    )
    long = _floats(64, 1000)
    yield (
        "TOP_K1, 5 of 1000",
        partial(dml.top_k1, long, axis=1, k=5, axis_direction="DECREASING"),
        bound("TopK", [long, np.array([5])], 2),
    )


def _small(x: Any) -> dict[str, Any]:
    pooled = dml.activation_relu(dml.max_pooling(x, window_size=2, strides=2))
    rows = dml.mean_variance_normalization1(pooled, None, None, axes=[3], normalize_variance=True)
    best, places = dml.top_k(rows, axis=3, k=3)
    most, where = dml.reduce(rows, "MAX", [3]), dml.argmax(rows, [3])
    return {"rows": rows * 2, "most": most, "where": where, "best": best, "places": places}


def _resnet18(x: Any) -> dict[str, Any]:
    def convolution(x: Any, channels: int, size: int, stride: int = 1) -> Any:
        weights = _floats(channels, x.sizes[1], size, size) * np.float32((2 / (x.sizes[1] * size**2)) ** 0.5)
        padding, bias = size // 2, np.zeros((1, channels, 1, 1), np.float32)
        return dml.convolution(x, weights, bias, strides=stride, start_padding=padding, end_padding=padding)

    y = dml.activation_relu(convolution(x, 64, 7, 2))
    y = dml.max_pooling(y, strides=2, window_size=3, start_padding=1, end_padding=1)
    for channels in (64, 128, 256, 512):
        for stride in (1 if channels == 64 else 2, 1):
            beside = y if stride == 1 else convolution(y, channels, 1, stride)
            inside = dml.activation_relu(convolution(y, channels, 3, stride))
            y = dml.activation_relu(convolution(inside, channels, 3) + beside)
    y = dml.average_pooling(y, strides=1, window_size=7, include_padding=False)
    return {"y": dml.gemm(y.reinterpret(sizes=[1, 1, 1, 512]), _floats(1, 1, 512, 1000) / 20)}


def _graph(make: Callable[[Any], dict[str, Any]], sizes: tuple[int, ...], threads: int) -> tuple[Call, Call]:
    """A graph of one input bound to memory, and what onnxruntime makes of it as a model."""
    builder = dml.GraphBuilder()
    graph = builder.compile(make(builder.input("x", "FLOAT32", sizes)))
    x = _floats(*sizes)
    results = graph({"x": x})
    session = ort.InferenceSession(graph.to_onnx().SerializeToString(), _options(threads), [_PROVIDER])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    for name in results:
        binding.bind_output(name)
    return graph.bind({"x": x}, results).dispatch, lambda: session.run_with_iobinding(binding)


def _options(threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return options


def _floats(*sizes: int) -> Any:
    return _RNG.standard_normal(sizes).astype(np.float32)


def _bound(op: str, inputs: list[Any], outputs: int, attributes: dict[str, Any], threads: int) -> Call:
    """An operator as a model: float inputs are bound, small integers and shapes are constants."""
    names = [f"i{k}" for k in range(len(inputs))]
    fed = {n: x for n, x in zip(names, inputs, strict=True) if x.size > 8 or x.dtype == np.int32}
    made = [f"o{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, made, **attributes)],
        op,
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for n, x in fed.items()
        ],
        [helper.make_empty_tensor_value_info(n) for n in made],
        [onnx.numpy_helper.from_array(x, n) for n, x in zip(names, inputs, strict=True) if n not in fed],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), _options(threads), [_PROVIDER])
    binding = session.io_binding()
    for name, x in fed.items():
        binding.bind_cpu_input(name, x)
    for name in made:
        binding.bind_output(name)
    return lambda: session.run_with_iobinding(binding)


if __name__ == "__main__":
    main()
