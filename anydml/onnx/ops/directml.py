"""ONNX operators as DirectML operators: what an `OpInfo` says of that.

Add of float32    is    ELEMENT_WISE_ADD
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from anydml.dataclass import dataclass
from anydml.ops.opdef import Operator

if TYPE_CHECKING:
    from anydml.onnx.ops.opinfo import KnownNode, NodeView

Attributes = dict[str, Any]
Shape = tuple[int, ...]
HALF_OR_FLOAT = frozenset({"float32", "float16", "bfloat16"})
"""float16 and bfloat16 are computed in float32, and rounded after each operator."""
FLOATING = HALF_OR_FLOAT | {"float64"}
"""Of arithmetic, which is rounded once."""
UNSIGNED = frozenset("uint8 uint16 uint32 uint64".split())
SIGNED = FLOATING | frozenset("int8 int16 int32 int64".split())
NUMBERS = SIGNED | UNSIGNED
DOUBLE = FLOATING - HALF_OR_FLOAT
INTEGERS = NUMBERS - FLOATING
BOOL = frozenset({"bool"})
MOVED = NUMBERS | BOOL


@dataclass(frozen=True)
class DirectMLForm:
    """The DirectML operator that computes what an ONNX operator does, and for which nodes."""

    operator: Operator
    types: frozenset[str] = HALF_OR_FLOAT
    inputs: tuple[int, ...] = (1,)
    """How many the node may have."""
    attributes: Callable[[KnownNode], Attributes | None] = lambda node: {}
    """The operator's attributes; None where it has no such meaning."""
    left_out: frozenset[int] = frozenset()
    """The inputs, by number, that are left out of it."""
    since: int = 7
    """Before opset 7, operators broadcast by an attribute."""
    first: int = 0
    """The first input that the types are about; before it stand conditions."""
    result: Callable[[KnownNode, str], str | None] = lambda node, dtype: dtype
    """The ONNX type of what it computes, by the inputs'; None where it has no such meaning. What the operator
    says is of type B, is a bool."""
    moves: bool = False
    """Whether it moves elements, and does not look at them."""
    mixed: bool = False
    """Whether inputs may be of several types, of which `result` judges."""
    known: Callable[[KnownNode], bool] = lambda node: True
    """Whether it has this meaning for what is known of its inputs."""
    aligned: Callable[[NodeView, Sequence[Shape]], Sequence[Shape]] = lambda node, shapes: shapes
    """(node, shapes of the inputs) -> the shapes in which they broadcast. Raises ValueError."""


def no_attributes(node: NodeView) -> Attributes | None:
    return None if node.given else {}


def float_attributes(node: NodeView, **names: str) -> Attributes | None:
    """Attributes that are floats: ONNX's name -> DirectML's."""
    return {names[n]: node.float(n) for n in names} if node.given <= set(names) else None


def one_attribute(name: str, ours: str) -> Callable[[KnownNode], Attributes | None]:
    """A float attribute that is called `name` in ONNX, and `ours` in DirectML."""
    return lambda node: float_attributes(node, **{name: ours})


unary = partial(DirectMLForm, attributes=no_attributes)
binary = partial(DirectMLForm, inputs=(2,), attributes=no_attributes)
