"""Sizes that a user gives to a model's inputs: checked against what the model declares.

A size is a number, a name (equal wherever it stands), or None: as the model declares it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydml.errors import Problem, nearest, short_repr
from anydml.ir.dims import Affine, Dim, Symbol
from anydml.ir.graph import TensorType, Type, Value

Shapes = Mapping[str, Sequence[int | str | None]]


def unknown_names(word: str, given: Mapping[str, object], inputs: Mapping[str, Value]) -> list[Problem]:
    """A problem for each name that no input has; `word` is what the user calls what was given."""
    return [
        Problem(word, f"expected a name of an input, but got {short_repr(name)}", nearest(str(name), inputs))
        for name in given
        if name not in inputs
    ]


def sized(inputs: Mapping[str, Value], shapes: Shapes) -> tuple[dict[Value, Type], list[Problem]]:
    """The types of inputs, symbols that were given a size included; and what is wrong with the sizes."""
    problems: list[Problem] = []
    named = {n.name: n for v in inputs.values() for n in v.sizes or () if isinstance(n, Affine) and n.name}
    told: dict[Affine, int | Affine] = {}
    """What symbols of the model were said to be, names of the user included."""
    asked_types: dict[Value, TensorType] = {}
    for name, asked in shapes.items():
        value = inputs.get(name)
        if value is None:
            continue
        wrong = _wrong(value, asked)
        if wrong:
            problems.append(Problem(f"shapes {name!r}", wrong))
            continue
        assert isinstance(value.type, TensorType)
        result: list[Dim] = []
        for k, (n, m) in enumerate(zip(value.sizes or (None,) * len(asked), asked, strict=True)):
            if m is None:
                result.append(n)
                continue
            size = named.setdefault(m, Affine.of(Symbol(m))) if isinstance(m, str) else m
            problem = _unify(n, size, told)
            if problem:
                problems.append(Problem(f"shapes {name!r}, axis {k}", problem))
            result.append(size)
        asked_types[value] = TensorType(value.type.dtype, tuple(result))
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
    if not isinstance(value.type, TensorType):
        return "expected a tensor, which has sizes"
    if value.sizes is not None and len(value.sizes) != len(asked):
        return f"expected {len(value.sizes)} sizes, but got {list(asked)}"
    return ""


def _is_size(size: object) -> bool:
    if isinstance(size, str):
        return bool(size)
    return size is None or (isinstance(size, int) and not isinstance(size, bool) and size >= 0)
