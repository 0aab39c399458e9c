"""The data types of a call from what its arguments are: arrays and expressions have one, numbers take one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anydml.errors import InvalidInput, Problem, short_repr
from anydml.ops.dtypes import FLOAT32, FLOATING, INT32, NUMPY, UINT8, UINT32, listed
from anydml.ops.enums import FeatureLevel, TensorDataType
from anydml.ops.opdef import Operand, Operator


def infer_types(
    operator: Operator,
    typed: Mapping[int, TensorDataType | Any],
    numbers: Sequence[bool | int | float | None],
    wanted: TensorDataType | None,
) -> tuple[tuple[TensorDataType | None, ...], TensorDataType, list[Problem]]:
    """The type of each input (None: left out) and of the output, at the newest feature level.

    Args:
        typed: the types of inputs that have one, by number; anything else than a type is told as it is.
        numbers: the Python number that stands for an input, or None.
        wanted: the output's type, if it was asked for.
    """
    table = operator.table(FeatureLevel.newest())
    assert table is not None
    (output,) = operator.outputs
    types: dict[str, TensorDataType] = {}
    problems: list[Problem] = []
    free = operator.free_output
    if free is not None and wanted is not None:
        types[free] = wanted
        if wanted not in table.dtypes[free]:
            where = f"{operator.name}: output_data_type"
            problems.append(Problem(where, f"expected {listed(table.dtypes[free])}, but got {wanted.label}"))
    elif operator.told and wanted is None:
        where, got = f"{operator.name}: output_data_type", "expected a data type, but got none"
        problems.append(Problem(where, got, f"give one of {listed(table.dtypes[output.dtype])}"))
    # What arrays decide comes first: numbers follow them.
    given_letters = [operator.inputs[k].dtype for k in typed]
    for type_variable in dict.fromkeys([*given_letters, *(s.dtype for s in operator.inputs)]):
        allowed = table.dtypes[type_variable]
        found: dict[str, list[str]] = {}
        for k, dtype in typed.items():
            if operator.inputs[k].dtype != type_variable:
                continue
            label = dtype.label if isinstance(dtype, TensorDataType) else str(dtype)
            found.setdefault(label, []).append(operator.inputs[k].parameter)
            if dtype in allowed and type_variable != free:
                types[type_variable] = dtype
            elif dtype in allowed and types.setdefault(type_variable, dtype) is not dtype:
                found.setdefault(types[type_variable].label, []).append("output_data_type")
        if len(allowed) == 1:
            types.setdefault(type_variable, allowed[0])
        labels = [t.label for t in allowed]
        or_bool = " (or bool)" if allowed == (UINT8,) else ""
        for label, who in found.items():
            if label not in labels:
                where, message = f"{operator.name}: {', '.join(who)}", f"expected {listed(allowed)}{or_bool}"
                problems.append(Problem(where, f"{message}, but got {label}", "convert it with .astype"))
        if len(found.keys() & set(labels)) > 1:
            got = "; ".join(f"{', '.join(who)} {label}" for label, who in found.items())
            remedy = "convert one with .astype"
            problems.append(Problem(operator.name, f"expected equal data types, but got {got}", remedy))
        elif not found and type_variable not in types:
            operands = [
                (s, n) for s, n in zip(operator.inputs, numbers, strict=True) if s.dtype == type_variable
            ]
            given = [n for _, n in operands if n is not None]
            alone = len(operands) == 1 < len(operator.inputs)  # as a scale beside what it scales
            if given and (type_variable != output.dtype or free or alone):
                types[type_variable] = _type_for(given, allowed, types)
            elif given:
                problems.append(_only_numbers(operator, [s for s, _ in operands]))
    if not typed and not problems:
        problems.append(_only_numbers(operator, operator.inputs))
    inputs = tuple(
        types.get(s.dtype) if k in typed or n is not None else None
        for k, (s, n) in enumerate(zip(operator.inputs, numbers, strict=True))
    )
    result = types.get(output.dtype) or _default(table.dtypes[output.dtype])
    return inputs, result, problems


def _only_numbers(operator: Operator, operands: Sequence[Operand]) -> Problem:
    names = ", ".join(s.parameter for s in operands)
    message = f"expected an array among {names}, but got only Python numbers"
    return Problem(operator.name, message, "give one of them a type, as in np.float32(1)")


def _default(allowed: Sequence[TensorDataType]) -> TensorDataType:
    return UINT8 if UINT8 in allowed else allowed[0]


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or number.is_integer()


def _type_for(
    numbers: Sequence[int | float],
    allowed: Sequence[TensorDataType],
    types: Mapping[str, TensorDataType],
) -> TensorDataType:
    """A type for numbers that no array beside them decides: another input's, float32, or what is allowed."""
    whole = (INT32, UINT32) if all(map(_is_whole, numbers)) else ()
    candidates: tuple[TensorDataType, ...] = (*types.values(), *whole, FLOAT32, *allowed)
    for dtype in candidates:
        if dtype in allowed and (dtype in FLOATING or all(map(_is_whole, numbers))):
            if dtype not in FLOATING:
                info = np.iinfo(NUMPY[dtype])
                if not all(info.min <= n <= info.max for n in numbers):
                    continue
            return dtype
    return allowed[0]


def as_number(x: bool | int | float, dtype: TensorDataType, where: str) -> np.ndarray[Any, np.dtype[Any]]:
    """A Python number as an array of no dimensions.

    Raises:
        InvalidInput: the type cannot hold it.
    """
    wanted = NUMPY[dtype]
    try:
        with np.errstate(over="ignore"):
            number = np.array(x, wanted)
        if number.item() == x or (wanted.kind == "f" and np.isfinite(number) == np.isfinite(x)):
            return number
    except (OverflowError, ValueError, TypeError):  # NaN has no integer; an integer may be beyond any float
        pass
    raise InvalidInput(Problem(where, f"expected a value that {wanted} can hold, but got {short_repr(x)}"))
