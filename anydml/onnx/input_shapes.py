"""Sizes and contents that a user gives to a model's inputs: checked against what the model declares.

A size is a number, a name (equal wherever it stands), or None: as the model declares it. An optional input
with sizes always has content, and is a tensor; one whose content is None never has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from anydml.errors import InvalidInput, Problem, check_by_name, counted, nearest, short_repr
from anydml.ir.dims import Affine, Dim, Symbol, are_sizes
from anydml.ir.graph import Constant, OptionalType, TensorType, Type, Value
from anydml.onnx.arrays import of_literal
from anydml.onnx.serde.deserialize import Model

MAX_ELEMENTS = 2**63 - 1
"""Of a tensor: ONNX has sizes, and products of sizes, in int64."""
Shapes = Mapping[str, Sequence[int | str | None]]


def unknown_names(word: str, given: Mapping[str, object], inputs: Mapping[str, Value]) -> list[Problem]:
    """A problem for each name that no input has; `word` is what the user calls what was given."""
    return [
        Problem(word, f"expected a name of an input, but got {short_repr(name)}", nearest(str(name), inputs))
        for name in given
        if name not in inputs
    ]


def sized(
    inputs: Mapping[str, Value], shapes: Shapes, word: str = "shapes", contents: Collection[str] = ()
) -> tuple[dict[Value, Type], list[Problem]]:
    """The types of inputs, symbols that were given a size included; and what is wrong with the sizes, which
    the user gave as `word`; or as those of `contents`, which inputs of these names are to have."""
    problems: list[Problem] = []
    named = {n.name: n for v in inputs.values() for n in v.sizes or () if isinstance(n, Affine) and n.name}
    told: dict[Affine, int | Affine] = {}
    """What symbols of the model were said to be, names of the user included."""
    asked_types: dict[Value, TensorType] = {}
    for name, asked in shapes.items():
        value = inputs.get(name)
        if value is None:
            continue
        wrong, where = _wrong(value, asked), f"{'fixed' if name in contents else word} {name!r}"
        if wrong:
            problems.append(Problem(where, wrong))
            continue
        declared = _content_type(value.type)
        assert declared is not None
        result: list[Dim] = []
        for k, (n, m) in enumerate(zip(declared.sizes or (None,) * len(asked), asked, strict=True)):
            if m is None:
                result.append(n)
                continue
            size = named.setdefault(m, Affine.of(Symbol(m))) if isinstance(m, str) else m
            problem = _unify(n, size, told)
            if problem:
                problems.append(Problem(f"{where}, axis {k}", problem))
            result.append(size)
        asked_types[value] = TensorType(declared.dtype, tuple(result))
    types: dict[Value, Type] = {}
    for value in inputs.values():
        type = asked_types.get(value, value.type)
        if isinstance(type, TensorType) and type.sizes is not None:
            types[value] = TensorType(type.dtype, tuple(_known(n, told) for n in type.sizes))
    return types, problems


def _unify(declared: Dim, size: int | Affine, told: dict[Affine, int | Affine]) -> str:
    """Know that a size is what a user says; or why it cannot be that."""
    a, b = _known(declared, told), _known(size, told)
    if a is None or a == b:
        return ""
    if isinstance(a, Affine) and b is not None:
        told[a] = b
    elif isinstance(b, Affine):
        told[b] = a
    else:
        return f"expected {a}{f' ({declared})' if isinstance(declared, Affine) else ''}, but got {b}"
    return ""


def _known(size: Dim, told: Mapping[Affine, int | Affine]) -> Dim:
    """What a size was said to be."""
    while isinstance(size, Affine) and size in told:
        size = told[size]
    return size


def _wrong(value: Value, asked: object) -> str:
    if not isinstance(asked, list | tuple) or not all(map(_is_size, asked)):
        return f"expected sizes, names of sizes or None, but got {short_repr(asked)}"
    if prod(n or 1 for n in asked if isinstance(n, int)) > MAX_ELEMENTS:
        return f"expected at most 2^63-1 elements, but got sizes {list(asked)}"
    declared = _content_type(value.type)
    if declared is None:
        return "expected a tensor, which has sizes"
    if declared.sizes is not None and len(declared.sizes) != len(asked):
        return f"expected {counted(len(declared.sizes), 'size')}, but got {list(asked)}"
    return ""


def _content_type(type: Type | None) -> TensorType | None:
    """The type of a tensor, or of an optional's: who gives it sizes or a content says that there is one."""
    content = type.element if isinstance(type, OptionalType) else type
    return content if isinstance(content, TensorType) else None


