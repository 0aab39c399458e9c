"""The vocabulary of an operator record: slots, attributes, level tables.

Each slot carries two letters, one for its data type and one for its sizes. Slots that share a letter
must agree, and the same letter keys the level tables, so that a constraint and its table cannot
disagree. What a letter cannot say is a rule of its own, beside the table of the level it holds from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal

from anydml.spec.enums import FeatureLevel, OperatorType, TensorDataType
from anydml.spec.scalar import Expr, Scalar, convert, read


@dataclass(frozen=True)
class Slot:
    """One tensor of an operator: its DirectML field name, direction, and the letters it is tied by."""

    name: str
    kind: Literal["input", "output"]
    dtype: str
    sizes: str

    @property
    def parameter(self) -> str:
        """The field in snake case without `Tensor`: `ConditionTensor` is `condition`."""
        return snake(self.name.removesuffix("Tensor"))


@dataclass(frozen=True)
class Attribute:
    """A field of an operator that is not a tensor."""

    name: str
    type: type[Enum]
    default: Enum
    """What the Python functions take when it is not given (as DirectMLX); a description must give it."""
    parameter: str


def inp(name: str, *, dtype: str, sizes: str) -> Slot:
    return Slot(name, "input", dtype, sizes)


def out(name: str, *, dtype: str, sizes: str) -> Slot:
    return Slot(name, "output", dtype, sizes)


def attr(name: str, type: type[Enum], default: Enum, *, parameter: str = "") -> Attribute:
    return Attribute(name, type, default, parameter or snake(name))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@dataclass(frozen=True)
class Table:
    """What one feature level allows: the ranks (both ends included) and the types behind each letter."""

    rank: tuple[int, int]
    dtypes: Mapping[str, tuple[TensorDataType, ...]]


def at(*, rank: tuple[int, int], **dtypes: TensorDataType | tuple[TensorDataType, ...]) -> Table:
    return Table(rank, {letter: d if isinstance(d, tuple) else (d,) for letter, d in dtypes.items()})


@dataclass(frozen=True, eq=False)
class Operator:
    """One DirectML operator, whole. Validation, functions, parser, kernel and reference derive from it."""

    name: str
    doc: str
    slots: tuple[Slot | Attribute, ...]
    levels: Mapping[FeatureLevel, Table]
    scalar: Scalar
    """The meaning of one output element: of the inputs' elements, then the attributes, in slot order."""
    example: tuple[Any, ...]
    """Input arrays in slot order, then the output that the operator computes from them."""
    in_place: tuple[str, ...] = field(default=())

    @cached_property
    def type(self) -> OperatorType:
        return OperatorType[self.name]

    @cached_property
    def inputs(self) -> tuple[Slot, ...]:
        return tuple(s for s in self.slots if isinstance(s, Slot) and s.kind == "input")

    @cached_property
    def outputs(self) -> tuple[Slot, ...]:
        return tuple(s for s in self.slots if isinstance(s, Slot) and s.kind == "output")

    @cached_property
    def tensors(self) -> tuple[Slot, ...]:
        return tuple(s for s in self.slots if isinstance(s, Slot))

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(s for s in self.slots if isinstance(s, Attribute))

    @property
    def introduced(self) -> FeatureLevel:
        return min(self.levels)

    def table(self, level: FeatureLevel) -> Table | None:
        """The effective table: the newest at or below `level`; None below the introduction."""
        reached = [at_level for at_level in self.levels if at_level <= level]
        return self.levels[max(reached)] if reached else None

    def allowed_from(self, letter: str, dtype: TensorDataType) -> FeatureLevel | None:
        """The first level whose table has `dtype` behind `letter`, if any has."""
        return min((lv for lv, t in self.levels.items() if dtype in t.dtypes[letter]), default=None)

    def expression(
        self,
        inputs: tuple[TensorDataType, ...],
        output: TensorDataType,
        attributes: Mapping[str, Any],
    ) -> Expr:
        """The meaning for these input types and attribute values, as the output's type."""
        symbols = [read(i, dtype) for i, dtype in enumerate(inputs)]
        return convert(self.scalar(*symbols, *(attributes[a.name] for a in self.attributes)), output)
