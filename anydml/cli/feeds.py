"""What `anydml run` feeds to an ONNX model: literals and files as arrays of its inputs' types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from anydml.cli.common import array_in, pairs, quoted
from anydml.errors import InvalidInput, Problem, short_repr
from anydml.onnx.arrays import of_literal
from anydml.onnx.inference_session import NodeArg
from anydml.onnx.types import numpy_type
from anydml.session import Session


def feed(session: Session, feeds: tuple[str, ...]) -> dict[str, Any]:
    declared = {i.name: i for i in session.get_inputs()}
    values: dict[str, Any] = {}
    for name, text in pairs("--feed", feeds):
        argument = declared.get(name)
        if text.startswith("@"):
            values[name] = _as_declared(array_in(f"input {name!r}", text[1:]), argument)
        elif argument is None:
            values[name] = np.zeros(0)  # the session names the inputs that exist
        else:
            values[name] = _literal(name, text, argument.type, argument.rank)
    return values


def _as_declared(array: np.ndarray, argument: NodeArg | None) -> np.ndarray:
    """Bits of a type that .npy files have no name for, as that type."""
    element = None if argument is None else re.fullmatch(r"tensor\((\w+)\)", argument.type)
    if array.dtype.kind != "V" or element is None:
        return array
    dtype = numpy_type(_NAMES.get(element[1], element[1]))
    same = dtype.kind == "V" and dtype.itemsize == array.dtype.itemsize and not array.dtype.names
    return array.view(dtype) if same else array


def how_to_feed(session: Session, given: Mapping[str, Any]) -> Iterator[Problem]:
    """What to type for the inputs that were not given."""
    missing = [i for i in session.get_inputs() if i.name not in given and not i.type.startswith("optional")]
    if missing:
        options = " ".join(f"--feed {quoted(f'{i.name}={_sample(i)}')}" for i in missing)
        listed = ", ".join(f"{i.name} {_declared(i)}" for i in missing)
        remedy = f"give {options}, or others of numpy.save's files and literals such as [[1, 2]]"
        yield Problem("--feed", f"expected {listed}", remedy)


def _sample(argument: NodeArg) -> str:
    """What could be written for an input: a literal for a scalar, a file for more."""
    if argument.rank != 0:
        return f"@{argument.name}.npy"
    return {"tensor(bool)": "true", "tensor(string)": "text"}.get(argument.type, "1")


def _declared(argument: NodeArg) -> str:
    """As in `float32[n,4]`."""
    element = re.fullmatch(r"tensor\((\w+)\)", argument.type)
    if element is None or argument.rank is None:
        return argument.type
    sizes = ",".join("?" if n is None else str(n) for n in argument.shape)
    return f"{_NAMES.get(element[1], element[1])}[{sizes}]"


def _intended(text: str) -> str:
    """What somebody may have meant who did not write JSON."""
    if text.lower() in ("true", "false"):
        return f"write {text.lower()}"
    if text.endswith((".npy", ".npz")):
        return f"did you mean @{text}?"
    if re.fullmatch(r"[-+.\deE]+(, *[-+.\deE]+)+", text):
        return f"write '[{text}]'"
    return ""


_NAMES = {"float": "float32", "double": "float64"}


def _literal(name: str, text: str, type: str, rank: int | None) -> Any:
    """A JSON literal as the input's type; a single value fills an input of any rank with size 1."""
    where = f"input {name!r}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # no JSON, or absurdly long or deep
        if "string" not in type:
            hint = _intended(text)
            message = f"expected a JSON literal or @file.npy, but got {short_repr(text)}"
            raise InvalidInput(Problem(where, message, hint)) from error
        value = text
    if "string" in type and not isinstance(value, str | list):
        value = text  # 5 is a text, too
    sequence = re.fullmatch(r"seq\(tensor\((\w+)\)\)", type)
    tensor = re.fullmatch(r"tensor\((\w+)\)", type)
    if sequence and isinstance(value, list):
        return [_array(where, v, sequence[1], None) for v in value]
    if tensor:
        return _array(where, value, tensor[1], rank)
    raise InvalidInput(
        Problem(where, f"expected {type}, which a literal cannot give", "use the Python interface")
    )


def _array(where: str, value: Any, type: str, rank: int | None) -> Any:
    name = _NAMES.get(type, type)
    try:
        return _shape_to_rank(of_literal(value, name), rank)
    except ValueError as error:
        message = f"expected a literal of {name}, but got {short_repr(value)}"
        raise InvalidInput(Problem(where, message, str(error))) from error


def _shape_to_rank(array: Any, rank: int | None) -> Any:
    return array.reshape((1,) * rank) if rank and array.ndim == 0 else array
