"""Integers in terms of symbolic sizes: arrays of `Affine`, and what rules of several operators do with them.

x: float32[n,64]      Shape(x) -> [n, 64]      Shape(x)[0] + 1 -> n+1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.ir.dims import UNKNOWN, Affine, whole
from anydml.onnx.ops.opinfo import NodeView, Symbols


def of_array(array: NDArray[Any]) -> Symbols:
    """Known integers."""
    content = np.empty(array.shape, object)
    content.reshape(-1)[:] = [whole(n) for n in array.reshape(-1).tolist()]
    return content


def of_sizes(sizes: Iterable[Affine]) -> Symbols:
    listed = list(sizes)
    content = np.empty(len(listed), object)
    content[:] = listed
    return content


def numbers(content: Symbols | None) -> list[int] | None:
    """The integers, if every one is known."""
    if content is None:
        return None
    found = [x.number for x in content.reshape(-1)]
    return None if None in found else [n for n in found if n is not None]


def map_symbols(change: Callable[[Affine], Affine], x: Symbols) -> Symbols:
    return of_sizes(change(a) for a in x.reshape(-1)).reshape(x.shape)


def same_order(node: NodeView, given: list[Any], sizes: tuple[int, ...] | None) -> Symbols | None:
    """The elements in their order, in the output's shape."""
    (x, *_) = given
    return np.asarray(x.reshape(sizes), object) if sizes is not None and prod(sizes) == x.size else None


def at_least(difference: Affine, least: int) -> bool | None:
    """Whether it is `least` or more."""
    if difference.least is not None and difference.least >= least:
        return True
    reverse = -difference
    return False if reverse.least is not None and reverse.least > -least else None


def is_zero(difference: Affine) -> bool | None:
    if difference.number is not None:
        return difference.number == 0
    return False if at_least(difference, 1) or at_least(-difference, 1) else None


def quotient(sizes: Iterable[Affine], by: Iterable[Affine]) -> Affine:
    """The product of `sizes` without the factors `by`; unknown unless it is a sum again."""
    left, divisor = [s for s in sizes if s.number != 1], 1
    for factor in by:
        if factor.number is not None:
            divisor *= factor.number
        elif factor in left:
            left.remove(factor)
        else:
            return UNKNOWN
    product = reduce(lambda a, b: a * b, left, whole(1))
    return product.divided(divisor)
