"""What a call's arguments must be to be like an earlier one's: in words for machine code (`call.ll`)."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from anydml.codegen.python_objects import (
    ALIGNED,
    ONE_DIGIT,
    PACKED,
    VALUE,
    WRITEABLE,
    word_of_integer,
)
from anydml.dataclass import dataclass


class Kind(IntEnum):
    """What an argument must be. Each has two more words."""

    OBJECT = 0
    """This object: its address."""
    FLOAT = 1
    """A Python float: its bits."""
    ARRAY = 2
    """A packed array, an operand: its type's address, flags that it must have."""
    OUT = 3
    """The same, to be written to."""
    FLOAT32 = 4
    """A Python float, an operand of float32."""
    FLOAT64 = 5
    SCALAR = 6
    """A scalar of NumPy's, an operand: its type's address, where in it the number is."""
    CONSTANT = 7
    """This object, an operand: its address, that of the number that it stands for."""
    LAYOUT = 8
    """An array, an operand: its type's address, that of a `Layout`."""
    LAYOUT_OUT = 9
    LIST = 10
    """A list: the address of its type, how many objects it holds, of which the next ones tell."""
    TUPLE = 11
    """The same of a tuple."""
    INTEGER = 12
    """A Python integer: the address of its type, its sign and its digit."""


NOT_OPERANDS = frozenset({Kind.OBJECT, Kind.FLOAT, Kind.LIST, Kind.TUPLE, Kind.INTEGER})


@dataclass(frozen=True)
class Argument:
    kind: Kind
    words: tuple[int, int] = (0, 0)
    stride: int = 0
    """Of an operand: bytes from one element to the next."""
    kept: object = None
    """What the words lead to."""
    holds: Sequence[Argument] = ()
    """Of a list."""


class Layout(IntEnum):
    """Words of a layout. Its strides follow the sizes."""

    FLAGS = 0
    RANK = 1
    FIRST = 2
    """Bytes to the first one that its elements have, and behind the last one."""
    END = 3
    SAME = 4
    """Whether the array may be the output itself."""
    SIZES = 5


def an_object(x: object) -> Argument:
    """Of an argument that is no operand: this very object, a float with its bits, or an integer."""
    if type(x) is float:
        return Argument(Kind.FLOAT, (int(np.float64(x).view(np.int64)), 0))
    if type(x) is int and not _is_small(x) and abs(x) < ONE_DIGIT:
        return Argument(Kind.INTEGER, (id(int), int(np.uint64(word_of_integer(x)).view(np.int64))))
    return Argument(Kind.OBJECT, (id(x), 0), kept=x)


def an_array(x: np.ndarray[Any, Any], written: bool = False) -> Argument:
    flags = PACKED | (WRITEABLE if written else 0)
    kind = Kind.OUT if written else Kind.ARRAY
    return Argument(kind, (id(x.dtype), flags), x.itemsize, x.dtype)


def laid_out(
    x: np.ndarray[Any, Any],
    target: np.ndarray[Any, Any],
    rows: bool,
    written: bool = False,
    flags: int = 0,
) -> Argument:
    """An array of exactly this layout, with these flags. `target`: the output, which it may be where no
    `rows` are reduced."""
    layout = array("q", layout_words(x, target, rows, written))
    layout[Layout.FLAGS] |= flags
    kind = Kind.LAYOUT_OUT if written else Kind.LAYOUT
    return Argument(kind, (id(x.dtype), layout.buffer_info()[0]), kept=(x.dtype, layout))


def a_sequence(x: list[Any] | tuple[Any, ...], holds: Sequence[Argument]) -> Argument:
    kind = Kind.LIST if type(x) is list else Kind.TUPLE
    return Argument(kind, (id(type(x)), len(x)), holds=holds)


def layout_words(
    x: np.ndarray[Any, Any], target: np.ndarray[Any, Any], rows: bool, written: bool
) -> list[int]:
    ends = [(n - 1) * s for n, s in zip(x.shape, x.strides, strict=True)]
    first, last = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends)
    same = not rows and (x.shape, x.strides, x.itemsize) == (target.shape, target.strides, target.itemsize)
    flags = WRITEABLE if written else 0
    return [flags, x.ndim, first, last + x.itemsize, int(same), *x.shape, *x.strides]


def a_scalar(x: np.generic) -> Argument | None:
    """Of a scalar of NumPy's; None if its number is not where it is expected."""
    content = np.asarray(x).tobytes()
    if len(content) > 8 or ctypes.string_at(id(x) + VALUE, len(content)) != content:
        return None
    return Argument(Kind.SCALAR, (id(type(x)), VALUE), kept=type(x))


def a_number(x: object, operand: np.ndarray[Any, Any], any_float: bool) -> Argument:
    """Of a Python number, which stands for `operand`. `any_float`: any other float would mean as much."""
    if type(x) is float and any_float and operand.dtype in (np.float32, np.float64):
        return Argument(Kind.FLOAT32 if operand.dtype == np.float32 else Kind.FLOAT64)
    held = np.array(operand, ndmin=1)
    return Argument(Kind.CONSTANT, (id(x), held.ctypes.data), kept=(x, held))


def an_argument(x: Any, target: np.ndarray[Any, Any], tensor: bool, written: bool = False) -> Argument | None:
    """What an argument must be to be like this one; None if code cannot tell.

    `tensor`: whether it is one, or several; `written`: whether it is `out`.
    """
    if type(x) in (list, tuple) and not written:
        held = [an_argument(one, target, tensor) for one in x]
        return a_sequence(x, [a for a in held if a]) if all(held) else None
    if tensor and x is not None:
        aligned = type(x) is np.ndarray and x.flags.aligned
        return laid_out(x, target, True, written, ALIGNED) if aligned else None
    known_by_value = type(x) is float or (type(x) is int and abs(x) < ONE_DIGIT)
    return an_object(x) if known_by_value or _is_the_same_always(x) else None


def _is_the_same_always(x: object) -> bool:
    """Whether what is equal to it is the same object, as a rule."""
    return _is_small(x) or x is None or isinstance(x, bool | str | Enum)


def _is_small(x: object) -> bool:
    """Whether it is one of the integers of which there is one object each."""
    return type(x) is int and -5 <= x <= 256
