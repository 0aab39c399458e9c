"""What DxDispatch files write otherwise than operator descriptions do.

"InputTensor": {"DataType": "FLOAT16", "Sizes": [4], "Strides": [], "TotalTensorSizeInBytes": 0}
"Min": {"UInt16": 48128}
"executionFlags": "NONE"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anydml.problems import InvalidModel, Problem, nearest, shown
from anydml.spec.dtypes import NUMPY
from anydml.spec.enums import TensorDataType

_MEMBERS = {
    name: np.dtype(name.lower())
    for name in "Int8 UInt8 Int16 UInt16 Int32 UInt32 Int64 UInt64 Float32 Float64".split()
}
"""The members of a DML_SCALAR_UNION."""
DEEPEST = 8
"""How far descriptions nest, at most."""
_COMPILE_TYPES = ("DmlCompileOp", "DmlCompileGraph")
_FLAGS = ("NONE", "ALLOW_HALF_PRECISION_COMPUTATION", "DISABLE_META_COMMANDS", "DESCRIPTORS_VOLATILE")


def description(item: Mapping[str, Any]) -> dict[str, Any]:
    """An operator of a file as a description; what belongs to the dispatch is looked at, and left out.

    Raises:
        InvalidModel: flags, a way of compiling or a scalar that there is not.
    """
    problems = list(_execution(item))
    if problems:
        raise InvalidModel(*problems)
    kept = {k: v for k, v in item.items() if k not in ("bindings", "executionFlags", "dmlCompileType")}
    return {name: _value(name, value, kept, DEEPEST) for name, value in kept.items()}


def _execution(item: Mapping[str, Any]) -> Iterator[Problem]:
    kind = item.get("dmlCompileType", _COMPILE_TYPES[0])
    if kind not in _COMPILE_TYPES:
        message = f"expected {' or '.join(_COMPILE_TYPES)}, but got {shown(kind)}"
        yield Problem("dmlCompileType", message, nearest(kind, _COMPILE_TYPES))
    flags = item.get("executionFlags", [])
    for flag in flags if isinstance(flags, list) else [flags]:
        name = flag.upper().removeprefix("DML_EXECUTION_FLAG_") if isinstance(flag, str) else flag
        number = isinstance(flag, int) and not isinstance(flag, bool) and 0 <= flag < 8
        if name not in _FLAGS and not number:
            yield Problem(
                "executionFlags", f"expected execution flags, but got {shown(flag)}", nearest(name, _FLAGS)
            )


def _value(name: str, value: Any, around: Mapping[str, Any], depth: int) -> Any:
    if not depth or not isinstance(value, dict):
        return value
    if len(value) == 1 and (member := next(iter(value))) in _MEMBERS:
        return _scalar(name, member, value[member], around.get("MinMaxDataType"))
    inner = {k: _value(k, v, value, depth - 1) for k, v in value.items()}
    if "Sizes" in inner:
        if inner.get("Strides") == []:
            del inner["Strides"]
        if inner.get("TotalTensorSizeInBytes") == 0 and not isinstance(inner["TotalTensorSizeInBytes"], bool):
            del inner["TotalTensorSizeInBytes"]
    return inner


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
        raise InvalidModel(Problem(name, f"expected a value of {dtype}, but got {shown(number)}")) from error
    short = declared.upper().removeprefix("DML_TENSOR_DATA_TYPE_") if isinstance(declared, str) else declared
    wanted = NUMPY.get(TensorDataType[short]) if short in TensorDataType.__members__ else None
    if wanted is None or wanted == dtype:  # what is not declared well is told when the description is read
        return stored.item()
    return np.frombuffer(stored.tobytes().ljust(8, b"\0"), wanted, 1)[0].item()
