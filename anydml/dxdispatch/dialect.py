"""What DxDispatch files write otherwise than operator descriptions do.

"InputTensor": {"DataType": "FLOAT16", "Sizes": [4], "Strides": [], "TotalTensorSizeInBytes": 0,
                "Flags": ["OWNED_BY_DML"]}
"Min": {"UInt16": 48128}
"executionFlags": "NONE"

And fields that nobody knows, such as notes: they are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anydml.directml.descriptions import OUTER_FIELDS, TENSOR_FIELDS, field_names
from anydml.dxdispatch.unknown_fields import UnknownFields
from anydml.errors import InvalidModel, Problem, nearest, short_repr
from anydml.ops.attributes import ActivationKind, ActivationsKind, ScaleBiasKind
from anydml.ops.catalog import BY_NAME
from anydml.ops.dtypes import NUMPY
from anydml.ops.enums import OperatorType, TensorDataType, short_name

_MEMBERS = {
    name: np.dtype(name.lower())
    for name in "Int8 UInt8 Int16 UInt16 Int32 UInt32 Int64 UInt64 Float32 Float64".split()
}
"""The members of a DML_SCALAR_UNION."""
_TYPES_OF_UNIONS = ("MinMaxDataType", "ValueDataType", "PaddingValueDataType")
MAX_DESCRIPTION_DEPTH = 8
"""How far descriptions nest, at most."""
_COMPILE_TYPES = ("DmlCompileOp", "DmlCompileGraph")
_FLAGS = ("NONE", "ALLOW_HALF_PRECISION_COMPUTATION", "DISABLE_META_COMMANDS", "DESCRIPTORS_VOLATILE")


def description(item: Mapping[str, Any], unknown: UnknownFields) -> dict[str, Any]:
    """An operator of a file as a description; what belongs to the dispatch is looked at, and left out.

    Unknown fields are left out, too, and noted; those of an operator that there is not stay.

    Raises:
        InvalidModel: flags, a way of compiling or a scalar that there is not.
    """
    problems = list(_execution(item))
    if problems:
        raise InvalidModel(*problems)
    kept = {k: v for k, v in item.items() if k not in ("bindings", "executionFlags", "dmlCompileType")}
    plain = {
        name: _value(name, value, kept, MAX_DESCRIPTION_DEPTH, unknown.at(name))
        for name, value in kept.items()
    }
    return _drop_unknown(plain, unknown, MAX_DESCRIPTION_DEPTH)


def _drop_unknown(desc: dict[str, Any], unknown: UnknownFields, depth: int) -> dict[str, Any]:
    """A description of known fields only."""
    kind = desc.get("Type", desc.get("type"))
    operator = BY_NAME.get(short_name(OperatorType, kind)) if isinstance(kind, str) else None
    word = next((w for w in ("Desc", "desc") if w in desc), None)
    if operator is None or not depth or (word is not None and not isinstance(desc[word], dict)):
        return desc
    names = field_names(operator)
    if word is None:
        kept = fields = unknown.drop(desc, ("Type", "type", *names))
    else:
        kept, unknown = unknown.drop(desc, OUTER_FIELDS), unknown.at(word)
        kept[word] = fields = unknown.drop(desc[word], names)
    for operand in operator.tensors:
        given, within = fields.get(operand.name), unknown.at(operand.name)
        if isinstance(given, dict):
            fields[operand.name] = _drop_unknown_of_tensor(given, within)
        elif isinstance(given, list):
            fields[operand.name] = [
                _drop_unknown_of_tensor(x, within.at(f"[{k}]")) if isinstance(x, dict) else x
                for k, x in enumerate(given)
            ]
    for attribute in operator.attributes:
        value, within = fields.get(attribute.name), unknown.at(attribute.name)
        if isinstance(value, dict) and isinstance(attribute.kind, ActivationKind):
            fields[attribute.name] = _drop_unknown(value, within, depth - 1)
        elif isinstance(value, list) and isinstance(attribute.kind, ActivationsKind):
            fields[attribute.name] = [
                _drop_unknown(x, within.at(f"[{k}]"), depth - 1) if isinstance(x, dict) else x
                for k, x in enumerate(value)
            ]
        elif isinstance(value, dict) and isinstance(attribute.kind, ScaleBiasKind):
            fields[attribute.name] = within.drop(value, ("Scale", "Bias"))
    return kept


def _drop_unknown_of_tensor(tensor: dict[str, Any], unknown: UnknownFields) -> dict[str, Any]:
    if "Desc" not in tensor:
        return unknown.drop(tensor, ("Type", *TENSOR_FIELDS))
    kept = unknown.drop(tensor, ("Type", "Desc"))
    if isinstance(kept["Desc"], dict):
        kept["Desc"] = unknown.at("Desc").drop(kept["Desc"], TENSOR_FIELDS)
    return kept


def _execution(item: Mapping[str, Any]) -> Iterator[Problem]:
    kind = item.get("dmlCompileType", _COMPILE_TYPES[0])
    if kind not in _COMPILE_TYPES:
        message = f"expected {' or '.join(_COMPILE_TYPES)}, but got {short_repr(kind)}"
        yield Problem("dmlCompileType", message, nearest(kind, _COMPILE_TYPES))
    flags = item.get("executionFlags", [])
    for flag in flags if isinstance(flags, list) else [flags]:
        name = flag.upper().removeprefix("DML_EXECUTION_FLAG_") if isinstance(flag, str) else flag
        number = isinstance(flag, int) and not isinstance(flag, bool) and 0 <= flag < 8
        if name not in _FLAGS and not number:
            yield Problem(
                "executionFlags",
                f"expected execution flags, but got {short_repr(flag)}",
                nearest(name, _FLAGS),
            )


def _value(name: str, value: Any, around: Mapping[str, Any], depth: int, unknown: UnknownFields) -> Any:
    if depth and isinstance(value, list):
        return [_value(name, x, around, depth - 1, unknown.at(f"[{k}]")) for k, x in enumerate(value)]
    if not depth or not isinstance(value, dict):
        return value
    if any(k in _MEMBERS for k in value):
        declared = next((around[k] for k in _TYPES_OF_UNIONS if k in around), None)
        member = _member(value, declared)
        unknown.drop(value, [member])
        return _scalar(name, member, value[member], declared)
    inner = {k: _value(k, v, value, depth - 1, unknown.at(k)) for k, v in value.items()}
    if "Sizes" in inner:
        if inner.get("Strides") == []:
            del inner["Strides"]
        if inner.get("TotalTensorSizeInBytes") == 0 and not isinstance(inner["TotalTensorSizeInBytes"], bool):
            del inner["TotalTensorSizeInBytes"]
    return inner


def _member(union: Mapping[str, Any], declared: Any) -> str:
    """The member that is looked up: that of the declared type if it is there, halves being a UInt16."""
    name = short_name(TensorDataType, declared) if isinstance(declared, str) else ""
    name = "UINT16" if name == "FLOAT16" else name
    return next(
        (k for k in union if k in _MEMBERS and k.upper() == name), next(k for k in union if k in _MEMBERS)
    )


def _scalar(name: str, member: str, number: Any, declared: Any) -> Any:
    """A member of a union as the number that its bytes are of the declared type."""
    dtype = _MEMBERS[member]
    try:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError
        with np.errstate(over="ignore"):
            stored = np.array(number, dtype)
        if dtype.kind != "f" and stored.item() != number:
            raise ValueError
    except (OverflowError, ValueError) as error:
        raise InvalidModel(
            Problem(name, f"expected a value of {dtype}, but got {short_repr(number)}")
        ) from error
    short = declared.upper().removeprefix("DML_TENSOR_DATA_TYPE_") if isinstance(declared, str) else declared
    wanted = NUMPY.get(TensorDataType[short]) if short in TensorDataType.__members__ else None
    if wanted is None or wanted == dtype:  # what is not declared well is told when the description is read
        return stored.item()
    return np.frombuffer(stored.tobytes().ljust(8, b"\0"), wanted, 1)[0].item()
