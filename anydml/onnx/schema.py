"""ONNX's schemas: what an operator's inputs, outputs and attributes are at an opset.

Those of ONNX's own two domains stand in schemas.txt, which `python -m tools.generate_schemas` writes from the
onnx package: that takes long to import, and 15 ms more to make its registry of all operators.
What is newer than the table is asked of the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anydml.cached import cached_property
from anydml.dataclass import dataclass
from anydml.errors import counted, nearest
from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.protos import AttributeProto, attribute_value
from anydml.onnx.types import onnx_name

if TYPE_CHECKING:
    from onnx.defs import OpSchema

INTERNAL_DOMAIN = "anydml"
"""The domain of operators that only our kernels run: onnxruntime's Where makes 0.0 of -0.0."""
ML_DOMAIN = "ai.onnx.ml"
"""Of operators of classical machine learning."""
MAX_VARIADIC = 1 << 30
"""Inputs that a variadic parameter may have, and more."""

_LIBRARY_DOMAINS = frozenset(
    """com.microsoft com.microsoft.nchwc com.microsoft.experimental com.microsoft.dml com.ms.internal.nhwc
    org.pytorch.aten""".split()
)
"""Those of what onnxruntime brings along, beside ONNX's operators."""


@cache
def schema_of(op: OnnxOp) -> OpSchema | None:
    if op.domain in _LIBRARY_DOMAINS:  # of which the package has none: it is not asked, which may take 10 ms
        return None
    from onnx import defs

    try:
        return defs.get_schema(op.name, op.version, op.domain)
    except defs.SchemaError:  # an operator that ONNX does not know
        return None


@dataclass(frozen=True)
class Signature:
    """All of a schema but its types. Revisions that share it differ in these, in permitted axes, in words.

    `inputs`, `outputs`: names, and whether they may be left out. `attributes`: types, defaults, whether they
    must be there.
    """

    inputs: tuple[object, ...]
    outputs: tuple[object, ...]
    attributes: Mapping[str, object]

    def extends(self, older: Signature) -> bool:
        """Whether it has all of another one's inputs, outputs and attributes, as they were."""
        return (
            self.inputs[: len(older.inputs)] == older.inputs
            and self.outputs[: len(older.outputs)] == older.outputs
            and older.attributes.items() <= self.attributes.items()
        )


@cache
def signature_of(op: OnnxOp) -> Signature:
    """Of one of ONNX's operators."""
    schema = schema_of(op)
    assert schema is not None
    inputs, outputs = (tuple((f.name, f.option) for f in fs) for fs in (schema.inputs, schema.outputs))
    told = {
        a.name: (str(a.type), a.required, a.default_value.SerializeToString())
        for a in schema.attributes.values()
    }
    return Signature(inputs, outputs, told)


def unknown_operator(op: OnnxOp) -> str:
    """What to say of an operator that ONNX does not know; nothing of one that it does."""
    if schema_of(op) is not None:
        return ""
    if op.domain:
        return (
            f"{op.domain!r} is a domain of custom operators: load with sess_options on which "
            "register_custom_ops_library was called; `inspect`, `flatten` and `check` do not run them"
        )
    from onnx import defs

    known = [s for s in defs.get_all_schemas_with_history() if not s.domain]
    if later := [s.since_version for s in known if s.name == op.name]:
        return f"it exists from opset {min(later)} on"
    return nearest(op.name, {s.name for s in known}) or "ONNX has no such operator"


@dataclass(frozen=True)
class Formal:
    """An input or output of a schema.

    Attributes:
        types: what it may be, in ONNX's words: `tensor(float)`.
        variable: what its type is called: all that have one name are of one type, if they are homogeneous.
    """

    name: str
    types: frozenset[str]
    variable: str
    homogeneous: bool
    optional: bool

    def allows(self, name: str) -> bool:
        """An optional that has content is known by this."""
        return name in self.types or f"optional({name})" in self.types


@dataclass(frozen=True)
class Form:
    """What a schema asks for: how many inputs and outputs, of which kinds; attributes with their defaults."""

    since: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    given: tuple[Formal, ...]
    made: tuple[Formal, ...]
    attributes: Mapping[str, int]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]

    @cached_property
    def optional(self) -> tuple[bool, ...]:
        """For each formal input whether it may be left out."""
        return tuple(formal.optional for formal in self.given)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(formal.name for formal in self.given)


def table_name(domain: str, name: str) -> str:
    """What schemas.txt calls an operator."""
    return f"{domain}:{name}" if domain else name


@cache
def form_of(op: OnnxOp) -> Form | None:
    if op.version <= _table().newest.get(op.domain, 0):
        revisions = _table().revisions(op)
        found = next((r for r in revisions if r[0] <= op.version), None)
        return None if found is None else _read(found)
    schema = schema_of(op)
    return None if schema is None else form_from(schema)


