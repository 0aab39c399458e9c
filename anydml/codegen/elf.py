"""Object files to machine code in memory, without LLVM: a process whose code is on disk has no need of it.

    .rodata.cst4  ┐                          ┌─ constants ─┐ read, execute
    .ltext        ┴─ laid out, addresses ->  └─ functions ─┘
                     written in (R_X86_64_64)

For ELF and x86-64. LLVM writes code that may lie anywhere with whole addresses of 8 bytes, so there is one
kind of relocation; anything else is left to LLVM's own linker.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache
from struct import Struct, error
from typing import Any

from anydml.dataclass import dataclass
from anydml.errors import OutOfMemory, Problem

_HEADER = Struct("<4sBBB9xHHI3QI6H")
_SECTION = Struct("<II4QII2Q")
_SYMBOL = Struct("<IBBHQQ")
_RELOCATION = Struct("<QQq")
_ADDRESS = Struct("<Q")

_X86_64 = 62
_SYMBOLS, _RELOCATIONS, _EMPTY, _UNWINDING = 2, 4, 8, 0x70000001
"""Types of sections. What unwinds stacks is left out: no exception passes through code."""
_WRITABLE, _LOADED = 1, 2
"""Flags of sections."""
_UNDEFINED, _FIRST_SPECIAL = 0, 0xFF00
"""Numbers of sections that symbols may have instead of one: defined elsewhere; something else."""
_WHOLE_ADDRESS = 1
"""The type of relocation: R_X86_64_64."""


class NotLinkable(Exception):
    """Something is left to LLVM."""


class LinkedCode:
    """Machine code that lives as long as this object, and the addresses of what it defines."""

    def __init__(self, memory: mmap.mmap, symbols: dict[str, int]) -> None:
        self._memory, self._symbols = memory, symbols

    def address(self, symbol: str) -> int:
        return self._symbols[symbol]


@dataclass(frozen=True)
class _Section:
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int


def link(code: bytes, find: Callable[[str], int | None]) -> LinkedCode:
    """The object file as code that can be called. `find` has addresses of what it does not define.

    Raises:
        NotLinkable: it has something that only LLVM links, or this machine does not let memory be executed.
        OutOfMemory: there is none for it.
    """
    if sys.platform != "linux":
        raise NotLinkable(f"memory of {sys.platform}")
    try:
        sections = _sections(code)
        offsets, size = _layout(sections)
        memory = _memory(max(size, 1))
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for number, offset in offsets.items():
            section = sections[number]
            memory[offset : offset + section.size] = code[section.offset : section.offset + section.size]
        symbols = _symbols(code, sections, {k: base + offset for k, offset in offsets.items()}, find)
        for section in sections:
            if section.type == _RELOCATIONS and section.info in offsets:
                length = sections[section.info].size
                _relocate(memory, offsets[section.info], length, _content(code, section), symbols)
    except (error, ValueError, IndexError, KeyError, UnicodeDecodeError) as why:
        raise NotLinkable(f"damaged: {why}") from why
    _make_executable(base, len(memory))
    return LinkedCode(memory, {name: at for name, at in symbols if name and at is not None})


def _memory(size: int) -> mmap.mmap:
    """Raises:
    OutOfMemory: the system has none, or no more places for some.
    """
    try:
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as why:
        message = f"expected {size:,} bytes of memory for machine code, but there are none: {why.strerror}"
        raise OutOfMemory(Problem("", message)) from why


def _sections(code: bytes) -> list[_Section]:
    magic, bits, order, _, _, machine, *_, at, _, _, _, _, length, count, _ = _HEADER.unpack_from(code)
    if (magic, bits, order, machine) != (b"\x7fELF", 2, 1, _X86_64) or length != _SECTION.size:
        raise NotLinkable("not ELF for x86-64")
    found = []
    for k in range(count):
        _, type, flags, _, offset, size, link, info, alignment, _ = _SECTION.unpack_from(
            code, at + k * length
        )
        if type != _EMPTY and offset + size > len(code):
            raise NotLinkable("a section outside of its file")
        found.append(_Section(type, flags, offset, size, link, info, max(alignment, 1)))
    return found


def _layout(sections: list[_Section]) -> tuple[dict[int, int], int]:
    """Where each section that is loaded begins, and how many bytes they take."""
    offsets, end = {}, 0
    for number, section in enumerate(sections):
        if not section.flags & _LOADED or section.type == _UNWINDING or not section.size:
            continue
        if section.flags & _WRITABLE or section.type == _EMPTY or section.alignment > mmap.PAGESIZE:
            raise NotLinkable("variables")
        offsets[number] = -(-end // section.alignment) * section.alignment
        end = offsets[number] + section.size
    return offsets, end


def _symbols(
    code: bytes, sections: list[_Section], starts: dict[int, int], find: Callable[[str], int | None]
) -> list[tuple[str, int | None]]:
    """Names and addresses of the symbols, as relocations number them."""
    (table,) = [s for s in sections if s.type == _SYMBOLS]
    names = _content(code, sections[table.link])
    found: list[tuple[str, int | None]] = []
    for at, _, _, section, value, _ in _SYMBOL.iter_unpack(_content(code, table)):
        name = names[at : names.index(b"\0", at)].decode()
        address = None
        if section == _UNDEFINED:
            address = find(name) if name else None
        elif section < _FIRST_SPECIAL and section in starts:
            address = starts[section] + value
        found.append((name, address))
    return found


def _relocate(
    memory: mmap.mmap, start: int, size: int, entries: bytes, symbols: list[tuple[str, int | None]]
) -> None:
    """Write addresses into a section of this size, which begins there in the memory."""
    for at, kind, value in _RELOCATION.iter_unpack(entries):
        if kind & 0xFFFFFFFF != _WHOLE_ADDRESS:
            raise NotLinkable(f"relocation {kind & 0xFFFFFFFF}")
        if not 0 <= at <= size - _ADDRESS.size:
            raise NotLinkable("a relocation outside of its section")
        name, target = symbols[kind >> 32]
        if target is None:
            raise NotLinkable(f"nothing is called {name}")
        _ADDRESS.pack_into(memory, start + at, target + value)


def _content(code: bytes, section: _Section) -> bytes:
    return code[section.offset : section.offset + section.size]


def _make_executable(address: int, size: int) -> None:
    """From here on nobody writes to the code."""
    if _protect()(address, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise NotLinkable("memory must not be executed here")


@cache
def _protect() -> Any:
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes, protect.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
    return protect
