"""Operator descriptions, as DxDispatch JSON writes them or as typed objects, to definitions and graphs.

Both of DxDispatch's forms are read: fields under "Desc", or beside "Type". Enumeration names may drop
their prefix, and a tensor needs only "DataType" and "Sizes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any

from anydml.dataclass import dataclass, field
from anydml.directml.validation import check
from anydml.errors import AnyDMLError, InvalidOperator, Problem, nearest, short_repr, type_name
from anydml.ir.graph import DirectMLGraph, DirectMLNode, TensorType, Value
from anydml.ops.attributes import Activation, ActivationKind, ActivationsKind
from anydml.ops.call import field as field_of
from anydml.ops.call import names_of
from anydml.ops.catalog import BY_NAME
from anydml.ops.enums import (
    FeatureLevel,
    OperatorType,
    TensorDataType,
    TensorFlags,
    parse,
    short_name,
)
from anydml.ops.enums import (
    TensorType as BufferType,
)
from anydml.ops.opdef import REQUIRED, Attribute, Operand, Operator
from anydml.ops.tensor_desc import TensorDesc


@dataclass(frozen=True)
class OperatorDesc:
    """An operator description (DML_OPERATOR_DESC).

    Args:
        type: the operator, as `OperatorType` or by name, with or without `DML_OPERATOR_`.
        fields: its fields by DirectML's names: each a `TensorDesc` or an attribute value.
    """

    type: OperatorType | str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """A description that was read: its definition, tensors and attribute values."""

    operator: Operator
    tensors: Mapping[str, TensorDesc]
    attributes: Mapping[str, Any]


Description = Mapping[str, Any] | OperatorDesc


def read_desc(desc: Description, level: FeatureLevel) -> tuple[Checked | None, list[Problem]]:
    """The description read and checked at a feature level. With problems, what was read is of no use."""
    try:
        operator, fields = _operator(desc)
    except InvalidOperator as error:
        return None, list(error.problems)
    tensors: dict[str, TensorDesc] = {}
    problems = list(_unknown(operator, fields))
    for operand in operator.tensors:
        if operand.array:
            problems += _read_several(operator, operand, fields, tensors)
        elif fields.get(operand.name) is not None:
            try:
                tensors[operand.name] = read_tensor(fields[operand.name])
            except InvalidOperator as error:
                problems += [p.under(operand.name).under(operator.name) for p in error.problems]
        elif operand.optional is None:
            problems.append(_missing(operator, operand.name, '{"DataType": ..., "Sizes": [...]}'))
        elif level < operand.optional:
            later = f"it may be left out from {operand.optional.label}"
            problems.append(
                Problem(operator.name, f"expected field {operand.name}, but it is missing", later)
            )
    attributes, found = read_attributes(operator, fields, level)
    problems += found
    problems += check(operator, tensors, attributes, level)
    return Checked(operator, tensors, attributes), problems


def _read_several(
    operator: Operator, operand: Operand, fields: Mapping[str, Any], tensors: dict[str, TensorDesc]
) -> Iterator[Problem]:
    """The tensors behind one field, into `tensors`."""
    given = fields.get(operand.name)
    if given is None:
        yield _missing(operator, operand.name, '[{"DataType": ..., "Sizes": [...]}, ...]')
        return
    if not isinstance(given, list | tuple):
        message = f"expected a list of tensor descriptions, but got {type_name(given)}"
        yield Problem(f"{operator.name}: {operand.name}", message)
        return
    read: dict[str, TensorDesc] = {}
    for k, desc in enumerate(given):
        try:
            read[field_of(operand.name, k)] = read_tensor(desc)
        except InvalidOperator as error:
            yield from (p.under(field_of(operand.name, k)).under(operator.name) for p in error.problems)
    if len(read) == len(given):
        tensors.update(read)  # else nothing can be said of how they go together
    if not given:
        yield Problem(f"{operator.name}: {operand.name}", "expected at least one tensor, but got none")
    yield from _check_count(operator, operand.count, operand.name, fields, len(given))


def _check_count(
    operator: Operator, count: str, name: str, fields: Mapping[str, Any], length: int
) -> Iterator[Problem]:
    """A count says how long a list is, which may as well be left out."""
    said = fields.get(count) if count else None
    if said is not None and not (_is_integer(said) and said == length):
        message = f"expected {length}, the number of {name}, but got {short_repr(said)}"
        yield Problem(f"{operator.name}: {count}", message)


def field_names(operator: Operator) -> list[str]:
    """All that a description of the operator may say."""
    counts = [a.count for a in operator.attributes if a.count] + [
        s.count for s in operator.tensors if s.count
    ]
    return [s.name for s in operator.operands] + list(dict.fromkeys(counts))


def _unknown(operator: Operator, fields: Mapping[str, Any]) -> Iterator[Problem]:
    known = field_names(operator)
    for name in fields:
        if name not in known:
            guess = nearest(name, known)
            yield Problem(operator.name, f"expected one of its fields, but got {short_repr(name)}", guess)


def read_attributes(
    operator: Operator, fields: Mapping[str, Any], level: FeatureLevel, *, defaults: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """The values of all attributes, by field name, and what is wrong with them.

    `defaults`: an attribute that is not given takes its default, if it has one.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for attribute in operator.attributes:
        given = fields.get(attribute.name)
        if given is None and defaults and attribute.default is not REQUIRED:
            given = attribute.default
        if given is None:
            if attribute.optional:
                values[attribute.name] = None
            else:
                problems.append(_missing(operator, attribute.name, attribute.kind.form))
            continue
        try:
            values[attribute.name] = read_attribute(attribute, given, attribute.name, level)
        except InvalidOperator as error:
            problems += [p.under(operator.name) for p in error.problems]
            continue
        if attribute.count:
            length = len(values[attribute.name])
            problems += _check_count(operator, attribute.count, attribute.name, fields, length)
    return values, problems


