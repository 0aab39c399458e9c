"""ONNX operators as DirectML operators: what an `OpInfo` says of that.

Add of float32    is    ELEMENT_WISE_ADD
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from anydml.ops.opdef import Operator

if TYPE_CHECKING:
    from anydml.onnx.ops.opinfo import NodeView

Attributes = dict[str, Any]
FLOAT = frozenset({"float32"})
HALF_OR_FLOAT = frozenset({"float32", "float16"})
SIGNED = frozenset("float32 int8 int16 int32 int64".split())
NUMBERS = SIGNED | frozenset("uint8 uint16 uint32 uint64".split())
BOOL = frozenset({"bool"})
MOVED = NUMBERS | BOOL | frozenset("float16 float64 bfloat16".split())
"""What is moved by its bits."""


@dataclass(frozen=True)
class DirectMLForm:
    """The DirectML operator that computes what an ONNX operator does, and for which nodes."""

    operator: Operator
    types: frozenset[str] = FLOAT
    inputs: tuple[int, ...] = (1,)
    """How many the node may have."""
    attributes: Callable[[NodeView], Attributes | None] = lambda node: {}
    """The operator's attributes; None where it has no such meaning."""
    since: int = 7
    """Before opset 7, operators broadcast by an attribute."""
    first: int = 0
    """The first input that the types are about; before it stand conditions."""


def no_attributes(node: NodeView) -> Attributes | None:
    return None if node.given else {}


def float_attributes(node: NodeView, **names: str) -> Attributes | None:
    """Attributes that are floats: ONNX's name -> DirectML's."""
    return {names[n]: node.float(n) for n in names} if node.given <= set(names) else None


unary = partial(DirectMLForm, attributes=no_attributes)
binary = partial(DirectMLForm, inputs=(2,), attributes=no_attributes)
