"""A third judge, where the two oracles differ: the operators' own NumPy rules, node by node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto

from anydml.errors import Unsupported
from anydml.ir.graph import Graph, If, Node, OnnxOp, Value
from anydml.onnx.ops.fold import fold
from anydml.onnx.ops.opinfo import NodeFailed, NotFoldable
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import RegionFailed
from anydml.onnx.serde.deserialize import read
from anydml.onnx.serde.region_model import region
from anydml.onnx.types import of_content
from tests.robustness.random_models import Feeds


class Unknown:
    """What there is instead of a value that no rule gives. `open`: since ONNX leaves it to everybody."""

    def __init__(self, open: bool) -> None:
        self.open = open


LEFT_OPEN = "the extreme of"
"""How rules begin that leave open which of numbers and NaN is the largest."""


def by_rules(model: ModelProto, feeds: Feeds) -> list[Any] | None:
    """The outputs; None where a node fails, `Unknown` where one has no rule."""
    loaded = read(model)
    known: dict[Value, Any] = {v: c.content for v, c in loaded.defaults.items()}
    known |= {v: feeds[v.name] for v in loaded.graph.inputs if v.name in feeds}
    try:
        return _Rules(loaded.opsets[""]).run(loaded.graph, known)
    except (NodeFailed, Unsupported, RegionFailed):
        return None


class _Rules:
    def __init__(self, opset: int) -> None:
        self.opset = opset

    def run(self, graph: Graph, known: dict[Value, Any]) -> list[Any]:
        known = {**known, **{v: c.content for v, c in graph.constants.items()}}
        for node in graph.nodes:
            given = [known[v] for v in node.reads]
            if unknown := [x for x in given if isinstance(x, Unknown)]:
                results: list[Any] = [Unknown(all(x.open for x in unknown))] * len(node.outputs)
            elif isinstance(node, If):
                branch = node.then_branch if known[node.condition].item() else node.else_branch
                results = self.run(branch, known)
            elif node.is_onnx("Loop"):
                results = self.loop(node, known)
            elif node.is_onnx("Scan") and isinstance(node.op, OnnxOp) and node.op.version > 8:
                results = self.scan(node, known)
            else:
                results = self.node(node, [None if v is None else known[v] for v in node.inputs])
            known |= {v: r for v, r in zip(node.outputs, results, strict=True) if v is not None}
        return [known[v] for v in graph.outputs]

    def node(self, node: Node, inputs: list[Any]) -> list[Any]:
        """By its rule, or by onnxruntime, alone, where that is known to be right."""
        assert isinstance(node.op, OnnxOp)
        if node.is_onnx("ReduceLogSumExp") and {True} == {
            np.isnan(inputs[0]).any(),
            np.isinf(inputs[0]).any(),
        }:
            return [Unknown(True)]  # onnxruntime may give inf, and nobody but the data tells beforehand
        try:
            return list(fold(node, inputs))
        except NotFoldable as why:
            if quirk_of(node) is not None:
                return [Unknown(str(why).startswith(LEFT_OPEN))] * len(node.outputs)
        if node.bodies:
            return [Unknown(False)] * len(node.outputs)
        typed = [None if x is None else Value("x", of_content(x)) for x in inputs]
        reads = [v for v in typed if v is not None]
        alone = replace(node, inputs=tuple(typed))
        call = OnnxRuntime().compile(region([alone], reads, list(node.writes), {}, {"": self.opset}), 1)
        results = iter(call([x for x in inputs if x is not None]))
        return [None if v is None else next(results) for v in node.outputs]

    def loop(self, node: Node, known: dict[Value, Any]) -> list[Any]:
        body = node.bodies["body"]
        captured = {v: known[v] for v in body.inputs}
        given = [None if v is None else known[v] for v in node.inputs]
        trips = None if given[0] is None else int(given[0].item())
        goes = True if len(given) < 2 or given[1] is None else bool(given[1].item())
        state = given[2:]
        rows: list[list[Any]] = [[] for _ in node.outputs[len(state) :]]
        k = 0
        while goes and (trips is None or k < trips):
            values = [np.array(k, np.int64), np.array(goes), *state]
            results = self.run(body, captured | dict(zip(body.parameters, values, strict=False)))
            if any(isinstance(x, Unknown) for x in results):
                return [Unknown(False)] * len(node.outputs)
            goes, state = bool(results[0].item()), results[1 : 1 + len(state)]
            for row, x in zip(rows, results[1 + len(state) :], strict=True):
                row.append(x)
            k += 1
        return [*state, *map(self.stacked, rows)]

    @staticmethod
    def stacked(row: list[Any]) -> Any:
        same = row and all(x.shape == row[0].shape for x in row)
        return np.stack(row) if same else Unknown(False)

    def scan(self, node: Node, known: dict[Value, Any]) -> list[Any]:
        """A Scan, whose axes and directions are the usual ones."""
        if set(node.attributes) != {"num_scan_inputs"}:
            return [Unknown(False)] * len(node.outputs)
        body = node.bodies["body"]
        captured = {v: known[v] for v in body.inputs}
        inputs = [known[v] for v in node.inputs if v is not None]
        split = len(inputs) - node.attributes["num_scan_inputs"].i
        state, scanned = inputs[:split], inputs[split:]
        rows: list[list[Any]] = [[] for _ in node.outputs[split:]]
        for k in range(len(scanned[0])):
            given = [*state, *(np.asarray(x[k]) for x in scanned)]
            results = self.run(body, captured | dict(zip(body.parameters, given, strict=False)))
            if any(isinstance(x, Unknown) for x in results):
                return [Unknown(False)] * len(node.outputs)
            state = results[:split]
            for row, x in zip(rows, results[split:], strict=True):
                row.append(x)
        return [*state, *map(self.stacked, rows)]
