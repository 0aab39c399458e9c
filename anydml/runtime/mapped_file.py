"""A file as memory: of what is only mapped, memory holds no more than the system likes to."""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anydml.errors import InvalidModel, Problem

MIN_FILE_BYTES = 1 << 20
"""Bytes of a file from which it pays to map it; a smaller one is read."""


class MappedFile:
    """A model's file as memory."""

    def __init__(self, path: Path) -> None:
        """Raises:
        OSError: it cannot be read, or mapped.
        """
        self._path, self._file = path, os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._stamp = self._now()
        self.data = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns

    def check(self) -> None:
        """Raises:
        InvalidModel: the file was written to. (One that was replaced is still there as it was.)
        """
        if self._now() != self._stamp:
            message = "expected the file that was loaded, but it was written to since"
            raise InvalidModel(Problem(str(self._path), message, "load it again; or load its bytes"))

    def release(self) -> None:
        """Let the system have the memory back, until somebody reads again."""
        self.data.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class InFile:
    """Bytes of a model's file."""

    file: MappedFile
    offset: int


def can_map() -> bool:
    """Whether a mapped file may be replaced meanwhile, and its memory given back."""
    return hasattr(mmap, "MADV_DONTNEED")


def owned(content: Any) -> Any:
    """The content; or a copy, if it is an array in a mapped file, for whoever reads it while a model runs."""
    base = content
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    return content.copy() if isinstance(base, mmap.mmap) else content