def read_attribute(attribute: Attribute, value: object, where: str, level: FeatureLevel) -> Any:
    """One attribute's value as definitions compute with it.

    Raises:
        InvalidOperator: it is not such a value.
    """
    if isinstance(attribute.kind, ActivationKind):
        return _activation(attribute.kind, value, where, level)
    if isinstance(attribute.kind, ActivationsKind):
        if not isinstance(value, list | tuple):
            raise InvalidOperator(Problem(where, f"expected a list, but got {type_name(value)}"))
        each = attribute.kind.each
        return tuple(_activation(each, v, f"{where}[{k}]", level) for k, v in enumerate(value))
    return attribute.kind.read(value, where)


def _activation(kind: ActivationKind, value: object, where: str, level: FeatureLevel) -> Activation:
    remedy = "allowed: " + ", ".join(kind.allowed)
    desc: Any = OperatorDesc(value.operator.name) if isinstance(value, Activation) else value
    if isinstance(value, str):
        desc = {"Type": value, "Desc": {}}
    try:
        operator, fields = _operator(desc, kind.allowed)
    except InvalidOperator as error:
        told = ((p.message, f"{p.remedy}; {remedy}" if p.remedy else remedy) for p in error.problems)
        raise InvalidOperator(*(Problem(where, *both) for both in told)) from None
    if operator.name not in kind.allowed:  # at once: it may have a fused activation, and so on
        message = f"expected an activation that can be fused, but got {operator.name}"
        raise InvalidOperator(Problem(where, message, remedy))
    if isinstance(value, Activation):  # read before
        return value
    problems = []
    since = dict(kind.later).get(operator.name, level)
    if since > level:
        message = f"expected an activation that can be fused at {level.label}, but got {operator.name}"
        problems.append(Problem("", message, f"allowed from {since.label}"))
    tensors = [s.name for s in operator.tensors]
    for name in tensors:
        if fields.get(name) is not None:
            problems.append(
                Problem(name, "expected no tensor in a fused activation, but got one", "leave it out")
            )
    attributes, found = read_attributes(operator, fields, level, defaults=isinstance(value, str))
    problems += _unknown(operator, fields)
    problems += found
    problems += check(operator, {}, attributes, level)
    if problems:
        raise InvalidOperator(*(p.under(where) for p in problems))
    return Activation(operator, attributes)


def _missing(operator: Operator, name: str, form: str) -> Problem:
    return Problem(operator.name, f"expected field {name}, but it is missing", f"give it as {form}")


def _operator(desc: object, activations: Sequence[str] = ()) -> tuple[Operator, Mapping[str, Any]]:
    """`activations`: what is meant, if it is to be one: RELU is ACTIVATION_RELU then."""
    kind: Any
    if isinstance(desc, OperatorDesc):
        kind, fields = desc.type, desc.fields
    elif isinstance(desc, Mapping):
        kind = next((desc[k] for k in ("Type", "type") if k in desc), None)
        nested = [desc[k] for k in ("Desc", "desc") if k in desc]
        fields = nested[0] if nested else {k: v for k, v in desc.items() if k not in ("Type", "type")}
        if nested and (extra := [k for k in desc if k not in OUTER_FIELDS]):
            message = f'expected only "Type" and "Desc", but got {short_repr(extra[0])} beside them'
            raise InvalidOperator(Problem("", message, nearest(extra[0], OUTER_FIELDS)))
    else:
        raise InvalidOperator(
            Problem("", f"expected a dictionary or an OperatorDesc, but got {type_name(desc)}")
        )
    if not isinstance(fields, Mapping):
        raise InvalidOperator(Problem("Desc", f"expected a dictionary, but got {type_name(fields)}"))
    if kind is None:
        raise InvalidOperator(Problem("", 'expected "Type": the operator\'s name, but it is missing'))
    if isinstance(kind, str) and activations:
        full = f"ACTIVATION_{short_name(OperatorType, kind)}"
        kind = full if full in BY_NAME else kind
    if isinstance(kind, str) and (name := short_name(OperatorType, kind)) not in OperatorType.__members__:
        if activations:
            guess = nearest(f"ACTIVATION_{name}", activations)
        else:
            guess = nearest(name, BY_NAME) or nearest(name, OperatorType.__members__)
        raise InvalidOperator(
            Problem("Type", f"expected a DirectML operator, but got {short_repr(kind)}", guess)
        )
    operator_type = parse(OperatorType, kind, "Type")
    if operator_type is OperatorType.INVALID:
        raise InvalidOperator(Problem("Type", "expected a DirectML operator, but got INVALID"))
    return BY_NAME[operator_type.name], fields


