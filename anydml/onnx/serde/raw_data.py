"""Large initializers, left where they lie in a model's file, so that reading a model copies none of them.

    model { graph { initializer { dims, raw_data: 400 MB } } }   ->   the same with a token for raw_data

A mapped file stays so while a session may have to make further plans. It may be written to meanwhile, so
that nothing that runs reads it: libraries are given its contents to copy, and steps have copies.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from anydml.dataclass import dataclass, field
from anydml.runtime.mapped_file import InFile, MappedFile

MAX_DEPTH = 100
"""Messages in each other, at most: protobuf reads no more."""
MIN_RAW_BYTES = 1 << 16
"""Bytes of raw data from which it is left where it lies."""


@dataclass
class RawData:
    """What was taken out of a message, by the tokens that stand there instead."""

    data: bytes | MappedFile
    _places: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    _secret: bytes = field(default_factory=lambda: os.urandom(24))
    """No file can have a token of its own."""

    def without(self) -> bytes:
        """The file with tokens, which protobuf can parse; or as it is, if it is damaged."""
        whole = memoryview(self._bytes)
        try:
            parts = self._strip(whole, 0, len(whole), "model", MAX_DEPTH)
        except _Damaged:
            parts = None
        return bytes(whole) if parts is None else b"".join(parts)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def _bytes(self) -> bytes | mmap.mmap:
        return self.data.data if isinstance(self.data, MappedFile) else self.data

    def of(self, token: bytes) -> tuple[memoryview, InFile | None] | None:
        """The raw data that a token stands for, and where it lies in a mapped file; None: it is no token."""
        place = self._places.get(token) if len(token) == len(self._secret) + 8 else None
        if place is None:
            return None
        start, end = place
        where = InFile(self.data, start) if isinstance(self.data, MappedFile) else None
        return memoryview(self._bytes)[start:end], where

    def _strip(
        self, data: memoryview, start: int, end: int, kind: str, depth: int
    ) -> list[bytes | memoryview] | None:
        """A message in parts, with tokens for large raw data in it; None if there is none in it."""
        if not depth:
            raise _Damaged
        parts: list[bytes | memoryview] = []
        kept = start
        for number, first, content, last in _fields(data, start, end, _LISTS.get(kind, _NONE)):
            inner = _INNER[kind].get(number)
            if last - content < MIN_RAW_BYTES or inner is None:
                continue
            new = (
                self._token(content, last)
                if inner == "raw"
                else self._strip(data, content, last, inner, depth - 1)
            )
            if new is not None:
                parts += data[kept:first], _varint_bytes(number << 3 | 2), _varint_bytes(sum(map(len, new)))
                parts += new
                kept = last
        return [*parts, data[kept:end]] if parts else None

    def _token(self, start: int, end: int) -> list[bytes | memoryview]:
        token = self._secret + len(self._places).to_bytes(8, "little")
        self._places[token] = start, end
        return [token]


_INNER = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {6: "graph"},
    "tensor": {9: "raw"},
}
"""Fields that lead to initializers, by the numbers that ONNX's messages have for them."""

_NONE: frozenset[int] = frozenset()
_LISTS = {"attribute": frozenset({7, 8, 9}), "tensor": frozenset({4, 5, 6, 7, 10, 11})}
"""Fields that may be millions of numbers or texts, one by one, as in trees; they have nothing to find."""


class _Damaged(Exception):
    """No message of protobuf; it can say better what is wrong."""


def _fields(
    data: memoryview, start: int, end: int, until: frozenset[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Of fields with a length: number, and where the field begins, its content, and what follows; those up to
    one of a number in `until`."""
    at = start
    while at < end:
        first = at
        tag, at = _varint(data, at, end)
        if tag >> 3 in until:
            return
        wire = tag & 7
        if wire == 2:
            length, at = _varint(data, at, end)
            if length > end - at:
                raise _Damaged
            yield tag >> 3, first, at, at + length
            at += length
        elif wire == 0:
            _, at = _varint(data, at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise _Damaged
    if at != end:
        raise _Damaged


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends."""
    result = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
    raise _Damaged


def _varint_bytes(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
