"""MeanVarianceNormalization as operators, which make 0 of what has no variance.

%y = MeanVarianceNormalization(%x)   ->   %y = (%x - mean) / (sqrt(mean of (%x - mean)^2) + 1e-9)

onnxruntime's own divides 0 by 0 there. The mean is one of FLOAT64, for that of the same number everywhere to
be that number.
"""

from __future__ import annotations

from anydml.ir.graph import Node, TensorType, Value
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.serde.parts import PartWriter, part

EPSILON = 1e-9
"""As ONNX has it, beside the standard deviation."""


def right_normalization(node: Node) -> list[Node]:
    """The node, or what stands for it."""
    if not node.is_onnx("MeanVarianceNormalization"):
        return [node]
    (x,), axes = node.reads, NodeView(node).ints("axes")
    type = x.type
    if not axes or not isinstance(type, TensorType) or type.dtype not in ("float32", "float64"):
        return [node]
    w, dtype = PartWriter(node), type.dtype

    def mean(of: Value, word: str, dtype: str) -> Value:
        if node.op.version < 18:
            return w.made("ReduceMean", word, of, dtype=dtype, axes=axes)
        return w.made("ReduceMean", word, of, w.integers(f"{word}~axes", axes), dtype=dtype)

    wide = mean(x if dtype == "float64" else w.cast("wide", x, "float64"), "mean~wide", "float64")
    apart = w.made("Sub", "apart", x, w.cast("mean", wide, dtype), dtype=dtype)
    variance = mean(w.made("Mul", "squares", apart, apart, dtype=dtype), "variance", dtype)
    deviation = w.made("Sqrt", "deviation", variance, dtype=dtype)
    divisor = w.made("Add", "divisor", deviation, w.number("epsilon", EPSILON, dtype), dtype=dtype)
    return [*w.nodes, part(node, "Div", (apart, divisor), w.output)]
