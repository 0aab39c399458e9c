"""How Python calls a program: by a function of machine code that takes a dictionary of arrays.

It looks the arrays up, compares what they are with what the program was made for, makes the outputs and
their list, and runs. Whatever is not as expected it answers with None, and the ordinary way takes its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from anydml.codegen.program.feeds import Fed, Made
from anydml.codegen.program.function_writer import MEMCPY
from anydml.codegen.program.layout import ARENA, DETAIL, DETAIL_BYTES, FIRST, WEIGHTS
from anydml.codegen.python_objects import (
    ALIGNED,
    DATA,
    DTYPE,
    FLAGS,
    PACKED,
    RANK,
    SIZES,
    TYPE,
    built_in,
    context_of,
    have_known_layout,
    register_functions,
    register_new_array,
)

Entry = Callable[..., list[Any] | None]
MAX_CONTENT_BYTES = 128
"""Of an input whose content is compared."""


def can_enter(feeds: Sequence[Fed]) -> bool:
    """Whether there are entries on this machine, and for such feeds."""
    long = any(f.content is not None and len(f.content) > MAX_CONTENT_BYTES for f in feeds)
    if long or not have_known_layout():
        return False
    _register()
    register_new_array()
    return True


class NativeEntry:
    """A program's entry."""

    def __init__(
        self,
        address: int,
        feeds: Sequence[Fed],
        types: Sequence[np.dtype[Any]],
        memory: int,
        weights: int,
        kept: object,
    ) -> None:
        """Args:
        address: of the code.
        types: of the outputs.
        memory: the address of the program's memory; `weights`: of its constants.
        kept: owns both, and the code.
        """
        names = [sys.intern(f.name) for f in feeds]
        objects = [np.ndarray, dict, None, *names, *(f.dtype for f in feeds), *types]
        self._context = context_of([0, memory, weights, *map(id, objects)], (kept, objects))
        self.call: Entry = built_in(address, self._context)

    def after_fork(self) -> None:
        """In a child: whoever was using the memory is not there any more."""
        self._context[_BUSY] = 0


_BUSY, _MEMORY, _CONSTANTS, _ARRAY, _DICT, _NONE, _NAMES = range(7)
"""Words of the context: whether somebody uses the memory; addresses of memory, constants, and of objects."""


_PYTHON = [
    *("PyDict_GetItemWithError", "PyDict_Size", "PyErr_Clear", "PyList_New", "PyList_SetItem"),
    *("Py_IncRef", "Py_DecRef"),
]
_register = lru_cache(partial(register_functions, _PYTHON))

_DECLARED = """
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i64 @PyDict_Size(ptr)
declare void @PyErr_Clear()
declare ptr @PyList_New(i64)
declare i32 @PyList_SetItem(ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyArray_NewFromDescr(ptr, ptr, i32, ptr, ptr, ptr, i32, ptr)
"""


_ITEMS = object.__basicsize__ + 8
"""Where a list has the address of its items: behind their number."""


