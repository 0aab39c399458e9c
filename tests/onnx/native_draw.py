"""What nodes are drawn with: sizes, attributes, opsets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

F, I32, I64, U8, I8 = np.float32, np.int32, np.int64, np.uint8, np.int8


@dataclass
class Case:
    op: str
    opset: int
    given: list[tuple[np.ndarray, bool] | None]
    """Inputs, and whether each is fed: others are constants. None is one that is left out."""
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    tolerance: float = 2e-5
    result: Any = None
    """The type of the output, where inference has none."""

    def model(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """With an Identity behind each input that is fed, and a Neg or Not behind each output."""
        names = ["" if one is None else f"x{k}" for k, one in enumerate(self.given)]
        outputs = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, **self.attributes)
        feeds = {f"x{k}": one[0] for k, one in enumerate(self.given) if one is not None and one[1]}
        inputs = [helper.make_tensor_value_info(n, _code(a), a.shape) for n, a in feeds.items()]
        constants = [
            numpy_helper.from_array(one[0], f"x{k}")
            for k, one in enumerate(self.given)
            if one is not None and not one[1]
        ]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], "m", inputs, results, constants)
        imports = [helper.make_opsetid("", self.opset)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=8 if self.opset < 21 else 10)
        types = onnx.shape_inference.infer_shapes(made).graph.output
        for result, told in zip(made.graph.output, types, strict=True):
            known = told.type.tensor_type.elem_type
            result.type.tensor_type.elem_type = known or helper.np_dtype_to_tensor_dtype(
                np.dtype(self.result)
            )
        return made, feeds


def _code(array: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


class Draw:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def flag(self) -> bool:
        return bool(self.rng.integers(2))

    def sizes(self, low: int, high: int, largest: int = 7) -> tuple[int, ...]:
        return tuple(self.integer(1, largest) for _ in range(self.integer(low, high)))

    def array(self, sizes: tuple[int, ...], dtype: Any = F) -> np.ndarray:
        kind = np.dtype(dtype).kind
        if kind == "b":
            return np.asarray(self.rng.random(sizes) < 0.5)
        if kind in "iu":
            info = np.iinfo(dtype)
            return self.rng.integers(max(info.min, -99), min(info.max, 99) + 1, sizes).astype(dtype)
        return np.asarray(self.rng.standard_normal(sizes) * 3, dtype)

    def indices(self, sizes: tuple[int, ...], length: int, dtype: Any = None) -> np.ndarray:
        return np.asarray(self.rng.integers(-length, length, sizes), dtype or self.one_of(I32, I64))
