"""Matrix products, one definition each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anydml.ops.attributes import ActivationKind
from anydml.ops.call import Array, Call, empty
from anydml.ops.dtypes import (
    FLOAT32,
    FLOATS_UP_TO_32_BIT,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT16,
    UINT32,
)
from anydml.ops.enums import MatrixTransform
from anydml.ops.families import FL_1_0, FL_2_1, FL_4_0, FL_5_2, FL_6_0, FL_6_1, FL_6_2, FUSABLE
from anydml.ops.opdef import Rule, at, attr, example, inp, of_tensors, out, snake
from anydml.ops.rules import holds
from anydml.ops.shapes import said

_FUSABLE_HERE = ActivationKind(
    (*FUSABLE, "ELEMENT_WISE_CLIP", "ACTIVATION_SOFTMAX", "ACTIVATION_SOFTMAX1"),
    (("ELEMENT_WISE_CLIP", FL_6_0), ("ACTIVATION_SOFTMAX", FL_6_1), ("ACTIVATION_SOFTMAX1", FL_6_1)),
)


def _turned(shape: tuple[int, ...], transform: MatrixTransform) -> tuple[int, ...]:
    """The sizes of a matrix as it is multiplied."""
    return (*shape[:-2], shape[-1], shape[-2]) if transform is MatrixTransform.TRANSPOSE else shape


def _gemm_sizes(c: Call) -> tuple[int, ...]:
    a, b = _turned(c.a.shape, c.trans_a), _turned(c.b.shape, c.trans_b)
    return (*a[:-1], b[-1])


def _fits(c: Call) -> bool:
    a, b = _turned(c.a.shape, c.trans_a), _turned(c.b.shape, c.trans_b)
    return len(a) == len(b) and a[:-2] == b[:-2] and a[-1] == b[-2]


def _gemm(c: Call) -> Array:
    a = np.swapaxes(c.a, -1, -2) if c.trans_a is MatrixTransform.TRANSPOSE else c.a
    b = np.swapaxes(c.b, -1, -2) if c.trans_b is MatrixTransform.TRANSPOSE else c.b
    product: Any = np.matmul(a, b, out=empty(c.output, a.dtype))
    if c.alpha != 1:
        product *= np.float32(c.alpha)
    if c.c is not None:
        product += c.c if c.beta == 1 else np.float32(c.beta) * c.c
    return product  # type: ignore[no-any-return]


_GEMM_RULES = (
    holds(
        "ATensor {[N], [C], M, K} and BTensor {[N], [C], K, N} as they are multiplied",
        _fits,
        lambda c: f"{c.a.shape} and {c.b.shape}",
    ),
)

GEMM = of_tensors(
    name="GEMM",
    doc="Output is Alpha times the matrix product of A and B, plus Beta times C, put through an activation.",
    text="output = fused_activation(alpha * trans_a(a) @ trans_b(b) + beta * c)",
    operands=(
        inp("ATensor", dtype="T"),
        inp("BTensor", dtype="T"),
        inp("CTensor", dtype="T", sizes="S", optional=FL_1_0),
        out("OutputTensor", dtype="T", sizes="S"),
        attr("TransA", MatrixTransform, MatrixTransform.NONE),
        attr("TransB", MatrixTransform, MatrixTransform.NONE),
        attr("Alpha", default=1.0),
        attr("Beta", default=1.0),
        attr("FusedActivation", _FUSABLE_HERE, None),
    ),
    levels={
        FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_GEMM_RULES),
        FL_4_0: at(rank=(2, 4), T=FLOATS_UP_TO_32_BIT, rules=_GEMM_RULES),
    },
    sizes=_gemm_sizes,
    shapes={
        "a": said("[..., M, K]; TRANSPOSE [..., K, M]"),
        "b": said("[..., K, N]; TRANSPOSE [..., N, K]"),
        "c": "... M N",
        "output": "... M N",
    },
    compute=_gemm,
    example=example([[1, 2], [3, 4]], [[5, 6], [7, 8]], [[1, 1], [0, 0]], [[20, 23], [43, 50]]),
    notes="C has the output's sizes: to repeat a row, give it strides of 0 (functions repeat it themselves).",
)

# ---- products of whole numbers ---------------------------------------------------------------------------

_BYTES = (UINT8, INT8)
_INTEGERS = (INT32, INT16, INT8, UINT32, UINT16, UINT8)
_EXACT = 2**24
"""The whole numbers up to here are float32 numbers."""
_LEAST_RUN = 64
"""Sums of fewer products than this gain nothing over float64."""


def differences(x: Array, zero_point: Array | None) -> Array:
    """x - zero_point, exactly, as floats: sums of their products are what libraries are fast at."""
    wide: Any = x.astype(np.float64 if x.dtype.itemsize == 4 else np.float32)
    if zero_point is not None:
        wide -= zero_point
    return wide  # type: ignore[no-any-return]


def exact_run(a: Array, b: Array) -> int:
    """How many products of whole numbers of `a` and `b` float32 can add up, in any order, exactly."""
    return int(_EXACT // max(_magnitude(a) * _magnitude(b), 1))


def _magnitude(x: Array) -> int:
    return max(int(x.max()), -int(x.min()))


def whole_product(a: Array, b: Array, run: int) -> Array:
    """The matrix product of whole numbers, exact up to 2^53. `run`: see `exact_run`."""
    length = a.shape[-1]
    total: Any
    if run >= length:
        total = np.matmul(a.astype(np.float32, copy=False), b.astype(np.float32, copy=False))
    elif run < _LEAST_RUN:
        total = np.matmul(a.astype(np.float64, copy=False), b.astype(np.float64, copy=False))
    else:
        total = np.matmul(a[..., :run], b[..., :run, :]).astype(np.float64)
        for k in range(run, length, run):
            total += np.matmul(a[..., k : k + run], b[..., k : k + run, :])
    return total  # type: ignore[no-any-return]


def as_integers(whole: Array) -> Array:
    """Whole numbers held in floats as integers of some type that has them all."""
    return whole.astype(np.int32 if whole.dtype == np.float32 else np.int64)


def quantized(x: Array, zero_point: Array | None, dtype: np.dtype) -> Array:
    """Numbers of float64 rounded, halves to even, moved and limited to a type's range; of NaN 0."""
    x = np.rint(x)
    if zero_point is not None:
        x += zero_point
    np.copyto(x, 0, where=np.isnan(x))
    info = np.iinfo(dtype)
    return np.clip(x, info.min, info.max, out=x)


