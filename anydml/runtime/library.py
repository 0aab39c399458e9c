"""onnxruntime and onnx.reference as providers of heavy and rare operators."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnx.reference import ReferenceEvaluator

from anydml.ir.provider import Call, Region, RegionFailed
from anydml.problems import Problem, Unsupported

DTYPES = frozenset(
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string".split(" ")
)
"""Element types that pass between onnxruntime and NumPy."""


class OnnxRuntime:
    name = "onnxruntime"

    def compile(self, region: Region, threads: int) -> Call:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what goes wrong is raised, and told in our words
        try:
            session = ort.InferenceSession(
                region.model, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
        except Exception as error:  # onnxruntime raises a dozen unrelated classes
            raise Unsupported(Problem("onnxruntime", _first_line(error))) from error
        names, outputs, run = region.inputs, list(region.outputs), session.run

        def call(values: list[Any]) -> list[Any]:
            try:
                return list(run(outputs, dict(zip(names, values, strict=True))))
            except Exception as error:
                raise RegionFailed(_failed_node(str(error)), _first_line(error)) from error

        return call


def _failed_node(message: str) -> int | None:
    found = re.search(r"Name:'(\d+)'", message)
    return int(found[1]) if found else None


def _first_line(error: Exception) -> str:
    """The library's own words, without its prefix of codes."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)) or type(error).__name__
    text = text.splitlines()[0] if text.splitlines() else text
    return re.sub(
        r"Non-zero status code returned while running \w+ node\. Name:'\d+' Status Message: ", "", text
    )


class Reference:
    name = "onnx.reference"

    def compile(self, region: Region, threads: int) -> Call:
        model = onnx.ModelProto.FromString(region.model)
        if any(n.op_type == "Loop" and not (len(n.input) > 1 and n.input[1]) for n in model.graph.node):
            raise Unsupported(Problem("onnx.reference", "it runs a Loop without a condition zero times"))
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
