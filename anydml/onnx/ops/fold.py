"""A node computed by its operator's own rule, checked against the schema's types."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.form import schema_of
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.opinfo import Content, NodeView, NotFoldable
from anydml.onnx.types import dtype_name


def has_rule(op: OnnxOp) -> bool:
    """Whether nodes of this operator can be computed here."""
    info = OPS.get(op.name) if not op.domain else None
    return info is not None and info.fold is not None


def fold(node: Node, inputs: Sequence[Content]) -> list[Content]:
    """The outputs of a node for the contents of its inputs, of which missing ones are None.

    Results may be views of the inputs.

    Raises:
        NotFoldable: no rule, or none for this case.
        ValueError, IndexError: the node fails on these inputs.
    """
    assert isinstance(node.op, OnnxOp)
    info = OPS.get(node.op.name) if not node.op.domain else None
    schema = schema_of(node.op)
    if info is None or info.fold is None or schema is None:
        raise NotFoldable(f"no rule for {node.op}")
    bound: dict[str, str] = {}
    for k, content in enumerate(inputs):
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        named = _type_name(content)
        if named is None:
            continue
        if not _allowed(named, formal.types):
            raise NotFoldable(f"{node.op} of {named}")
        bound.setdefault(formal.type_str, named)
    with np.errstate(all="ignore"):
        found = info.fold(NodeView(node), *inputs)
    results: list[Any] = list(found) if isinstance(found, tuple) else [found]
    results += [None] * (len(node.outputs) - len(results))
    checked: list[Content] = []
    for k, (result, value) in enumerate(zip(results, node.outputs, strict=False)):
        if isinstance(result, np.generic):
            result = np.asarray(result)
        formal = schema.outputs[min(k, len(schema.outputs) - 1)]
        named = _type_name(result)
        wanted = bound.get(formal.type_str)
        if value is not None and named is not None:
            if not _allowed(named, formal.types):  # an attribute asks for it
                raise NotFoldable(f"{named} as an output of {node.op}")
            if wanted is not None and named != wanted and formal.is_homogeneous:
                raise AssertionError(f"the rule of {node.op} gives {named} as output {k}")
        checked.append(result)
    return checked


def _allowed(name: str, types: Collection[str]) -> bool:
    """An optional that has content is known by this."""
    return name in types or f"optional({name})" in types


def _type_name(content: Any) -> str | None:
    """As schemas write it: tensor(float), seq(tensor(int64)); None where nothing is there to tell."""
    if isinstance(content, list):
        inner = _type_name(content[0]) if content else None
        return None if inner is None else f"seq({inner})"
    if isinstance(content, np.ndarray | np.generic):
        name = dtype_name(content.dtype)
        return f"tensor({ {'float32': 'float', 'float64': 'double'}.get(name, name) })"
    return None