OUTER_FIELDS = ("Type", "type", "Desc", "desc", "dmlCompileType", "executionFlags")

TENSOR_FIELDS = (
    "DataType",
    "Flags",
    "DimensionCount",
    "Sizes",
    "Strides",
    "TotalTensorSizeInBytes",
    "GuaranteedBaseOffsetAlignment",
)


def read_tensor(desc: object) -> TensorDesc:
    """A DML_TENSOR_DESC: `TensorDesc`, or a dictionary with at least "DataType" and "Sizes".

    Raises:
        InvalidOperator: with all problems of its form; whether the values are legal is checked later.
    """
    if isinstance(desc, TensorDesc):
        return desc
    if not isinstance(desc, Mapping):
        raise InvalidOperator(Problem("", f"expected a tensor description, but got {type_name(desc)}"))
    problems: list[Problem] = []
    fields = dict(desc)
    try:
        if parse(BufferType, fields.pop("Type", BufferType.BUFFER), "Type") is BufferType.INVALID:
            problems.append(Problem("Type", "expected BUFFER, but got INVALID"))
    except InvalidOperator as error:
        problems += error.problems
    if "Desc" in fields:
        inner = fields.pop("Desc")
        if fields or not isinstance(inner, Mapping):
            raise InvalidOperator(Problem("Desc", "expected a dictionary, and no other field beside it"))
        fields = dict(inner)
    for name in fields:
        if name not in TENSOR_FIELDS:
            guess = nearest(name, TENSOR_FIELDS)
            problems.append(Problem("", f"expected a tensor field, but got {short_repr(name)}", guess))
    values: dict[str, Any] = {}
    for name, argument, required in (("Sizes", "sizes", True), ("Strides", "strides", False)):
        got = fields.get(name)
        if got is None:
            if required:
                problems.append(Problem("", f"expected field {name}, but it is missing"))
        elif not isinstance(got, list | tuple) or not all(map(_is_integer, got)):
            problems.append(Problem(name, f"expected a list of integers, but got {short_repr(got)}"))
        else:
            values[argument] = got
    for name, argument, bits in (
        ("TotalTensorSizeInBytes", "total_tensor_size_in_bytes", 64),
        ("GuaranteedBaseOffsetAlignment", "guaranteed_base_offset_alignment", 32),
    ):
        got = fields.get(name)
        if got is not None and not (_is_integer(got) and 0 <= got < 2**bits):
            wanted = f"an integer from 0 to 2^{bits}-1"
            problems.append(Problem(name, f"expected {wanted}, but got {short_repr(got)}"))
        elif got is not None:
            values[argument] = int(got)
    count = fields.get("DimensionCount")
    if count is not None and "sizes" in values and not (_is_integer(count) and count == len(values["sizes"])):
        problems.append(
            Problem(
                "DimensionCount",
                f"expected {len(values['sizes'])}, the number of Sizes, but got {short_repr(count)}",
            )
        )
    for name, argument, cls in (("DataType", "data_type", TensorDataType), ("Flags", "flags", TensorFlags)):
        got = fields.get(name)
        if got is None:
            if name == "DataType":
                problems.append(Problem("", "expected field DataType, but it is missing"))
            continue
        try:
            values[argument] = parse(cls, got, name)
        except AnyDMLError as error:
            problems += error.problems
    if problems:
        raise InvalidOperator(*problems)
    return TensorDesc(**values)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def to_desc(checked: Checked) -> OperatorDesc:
    """The description that was read."""
    operator, tensors = checked.operator, checked.tensors
    fields = dict(checked.attributes)
    for operand in operator.tensors:
        if operand.array:
            fields[operand.name] = [tensors[n] for n in names_of([operand], tensors)]
        elif operand.name in tensors:
            fields[operand.name] = tensors[operand.name]
    return OperatorDesc(operator.type, fields)


def to_graph(checked: Checked) -> DirectMLGraph:
    """The operator alone in a graph, its tensors as values with sizes and strides."""
    values = {
        name: Value(name, TensorType(t.data_type.label, t.sizes, t.effective_strides))
        for name, t in checked.tensors.items()
    }
    inputs, outputs = (
        tuple(values.get(n) for n in names_of(operands, values))
        for operands in (checked.operator.inputs, checked.operator.outputs)
    )
    node = DirectMLNode(checked.operator, inputs, outputs, checked.attributes, name=checked.operator.name)
    given, made = (tuple(v for v in side if v is not None) for side in (inputs, outputs))
    return DirectMLGraph(checked.operator.name, given, made, (node,))
