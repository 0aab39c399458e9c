"""`make bench`: our operators and sessions against NumPy, onnxruntime and memmove, as ratios."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import anydml as dml
from anydml.runtime.threads import default_threads
from bench.measure import medians

ONNX_TYPE = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int8": TensorProto.INT8,
    "int64": TensorProto.INT64,
}
SIZES = (16, 20, 24)
Row = list[str]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    markdown = parser.parse_args().markdown
    cores = default_threads()
    print(
        f"{processor()}, {cores} cores; Python {platform.python_version()}, "
        f"NumPy {np.__version__}, onnxruntime {ort.__version__}, llvmlite {llvmlite.__version__}"
    )
    print("Medians of one process. A ratio below 1 means that anydml is faster.")
    first = compile_times()
    jobs: list[Callable[[], Row]] = []
    for dtype in ("float32", "float16", "int8", "int64"):
        jobs += [lambda d=dtype, p=p: select_row(d, p) for p in SIZES]  # type: ignore[misc]
    for dtype in ("float32", "float16"):
        jobs += [lambda d=dtype, p=p: infinity_row(d, p) for p in SIZES]  # type: ignore[misc]
    rows = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for job in progress.track(jobs, description="operators"):
            rows.append(job())
    heads = ["operator", "type", "elements", "anydml", "NumPy", "onnxruntime", "/ fastest peer", "/ memmove"]
    show("Element-wise operators", heads, rows, markdown)
    heads = ["what", "anydml", "peer", "ratio"]
    show("Calls and models", heads, [small_dispatch(), *models(), *first], markdown)


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def show(title: str, heads: list[str], rows: list[Row], markdown: bool) -> None:
    if markdown:
        print(f"\n### {title}\n")
        print("| " + " | ".join(heads) + " |")
        print("|" + " --- |" * len(heads))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    table = Table(*heads, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=max(100, Console().width)).print(table)


def microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f} µs"


# ---- operators ---------------------------------------------------------------------------------------


def element_wise(op: str, dtype: str, inputs: dict[str, Any], output: Any) -> Callable[[], object] | None:
    """The ONNX operator in onnxruntime, bound to these arrays; None where it lacks the type."""
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    result = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(output.dtype), output.shape)
    graph = helper.make_graph([helper.make_node(op, list(inputs), ["y"])], op, declared, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime has a class of its own for this
        return None
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    value = ort.OrtValue.ortvalue_from_numpy(output)
    binding.bind_ortvalue_output("y", value)
    return lambda: session.run_with_iobinding(binding)


def bound(kind: str, tensors: dict[str, Any], output: str, **attributes: Any) -> Callable[[], None]:
    """A device's operator, bound to these arrays."""
    device = dml.Device()
    descs = {name: {"DataType": str(a.dtype).upper(), "Sizes": list(a.shape)} for name, a in tensors.items()}
    operator = device.create_operator({"Type": kind, "Desc": {**descs, **attributes}})
    inputs = {n: a for n, a in tensors.items() if n != output}
    binding = device.compile_operator(operator).bind(inputs, {output: tensors[output]})
    return binding.dispatch