def _is_size(size: object) -> bool:
    if isinstance(size, str):
        return bool(size)
    return size is None or (isinstance(size, int) and not isinstance(size, bool) and size >= 0)


def check_request(
    model: Model, fixed: Mapping[str, Any], shapes: Shapes, witness: Mapping[str, Sequence[int]], convert: str
) -> tuple[dict[Value, Constant], dict[Value, Type]]:
    """Contents and types of inputs, or all that is wrong with them."""
    problems: list[Problem] = []
    for word, by_name in (("fixed", fixed), ("shapes", shapes), ("witness", witness)):
        check_by_name(word, by_name)
    inputs = {v.name: v for v in model.graph.inputs}
    if convert not in ("auto", "always", "never"):
        problems.append(Problem("convert", f"expected auto, always or never, but got {short_repr(convert)}"))
    for word, given in (("fixed", fixed), ("shapes", shapes), ("witness", witness)):
        problems += unknown_names(word, given, inputs)
    problems += [
        Problem(f"witness {name!r}", f"expected sizes, but got {short_repr(asked)}")
        for name, asked in witness.items()
        if not are_sizes(asked) or prod(n or 1 for n in asked) > MAX_ELEMENTS
    ]
    contents: dict[Value, Constant] = {}
    absent: dict[Value, Type] = {}
    for name, value in inputs.items():
        if name in fixed and fixed[name] is None and isinstance(value.type, OptionalType):
            absent[value] = replace(value.type, empty=True)
        elif name in fixed:
            array, wrong = _content(fixed[name], _content_type(value.type))
            if wrong is not None or array is None:
                small = str(fixed[name]).lower() if isinstance(fixed[name], str) else ""
                wants_truth = isinstance(value.type, TensorType) and value.type.dtype == "bool"
                remedy = f"write {small}" if wants_truth and small in ("true", "false") else ""
                problems.append(Problem(f"fixed {name!r}", wrong or "", remedy))
            else:
                contents[value] = Constant(array)
    fixed_shapes = {v.name: c.content.shape for v, c in contents.items()}
    types, wrong_sizes = sized(inputs, {**shapes, **fixed_shapes}, contents=fixed_shapes)
    problems += wrong_sizes or _wrong_defaults(model, types)
    if not problems:  # sizes on which nothing fails are such as the model may be given
        asked = {name: Value(name, types.get(v, v.type)) for name, v in inputs.items()}
        problems += sized(asked, witness, "witness")[1]
    if problems:
        raise InvalidInput(*problems)
    return contents, types | absent


def _wrong_defaults(model: Model, types: Mapping[Value, Type]) -> list[Problem]:
    """Inputs whose defaults do not have the sizes that follow from those of others."""
    problems = []
    for value, default in model.defaults.items():
        sizes, found = getattr(types.get(value), "sizes", None), np.shape(default.content)
        if sizes is None or len(sizes) != len(found):
            continue
        if any(isinstance(n, int) and n != m for n, m in zip(sizes, found, strict=True)):
            told = ",".join("?" if n is None else str(n) for n in sizes)
            message = f"sizes of {told} follow from the others, but its default is of sizes {list(found)}"
            problems.append(Problem(f"shapes {value.name!r}", message))
    return problems


def _content(value: Any, type: TensorType | None) -> tuple[np.ndarray | None, str | None]:
    """What an input is fixed to as an array of its type; or what is wrong with it."""
    if type is None:
        return None, "expected an input that is a tensor"
    try:
        array = of_literal(value, type.dtype)
    except ValueError as error:
        return None, f"expected {type.dtype}, but got {short_repr(value)}; {error}"
    rank = None if type.sizes is None else len(type.sizes)
    if (
        rank is not None
        and array.ndim == 0
        and rank > 0
        and all(n == 1 or not isinstance(n, int) for n in type.sizes or ())
    ):
        array = array.reshape((1,) * rank)
    elif rank == 0 and array.size == 1:  # a rate is often given as [16000]
        array = array.reshape(())
    return array, None
