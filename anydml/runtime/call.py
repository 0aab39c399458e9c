"""Calls of operators' functions that are like earlier ones: machine code between Python and a kernel.

Checking what a call's arguments mean takes far longer than computing some hundred elements. So what follows
from the arguments' kinds is written into a record, by which call.ll knows the next call of that kind: it
compares the arguments, makes the output and runs the kernel. One record serves packed arrays of one shape,
whatever that is; other layouts have one each.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from anydml.codegen.descriptor import ADDRESSES, Fields, ir_file
from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.jit import compile_ir, driver
from anydml.codegen.kernel import (
    MAX_CHUNK_ELEMENTS,
    MIN_CHUNK_ELEMENTS,
    MIN_PERHAPS_BYTES,
    MIN_SPLIT_BYTES,
    MIN_STREAMED_BYTES,
    MIN_WAKE_BYTES,
    MemoryOperand,
    kernel_address,
    make_descriptor,
)
from anydml.codegen.python_objects import (
    DATA,
    DIGIT,
    DTYPE,
    FLAGS,
    ITEMS,
    RANK,
    SIZES,
    TUPLE_ITEMS,
    TYPE,
    VALUE,
    built_in,
    context_of,
    have_known_layout,
    register_functions,
    register_new_array,
)
from anydml.dataclass import dataclass
from anydml.errors import require
from anydml.runtime.addresses import address, has_no_gaps
from anydml.runtime.arguments import NOT_OPERANDS, Argument, Kind, Layout, layout_words
from anydml.runtime.launch import threads_for
from anydml.runtime.process import RenewedLock, renew_after_fork
from anydml.runtime.threads import pool

MAX_RECORDS = 8
"""Of a function: the kinds of calls that it knows."""
MAX_PATIENCE = 64
"""Where records are replaced before they are of use, one of so many calls at most gets one."""
MAX_RETIRED = 512
"""Records that calls may be using still: with more, nothing new is known."""
MAX_ARGUMENTS = 32
"""What lists hold included."""
MAX_DESCRIPTOR_WORDS = 256


@dataclass(frozen=True)
class Packed:
    """A kernel over packed arrays of one shape, whatever that is. The operands among a call's arguments are
    its, in its order; the output is the last one."""

    group: KernelSpec
    result: np.dtype[Any]


@dataclass(frozen=True)
class Launched:
    """Launches over arrays of exactly these layouts."""

    launches: Sequence[tuple[array[int], Sequence[int]]]
    """Each descriptor, with addresses as they are seen from where arrays begin; and from which array each is:
    the operands among a call's arguments, then the outputs. -1: it is an address for itself."""
    targets: Sequence[np.ndarray[Any, Any]]
    """Outputs like those that are to be made."""
    cost: int
    """About how many bytes all of it is like."""
    kept: object = None
    """What descriptors lead to."""
    exclusive: bool = False
    """Whether they write to memory of their own, so that they run once at a time."""


@dataclass(frozen=True)
class KnownCall:
    """What follows from a call's arguments."""

    arguments: Sequence[Argument]
    how: Packed | Launched


def kernel_launched(kernel: KernelSpec, operands: Sequence[np.ndarray[Any, Any]]) -> Launched:
    """A kernel over these arrays, whose inputs are a call's, in this order; the last one is its output."""
    target = operands[-1]
    memory = [MemoryOperand(address(x), x.strides) for x in operands]
    made = make_descriptor(kernel, target.shape, memory, pool=pool.address, threads=threads_for(None))
    for k, operand in enumerate(memory):
        made[ADDRESSES + k] -= operand.address
    extents = Fields(*made[:ADDRESSES]).operands - len(operands)
    places = [*range(len(operands)), *[-1] * extents]
    return Launched([(made, places)], [target], target.size * kernel.cost)


knowing = RenewedLock()
"""Held while a function comes to know a call."""


