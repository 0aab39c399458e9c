"""A program's function as machine code, and how it is called."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from weakref import WeakValueDictionary
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.jit import load_code
from anydml.codegen.program.bounded import fill
from anydml.codegen.program.builder import Failure, ProgramBuilder
from anydml.codegen.program.entry import NativeEntry, can_enter, entry_text
from anydml.codegen.program.feeds import Fed, Input, Made, Output
from anydml.codegen.program.layout import ALIGNMENT, ARENA, DETAIL, DETAIL_BYTES, FIRST, WEIGHTS, aligned
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.types import array_type
from anydml.codegen.program.values import Bounded, Memory, Pending, Tensor
from anydml.codegen.python_objects import DATA, SIZES, register_functions
from anydml.dataclass import replace
from anydml.ops.dtypes import INT64, SIZE, ScalarType
from anydml.ops.tensor_desc import packed_strides

Array = NDArray[np.generic]
LONG_WORK = 1 << 18
"""Elements computed from which other Python threads may run meanwhile: some 50 us."""


class ProgramFailed(Exception):
    """A node of the program failed, or left what it was given to others."""

    def __init__(self, failure: Failure, number: int) -> None:
        super().__init__(failure.message.format(number))
        self.node, self.left = failure.node, failure.left


class NativeProgram:
    """A graph as one function of machine code. Safe from several threads."""

    def __init__(
        self,
        b: ProgramBuilder,
        inputs: Sequence[ScalarType],
        outputs: Sequence[Output],
        feeds: Sequence[Fed] = (),
        reads: Sequence[int] = (),
    ) -> None:
        """`b` has written the code, which reads `%in0`, ... and writes `outputs`.

        Args:
            feeds: what a dictionary of arrays has, if one is to be taken; `reads`: the inputs among them.
        """
        self._outputs = outputs
        self.has_fixed_sizes = all(o.sizes is not None for o in outputs)
        self._failures, self.arena_size = b.failures, b.arena.size
        self._weights = _shared(b.weights.content())
        # In loops it gives way to other threads itself; else it is short, or runs without the lock.
        long = b.work > LONG_WORK and not b.polls
        fed = bool(feeds) and not long and can_enter(feeds)
        self.text = _text(b, len(inputs), len(outputs))
        size = DETAIL_BYTES + self.arena_size
        if fed:
            makes, size = _made(outputs, size)
            self.text += entry_text(feeds, reads, makes, b.code.declared)
        self._code = load_code(self.text)
        function = ctypes.CFUNCTYPE if long else ctypes.PYFUNCTYPE
        self._run = function(ctypes.c_int32, ctypes.c_void_p)(self._code.address("program"))
        self._words = array("Q", [0, self._weights.ctypes.data, 0] + [0] * (len(inputs) + len(outputs)))
        self._spare: list[tuple[Array, int]] = []
        """Memory of runs that are over, and its addresses."""
        self.entry: NativeEntry | None = None
        """The same, called with a dictionary."""
        if fed:
            memory = aligned(size)
            dtypes = [array_type(o.dtype) for o in outputs]
            kept = (self._code, self._weights, memory)
            place = self._code.address("entry")
            self.entry = NativeEntry(
                place, feeds, dtypes, memory.ctypes.data, self._weights.ctypes.data, kept
            )

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, which are new, for inputs of the sizes and types that it was made for: packed, aligned
        and in native byte order.

        Raises:
            ProgramFailed: a node failed.
        """
        outputs: list[Array] = [
            np.empty(o.count if o.sizes is None else o.sizes, array_type(o.dtype)) for o in self._outputs
        ]
        for k, sizes in self.run(inputs, outputs):
            outputs[k] = outputs[k][: prod(sizes)].reshape(sizes).copy()
        return outputs

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[tuple[int, tuple[int, ...]]]:
        """Into outputs that are memory of nothing else; the sizes, by number, of those whose sizes the data
        decides: their elements stand in front."""
        words = self._words[:]
        k = FIRST
        for x in inputs:
            words[k] = id(x) + DATA
            k += 1
        for y in outputs:
            words[k] = id(y) + DATA
            k += 1
        try:
            memory, address = self._spare.pop()
        except IndexError:
            memory, address = self._memory()
        words[DETAIL] = address
        words[ARENA] = address + DETAIL_BYTES
        try:
            code = self._run(words.buffer_info()[0])
            if code > 0:
                raise ProgramFailed(self._failures[code - 1], int(memory[:8].view(np.int64)[0]))
            if self.has_fixed_sizes:
                return []
            return [(k, _told(o, memory)) for k, o in enumerate(self._outputs) if o.sizes is None]
        finally:
            self._spare.append((memory, address))

    def _memory(self) -> tuple[Array, int]:
        block = aligned(DETAIL_BYTES + self.arena_size)
        return block, block.ctypes.data


_blocks: WeakValueDictionary[tuple[int, int], Array] = WeakValueDictionary()
"""Constants of programs that are in use, by size and checksum."""


def _shared(block: Array) -> Array:
    """The same constants where another program has them: of another session of the model, or of a plan that
    differs elsewhere."""
    key = block.size, crc32(block.data)
    other = _blocks.get(key)
    if other is not None and np.array_equal(other, block):
        return other
    block.flags.writeable = False
    _blocks[key] = block
    return block


