"""What is known of an ONNX operator, in one place.

    OpInfo("Add", fold=lambda node, a, b: a + b)

`fold` is the operator in NumPy: what is known is computed with it, before a model runs, and nodes that no
library runs rightly run by it. It is right for whatever it answers, or it says `NotFoldable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from numpy.typing import NDArray
from onnx import AttributeProto, helper

from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.node_validation import schema_of

Array = NDArray[Any]
Content = Array | list[Any] | None
"""A tensor, a sequence, or an optional without content."""


class NotFoldable(Exception):
    """The result is not defined, not portable between processors, or of a case that no rule covers."""


class NodeFailed(Exception):
    """The node fails on these inputs: whoever runs it must say so."""


class NodeView:
    """A node as rules see it: its opset, its attributes with the schema's defaults, its outputs' number."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.op, OnnxOp)
        self.op: OnnxOp = node.op
        self.version = node.op.version
        self.outputs = tuple(v is not None for v in node.outputs)
        """For each output whether somebody wants it."""
        self._attributes = node.attributes
        self._defaults = _defaults(node.op)

    def attribute(self, name: str) -> Any:
        """The value, the schema's default, or None where there is none."""
        given = self._attributes.get(name)
        return self._defaults.get(name) if given is None else helper.get_attribute_value(given)

    def int(self, name: str) -> int:
        """An integer that is there, or has a default."""
        found = self.attribute(name)
        if not isinstance(found, int):
            raise NotFoldable(f"no attribute {name}")
        return found

    def float(self, name: str) -> float:
        found = self.attribute(name)
        if not isinstance(found, float):
            raise NotFoldable(f"no attribute {name}")
        return found

    def text(self, name: str) -> str:
        found = self.attribute(name)
        if not isinstance(found, bytes):
            raise NotFoldable(f"no attribute {name}")
        return found.decode()

    def ints(self, name: str) -> list[Any] | None:
        """A list of integers; None where it is not given and has no default."""
        found = self.attribute(name)
        return None if found is None else list(found)


@cache
def _defaults(op: OnnxOp) -> dict[str, Any]:
    schema = schema_of(op)
    attributes = {} if schema is None else schema.attributes
    return {
        name: helper.get_attribute_value(a.default_value)
        for name, a in attributes.items()
        if a.default_value.type != AttributeProto.UNDEFINED
    }


Fold = Callable[..., Content | Sequence[Content]]
"""fold(node: NodeView, *inputs: Content): inputs that are left out are None, those left out at the end may
be missing. One output is answered with as it is, several as a tuple."""


@dataclass(frozen=True)
class OpInfo:
    """An operator of ONNX's own domain, at every opset."""

    name: str
    fold: Fold | None = None
    """The operator in NumPy. Raises NotFoldable; ValueError and IndexError mean that the node fails."""
