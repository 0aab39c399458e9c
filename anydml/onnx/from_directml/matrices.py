"""Matrix products as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.onnx.from_directml.quantization import flat, limited, parameters, wide
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT64, FROM_NUMPY, INT32, ScalarType
from anydml.ops.enums import MatrixTransform


def gemm(c: Call, o: OnnxNodes) -> Any:
    def factor(name: str, tensor: Any, transform: MatrixTransform) -> str:
        if transform is MatrixTransform.NONE:
            return name
        rank = tensor.ndim
        return o.transpose(name, [*range(rank - 2), rank - 1, rank - 2])

    product = o("MatMul", factor("a", c.a, c.trans_a), factor("b", c.b, c.trans_b))
    if c.alpha != 1:
        product = o("Mul", product, o.constant(c.alpha, c.a.dtype))
    if c.c is None:
        return product
    return o("Add", product, "c" if c.beta == 1 else o("Mul", "c", o.constant(c.beta, c.a.dtype)))


_COLUMN, _ROW = (-1, 1), (1, -1)


def _difference(c: Call, o: OnnxNodes, name: str, sizes: tuple[int, int], dtype: ScalarType) -> str:
    x = o.cast(name, dtype)
    zero_point = f"{name}_zero_point"
    if getattr(c, zero_point) is None:
        return x
    return str(o("Sub", x, o.cast(o.reshape(zero_point, sizes), dtype)))


def _differences(c: Call, o: OnnxNodes, dtype: ScalarType) -> Any:
    """The product of both differences, in a type that has them all."""
    return o("MatMul", _difference(c, o, "a", _COLUMN, dtype), _difference(c, o, "b", _ROW, dtype))


def matrix_multiply_integer(c: Call, o: OnnxNodes) -> Any:
    """onnxruntime's MatMulInteger has one zero point for all rows of A."""
    if c.a_zero_point is not None and c.a_zero_point.size > 1:
        return _differences(c, o, INT32)
    a, b = flat(o, "a_zero_point", c.a_zero_point), flat(o, "b_zero_point", c.b_zero_point)
    if c.b.ndim > 2 and c.b_zero_point is not None and c.b_zero_point.size > 1:
        b = o("Expand", b, o.integers(_of_columns(c)))
    return o("MatMulInteger", "a", "b", a, b)


def _of_columns(c: Call) -> list[int]:
    """The sizes of one number for each column of B: onnxruntime wants them in each matrix of a batch."""
    sizes = c.b.shape
    return [sizes[-1]] if len(sizes) == 2 else [*sizes[:-2], 1, sizes[-1]]


def _real(c: Call, o: OnnxNodes) -> Any:
    """The product of what A and B stand for, in float64, where sums are exact."""
    if c.a.dtype.itemsize == 1:
        whole = o.cast(matrix_multiply_integer(c, o), FLOAT64)
    else:
        whole = _differences(c, o, FLOAT64)
    return o("Mul", whole, o("Mul", wide(o, "a_scale", _COLUMN), wide(o, "b_scale", _ROW)))


def matrix_multiply_integer_to_float(c: Call, o: OnnxNodes) -> Any:
    product = _real(c, o)
    if c.bias is not None:
        product = o("Add", product, o.cast("bias", FLOAT64))
    return o.cast(product, FROM_NUMPY[c.output.dtype])


def quantized_linear_matrix_multiply(c: Call, o: OnnxNodes) -> Any:
    """QLinearMatMul, where A and Output have one scale and zero point: onnxruntime has no more of them."""
    rows = (c.a_scale, c.a_zero_point, c.output_scale, c.output_zero_point)
    if all(x is None or x.size == 1 for x in rows):
        a, b = parameters(c, o, "a", c.a), parameters(c, o, "b", c.b, _of_columns(c))
        return o("QLinearMatMul", "a", *a, "b", *b, *parameters(c, o, "output", c.output))
    product = o("Div", _real(c, o), wide(o, "output_scale", _COLUMN))
    zero_point = None if c.output_zero_point is None else wide(o, "output_zero_point", _COLUMN)
    return limited(o, product, zero_point, np.dtype(c.output.dtype))
