"""A file as memory: of what is only mapped, memory holds no more than the system likes to."""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.errors import InvalidModel, Problem

MIN_FILE_BYTES = 1 << 20
"""Bytes of a file from which it pays to map it; a smaller one is read."""


class MappedFile:
    """A model's file as memory, or one with its external data. It may be moved or deleted."""

    def __init__(self, path: Path, watched: bool = True) -> None:
        """`watched`: it stays open, so that it is noticed if it is written to after it was moved.

        Raises:
            OSError: it cannot be read, or mapped.
        """
        self.path, self._watched, self._file = path, watched, os.open(path, os.O_RDONLY)
        close = weakref.finalize(self, os.close, self._file)
        self.data = mmap.mmap(self._file, 0, access=mmap.ACCESS_READ)
        self.status = os.fstat(self._file)
        if not watched:
            close()

    def check(self) -> None:
        """Raises:
        InvalidModel: the file was written to. (One that was replaced is still there as it was.)
        """
        if not self.is_unchanged():
            message = "expected the file that was loaded, but it was written to since"
            raise InvalidModel(Problem(str(self.path), message, "load it again; or load its bytes"))

    def is_unchanged(self) -> bool:
        """Whether `check` has nothing to say."""
        now, then = os.fstat(self._file) if self._watched else self._at_its_path(), self.status
        return now is None or (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns)

    def is_at_its_path(self) -> bool:
        return self._at_its_path() is not None

    def _at_its_path(self) -> os.stat_result | None:
        """What is known of it, if it is still where it was."""
        try:
            now = os.stat(self.path)
        except OSError:
            return None
        return now if os.path.samestat(now, self.status) else None

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