def is_foreign(op: OnnxOp) -> bool:
    """Whether it is neither ONNX's nor ours: a library's own, or nobody's."""
    return op.domain != INTERNAL_DOMAIN and form_of(op) is None


def is_custom(op: OnnxOp) -> bool:
    """Whether it is of a library of custom operators, which people register with onnxruntime's options."""
    return bool(op.domain) and op.domain not in _LIBRARY_DOMAINS and is_foreign(op)


def form_from(schema: OpSchema) -> Form:
    """The form of one of ONNX's own objects, which are slow to look at."""
    from onnx.defs import OpSchema

    optional = OpSchema.FormalParameterOption.Optional
    given, made = (
        tuple(
            Formal(f.name, frozenset(f.types), f.type_str, f.is_homogeneous, f.option == optional)
            for f in formals
        )
        for formals in (schema.inputs, schema.outputs)
    )
    attributes = dict(sorted(schema.attributes.items()))  # they come as a hash table has them
    return Form(
        schema.since_version,
        (schema.min_input, min(schema.max_input, MAX_VARIADIC)),
        (schema.min_output, min(schema.max_output, MAX_VARIADIC)),
        given,
        made,
        {n: int(a.type.value) for n, a in attributes.items()},  # type: ignore[attr-defined]
        tuple(n for n, a in attributes.items() if a.required),
        {
            n: attribute_value(a.default_value)
            for n, a in attributes.items()
            if a.default_value.type != AttributeProto.UNDEFINED
        },
    )


@dataclass(frozen=True)
class _Table:
    """What schemas.txt has, of which only the lines are looked at that somebody needs."""

    newest: Mapping[str, int]
    """The newest opset of each domain that it has."""
    types: Sequence[bytes]
    operators: bytes

    def revisions(self, op: OnnxOp) -> Any:
        """Of an operator, the newest first."""
        name = f"\n{table_name(op.domain, op.name)} ".encode()
        start = self.operators.find(name) if op.name.isalnum() else -1
        if start < 0:
            return []
        return json.loads(self.operators[start + len(name) : self.operators.index(b"\n", start + 1)])


def newest_opset_of_onnx() -> int:
    """The newest opset of ONNX's own domain in the table."""
    return _table().newest[""]


@cache
def _table() -> _Table:
    head, types, operators = Path(__file__).with_name("schemas.txt").read_bytes().split(b"\n\n")
    return _Table(json.loads(head), types.splitlines(), b"\n" + operators)


def _read(revision: list[Any]) -> Form:
    since, inputs, outputs, given, made, attributes = revision
    formals = [
        tuple(Formal(name, _types(k), v, bool(h), bool(o)) for name, k, v, h, o in some)
        for some in (given, made)
    ]
    defaults = {n: d[0] for n, (_, _, d) in attributes.items() if d}
    return Form(
        since,
        (inputs[0], inputs[1]),
        (outputs[0], outputs[1]),
        formals[0],
        formals[1],
        {n: kind for n, (kind, _, _) in attributes.items()},
        tuple(n for n, (_, required, _) in attributes.items() if required),
        {n: _content(d) for n, d in defaults.items()},
    )


def _content(default: Any) -> Any:
    """Texts are bytes in ONNX."""
    if isinstance(default, list):
        return [_content(item) for item in default]
    return default.encode() if isinstance(default, str) else default


@cache
def _types(number: int) -> frozenset[str]:
    return frozenset(json.loads(_table().types[number]))


@cache
def allowed_types(op: OnnxOp) -> tuple[frozenset[str], ...]:
    """For each formal input the types that ONNX allows, in its words: `tensor(float)`."""
    form = form_of(op)
    return () if form is None else tuple(formal.types for formal in form.given)


def wrong_type(op: OnnxOp, node: Node) -> str | None:
    """What is wrong, were a node this operator, with the types of its inputs as far as they are known."""
    types = [None if v is None or v.type is None else onnx_name(v.type) for v in node.inputs]
    allowed, form = allowed_types(op), form_of(op)
    if form is None or not allowed:
        return None
    bound: dict[str, tuple[str, str]] = {}
    for k, found in enumerate(types):
        if found is None:
            continue
        formal, wanted = form.given[min(k, len(allowed) - 1)], allowed[min(k, len(allowed) - 1)]
        if found not in wanted:
            told = sorted(wanted)
            shown = ", ".join(told[:6]) + (f" or {counted(len(told) - 6, 'other')}" if len(told) > 6 else "")
            return f"expected input {formal.name} of {op.name} to be {shown}, but got {found}"
        name, first = bound.setdefault(formal.variable, (formal.name, found))
        if first != found and formal.homogeneous:
            names = name if name == formal.name else f"{name} and {formal.name}"
            return f"expected inputs {names} of {op.name} to be of one type, but got {first} and {found}"
    return None
