"""A third judge, where the two oracles differ: the operators' own NumPy rules, node by node."""

from __future__ import annotations

from typing import Any

from onnx import ModelProto

from anydml.ir.graph import Graph, If, Node, OnnxOp, Value
from anydml.ir.provider import RegionFailed
from anydml.onnx.ops.fold import fold
from anydml.onnx.ops.opinfo import NodeFailed, NotFoldable
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.read import read
from anydml.onnx.write import region
from anydml.problems import Unsupported
from anydml.runtime.library import OnnxRuntime
from tests.robustness.random_models import Feeds


def by_rules(model: ModelProto, feeds: Feeds) -> list[Any] | None:
    """The outputs; None where a node has no rule, a loop is in it, or a rule leaves the case open."""
    loaded = read(model)
    known: dict[Value, Any] = {v: c.content for v, c in loaded.defaults.items()}
    known |= {v: feeds[v.name] for v in loaded.graph.inputs if v.name in feeds}
    try:
        return _run(loaded.graph, known, loaded.opsets[""])
    except (NotFoldable, NodeFailed, Unsupported, RegionFailed):
        return None


def _node(node: Node, inputs: list[Any], opset: int) -> list[Any]:
    """By its rule, or by onnxruntime, alone, where that is known to be right."""
    assert isinstance(node.op, OnnxOp)
    try:
        return list(fold(node, inputs))
    except NotFoldable:
        if quirk_of(node) is not None:
            raise
    alone = region([node], list(node.reads), list(node.writes), {}, {"": opset})
    results = iter(OnnxRuntime().compile(alone, 1)([x for x in inputs if x is not None]))
    return [None if v is None else next(results) for v in node.outputs]


def _run(graph: Graph, known: dict[Value, Any], opset: int) -> list[Any]:
    known = {**known, **{v: c.content for v, c in graph.constants.items()}}
    for node in graph.nodes:
        if isinstance(node, If):
            branch = node.then_branch if known[node.condition].item() else node.else_branch
            results = _run(branch, known, opset)
        else:
            results = _node(node, [None if v is None else known[v] for v in node.inputs], opset)
        known |= {v: r for v, r in zip(node.outputs, results, strict=True) if v is not None}
    return [known[v] for v in graph.outputs]
