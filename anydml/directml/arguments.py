"""What the arguments of a function decide, of operators of whole tensors: types, attributes, outputs.

Nothing is judged here: what is wrong with arguments makes descriptions that `validation.check` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.directml.descriptions import read_attribute
from anydml.directml.validation import rank_of
from anydml.errors import InvalidInput, InvalidOperator, Problem, short_repr
from anydml.ops.attributes import Activation, AxesKind, ListKind
from anydml.ops.call import Call, by_parameter, field, stand_in
from anydml.ops.dtypes import FLOAT32, FROM_NUMPY, IN_ARRAYS, INT4, UINT4, UINT8, UINT32, listed
from anydml.ops.enums import FeatureLevel, TensorDataType
from anydml.ops.opdef import REQUIRED, Attribute, Operand, Operator
from anydml.ops.tensor_desc import TensorDesc


def type_of(x: NDArray[Any]) -> TensorDataType:
    return UINT8 if x.dtype == np.bool_ else FROM_NUMPY.get(x.dtype, TensorDataType.UNKNOWN)


def types_in(
    operator: Operator, arrays: Mapping[str, NDArray[Any]], wanted: TensorDataType | None
) -> dict[str, TensorDataType]:
    """The inputs' types by field name. Bytes stand for the elements of 4 bits that are asked for.

    Raises:
        InvalidOperator: arrays of types that no tensor has.
    """
    types = {name: type_of(x) for name, x in arrays.items()}
    if TensorDataType.UNKNOWN in types.values():
        raise InvalidOperator(*(_no_type(operator, n, x) for n, x in arrays.items() if not types[n].value))
    if wanted in (INT4, UINT4):
        for name, x in arrays.items():
            if _operand(operator, name).dtype == operator.free_output and x.dtype == IN_ARRAYS[wanted]:
                types[name] = wanted
    return types


def _operand(operator: Operator, name: str) -> Operand:
    """An input by its field name."""
    field_name, _, number = name.partition("[")
    operand = next(s for s in operator.inputs if s.name == field_name)
    return operand.nth(int(number.rstrip("]"))) if number else operand


def _no_type(operator: Operator, name: str, x: NDArray[Any]) -> Problem:
    operand, table = _operand(operator, name), operator.table(FeatureLevel.newest())
    assert table is not None
    message = f"expected {listed(table.dtypes[operand.dtype])}, but got {x.dtype}"
    return Problem(f"{operator.name}: {operand.parameter}", message, "convert it with .astype")


def types_of(
    operator: Operator,
    given: Mapping[str, TensorDataType],
    wanted: TensorDataType | None,
    arguments: Mapping[str, Any],
) -> dict[str, TensorDataType]:
    """The type behind each letter: the tensors', the one that was asked for, or the usual one."""
    table = operator.levels[max(operator.levels)]
    types: dict[str, TensorDataType] = {}
    for name, dtype in given.items():
        types.setdefault(_operand(operator, name).dtype, dtype)
    if operator.free_output is not None and wanted is not None:
        types[operator.free_output] = wanted
    elif operator.free_output is not None and operator.usual_type is not None and types:
        types[operator.free_output] = operator.usual_type(arguments, types)
    for letter, allowed in table.dtypes.items():
        usual = [t for t in (FLOAT32, UINT32, *given.values()) if t in allowed]
        types.setdefault(letter, (usual or list(allowed))[0])
    return types


def attributes_of(
    operator: Operator,
    given: Mapping[str, Any],
    tensors: Mapping[str, TensorDesc],
    types: Mapping[str, TensorDataType],
    level: FeatureLevel,
) -> dict[str, Any]:
    """The attributes by field name, as a description has them."""
    rank = max(rank_of(operator, tensors), _length(given.get("output_sizes")))
    values: dict[str, Any] = {
        a.name: types[operator.outputs[0].dtype] for a in operator.attributes if a.implied
    }
    for a in operator.parameters:
        value = given[a.parameter]
        if value is None and (a.optional or a.default is None):
            values[a.name] = None
            continue
        if isinstance(a.kind, ListKind) and isinstance(value, int | float | np.number) and a.per:
            value = [value] * (rank if a.per == "dimension" else max(rank - 2, 0))
        value = read_attribute(a, _from_the_end(a, value, rank), f"{operator.name}: {a.parameter}", level)
        if isinstance(value, Activation):
            own = {
                b.name: _from_the_end(b, value.attributes[b.name], rank) for b in value.operator.attributes
            }
            value = Activation(value.operator, own)
        values[a.name] = value
    return values


def _length(sizes: Any) -> int:
    if isinstance(sizes, list | tuple):  # of whatever: what is no size is told later
        return len(sizes)
    return 0 if sizes is None else int(np.size(sizes))


