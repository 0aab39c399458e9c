"""A node computed by its operator's own rule, checked against the schema's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import Content, NodeFailed, NodeView, NotFoldable
from anydml.onnx.schema import Formal, form_of
from anydml.onnx.types import dtype_name


def has_rule(op: OnnxOp) -> bool:
    """Whether nodes of this operator can be computed here."""
    info = info_of(op)
    return info is not None and info.fold is not None


def fold(node: Node, inputs: Sequence[Content]) -> list[Content]:
    """The outputs of a node for the contents of its inputs, of which missing ones are None.

    Results may be views of the inputs.

    Raises:
        NotFoldable: no rule, or none for this case.
        NodeFailed: the node fails on these inputs.
    """
    info = info_of(node.op)
    form = form_of(node.op)
    if info is None or info.fold is None or form is None:
        raise NotFoldable(f"no rule for {node.op}")
    formals, results = form.given, form.made
    bound: dict[str, str] = {}
    for k, content in enumerate(inputs):
        formal, named = formals[min(k, len(formals) - 1)], _type_name(content)
        if named is None:
            continue
        if not formal.allows(named):
            raise NotFoldable(f"{node.op} of {named}")
        if bound.setdefault(formal.variable, named) != named and formal.homogeneous:
            raise NotFoldable(f"{node.op} of {bound[formal.variable]} and {named}")
    try:
        with np.errstate(all="ignore"):
            found = info.fold(NodeView(node), *inputs)
    except (ValueError, IndexError, ArithmeticError, TypeError, KeyError) as error:
        raise NodeFailed(str(error)) from error
    outputs: list[Any] = list(found) if isinstance(found, tuple) else [found]
    outputs += [None] * (len(node.outputs) - len(outputs))
    outputs = [np.asarray(r) if isinstance(r, np.generic) else r for r in outputs[: len(node.outputs)]]
    for k, (result, value) in enumerate(zip(outputs, node.outputs, strict=True)):
        if value is not None:
            _check_result(node.op, k, results[min(k, len(results) - 1)], _type_name(result), bound)
    return outputs


def _check_result(op: OnnxOp, k: int, formal: Formal, named: str | None, bound: Mapping[str, str]) -> None:
    if named is None:
        return
    if not formal.allows(named):  # an attribute asks for it
        raise NotFoldable(f"{named} as an output of {op}")
    wanted = bound.get(formal.variable, named)
    assert named == wanted or not formal.homogeneous, f"the rule of {op} gives {named} as output {k}"


def _type_name(content: Any) -> str | None:
    """As schemas write it: tensor(float), seq(tensor(int64)); None where nothing is there to tell."""
    if isinstance(content, list):
        inner = _type_name(content[0]) if content else None
        return None if inner is None else f"seq({inner})"
    if isinstance(content, np.ndarray | np.generic):
        name = dtype_name(content.dtype)
        return f"tensor({ {'float32': 'float', 'float64': 'double'}.get(name, name) })"
    return None