def equal_ranks(*fields: str) -> Rule:
    """Tensors, those that are there, have as many dimensions."""
    parameters = [snake(name.removesuffix("Tensor")) for name in fields]

    def ranks(c: Call) -> list[int]:
        given = [getattr(c, name) for name in parameters]
        return [x.ndim for x in given if x is not None]

    listed = ", ".join(fields[:-1]) + f" and {fields[-1]}"
    return holds(f"equal numbers of dimensions of {listed}", lambda c: len(set(ranks(c))) <= 1, ranks)


def _one_each(field: str, form: str, fits: Callable[[Call, tuple[int, ...]], bool]) -> Rule:
    parameter = snake(field.removesuffix("Tensor"))

    def holds_there(c: Call) -> bool:
        x = getattr(c, parameter)
        return x is None or all(n == 1 for n in x.shape) or fits(c, x.shape)

    return holds(f"{field} of one element or {form}", holds_there, lambda c: getattr(c, parameter).shape)


def _along(shape: tuple[int, ...], axis: int, size: int) -> bool:
    """Whether sizes are 1 but along an axis, which a list of them has for its own."""
    return shape == (size,) or (len(shape) > 1 and shape[axis] == size == np.prod(shape))


def _for_rows(field: str) -> Rule:
    return _one_each(field, "{[1], [1], M, [1]}", lambda c, shape: _along(shape, -2, c.a.shape[-2]))


def _for_columns(field: str) -> Rule:
    return _one_each(field, "{[1], [1], [1], N}", lambda c, shape: _along(shape, -1, c.b.shape[-1]))


def _row(x: Array | None) -> Any:
    return None if x is None else x.reshape(1, -1)


def _column(x: Array | None) -> Any:
    return None if x is None else x.reshape(-1, 1)


