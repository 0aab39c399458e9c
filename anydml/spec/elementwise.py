"""The ELEMENT_WISE_* operators, one record each."""

from __future__ import annotations

from math import inf

from anydml.spec.dtypes import FLOAT16, FLOATS_UP_TO_32_BIT, UINT8, UP_TO_32_BIT, UP_TO_64_BIT
from anydml.spec.enums import FeatureLevel, IsInfinityMode
from anydml.spec.scalar import Expr, absolute, eq, ne, select
from anydml.spec.schema import Operator, at, attr, inp, out

FL_2_0, FL_2_1, FL_3_0, FL_5_0 = (
    FeatureLevel.FL_2_0,
    FeatureLevel.FL_2_1,
    FeatureLevel.FL_3_0,
    FeatureLevel.FL_5_0,
)

ELEMENT_WISE_IF = Operator(
    name="ELEMENT_WISE_IF",
    doc="Output is A where Condition is non-zero, else B.",
    slots=(
        inp("ConditionTensor", dtype="C", sizes="S"),
        inp("ATensor", dtype="T", sizes="S"),
        inp("BTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="T", sizes="S"),
    ),
    levels={
        FL_2_0: at(rank=(4, 4), C=UINT8, T=FLOAT16),
        FL_3_0: at(rank=(1, 8), C=UINT8, T=UP_TO_32_BIT),
        FL_5_0: at(rank=(1, 8), C=UINT8, T=UP_TO_64_BIT),
    },
    scalar=lambda c, a, b: select(ne(c, 0), a, b),
    example=([[1, 0], [1, 1]], [[1, 2], [3, 4]], [[9, 8], [7, 6]], [[1, 8], [3, 4]]),
)


def _is_infinity(x: Expr, mode: IsInfinityMode) -> Expr:
    if mode is IsInfinityMode.EITHER:
        return eq(absolute(x), inf)
    return eq(x, inf if mode is IsInfinityMode.POSITIVE else -inf)


ELEMENT_WISE_IS_INFINITY = Operator(
    name="ELEMENT_WISE_IS_INFINITY",
    doc="Output is 1 where Input is an infinity of the sign that InfinityMode names, else 0.",
    slots=(
        inp("InputTensor", dtype="T", sizes="S"),
        out("OutputTensor", dtype="B", sizes="S"),
        attr("InfinityMode", IsInfinityMode, IsInfinityMode.EITHER, parameter="mode"),
    ),
    levels={
        FL_2_1: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, B=UINT8),
        FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, B=UINT8),
    },
    scalar=_is_infinity,
    example=([[1, inf], [-inf, 2]], [[0, 1], [1, 0]]),
)
