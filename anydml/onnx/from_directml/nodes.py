"""ONNX nodes under construction, their edges by name.

o = OnnxNodes()
y = o("Add", "x", o.constant(np.float32(1)))        ->    y = Add(x, constant0)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

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
        self.nodes.append(helper.make_node(op, given, names, domain=domain, **kept))
        return names[0] if outputs == 1 else tuple(names)

    def fresh(self, word: str) -> str:
        """A name that nothing has."""
        word = self.prefix + word
        count = self._counts[word] = self._counts.get(word, 0) + 1
        return f"{word}_{count}"

    def constant(self, content: Any, dtype: Any = None) -> str:
        """A constant: equal ones are one."""
        array = np.asarray(content, dtype)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = self.fresh("constant")
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def integers(self, values: Sequence[int]) -> str:
        """What ONNX calls a shape, or axes."""
        return self.constant(np.array(values, np.int64))

    def cast(self, x: str, dtype: ScalarType) -> str:
        return self("Cast", x, to=code_of(dtype))  # type: ignore[no-any-return]

    def reshape(self, x: str, sizes: Sequence[int]) -> str:
        return self("Reshape", x, self.integers(sizes))  # type: ignore[no-any-return]


def code_of(dtype: ScalarType) -> int:
    return int(TensorProto.BOOL) if dtype is BOOL else CODES[dtype.label]


Array = NDArray[Any]
