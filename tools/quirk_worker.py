"""The child of `search_provider_quirks`, which runs cases and may die of one.

Memory that the C library hands out is filled with a byte, another one at each run: what nobody wrote shows
in the results as what changes between two runs.
"""

from __future__ import annotations

import ctypes
import os
import resource
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from anydml.ir.graph import Node, OnnxOp, Value
from anydml.onnx.ops.fold import fold, has_rule
from anydml.onnx.ops.opinfo import NotFoldable
from anydml.onnx.types import of_content
from tools.quirk_cases import Case

WAYS = ("as it is", "optimised", "as it is, of constants", "optimised, of constants")
"""How onnxruntime runs a case."""
ALL_WAYS = frozenset(("plain", "an empty axis", "all axes empty", "an input left out"))
"""Kinds of cases that are run in all ways; of others the first and the last will do."""
SPACE = 2 << 30
"""Bytes of address space beyond what is there at the start."""
_M_PERTURB = -6


def serve(connection: Connection) -> None:
    """Answer (case, first way) with the oracle's result, inferred types, and each way's; until None comes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    while (asked := connection.recv()) is not None:
        case, begin = asked
        for k in range(begin, 2 + len(WAYS)):
            answer = oracle(case) if k == 0 else inferred(case) if k == 1 else ran(case, k - 2)
            connection.send((k, answer))


def oracle(case: Case) -> tuple[str, Any]:
    """("rule" or "reference", outputs), or ("refused", why)."""
    try:
        node = case.node()
        op = OnnxOp("", case.op, case.opset)
        why = ""
        if has_rule(op):
            try:
                return "rule", fold(_node(case, node, op), list(case.inputs))
            except NotFoldable as failure:
                why = f"NotFoldable: {failure}"
        evaluator = ReferenceEvaluator(model(case, False, True))
        fed = {f"i{k}": x for k, x in enumerate(case.inputs) if x is not None}
        results = evaluator.run(None, fed)
        return f"reference{' ' if why else ''}{why}", [
            np.asarray(r) if isinstance(r, np.generic) else r for r in results
        ]
    except BaseException as failure:
        return "refused", f"{type(failure).__name__}: {failure}"[:300]


def _node(case: Case, node: onnx.NodeProto, op: OnnxOp) -> Node:
    inputs = tuple(None if x is None else Value(f"i{k}", of_content(x)) for k, x in enumerate(case.inputs))
    return Node(op, inputs, tuple(map(Value, node.output)), {a.name: a for a in node.attribute})


def model(case: Case, constants: bool, sizes: bool) -> onnx.ModelProto:
    """The case as a model, whose inputs are constants, or fed; `sizes`: whether these are declared."""
    fed, stored = [], []
    for k, x in enumerate(case.inputs):
        if x is None:
            continue
        if constants and isinstance(x, np.ndarray):
            stored.append(numpy_helper.from_array(x, f"i{k}"))
            continue
        fed.append(helper.make_value_info(f"i{k}", _type(x, case, sizes)))
    outputs = [onnx.ValueInfoProto(name=f"o{k}") for k in range(case.outputs)]
    graph = helper.make_graph([case.node()], "case", fed, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)


def _type(x: Any, case: Case, sizes: bool) -> onnx.TypeProto:
    if isinstance(x, list):
        dtype = x[0].dtype if x else np.dtype(case.dtype or "float32")
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(_code(dtype), None))
    return helper.make_tensor_type_proto(_code(x.dtype), x.shape if sizes else [None] * x.ndim)


def _code(dtype: np.dtype) -> int:
    return onnx.TensorProto.STRING if dtype.kind == "O" else helper.np_dtype_to_tensor_dtype(dtype)


def inferred(case: Case) -> tuple[str, Any]:
    """What ONNX's inference says of the outputs, from types alone and with constants: (dtype, sizes) each."""
    found: list[Any] = []
    for constants in (False, True):
        try:
            told = onnx.shape_inference.infer_shapes(model(case, constants, True), data_prop=True)
            found.append([_told(o.type) for o in told.graph.output])
        except Exception as failure:
            found.append(f"{type(failure).__name__}: {failure}"[:200])
    return "inferred", found


def _told(type: onnx.TypeProto) -> tuple[int, tuple[int | None, ...] | None] | None:
    if not type.HasField("tensor_type"):
        return None
    tensor = type.tensor_type
    dims = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return tensor.elem_type, dims if tensor.HasField("shape") else None


def ran(case: Case, way: int) -> tuple[str, Any]:
    """("ok" or "unstable", outputs), or ("no kernel" | "not loaded" | "refused", why)."""
    if way in (1, 2) and case.kind not in ALL_WAYS:
        return "left out", None
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = False
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if way in (0, 2):
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    results: list[list[Any]] = []
    try:
        proto = model(case, way >= 2, way == 1).SerializeToString()
    except Exception as failure:
        return "not loaded", f"{failure}"[:200]
    fed = {
        f"i{k}": x for k, x in enumerate(case.inputs) if x is not None and (way < 2 or isinstance(x, list))
    }
    libc = ctypes.CDLL(None)
    session = None
    try:
        for byte in (0x5A, 0xA6):
            libc.mallopt(_M_PERTURB, byte)
            if session is None or way == 3:  # constants are folded when it is loaded
                session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
            results.append(session.run(None, fed))
    except Exception as failure:
        text = str(failure)
        missing = "NOT_IMPLEMENTED" in text or "Could not find an implementation" in text
        kind = "no kernel" if missing and session is None else "not loaded" if session is None else "refused"
        return kind, text[:300]
    finally:
        libc.mallopt(_M_PERTURB, 0)
    stable = all(_same_bytes(a, b) for a, b in zip(*results, strict=True))
    return "ok" if stable else "unstable", results[0]


def _same_bytes(a: Any, b: Any) -> bool:
    if isinstance(a, Sequence) and isinstance(b, Sequence):
        return len(a) == len(b) and all(map(_same_bytes, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype != object:
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(np.array_equal(a, b))