def _integer_product(c: Call) -> Array:
    """(A - AZeroPoint) times (B - BZeroPoint), in floats."""
    a, b = differences(c.a, _column(c.a_zero_point)), differences(c.b, _row(c.b_zero_point))
    return whole_product(a, b, exact_run(a, b))


def _real_product(c: Call) -> Array:
    scale = _column(c.a_scale).astype(np.float64) * _row(c.b_scale)
    product: Array = _integer_product(c) * scale
    return product


_MATRICES = holds(
    "ATensor {[N], [C], M, K} and BTensor {[N], [C], K, N}",
    lambda c: c.a.shape[:-2] == c.b.shape[:-2] and c.a.shape[-1] == c.b.shape[-2],
    lambda c: f"{c.a.shape} and {c.b.shape}",
)
_ONE_OR_ROWS = said("one element, or [M], or [1..., M, 1]")
_ONE_OR_COLUMNS = said("one element, or [1..., N]")
_SHAPES = {
    "a": "... M K",
    "a_zero_point": _ONE_OR_ROWS,
    "b": "... K N",
    "b_zero_point": _ONE_OR_COLUMNS,
    "output": "... M N",
}
_SCALED_SHAPES = _SHAPES | {"a_scale": _ONE_OR_ROWS, "b_scale": _ONE_OR_COLUMNS}
_ZERO_POINT_RULES = (_MATRICES, _for_rows("AZeroPointTensor"), _for_columns("BZeroPointTensor"))
_SCALE_RULES = (*_ZERO_POINT_RULES, _for_rows("AScaleTensor"), _for_columns("BScaleTensor"))
_ANY = (1, 4)
_FACTORS = {"AScaleTensor": _ANY, "AZeroPointTensor": _ANY, "BScaleTensor": _ANY, "BZeroPointTensor": _ANY}

MATRIX_MULTIPLY_INTEGER = of_tensors(
    name="MATRIX_MULTIPLY_INTEGER",
    doc="Output is the matrix product of A minus AZeroPoint and B minus BZeroPoint.",
    text="output = (a - a_zero_point) @ (b - b_zero_point)",
    operands=(
        inp("ATensor", dtype="A"),
        inp("AZeroPointTensor", dtype="A", optional=FL_2_1),
        inp("BTensor", dtype="B"),
        inp("BZeroPointTensor", dtype="B", optional=FL_2_1),
        out("OutputTensor", dtype="I"),
    ),
    levels={
        FL_2_1: at(rank=(4, 4), A=_BYTES, B=_BYTES, I=INT32, rules=_ZERO_POINT_RULES),
        FL_4_0: at(
            rank=(2, 4),
            ranks={"AZeroPointTensor": _ANY},
            A=_BYTES,
            B=_BYTES,
            I=INT32,
            rules=_ZERO_POINT_RULES,
        ),
        FL_5_2: at(
            rank=(2, 4),
            ranks={"AZeroPointTensor": _ANY, "BZeroPointTensor": _ANY},
            A=_BYTES,
            B=_BYTES,
            I=INT32,
            rules=_ZERO_POINT_RULES,
        ),
    },
    shapes=_SHAPES,
    compute=lambda c: as_integers(_integer_product(c)),
    example=example(
        [[1, 2], [3, 4]], [[1], [2]], [[5, 6], [7, 8]], [[5, 6]], [[2, 2], [4, 4]], types={"A": UINT8}
    ),
    notes="Exact; a sum that INT32 cannot hold is taken modulo 2^32. A zero point that is not there is 0. "
    "There is one of it in all, one for each row of A, or one for each column of B.",
)

_QUANTIZED_RULES = (
    *_SCALE_RULES,
    _for_rows("OutputScaleTensor"),
    _for_rows("OutputZeroPointTensor"),
    equal_ranks(
        "AScaleTensor",
        "AZeroPointTensor",
        "BScaleTensor",
        "BZeroPointTensor",
        "OutputScaleTensor",
        "OutputZeroPointTensor",
    ),
)


def _quantized_product(c: Call) -> Array:
    return quantized(_real_product(c) / _column(c.output_scale), _column(c.output_zero_point), c.output.dtype)


