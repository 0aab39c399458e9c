"""What other runtimes make of models with and without Ifs: `python -m bench.runtimes`, for docs/flatten.md.

Each model is read by each runtime in a process of its own, before and after `anydml flatten`, as some end the
process. "takes" means that it was read and, where the runtime can, ran and gave what onnxruntime gives.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
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


def tensorrt(path: Path, feed: Feed) -> None:
    """Parse and build an engine, for which TensorRT for RTX needs no GPU. It has no 64-bit floats."""
    trt: Any = import_module("tensorrt_rtx_bindings")
    told: list[str] = []

    class Log(trt.ILogger):  # type: ignore[misc]
        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.ERROR:
                told.append(message)

    log = Log()
    builder = trt.Builder(log)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(path)):
        error = parser.get_error(0)
        raise RuntimeError(f"{error.node_operator()}: {error.desc().splitlines()[-1]}")
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    for k in range(network.num_inputs):
        tensor = network.get_input(k)
        value = feed[tensor.name]
        if tensor.is_shape_tensor:
            profile.set_shape_input(tensor.name, *[value.reshape(-1).tolist()] * 3)
        elif -1 in tensor.shape:
            profile.set_shape(tensor.name, *[value.shape] * 3)
    config.add_optimization_profile(profile)
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    if builder.build_serialized_network(network, config) is None:
        raise RuntimeError(
            re.sub(r"\[\S+\] Error Code \d+: ", "", told[-1]) if told else "it builds no engine"
        )


def cuda_graphs(path: Path, feed: Feed) -> list[np.ndarray]:
    """Have onnxruntime record all work of a run on the GPU once, and play it again for other data."""
    ort: Any = import_module("onnxruntime")
    plain = ort.InferenceSession(path, quiet(ort), providers=["CPUExecutionProvider"])
    names = [i.name for i in plain.get_inputs()]
    other = {n: np.asarray(-feed[n]) if feed[n].dtype.kind == "f" else feed[n] for n in names}
    feeds = [{n: feed[n] for n in names}, other]
    wanted = [plain.run(None, given) for given in feeds]

    told = {"enable_cuda_graph": "1", "use_tf32": "0"}
    session = ort.InferenceSession(path, quiet(ort), providers=[("CUDAExecutionProvider", told)])
    if "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("there is no GPU that onnxruntime can use")
    binding, at = session.io_binding(), {}
    for name in names:
        at[name] = ort.OrtValue.ortvalue_from_numpy(feed[name], "cuda", 0)
        binding.bind_ortvalue_input(name, at[name])
    made = [ort.OrtValue.ortvalue_from_numpy(np.zeros_like(np.asarray(y)), "cuda", 0) for y in wanted[0]]
    for value, y in zip(session.get_outputs(), made, strict=True):
        binding.bind_ortvalue_output(value.name, y)
    found: list[list[np.ndarray]] = []
    for given in [*feeds, feeds[0]]:
        for name in names:
            at[name].update_inplace(given[name])
        session.run_with_iobinding(binding)
        found.append([y.numpy() for y in made])
    for ours, theirs in zip(found[1], wanted[1], strict=True):
        if not same(ours, theirs):
            raise RuntimeError("played again for other data, it gives something else")
    return found[2]


def quiet(ort: Any) -> Any:
    """Options of a session that does not print what it then raises."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return options


def there(module: str) -> Callable[[], bool]:
    """Whether a module is installed."""
    return lambda: find_spec(module) is not None


def has_cuda() -> bool:
    """Whether onnxruntime is built for GPUs of NVIDIA, and one is there."""
    ort: Any = import_module("onnxruntime")
    return "CUDAExecutionProvider" in ort.get_available_providers()


@dataclass(frozen=True)
class Runtime:
    """What takes a model, when it is there, and how a model is flattened for it."""

    there: Callable[[], bool]
    takes: Callable[[Path, Feed], list[np.ndarray] | None]
    fixed_sizes: bool = False
    has_if: bool = False
    """Whether an If may stay."""
    install: str = "pip install anydml[runtimes]"


RUNTIMES: Mapping[str, Runtime] = {
    "OpenVINO": Runtime(there("openvino"), openvino),
    "OpenCV dnn": Runtime(there("cv2"), opencv),
    "onnx2torch": Runtime(there("onnx2torch"), onnx2torch),
    "MNN": Runtime(there("MNN"), mnn),
    "pnnx": Runtime(there("ncnn"), pnnx),
    "TensorRT": Runtime(there("tensorrt_rtx_bindings"), tensorrt, fixed_sizes=True, has_if=True),
    "CUDA graphs": Runtime(
        has_cuda, cuda_graphs, fixed_sizes=True, install="pip install onnxruntime-gpu, beside a GPU of NVIDIA"
    ),
}


def one(runtime: str, path: Path, feed: Path) -> str:
    """What a runtime makes of a model, in a word or two."""
    import onnxruntime

    given = dict(np.load(feed))
    try:
        found = RUNTIMES[runtime].takes(path, given)
    except Exception as error:  # whatever class it has
        lines = [line.strip(" -'>|") for line in str(error).splitlines()]
        told = [line for line in lines if len(line) > 8] or [type(error).__name__]
        return f"refuses: {told[-1][:80]}"
    if found is None:
        return "takes"
    session = onnxruntime.InferenceSession(path, quiet(onnxruntime), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
    if len(found) != len(wanted):
        return "gives something else"
    right = all(same(a, b) for a, b in zip(found, wanted, strict=True))
    return "takes" if right else "gives something else"


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether two runtimes agree; some have no scalars, or no 64-bit integers."""
    close = partial(np.allclose, rtol=1e-3, atol=1e-4, equal_nan=True)
    return found.size == np.size(wanted) and bool(close(found.reshape(-1), np.reshape(wanted, -1)))


def takes(runtime: str, path: Path, feed: Path) -> str:
    """What a runtime makes of a model, asked in a process of its own."""
    return asked("bench.runtimes", "--one", runtime, str(path), str(feed))


def flat_for(runtime: Runtime, case: Case) -> tuple[onnx.ModelProto, Any]:
    """A case as its runtime may want it, and the report of that."""
    import anydml

    options = {**case.options, **({"convert": "auto"} if runtime.has_if else {})}
    if runtime.fixed_sizes:
        fixed = case.options.get("fixed", {})
        options["shapes"] = {name: x.shape for name, x in case.feed.items() if name not in fixed}
    return anydml.flatten(case.path, **options)


def main() -> None:
    """Print the table, of the runtimes that are told, or all that are there."""
    console = Console(stderr=True)
    names = sys.argv[1:] or [name for name, runtime in RUNTIMES.items() if runtime.there()]
    print("| model | Ifs |", " | ".join(f"{n} | flat" for n in names), "|")
    print("| :-- | --: |", " | ".join([":-- | :--"] * len(names)), "|")
    with tempfile.TemporaryDirectory() as folder:
        for case in cases():
            feed, target = Path(folder) / "feed.npz", Path(folder) / "flat.onnx"
            np.savez(feed, **case.feed)
            cells = []
            for name in names:
                console.print(f"{case.name}: {name}")
                flat, report = flat_for(RUNTIMES[name], case)
                target.write_bytes(flat.SerializeToString())
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
