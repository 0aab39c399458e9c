"""Normalizations by a variance of their own as operators.

%y = MeanVarianceNormalization(%x)   ->   %y = (%x - mean) / (sqrt(mean of (%x - mean)^2) + 1e-9)

onnxruntime's own divides 0 by 0 where there is no variance. The mean is one of FLOAT64, for that of the same
number everywhere to be that number.

%y, %m, %v = BatchNormalization(%x, %scale, %bias, %mean, %variance) {training_mode}
    ->   %y = (%x - mean) / sqrt(variance + epsilon) * %scale + %bias, %m, %v = what runs on of both

onnxruntime's own writes these into the model's weights where nobody else reads them, so that each run begins
with other ones.
"""

from __future__ import annotations

from anydml.ir.graph import Node, TensorType, Value
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.serde.parts import PartWriter, part

EPSILON = 1e-9
"""As ONNX has it, beside the standard deviation."""


def right_normalization(node: Node) -> list[Node]:
    """The node, or what stands for it."""
    if node.is_onnx("BatchNormalization"):
        return _right_training(node)
    if not node.is_onnx("MeanVarianceNormalization"):
        return [node]
    (x,), axes = node.reads, NodeView(node).ints("axes")
    type = x.type
    if not axes or not isinstance(type, TensorType) or type.dtype not in ("float32", "float64"):
        return [node]
    w, dtype = PartWriter(node), type.dtype
    wide = x if dtype == "float64" else w.cast("wide", x, "float64")
    mean = w.cast("mean", _mean(w, node, wide, "mean~wide", "float64", axes), dtype)
    apart, variance = _apart(w, node, x, mean, dtype, axes)
    deviation = w.made("Sqrt", "deviation", variance, dtype=dtype)
    divisor = w.made("Add", "divisor", deviation, w.number("epsilon", EPSILON, dtype), dtype=dtype)
    return [*w.nodes, part(node, "Div", (apart, divisor), w.output)]


def _mean(w: PartWriter, node: Node, of: Value, word: str, dtype: str, axes: list[int]) -> Value:
    if node.op.version < 18:
        return w.made("ReduceMean", word, of, dtype=dtype, axes=axes)
    return w.made("ReduceMean", word, of, w.integers(f"{word}~axes", axes), dtype=dtype)


def _apart(
    w: PartWriter, node: Node, x: Value, mean: Value, dtype: str, axes: list[int]
) -> tuple[Value, Value]:
    """What x has beyond its mean, and the variance."""
    apart = w.made("Sub", "apart", x, mean, dtype=dtype)
    squares = w.made("Mul", "squares", apart, apart, dtype=dtype)
    return apart, _mean(w, node, squares, "variance", dtype, axes)


def _right_training(node: Node) -> list[Node]:
    """BatchNormalization that finds its mean and variance: the population's."""
    n, (x, *parameters) = NodeView(node), node.reads
    if not n.attribute("training_mode") or not isinstance(x.type, TensorType) or x.type.sizes is None:
        return [node]
    dtype, rank = x.type.dtype, len(x.type.sizes)
    same = all(isinstance(p.type, TensorType) and p.type.dtype == dtype for p in parameters)
    if rank < 2 or dtype not in ("float32", "float64") or not same:
        return [node]
    w = PartWriter(node)
    axes, channels = [0, *range(2, rank)], w.integers("channels", [1, -1, *[1] * (rank - 2)])
    scale, bias, *running = (
        w.made("Reshape", f"parameter{k}", p, channels, dtype=dtype) for k, p in enumerate(parameters)
    )
    mean = _mean(w, node, x, "mean", dtype, axes)
    apart, variance = _apart(w, node, x, mean, dtype, axes)
    spread = w.made("Add", "spread", variance, w.number("epsilon", n.float("epsilon"), dtype), dtype=dtype)
    deviation = w.made("Sqrt", "deviation", spread, dtype=dtype)
    factor = w.made("Div", "factor", scale, deviation, dtype=dtype)
    y, *others = node.outputs
    if y is not None:
        w.nodes.append(part(node, "Add", (w.made("Mul", "scaled", apart, factor, dtype=dtype), bias), y))
    momentum, flat = n.float("momentum"), w.integers("flat", [-1])
    shares = [w.number(word, v, dtype) for word, v in (("old", momentum), ("new", 1 - momentum))]
    for k, (output, old, new) in enumerate(zip(others, running, (mean, variance), strict=False)):
        if output is not None:
            parts = [
                w.made("Mul", f"{word}{k}", of, share, dtype=dtype)
                for word, of, share in zip(("old", "new"), (old, new), shares, strict=True)
            ]
            both = w.made("Add", f"running{k}", *parts, dtype=dtype)
            w.nodes.append(part(node, "Reshape", (both, flat), output))
    return w.nodes
