"""Operators on NumPy arrays, at once: what the functions do.

They follow NumPy's manners: arguments broadcast against each other, any memory layout is read (and any
non-overlapping one written through `out`), 0-d and empty arrays are arrays. Data types follow DirectML's
newest feature level, without implicit conversion, with two conveniences: `bool` stands where DirectML
has UINT8, and a Python number takes the type of the arrays beside it. Tensors of other libraries are
taken over DLPack without a copy when they lie in the memory of the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from anydml.call_signature import CallSignature, signature_of
from anydml.codegen.kernel import streams
from anydml.directml.descriptions import read_attribute
from anydml.directml.type_inference import as_number
from anydml.errors import InvalidInput, InvalidOperator, Problem, by_a_handler
from anydml.ops.attributes import AxesKind, ScaleBias, signs
from anydml.ops.dtypes import FROM_NUMPY, is_masked, native
from anydml.ops.enums import FeatureLevel, TensorDataType, parse
from anydml.ops.opdef import ONE, Operand, Operator
from anydml.ops.tensor_desc import TensorDesc, TooIntricate, broadcast_shape, overlaps_itself
from anydml.runtime.addresses import address, has_no_gaps
from anydml.runtime.arguments import Argument, a_number, a_scalar, an_argument, an_array, an_object, laid_out
from anydml.runtime.call import KnownCall, Packed, kernel_launched
from anydml.runtime.launch import empty_like_inputs, launch
from anydml.runtime.memory import overlaps

Array = NDArray[Any]


class SharesMemory(Protocol):
    """A tensor that DLPack can share, of any library."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


Tensor = Array | np.generic | bool | int | float | SharesMemory
Out = TypeVar("Out", bound=Array | SharesMemory)


def compute(
    operator: Operator,
    arguments: Sequence[Any],
    attributes: Sequence[Any],
    out: Any = None,
    output_data_type: TensorDataType | str | None = None,
) -> Any:
    """`operator` on arrays (None: an optional one that is not there) and values of its parameters."""
    given, numbers, values, signature = _meaning(operator, arguments, attributes, out, output_data_type)
    inputs: list[Array] = []
    for k, (x, dtype) in enumerate(zip(given, signature.inputs, strict=True)):
        if dtype is not None:
            inputs.append(
                x if x.__class__ is np.ndarray and x.dtype is dtype else _as_type(operator, k, x, dtype)
            )
    if signature.keeps_bool and not all(n in (0, 1) for n in numbers if n is not None):
        raise InvalidInput(
            Problem(operator.name, "expected True or False beside arrays of bool, but got a number")
        )
    if signature.group.axes and not inputs[0].shape:
        raise InvalidInput(Problem(operator.name, "expected at least 1 dimension, but got a scalar"))
    if operator.has_special_shapes:
        inputs = _check_shapes(operator, given, inputs, values, signature.output)
    shape = broadcast_shape([x.shape for x in inputs])
    if shape is None:
        present = [s for s, x in zip(operator.inputs, given, strict=True) if x is not None]
        shapes = "; ".join(f"{s.parameter} {x.shape}" for s, x in zip(present, inputs, strict=True))
        raise InvalidInput(Problem(operator.name, f"expected shapes that broadcast, but got {shapes}"))
    late = None
    if out is None:
        result: Any = empty_like_inputs(shape, signature.result, inputs)
        target = result.view(signature.output)
    else:
        result = out
        target, late = _target(operator, out, shape, signature, given)
    operands = (*inputs, *signature.numbers)
    arrays = [x if x.shape == shape else np.broadcast_to(x, shape) for x in operands]
    launch(signature.group, [*arrays, target])
    if late is not None:
        late[...] = target
    return result


def _meaning(
    operator: Operator, arguments: Sequence[Any], attributes: Sequence[Any], out: Any, output_data_type: Any
) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...], CallSignature]:
    """The arguments as arrays or numbers, the numbers among them, the attributes, and what that means."""
    given: list[Any] = [
        x
        if type(x) is np.ndarray or (x is None and operand.optional is not None)
        else to_array(operator, operand, x)
        for operand, x in zip(operator.inputs, arguments, strict=True)
    ]
    kinds = tuple(x.dtype if isinstance(x, np.ndarray) else type(x) for x in given)
    values = read_parameters(operator, attributes) if attributes else ()
    wanted = asked_type(operator, output_data_type)
    if wanted is None and operator.free_output and isinstance(out, np.ndarray):
        wanted = _type_of_out(operator, out)
    numbers = tuple(None if isinstance(x, np.ndarray) else x for x in given)
    rank = max(np.ndim(given[0]), 1) if operator.has_axes else 1
    return (
        given,
        numbers,
        values,
        signature_of(operator, kinds, _deciding(operator, numbers), values, signs(values), wanted, rank),
    )


def reduced_axes(operator: Operator, given: Mapping[str, Any]) -> Sequence[int]:
    """The axes along which a call computes, by the function's parameters; none for most operators."""
    arguments = [given.get(s.parameter) for s in operator.inputs]
    attributes = [given.get(a.parameter) for a in operator.parameters]
    signature = _meaning(operator, arguments, attributes, None, given.get("output_data_type"))[-1]
    return signature.group.axes or ()


