"""ONNX's schemas: what an operator's inputs, outputs and attributes are at an opset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import onnx

from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.types import onnx_name

MAX_VARIADIC = 1 << 30
"""Inputs that a variadic parameter may have, and more."""


@cache
def schema_of(op: OnnxOp) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op.name, op.version, op.domain)
    except onnx.defs.SchemaError:  # an operator that ONNX does not know
        return None


@dataclass(frozen=True)
class Form:
    """What a schema asks for; asked once, since ONNX's own objects are slow to look at."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    optional: tuple[bool, ...]
    """For each formal input whether it may be left out."""
    names: tuple[str, ...]
    attributes: dict[str, int]
    required: tuple[str, ...]


@cache
def form_of(op: OnnxOp) -> Form | None:
    schema = schema_of(op)
    if schema is None:
        return None
    attributes = schema.attributes.values()
    return Form(
        (schema.min_input, min(schema.max_input, MAX_VARIADIC)),
        (schema.min_output, min(schema.max_output, MAX_VARIADIC)),
        tuple(i.option == onnx.defs.OpSchema.FormalParameterOption.Optional for i in schema.inputs),
        tuple(i.name for i in schema.inputs),
        {a.name: int(a.type.value) for a in attributes},  # type: ignore[attr-defined]
        tuple(a.name for a in attributes if a.required),
    )


@cache
def allowed_types(op: OnnxOp) -> tuple[frozenset[str], ...]:
    """For each formal input the types that ONNX allows, in its words: `tensor(float)`."""
    schema = schema_of(op)
    return () if schema is None else tuple(frozenset(i.types) for i in schema.inputs)


def wrong_type(op: OnnxOp, node: Node) -> str | None:
    """What is wrong, were a node this operator, with the types of its inputs as far as they are known."""
    types = (None if v is None or v.type is None else onnx_name(v.type) for v in node.inputs)
    allowed, form = allowed_types(op), form_of(op)
    if form is None or not allowed:
        return None
    for k, found in enumerate(types):
        wanted = allowed[min(k, len(allowed) - 1)]
        if found is not None and found not in wanted:
            name = form.names[min(k, len(allowed) - 1)]
            told = sorted(wanted)
            shown = ", ".join(told[:6]) + (f" or {len(told) - 6} others" if len(told) > 6 else "")
            return f"expected input {name} of {op.name} to be {shown}, but got {found}"
    return None
