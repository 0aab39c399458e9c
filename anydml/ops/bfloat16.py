"""bfloat16, the upper half of a float32: kernels see its bits as a UINT16, and compute in FLOAT32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from anydml.ops.dtypes import FLOAT32, UINT16, UINT32
from anydml.ops.expr import Expr, add, and_, bitcast, convert, is_nan, or_, select, shl, shr
from anydml.ops.opdef import Operator


def widen(bits: Expr) -> Expr:
    return bitcast(shl(convert(bits, UINT32), 16), FLOAT32)


def narrow(x: Expr) -> Expr:
    """Rounded to nearest, halves to even, by integers: LLVM would call a library. A NaN gets quiet."""
    bits = bitcast(convert(x, FLOAT32), UINT32)
    upper = shr(bits, 16)
    rounded = shr(add(bits, add(and_(upper, 1), 0x7FFF)), 16)
    return convert(select(is_nan(x), or_(upper, 0x40), rounded), UINT16)


@cache
def of_bfloat16(operator: Operator, inputs: Sequence[bool], result: bool) -> Operator:
    """The operator where these inputs, by place, and perhaps what it gives are bfloat16."""
    scalar = operator.scalar
    assert scalar is not None

    def computed(*operands: Any) -> Expr:
        given = list(operands)
        for k, its in enumerate(inputs):
            if its:
                given[k] = widen(given[k])
        return narrow(scalar(*given)) if result else scalar(*given)

    return replace(operator, scalar=computed)