class KnownCalls:
    """The calls that a function knows."""

    def __init__(self, slow: Callable[..., Any]) -> None:
        """`slow`: takes the same arguments, all by position, and any others."""
        self._slow = slow
        self._made: list[tuple[array[int], object]] = []
        """The records, the oldest first, and what they lead to."""
        self._retired: list[object] = []
        """Those that are replaced, while calls of other threads may be using them."""
        self._known = 0
        self._patience, self._passed = 1, 0
        """One of how many calls that are not known gets a record; how many have not since the last one."""
        self._context = context_of(_Context.words(slow), ())
        renew_after_fork(self)

    def is_due(self) -> bool:
        """Count one more call that is not known: whether it is to get a record.

        Calls of ever new kinds would replace records that nobody has used, and making one takes as long as
        several calls without.
        """
        self._passed += 1
        return self._passed >= self._patience and len(self._retired) < MAX_RETIRED

    def function(self) -> Callable[..., Any]:
        """What knows them, and calls `slow` with what it does not know. Keep this object as long."""
        self._context.kept = self._slow
        return built_in(_code()[0], self._context)

    def add(self, call: KnownCall) -> None:
        """Know one more; the oldest is forgotten where they are too many."""
        listed = _in_order(call.arguments)
        places = len(listed) + (len(call.how.targets) if isinstance(call.how, Launched) else 1)
        if places > MAX_ARGUMENTS:  # call.ll has room for so many
            return
        self._context[_Context.THREADS] = threads_for(None)
        words = [0] * _Record.KINDS
        words[_Record.TAKES] = len(call.arguments)
        words[_Record.ENTRIES] = len(listed)
        if isinstance(call.how, Packed):
            kept = self._of_packed(call.how, call.arguments, words)
        else:
            kept = self._of_layouts(call.how, listed, words)
        if kept is None:
            return
        for argument, source, place in listed:
            words += [argument.kind, *argument.words, source, place]
        record = array("q", words)
        with knowing.lock:
            self._passed = 0
            self._context[_Context.RECORDS + self._known % MAX_RECORDS] = record.buffer_info()[0]
            self._known += 1
            self._context[_Context.COUNT] = min(self._known, MAX_RECORDS)
            self._made.append((record, (call.arguments, kept)))
            if len(self._made) > MAX_RECORDS:
                used = self._made[0][0][_Record.HITS]
                self._patience = 1 if used else min(2 * self._patience, MAX_PATIENCE)
                self._retire(1)

    def _retire(self, count: int) -> None:
        """Give up the oldest records, which the context has no more, as soon as no call is using them."""
        self._retired += self._made[:count]
        del self._made[:count]
        if not self._context[_Context.USERS]:
            self._retired.clear()

    def _of_packed(self, how: Packed, arguments: Sequence[Argument], words: list[int]) -> object:
        """The words of a call of packed arrays."""
        strides = [a.stride for a in arguments if a.kind not in NOT_OPERANDS]
        if len(strides) < len(how.group.operands):
            strides.append(how.result.itemsize)
        access = tuple(Access.PACKED if s else Access.SPLAT for s in strides)
        words[_Record.OPERANDS] = len(how.group.operands)
        words[_Record.RESULT] = id(how.result)
        words[_Record.KERNEL] = kernel_address(how.group, KernelVariant(access))
        words[_Record.WIDTH] = how.group.cost
        words[_Record.STRIDES : _Record.STRIDES + len(strides)] = strides
        return how

    def _of_layouts(self, how: Launched, listed: Sequence[_Entry], words: list[int]) -> object:
        """Of others; None if that is too long."""
        if any(len(descriptor) > MAX_DESCRIPTOR_WORDS for descriptor, _ in how.launches):
            return None
        layouts = [array("q", layout_words(y, y, False, True)) for y in how.targets]
        written = sum(a.kind is Kind.LAYOUT_OUT for a, _, _ in listed)
        targets = array("q")
        for x, y in zip(layouts, how.targets, strict=True):
            require(written > 0 or has_no_gaps(y))  # else a new one would not have as much memory
            strides = 0 if y.flags.c_contiguous else start(x) + 8 * (Layout.SIZES + y.ndim)
            targets.extend((start(x), id(y.dtype), strides))
        operands = sum(a.kind not in NOT_OPERANDS for a, _, _ in listed)
        every = [array("q", places) for _, places in how.launches]
        steps = array("q")
        for places, (descriptor, _) in zip(every, how.launches, strict=True):
            require(
                len(places) == Fields(*descriptor[:ADDRESSES]).operands,
                all(k < operands - written + len(how.targets) for k in places),
            )
            steps.extend((start(descriptor), len(descriptor), start(places)))
        words[_Record.OPERANDS], words[_Record.OUTPUTS] = operands - written, len(how.targets)
        words[_Record.DESCRIPTOR], words[_Record.LAUNCHES] = start(steps), len(every)
        words[_Record.TARGETS], words[_Record.EXCLUSIVE] = start(targets), int(how.exclusive)
        words[_Record.WIDTH] = how.cost
        types = [y.dtype for y in how.targets]  # and not their memory, which is the caller's
        return how.launches, how.kept, types, layouts, targets, every, steps

    def forget(self) -> None:
        """Know none any more."""
        with knowing.lock:
            self._context[_Context.COUNT] = self._known = 0
            self._retire(len(self._made))

    def after_fork(self) -> None:
        """In a child, which has no workers: the next call goes the ordinary way, and starts them. Nobody
        else is using records."""
        self._context[_Context.USERS] = 0
        self.forget()


_Entry = tuple[Argument, int, int]
_ENTRY_WORDS = 5


