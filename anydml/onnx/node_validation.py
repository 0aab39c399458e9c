"""Whether a node has the form that ONNX's schema of its operator asks for.

Checked while a model is read, so that no later layer, and no library, meets a node with an input too few or
an attribute of another kind: some of them end the process on one. Unknown attributes are left to whoever
compiles the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import onnx
from onnx import AttributeProto, GraphProto, NodeProto

from anydml.errors import InvalidModel, Problem, short_repr
from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.types import onnx_name

_Option = onnx.defs.OpSchema.FormalParameterOption
_KINDS = {code: name.lower() for name, code in AttributeProto.AttributeType.items()}
_LEAST = {
    ("Attention", "q_num_heads"): 1,
    ("Attention", "kv_num_heads"): 1,
    ("DeformConv", "offset_group"): 1,
    ("DepthToSpace", "blocksize"): 1,
    ("GatherND", "batch_dims"): 0,
    ("GroupNormalization", "num_groups"): 1,
    ("LRN", "size"): 1,
    ("SpaceToDepth", "blocksize"): 1,
    **{(op, "group"): 1 for op in ("Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv")},
}
"""Attributes of which less means nothing: onnxruntime ends the process on some, as it divides by them."""
_INTEGERS = (AttributeProto.INT, AttributeProto.INTS)
_ANY_INTEGER = ("Constant", "Slice")
"""Operators with integers that may be of 64 bits. Libraries keep those of others in 32."""
_ITERATE = ("Loop", "Scan", "SequenceMap")
_EQUATION = re.compile(rb"TERM(,TERM)*(->TERM)?".replace(b"TERM", rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*"))
_MOST = 1 << 30
"""Inputs that a variadic parameter may have, and more."""


@cache
def schema_of(op: OnnxOp) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(op.name, op.version, op.domain)
    except onnx.defs.SchemaError:  # an operator that ONNX does not know
        return None


@dataclass(frozen=True)
class _Form:
    """What a schema asks for; asked once, since ONNX's own objects are slow to look at."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    optional: tuple[bool, ...]
    """For each formal input whether it may be left out."""
    names: tuple[str, ...]
    attributes: dict[str, int]
    required: tuple[str, ...]


