"""How axes are folded: what elements become, two of them, and all of them at last."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anydml.dataclass import dataclass, replace
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT64, FLOATING, NUMPY, ScalarType
from anydml.ops.expr import Expr, constant, convert


@dataclass(frozen=True)
class Folding:
    """How elements become one: each by `of`, two of those by `combine`; at last by `end`, told how many as a
    FLOAT64, and by `last`, in the elements' own type."""

    combine: Callable[[Expr, Expr], Expr]
    neutral: Callable[[ScalarType], int | float]
    """What changes nothing in `combine`, of the type that is folded in."""
    of: Callable[[Expr], Expr] = lambda x: x
    end: Callable[[Expr, Expr], Expr] = lambda x, n: x
    last: Callable[[Expr], Expr] = lambda x: x
    wide: bool = True
    """Whether floats are folded as FLOAT64, so that the order of the elements hardly matters."""
    floats_only: bool = False
    """Whether libraries fold integers in ways of their own."""

    def alone(self, x: Expr) -> Expr:
        """What one element becomes."""
        return self.closed(self.opened(x), constant(1, FLOAT64), x.dtype)

    def opened(self, x: Expr) -> Expr:
        """An element as it is folded."""
        return convert(self.of(x), self.type(x.dtype))

    def closed(self, x: Expr, count: Expr, dtype: ScalarType) -> Expr:
        """What so many elements have become, in their own type."""
        return convert(self.last(convert(self.end(x, count), dtype)), dtype)

    def type(self, dtype: ScalarType) -> ScalarType:
        return FLOAT64 if self.wide and dtype in FLOATING else dtype


def largest(dtype: ScalarType) -> int | float:
    return float("inf") if dtype in FLOATING else int(np.iinfo(NUMPY[dtype]).max)


def least(dtype: ScalarType) -> int | float:
    return float("-inf") if dtype in FLOATING else int(np.iinfo(NUMPY[dtype]).min)


TOTAL = Folding(expr.add, lambda dtype: 0)
AVERAGE = replace(TOTAL, end=lambda x, n: expr.div(x, n), floats_only=True)
SUM_OF_ABSOLUTES = replace(TOTAL, of=expr.absolute)
SUM_OF_SQUARES = replace(TOTAL, of=lambda x: expr.mul(x, x))
MEAN_SQUARE = replace(AVERAGE, of=lambda x: expr.mul(x, x))
NORM = replace(SUM_OF_SQUARES, last=expr.sqrt, floats_only=True)
PRODUCT = Folding(expr.mul, lambda dtype: 1)
LARGEST, LEAST = Folding(expr.maximum, least, wide=False), Folding(expr.minimum, largest, wide=False)
