"""Ifs on a GPU: `python -m bench.cuda`, where onnxruntime is built for CUDA and a GPU is there.

An If on data waits for the GPU: its condition is copied to the host, and what follows is launched behind it.
Milliseconds per run by onnxruntime's CUDA provider with everything bound on the device: the model as it is,
flat, and flat as a CUDA graph; then `anydml.load(path, providers=["CUDAExecutionProvider"])` beside
onnxruntime's `run`, both from and to memory of the host, and how far apart they are.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console

import anydml
from bench.processes import asked, tell
from bench.runtimes import RUNTIMES, cases, flat_for, has_cuda, quiet
from tests.onnx.patterns import Feed

GPU = "CUDAExecutionProvider"
SECONDS = 0.3


def milliseconds(call: Callable[[], object]) -> float:
    """The median of what a call takes."""
    for _ in range(5):
        call()
    times: list[float] = []
    end = perf_counter() + SECONDS
    while perf_counter() < end or len(times) < 5:
        begin = perf_counter()
        call()
        times.append(perf_counter() - begin)
    return 1e3 * float(np.median(times))


def bound(path: Path, feed: Feed, **told: str) -> float:
    """onnxruntime's time of a run whose inputs and outputs stay on the device."""
    ort: Any = import_module("onnxruntime")
    session = ort.InferenceSession(path, quiet(ort), providers=[(GPU, {"use_tf32": "0", **told})])
    binding = session.io_binding()
    names = [i.name for i in session.get_inputs()]
    for name in names:
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(feed[name], "cuda", 0))
    shapes = session.run(None, {n: feed[n] for n in names}) if not told else None
    for i, value in enumerate(session.get_outputs()):
        if shapes is not None:
            binding.bind_output(value.name, "cuda")
            continue
        plain = ort.InferenceSession(path, quiet(ort), providers=["CPUExecutionProvider"])
        like = np.zeros_like(np.asarray(plain.run(None, {n: feed[n] for n in names})[i]))
        binding.bind_ortvalue_output(value.name, ort.OrtValue.ortvalue_from_numpy(like, "cuda", 0))

    def call() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return milliseconds(call)


def loaded(path: Path, feed: Feed) -> str:
    """onnxruntime's time on the GPU, `anydml.load`'s, and the largest difference."""
    ort: Any = import_module("onnxruntime")
    theirs = ort.InferenceSession(path, quiet(ort), providers=[(GPU, {"use_tf32": "0"})])
    ours = anydml.load(path, providers=[(GPU, {"use_tf32": "0"})])
    given = {i.name: feed[i.name] for i in theirs.get_inputs()}
    other = {n: -0.5 * x if x.dtype == np.float32 else x for n, x in given.items()}
    apart = 0.0
    for one in (given, given, other, given, other):
        for a, b in zip(ours.run(None, one), theirs.run(None, one), strict=True):
            if np.shape(a) != np.shape(b):
                return f"shapes {np.shape(a)} and {np.shape(b)}"
            if np.size(b) and not isinstance(b, list):
                largest = np.abs(np.subtract(a, b, dtype=np.float64)).max()
                apart = max(apart, float(largest / max(1, np.abs(b).max())))
    times = [milliseconds(partial(session.run, None, given)) for session in (theirs, ours)]
    return f"{times[0]:.3f} | {times[1]:.3f} | {apart:.0e}"


def told(measure: Callable[[], str]) -> str:
    """A measurement, or the last line of its error."""
    try:
        return measure()
    except Exception as error:  # whatever class it has
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[-1][:60]


def row(path: Path, flat: Path, feed: Feed) -> str:
    """All that is measured of a model."""
    cells = [
        told(lambda: f"{bound(path, feed):.3f}"),
        told(lambda: f"{bound(flat, feed):.3f}"),
        told(lambda: f"{bound(flat, feed, enable_cuda_graph='1'):.3f}"),
        told(lambda: loaded(path, feed)),
    ]
    return " | ".join(cells)


def main() -> None:
    """Print the table, of the models that are named, or all."""
    if not has_cuda():
        sys.exit("onnxruntime has no CUDAExecutionProvider here: pip install onnxruntime-gpu, beside a GPU")
    console = Console(stderr=True)
    print("| model | Ifs | as it is | flat | as a CUDA graph | `run` | `anydml.load` | apart |")
    print("| :-- | --: | --: | --: | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        feed, target = Path(folder) / "feed.npz", Path(folder) / "flat.onnx"
        for case in cases():
            if sys.argv[1:] and case.name not in sys.argv[1:]:
                continue
            console.print(case.name)
            np.savez(feed, **case.feed)
            flat, report = flat_for(RUNTIMES["CUDA graphs"], case)
            target.write_bytes(flat.SerializeToString())
            cells = asked("bench.cuda", "--one", str(case.path), str(target), str(feed))
            print(f"| {case.name} | {report.before.ifs} to {report.left} | {cells} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        path, flat, feed = (Path(argument) for argument in sys.argv[2:])
        tell(row(path, flat, dict(np.load(feed))))
    else:
        main()
