"""The libraries that we are measured against, as far as they are installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from anydml.runtime.threads import default_threads
from bench.rows import Arrays, Row

Call = Callable[[], object]
PEERS = {"NumPy": "numpy", "onnxruntime": "onnxruntime", "torch": "torch", "JAX": "jax", "numexpr": "numexpr"}


@cache
def installed(name: str) -> Any:
    """A peer's module, set to as many threads as we use; None where it is not installed."""
    try:
        module = import_module(PEERS[name])
    except ImportError:
        return None
    if name == "torch":
        module.set_num_threads(default_threads())
    if name == "numexpr":
        module.set_num_threads(default_threads())
    return module


def versions() -> str:
    return ", ".join(f"{n} {version(PEERS[n])}" if installed(n) else f"no {n}" for n in PEERS)


def calls(row: Row, arrays: Arrays, out: Any) -> dict[str, Call]:
    """What each peer that can does for a row, writing to `out` where it can."""
    made: dict[str, Call | None] = {
        "NumPy": _numpy(row, arrays, out),
        "onnxruntime": _onnxruntime(row, arrays, out),
        "torch": _torch(row, arrays, out),
        "JAX": _jax(row, arrays),
        "numexpr": _numexpr(row, arrays, out),
    }
    return {name: call for name, call in made.items() if call is not None}


def _numpy(row: Row, arrays: Arrays, out: Any) -> Call | None:
    function = row.numpy
    return None if function is None else lambda: function(**arrays, out=out)


def _torch(row: Row, arrays: Arrays, out: Any) -> Call | None:
    torch, function = installed("torch"), row.torch
    if torch is None or function is None:
        return None
    tensors = [torch.from_numpy(a) for a in arrays.values()]
    target = torch.from_numpy(out)
    return lambda: function(torch, *tensors, target)


def _jax(row: Row, arrays: Arrays) -> Call | None:
    jax, function = installed("JAX"), row.jax
    if jax is None or function is None:
        return None
    numpy = import_module("jax.numpy")
    compiled = jax.jit(lambda *given: function(numpy, *given))
    given = [numpy.array(a) for a in arrays.values()]
    try:
        compiled(*given)
    except TypeError:  # it lacks the function
        return None
    return lambda: compiled(*given).block_until_ready()


def _numexpr(row: Row, arrays: Arrays, out: Any) -> Call | None:
    numexpr = installed("numexpr")
    if numexpr is None or not row.formula or any(a.dtype == np.float16 for a in arrays.values()):
        return None
    names = {**arrays, "c": np.float32(0.01)} if "c" not in arrays else dict(arrays)
    # numexpr computes with float64 beside a Python float; its constants are given as float32.
    return lambda: numexpr.evaluate(row.formula, names, out=out, casting="unsafe", truediv=False)


def _onnxruntime(row: Row, arrays: Arrays, out: Any) -> Call | None:
    if not row.nodes:
        return None
    kinds = {"float32": "float", "uint8": "uint8", "int32": "int32", "float16": "float16"}

    def declared(name: str, a: Any) -> str:
        return f"{kinds[str(a.dtype)]}[{','.join(map(str, a.shape))}] {name}"

    text = (
        '<ir_version: 9, opset_import: ["": 20]> m ('
        + ", ".join(declared(n, a) for n, a in arrays.items())
        + f") => ({declared('y', out)}) {{ {row.nodes} }}"
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = default_threads()
    model = onnx.parser.parse_model(text).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, a in arrays.items():
        binding.bind_cpu_input(name, a)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(out))
    return lambda: session.run_with_iobinding(binding)
