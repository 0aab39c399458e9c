"""Loop, Scan and SequenceMap as steps that run their bodies as programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from anydml.errors import InvalidModel, Problem, Unsupported, counted
from anydml.ir.graph import Graph, Node, TensorType, Type, Value
from anydml.onnx.execute.loop_steps import LoopStep, ScanStep, SequenceMapStep
from anydml.onnx.types import numpy_type, with_sizes


def iterates(node: Node) -> bool:
    """Whether it is a loop that we can run ourselves, an iteration at a time."""
    return any(map(node.is_onnx, ("Loop", "Scan", "SequenceMap"))) and "body" in node.bodies


def iteration(
    node: Node,
    program: Callable[[Graph], Any],
    slot: Callable[[Value | None], int],
) -> LoopStep | ScanStep | SequenceMapStep:
    """The step of a node whose body we run ourselves, an iteration at a time.

    Raises:
        Unsupported: another operator with a body.
        InvalidModel: the body is not well formed.
    """
    if not iterates(node):
        what = f"an If in the body of {node.op} cannot be run; only in those of Loop, Scan and SequenceMap"
        raise Unsupported(Problem(node.label, what))
    inner = node.bodies["body"]
    body = program(inner.standalone)

    def explain() -> str:
        lines = body.explain().splitlines()
        return "\n".join(
            [f"{node.label}: its body, an iteration at a time", *("  " + line for line in lines)]
        )

    inputs = tuple(None if v is None else slot(v) for v in node.inputs)
    if node.op.name == "Loop":
        inputs = (*inputs, None, None)[: max(2, len(inputs))]
    captures, writes = tuple(map(slot, inner.inputs)), tuple(map(slot, node.outputs))
    own = int(node.op.name == "Loop")  # outputs that are the body's business: the condition
    if len(inner.outputs) != own + len(writes):
        message = f"expected {counted(own + len(writes), 'output')} of its body, but got {len(inner.outputs)}"
        raise InvalidModel(Problem(node.label, message))

    def empty(output: int, given: list[Any]) -> np.ndarray | None:
        """Sizes that nobody knows count as 0."""
        told, found = inner.returns[own + output], body.output_types(given)[own + output]
        return _empty(with_sizes(told, found) or found)

    parts = (node, body, inputs, captures, writes, empty, explain)
    if node.op.name == "Scan":
        return _scan(node, partial(ScanStep, *parts))
    return (LoopStep if node.op.name == "Loop" else SequenceMapStep)(*parts)


def _scan(node: Node, step: Callable[..., ScanStep]) -> ScanStep:

    def listed(name: str, length: int) -> tuple[int, ...]:
        given = node.attributes.get(name)
        return tuple(given.ints) if given is not None and given.ints else (0,) * length

    count = int(node.attributes["num_scan_inputs"].i)
    batched = node.op.version < 9
    rows = len(node.outputs) - (len(node.inputs) - int(batched) - count)
    ways = "directions" if batched else "scan_input_directions"
    return step(
        count=count,
        input_axes=listed("scan_input_axes", count),
        output_axes=listed("scan_output_axes", rows),
        backward_inputs=tuple(map(bool, listed(ways, count))),
        backward_outputs=tuple(map(bool, listed("scan_output_directions", rows))),
        batched=batched,
    )


def _empty(type: Type | None) -> np.ndarray | None:
    """No elements of a type, along a new first axis; unknown sizes count as 0."""
    if not isinstance(type, TensorType):
        return None
    sizes = [n if isinstance(n, int) else 0 for n in type.sizes or ()]
    try:
        return np.empty((0, *sizes), numpy_type(type.dtype))
    except ValueError:  # beyond what NumPy can tell the shape of
        return None
