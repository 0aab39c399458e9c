"""What is known of a node before it runs: sizes, types and contents of its inputs, its attributes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.ir.dims import Dim, may_be_zero
from anydml.ir.graph import Constant, Node, TensorType, Value
from anydml.onnx.ops.opinfo import NodeView


class Known(NodeView):
    """A node as the conditions of quirks see it."""

    def __init__(self, node: Node, constants: Mapping[Value, Constant]) -> None:
        super().__init__(node)
        self._node, self._constants = node, constants

    def value(self, k: int) -> Value | None:
        """Input k; None if it is left out."""
        return self._node.inputs[k] if k < len(self._node.inputs) else None

    def sizes(self, k: int) -> tuple[Dim, ...] | None:
        """The sizes of input k as far as known; None if it is left out, or of unknown rank."""
        value = self.value(k)
        return None if value is None else value.sizes

    def size(self, k: int, axis: int) -> Dim:
        """One size of input k; None where that is not known. 1 for an axis that it does not have."""
        sizes = self.sizes(k)
        if sizes is None:
            return None
        return sizes[axis] if -len(sizes) <= axis < len(sizes) else 1

    def rank(self, k: int) -> int | None:
        sizes = self.sizes(k)
        return None if sizes is None else len(sizes)

    def dtype(self, k: int = 0) -> str | None:
        value = self.value(k)
        return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None

    def content(self, k: int) -> NDArray[Any] | None:
        """The content of input k, if it is a constant."""
        value = self.value(k)
        constant = None if value is None else self._constants.get(value)
        content = None if constant is None else constant.content
        return content if isinstance(content, np.ndarray) else None

    def empty(self, *inputs: int) -> bool:
        """Whether one of these inputs (or of all) is known to have no elements."""
        return any(0 in (self.sizes(k) or ()) for k in inputs or range(len(self._node.inputs)))

    def may_be_empty(self, k: int, first: int = 0, last: int | None = None) -> bool:
        """Whether one of these axes of input k may be empty."""
        sizes = self.sizes(k)
        return self.value(k) is not None and (sizes is None or any(map(may_be_zero, sizes[first:last])))

    def mode(self, name: str) -> str:
        """An attribute that is a word; "" where it is none."""
        found = self.attribute(name)
        return found.decode(errors="replace") if isinstance(found, bytes) else ""


def both_zero(a: Dim, b: Dim) -> bool:
    """Whether an axis may be empty of which two inputs tell the size."""
    known = [n for n in (a, b) if isinstance(n, int)]
    return 0 in known if known else may_be_zero(a) and may_be_zero(b)
