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

    def expect(self, comparison: str) -> None:
        """Go on if it is so, else out."""
        condition, label = self.line(comparison), self.name()
        self.lines += [f"  br i1 {condition}, label %{label}, label %drop{self.owned}", f"{label}:"]

    def same(self, kind: str, one: str, other: str | int) -> None:
        self.expect(f"icmp eq {kind} {one}, {other}")

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
    return _EntryWriter(feeds, reads, makes).text(declared)


class _EntryWriter(_Text):
    """The parts of an entry, in the order in which they run."""

    def __init__(self, feeds: Sequence[Fed], reads: Sequence[int], makes: Sequence[Made]) -> None:
        super().__init__()
        self._feeds, self._reads, self._makes = feeds, reads, makes
        self._open = [k for k, made in enumerate(makes) if made.sizes is None]
        """The outputs whose sizes the program tells."""
        self._constants: list[str] = []

    def text(self, declared: Container[str]) -> str:
        count = len(self._makes)
        self.lines.append(f"  %words = alloca [{FIRST + len(self._reads) + count} x ptr]")
        self.lines += [
            "  %answer = alloca ptr",
            "  %results.at = alloca ptr",
            f"  %ys = alloca [{count} x ptr]",
        ]
        self._context = self.field("%self", DATA)
        self._none = self._known(_NONE)
        self.answer(self._none)
        self.expect(f"icmp ule i64 {self.line('sub i64 %n, 1')}, {0 if self._open else 1}")
        arrays = self._look_up()
        for k, (fed, x) in enumerate(zip(self._feeds, arrays, strict=True)):
            self._expect_as_fed(k, fed, x)
        self._busy = self.line(f"getelementptr i64, ptr {self._context}, i64 {_BUSY}")
        self.same("i64", self.line(f"load i64, ptr {self._busy}"), 0)
        self.answer("null")
        places = self._take_or_make_results()
        results = self.line("load ptr, ptr %results.at")
        memory = self._known(_MEMORY)
        self._fill_words(memory, arrays, places)
        self._run()
        if self._open:
            self._copy_open(memory, results)
        self.lines.append(f"  call void @Py_IncRef(ptr {results})")
        self.answer(results)
        self._leave(arrays)
        head = ["define ptr @entry(ptr %self, ptr %args, i64 %n) {", "start:"]
        more = sorted(d for d in self.declared if d not in declared)
        return "\n".join([_DECLARED, *more, *self._constants, *head, *self.lines, "}"]) + "\n"

    def _known(self, k: int) -> str:
        return self.field(self._context, 8 * k)

    def _dtype(self, k: int) -> str:
        return self._known(_NAMES + 2 * len(self._feeds) + k)

    def _look_up(self) -> list[str]:
        """The arrays in the dictionary, which are the entry's own from here on."""
        feed = self.field("%args", 0)
        self.same("ptr", self.field(feed, TYPE), self._known(_DICT))
        self.same("i64", self.line(f"call i64 @PyDict_Size(ptr {feed})"), len(self._feeds))
        self._array = self._known(_ARRAY)
        arrays = []
        for k in range(len(self._feeds)):
            x = self.line(f"call ptr @PyDict_GetItemWithError(ptr {feed}, ptr {self._known(_NAMES + k)})")
            self.expect(f"icmp ne ptr {x}, null")
            self.lines.append(f"  call void @Py_IncRef(ptr {x})")
            self.owned += 1
            arrays.append(x)
        return arrays

    def _expect_as_fed(self, k: int, fed: Fed, x: str) -> None:
        """That an array has the type, sizes, layout and content which the program was made for."""
        self.same("ptr", self.field(x, TYPE), self._array)
        self.same("ptr", self.field(x, DTYPE), self._known(_NAMES + len(self._feeds) + k))
        self.same("i32", self.field(x, RANK, "i32"), len(fed.sizes))
        flags = self.line(f"and i32 {self.field(x, FLAGS, 'i32')}, {PACKED | ALIGNED}")
        self.same("i32", flags, PACKED | ALIGNED)
        sizes = self.field(x, SIZES) if fed.sizes else ""
        for axis, size in enumerate(fed.sizes):
            if size is not None:
                self.same("i64", self.field(sizes, 8 * axis, "i64"), size)
        data = self.field(x, DATA)
        content = fed.content or b""
        whole = len(content) // 8 * 8
        for at in range(0, whole, 8):
            place = self.line(f"getelementptr i8, ptr {data}, i64 {at}")
            word = self.line(f"load i64, ptr {place}, align 1")
            self.same("i64", word, int.from_bytes(content[at : at + 8], sys.byteorder, signed=True))
        for at in range(whole, len(content)):
            self.same("i8", self.field(data, at, "i8"), content[at])

    def _take_or_make_results(self) -> list[str]:
        """The outputs' list, the caller's or a new one of new arrays. It gives where addresses stand."""
        given, make, ready = self.name(), self.name(), self.name()
        places = [self.line(f"getelementptr ptr, ptr %ys, i64 {k}") for k in range(len(self._makes))]
        two = self.line("icmp eq i64 %n, 2")
        self.lines += [f"  br i1 {two}, label %{given}, label %{make}", f"{given}:"]
        results = self.field("%args", 8)
        self.lines += [f"  call void @Py_IncRef(ptr {results})", f"  store ptr {results}, ptr %results.at"]
        items = self.field(results, _ITEMS)
        for k, place in enumerate(places):
            self.lines.append(f"  store ptr {self.field(items, 8 * k)}, ptr {place}")
        self.lines += [f"  br label %{ready}", f"{make}:"]
        results = self.line(f"call ptr @PyList_New(i64 {len(self._makes)})")
        self.expect(f"icmp ne ptr {results}, null")
        self.lines.append(f"  store ptr {results}, ptr %results.at")
        self.owned += 1
        for k, (made, place) in enumerate(zip(self._makes, places, strict=True)):
            if made.sizes is None:
                continue
            listed = ", ".join(f"i64 {n}" for n in made.sizes or (0,))
            length = max(len(made.sizes), 1)
            self._constants.append(f"@sizes{k} = internal constant [{length} x i64] [{listed}]")
            y = self.array(self._array, self._dtype(k), len(made.sizes), f"@sizes{k}")
            self.expect(f"icmp ne ptr {y}, null")
            self.line(f"call i32 @PyList_SetItem(ptr {results}, i64 {k}, ptr {y})")
            self.lines.append(f"  store ptr {y}, ptr {place}")
        self.lines += [f"  br label %{ready}", f"{ready}:"]
        return places

    def _fill_words(self, memory: str, arrays: Sequence[str], places: Sequence[str]) -> None:
        """What the program takes: where its memory is, and where inputs' and outputs' addresses stand."""
        read = (arrays[r] for r in self._reads)
        fields = [self.line(f"getelementptr i8, ptr {x}, i64 {DATA}") for x in read]
        for made, place in zip(self._makes, places, strict=True):
            if made.sizes is None:
                home = self.line(f"getelementptr i8, ptr {memory}, i64 {made.home}")
                self.lines.append(f"  store ptr {home}, ptr {place}")
                fields.append(place)
            else:
                y = self.line(f"load ptr, ptr {place}")
                fields.append(self.line(f"getelementptr i8, ptr {y}, i64 {DATA}"))
        words = {
            ARENA: self.line(f"getelementptr i8, ptr {memory}, i64 {DETAIL_BYTES}"),
            WEIGHTS: self._known(_CONSTANTS),
            DETAIL: memory,
        }
        words |= {FIRST + k: field for k, field in enumerate(fields)}
        for k, value in words.items():
            place = self.line(f"getelementptr ptr, ptr %words, i64 {k}")
            self.lines.append(f"  store ptr {value}, ptr {place}")

    def _run(self) -> None:
        # what makes the outputs may have run Python's collector, and others may have come meanwhile
        self.answer(self._none)
        self.same("i64", self.line(f"load i64, ptr {self._busy}"), 0)
        self._set_busy(1)
        code = self.line("call i32 @program(ptr %words)")
        self._set_busy(0)
        # a node that failed is told by the ordinary way, which meets it again; a signal has made an exception
        stopped = self.line(f"icmp slt i32 {code}, 0")
        self.answer(self.line(f"select i1 {stopped}, ptr null, ptr {self._none}"))
        self.same("i32", code, 0)

    def _set_busy(self, busy: int) -> None:
        self.lines.append(f"  store i64 {busy}, ptr {self._busy}")

    def _copy_open(self, memory: str, results: str) -> None:
        """The outputs whose sizes the program has told, out of its memory into new arrays."""
        self._set_busy(1)
        lost, done = self.name(), self.name()
        for k in self._open:
            place = f"ptr {results}, i64 {k}"
            self.copied(self._makes[k], memory, self._array, self._dtype(k), place, lost)
        self._set_busy(0)
        self.lines += [f"  br label %{done}", f"{lost}:"]
        self._set_busy(0)
        self.lines += [f"  br label %drop{self.owned}", f"{done}:"]

    def _leave(self, arrays: Sequence[str]) -> None:
        """Give up what is owned, whose ways out lie beneath each other, and return the answer."""
        self.lines.append(f"  br label %drop{self.owned}")
        self.lines += [f"drop{self.owned}:", "  %results = load ptr, ptr %results.at"]
        self.lines += ["  call void @Py_DecRef(ptr %results)", f"  br label %drop{len(arrays)}"]
        for k, x in reversed([*enumerate(arrays)]):
            self.lines += [f"drop{k + 1}:", f"  call void @Py_DecRef(ptr {x})", f"  br label %drop{k}"]
        none = self._none
        self.lines += [
            "drop0:",
            "  %found = load ptr, ptr %answer",
            f"  %missed = icmp eq ptr %found, {none}",
        ]
        self.lines += ["  br i1 %missed, label %miss, label %out", "out:", "  ret ptr %found", "miss:"]
        self.lines += [
            "  call void @PyErr_Clear()",
            f"  call void @Py_IncRef(ptr {none})",
            f"  ret ptr {none}",
        ]
