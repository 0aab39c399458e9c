"""onnxruntime and onnx.reference as providers of heavy and rare operators."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

from anydml.ir.graph import Stored
from anydml.ir.provider import Call, Region, RegionEnded, RegionFailed, Sizes
from anydml.problems import Problem, Unsupported
from anydml.runtime.interrupt import ended_by_ctrl_c

DTYPES = frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string".split(" ")
)
"""Element types that pass between onnxruntime and NumPy."""


class OnnxRuntime:
    name = "onnxruntime"

    def __init__(self, seconds: float | None = None) -> None:
        """`seconds`: after which a run is ended (None: never); it then raises `RegionEnded`."""
        self._seconds = seconds

    def compile(self, region: Region, threads: int) -> Call:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised, and told in our words
        weights = _lend(region, options)
        try:
            session = ort.InferenceSession(
                region.model, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:  # onnxruntime raises a dozen unrelated classes
            raise Unsupported(Problem("onnxruntime", _first_line(error))) from error
        return _Session(session, region, weights, self._seconds)

    def fixed(self, call: Call, inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> Call:
        """Small arrays are copied to and from memory that is bound once: a call takes some 15 us less."""
        ends = [(np.dtype(t), n) for t, n in (*inputs, *outputs)] if _fixable(inputs, outputs) else []
        if not isinstance(call, _Session) or not ends or sum(prod(n) * t.itemsize for t, n in ends) > BOUND:
            return call
        return _Bound(call, ends[: len(inputs)], ends[len(inputs) :])


def _lend(region: Region, options: ort.SessionOptions) -> list[Any]:
    """Give a session the region's weights without a copy: the memory that it will read, and not own."""
    given = {n: c for n, c in region.weights if not isinstance(c.source, Stored)}
    for _, constant in region.weights:
        if isinstance(constant.source, Stored):  # it maps files into memory itself
            folder = str(constant.source.folder)
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
            break
    arrays = [np.ascontiguousarray(c.content) for c in given.values()]
    lent = [ort.OrtValue.ortvalue_from_numpy(a) for a in arrays]
    if lent:  # the first lets it optimise with their contents, the second has it read them where they are
        options.add_external_initializers(list(given), lent)
        for name, value in zip(given, lent, strict=True):
            options.add_initializer(name, value)
    return [*arrays, *lent]


BOUND = 1 << 16
"""Bytes up to which copying is less than binding at each call."""