def known_call(
    operator: Operator,
    arguments: Sequence[Any],
    attributes: Sequence[Any],
    others: Sequence[Any],
    output_data_type: Any,
    out: Any,
    result: Any,
) -> KnownCall | None:
    """What a call that went well says of others like it; None if that is too much for machine code.

    Args:
        others: what the function takes between its tensors and `out`.
    """
    arrays = [x for x in arguments if type(x) is np.ndarray]
    if not arrays or type(result) is not np.ndarray or not result.size:
        return None
    if out is None and not has_no_gaps(result):
        return None
    if not all(map(_stays, others)):
        return None
    given, numbers, values, signature = _meaning(operator, arguments, attributes, out, output_data_type)
    kernel = signature.group
    if (
        signature.numbers
        or streams(kernel, result.size)
        or (result.dtype is not signature.output and result.dtype != np.bool_)
    ):
        return None
    decided = {s.dtype for s, n in zip(operator.inputs, numbers, strict=True) if n is None}
    packed = kernel.axes is None and not operator.has_special_shapes
    packed = packed and all(x.shape == result.shape and x.flags.c_contiguous for x in (*arrays, result))
    known: list[Argument | None] = []
    inputs: list[Array] = []
    for k, (x, y, dtype) in enumerate(zip(arguments, given, signature.inputs, strict=True)):
        if dtype is None:
            known.append(an_object(x))
            continue
        inputs.append(_as_type(operator, k, y, dtype))
        if not isinstance(y, np.ndarray):
            known.append(a_number(x, inputs[-1], operator.inputs[k].dtype in decided))
        elif y.dtype is not dtype and y.dtype != np.bool_:
            return None
        elif isinstance(x, np.generic):
            known.append(a_scalar(x))
        elif x is y:
            known.append(an_array(x) if packed else laid_out(x, result, kernel.axes is not None))
        else:
            return None
    for x in others:
        known.append(an_argument(x, result, False) or (None if type(x) is list else an_object(x)))
    if out is None:
        known.append(an_object(None))
    elif out is result:
        known.append(an_array(out, True) if packed else laid_out(out, result, kernel.axes is not None, True))
    if not all(known):
        return None
    listed = [a for a in known if a is not None]
    if packed:
        return KnownCall(listed, Packed(kernel, result.dtype))
    if operator.has_special_shapes:
        inputs = _check_shapes(operator, given, inputs, values, signature.output)
    operands = [np.broadcast_to(x, result.shape) for x in inputs]
    return KnownCall(listed, kernel_launched(kernel, (*operands, result)))


def _stays(x: object) -> bool:
    """Whether an object means the same whenever it is met again, or is a list, whose numbers are compared."""
    if type(x) in (tuple, list):
        return all(type(y) is not list and _stays(y) for y in cast("tuple[object, ...]", x))
    return x is None or isinstance(x, bool | int | float | str | Enum | ScaleBias)