QUANTIZED_LINEAR_MATRIX_MULTIPLY = of_tensors(
    name="QUANTIZED_LINEAR_MATRIX_MULTIPLY",
    doc="Output is the matrix product of A and B, both dequantized, quantized again.",
    text="output = clip(round((a - a_zero_point) * a_scale @ ((b - b_zero_point) * b_scale) / output_scale)"
    " + output_zero_point)",
    operands=(
        inp("ATensor", dtype="A"),
        inp("AScaleTensor", dtype="T"),
        inp("AZeroPointTensor", dtype="A", optional=FL_2_1),
        inp("BTensor", dtype="B"),
        inp("BScaleTensor", dtype="T"),
        inp("BZeroPointTensor", dtype="B", optional=FL_2_1),
        inp("OutputScaleTensor", dtype="T"),
        inp("OutputZeroPointTensor", dtype="Q", optional=FL_2_1),
        out("OutputTensor", dtype="Q"),
    ),
    levels={
        FL_2_1: at(rank=(4, 4), A=_BYTES, B=_BYTES, Q=_BYTES, T=FLOAT32, rules=_QUANTIZED_RULES),
        FL_4_0: at(
            rank=(2, 4),
            ranks=_FACTORS | {"OutputScaleTensor": _ANY, "OutputZeroPointTensor": _ANY},
            A=_BYTES,
            B=_BYTES,
            Q=_BYTES,
            T=FLOAT32,
            rules=_QUANTIZED_RULES,
        ),
    },
    shapes=_SCALED_SHAPES | {"output_scale": _ONE_OR_ROWS, "output_zero_point": _ONE_OR_ROWS},
    compute=_quantized_product,
    example=example(
        [[130, 132], [128, 129]],
        [0.5],
        [128],
        [[2, 4], [6, 8]],
        [0.25],
        None,
        [0.5],
        [10],
        [[17, 20], [12, 12]],
    ),
    notes="The sums are exact, scaled in float64 and rounded once, halves to even; a NaN (of scales of 0) "
    "becomes 0. A zero point that is not there is 0. There is one scale or zero point in all, one for each "
    "row of A and Output, or one for each column of B.",
)


def _float_product(c: Call) -> Array:
    product = _real_product(c)
    if c.bias is not None:
        product += c.bias
    return product


_TO_FLOAT_RULES = (
    *_SCALE_RULES,
    equal_ranks("AScaleTensor", "AZeroPointTensor", "BScaleTensor", "BZeroPointTensor"),
)

MATRIX_MULTIPLY_INTEGER_TO_FLOAT = of_tensors(
    name="MATRIX_MULTIPLY_INTEGER_TO_FLOAT",
    doc="Output is the matrix product of A and B, both dequantized, plus Bias.",
    text="output = (a - a_zero_point) * a_scale @ ((b - b_zero_point) * b_scale) + bias",
    operands=(
        inp("ATensor", dtype="I"),
        inp("AScaleTensor", dtype="T"),
        inp("AZeroPointTensor", dtype="I", optional=FL_6_2),
        inp("BTensor", dtype="I"),
        inp("BScaleTensor", dtype="T"),
        inp("BZeroPointTensor", dtype="I", optional=FL_6_2),
        inp("BiasTensor", dtype="T", sizes="S", optional=FL_6_2),
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    levels={
        FL_6_2: at(rank=(2, 4), ranks=_FACTORS, I=_INTEGERS, T=FLOATS_UP_TO_32_BIT, rules=_TO_FLOAT_RULES)
    },
    shapes=_SCALED_SHAPES | {"bias": "... M N"},
    compute=_float_product,
    example=example(
        [[1, 2], [3, 4]],
        [[0.5], [1]],
        [[1], [2]],
        [[5, 6], [7, 8]],
        [[2, 1]],
        [[4, 5]],
        [[0, 0], [0, 0.5]],
        [[3, 1.5], [14, 7.5]],
        types={"I": INT8},
    ),
    notes="The differences are exact and so are the sums, of 32-bit types up to 2^53; they are scaled in "
    "float64 and rounded once. There is no output scale, though DirectML's page describes one. A zero point "
    "that is not there is 0. There is one scale or zero point in all, one for each row of A, or one for each "
    "column of B.",
)