@cache
def _form(op: OnnxOp) -> _Form | None:
    schema = schema_of(op)
    if schema is None:
        return None
    attributes = schema.attributes.values()
    return _Form(
        (schema.min_input, min(schema.max_input, _MOST)),
        (schema.min_output, min(schema.max_output, _MOST)),
        tuple(i.option == _Option.Optional for i in schema.inputs),
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
    allowed, form = allowed_types(op), _form(op)
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


def check_types(node: Node) -> None:
    """ONNX's own types of inputs, for a node that no compiler of a library has looked at.

    Raises:
        InvalidModel: an input of a type that the operator does not have; an EyeLike that is no matrix.
    """
    assert isinstance(node.op, OnnxOp)
    if node.is_onnx("EyeLike"):  # of a vector of n, onnx.reference would make n * n
        for sizes in (v.sizes for v in node.reads):
            if sizes is not None and len(sizes) != 2:
                message = f"expected an input of rank 2 of EyeLike, but got {len(sizes)}"
                raise InvalidModel(Problem(node.label, message))
    problem = wrong_type(node.op, node)
    if problem is not None:
        raise InvalidModel(Problem(node.label, problem))


def inputs_given(proto: NodeProto, op: OnnxOp) -> list[str]:
    """The names of a node's inputs without those left out at the end, on which onnxruntime can crash."""
    names, form = list(proto.input), _form(op)
    while form is not None and len(names) > form.inputs[0] and not names[-1]:
        names.pop()
    return names


def problems(proto: NodeProto, op: OnnxOp, given: list[str]) -> Iterator[str]:
    """What is wrong with a node, in words; `given` are its inputs as `inputs_given` tells them."""
    for attribute in proto.attribute:
        kind = attribute.type
        if kind not in _KINDS or kind == AttributeProto.UNDEFINED:
            yield f"expected a type of attribute {attribute.name!r}, but got number {kind}"
        if attribute.ref_attr_name:
            yield f"expected a value of attribute {attribute.name!r}, but it refers to a function's"
    form = _form(op)
    if form is None:
        if not op.domain and op.name in _ITERATE:
            yield f"expected an operator of opset {op.version}, but {op.name} is none"
        return
    for word, count, (least, most) in (
        ("inputs", len(given), form.inputs),
        ("outputs", len(proto.output), form.outputs),
    ):
        if not least <= count <= most:
            more = f"{least} to {most}" if most < _MOST else f"{least} or more"
            number = f"{least}" if least == most else more
            yield f"expected {number} {word[:-1] if number == '1' else word} of {op.name}, but got {count}"
    last = len(form.names) - 1
    for k, name in enumerate(given):
        if not name and last >= 0 and not form.optional[min(k, last)]:
            yield f"expected input {form.names[min(k, last)]} of {op.name}, but it is missing"
    there = {a.name: a for a in proto.attribute}
    for required in form.required:
        if required not in there:
            yield f"expected attribute {required} of {op.name}, but it is missing"
    for name, attribute in there.items():
        wanted_type = form.attributes.get(name)
        if wanted_type is not None and attribute.type in _KINDS and attribute.type != wanted_type:
            kinds = f"{_KINDS[wanted_type]}, but got {_KINDS[attribute.type]}"
            yield f"expected attribute {name} of {op.name} to be of type {kinds}"
        elif attribute.i < _LEAST.get((op.name, name), attribute.i):
            least = _LEAST[op.name, name]
            yield f"expected attribute {name} of {op.name} to be at least {least}, but got {attribute.i}"
        elif wanted_type in _INTEGERS and not op.domain and op.name not in _ANY_INTEGER:
            large = [n for n in (attribute.i, *attribute.ints) if not -(2**31) <= n < 2**31]
            if large:
                yield f"expected attribute {name} of {op.name} to fit 32 bits, but got {large[0]}"
    parts = there["num_outputs"].i if op.name == "Split" and "num_outputs" in there else len(proto.output)
    if parts != len(proto.output):  # ONNX's own inference ends the process on it
        yield f"expected as many outputs of Split as num_outputs, {parts}, but got {len(proto.output)}"
    if op.name == "Einsum" and "equation" in there:
        equation = there["equation"].s
        if not _EQUATION.fullmatch(
            equation.replace(b" ", b"")
        ):  # ONNX's own inference can loop on it for ever
            text = equation.decode(errors="replace")
            yield f"expected an equation of Einsum such as 'ij,jk->ik', but got {short_repr(text)}"
    if op.name in _ITERATE:
        yield from _body_problems(len(given), len(proto.output), op, there)


def _body_problems(
    given: int, taken: int, op: OnnxOp, attributes: dict[str, AttributeProto]
) -> Iterator[str]:
    """What is wrong with the number of inputs and outputs of a body, which no schema says."""
    body = attributes["body"].g if "body" in attributes else GraphProto()
    if op.domain or op.name not in _ITERATE or "body" not in attributes:
        return
    if op.name == "Loop":
        carried = given - 2
        inputs, outputs = 2 + carried, 1 + taken
        fits = carried >= 0 and taken >= carried
    elif op.name == "Scan":
        scanned = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 0
        inputs = given - (op.version < 9)  # which has lengths of sequences in front
        outputs = taken
        fits = 1 <= scanned <= inputs and taken >= inputs - scanned
    else:
        inputs, outputs, fits = given, taken, given > 0
    if not fits:
        yield f"expected inputs and outputs of a {op.name}, but got {given} and {taken}"
    elif (len(body.input), len(body.output)) != (inputs, outputs):
        got = f"{len(body.input)} and {len(body.output)}"
        yield f"expected a body with {inputs} inputs and {outputs} outputs, but got {got}"
