"""Reading FlatBuffers of which nothing is trusted: every offset is checked before it is followed.

table = root(data)                          the table that the file is about
table.text(0), table.strings(1)             its fields, by their number in the schema
table.tables(2)[0].member(0)                tables behind tables; a union's member with its kind
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass, field
from anydml.errors import InvalidModel, Problem, counted

MAX_DEPTH = 32
"""How many tables lie behind one another at most: real files have some six."""


def root(data: bytes) -> Table:
    """The first table.

    Raises:
        InvalidModel: here, or wherever a field is read: the place in the file, and what is wrong with it.
    """
    start = _unpack(data, "<I", 0)
    return Table(data, start)


def _broken(at: int, message: str) -> InvalidModel:
    return InvalidModel(Problem(f"byte {at}", message))


def _unpack(data: bytes, form: str, at: int) -> Any:
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise _broken(at, f"expected {struct.calcsize(form)} bytes more, but the file has {len(data)}")
    return struct.unpack_from(form, data, at)[0]


@dataclass(frozen=True)
class Table:
    """A table that begins at a place. Fields that it does not have read as None, or as nothing."""

    data: bytes
    at: int
    depth: int = 0
    met: Iterator[int] = field(default_factory=count, compare=False)
    """Counts the tables of the file that were read."""

    def __post_init__(self) -> None:
        if self.depth > MAX_DEPTH:
            raise _broken(self.at, f"expected at most {MAX_DEPTH} tables behind one another, but got more")
        if next(self.met) > len(self.data):  # each has four bytes at least: some are read again and again
            raise _broken(self.at, "expected tables that are each behind one other, but many share them")
        vtable = self.at - _unpack(self.data, "<i", self.at)
        size = _unpack(self.data, "<H", vtable)
        if size < 4 or size % 2 or vtable + size > len(self.data):
            raise _broken(vtable, f"expected a table of fields, but got one of {size} bytes")

    def place(self, field: int) -> int | None:
        """Where a field lies."""
        vtable = self.at - _unpack(self.data, "<i", self.at)
        entry = 4 + 2 * field
        if entry + 2 > _unpack(self.data, "<H", vtable):
            return None
        offset = _unpack(self.data, "<H", vtable + entry)
        return self.at + offset if offset else None

    def scalar(self, field: int, form: str, default: Any = 0) -> Any:
        """A number: `form` as in `struct`."""
        at = self.place(field)
        return default if at is None else _unpack(self.data, form, at)

    def number(self, at: int, form: str) -> Any:
        """A number anywhere in the file."""
        return _unpack(self.data, form, at)

    def followed(self, field: int) -> int | None:
        """Where the offset in a field leads."""
        at = self.place(field)
        return None if at is None else at + int(_unpack(self.data, "<I", at))

    def table(self, field: int) -> Table | None:
        at = self.followed(field)
        return None if at is None else self._behind(at)

    def text(self, field: int) -> str:
        at = self.followed(field)
        return "" if at is None else _text(self.data, at)

    def vector(self, field: int, dtype: str) -> NDArray[Any] | None:
        """A vector of numbers."""
        at = self.followed(field)
        if at is None:
            return None
        count = _unpack(self.data, "<I", at)
        kind = np.dtype(dtype)
        if count * kind.itemsize > len(self.data) - at - 4:
            raise _broken(at, f"expected {counted(count, 'element')} of {kind}, but the file ends before")
        return np.frombuffer(self.data, kind, count, at + 4)

    def tables(self, field: int) -> list[Table]:
        return list(map(self._behind, self._each(field)))

    def _behind(self, at: int) -> Table:
        return Table(self.data, at, self.depth + 1, self.met)

    def strings(self, field: int) -> list[str]:
        return [_text(self.data, at) for at in self._each(field)]

    def _each(self, field: int) -> Iterator[int]:
        """Where the offsets of a vector lead."""
        at = self.followed(field)
        if at is None:
            return
        count = _unpack(self.data, "<I", at)
        if 4 * count > len(self.data) - at - 4:
            raise _broken(at, f"expected {count} offsets, but the file ends before")
        for k in range(count):
            place = at + 4 + 4 * k
            yield place + int(_unpack(self.data, "<I", place))


def _text(data: bytes, at: int) -> str:
    count = _unpack(data, "<I", at)
    if count > len(data) - at - 4:
        raise _broken(at, f"expected a text of {count} bytes, but the file ends before")
    try:
        return data[at + 4 : at + 4 + count].decode()
    except UnicodeDecodeError as error:
        raise _broken(at, "expected a text in UTF-8, but it is none") from error
