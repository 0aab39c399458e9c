"""Where Python's and NumPy's objects have their fields, and functions of theirs, for code that uses them.

Both are looked up in objects that are known, when they are first needed. Where that fails, as in other
Pythons than CPython or without its lock, there is no such code.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from anydml.codegen.jit import add_function, add_symbol

TYPE = object.__basicsize__ - ctypes.sizeof(ctypes.c_void_p)
DATA = object.__basicsize__
"""Where a PyArrayObject has its data pointer: behind the object's head."""
RANK, SIZES, DTYPE, FLAGS = DATA + 8, DATA + 16, DATA + 40, DATA + 48
VALUE = object.__basicsize__
"""Where a float has its number, and a scalar of NumPy's one of up to 8 bytes."""
SIGN, DIGIT = object.__basicsize__, object.__basicsize__ + 8
"""Where an integer has its sign beside the number of its digits, and its lowest digit."""
ONE_DIGIT = 1 << 30
"""The first integer that has two."""
ITEMS, TUPLE_ITEMS = object.__basicsize__ + 8, tuple.__basicsize__
"""Where a list says where its objects are, and where a tuple has them."""
PACKED, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400
"""Flags of arrays."""
_NEW_FROM_DESCR = 94
"""The number of PyArray_NewFromDescr in NumPy's table of functions, which is part of its binary interface."""
_METH_FASTCALL = 0x80


@lru_cache
def have_known_layout() -> bool:
    """Whether objects of this Python and this NumPy have their fields where code looks for them."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not gil or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    probe = np.zeros((3, 5), np.float32)[:, 1:]
    at = id(probe)

    def word(offset: int, start: int = at) -> int:
        return ctypes.c_uint64.from_address(start + offset).value

    sizes = word(SIZES)
    packed, writeable = np.zeros(1).flags, np.broadcast_to(np.zeros(1), 3).flags
    number, listed, pair = 0.1, [probe], (None, probe)
    integers = [word_of_integer(x) for x in (-ONE_DIGIT + 1, 1000, ONE_DIGIT)]
    return (
        word(TYPE) == id(np.ndarray)
        and word(DATA) == probe.__array_interface__["data"][0]
        and ctypes.c_int.from_address(at + RANK).value == 2
        and (word(0, sizes), word(8, sizes)) == probe.shape
        and word(DTYPE) == id(np.dtype(np.float32)) == id(probe.dtype)
        and ctypes.c_int.from_address(at + FLAGS).value == probe.flags.num
        and packed.num & (PACKED | ALIGNED | WRITEABLE) == PACKED | ALIGNED | WRITEABLE
        and not probe.flags.num & PACKED
        and not writeable.num & WRITEABLE
        and ctypes.c_double.from_address(id(number) + VALUE).value == number
        and word(0, word(ITEMS, id(listed))) == at
        and word(TUPLE_ITEMS + 8, id(pair)) == at
        and [x & 0xFFFFFFFF for x in integers[:2]] == [ONE_DIGIT - 1, 1000]
        and len({x >> 32 for x in integers}) == 3
        and _functions_of_numpy() is not None
    )


def word_of_integer(x: int) -> int:
    """What tells an integer of one digit from all others: its sign, then the digit."""
    sign, digit = (ctypes.c_uint32.from_address(id(x) + at).value for at in (SIGN, DIGIT))
    return sign << 32 | digit


def _functions_of_numpy() -> Any:
    """The capsule with what NumPy has for code in C."""
    core = getattr(np, "_core", None)
    return getattr(getattr(core, "multiarray", None), "_ARRAY_API", None)


def register_functions(names: Iterable[str]) -> None:
    """Have code find these functions of Python's by their names."""
    for name in names:
        add_function(name, getattr(ctypes.pythonapi, name))


@lru_cache
def register_new_array() -> None:
    """Have code find PyArray_NewFromDescr."""
    pointer = ctypes.pythonapi["PyCapsule_GetPointer"]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer(_functions_of_numpy(), None)
    add_symbol("PyArray_NewFromDescr", ctypes.c_uint64.from_address(table + 8 * _NEW_FROM_DESCR).value)


class Context(np.ndarray[Any, Any]):
    """The words that code reads which is called with them. It keeps what they lead to, and the code."""

    kept: object = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("expected something to pickle or copy, but got addresses of this process")


def context_of(words: Sequence[int], kept: object) -> Context:
    context = np.array(words, np.uint64).view(Context)
    context.kept = kept
    return context


def built_in(address: int, context: Context) -> Callable[..., Any]:
    """A function whose machine code is at this address: `ptr code(ptr context, ptr arguments, i64 count)`."""
    definition = _MethodDef(b"run", address, _METH_FASTCALL, None)
    context.kept = (context.kept, definition)
    make = ctypes.pythonapi["PyCFunction_NewEx"]
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    made: Callable[..., Any] = make(ctypes.addressof(definition), context, None)
    return made


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]