class _Text:
    """Instructions of an entry."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.owned = 0
        """How many arrays are to be given up on the way out."""
        self._count = 0
        self.declared: set[str] = set()

    def name(self) -> str:
        self._count += 1
        return f"r{self._count}"

    def line(self, instruction: str) -> str:
        register = f"%{self.name()}"
        self.lines.append(f"  {register} = {instruction}")
        return register

    def field(self, start: str, offset: int, kind: str = "ptr") -> str:
        at = self.line(f"getelementptr i8, ptr {start}, i64 {offset}")
        return self.line(f"load {kind}, ptr {at}")

    def expect(self, condition: str) -> None:
        """Go on if it is so, else out."""
        label = self.name()
        self.lines += [f"  br i1 {condition}, label %{label}, label %drop{self.owned}", f"{label}:"]

    def same(self, kind: str, one: str, other: str | int) -> None:
        self.expect(self.line(f"icmp eq {kind} {one}, {other}"))

    def array(self, kind: str, dtype: str, rank: int, sizes: str) -> str:
        """A new one, or null."""
        self.lines.append(f"  call void @Py_IncRef(ptr {dtype})")  # which the array will own
        return self.line(
            f"call ptr @PyArray_NewFromDescr(ptr {kind}, ptr {dtype}, i32 {rank}, ptr {sizes}, "
            "ptr null, ptr null, i32 0, ptr null)"
        )

    def copied(self, made: Made, memory: str, kind: str, dtype: str, place: str, lost: str) -> None:
        """An output of the sizes that the program has told, into its place in a list."""
        told, home = (self.line(f"getelementptr i8, ptr {memory}, i64 {at}") for at in (made.told, made.home))
        y, there = self.array(kind, dtype, made.rank, told), self.name()
        missing = self.line(f"icmp eq ptr {y}, null")
        self.lines += [f"  br i1 {missing}, label %{lost}, label %{there}", f"{there}:"]
        self.line(f"call i32 @PyList_SetItem({place}, ptr {y})")
        count = str(made.width)
        for axis in range(made.rank):
            count = self.line(f"mul i64 {count}, {self.field(told, 8 * axis, 'i64')}")
        data = self.field(y, DATA)
        self.declared.add(MEMCPY)
        self.lines.append(
            f"  call void @llvm.memcpy.p0.p0.i64(ptr {data}, ptr {home}, i64 {count}, i1 false)"
        )

    def answer(self, value: str) -> None:
        """What is answered on the way out, from here on."""
        self.lines.append(f"  store ptr {value}, ptr %answer")


def entry_text(
    feeds: Sequence[Fed], reads: Sequence[int], makes: Sequence[Made], declared: Container[str] = ()
) -> str:
    """The entry of a program, for its module, where some functions are `declared` already.

    It takes a dictionary, and perhaps a list of arrays to write to, which its caller has checked, if all have
    fixed sizes. It owns the arrays while it uses them: other threads may run in between, and take them out.
    """
    t, count = _Text(), len(makes)
    t.lines.append(f"  %words = alloca [{FIRST + len(reads) + count} x ptr]")
    t.lines += ["  %answer = alloca ptr", "  %results.at = alloca ptr", f"  %ys = alloca [{count} x ptr]"]
    context = t.field("%self", DATA)

    def known(k: int) -> str:
        return t.field(context, 8 * k)

    def dtype(k: int) -> str:
        return known(_NAMES + 2 * len(feeds) + k)

    none = known(_NONE)
    t.answer(none)
    open = [k for k, made in enumerate(makes) if made.sizes is None]
    t.expect(t.line(f"icmp ule i64 {t.line('sub i64 %n, 1')}, {0 if open else 1}"))
    feed = t.field("%args", 0)
    t.same("ptr", t.field(feed, TYPE), known(_DICT))
    t.same("i64", t.line(f"call i64 @PyDict_Size(ptr {feed})"), len(feeds))
    array = known(_ARRAY)
    arrays = []
    for k in range(len(feeds)):
        x = t.line(f"call ptr @PyDict_GetItemWithError(ptr {feed}, ptr {known(_NAMES + k)})")
        t.expect(t.line(f"icmp ne ptr {x}, null"))
        t.lines.append(f"  call void @Py_IncRef(ptr {x})")
        t.owned += 1
        arrays.append(x)
    for k, (fed, x) in enumerate(zip(feeds, arrays, strict=True)):
        t.same("ptr", t.field(x, TYPE), array)
        t.same("ptr", t.field(x, DTYPE), known(_NAMES + len(feeds) + k))
        t.same("i32", t.field(x, RANK, "i32"), len(fed.sizes))
        flags = t.line(f"and i32 {t.field(x, FLAGS, 'i32')}, {PACKED | ALIGNED}")
        t.same("i32", flags, PACKED | ALIGNED)
        sizes = t.field(x, SIZES) if fed.sizes else ""
        for axis, size in enumerate(fed.sizes):
            if size is None:
                continue
            t.same("i64", t.field(sizes, 8 * axis, "i64"), size)
        data = t.field(x, DATA)
        content = fed.content or b""
        whole = len(content) // 8 * 8
        for at in range(0, whole, 8):
            place = t.line(f"getelementptr i8, ptr {data}, i64 {at}")
            word = t.line(f"load i64, ptr {place}, align 1")
            t.same("i64", word, int.from_bytes(content[at : at + 8], sys.byteorder, signed=True))
        for at in range(whole, len(content)):
            t.same("i8", t.field(data, at, "i8"), content[at])
    busy = t.line(f"getelementptr i64, ptr {context}, i64 {_BUSY}")
    t.same("i64", t.line(f"load i64, ptr {busy}"), 0)
    t.answer("null")
    given, make, ready = t.name(), t.name(), t.name()
    places = [t.line(f"getelementptr ptr, ptr %ys, i64 {k}") for k in range(count)]
    t.lines += [f"  br i1 {t.line('icmp eq i64 %n, 2')}, label %{given}, label %{make}", f"{given}:"]
    results = t.field("%args", 8)
    t.lines += [f"  call void @Py_IncRef(ptr {results})", f"  store ptr {results}, ptr %results.at"]
    items = t.field(results, _ITEMS)
    for k, place in enumerate(places):
        t.lines.append(f"  store ptr {t.field(items, 8 * k)}, ptr {place}")
    t.lines += [f"  br label %{ready}", f"{make}:"]
    results = t.line(f"call ptr @PyList_New(i64 {count})")
    t.expect(t.line(f"icmp ne ptr {results}, null"))
    t.lines.append(f"  store ptr {results}, ptr %results.at")
    t.owned += 1
    constants = []
    for k, (made, place) in enumerate(zip(makes, places, strict=True)):
        if made.sizes is None:
            continue
        listed = ", ".join(f"i64 {n}" for n in made.sizes or (0,))
        constants.append(f"@sizes{k} = internal constant [{max(len(made.sizes), 1)} x i64] [{listed}]")
        y = t.array(array, dtype(k), len(made.sizes), f"@sizes{k}")
        t.expect(t.line(f"icmp ne ptr {y}, null"))
        t.line(f"call i32 @PyList_SetItem(ptr {results}, i64 {k}, ptr {y})")
        t.lines.append(f"  store ptr {y}, ptr {place}")
    t.lines += [f"  br label %{ready}", f"{ready}:"]
    results = t.line("load ptr, ptr %results.at")
    memory = known(_MEMORY)
    fields = [t.line(f"getelementptr i8, ptr {x}, i64 {DATA}") for x in (arrays[r] for r in reads)]
    for made, place in zip(makes, places, strict=True):
        if made.sizes is None:
            home = t.line(f"getelementptr i8, ptr {memory}, i64 {made.home}")
            t.lines.append(f"  store ptr {home}, ptr {place}")
            fields.append(place)
        else:
            fields.append(t.line(f"getelementptr i8, ptr {t.line(f'load ptr, ptr {place}')}, i64 {DATA}"))
    words = {
        ARENA: t.line(f"getelementptr i8, ptr {memory}, i64 {DETAIL_BYTES}"),
        WEIGHTS: known(_CONSTANTS),
        DETAIL: memory,
    }
    words |= {FIRST + k: field for k, field in enumerate(fields)}
    for k, value in words.items():
        place = t.line(f"getelementptr ptr, ptr %words, i64 {k}")
        t.lines.append(f"  store ptr {value}, ptr {place}")
    # what makes the outputs may have run Python's collector, and others may have come meanwhile
    t.answer(none)
    t.same("i64", t.line(f"load i64, ptr {busy}"), 0)
    t.lines.append(f"  store i64 1, ptr {busy}")
    code = t.line("call i32 @program(ptr %words)")
    t.lines.append(f"  store i64 0, ptr {busy}")
    # a node that failed is told by the ordinary way, which meets it again; a signal has made an exception
    stopped = t.line(f"icmp slt i32 {code}, 0")
    t.answer(t.line(f"select i1 {stopped}, ptr null, ptr {none}"))
    t.same("i32", code, 0)
    if open:
        t.lines.append(f"  store i64 1, ptr {busy}")
        lost, done = t.name(), t.name()
        for k in open:
            t.copied(makes[k], memory, array, dtype(k), f"ptr {results}, i64 {k}", lost)
        t.lines += [f"  store i64 0, ptr {busy}", f"  br label %{done}", f"{lost}:"]
        t.lines += [f"  store i64 0, ptr {busy}", f"  br label %drop{t.owned}", f"{done}:"]
    t.lines.append(f"  call void @Py_IncRef(ptr {results})")
    t.answer(results)
    t.lines.append(f"  br label %drop{t.owned}")
    t.lines += [f"drop{t.owned}:", "  %results = load ptr, ptr %results.at"]
    t.lines += ["  call void @Py_DecRef(ptr %results)", f"  br label %drop{len(arrays)}"]
    for k, x in reversed([*enumerate(arrays)]):
        t.lines += [f"drop{k + 1}:", f"  call void @Py_DecRef(ptr {x})", f"  br label %drop{k}"]
    t.lines += ["drop0:", "  %found = load ptr, ptr %answer", f"  %missed = icmp eq ptr %found, {none}"]
    t.lines += ["  br i1 %missed, label %miss, label %out", "out:", "  ret ptr %found", "miss:"]
    t.lines += ["  call void @PyErr_Clear()", f"  call void @Py_IncRef(ptr {none})", f"  ret ptr {none}"]
    head = ["define ptr @entry(ptr %self, ptr %args, i64 %n) {", "start:"]
    more = sorted(d for d in t.declared if d not in declared)
    return "\n".join([_DECLARED, *more, *constants, *head, *t.lines, "}"]) + "\n"