def _fixable(inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> bool:
    return all(t in DTYPES and t != "string" and 0 not in n for t, n in (*inputs, *outputs))


_LOOPS = (b"\x04Loop", b"\x04Scan", b"\x0bSequenceMap")
"""What may run for ever, as files write its name; a weight that has these bytes does no harm."""


class _Session:
    """A region in onnxruntime."""

    def __init__(
        self, session: ort.InferenceSession, region: Region, weights: object, seconds: float | None
    ) -> None:
        self._seconds = seconds
        self.session, self.inputs, self.outputs = session, region.inputs, list(region.outputs)
        self._weights = weights
        """Memory that the session reads, and does not own."""
        self._run = session.run
        self._loops = any(name in region.model for name in _LOOPS)

    def __call__(self, values: list[Any]) -> list[Any]:
        try:
            if self._loops or self._seconds is not None:
                options = ort.RunOptions()
                with ended_by_ctrl_c(options), _ended_after(self._seconds, options):
                    return list(self._run(self.outputs, dict(zip(self.inputs, values, strict=True)), options))
            return list(self._run(self.outputs, dict(zip(self.inputs, values, strict=True))))
        except RegionEnded:
            raise
        except Exception as error:
            raise RegionFailed(_failed_node(str(error)), _first_line(error)) from error


@contextmanager
def _ended_after(seconds: float | None, options: ort.RunOptions) -> Iterator[None]:
    """While this lasts, the library is told to end after so many seconds.

    Raises:
        RegionEnded: it was.
    """
    if seconds is None:
        yield
        return
    late = threading.Event()

    def end() -> None:
        late.set()
        options.terminate = True

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if late.is_set():
            raise RegionEnded(None, f"took more than {seconds:g} seconds") from error
        raise
    finally:
        timer.cancel()


class _Bound:
    """A region with memory of its own for inputs and outputs. Whoever comes while it is busy goes without."""

    def __init__(
        self, call: _Session, inputs: list[tuple[np.dtype, Sizes]], outputs: list[tuple[np.dtype, Sizes]]
    ) -> None:
        self._call = call
        self._inputs, self._outputs = ([np.zeros(n, t) for t, n in ends] for ends in (inputs, outputs))
        self._given = [(x, x.dtype, x.shape) for x in self._inputs]
        self._binding = call.session.io_binding()
        self._kept = [ort.OrtValue.ortvalue_from_numpy(x) for x in (*self._inputs, *self._outputs)]
        for name, value in zip(call.inputs, self._kept, strict=False):
            self._binding.bind_ortvalue_input(name, value)
        for name, value in zip(call.outputs, self._kept[len(inputs) :], strict=True):
            self._binding.bind_ortvalue_output(name, value)
        self._run = call.session.run_with_iobinding
        self._lock = threading.Lock()

    def __call__(self, values: list[Any]) -> list[Any]:
        if not self._lock.acquire(blocking=False):
            return self._call(values)
        try:
            for value, (x, dtype, shape) in zip(values, self._given, strict=True):
                if value.shape != shape or value.dtype != dtype:  # not as the model declares
                    return self._call(values)
                x[...] = value
            try:
                self._run(self._binding)
            except Exception:  # an output of other sizes than was inferred, or what fails without binding too
                return self._call(values)
            return [y.copy() for y in self._outputs]
        finally:
            self._lock.release()


def _failed_node(message: str) -> int | None:
    found = re.search(r"Name:'(\d+)'", message)
    return int(found[1]) if found else None


def _first_line(error: Exception) -> str:
    """The library's own words, without its prefix of codes."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)) or type(error).__name__
    text = text.splitlines()[0] if text.splitlines() else text
    text = re.sub(r" node with name '\d*'$", "", text)
    return re.sub(
        r"Non-zero status code returned while running \w+ node\. Name:'\d+' Status Message: ", "", text
    )


class Reference:
    name = "onnx.reference"

    def fixed(self, call: Call, inputs: list[tuple[str, Sizes]], outputs: list[tuple[str, Sizes]]) -> Call:
        return call

    def compile(self, region: Region, threads: int) -> Call:
        model = onnx.ModelProto.FromString(region.model)
        for folder in {c.source.folder for _, c in region.weights if isinstance(c.source, Stored)}:
            onnx.load_external_data_for_model(model, str(folder))
        if any(n.op_type == "Loop" and not (len(n.input) > 1 and n.input[1]) for n in model.graph.node):
            raise Unsupported(Problem("onnx.reference", "it runs a Loop without a condition zero times"))
        from onnx.reference import ReferenceEvaluator  # slow to import, and rarely needed

        try:
            evaluator = ReferenceEvaluator(model)
        except Exception as error:
            raise Unsupported(Problem("onnx.reference", _first_line(error))) from error
        names = region.inputs

        def call(values: list[Any]) -> list[Any]:
            try:
                with np.errstate(all="ignore"):
                    results = evaluator.run(None, dict(zip(names, values, strict=True)))
            except Exception as error:
                raise RegionFailed(0 if len(model.graph.node) == 1 else None, _first_line(error)) from error
            return [np.asarray(r) if isinstance(r, np.generic) else r for r in results]

        return call


@cache
def newest_opset() -> int:
    """The newest opset of ONNX's own domain that the installed onnxruntime takes."""
    node = helper.make_node("Identity", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in "xy")
    graph = helper.make_graph([node], "probe", [x], [y])
    for version in range(onnx.defs.onnx_opset_version(), 1, -1):
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
        try:
            OnnxRuntime().compile(Region(model.SerializeToString(), ("x",), ("y",)), 1)
        except Unsupported:
            continue
        return version
    return 1
