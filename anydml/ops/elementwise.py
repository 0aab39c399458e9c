"""The ELEMENT_WISE_* operators that choose, compare, and work on bools or bits; one definition each."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

from anydml.ops.dtypes import (
    FLOAT16,
    FLOATING,
    FLOATS_UP_TO_32_BIT,
    SIZE,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    UP_TO_32_BIT,
    UP_TO_64_BIT,
)
from anydml.ops.enums import IsInfinityMode
from anydml.ops.expr import (
    Expr,
    absolute,
    and_,
    bitcast,
    convert,
    eq,
    ge,
    gt,
    is_nan,
    le,
    lt,
    ne,
    not_,
    or_,
    popcount,
    select,
    shl,
    shr,
    xor,
)
from anydml.ops.families import (
    ALL_BUT_FLOAT64,
    FL_1_0,
    FL_2_0,
    FL_2_1,
    FL_3_0,
    FL_4_1,
    FL_5_0,
    binary,
    unary,
)
from anydml.ops.opdef import Operator, at, attr, example, inp, out

BOOL_TYPES = (UINT32, UINT8)
UNSIGNED_WORDS = (UINT32, UINT16, UINT8)
UINT_OF_SIZE = {8: UINT64, 4: UINT32, 2: UINT16, 1: UINT8}

# ---- choice ------------------------------------------------------------------------------------------

ELEMENT_WISE_IF = Operator(
    name="ELEMENT_WISE_IF",
    doc="Output is A where Condition is non-zero, else B.",
    operands=(
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
    example=example([[1, 0], [1, 1]], [[1, 2], [3, 4]], [[9, 8], [7, 6]], [[1, 8], [3, 4]]),
    of_bool=True,
)

# ---- infinities and NaN ------------------------------------------------------------------------------


def _is_infinity(x: Expr, mode: IsInfinityMode) -> Expr:
    if mode is IsInfinityMode.EITHER:
        return eq(absolute(x), inf)
    return eq(x, inf if mode is IsInfinityMode.POSITIVE else -inf)


ELEMENT_WISE_IS_INFINITY = unary(
    "ELEMENT_WISE_IS_INFINITY",
    "Output is 1 where Input is an infinity of the sign that InfinityMode names, else 0.",
    {
        FL_2_1: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, B=UINT8),
        FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, B=UINT8),
    },
    _is_infinity,
    example([[1, inf], [-inf, 2]], [[0, 1], [1, 0]]),
    attr("InfinityMode", IsInfinityMode, IsInfinityMode.EITHER, parameter="mode"),
    output="B",
    in_place=(),
)

ELEMENT_WISE_IS_NAN = unary(
    "ELEMENT_WISE_IS_NAN",
    "Output is 1 where Input is not a number, else 0.",
    {
        FL_2_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, B=BOOL_TYPES),
        FL_3_0: at(rank=(1, 8), T=FLOATS_UP_TO_32_BIT, B=BOOL_TYPES),
    },
    is_nan,
    example([[1, nan], [inf, 2]], [[0, 1], [0, 0]]),
    output="B",
    in_place=(),
)

# ---- comparisons -------------------------------------------------------------------------------------

_COMPARED_FROM_1_0 = {
    FL_1_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, B=UINT32),
    FL_2_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, B=BOOL_TYPES),
    FL_2_1: at(rank=(4, 4), T=UP_TO_32_BIT, B=BOOL_TYPES),
    FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, B=BOOL_TYPES),
    FL_4_1: at(rank=(1, 8), T=ALL_BUT_FLOAT64, B=BOOL_TYPES),
}
_COMPARED_FROM_3_0 = {level: table for level, table in _COMPARED_FROM_1_0.items() if level >= FL_3_0}

ELEMENT_WISE_LOGICAL_EQUALS = binary(
    "ELEMENT_WISE_LOGICAL_EQUALS",
    "Output is 1 where A equals B, else 0.",
    _COMPARED_FROM_1_0,
    eq,
    example([1, 2, nan], [1, 3, nan], [1, 0, 0]),
    output="B",
    in_place=(),
)
ELEMENT_WISE_LOGICAL_GREATER_THAN = binary(
    "ELEMENT_WISE_LOGICAL_GREATER_THAN",
    "Output is 1 where A is greater than B, else 0.",
    _COMPARED_FROM_1_0,
    gt,
    example([1, 3, 2], [2, 2, 2], [0, 1, 0]),
    output="B",
    in_place=(),
)
ELEMENT_WISE_LOGICAL_LESS_THAN = binary(
    "ELEMENT_WISE_LOGICAL_LESS_THAN",
    "Output is 1 where A is less than B, else 0.",
    _COMPARED_FROM_1_0,
    lt,
    example([1, 3, 2], [2, 2, 2], [1, 0, 0]),
    output="B",
    in_place=(),
)
ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL = binary(
    "ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL",
    "Output is 1 where A is greater than or equal to B, else 0.",
    _COMPARED_FROM_3_0,
    ge,
    example([1, 3, 2], [2, 2, 2], [0, 1, 1]),
    output="B",
    in_place=(),
)
ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL = binary(
    "ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL",
    "Output is 1 where A is less than or equal to B, else 0.",
    _COMPARED_FROM_3_0,
    le,
    example([1, 3, 2], [2, 2, 2], [1, 0, 1]),
    output="B",
    in_place=(),
    notes="Its page says that it exists from 1_0 on; DirectML's header and level history say 3_0, as here.",
)

# ---- bools ------------------------------------------------------------------------------------------

_TRUTHS_FROM_1_0 = {
    FL_1_0: at(rank=(4, 4), T=UINT32),
    FL_2_0: at(rank=(4, 4), T=BOOL_TYPES),
    FL_3_0: at(rank=(1, 8), T=BOOL_TYPES),
}

ELEMENT_WISE_LOGICAL_AND = binary(
    "ELEMENT_WISE_LOGICAL_AND",
    "Output is 1 where both A and B are non-zero, else 0.",
    _TRUTHS_FROM_1_0,
    lambda a, b: and_(ne(a, 0), ne(b, 0)),
    example([0, 0, 1, 2], [0, 1, 0, 3], [0, 0, 0, 1]),
    of_bool=True,
)
ELEMENT_WISE_LOGICAL_OR = binary(
    "ELEMENT_WISE_LOGICAL_OR",
    "Output is 1 where A or B (or both) is non-zero, else 0.",
    _TRUTHS_FROM_1_0,
    lambda a, b: or_(ne(a, 0), ne(b, 0)),
    example([0, 0, 1, 2], [0, 1, 0, 3], [0, 1, 1, 1]),
    of_bool=True,
)
ELEMENT_WISE_LOGICAL_XOR = binary(
    "ELEMENT_WISE_LOGICAL_XOR",
    "Output is 1 where exactly one of A and B is non-zero, else 0.",
    _TRUTHS_FROM_1_0,
    lambda a, b: xor(ne(a, 0), ne(b, 0)),
    example([0, 0, 1, 2], [0, 1, 0, 3], [0, 1, 1, 0]),
    of_bool=True,
)
ELEMENT_WISE_LOGICAL_NOT = unary(
    "ELEMENT_WISE_LOGICAL_NOT",
    "Output is 1 where Input is zero, else 0.",
    _TRUTHS_FROM_1_0,
    lambda x: eq(x, 0),
    example([0, 1, 2], [1, 0, 0]),
    of_bool=True,
)

# ---- bits --------------------------------------------------------------------------------------------


def _bits(x: Expr) -> Expr:
    """A float as the unsigned integer of its bits; an integer as it is."""
    return bitcast(x, UINT_OF_SIZE[SIZE[x.dtype]]) if x.dtype in FLOATING else x


def _on_bits(op: Callable[..., Expr]) -> Callable[..., Expr]:
    def scalar(*operands: Expr) -> Expr:
        return bitcast(op(*map(_bits, operands)), operands[0].dtype)

    return scalar


_SHIFTED = {
    FL_2_1: at(rank=(4, 4), T=UNSIGNED_WORDS),
    FL_3_0: at(rank=(1, 8), T=UNSIGNED_WORDS),
    FL_4_1: at(rank=(1, 8), T=(UINT64, *UNSIGNED_WORDS)),
}
_BITS_FROM_3_0 = {
    FL_3_0: at(rank=(1, 8), T=UNSIGNED_WORDS),
    FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT),
}
_WIDTH = "A count of the width of the type or more gives 0."
_PATTERN = "Of floats, the bit patterns are combined."

ELEMENT_WISE_BIT_SHIFT_LEFT = binary(
    "ELEMENT_WISE_BIT_SHIFT_LEFT",
    "Output is A with its bits moved B places to the left; zeros come in.",
    _SHIFTED,
    shl,
    example([1, 3, 128], [3, 1, 1], [8, 6, 256]),
    notes=_WIDTH,
)
ELEMENT_WISE_BIT_SHIFT_RIGHT = binary(
    "ELEMENT_WISE_BIT_SHIFT_RIGHT",
    "Output is A with its bits moved B places to the right; zeros come in.",
    _SHIFTED,
    shr,
    example([8, 6, 255], [3, 1, 4], [1, 3, 15]),
    notes=_WIDTH,
)
ELEMENT_WISE_BIT_AND = binary(
    "ELEMENT_WISE_BIT_AND",
    "Output has the bits that are set in both A and B.",
    _BITS_FROM_3_0,
    _on_bits(and_),
    example([12, 255], [10, 16], [8, 16], types={"T": UINT32}),
    notes=_PATTERN,
)
ELEMENT_WISE_BIT_OR = binary(
    "ELEMENT_WISE_BIT_OR",
    "Output has the bits that are set in A or B.",
    _BITS_FROM_3_0,
    _on_bits(or_),
    example([12, 1], [10, 16], [14, 17], types={"T": UINT32}),
    notes=_PATTERN,
)
ELEMENT_WISE_BIT_XOR = binary(
    "ELEMENT_WISE_BIT_XOR",
    "Output has the bits that are set in exactly one of A and B.",
    _BITS_FROM_3_0,
    _on_bits(xor),
    example([12, 17], [10, 16], [6, 1], types={"T": UINT32}),
    notes=_PATTERN,
)
ELEMENT_WISE_BIT_NOT = unary(
    "ELEMENT_WISE_BIT_NOT",
    "Output has the bits that Input has not.",
    _BITS_FROM_3_0,
    _on_bits(not_),
    example([0, 4294967295, 1], [4294967295, 0, 4294967294], types={"T": UINT32}),
    notes=_PATTERN,
)
ELEMENT_WISE_BIT_COUNT = unary(
    "ELEMENT_WISE_BIT_COUNT",
    "Output is the number of bits that are set in Input.",
    {
        FL_3_0: at(rank=(1, 8), T=UNSIGNED_WORDS, B=BOOL_TYPES),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, B=BOOL_TYPES),
    },
    lambda x: popcount(_to_unsigned(x)),
    example([0, 1, 255], [0, 1, 8], types={"T": UINT32}),
    output="B",
    in_place=(),
    notes=_PATTERN.replace("combined", "counted"),
)


def _to_unsigned(x: Expr) -> Expr:
    return convert(_bits(x), UINT_OF_SIZE[SIZE[x.dtype]])
