"""Quantization by kernels: by a scale that is found first, or by those of blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydml.codegen.kernel import group
from anydml.ops.block_quantization import RANGES, blocks_of, check_zero_points, scale_and_zero_point
from anydml.ops.call import Array, Call, Implementation, empty
from anydml.ops.dtypes import FLOAT32, IN_ARRAYS, INT4, INT8, UINT4, UINT8
from anydml.ops.elementary import at_least, at_most
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, add, convert, div, is_nan, mul, read, rint, select, sub
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import RepeatedLaunch, not_alone, packed

QUANTIZING = ("DYNAMIC_QUANTIZE_LINEAR", "QUANTIZE", "DEQUANTIZE")
_IN_BYTES = {UINT4: UINT8, INT4: INT8}


def quantizing_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of an operator by a kernel; None where its definition is as good."""
    if operator.name == "DYNAMIC_QUANTIZE_LINEAR":
        return _dynamic(tensors, threads)
    return _by_blocks(operator, tensors, threads)


def _dynamic(tensors: Mapping[str, TensorDesc], threads: int | None) -> Implementation:
    dtype = tensors["OutputTensor"].data_type
    launch = RepeatedLaunch(group((FLOAT32, FLOAT32, dtype), (_quantized(dtype, dtype, True),)), threads)

    def compute(c: Call) -> tuple[Array, Array, Array]:
        scale, zero_point = scale_and_zero_point(c)
        result = empty(c.output, IN_ARRAYS[dtype])
        launch([c.input, scale, zero_point, result])
        return result, scale, zero_point

    return compute


def _by_blocks(
    operator: Operator, tensors: Mapping[str, TensorDesc], threads: int | None
) -> Implementation | None:
    """Blocks are dimensions of their own, along which scales and zero points are repeated."""
    if any(0 in t.sizes for t in tensors.values()):
        return None
    quantizes, zero = operator.name == "QUANTIZE", "QuantizationTensors[1]" in tensors
    integers = tensors["OutputTensor" if quantizes else "InputTensor"].data_type
    kind = _IN_BYTES.get(integers, integers)
    types = (FLOAT32 if quantizes else kind, FLOAT32, *([kind] if zero else []))
    meaning = (_quantized if quantizes else _dequantized)(integers, kind, zero)
    launch = RepeatedLaunch(group(types, (meaning,)), threads)
    blocks, own = blocks_of(tensors["InputTensor"].sizes, tensors["QuantizationTensors[0]"].sizes)
    checked = quantizes and zero and kind is not integers

    def compute(c: Call) -> Array:
        x, *parameters = (packed(y, threads) for y in (c.input, *c.quantizations))
        if checked:
            not_alone()
            check_zero_points(c, parameters[1])
        result = empty(c.output, IN_ARRAYS[kind if quantizes else FLOAT32])
        launch.alone([x.reshape(blocks), *(p.reshape(own) for p in parameters), result.reshape(blocks)])
        return result

    return compute


def _quantized(integers: TensorDataType, kind: TensorDataType, zero: bool) -> Expr:
    """Of FLOAT32, as which FLOAT16 is handed on."""
    whole = rint(div(read(0, FLOAT32), read(1, FLOAT32)))
    if zero:
        whole = add(whole, convert(read(2, kind), FLOAT32))
    if kind is not integers:
        least, most = map(float, RANGES[integers])
        whole = select(is_nan(whole), 0.0, at_most(at_least(whole, least), most))
    return convert(whole, kind)  # which stays in its range, and makes 0 of NaN


def _dequantized(integers: TensorDataType, kind: TensorDataType, zero: bool) -> Expr:
    x = convert(read(0, kind), FLOAT32)
    return mul(sub(x, convert(read(2, kind), FLOAT32)) if zero else x, read(1, FLOAT32))
