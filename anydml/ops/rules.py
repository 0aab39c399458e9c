"""The named rules: constraints that the type variables of a definition cannot say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import dropwhile
from math import isfinite
from typing import Any

from anydml.errors import counted, short_repr
from anydml.ops.attributes import as_type
from anydml.ops.dtypes import FLOAT32, FLOATING, INT32, SIZE
from anydml.ops.enums import TensorDataType
from anydml.ops.opdef import Rule
from anydml.ops.tensor_desc import TensorDesc

Tensors = Mapping[str, TensorDesc]
Attributes = Mapping[str, Any]
Breaches = Iterator[tuple[str, str]]


def same_types(one: str, other: str) -> Rule:
    def broken(tensors: Tensors, attributes: Attributes) -> Breaches:
        if one in tensors and other in tensors:
            a, b = tensors[one].data_type, tensors[other].data_type
            if a != b:
                yield f"expected equal data types, but got {one} {a.label}; {other} {b.label}", ""

    return Rule(f"{one} and {other} have one data type", broken)


def _scale(tensors: Tensors, attributes: Attributes) -> Breaches:
    if "InputTensor" in tensors and "ScaleTensor" in tensors:
        given, got = tensors["InputTensor"].data_type, tensors["ScaleTensor"].data_type
        wanted = FLOAT32 if given is INT32 else given
        if got is not wanted:
            yield (
                f"ScaleTensor: expected {wanted.label} beside InputTensor {given.label}, but got {got.label}",
                "",
            )


SCALE_OF_INPUT = Rule("ScaleTensor has the type of InputTensor, or FLOAT32 if that is INT32", _scale)


def _rows_only(tensors: Tensors, attributes: Attributes) -> Breaches:
    if "InputTensor" in tensors:
        sizes = tensors["InputTensor"].sizes
        effective = len(list(dropwhile(lambda n: n == 1, sizes)))
        if effective > 2:
            yield (
                "InputTensor: expected sizes of 1 before the last two dimensions, "
                f"but got {short_repr(sizes)}",
                "the newer operator (its name ends in 1) takes Axes",
            )


ROWS_ONLY = Rule("an effective rank of at most 2: without leading sizes of 1", _rows_only)


def _axes(tensors: Tensors, attributes: Attributes) -> Breaches:
    axes, rank = (
        attributes.get("Axes"),
        len(tensors["InputTensor"].sizes) if "InputTensor" in tensors else None,
    )
    if axes is None or rank is None:
        return
    if not axes:
        yield "Axes: expected at least one axis, but got none", ""
    if any(not 0 <= a < rank for a in axes):
        yield f"Axes: expected numbers from 0 to {rank - 1}, but got {short_repr(list(axes))}", ""
    elif len(set(axes)) < len(axes):
        yield f"Axes: expected each axis once, but got {short_repr(list(axes))}", ""


AXES_OF_INPUT = Rule("Axes are different dimensions of InputTensor", _axes)


def of_type(type_field: str, *fields: str, output: str = "OutputTensor") -> Rule:
    """Scalar unions beside a tensor: the type that says how to read them is the tensor's, which has them."""

    def broken(tensors: Tensors, attributes: Attributes) -> Breaches:
        if output not in tensors:
            return
        dtype, said = tensors[output].data_type, attributes.get(type_field)
        if isinstance(said, TensorDataType) and said != dtype:
            yield f"{type_field}: expected {output}'s type, {dtype.label}, but got {said.label}", ""
        for name in fields:
            value = attributes.get(name)
            if value is not None and dtype in SIZE and not _holds(dtype, value):
                yield f"{name}: expected a value that {dtype.label} can hold, but got {short_repr(value)}", ""

    return Rule(f"{type_field} is the type of {output}, which can hold {' and '.join(fields)}", broken)


def _holds(dtype: TensorDataType, value: float) -> bool:
    """Whether a number of a scalar union is one of the type; to floats it is rounded."""
    nearest = as_type(value, dtype)
    if dtype not in FLOATING:
        return nearest == value
    return isfinite(nearest) or (isinstance(value, float) and not isfinite(value))


MIN_MAX_OF_OUTPUT = of_type("MinMaxDataType", "Min", "Max")
MIN_MAX_OF_GRADIENT = of_type("MinMaxDataType", "Min", "Max", output="OutputGradientTensor")


def at_least(name: str, least: float, until: str) -> Rule:
    def broken(tensors: Tensors, attributes: Attributes) -> Breaches:
        value = attributes.get(name)
        if value is not None and not value >= least:
            yield (
                f"{name}: expected a number from {least:g} on, but got {value:g}",
                f"smaller ones are allowed from {until}",
            )

    return Rule(f"{name} is at least {least:g}", broken)


def not_zero(name: str) -> Rule:
    def broken(tensors: Tensors, attributes: Attributes) -> Breaches:
        if attributes.get(name) == 0:
            yield f"{name}: expected a number other than 0, but got 0", "the formula divides by it"

    return Rule(f"{name} is not 0", broken)


# ---- rules of operators of whole tensors ------------------------------------------------------------------


def holds(text: str, condition: Callable[[Any], object], got: Callable[[Any], object] | str = "") -> Rule:
    """What must hold of a `Call`, said once: the text stands in the documentation and in the message.

    `got`: what is there instead, or the name of the attribute that says it.
    """

    def broken(call: Any) -> Breaches:
        if not condition(call):
            found = getattr(call, got) if isinstance(got, str) and got else got(call) if got else "none"
            shown = found if isinstance(found, str) else short_repr(found)
            yield f"expected {text}, but got {shown}", ""

    return Rule(text, broken, of_call=True)


def axis_of(tensor: str, attribute: str = "axis") -> Rule:
    """An axis is a dimension of a tensor (by its parameter; of several behind one field, of the first)."""
    name = "".join(word.capitalize() for word in attribute.split("_"))
    several = tensor in ("inputs", "outputs")
    field = "".join(word.capitalize() for word in tensor.removesuffix("s" * several).split("_"))
    field += "Tensors" if several else "Tensor"

    def rank(c: Any) -> int:
        found = getattr(c, tensor)
        return int(found[0].ndim if isinstance(found, list) else found.ndim)

    return holds(
        f"{name} below the number of dimensions of {field}",
        lambda c: getattr(c, attribute) < rank(c),
        lambda c: f"{getattr(c, attribute)} with {counted(rank(c), 'dimension')}",
    )


def axes_of(tensor: str) -> Rule:
    """Axes are different dimensions of a tensor (by its parameter)."""
    field = "".join(word.capitalize() for word in tensor.split("_"))
    return holds(
        f"Axes that are different dimensions of {field}Tensor",
        lambda c: len(set(c.axes)) == len(c.axes) and all(0 <= a < getattr(c, tensor).ndim for a in c.axes),
        lambda c: list(c.axes),
    )