def _in_order(arguments: Sequence[Argument]) -> list[_Entry]:
    """Arguments, each list before what it holds; in which list each is, and where."""
    found: list[_Entry] = []
    lists = 0

    def take(some: Sequence[Argument], source: int) -> None:
        nonlocal lists
        for k, argument in enumerate(some):
            found.append((argument, source, k))
            if argument.kind in (Kind.LIST, Kind.TUPLE):
                lists += 1
                take(argument.holds, lists)

    take(arguments, 0)
    return found


def start(words: array[int]) -> int:
    """Where they lie."""
    return words.buffer_info()[0]


class _Context(IntEnum):
    """Words of the context."""

    SLOW = 0
    ARRAY = 1
    FLOAT = 2
    THREADS = 3
    POOL = 4
    COUNT = 5
    """Of records."""
    USERS = 6
    """The calls that are using records."""
    RECORDS = 7

    @staticmethod
    def words(slow: object) -> list[int]:
        return [id(slow), id(np.ndarray), id(float), 1, pool.address, 0, 0] + [0] * MAX_RECORDS


class _Record(IntEnum):
    """Words of a record."""

    TAKES = 0
    """How many arguments."""
    ENTRIES = 1
    """What is compared: arguments, and what lists hold."""
    WIDTH = 2
    """About how many bytes an element is like (`KernelSpec.cost`); with a descriptor, all elements."""
    OPERANDS = 3
    """Of the kernel; with a descriptor, the arrays and numbers among what is compared, without outputs."""
    KERNEL = 4
    RESULT = 5
    """The type of a new output."""
    DESCRIPTOR = 6
    """Where it says of each descriptor where it is, how many words it has, and where it says from which array
    each address is seen; or 0. Then how many there are, and what else calls with descriptors need."""
    LAUNCHES = 7
    OUTPUTS = 8
    TARGETS = 9
    """Where it says of each output where its layout is, its type, and its strides (0: those of C's order)."""
    EXCLUSIVE = 10
    """1: one call at a time..."""
    BUSY = 11
    """...and 1 while there is one."""
    HITS = 12
    """How many calls it has served."""
    STRIDES = 13
    KINDS = STRIDES + MAX_ARGUMENTS
    """Of each entry its kind, two words, and where it is: in which list (0: the arguments), and at which
    place."""


class _Bound(IntEnum):
    """Words of bound descriptors' context."""

    SLOW = 0
    NONE = 1
    COUNT = 2
    LONG = 3
    """Whether other Python threads may run meanwhile."""
    DESCRIPTORS = 4


def bound_dispatch(descriptors: Sequence[array[int]], moved: int, kept: object) -> Callable[[], None]:
    """A function that runs these descriptors, and keeps what they need. `moved`: bytes, by all of them."""
    run, starts = driver().run, [descriptor.buffer_info()[0] for descriptor in descriptors]

    def dispatch() -> None:
        for start in starts:
            run(start)

    if not starts or not have_known_layout():
        dispatch.__dict__["keeps"] = (descriptors, kept)
        return dispatch
    words = [id(dispatch), id(None), len(starts), int(moved >= MIN_SPLIT_BYTES), *starts]
    return built_in(_code()[1], context_of(words, (dispatch, descriptors, kept)))


@lru_cache
def _code() -> list[int]:
    """The addresses of call.ll's functions."""
    driver()
    names = """PyObject_Vectorcall PyEval_SaveThread PyEval_RestoreThread Py_IncRef Py_DecRef PyErr_Clear
               PyTuple_New PyTuple_SetItem""".split()
    register_functions(names)
    register_new_array()
    return compile_ir(_text(), ["anydml_call", "anydml_dispatch"], level=0)


def _text() -> str:
    """call.ll with numbers for its words."""
    words = {"type": TYPE, "data": DATA, "rank": RANK, "sizes": SIZES, "strides": SIZES + 8, "dtype": DTYPE}
    words |= {
        "flags": FLAGS,
        "value": VALUE,
        "items": ITEMS,
        "tuple": TUPLE_ITEMS,
        "digit": DIGIT,
        "words": _ENTRY_WORDS,
        "arguments": MAX_ARGUMENTS,
        "descriptor": MAX_DESCRIPTOR_WORDS,
    }
    words |= {"least": MIN_CHUNK_ELEMENTS, "chunk": MAX_CHUNK_ELEMENTS}
    words |= {"split": MIN_SPLIT_BYTES, "most": MIN_STREAMED_BYTES}
    words |= {"perhaps": MIN_PERHAPS_BYTES, "wake": MIN_WAKE_BYTES}
    words |= {k.name: int(k) for k in Kind}
    for name, places in {"context": _Context, "record": _Record, "layout": Layout, "bound": _Bound}.items():
        words |= {f"{name}.{place.name.lower()}": int(place) for place in places}
    text = ir_file("call.ll")
    return re.sub(r"WORD\((\w+(?:\.\w+)?)\)", lambda found: str(words[found[1]]), text)
