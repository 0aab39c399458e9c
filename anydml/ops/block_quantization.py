"""Operators that quantize by scales that they find, or that hold for blocks of elements, one definition each.

Elements of 4 bits stand in arrays of bytes, one in each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anydml.errors import InvalidInput, Problem
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOAT32, FLOATS_UP_TO_32_BIT, IN_ARRAYS, INT4, INT8, UINT4, UINT8
from anydml.ops.enums import QuantizationType, TensorDataType
from anydml.ops.families import FL_4_0, FL_6_3
from anydml.ops.opdef import at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds
from anydml.ops.shapes import said

RANGES: dict[TensorDataType, tuple[int, int]] = {
    UINT8: (0, 255),
    INT8: (-128, 127),
    UINT4: (0, 15),
    INT4: (-8, 7),
}


def _to_integers(x: Array, dtype: TensorDataType) -> Array:
    """Whole numbers limited to a type's range; NaN becomes 0. Changes x."""
    np.clip(x, *RANGES[dtype], out=x)
    x[np.isnan(x)] = 0
    return x.astype(IN_ARRAYS[dtype])


# ---- a scale for all -----------------------------------------------------------------------------------


def scale_and_zero_point(c: Call) -> tuple[Array, Array]:
    """Of all that is quantized, as tensors of one element."""
    least, most = RANGES[c.types["output"]]
    low, high = np.minimum(c.input.min(), np.float32(0)), np.maximum(c.input.max(), np.float32(0))
    scale = (high - low) / np.float32(most - least) if high != low else np.float32(1)
    zero_point = _to_integers(np.rint(np.atleast_1d(np.float32(least) - low / scale)), c.types["output"])
    one = (1,) * c.input.ndim
    return np.full(one, scale), zero_point.reshape(one)


def _dynamic(c: Call) -> tuple[Array, Array, Array]:
    scale, zero_point = scale_and_zero_point(c)
    quantized = np.rint(c.input / scale)
    quantized += zero_point.astype(np.float32)
    return _to_integers(quantized, c.types["output"]), scale, zero_point


_ONE = said("one element, as many dimensions as input")

DYNAMIC_QUANTIZE_LINEAR = of_tensors(
    name="DYNAMIC_QUANTIZE_LINEAR",
    doc="Output is the input quantized, by a scale and a zero point that make the most of its type.",
    text="low, high = min(input, 0), max(input, 0); output_scale = (high - low) / (most - least); "
    "output_zero_point = clamp(round(least - low / output_scale)); "
    "output = clamp(round(input / output_scale) + output_zero_point)",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="Q", sizes="S"),
        out("OutputScaleTensor", dtype="C"),
        out("OutputZeroPointTensor", dtype="Q"),
    ),
    levels={FL_4_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, Q=(UINT8, INT8), C=FLOAT32)},
    sizes=lambda c: (None, (1,) * c.input.ndim, (1,) * c.input.ndim),
    shapes={"input": "...", "output": "...", "output_scale": _ONE, "output_zero_point": _ONE},
    compute=_dynamic,
    example=example([-63.75, 0, 1, 63.75], ([0, 128, 130, 255], [0.5], [128]), types={"Q": UINT8}),
    notes="Rounding is to the nearest, halves to even. Open in DirectML's documents, and as in ONNX here: 0 "
    "is always in the range, the zero point is rounded, and the scale of 0s alone is 1.",
)

# ---- scales for blocks ---------------------------------------------------------------------------------


_PARAMETERS = inp("QuantizationTensors", dtype=("T", "Q"), count="QuantizationTensorCount")
"""The scale, and the zero point, which has the type of what is quantized."""
_COUNTS = {QuantizationType.SCALE: 1, QuantizationType.SCALE_ZERO_POINT: 2}