def _deciding(operator: Operator, numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    """The numbers that an array beside them does not give a type; of others any will do."""
    if numbers.count(None) == len(numbers):
        return numbers
    decided = {s.dtype for s, n in zip(operator.inputs, numbers, strict=True) if n is None}
    return tuple(
        0 if n is not None and s.dtype in decided else n
        for s, n in zip(operator.inputs, numbers, strict=True)
    )


def read_parameters(operator: Operator, attributes: Sequence[Any]) -> tuple[Any, ...]:
    """The values of the parameters as definitions compute with them."""
    return tuple(
        None
        if value is None and attribute.optional
        else read_attribute(
            attribute, value, f"{operator.name}: {attribute.parameter}", FeatureLevel.newest()
        )
        for attribute, value in zip(operator.parameters, attributes, strict=True)
    )


def _type_of_out(operator: Operator, out: Array) -> TensorDataType | None:
    """The type that `out` asks for, if the operator can give it."""
    table = operator.table(FeatureLevel.newest())
    assert table is not None
    assert operator.free_output is not None
    dtype = FROM_NUMPY.get(native(out.dtype))
    return dtype if dtype in table.dtypes[operator.free_output] else None


def asked_type(operator: Operator, output_data_type: TensorDataType | str | None) -> TensorDataType | None:
    if output_data_type is None:
        return None
    return parse(TensorDataType, output_data_type, f"{operator.name}: output_data_type")


def _check_shapes(
    operator: Operator,
    given: Sequence[Any],
    inputs: list[Array],
    attributes: tuple[Any, ...],
    output: np.dtype,
) -> list[Array]:
    """Inputs of one element as such, and the rules that depend on shapes."""
    operands = [s for s, x in zip(operator.inputs, given, strict=True) if x is not None]
    problems = [
        Problem(_where(operator, s), f"expected one element, but got shape {x.shape}")
        for s, x in zip(operands, inputs, strict=True)
        if s.sizes == ONE and x.size != 1
    ]
    shaped = [
        x.reshape(()) if s.sizes == ONE and x.size == 1 else x for s, x in zip(operands, inputs, strict=True)
    ]
    table = operator.table(FeatureLevel.newest())
    assert table is not None
    tensors = {
        s.name: TensorDesc(FROM_NUMPY[x.dtype], x.shape) for s, x in zip(operands, inputs, strict=True)
    }
    tensors[operator.outputs[0].name] = TensorDesc(FROM_NUMPY[output], inputs[0].shape)
    values: dict[str, Any] = {}
    for attribute, value in zip(operator.parameters, attributes, strict=True):
        rank = len(tensors[operator.inputs[0].name].sizes)
        if isinstance(attribute.kind, AxesKind):
            value = tuple(a + rank if -rank <= a < 0 else a for a in value)
        values[attribute.name] = value
    if problems:
        raise InvalidInput(*problems)
    broken = [breach for rule in table.rules for breach in rule.broken(tensors, values)]
    if broken:
        told = [[in_parameters(operator, text) for text in breach] for breach in broken]
        raise InvalidOperator(*(Problem(operator.name, *texts) for texts in told))
    return shaped


def in_parameters(operator: Operator, text: str) -> str:
    """A message about fields as one about the parameters of the function."""
    for part in operator.operands:
        text = re.sub(rf"\b{part.name}\b", part.parameter, text)
    return text


def _where(operator: Operator, operand: Operand) -> str:
    return f"{operator.name}: {operand.parameter}"


def to_array(operator: Operator, operand: Operand, x: Any) -> Array | bool | int | float:
    """An argument as an array, or as the Python number that it is."""
    if isinstance(x, bool | int | float) and not isinstance(x, np.generic):
        return x
    if is_masked(x):
        raise InvalidInput(
            Problem(
                _where(operator, operand),
                "expected an array without mask, but got a MaskedArray",
                "fill it first",
            )
        )
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    return from_dlpack(x, _where(operator, operand))


def from_dlpack(x: Any, where: str) -> Array:
    """Another library's CPU tensor as an array on the same memory."""
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except Exception as error:  # each library has its own
            if by_a_handler(error):
                raise
            raise InvalidInput(
                Problem(
                    where,
                    f"expected a tensor that DLPack can share, but got {error}",
                    "it must lie on the CPU, need no gradient, and have a type of NumPy",
                )
            ) from error
    remedy = "it cannot be left out" if x is None else "convert it with np.asarray(..., dtype)"
    raise InvalidInput(Problem(where, f"expected an array, but got {type(x).__name__}", remedy))


def _as_type(operator: Operator, k: int, x: Array | bool | int | float, wanted: np.dtype) -> Array:
    """Argument k as an array of exactly this type, in native byte order; without a copy where possible."""
    if isinstance(x, np.ndarray):
        if x.dtype == wanted and x.dtype.isnative:
            return x
        return x.view(wanted) if x.dtype == np.bool_ else x.astype(wanted)  # the latter: byte order only
    return as_number(x, FROM_NUMPY[wanted], _where(operator, operator.inputs[k]))


def _target(
    operator: Operator, out: Any, shape: tuple[int, ...], signature: CallSignature, given: Sequence[Any]
) -> tuple[Array, Array | None]:
    """`out` as the array to write, and, when it must be written in another byte order afterwards, itself."""
    where, dtype = f"{operator.name}: out", signature.output
    problems: list[Problem] = []

    def broken(message: str, remedy: str = "") -> None:
        problems.append(Problem(where, message, remedy))

    y = out if isinstance(out, np.ndarray) else from_dlpack(out, where)
    if is_masked(y):
        broken("expected an array without mask, but got a MaskedArray")
    if (
        y.dtype is not dtype
        and native(y.dtype) != dtype
        and not (signature.takes_bool and y.dtype == np.bool_)
    ):
        broken(f"expected {dtype}, but got {y.dtype}")
    if y.shape != shape:
        broken(f"expected shape {shape}, but got {y.shape}", "out is never broadcast")
    flags = y.flags
    if not flags.writeable:
        broken("expected a writable array, but got a read-only one")
    try:
        if not flags.c_contiguous and y.size and overlaps_itself(y.shape, y.strides, y.itemsize):
            broken("expected every element in its own place, but the array overlaps itself")
    except TooIntricate:
        broken(f"expected strides that provably do not overlap, but got {y.strides}")
    if not problems:
        for operand, x in zip(operator.inputs, given, strict=True):
            if isinstance(x, np.ndarray) and overlaps(x, y) and not same_elements(x, y):
                broken(
                    f"expected memory apart from {operand.parameter}, but got an overlap",
                    "give a new array, or exactly that input if its elements are as large",
                )
    if problems:
        raise InvalidInput(*problems)
    if y.dtype is dtype:
        return y, None
    if not y.dtype.isnative:
        return np.empty(shape, dtype), y
    return y.view(dtype), None


def same_elements(x: Array, y: Array) -> bool:
    """Whether each element of `x` lies exactly where the element of `y` with the same index lies."""
    if address(x) != address(y) or x.shape != y.shape or x.itemsize != y.itemsize:
        return False
    return all(n == 1 or a == b for n, a, b in zip(x.shape, x.strides, y.strides, strict=True))
