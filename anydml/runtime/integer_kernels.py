"""Products of 8-bit integers by kernels, with scales on the way out.

sums of products         exact, modulo 2^32: `integer_products`, `integer_convolutions`
scaled, moved, rounded   in FLOAT64, as the definitions say
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.codegen.matrix import WIDTH
from anydml.ops.call import Call, empty
from anydml.ops.dtypes import FLOAT32, FLOAT64, INT32, NUMPY
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import (
    Expr,
    absolute,
    add,
    and_,
    convert,
    div,
    ge,
    gt,
    is_nan,
    lt,
    maximum,
    minimum,
    mul,
    not_,
    or_,
    read,
    rint,
    select,
    select_lazy,
    sub,
    xor,
)
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.integer_convolutions import sums_of_convolutions
from anydml.runtime.integer_products import (
    BYTES,
    CHANNEL,
    COLUMN,
    ONE,
    ROW,
    WHOLE,
    along,
    sums_of_matrices,
)
from anydml.runtime.launch import Array, RepeatedLaunch, scratch
from anydml.runtime.matrix_kernels import MAX_BYTES

MATRICES = "MATRIX_MULTIPLY_INTEGER", "MATRIX_MULTIPLY_INTEGER_TO_FLOAT", "QUANTIZED_LINEAR_MATRIX_MULTIPLY"
MAX_COLUMNS_BYTES = 1 << 26
"""Of what windows see, which is in memory at once."""
CONVOLUTIONS = ("CONVOLUTION_INTEGER", "QUANTIZED_LINEAR_CONVOLUTION")
MAX_EXACT_PRODUCTS = (2**31 - 1) // 255**2
"""Products whose sum INT32 holds whatever they are: beyond, results that are scaled sums would be others."""


def integer_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Callable[[Call], Array] | None:
    """What computes a `Call` of products of 8-bit integers by kernels; None where its definition does."""
    one, other = ("ATensor", "BTensor") if operator.name in MATRICES else ("InputTensor", "FilterTensor")
    sizes = (tensors[name].sizes for name in (one, other, "OutputTensor"))
    made = tensors["OutputTensor"]
    typed = all(tensors[name].data_type in BYTES for name in (one, other))
    if not typed or made.data_type not in (INT32, FLOAT32, *BYTES) or 0 in (n for s in sizes for n in s):
        return None
    matrices = operator.name in MATRICES
    depth = tensors["ATensor"].sizes[-1] if matrices else prod(tensors["FilterTensor"].sizes[1:])
    if made.data_type is not INT32 and depth > MAX_EXACT_PRODUCTS:
        return None
    end = _End(operator, tensors, threads)
    if matrices:
        large = made.sizes[-1] > 1 and made.sizes[-2] * depth * WIDTH // 2 > MAX_BYTES
        return None if large else partial(end, sums=sums_of_matrices(tensors, threads))
    if not has_room(tensors):
        return None
    return partial(end, sums=sums_of_convolutions(tensors, attributes, threads))


def has_room(tensors: Mapping[str, TensorDesc]) -> bool:
    """Whether what the windows of a convolution see is little enough to be written side by side."""
    (batch, channels, *_), made = tensors["InputTensor"].sizes, tensors["OutputTensor"].sizes
    _, of_group, *taps = tensors["FilterTensor"].sizes
    pairs = channels // max(of_group, 1) * -(-of_group // 2)
    return batch * pairs * prod(taps) * prod(made[2:]) * WIDTH <= MAX_COLUMNS_BYTES


# ---- what becomes of sums --------------------------------------------------------------------------------

_Terms = Mapping[str, Expr]
_BEYOND, _DOUBT = 2.0**10, 2.0**-11
"""No byte is so far away from any other; and more than four roundings of what is nearer amount to."""


def _exact(x: Expr) -> Expr:
    return convert(x, FLOAT64)


def _to_float(total: Expr, t: _Terms, made: TensorDataType) -> Expr:
    product = mul(_exact(total), mul(_exact(t["a_scale"]), _exact(t["b_scale"])))
    return add(product, _exact(t["bias"])) if "bias" in t else product


def _to_bytes(total: Expr, t: _Terms, made: TensorDataType) -> Expr:
    return _requantized(total, (t["a_scale"], t["b_scale"]), t, made)


def _to_bytes_with_bias(total: Expr, t: _Terms, made: TensorDataType) -> Expr:
    return _requantized(total, (t["input_scale"], t["filter_scale"]), t, made)


def _requantized(total: Expr, scales: tuple[Expr, Expr], t: _Terms, made: TensorDataType) -> Expr:
    """As `quantized` of the definitions. FLOAT32 tells most bytes, but for what lies near the middle between
    two of them."""
    bias, y_scale, info = t.get("bias"), t["output_scale"], np.iinfo(NUMPY[made])

    def ended(whole: Expr) -> Expr:
        point = t.get("output_zero_point")
        x = whole if point is None else add(whole, convert(point, whole.dtype))
        return minimum(maximum(x, float(info.min)), float(info.max))

    exact_total = _exact(total) if bias is None else add(_exact(total), _exact(bias))
    exact = rint(div(mul(exact_total, mul(*map(_exact, scales))), _exact(y_scale)))

    so_far = total if bias is None else add(total, bias)
    factor = mul(*(convert(x, FLOAT32) for x in scales))
    x = mul(convert(so_far, FLOAT32), div(factor, convert(y_scale, FLOAT32)))
    whole = rint(x)
    near = lt(absolute(sub(x, whole)), 0.5 - _DOUBT)
    usual = and_(gt(factor, 2.0**-100), lt(factor, 2.0**100))
    known = and_(usual, or_(near, ge(absolute(x), _BEYOND)))
    if bias is not None:  # and what wraps around
        known = and_(known, ge(and_(xor(total, so_far), xor(bias, so_far)), 0))
    exact = ended(exact)
    exact = select(is_nan(exact), 0.0, exact)
    return select_lazy(not_(known), convert(exact, FLOAT32), ended(whole))


_ENDS: Mapping[str, tuple[Mapping[str, str], Callable[[Expr, _Terms, TensorDataType], Expr]]] = {
    "MATRIX_MULTIPLY_INTEGER_TO_FLOAT": ({"a_scale": COLUMN, "b_scale": ROW, "bias": WHOLE}, _to_float),
    "QUANTIZED_LINEAR_MATRIX_MULTIPLY": (
        {"a_scale": COLUMN, "b_scale": ROW, "output_scale": COLUMN, "output_zero_point": COLUMN},
        _to_bytes,
    ),
    "QUANTIZED_LINEAR_CONVOLUTION": (
        {
            "input_scale": ONE,
            "filter_scale": CHANNEL,
            "bias": CHANNEL,
            "output_scale": ONE,
            "output_zero_point": ONE,
        },
        _to_bytes_with_bias,
    ),
}
"""What is read beside sums, with how it lies along them, and what it makes of them; others are the sums."""


class _End:
    """What an operator makes of the sums."""

    def __init__(self, operator: Operator, tensors: Mapping[str, TensorDesc], threads: int | None) -> None:
        made = tensors["OutputTensor"].data_type
        self.dtype, self._threads = NUMPY[made], threads
        how, meaning = _ENDS.get(operator.name, ({}, None))
        fields = {s.parameter: s.name for s in operator.inputs}
        self._how = {p: one for p, one in how.items() if fields[p] in tensors}
        self._launch = None
        if meaning is not None:
            types = [tensors[fields[p]].data_type for p in self._how]
            reads = [read(k, dtype) for k, dtype in enumerate((INT32, *types))]
            result = meaning(reads[0], dict(zip(self._how, reads[1:], strict=True)), made)
            self._launch = RepeatedLaunch(group((INT32, *types), (convert(result, made),)), threads)

    def __call__(self, c: Call, sums: Callable[[Call, Array], None]) -> Array:
        """`sums(c, into)`: what computes these."""
        result = empty(c.output, self.dtype)
        if self._launch is None:
            sums(c, result)
            return result
        total = scratch(result.shape, np.dtype(np.int32))
        sums(c, total)
        beside = [along(getattr(c, p), how, total.ndim, self._threads) for p, how in self._how.items()]
        self._launch.alone([total, *beside, result])
        return result
