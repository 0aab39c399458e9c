"""What is fed to a model: as arrays, and checked against what it declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from anydml.errors import InvalidInput, Problem, nearest, short_repr, type_name
from anydml.ir.graph import MapType, OptionalType, SequenceType, TensorType, Type, Value
from anydml.onnx.arrays import of_numbers
from anydml.onnx.providers.ort_values import content_of
from anydml.onnx.serde.deserialize import Model
from anydml.onnx.types import are_texts, dtype_name, onnx_name
from anydml.ops.dtypes import is_masked, native
from anydml.runtime.memory import overlap_among


def as_array(value: Any, type: Type | None) -> Any:
    """What was fed, as an array where it is one in another coat: a NumPy scalar, onnxruntime's OrtValue, or
    lists of numbers or texts that fit the type."""
    if isinstance(type, SequenceType) and isinstance(value, list | tuple):
        return [as_array(v, type.element) for v in value]
    if isinstance(type, OptionalType):
        return value if value is None else as_array(value, type.element)
    if isinstance(type, TensorType) and isinstance(value, list | tuple):
        return _of_lists(value, type)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    elif not isinstance(value, np.ndarray):
        value = content_of(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "U":
            return value.astype(object)
        if value.dtype.kind in "SV" and isinstance(type, TensorType) and type.dtype == "string":
            return _of_bytes(value)
        if value.dtype == object and not are_texts(value):
            return np.frompyfunc(str, 1, 1)(value) if value.ndim else np.array(str(value.item()), object)
        return value.astype(native(value.dtype), copy=False)
    return value


def is_text(value: Any) -> bool:
    """Whether it is an array of texts as NumPy has them, and not of objects."""
    return type(value) is np.ndarray and value.dtype.kind == "U"


def _of_bytes(value: np.ndarray) -> np.ndarray:
    """Texts in UTF-8, unless some are not."""
    try:
        texts = [bytes(x).decode() for x in value.reshape(-1).tolist()]
    except UnicodeDecodeError:
        return value
    made = np.empty(len(texts), object)
    made[:] = texts
    return made.reshape(value.shape)


def _of_lists(value: list[Any] | tuple[Any, ...], type: TensorType) -> Any:
    """An array, unless that would lose something."""
    try:
        if type.dtype != "string":
            return of_numbers(value, type.dtype)
        found = np.asarray(value)
    except ValueError:
        return value
    texts = np.frompyfunc(str, 1, 1)(np.array(value, object)) if found.size else found.astype(object)
    return texts if found.dtype.kind in "Ubiuf" else value  # numbers as Python writes them


def _why_not(value: Any, dtype: str) -> str:
    """What is wrong with lists that are no array; empty, of what is no list."""
    try:
        if isinstance(value, list | tuple) and dtype != "string":
            of_numbers(value, dtype)
    except ValueError as error:
        return f"; {error}"
    return ""


def problems_of(value: Any, type: Type | None) -> list[Problem]:
    match type:
        case None:
            return []
        case OptionalType(element):
            return [] if value is None else problems_of(value, element)
        case SequenceType(element):
            if not isinstance(value, list):
                return [Problem("", f"expected a list, for {onnx_name(type)}, but got {type_name(value)}")]
            return [p.under(f"[{k}]") for k, v in enumerate(value) for p in problems_of(v, element)]
        case MapType():
            if not isinstance(value, dict):
                message = f"expected a dictionary, for {onnx_name(type)}, but got {type_name(value)}"
                return [Problem("", message)]
            return []
        case TensorType(dtype, sizes):
            if not isinstance(value, np.ndarray) or is_masked(value):
                message = f"expected an array of {dtype}, but got {type_name(value)}{_why_not(value, dtype)}"
                return [Problem("", message, "use np.array(...)")]
            problems = []
            if dtype_name(value.dtype) != dtype:
                problems.append(Problem("", f"expected {dtype}, but got {dtype_name(value.dtype)}"))
            sizes = sizes or None  # onnxruntime compares nothing with an empty shape: a scalar may be [1]
            if sizes is not None and len(sizes) != value.ndim:
                problems.append(Problem("", f"expected rank {len(sizes)}, but got shape {value.shape}"))
            elif sizes is not None and any(
                isinstance(n, int) and n != m for n, m in zip(sizes, value.shape, strict=True)
            ):
                listed = ", ".join("?" if n is None else str(n) for n in sizes)
                problems.append(Problem("", f"expected shape ({listed}), but got {value.shape}"))
            return problems


def checked(feed: Mapping[str, Any], model: Model, conditions: Mapping[Value, str]) -> list[Any]:
    """The values of all inputs.

    Raises:
        InvalidInput: what is wrong with them.
    """
    problems: list[Problem] = []
    names = {i.name for i in (*model.inputs, *model.overridable)}
    for name in feed:
        if name not in names:
            message = f"expected a name of an input, but got {short_repr(name)}"
            problems.append(Problem("inputs", message, nearest(name, names)))
    values = []
    for argument, value in zip(model.inputs, model.graph.inputs, strict=True):
        where = f"input {argument.name!r}"
        if argument.name in feed:
            given = as_array(feed[argument.name], argument.type)
            problems += [p.under(where) for p in problems_of(given, argument.type)]
            if value in conditions and isinstance(given, np.ndarray) and given.size != 1:
                message = f"expected one bool, the condition of {conditions[value]}"
                problems.append(Problem(where, f"{message}, but got shape {given.shape}"))
            values.append(given)
        elif argument.optional:
            values.append(model.defaults[value].content)
        elif isinstance(argument.type, OptionalType):
            values.append(None)
        else:
            wanted = onnx_name(argument.type)
            problems.append(Problem(where, f"expected {wanted}, but it is missing"))
    if problems:
        raise InvalidInput(*problems)
    return values


def check_call(output_names: object, input_feed: object) -> None:
    if not isinstance(input_feed, Mapping):
        message = f"expected a dictionary by name, but got {type_name(input_feed)}"
        raise InvalidInput(Problem("inputs", message))
    if output_names is not None and (isinstance(output_names, str) or not isinstance(output_names, Sequence)):
        message = f"expected a list of names, but got {short_repr(output_names)}"
        raise InvalidInput(Problem("outputs", message))


def check_places(outputs: Mapping[str, Any], known: Iterable[str]) -> None:
    """Whether results can be written to these arrays, which outputs are to have.

    Raises:
        InvalidInput: all that is wrong with them.
    """
    problems = []
    for name, y in outputs.items():
        where = f"output {name!r}"
        if name not in known:
            message = f"expected a name of an output, but got {short_repr(name)}"
            problems.append(Problem("outputs", message, nearest(name, known)))
        elif not isinstance(y, np.ndarray):
            problems.append(Problem(where, f"expected an array to write to, but got {type_name(y)}"))
        elif not y.flags.writeable:
            problems.append(Problem(where, "expected a writable array, but got a read-only one"))
    if not problems and overlap_among(outputs.values()):
        problems.append(Problem("outputs", "expected arrays apart, but got an overlap"))
    if problems:
        raise InvalidInput(*problems)
