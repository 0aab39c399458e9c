"""What is written in the place of a node that a library computes otherwise than ONNX says."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.ir.graph import Node, OnnxOp, TensorType, Value
from anydml.onnx.arrays import from_array
from anydml.onnx.protos import make_attribute
from anydml.onnx.types import CODES


class PartWriter:
    """What stands for a node, one after the other."""

    def __init__(self, root: Node) -> None:
        self.nodes: list[Node] = []
        self._root = root
        self.output = root.writes[0]

    def value(self, word: str, dtype: str) -> Value:
        return Value(f"{self.output.name}~{word}", TensorType(dtype))

    def made(self, op: str, word: str, *inputs: Value, dtype: str = "int64", **attributes: Any) -> Value:
        output = self.value(word, dtype)
        self.nodes.append(part(self._root, op, inputs, output, **attributes))
        return output

    def cast(self, word: str, x: Value, dtype: str) -> Value:
        return self.made("Cast", word, x, dtype=dtype, to=CODES[dtype])

    def integers(self, word: str, content: int | list[int], dtype: str = "int64") -> Value:
        return self._constant(word, content, dtype)

    def number(self, word: str, content: float, dtype: str) -> Value:
        return self._constant(word, content, dtype)

    def _constant(self, word: str, content: object, dtype: str) -> Value:
        tensor = from_array(np.array(content, dtype))
        return self.made("Constant", word, dtype=dtype, value=tensor)


def part(root: Node, operator: str, inputs: tuple[Value, ...], output: Value, **attributes: Any) -> Node:
    given = {n: make_attribute(n, value) for n, value in attributes.items()}
    return Node(OnnxOp("", operator, root.op.version), inputs, (output,), given, root.name, root.path)
