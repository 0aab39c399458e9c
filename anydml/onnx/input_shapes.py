"""Sizes that a user gives to a model's inputs: checked against what the model declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anydml.errors import Problem, nearest, short_repr
from anydml.ir.dims import Affine, are_sizes
from anydml.ir.graph import TensorType, Type, Value

Shapes = Mapping[str, Sequence[int]]


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
    symbols: dict[Affine, int] = {}
    types: dict[Value, Type] = {}
    for name, asked in shapes.items():
        value = inputs.get(name)
        if value is None:
            continue
        wrong = _wrong(value, asked)
        if wrong:
            problems.append(Problem(f"shapes {name!r}", wrong))
            continue
        assert isinstance(value.type, TensorType)
        for k, (n, m) in enumerate(zip(value.sizes or (None,) * len(asked), asked, strict=True)):
            known = n if isinstance(n, int) else symbols.setdefault(n, m) if n else m
            if known != m:
                wanted = f"expected {known}{f' ({n})' if isinstance(n, Affine) else ''}, but got {m}"
                problems.append(Problem(f"shapes {name!r}, axis {k}", wanted))
        types[value] = TensorType(value.type.dtype, tuple(asked))
    for value in inputs.values():
        type = types.get(value, value.type)
        if isinstance(type, TensorType) and type.sizes is not None:
            known_sizes = tuple(symbols.get(n, n) if isinstance(n, Affine) else n for n in type.sizes)
            types[value] = TensorType(type.dtype, known_sizes)
    return types, problems


def _wrong(value: Value, asked: object) -> str:
    if not are_sizes(asked):
        return f"expected sizes, but got {short_repr(asked)}"
    assert isinstance(asked, list | tuple)
    if not isinstance(value.type, TensorType):
        return "expected a tensor, which has sizes"
    if value.sizes is not None and len(value.sizes) != len(asked):
        return f"expected {len(value.sizes)} sizes, but got {list(asked)}"
    return ""