def _from_the_end(a: Attribute, value: Any, rank: int) -> Any:
    """Axes as DirectML counts them."""
    if a.name == "Axis" and isinstance(value, int) and -rank <= value < 0:
        return value + rank
    if isinstance(a.kind, AxesKind) and isinstance(value, int | np.integer) and not isinstance(value, bool):
        value = [int(value)]
    if isinstance(a.kind, AxesKind) and isinstance(value, list | tuple):
        return tuple([x + rank if isinstance(x, int) and -rank <= x < 0 else x for x in value])
    return value


def outputs_of(
    operator: Operator,
    given: Mapping[str, Any],
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, Any],
    types: Mapping[str, TensorDataType],
) -> dict[str, TensorDesc]:
    """The outputs, from all else. What is wrong with the arguments makes them wrong, too: `check` tells."""
    for asked in operator.asks:
        if given[asked.name] is None and asked.default is REQUIRED:
            where = f"{operator.name}: {asked.name}"
            raise InvalidInput(Problem(where, f"expected {asked.documented}, but got None"))
    values = by_parameter(operator, {n: stand_in(t) for n, t in tensors.items()})
    values |= {a.parameter: attributes[a.name] for a in operator.attributes}
    for asked in operator.asks:
        values[asked.name] = _whole_numbers(operator, asked.name, given[asked.name])
    call = Call(operator, values, {})
    letters = {s.sizes: tensors[s.name].sizes for s in operator.inputs if s.sizes and s.name in tensors}
    several = len(operator.outputs) > 1
    try:
        made = operator.sizes(call) if operator.sizes is not None else (None,) * len(operator.outputs)
    except (IndexError, ValueError, TypeError, ZeroDivisionError, AttributeError):
        made = (None,) * len(operator.outputs)  # the arguments do not go together
        several = True
    if _is_empty(made) and not any(_is_empty(values[asked.name]) for asked in operator.asks):
        made, several = (None,) * len(operator.outputs), True  # rules say why better than sizes of 0 do
    outputs: dict[str, TensorDesc] = {}
    for operand, sizes in zip(
        operator.outputs, made if several or operator.sizes is None else (made,), strict=True
    ):
        dtype = types[operand.dtype]
        if operand.array:
            outputs |= {field(operand.name, k): TensorDesc(dtype, n) for k, n in enumerate(sizes or ())}
        else:
            found = sizes if sizes is not None else letters.get(operand.sizes)
            if found is not None:
                outputs[operand.name] = TensorDesc(dtype, found)
    return outputs


def _is_empty(sizes: Any) -> bool:
    """Whether there is a size below 1, at any depth."""
    if isinstance(sizes, list | tuple):
        return any(map(_is_empty, sizes))
    return sizes is not None and sizes < 1


def _whole_numbers(operator: Operator, name: str, value: Any) -> Any:
    """Sizes that a function was told."""
    items = (
        value
        if isinstance(value, list | tuple)
        else np.asarray(value).tolist()
        if np.ndim(value)
        else [value]
    )
    if value is None:
        return None
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in items):
        where = f"{operator.name}: {name}"
        raise InvalidInput(Problem(where, f"expected whole numbers, but got {short_repr(value)}"))
    sizes = tuple(int(n) for n in items)
    return sizes if np.ndim(value) or name.endswith("_sizes") else sizes[0]


def repeated(
    operator: Operator, tensors: Mapping[str, TensorDesc], outputs: Mapping[str, TensorDesc]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Inputs that must have the sizes of an output, and that NumPy would repeat to them."""
    if operator.sizes is None:
        return
    letters = {s.sizes: outputs[s.name].sizes for s in operator.outputs if s.sizes and s.name in outputs}
    for s in operator.inputs:
        if s.sizes in letters and s.name in tensors and tensors[s.name].sizes != letters[s.sizes]:
            try:
                fits = np.broadcast_shapes(tensors[s.name].sizes, letters[s.sizes]) == letters[s.sizes]
            except (ValueError, RuntimeError):  # or of more dimensions than NumPy has
                continue
            if fits:
                yield s.name, letters[s.sizes]


def do_not_go_together(
    operator: Operator,
    given: Mapping[str, Any],
    tensors: Mapping[str, TensorDesc],
    outputs: Mapping[str, TensorDesc],
) -> Iterator[Problem]:
    """Arguments that break no rule, and yet give an output no sizes."""
    if any(s.optional is None and not s.array and s.name not in outputs for s in operator.outputs):
        got = [f"{name} {desc.sizes}" for name, desc in tensors.items()]
        got += [f"{a.name} {short_repr(given[a.name])}" for a in operator.asks]
        wanted = "; ".join(f"{a.name} is {a.documented}" for a in operator.asks)
        yield Problem(operator.name, f"expected arguments that go together, but got {', '.join(got)}", wanted)
