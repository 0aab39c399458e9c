"""What other runtimes make of models with and without Ifs: `python -m bench.runtimes`, for docs/flatten.md.

Each model is read by each runtime in a process of its own, before and after `anydml flatten`, as some end the
process. "takes" means that it was read and, where the runtime can, ran and gave what onnxruntime gives.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console

from bench.processes import asked, tell
from tests.onnx.patterns import PATTERNS, Feed

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Case:
    """A model, something to feed it, and how it is flattened."""

    name: str
    path: Path
    feed: Feed
    options: Mapping[str, Any]


def cases() -> Iterator[Case]:
    """Silero VAD, the patterns, and the exporters' models."""
    from demo.speech import model_path

    silero = model_path()
    window = {"input": np.zeros((1, 576), np.float32), "state": np.zeros((2, 1, 128), np.float32)}
    window["input"][0, ::7] = 0.1
    rate = {"sr": np.array(16000)}
    fixed = {"fixed": {"sr": 16000}}
    yield Case("Silero VAD", silero, {**window, **rate}, fixed)
    yield Case("silero_vad_16k_op15", silero.with_name("silero_vad_16k_op15.onnx"), {**window, **rate}, fixed)
    yield Case("silero_vad_half", silero.with_name("silero_vad_half.onnx"), window, {})
    for pattern in PATTERNS:
        yield Case(pattern.name, pattern.path, pattern.feeds[0], {"convert": "always"})
    for path in sorted((ROOT / "tests" / "data" / "exporters").glob("*/model.onnx")):
        first = sorted(path.parent.glob("feed_*.npz"))[0]
        yield Case(path.parent.name, path, dict(np.load(first)), {"convert": "always"})


# ---- runtimes ----------------------------------------------------------------------------------------


def openvino(path: Path, feed: Feed) -> list[np.ndarray]:
    """Convert, compile and run."""
    ov: Any = import_module("openvino")
    compiled = ov.Core().compile_model(ov.convert_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    names = [i.any_name for i in compiled.inputs]
    found = compiled([feed[n] for n in names])
    return [np.array(found[k]) for k in range(len(compiled.outputs))]


def opencv(path: Path, feed: Feed) -> None:
    """Read."""
    import_module("cv2").dnn.readNetFromONNX(str(path))


def onnx2torch(path: Path, feed: Feed) -> None:
    """Convert to a module of torch."""
    import_module("onnx2torch").convert(str(path))


def mnn(path: Path, feed: Feed) -> list[np.ndarray]:
    """Convert and run. The converter is called itself: its command installs packages when it starts."""
    MNN: Any = import_module("MNN")
    proto = onnx.load(path)
    inputs, outputs = ([v.name for v in values] for values in (proto.graph.input, proto.graph.output))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.mnn"
        told = {"-f": "ONNX", "--modelFile": path, "--MNNModel": target, "--bizCode": "bench"}
        import_module("_tools").mnnconvert(["mnnconvert", *(str(x) for pair in told.items() for x in pair)])
        if not target.exists():
            raise RuntimeError("the converter wrote nothing")
        module = MNN.nn.load_module_from_file(str(target), inputs, outputs)
        given = []
        for name in inputs:
            x = feed[name] if feed[name].dtype == np.float32 else feed[name].astype(np.int32)
            kind = MNN.expr.float if x.dtype == np.float32 else MNN.expr.int
            given.append(MNN.expr.const(x, list(x.shape), MNN.expr.NCHW, kind))
        return [np.array(MNN.expr.convert(y, MNN.expr.NCHW).read()) for y in module.forward(given)]


def pnnx(path: Path, feed: Feed) -> None:
    """Convert to ncnn, which reads it."""
    codes = {"float32": "f32", "int64": "i64", "bool": "bool", "float16": "f16"}
    inputs = [v.name for v in onnx.load(path).graph.input]
    shapes = [f"[{','.join(map(str, feed[n].shape))}]{codes[feed[n].dtype.name]}" for n in inputs]
    told = (
        [f"inputshape={','.join(shapes)}"] if all(feed[n].ndim for n in inputs) else []
    )  # it guesses scalars
    with tempfile.TemporaryDirectory() as folder:
        model = Path(shutil.copy(path, Path(folder) / "model.onnx"))
        command = [import_module("pnnx").EXEC_PATH, str(model), *told]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode < 0:
            raise RuntimeError("the converter crashes")
        ignored = [line for line in done.stdout.splitlines() if line.startswith("ignore ")]
        if ignored:
            raise RuntimeError(f"ncnn has not all of it: {ignored[0]}")
        net, written = import_module("ncnn").Net(), model.with_name("model.ncnn.param")
        if not written.exists() or net.load_param(str(written)):
            raise RuntimeError("ncnn does not read what is written")


RUNTIMES: Mapping[str, tuple[str, Callable[[Path, Feed], list[np.ndarray] | None]]] = {
    "OpenVINO": ("openvino", openvino),
    "OpenCV dnn": ("cv2", opencv),
    "onnx2torch": ("onnx2torch", onnx2torch),
    "MNN": ("MNN", mnn),
    "pnnx": ("ncnn", pnnx),
}
"""By name: the module that has to be there, and what takes a model."""


def one(runtime: str, path: Path, feed: Path) -> str:
    """What a runtime makes of a model, in a word or two."""
    import onnxruntime

    given = dict(np.load(feed))
    try:
        found = RUNTIMES[runtime][1](path, given)
    except Exception as error:  # whatever class it has
        lines = [line.strip(" -'>|") for line in str(error).splitlines()]
        told = [line for line in lines if len(line) > 8] or [type(error).__name__]
        return f"refuses: {told[-1][:80]}"
    if found is None:
        return "takes"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options)
    wanted = session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
    if len(found) != len(wanted):
        return "gives something else"
    for a, b in zip(found, wanted, strict=True):
        if a.size != np.size(b) or not np.allclose(a.reshape(-1), np.reshape(b, -1), 1e-3, 1e-4):
            return "gives something else"
    return "takes"


def takes(runtime: str, path: Path, feed: Path) -> str:
    """What a runtime makes of a model, asked in a process of its own."""
    return asked("bench.runtimes", "--one", runtime, str(path), str(feed))


def main() -> None:
    """Print the table, of the runtimes that are told, or all that are there."""
    import anydml

    console = Console(stderr=True)
    names = sys.argv[1:] or [n for n, (module, _) in RUNTIMES.items() if find_spec(module) is not None]
    print("| model | Ifs |", " | ".join(f"{n} | flat" for n in names), "|")
    print("| :-- | --: |", " | ".join([":-- | :--"] * len(names)), "|")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            flat, report = anydml.flatten(case.path, **case.options)
            target, feed = Path(folder) / "flat.onnx", Path(folder) / "feed.npz"
            target.write_bytes(flat.SerializeToString())
            np.savez(feed, **case.feed)
            cells = []
            for name in names:
                console.print(f"{case.name}: {name}")
                cells += [takes(name, path, feed) for path in (case.path, target)]
            print(
                f"| {case.name} | {report.before.ifs} to {report.left} |", " | ".join(cells), "|", flush=True
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        runtime, path, feed = sys.argv[2:]
        tell(one(runtime, Path(path), Path(feed)))
    else:
        main()
