"""ONNX nodes under construction, their edges by name.

o = OnnxNodes()
y = o("Add", "x", o.constant(np.float32(1)))        ->    y = Add(x, constant0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anydml.onnx.arrays import from_array
from anydml.onnx.protos import NodeProto, TensorProto, make_node
from anydml.onnx.types import CODES
from anydml.ops.dtypes import BOOL, ScalarType

OPSET = 21
"""The newest that onnxruntime's DirectML provider knows in part; everything that is needed is in it."""
IR_VERSION = 10


class OnnxNodes:
    """Nodes in the order in which they were added, and constants."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.prefix = ""
        """Before the names of new edges."""
        self.taken: set[str] = set()
        """Names that edges have already, and not by us."""
        self._known: dict[tuple[Any, ...], str] = {}
        self._counts: dict[str, int] = {}

    def __call__(
        self, op: str, *inputs: str | None, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """A node; its output's name, or a tuple of them. Attributes that are None are left out."""
        names = [self.fresh(op.lower()) for _ in range(outputs)]
        given = [x or "" for x in inputs]
        while given and not given[-1]:
            given.pop()
        kept = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(make_node(op, given, names, domain=domain, **kept))
        return names[0] if outputs == 1 else tuple(names)

    def fresh(self, word: str) -> str:
        """A name that nothing has."""
        word = self.prefix + word
        while True:
            count = self._counts[word] = self._counts.get(word, 0) + 1
            if f"{word}_{count}" not in self.taken:
                return f"{word}_{count}"

    def constant(self, content: Any, dtype: Any = None) -> str:
        """A constant: equal ones are one."""
        array = np.asarray(content, dtype)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.fresh("constant")
            self.constants.append(from_array(array, self._known[key]))
        return self._known[key]

    def integers(self, values: Sequence[int]) -> str:
        """What ONNX calls a shape, or axes."""
        return self.constant(np.array(values, np.int64))

    def cast(self, x: str, dtype: ScalarType) -> str:
        return str(self("Cast", x, to=code_of(dtype)))

    def reshape(self, x: str, sizes: Sequence[int]) -> str:
        return str(self("Reshape", x, self.integers(sizes)))

    def transpose(self, x: str, order: Sequence[int]) -> str:
        return str(self("Transpose", x, perm=list(order)))

    def take(self, x: str, indices: Any, axis: int) -> str:
        """What lies at constant indices along an axis."""
        return str(self("Gather", x, self.constant(indices, np.int64), axis=axis))

    def slice(self, x: str, axis: int, start: int, end: int) -> str:
        """What lies from `start` to before `end` along an axis."""
        return str(self("Slice", x, *(self.integers([n]) for n in (start, end, axis))))

    def pad(self, x: str, starts: Sequence[int], ends: Sequence[int], value: Any, dtype: Any) -> str:
        """A constant around a tensor; negative numbers cut something off it."""
        if not any((*starts, *ends)):
            return x
        return str(self("Pad", x, self.integers([*starts, *ends]), self.constant(value, dtype)))

    def zeros(self, sizes: Sequence[int], dtype: Any) -> str:
        value = from_array(np.zeros(1, dtype))
        return str(self("ConstantOfShape", self.integers(sizes), value=value))

    def reduce(self, op: str, x: str, axes: Sequence[int], rank: int) -> str:
        """A reduction that leaves sizes of 1. ONNX takes no axes for all: a new one stands for none."""
        if axes:
            return str(self(op, x, self.integers(sorted(axes)), keepdims=1))
        behind = self.integers([rank])
        return str(self(op, self("Unsqueeze", x, behind), behind, keepdims=0))


def code_of(dtype: ScalarType) -> int:
    return int(TensorProto.BOOL) if dtype is BOOL else CODES[dtype.label]