def moving(count: int) -> Callable[[], None]:
    """A memmove that reads and writes `count` bytes in all."""
    source, target = np.ones(count // 2, np.uint8), np.zeros(count // 2, np.uint8)
    return lambda: np.copyto(target, source)


def row(name: str, dtype: str, power: int, contenders: dict[str, Callable[[], object] | None]) -> Row:
    seconds = medians({n: c for n, c in contenders.items() if c is not None})
    peers = [seconds[n] for n in ("NumPy", "onnxruntime") if n in seconds]
    ours = seconds["anydml"]
    return [
        name,
        dtype,
        f"2^{power}",
        microseconds(ours),
        microseconds(seconds.get("NumPy")),
        microseconds(seconds.get("onnxruntime")),
        f"{ours / min(peers):.2f}",
        f"{ours / seconds['memmove']:.2f}",
    ]


def select_row(dtype: str, power: int) -> Row:
    n = 1 << power
    rng = np.random.default_rng(power)
    condition = rng.integers(0, 2, n).astype(np.uint8)
    a, b = (rng.integers(-100, 100, n).astype(dtype) for _ in range(2))
    y, z = np.zeros_like(a), np.zeros_like(a)
    truth = condition.view(np.bool_)
    tensors = {"ConditionTensor": condition, "ATensor": a, "BTensor": b, "OutputTensor": y}
    if power <= 16:
        call: Callable[[], object] = bound("ELEMENT_WISE_IF", tensors, "OutputTensor")
    else:
        call = lambda: dml.if_(condition, a, b, out=y)  # noqa: E731
    call()
    assert (y == np.where(truth, a, b)).all()
    return row(
        "if_ (dispatch)" if power <= 16 else "if_ (out=)",
        dtype,
        power,
        {
            "anydml": call,
            "NumPy": lambda: np.where(truth, a, b),
            "onnxruntime": element_wise("Where", dtype, {"c": truth, "a": a, "b": b}, z),
            "memmove": moving(n * (1 + 3 * a.itemsize)),
        },
    )


def infinity_row(dtype: str, power: int) -> Row:
    n = 1 << power
    x = np.random.default_rng(power).standard_normal(n).astype(dtype)
    x[:: 1 + n // 7] = np.inf
    y, z, w = np.zeros(n, np.uint8), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    if power <= 16:
        tensors = {"InputTensor": x, "OutputTensor": y}
        call: Callable[[], object] = bound(
            "ELEMENT_WISE_IS_INFINITY", tensors, "OutputTensor", InfinityMode="EITHER"
        )
    else:
        call = lambda: dml.is_infinity(x, out=y)  # noqa: E731
    call()
    assert (y == np.isinf(x)).all()
    return row(
        "is_infinity (dispatch)" if power <= 16 else "is_infinity (out=)",
        dtype,
        power,
        {
            "anydml": call,
            "NumPy": lambda: np.isinf(x, out=w),
            "onnxruntime": element_wise("IsInf", dtype, {"x": x}, z),
            "memmove": moving(n * (1 + x.itemsize)),
        },
    )


# ---- calls and models --------------------------------------------------------------------------------


def small_dispatch() -> Row:
    condition, truth = np.ones(16, np.uint8), np.ones(16, np.bool_)
    a, b, y = np.ones(16, np.float32), np.zeros(16, np.float32), np.zeros(16, np.float32)
    tensors = {"ConditionTensor": condition, "ATensor": a, "BTensor": b, "OutputTensor": y}
    call = bound("ELEMENT_WISE_IF", tensors, "OutputTensor")
    return compared("if_ on 16 elements: bound.dispatch() / np.where", call, lambda: np.where(truth, a, b))


def compared(what: str, ours: Callable[[], object], peer: Callable[[], object], seconds: float = 0.5) -> Row:
    times = medians({"anydml": ours, "peer": peer}, seconds)
    ratio = times["anydml"] / times["peer"]
    return [what, microseconds(times["anydml"]), microseconds(times["peer"]), f"{ratio:.2f}"]


def models() -> list[Row]:
    rows = []
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1

    def pair(model: bytes, feeds: dict[str, Any], what: str) -> Row:
        ours = dml.load(model, threads=1)
        theirs = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for mine, its in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert np.allclose(mine, its, atol=1e-5), what
        return compared(what, lambda: ours.run(None, feeds), lambda: theirs.run(None, feeds), 2.0)

    from demo.speech import CONTEXT, WINDOW, model_path

    rng = np.random.default_rng(0)
    silero = model_path().read_bytes()
    for rate in (16000, 8000):
        feeds = {
            "input": (rng.standard_normal((1, WINDOW[rate] + CONTEXT[rate])) * 0.1).astype(np.float32),
            "state": rng.standard_normal((2, 1, 128)).astype(np.float32),
            "sr": np.array(rate),
        }
        rows.append(pair(silero, feeds, f"Silero VAD, a window at {rate} Hz: run, one thread / onnxruntime"))
    feeds = {"cond": np.array(True), "x": np.ones(4, np.float32)}
    rows.append(pair(one_if(), feeds, "one If on 4 floats: run, one thread / onnxruntime"))
    return rows


def one_if() -> bytes:
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        m (bool cond, float[4] x) => (float[4] y) {
            y = If (cond) <then_branch = t () => (float[4] a) { a = Neg (x) },
                           else_branch = e () => (float[4] b) { b = Abs (x) }>
        }"""
    return bytes(onnx.parser.parse_model(text).SerializeToString())


def compile_times() -> list[Row]:
    """The first kernel of a process, LLVM's start included (but not its import), and later ones."""
    dml.if_  # noqa: B018  (imports)
    times = []
    for dtype in ("float32", "float16", "int8", "int64", "float64"):
        x, c = np.ones(64, dtype), np.ones(64, np.uint8)
        start = time.perf_counter()
        dml.if_(c, x, x)
        times.append(time.perf_counter() - start)
    later = float(np.median(times[1:]))
    return [
        ["first kernel of a process", f"{times[0] * 1e3:.1f} ms", "-", "-"],
        ["a further kernel (median)", f"{later * 1e3:.1f} ms", "-", "-"],
    ]


if __name__ == "__main__":
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    main()