def _made(outputs: Sequence[Output], size: int) -> tuple[list[Made], int]:
    """What an entry is to know of outputs; and how much memory it needs with those whose sizes the data
    decides, which come behind as much as `size`."""
    made = []
    for o in outputs:
        width = array_type(o.dtype).itemsize
        made.append(Made(o.sizes, o.rank, o.place, size, width))
        size += 0 if o.sizes is not None else -(-o.count * width // ALIGNMENT) * ALIGNMENT
    return made, size


def read_inputs(b: ProgramBuilder, inputs: Sequence[Input]) -> list[Tensor]:
    """The inputs of a program, small ones in registers."""
    found: list[Tensor] = []
    for k, given in enumerate(inputs):
        if given.axis is not None:
            found.append(_copied_in(b, k, given, given.axis))
            continue
        memory = Memory(given.dtype, given.sizes, f"%in{k}", packed_strides(given.sizes))
        found.append(b.register(memory) if memory.small else memory)
    return found


def _copied_in(b: ProgramBuilder, k: int, given: Input, axis: int) -> Bounded:
    """An input that is as long along an axis as its array says, where there is room behind it. A longer one,
    and an empty one, are left to others."""
    code, most = b.code, given.sizes[axis]
    listed = code.line(f"getelementptr i8, ptr %in{k}.field, i64 {SIZES - DATA}")
    length = code.load(code.at(code.line(f"load ptr, ptr {listed}"), axis, INT64), INT64)
    fits = code.line(f"icmp ult i64 {code.line(f'sub i64 {length}, 1')}, {most}")
    b.leave_unless(fits, f"expected 1 to {most}, but got {{}}", length)
    whole, inner = b.room(given.dtype, given.sizes), prod(given.sizes[axis + 1 :])
    row = code.times(length, inner)

    def one(index: str, _: list[str]) -> list[str]:
        start = index if index == "0" else code.line(f"mul i64 {index}, {row}")
        home = code.at(whole.pointer, code.times(index, most * inner), whole.dtype)
        code.copy(home, code.at(f"%in{k}", start, whole.dtype), code.times(row, SIZE[whole.dtype]))
        return []

    code.loop(prod(given.sizes[:axis]), one)
    return Bounded.of(whole, axis, length)


def _told(output: Output, memory: Array) -> tuple[int, ...]:
    return tuple(memory[output.place : output.place + 8 * output.rank].view(np.int64).tolist())


def write_outputs(
    b: ProgramBuilder, results: Sequence[Tensor], tell: bool = False, once: bool = False
) -> list[Output]:
    """Write what a program gives to where its outputs are.

    Args:
        tell: their sizes to its memory, too.
        once: whether there is no other end, with other results: what lies in memory then is computed where it
            is to be, and not copied.
    """
    written = []
    for k, result in enumerate(results):
        if result.count:
            home = Memory(result.dtype, result.sizes, f"%out{k}", packed_strides(result.sizes))
            if once and not isinstance(result, Bounded) and _is_computed_before(result):
                result = b.memory(result)
            if not (once and isinstance(result, Memory) and b.computed_there(result, home.pointer)):
                fill(b, result, home)
        sizes = None if tell else result.sizes
        written.append(Output(result.dtype, sizes, result.count, len(result.sizes)))
    if not tell:
        return written
    place = 8  # behind the number of a failure
    for k, result in enumerate(results):
        written[k] = replace(written[k], place=place)
        for axis in range(len(result.sizes)):
            b.code.store(str(b.length(result, axis)), b.code.at("%detail", place // 8, INT64), INT64)
            place += 8
    if place > DETAIL_BYTES:
        raise NotNative("many outputs of sizes that the data decides")
    return written


def _is_computed_before(tensor: Tensor) -> bool:
    """Whether it is written to memory with a product that it is computed of."""
    return not tensor.small and any(isinstance(t, Pending) for t in tensor.leaves.values())


def _text(b: ProgramBuilder, inputs: int, outputs: int) -> str:
    """The module, once all is written."""
    lines = ["define i32 @program(ptr %words) {", "entry:"]
    for name, k in (("arena", ARENA), ("weights", WEIGHTS), ("detail", DETAIL)):
        lines += [
            f"  %{name}.at = getelementptr ptr, ptr %words, i64 {k}",
            f"  %{name} = load ptr, ptr %{name}.at",
        ]
    names = [f"in{k}" for k in range(inputs)] + [f"out{k}" for k in range(outputs)]
    for k, name in enumerate(names):
        lines += [
            f"  %{name}.at = getelementptr ptr, ptr %words, i64 {FIRST + k}",
            f"  %{name}.field = load ptr, ptr %{name}.at",
            f"  %{name} = load ptr, ptr %{name}.field",
        ]
    lines += [*b.code.lines, "  ret i32 0", "}"]
    if b.polls:
        _register_python()
        lines += _POLL
    return "\n".join([*lines, *sorted(b.code.declared)]) + "\n"


_POLL = [
    "declare i32 @PyErr_CheckSignals()",
    "declare ptr @PyEval_SaveThread()",
    "declare void @PyEval_RestoreThread(ptr)",
    "define internal i32 @poll() {",
    "  %state = call ptr @PyEval_SaveThread()",
    "  call void @PyEval_RestoreThread(ptr %state)",
    "  %wants = call i32 @PyErr_CheckSignals()",
    "  ret i32 %wants",
    "}",
]
"""Called with the interpreter's lock: whoever waits gets it; then an exception, if a signal asks for one."""


_register_python = lru_cache(
    partial(register_functions, ("PyErr_CheckSignals", "PyEval_SaveThread", "PyEval_RestoreThread"))
)