def blocks_of(sizes: Sequence[int], counts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Sizes with blocks as dimensions of their own, of which there are so many, and those of what each block
    has one of. Sizes of 1 are left out."""
    both = [(size, own) for n, m in zip(sizes, counts, strict=True) for size, own in ((m, m), (n // m, 1))]
    both = [pair for pair in both if pair[0] > 1] or [(1, 1)]
    return [size for size, _ in both], [own for _, own in both]


def _parts(c: Call) -> tuple[Array, Array, Array | None]:
    """The input with its blocks as dimensions, and the scale and the zero point as they broadcast to it."""
    blocks, ones = blocks_of(c.input.shape, c.quantizations[0].shape)
    scale, *rest = (p.reshape(ones) for p in c.quantizations)
    return c.input.reshape(blocks), scale, rest[0].astype(np.float32) if rest else None


def check_zero_points(c: Call, zero_point: Array) -> None:
    """Those of 4 bits stand in bytes, which hold more."""
    dtype = c.types["output"]
    least, most = RANGES[dtype]
    if not (least <= zero_point.min() and zero_point.max() <= most):
        message = f"expected zero points from {least} to {most}, as {dtype.label} has them"
        got = f"{zero_point.min():.0f} to {zero_point.max():.0f}"
        where = f"{c.operator.name}: QuantizationTensors[1]"
        raise InvalidInput(Problem(where, f"{message}, but got {got}"))


def _quantize(c: Call) -> Array:
    x, scale, zero_point = _parts(c)
    quantized = x / scale
    np.rint(quantized, out=quantized)
    dtype = c.types["output"]
    if zero_point is not None:
        check_zero_points(c, zero_point)
        quantized += zero_point
    return _to_integers(quantized, dtype).reshape(c.output.shape)


def _dequantize(c: Call) -> Array:
    x, scale, zero_point = _parts(c)
    result = x.astype(np.float32)
    if zero_point is not None:
        result -= zero_point
    result *= scale
    return result.reshape(c.output.shape)


def _blocks_fit(c: Call) -> bool:
    counts = c.quantizations[0].shape
    return len(counts) == c.input.ndim and not any(n % m for n, m in zip(c.input.shape, counts, strict=True))


_RULES = (
    holds(
        "QuantizationType SCALE with one tensor in QuantizationTensors, or SCALE_ZERO_POINT with two",
        lambda c: len(c.quantizations) == _COUNTS.get(c.quantization_type, -1),
        lambda c: f"{c.quantization_type.name} with {len(c.quantizations)}",
    ),
    holds(
        "QuantizationTensors of equal sizes",
        lambda c: len({p.shape for p in c.quantizations}) <= 1,
        lambda c: ", ".join(str(p.shape) for p in c.quantizations),
    ),
    holds(
        "QuantizationTensors whose sizes divide those of InputTensor",
        _blocks_fit,
        lambda c: f"{c.quantizations[0].shape} for {c.input.shape}",
    ),
)
_SHAPES = {"input": "...", "quantizations": said("as input, each size divided by a block's"), "output": "..."}
_SMALL = (UINT8, INT8, UINT4, INT4)
_NOTES = (
    "The documents do not say what it computes, nor what sizes and types belong together: all of this "
    "is as onnxruntime and ONNX have it. QuantizationTensors is the scale, and the zero point if "
    "there is one, which has the type of what is quantized (functions take zero points of 4 bits in "
    "bytes, as all of 4 bits). Where they have fewer elements than Input along a dimension, each is "
    "for a block, all of one size. "
)

QUANTIZE = of_tensors(
    name="QUANTIZE",
    doc="Output is Input / scale, rounded (halves to even), plus the zero point, in its type's range.",
    text="output = clamp(round(input / scale) + zero_point)",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        attr("QuantizationType", QuantizationType),
        _PARAMETERS,
        out("OutputTensor", dtype="Q", sizes="S"),
    ),
    levels={FL_6_3: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, Q=_SMALL, rules=_RULES)},
    shapes=_SHAPES,
    compute=_quantize,
    example=example(
        [1, 2.5, 100, -600],
        [[0.5, 4.0]],
        [2, 5, 25, 0],
        quantization_type="SCALE",
        types={"Q": UINT8},
    ),
    notes=_NOTES + "A scale of 0 divides as IEEE 754 has it; a NaN becomes 0.",
)

DEQUANTIZE = of_tensors(
    name="DEQUANTIZE",
    doc="Output is Input minus the zero point, times the scale.",
    text="output = (input - zero_point) * scale",
    operands=(
        inp("InputTensor", dtype="Q", sizes="S"),
        attr("QuantizationType", QuantizationType),
        _PARAMETERS,
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    levels={FL_6_3: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, Q=_SMALL, rules=_RULES)},
    shapes=_SHAPES,
    compute=_dequantize,
    example=example(
        [2, 5, 25, 0],
        [[0.5, 4.0]],
        [1, 2.5, 100, 0],
        quantization_type="SCALE",
        types={"Q": UINT8},
    ),
    notes=_NOTES + "The difference is exact.",
)
