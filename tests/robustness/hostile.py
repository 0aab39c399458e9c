"""Tests of what would harm a naive reader: each runs in a child process, and says what is expected, and within what.

A test runs in an empty folder, with 3 GiB of address space more than there is when it begins. Its memory is
the peak of the whole process.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import anydml
from tests.robustness.processes import Function, Limits, Tell, Worker

ANY_ERROR = (
    "InvalidModel",
    "InvalidInput",
    "InvalidOperator",
    "ExecutionFailed",
    "Unsupported",
    "OutOfMemory",
)
"""Which of them does not matter."""
EITHER = ("done", *ANY_ERROR)
"""Whatever a library makes of it, as long as it is one of these."""
_LIMITS = Limits(space=3 << 30, memory=512 << 20)
_WORKERS: list[Worker] = []
"""The child of this process, if it is there: most tests are too short for one of their own."""

Test = Callable[..., None]


def limited(*expected: str, seconds: float = 10, megabytes: int = 1024) -> Callable[[Test], Test]:
    """Run a test in a child; it has to end in one of these errors, or to be `done` if there are none."""

    def kept(test: Test) -> Test:
        @functools.wraps(test)
        def in_a_child(record_property: Callable[[str, object], None], **arguments: Any) -> None:
            if sys.platform != "linux":
                pytest.skip("limits and what many of the tests need are Linux's")
            if megabytes > 1024 and _WORKERS:  # what others left would count
                _WORKERS.pop().stop()
            if not _WORKERS:
                _WORKERS.append(Worker(_in_a_child, _LIMITS))
            worker = _WORKERS[0]
            ended = worker.ask((test.__module__, test.__name__, arguments), 3 * seconds)
            if worker.worn:
                _WORKERS.pop().stop()
            record_property("megabytes", ended.memory >> 20)
            how = ended.error if ended.how == "error" else ended.how
            kinds = (*expected, "OutOfMemory") if "ExecutionFailed" in expected else expected or ("done",)
            assert how in kinds, f"{ended.about}\n{ended.trace}"
            assert min(ended.seconds, ended.processor) <= seconds  # the machine may be busy
            assert ended.memory <= megabytes << 20

        known = inspect.signature(test)
        name = inspect.Parameter("record_property", inspect.Parameter.KEYWORD_ONLY)
        in_a_child.__signature__ = known.replace(parameters=[*known.parameters.values(), name])  # type: ignore[attr-defined]
        return in_a_child

    return kept


def _in_a_child() -> Function:
    warnings.simplefilter("ignore")
    anydml.load, anydml.flatten  # noqa: B018 - what is imported does not count
    import onnxruntime  # noqa: F401

    def tested(task: tuple[str, str, Mapping[str, Any]], tell: Tell) -> None:
        module, name, arguments = task
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            getattr(importlib.import_module(module), name).__wrapped__(**arguments)

    return tested


# ---- models ------------------------------------------------------------------------------------------

X = np.array([1, -2, 3], np.float32)
FLOATS = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
COND = helper.make_tensor_value_info("c", TensorProto.BOOL, [])


def parsed(text: str, opset: int = 17) -> ModelProto:
    """A model of onnx's text form, without its head."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "own": 1]> {text}')


def built(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Any] = (FLOATS,),
    outputs: Sequence[str] = ("y",),
    weights: Sequence[TensorProto] = (),
    opset: int = 17,
) -> ModelProto:
    ends = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(list(nodes), "main", list(inputs), ends, initializer=list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def chain(op: str, count: int, last: str, prefix: str = "v", operands: int = 1) -> list[NodeProto]:
    """Nodes each of which reads what the one before made, from `v0` on; `last` makes `y`."""
    nodes = [helper.make_node(op, [f"{prefix}{k}"] * operands, [f"{prefix}{k + 1}"]) for k in range(count)]
    return [*nodes, helper.make_node(last, [f"{prefix}{count}"], ["y"])]


def run(model: Any, **feeds: Any) -> list[Any]:
    return anydml.load(model, threads=1).run(None, feeds)


def texts(name: str, content: bytes) -> TensorProto:
    """An initializer of one string."""
    return TensorProto(name=name, data_type=TensorProto.STRING, dims=[1], string_data=[content])


def same(got: Any, wanted: Any) -> None:
    assert got.dtype == np.asarray(wanted).dtype, (got, wanted)
    assert np.array_equal(got, wanted), (got, wanted)
