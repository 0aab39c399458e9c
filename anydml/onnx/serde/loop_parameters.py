"""What a Loop's body is called with: two scalars first, whatever its file declares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anydml.ir.graph import Body, Constant, Node, OnnxOp, TensorType, Value

RESHAPES_TO_INPUT = 5
"""The opset from which on Reshape takes its shape as an input."""


def with_scalars(body: Body, opset: int) -> Body:
    """The body with its number and its condition as scalars, as ONNX has them.

    Some exporters declare one element instead, onnxruntime then gives the body that, and what it computes
    has one axis more.
    """
    if opset < RESHAPES_TO_INPUT:
        return body
    parameters, takes, constants, nodes = list(body.parameters), list(body.takes), dict(body.constants), []
    for k, (value, type) in enumerate(zip(body.parameters[:2], body.takes[:2], strict=True)):
        if not isinstance(type, TensorType) or type.sizes is None or len(type.sizes) != 1:
            continue
        takes[k] = TensorType(type.dtype, ())
        parameters[k] = Value(f"{value.name}~scalar", takes[k])
        one = Value(f"{value.name}~sizes", TensorType("int64", (1,)))
        constants[one] = Constant(np.array([1], np.int64))
        nodes.append(Node(OnnxOp("", "Reshape", opset), (parameters[k], one), (value,), {}, value.name))
    return replace(
        body,
        parameters=tuple(parameters),
        takes=tuple(takes),
        constants=constants,
        nodes=(*nodes, *body.nodes),
    )
