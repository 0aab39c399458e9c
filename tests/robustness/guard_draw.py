"""What a random case consists of: operators and their attributes, sizes, layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from anydml.ops.attributes import ActivationKind, AxesKind, EnumKind, ScaleBiasKind
from anydml.ops.catalog import BY_NAME, ELEMENT_WISE
from anydml.ops.dtypes import FLOAT32, INT32
from anydml.ops.enums import FeatureLevel, TensorDataType
from anydml.ops.opdef import Attribute, Operator
from anydml.ops.tensor_desc import packed_strides
from tests.robustness.guard_memory import Layout

T = TypeVar("T")
Rng = np.random.Generator
Types = Mapping[str, TensorDataType]

NEWEST = FeatureLevel.newest()
LENGTHS = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 257, 511, 513)
LONG = (1000, 1023, 1025, 4095, 4096, 4097, 5000, 9001, 33_000)
NUMBERS: Mapping[str, tuple[float, ...]] = {"Min": (0, 1), "Max": (3, 5), "Exponent": (0.5, 2, 3, -1, 1.5)}
"""Attributes by name; few, because each value makes another kernel."""
OTHERS = (0.5, 1.0, 1.5)
TWO_DIMENSIONS = ("ACTIVATION_SOFTMAX", "ACTIVATION_LOG_SOFTMAX", "ACTIVATION_HARDMAX")
"""Operators whose tensors have sizes of 1 before the last two dimensions."""


OF_ROWS = [o for o in ELEMENT_WISE if o.has_axes]


def choice(rng: Rng, values: Sequence[T]) -> T:
    return values[int(rng.integers(len(values)))]


def chance(rng: Rng, probability: float) -> bool:
    return bool(rng.random() < probability)


def operator_for(seed: int, number: int) -> Operator:
    """Each operator once in every 92 numbers, in an order that depends on the seed; but for every sixth, which
    has axes, for rows and columns have code of their own."""
    if number % 6 == 5:
        return choice(np.random.default_rng([seed, number, 93]), OF_ROWS)
    turn, place = divmod(number - number // 6, len(ELEMENT_WISE))
    return ELEMENT_WISE[int(np.random.default_rng([seed, turn, 92]).permutation(len(ELEMENT_WISE))[place])]


def types_for(rng: Rng, operator: Operator) -> dict[str, TensorDataType]:
    """A type behind each letter, of those that the newest level allows."""
    table = operator.table(NEWEST)
    assert table is not None
    types = {type_variable: choice(rng, allowed) for type_variable, allowed in table.dtypes.items()}
    if operator.name == "ELEMENT_WISE_QUANTIZE_LINEAR":
        types["C"] = FLOAT32 if types["T"] is INT32 else types["T"]
    return types


def attributes_for(rng: Rng, operator: Operator, types: Types) -> dict[str, Any]:
    """Values of all attributes but axes, by field name."""
    (output,) = operator.outputs
    values = {}
    for attribute in operator.attributes:
        if attribute.implied:
            values[attribute.name] = types[output.dtype].name
        elif not isinstance(attribute.kind, AxesKind):
            values[attribute.name] = _attribute(rng, attribute)
    return values


def _attribute(rng: Rng, attribute: Attribute) -> Any:
    kind = attribute.kind
    if attribute.optional and chance(rng, 0.6):
        return None
    if isinstance(kind, ScaleBiasKind):
        return {"Scale": choice(rng, (2.0, 0.5, -1.0)), "Bias": choice(rng, (0.0, 1.0, 0.25))}
    if isinstance(kind, EnumKind):
        return choice(rng, kind.form.split(" | "))
    if isinstance(kind, ActivationKind):
        fused = BY_NAME[choice(rng, kind.allowed)]
        return {"Type": fused.name, "Desc": {a.name: _attribute(rng, a) for a in fused.attributes}}
    return choice(rng, NUMBERS.get(attribute.name, OTHERS))


def axes_for(rng: Rng) -> tuple[int, ...]:
    """Axes counted from the end."""
    return choice(rng, ((-1,), (-1,), (-2,), (-3,), (-2, -1), (-3, -1), (-3, -2, -1), (-1, -4)))


def budget_for(rng: Rng, packed: bool) -> int:
    """Elements of a tensor, at most: mostly few; now and then enough for several threads."""
    if chance(rng, 0.0004):
        return 3_000_000  # enough to stream
    if packed:
        return choice(rng, (300, 12_000, 12_000, 40_000))
    return choice(rng, (40, 300, 300, 2000, 2000, 2000, 12_000, 40_000))


def sizes_for(rng: Rng, operator: Operator, rank: int, budget: int) -> tuple[int, ...]:
    """Sizes of `rank` dimensions and at most `budget` elements, or a few more."""
    free = range(max(rank - 2, 0), rank) if operator.name in TWO_DIMENSIONS else range(rank)
    sizes = [1] * rank
    order = [int(d) for d in rng.permutation(list(free))]
    if operator.has_axes and order and chance(rng, 0.5):  # neighbours: elements of a row, or rows
        order.sort(key=lambda d: d != rank - 1)
    for d in order:
        room = budget // prod(sizes)
        lengths = [n for n in LENGTHS + LONG if n <= room]
        many = rank > 3 and chance(rng, 0.7)  # else the first one takes it all
        sizes[d] = choice(rng, lengths[:6] if many else lengths or (1,))
    return tuple(sizes)


def layout_for(
    rng: Rng, sizes: tuple[int, ...], *, repeats: bool, signed: bool = False, packed: bool = False
) -> Layout:
    """Packed, permuted, padded, strided; with `repeats` also broadcast, with `signed` also backwards."""
    if packed:
        return Layout(sizes, packed_strides(sizes))
    rank = len(sizes)
    order = [int(d) for d in (rng.permutation(rank) if chance(rng, 0.35) else range(rank))]
    still = set()
    if repeats and chance(rng, 0.35):
        all_of_them = chance(rng, 0.25)
        still = {d for d in range(rank) if all_of_them or chance(rng, 0.5)}
    padded = chance(rng, 0.35)
    step = choice(rng, (2, 3)) if chance(rng, 0.2) else 1
    strides = [0] * rank
    for d in reversed(order):
        if d in still:
            continue
        strides[d] = step
        step = step * sizes[d] + (choice(rng, (0, 0, 1, 2, 3, 5)) if padded else 0)
    if repeats and chance(rng, 0.05):
        strides = [int(s) for s in rng.integers(0, 4, rank)]  # windows that slide over each other
    for d, n in enumerate(sizes):
        if n == 1 and chance(rng, 0.3):
            strides[d] = int(rng.integers(0, 9))  # leads nowhere
        if signed and chance(rng, 0.3):
            strides[d] = -strides[d]
    return Layout(sizes, tuple(strides))
