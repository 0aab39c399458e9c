"""Where a model came from, for other processes: a path that is still what it was, or the model itself."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from anydml.dataclass import dataclass
from anydml.errors import InvalidModel, Problem
from anydml.onnx.protos import ModelProto
from anydml.onnx.serde.parse import ModelSource

Stamp = tuple[int, int, int]
"""Size, time of the last change in nanoseconds, and number of a file: what tells that it may be another."""


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino


@dataclass(frozen=True)
class Described:
    """What a model is for another process. Equal descriptions are of equal models.

    Attributes:
        place: an absolute path; or the file's bytes.
        digest: SHA-256 of the file.
        files: size and time of external data, by its path.
    """

    place: str | bytes
    digest: str
    files: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True)
class Known:
    """What a small model is known by again, if it is a file of that place; see `known_by`."""

    digest: bytes
    path: str = ""
    stamp: Stamp = (0, 0, 0)


class Source:
    """What a session was loaded from, noted before it is read."""

    def __init__(self, model: ModelSource) -> None:
        self._content: bytes | ModelProto | None = None
        self.path: str | None = None
        self._digest = ""
        self.nofail = not isinstance(model, ModelProto)
        """Whether nobody can have changed it unnoticed."""
        if isinstance(model, str | os.PathLike):
            self.path = os.path.abspath(model)
            with suppress(OSError, ValueError):  # told when it is read
                self._stamp = stamp_of(os.stat(model))
        elif isinstance(model, bytearray | memoryview):
            self._content = bytes(model)
        else:
            self._content = model

    def keep(self) -> None:
        """Keep the model as it is now, to be read again."""
        if isinstance(self._content, ModelProto):
            self._content = self._content.SerializeToString()

    def again(self) -> str | bytes:
        """What it is read from again, once it was kept."""
        assert not isinstance(self._content, ModelProto)
        return self._content or self.path or b""

    def describe(self, files: Mapping[Path, os.stat_result]) -> Described:
        """The model for another process; `files` is its external data, as it was when it was loaded.

        Raises:
            InvalidModel: a file is not what it was.
            OSError: it cannot be read.
        """
        if self.path is None:
            if isinstance(self._content, ModelProto):
                self._content = self._content.SerializeToString()
            content = bytes(self._content or b"")
            self._digest = self._digest or hashlib.sha256(content).hexdigest()
            return Described(content, self._digest)
        data = tuple((str(path), s.st_size, s.st_mtime_ns) for path, s in sorted(files.items()))
        self.check()
        if not self._digest:
            digest = _digest_of(self.path)
            self.check()  # it may have changed meanwhile
            self._digest = digest
        described = Described(self.path, self._digest, data)
        check_files(described, "it was loaded")
        return described

    def is_unchanged(self) -> bool:
        """Whether the file is still the one that was loaded."""
        return self.path is None or (
            os.path.exists(self.path) and stamp_of(os.stat(self.path)) == self._stamp
        )

    def is_known_by(self, known: Known) -> bool:
        """Whether what was told before this was read is of this, and still is."""
        return self.path is None or (known.stamp == self._stamp and self.is_unchanged())

    def check(self) -> None:
        """Raises:
        InvalidModel: the file is not the one that was loaded.
        """
        if not self.is_unchanged():
            assert self.path is not None
            message = "expected the file that was loaded, but it was changed or removed since"
            raise InvalidModel(
                Problem(self.path, message, "load it again; or load its bytes, which go along")
            )


MAX_SAMPLED_BYTES, MAX_BYTES = 1 << 24, 1 << 20
"""Of a file, and of a model in memory, that is known again."""
_PARTS, _PART = 48, 1 << 12


def known_by(model: ModelSource) -> Known | None:
    """What a small model is known by again, found out in much less time than it takes to read it; None of
    what is large, or no file.

    Of a file that is its place, size, number, times, and a digest of its content; if it is longer than 192
    KiB, of parts of that. Who changes a few bytes of such a file, and nothing else, within the few
    milliseconds that times of files tell apart, is not noticed.
    """
    if isinstance(model, bytes):
        return Known(hashlib.sha256(model).digest()) if len(model) <= MAX_BYTES else None
    if not isinstance(model, str | os.PathLike):
        return None
    try:
        status = os.stat(model)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SAMPLED_BYTES:
            return None
        digest = hashlib.sha256(str(status.st_ctime_ns).encode())
        with open(model, "rb", buffering=0) as file:
            for place in range(0, status.st_size, max(status.st_size // _PARTS, _PART)):
                file.seek(place)
                digest.update(file.read(_PART))
    except (OSError, ValueError):  # told when it is read
        return None
    return Known(digest.digest(), os.path.abspath(model), stamp_of(status))


def check(described: Described) -> None:
    """Whether the files are, here and now, what was described.

    Raises:
        InvalidModel: which file is another one.
        OSError: it cannot be read.
    """
    if isinstance(described.place, str):
        digest = _digest_of(described.place)
        if digest != described.digest:
            message = f"expected SHA-256 {described.digest[:12]}..., but got {digest[:12]}...: another model"
            raise InvalidModel(Problem(described.place, message, f"{_CHANGED} it was pickled; {_REMEDY}"))
    check_files(described, "it was pickled")


def check_files(described: Described, since: str) -> None:
    """Whether external data has the sizes and times that were described.

    Raises:
        InvalidModel: which file has not.
    """
    problems = []
    for path, size, time in described.files:
        if not os.path.exists(path):
            message = "expected external data, but there is no such file"
        elif (found := os.stat(path)).st_size != size:
            message = f"expected {size} bytes of external data, but got {found.st_size}"
        elif found.st_mtime_ns != time:
            message = f"expected external data of time {time}, but got {found.st_mtime_ns} (nanoseconds)"
        else:
            continue
        problems.append(Problem(path, message, f"{_CHANGED} {since}; {_REMEDY}"))
    if problems:
        raise InvalidModel(*problems)


_CHANGED = "the file changed since"
_REMEDY = "load and pickle the model again"


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            remedy = "load its bytes instead, which go along"
            raise InvalidModel(Problem(path, "expected a regular file, which can be read again", remedy))
        return hashlib.file_digest(file, "sha256").hexdigest()
