"""The operators as functions on NumPy arrays.

They follow NumPy's manners: arguments broadcast against each other, any memory layout is read (and any
non-overlapping one written through `out`), 0-d and empty arrays are arrays. Data types follow DirectML's
newest feature level, without implicit conversion, with two conveniences: `bool` stands where DirectML
has UINT8, and a Python number takes the type of the arrays beside it. Tensors of other libraries are
taken over DLPack without a copy when they lie in the memory of the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.kernel import Group, group
from anydml.problems import InvalidInput, InvalidOperator, Problem, shown
from anydml.runtime.launch import address, broadcast_shape, empty_like_inputs, launch
from anydml.spec.dtypes import FROM_NUMPY, NUMPY, UINT8, listed, native
from anydml.spec.elementwise import ELEMENT_WISE_IF, ELEMENT_WISE_IS_INFINITY
from anydml.spec.enums import FeatureLevel, IsInfinityMode, TensorDataType, parse
from anydml.spec.schema import Operator, Slot
from anydml.spec.tensors import TooIntricate, overlaps_itself

Array = NDArray[Any]


class SharesMemory(Protocol):
    """A tensor that DLPack can share, of any library."""

    def __dlpack__(self, *args: Any, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


Tensor = Array | np.generic | bool | int | float | SharesMemory
Out = TypeVar("Out", bound=Array | SharesMemory)


@overload
def if_(condition: Tensor, a: Tensor, b: Tensor, *, out: None = None) -> Array: ...
@overload
def if_(condition: Tensor, a: Tensor, b: Tensor, *, out: Out) -> Out: ...
def if_(condition: Tensor, a: Tensor, b: Tensor, *, out: Any = None) -> Any:
    """`a` where `condition` is non-zero, else `b` (DirectML: ELEMENT_WISE_IF).

    Bits are copied as they are: NaN payloads, -0.0 and infinities included.

    Args:
        condition: UINT8 or bool; any non-zero value chooses `a`.
        a, b: of one data type among FLOAT64/32/16, INT64/32/16/8, UINT64/32/16/8 (or bool).
        out: where to write; an array of the result's shape and type. It may be one of the inputs
            itself, and otherwise may not overlap them.

    Returns:
        `out`, or a new array of the type of `a` and `b` and the broadcast shape of all three.

    Raises:
        InvalidOperator: a data type that the operator does not take.
        InvalidInput: shapes that do not broadcast, or an unsuitable `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.if_(np.array([True, False]), np.float32([1, 2]), np.float32([9, 8]))
    array([1., 8.], dtype=float32)
    """
    return _apply(ELEMENT_WISE_IF, (condition, a, b), (), out)


@overload
def is_infinity(input: Tensor, mode: IsInfinityMode | str = ..., *, out: None = None) -> Array: ...
@overload
def is_infinity(input: Tensor, mode: IsInfinityMode | str = ..., *, out: Out) -> Out: ...
def is_infinity(input: Tensor, mode: IsInfinityMode | str = IsInfinityMode.EITHER, *, out: Any = None) -> Any:
    """1 where `input` is an infinity, else 0 (DirectML: ELEMENT_WISE_IS_INFINITY).

    Args:
        input: FLOAT32 or FLOAT16.
        mode: "either", "positive" or "negative" infinity, or an `IsInfinityMode`.
        out: where to write; a UINT8 (or bool) array of the input's shape that does not overlap it.

    Returns:
        `out`, or a new UINT8 array of the input's shape.

    Raises:
        InvalidOperator: another data type, or an unknown mode.
        InvalidInput: an unsuitable `out`.

    >>> import numpy as np, anydml as dml
    >>> dml.is_infinity(np.float32([1, np.inf, -np.inf]), mode="negative")
    array([0, 0, 1], dtype=uint8)
    """
    chosen = parse(IsInfinityMode, mode, "ELEMENT_WISE_IS_INFINITY: mode")
    return _apply(ELEMENT_WISE_IS_INFINITY, (input,), (chosen,), out)


# ---- one way for all operators -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Signature:
    """What the types of a call's arguments decide."""

    group: Group
    inputs: tuple[np.dtype, ...]
    output: np.dtype
    keeps_bool: bool  # every array behind the output's type is bool, so the result is bool
    takes_bool: bool  # `out` may be bool


def _apply(operator: Operator, arguments: Sequence[Any], attributes: tuple[Any, ...], out: Any) -> Any:
    given = [
        x if type(x) is np.ndarray else _taken(operator, slot, x)
        for slot, x in zip(operator.inputs, arguments, strict=True)
    ]
    kinds = tuple(x.dtype if isinstance(x, np.ndarray) else None for x in given)
    signature = _signature(operator, kinds, attributes)
    inputs: list[Array] = [
        x if dtype is wanted else _as_type(operator, k, x, wanted)  # type: ignore[misc]
        for k, (x, dtype, wanted) in enumerate(zip(given, kinds, signature.inputs, strict=True))
    ]
    if signature.keeps_bool and not all(
        x in (0, 1) for x, dtype in zip(given, kinds, strict=True) if dtype is None
    ):
        raise InvalidInput(
            Problem(operator.name, "expected True or False beside arrays of bool, but got a number")
        )
    shape = broadcast_shape([x.shape for x in inputs])
    if shape is None:
        shapes = "; ".join(f"{s.parameter} {x.shape}" for s, x in zip(operator.inputs, inputs, strict=True))
        raise InvalidInput(Problem(operator.name, f"expected shapes that broadcast, but got {shapes}"))
    late = None
    if out is None:
        target = empty_like_inputs(shape, signature.output, inputs)
        result: Any = target.view(np.bool_) if signature.keeps_bool else target
    else:
        result = out
        target, late = _target(operator, out, shape, signature, given)
    arrays = [x if x.shape == shape else np.broadcast_to(x, shape) for x in inputs]
    launch(signature.group, [*arrays, target])
    if late is not None:
        late[...] = target
    return result


@lru_cache(maxsize=4096)
def _signature(
    operator: Operator, kinds: tuple[np.dtype | None, ...], attributes: tuple[Any, ...]
) -> _Signature:
    """What arguments of these types mean; None is a Python number. All problems of types at once."""
    table = operator.table(FeatureLevel.newest())
    assert table is not None
    types: dict[str, TensorDataType] = {}
    problems: list[Problem] = []
    for letter in dict.fromkeys(s.dtype for s in operator.inputs):
        allowed = table.dtypes[letter]
        found: dict[str, list[str]] = {}
        for slot, dtype in zip(operator.inputs, kinds, strict=True):
            if slot.dtype == letter and dtype is not None:
                ours = UINT8 if dtype == np.bool_ else FROM_NUMPY.get(native(dtype))
                found.setdefault(ours.label if ours else str(dtype), []).append(slot.parameter)
                if ours in allowed:
                    types[letter] = ours
        if len(allowed) == 1:
            types.setdefault(letter, allowed[0])
        labels = [t.label for t in allowed]
        or_bool = " (or bool)" if allowed == (UINT8,) else ""
        for label, who in found.items():
            if label not in labels:
                where = f"{operator.name}: {', '.join(who)}"
                problems.append(Problem(where, f"expected {listed(allowed)}{or_bool}, but got {label}"))
        if len(found) > 1:
            got = "; ".join(f"{', '.join(who)} {label}" for label, who in found.items())
            remedy = "convert one with .astype"
            problems.append(Problem(operator.name, f"expected equal data types, but got {got}", remedy))
        elif not found and letter not in types:
            names = ", ".join(s.parameter for s in operator.inputs if s.dtype == letter)
            message = f"expected an array among {names}, but got only Python numbers"
            problems.append(Problem(operator.name, message, "give one of them a type, as in np.float32(1)"))
    if problems:
        raise InvalidOperator(*problems)
    (slot,) = operator.outputs
    output = types.get(slot.dtype) or table.dtypes[slot.dtype][0]
    inputs = tuple(types[s.dtype] for s in operator.inputs)
    values = {a.name: v for a, v in zip(operator.attributes, attributes, strict=True)}
    tied = [k for s, k in zip(operator.inputs, kinds, strict=True) if s.dtype == slot.dtype and k is not None]
    all_bool = bool(tied) and all(k == np.bool_ for k in tied)
    return _Signature(
        group(inputs, (operator.expression(inputs, output, values),)),
        tuple(NUMPY[t] for t in inputs),
        NUMPY[output],
        keeps_bool=all_bool,
        takes_bool=output is UINT8 and (all_bool or not tied),
    )


def _where(operator: Operator, slot: Slot) -> str:
    return f"{operator.name}: {slot.parameter}"


def _taken(operator: Operator, slot: Slot, x: Any) -> Array | bool | int | float:
    """An argument as an array, or as the Python number that it is."""
    if isinstance(x, bool | int | float) and not isinstance(x, np.generic):
        return x
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidInput(
            Problem(
                _where(operator, slot),
                "expected an array without mask, but got a MaskedArray",
                "fill it first",
            )
        )
    if isinstance(x, np.ndarray | np.generic):
        return np.asarray(x)
    return from_dlpack(x, _where(operator, slot))


def from_dlpack(x: Any, where: str) -> Array:
    """Another library's CPU tensor as an array on the same memory."""
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except Exception as error:  # each library has its own
            raise InvalidInput(
                Problem(
                    where,
                    f"expected a tensor that DLPack can share, but got {error}",
                    "it must lie on the CPU, need no gradient, and have a type of NumPy",
                )
            ) from error
    raise InvalidInput(
        Problem(
            where, f"expected an array, but got {type(x).__name__}", "convert it with np.asarray(..., dtype)"
        )
    )


def _as_type(operator: Operator, k: int, x: Array | bool | int | float, wanted: np.dtype) -> Array:
    """Argument k as an array of exactly this type, in native byte order; without a copy where possible."""
    if isinstance(x, np.ndarray):
        if x.dtype == wanted and x.dtype.isnative:
            return x
        return x.view(wanted) if x.dtype == np.bool_ else x.astype(wanted)  # the latter: byte order only
    try:
        with np.errstate(over="ignore"):
            number = np.array(x, wanted)
        if number.item() == x or (wanted.kind == "f" and np.isfinite(number) == np.isfinite(x)):
            return number
    except (OverflowError, ValueError):  # the latter: NaN has no integer
        pass
    where = _where(operator, operator.inputs[k])
    raise InvalidInput(Problem(where, f"expected a value that {wanted} can hold, but got {shown(x)}"))


def _target(
    operator: Operator, out: Any, shape: tuple[int, ...], signature: _Signature, given: Sequence[Any]
) -> tuple[Array, Array | None]:
    """`out` as the array to write, and, when it must be written in another byte order afterwards, itself."""
    where, dtype = f"{operator.name}: out", signature.output
    problems: list[Problem] = []

    def broken(message: str, remedy: str = "") -> None:
        problems.append(Problem(where, message, remedy))

    y = out if isinstance(out, np.ndarray) else from_dlpack(out, where)
    if isinstance(y, np.ma.MaskedArray):
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
        for slot, x in zip(operator.inputs, given, strict=True):
            if isinstance(x, np.ndarray) and overlaps(x, y) and not same_elements(x, y):
                broken(
                    f"expected memory apart from {slot.parameter}, but got an overlap",
                    "give a new array, or exactly that input if its elements are as large",
                )
    if problems:
        raise InvalidInput(*problems)
    if y.dtype is dtype:
        return y, None
    if not y.dtype.isnative:
        return np.empty(shape, dtype), y
    return y.view(dtype), None


def overlaps(x: Array, y: Array) -> bool:
    """Whether two arrays share memory; a case too intricate to decide counts as shared."""
    if not np.may_share_memory(x, y):
        return False
    try:
        return np.shares_memory(x, y, max_work=100_000)  # type: ignore[arg-type]  # NumPy's stub knows two values
    except np.exceptions.TooHardError:
        return True


def same_elements(x: Array, y: Array) -> bool:
    """Whether each element of `x` lies exactly where the element of `y` with the same index lies."""
    if address(x) != address(y) or x.shape != y.shape or x.itemsize != y.itemsize:
        return False
    return all(n == 1 or a == b for n, a, b in zip(x.shape, x.strides, y.strides, strict=True))
