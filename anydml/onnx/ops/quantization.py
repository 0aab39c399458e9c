"""Numbers as integers, with a scale and a zero point, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anydml.codegen.program.refusal import NotNative
from anydml.errors import counted
from anydml.onnx.ops import meanings, product_types
from anydml.onnx.ops.convolution import NO_CHANNELS, conv_flops, convolve
from anydml.onnx.ops.directml import DirectMLForm, Shape
from anydml.onnx.ops.linalg import (
    CANNOT_BROADCAST,
    along,
    by_rows,
    centred,
    multiply,
    native_along,
    unequal_batches,
    without_zero,
)
from anydml.onnx.ops.native import Inputs, operand
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS, to_float64
from anydml.onnx.ops.shared import NOTHING_TO_SUM, axis_in, nothing_inside
from anydml.onnx.ops.speculation import convolves, if_run, multiplies, of_columns, of_filters, one_number
from anydml.onnx.ops.windows import window_too_long
from anydml.onnx.types import DTYPES, numpy_type
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT32, INT8, INT32, UINT8

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor

_RANGES = {
    **{name: (np.iinfo(name).min, np.iinfo(name).max) for name in ("uint8", "int8", "uint16", "int16")},
    "uint4": (0, 15),
    "int4": (-8, 7),
    "uint2": (0, 3),
    "int2": (-2, 1),
}
_OF_BYTES = frozenset({"uint8", "int8", "uint16", "int16"})
_SCALES = frozenset({"float32", "float16"})
_FLOATS_8 = {
    "float8_e4m3fn": 448.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2": 57344.0,
    "float8_e5m2fnuz": 57344.0,
}
"""The largest number of each."""


def _dtype(code: int) -> np.dtype[Any]:
    return numpy_type(DTYPES[code])


def _granular(node: NodeView, parameter: Array, x: Array) -> Array:
    """Scale or zero point so that it broadcasts with x: per tensor, per axis, or per block."""
    block = node.attribute("block_size") or 0
    if block < 0:
        raise ValueError(f"expected a block of at least one element, but got {block}")
    if block and parameter.ndim == x.ndim and x.ndim:
        axis = axis_in(node.int("axis"), x.ndim)
        wanted = list(x.shape)
        wanted[axis] = -(-wanted[axis] // block)
        if list(parameter.shape) != wanted:
            raise ValueError(f"expected parameters of {wanted}, but got {list(parameter.shape)}")
        return np.repeat(parameter, block, axis).take(range(x.shape[axis]), axis)
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if parameter.ndim != 1 or node.attribute("axis") is None:
        raise ValueError(f"expected one number, but got {list(parameter.shape)}")
    axis = axis_in(node.int("axis"), x.ndim)
    if parameter.size != x.shape[axis]:
        raise ValueError(f"expected {counted(x.shape[axis], 'number')}, but got {parameter.size}")
    return parameter.reshape(-1, *[1] * (x.ndim - axis - 1))


def _check_zero(scale: Array, zero: Array | None) -> None:
    if zero is not None and zero.shape != scale.shape and (zero.size, scale.size) != (1, 1):
        raise ValueError(f"expected a zero point of {list(scale.shape)}, but got {list(zero.shape)}")


# ---- to integers -------------------------------------------------------------------------------------


def _quantize(node: NodeView, x: Array, scale: Array, zero: Array | None = None) -> Array:
    target = np.dtype(np.uint8) if zero is None else zero.dtype
    code = node.attribute("output_dtype")
    if code:
        if zero is not None and _dtype(code) != target:
            raise ValueError(f"expected output_dtype {target}, but got {_dtype(code)}")
        target = _dtype(code)
    _check_zero(scale, zero)
    quotient = _quotient(node, x, _granular(node, scale, x))
    if np.isnan(quotient).any():
        raise NotFoldable("NaN, which no integer stands for")
    point = np.zeros((), np.float64) if zero is None else _granular(node, zero, x).astype(np.float64)
    if target.name in _FLOATS_8:
        return _to_float8(node, quotient, point, target)
    return _saturate(np.rint(quotient) + point, target)


def _quotient(node: NodeView, x: Array, scale: Array) -> Array:
    """In the scale's type, as float64.

    Raises:
        NotFoldable: float16 where rounding the quotient itself to float16 counts, as libraries do not.
    """
    precision = node.attribute("precision") or 0
    if scale.dtype not in FLOATS or (precision and _dtype(precision) != scale.dtype):
        raise NotFoldable(f"a division of {x.dtype} by {scale.dtype}")
    quotient: Array = x.astype(np.float32) / scale.astype(np.float32)
    if scale.dtype == np.float32:
        return quotient.astype(np.float64)
    short = quotient.astype(scale.dtype).astype(np.float64)
    if scale.dtype == np.float16 and (np.rint(short) != np.rint(quotient)).any():
        raise NotFoldable("a quotient of float16 that is rounded twice")
    return short


def _saturate(rounded: Array, target: np.dtype[Any]) -> Array:
    if target.name not in _RANGES:
        raise NotFoldable(f"quantization to {target}")
    return rounded.clip(*_RANGES[target.name]).astype(np.int32).astype(target)


def _to_float8(node: NodeView, quotient: Array, point: Array, target: np.dtype[Any]) -> Array:
    largest = _FLOATS_8[target.name]
    if point.any():
        raise NotFoldable(f"a zero point of {target}")
    if not node.int("saturate") and (np.abs(quotient) > largest).any():
        raise NotFoldable(f"beyond {target}")
    return quotient.clip(-largest, largest).astype(np.float32).astype(target)


def _dynamic(node: NodeView, x: Array) -> tuple[Array, Array, Array]:
    """All in float32, as ONNX's definition has it.

    Raises:
        NotFoldable: nothing but zeros, for which that divides by 0; NaN or infinite.
    """
    low, high = x.min(initial=0), x.max(initial=0)
    scale = np.float32((high - low) / np.float32(255))
    if not (np.isfinite(scale) and scale > 0):
        raise NotFoldable("a range of 0, or not finite")
    zero = np.rint(np.clip(-low / scale, np.float32(0), np.float32(255)))
    quotient: Array = x / scale
    return _saturate(np.rint(quotient) + zero, np.dtype(np.uint8)), np.asarray(scale), zero.astype(np.uint8)


# ---- back --------------------------------------------------------------------------------------------


def _dequantize(node: NodeView, x: Array, scale: Array, zero: Array | None = None) -> Array:
    code = node.attribute("output_dtype")
    target = _dtype(code) if code else scale.dtype
    if target != scale.dtype:
        raise NotFoldable(f"a scale of {scale.dtype} for {target}")
    _check_zero(scale, zero)
    factor = _granular(node, scale, x)
    if x.dtype.name in _FLOATS_8:
        if zero is not None and to_float64(zero.astype(np.float32)).any():
            raise NotFoldable(f"a zero point of {x.dtype}")
        wide = x.astype(np.float64)
    elif x.dtype.name in _RANGES or x.dtype == np.int32:
        wide = x.astype(np.float64)
        if zero is not None:
            if x.dtype == np.int32 and zero.any():
                raise NotFoldable("a zero point of int32")
            wide = wide - _granular(node, zero, x).astype(np.float64)
    else:
        raise NotFoldable(f"dequantization of {x.dtype}")
    if target != np.float32 and (wide.astype(target).astype(np.float64) != wide).any():
        raise NotFoldable(f"a number that {target} cannot hold")
    return np.asarray(wide.astype(np.float32) * factor.astype(np.float32)).astype(target)


# ---- in kernels and programs -------------------------------------------------------------------------


def _aligned(n: NodeView, shapes: Sequence[Shape]) -> list[Shape]:
    """Scale and zero point so that they broadcast with x."""
    x, scale, *zero = (np.broadcast_to(False, s) for s in shapes)
    _check_zero(scale, zero[0] if zero else None)
    return [x.shape, *(_granular(n, parameter, x).shape for parameter in (scale, *zero))]


def _quantized_type(n: KnownNode, given: str) -> str | None:
    """The integers that a float becomes; None in blocks, and of types of which ONNX says too little."""
    told, zero = DTYPES.get(n.attribute("output_dtype") or 0), n.dtype(2)
    target = zero or told or "uint8"
    if n.attribute("block_size") or n.attribute("precision") or n.dtype(1) != given:
        return None
    return target if target in _OF_BYTES and told in (None, target) else None


def _dequantized_type(n: KnownNode, given: str) -> str | None:
    scale, zero = n.dtype(1), n.dtype(2)
    if n.attribute("block_size") or scale not in _SCALES:
        return None
    if DTYPES.get(n.attribute("output_dtype") or 0) not in (None, scale):
        return None
    return scale if zero is None or (zero == given and given != "int32") else None


def _native_qlinear_matmul(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    one, one_scale, one_zero, two, two_scale, two_zero, scale, zero = (operand(inputs, k) for k in range(8))
    if zero.dtype not in (UINT8, INT8):
        raise NotNative(f"quantization to {zero.dtype.label}")
    if scale.count != 1 or zero.count != 1 or {t.dtype for t in (one_scale, two_scale, scale)} != {FLOAT32}:
        raise NotNative("scales for each row, or not of float32")
    sums = multiply(b, centred(b, one, one_zero, True), centred(b, two, two_zero, False))
    scales = [
        native_along(b, one_scale, one, True),
        native_along(b, two_scale, two, False),
        b.reshape(scale, ()),
    ]
    if min(len(one.sizes), len(two.sizes)) < 2 and max(s.count for s in scales) > 1:
        raise NotNative("scales of vectors")
    factor = expr.div(expr.mul(expr.read(0, FLOAT32), expr.read(1, FLOAT32)), expr.read(2, FLOAT32))
    value = expr.mul(expr.convert(expr.read(0, INT32), FLOAT32), expr.read(1, FLOAT32))
    total = expr.add(expr.rint(value), expr.convert(expr.read(2, zero.dtype), FLOAT32))
    meaning = expr.convert(meanings.least_of_nan(total), zero.dtype)
    return [b.elementwise(meaning, [sums, b.elementwise(factor, scales), b.reshape(zero, ())])]


# ---- products ----------------------------------------------------------------------------------------


def _requantize(total: Array, factor: Array, scale: Array, zero: Array) -> Array:
    """Sums of products, times the inputs' scales, as the output's integers.

    Raises:
        NotFoldable: next to a half, where it counts in which order libraries multiply the scales; per
            row or channel, of which ONNX says too little.
    """
    if scale.size != 1 or zero.size != 1:
        raise NotFoldable("scales of the output for each row")
    if (np.abs(total) >= 2.0**31).any():
        raise NotFoldable("a sum beyond int32")
    value = total * factor / to_float64(scale).reshape(())
    distance = np.abs(value - np.floor(value) - 0.5)
    limits = _RANGES[zero.dtype.name]
    inside = (np.abs(value) < limits[1] - limits[0] + 2.0) | np.isnan(value)
    if (inside & ~(distance > 1e-6 * np.abs(value) + 1e-9)).any():
        raise NotFoldable("next to a half")
    return _saturate(np.rint(value) + zero.reshape(()).astype(np.float64), zero.dtype)


def _only_bytes(*tensors: Array) -> None:
    if any(t.dtype.name not in ("uint8", "int8") for t in tensors):
        raise NotFoldable("products of other integers than bytes")


def _qlinear_matmul(
    node: NodeView,
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
) -> Array:
    _only_bytes(a, b, y_zero)
    wide = without_zero(a, a_zero, rows=True), without_zero(b, b_zero, rows=False)
    total = np.asarray(np.matmul(*(w.astype(np.float64) for w in wide)))
    if 1 in (a.ndim, b.ndim) and (a_scale.size > 1 or b_scale.size > 1):
        raise NotFoldable("scales of vectors")
    factor = along(to_float64(a_scale), a, rows=True) * along(to_float64(b_scale), b, rows=False)
    return _requantize(total, factor, y_scale, y_zero)


def _per_filter(parameter: Array, w: Array) -> Array:
    """A parameter of the filters, one or one for each, that broadcasts with them."""
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.shape != w.shape[:1]:
        raise ValueError(f"expected {counted(w.shape[0], 'parameter')}, but got {list(parameter.shape)}")
    return parameter.reshape(-1, *[1] * (w.ndim - 1))


def _integer_sums(node: NodeView, x: Array, w: Array, x_zero: Array | None, w_zero: Array | None) -> Array:
    """The convolution without the zero points, as float64, which holds the sums."""
    if x_zero is not None and x_zero.size != 1:
        raise ValueError(f"expected one zero point, but got {list(x_zero.shape)}")
    wide, filters = x.astype(np.float64), w.astype(np.float64)
    if x_zero is not None:
        wide = wide - x_zero.reshape(()).astype(np.float64)
    if w_zero is not None:
        filters = filters - _per_filter(w_zero, w).astype(np.float64)
    return convolve(node, wide, filters)


def _conv_integer(
    node: NodeView, x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None
) -> Array:
    return _integer_sums(node, x, w, x_zero, w_zero).astype(np.int64).astype(np.int32)


def _qlinear_conv(
    node: NodeView,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
) -> Array:
    total = _integer_sums(node, x, w, x_zero, w_zero)
    if x_scale.size != 1:
        raise ValueError(f"expected one scale, but got {list(x_scale.shape)}")
    ones = (1, -1, *[1] * (x.ndim - 2))
    if bias is not None:
        total = total + bias.astype(np.float64).reshape(ones)
    factor = to_float64(x_scale).reshape(()) * _per_filter(to_float64(w_scale), w).reshape(ones)
    return _requantize(total, factor, y_scale, y_zero)


def _multiplies_quantized(n: KnownNode) -> bool:
    columns = all(of_columns(n, k, 3) for k in (4, 5))
    return multiplies(n, 0, 3) and one_number(n, 1, 2, 6, 7) and columns


def _convolves_quantized(n: KnownNode) -> bool:
    filters = all(of_filters(n, k, 3) for k in (4, 5)) and of_filters(n, 8, 3, several=True)
    return convolves(n, 3) and one_number(n, 1, 2, 6, 7) and filters


def _scales_fit(n: KnownNode) -> bool:
    """One scale, or one for each place along the axis; and zero points alike."""
    x, scale, axis = n.sizes(0), n.sizes(1), n.attribute("axis")
    zeros = n.sizes(2) if n.value(2) is not None else scale
    if x is None or scale is None or zeros != scale or n.attribute("block_size"):
        return False
    if scale in ((), (1,)):
        return True
    return axis is not None and -len(x) <= axis < len(x) and scale == (x[axis],) and isinstance(x[axis], int)


OPS = (
    OpInfo(
        "QuantizeLinear",
        result=product_types.quantized,
        fold=_quantize,
        speculatable=_scales_fit,
        quirks=(
            Quirk("onnxruntime does not saturate in blocks", lambda n: bool(n.attribute("block_size"))),
            Quirk(
                "onnxruntime ends the process on an empty tensor of blocks",
                lambda n: bool(n.attribute("block_size")) and n.may_be_empty(0),
                fatal=True,
                empty=True,
            ),
        ),
        reference_error=("does not saturate", lambda n: "int" in (n.dtype(2) or "int8")),
        directml=DirectMLForm(
            meanings.QUANTIZE,
            _SCALES,
            (2, 3),
            since=10,
            result=_quantized_type,
            mixed=True,
            aligned=_aligned,
        ),
    ),
    OpInfo(
        "DequantizeLinear",
        result=product_types.dequantized,
        fold=_dequantize,
        speculatable=_scales_fit,
        directml=DirectMLForm(
            meanings.DEQUANTIZE,
            _OF_BYTES | {"int32"},
            (2, 3),
            since=10,
            result=_dequantized_type,
            mixed=True,
            aligned=_aligned,
        ),
    ),
    OpInfo(
        "DynamicQuantizeLinear", result=product_types.quantized_as_it_is, fold=_dynamic, speculatable=if_run
    ),
    OpInfo(
        "QLinearMatMul",
        result=product_types.multiplied_quantized,
        keeps_weights=True,
        native=_native_qlinear_matmul,
        fold=_qlinear_matmul,
        speculatable=_multiplies_quantized,
        quirks=(
            Quirk(NOTHING_TO_SUM, lambda n: nothing_inside(n, 0, 3), empty=True),
            Quirk(CANNOT_BROADCAST, lambda n: unequal_batches(n, 0, 3)),
            Quirk("onnxruntime takes no scale for each row", lambda n: by_rows(n, 1) or by_rows(n, 2)),
        ),
    ),
    OpInfo(
        "ConvInteger",
        result=product_types.convolved_integers,
        keeps_weights=True,
        fold=_conv_integer,
        speculatable=lambda n: convolves(n) and one_number(n, 2, 3),
        impossible=window_too_long,
        flops=conv_flops,
        quirks=(
            NO_CHANNELS,
            Quirk(
                "onnxruntime takes no zero point for each channel",
                lambda n: n.sizes(3) not in (None, (), (1,)),
            ),
        ),
        minimums={"group": 1},
        never_empty=True,
    ),
    OpInfo(
        "QLinearConv",
        result=product_types.convolved_quantized,
        keeps_weights=True,
        fold=_qlinear_conv,
        speculatable=_convolves_quantized,
        impossible=lambda n, outputs, pads: window_too_long(n, outputs, pads, weight=3),
        quirks=(
            Quirk(
                "onnxruntime ends the process, or answers with unwritten memory, where weights are empty",
                lambda n: n.may_be_empty(3, 0, 2),
                fatal=True,
                empty=True,
            ),
        ),
        reference_error=(
            "has several scales for filters of four dimensions only",
            lambda n: n.rank(3) != 4 and n.sizes(4) not in ((), (1,)),
        ),
        minimums={"group": 1},
        never_empty=True,
    ),
)
