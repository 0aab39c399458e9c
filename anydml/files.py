"""Files that people name: read whole, up to a limit; written whole, or not at all.

A name may lead to anything: a link, a pipe, a device, a folder. What may never end is not read, and what is
no regular file is never replaced by one.
"""

from __future__ import annotations

import ast
import errno
import io
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.lib.format import descr_to_dtype, read_magic
from numpy.typing import NDArray

from anydml.errors import InvalidInput, Problem, by_a_handler, short_repr

MAX_MODEL = (1 << 31) - 1
"""Bytes of an ONNX model: protobuf reads no more."""
_CHUNK = 1 << 24
_MAX_HEADER_CHARACTERS = 10_000
"""Characters of a .npy file's header, at most."""
_MAX_LINKS = 40
_MAX_SPOOLED_BYTES = 1 << 24
"""Bytes for a pipe or a device that wait in memory; more of them wait on disk."""


# ---- reading -----------------------------------------------------------------------------------------


def read_file(path: str | os.PathLike[str], limit: int) -> bytes:
    """A file's content, or all that comes out of a pipe.

    Raises:
        OSError: it cannot be read; it is a folder or a device; it has more than `limit` bytes.
    """
    with _open_regular(path) as file:
        size = _size(file)
        if size > limit:
            raise _too_large(limit, f"{size:,}", os.fspath(path))
        return file.read() if size > 0 else read_stream(file, limit, os.fspath(path))


def read_stream(stream: IO[bytes], limit: int, name: str) -> bytes:
    """All that is in an open file; `name`: how messages call it.

    Raises:
        OSError: it cannot be read; it is a folder or a device; it has more than `limit` bytes.
    """
    try:
        status = os.fstat(stream.fileno())
    except (OSError, AttributeError):  # no file of the system's
        pass
    else:
        _check_readable(status, name)
    content = _read_up_to(stream, limit + 1)
    if content.tell() > limit:
        raise _too_large(limit, "more", name)
    return content.getvalue()


def read_npy(path: str | os.PathLike[str], limit: int) -> NDArray[Any]:
    """The array of a .npy file, whose header is not believed before there is as much as it tells.

    Args:
        path: a file, or a pipe.
        limit: bytes of the array, at most.

    Raises:
        InvalidInput: no such file, or no array in it.
    """
    name = os.fspath(path)
    try:
        with _open_regular(path) as file:
            shape, is_fortran, dtype = _npy_header(file)
            wanted = prod(shape) * dtype.itemsize
            told = f"its header tells {dtype}{short_repr(list(shape))}, {_bytes(wanted)}"
            there = _size(file)
            if there >= 0 and there != file.tell() + wanted:
                raise ValueError(f"{told}, but {_bytes(there - file.tell())} follow")
            if wanted > limit:
                raise ValueError(f"{told}; at most {_bytes(limit)} can be read")
            content = _read_up_to(file, wanted)
        if content.tell() < wanted:
            raise ValueError(f"{told}, but {_bytes(content.tell())} follow")
        order: Any = "F" if is_fortran else "C"
        return np.ndarray(shape, dtype, content.getbuffer(), order=order)
    except (OSError, ValueError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        why = why[:1].lower() + why[1:]
        message = f"expected a NumPy file, but got {short_path(name)}: {why}"
        raise InvalidInput(Problem("", message)) from error


def _header(file: IO[bytes]) -> dict[str, Any]:
    """What the header of a .npy file says. NumPy's own reader warns of what Python 2 wrote, which nobody can
    turn off for one thread alone."""
    lengths = {(1, 0): "<H", (2, 0): "<I"}[read_magic(file)]
    (length,) = struct.unpack(lengths, file.read(struct.calcsize(lengths)))
    if length > _MAX_HEADER_CHARACTERS:
        raise ValueError
    text = file.read(length).decode("latin-1")
    told = ast.literal_eval(re.sub(r"(?<=\d)L\b", "", text).strip())  # Python 2 wrote 5L
    if told.keys() != {"descr", "fortran_order", "shape"}:
        raise ValueError
    return dict(told)


def short_path(path: str) -> str:
    """A path in a message: as it is, if it can be printed in a line."""
    return path if path.isprintable() and len(path) <= 300 else short_repr(path)


def _is_archive(file: IO[bytes]) -> bool:
    """Whether a file, which is no pipe, begins as a .npz does."""
    if not file.seekable():
        return False
    file.seek(0)
    return file.read(2) == b"PK"


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran's order, and data type.

    Raises:
        ValueError: it is no file of an array of plain values.
    """
    try:
        header = _header(file)
        shape, is_fortran, dtype = header["shape"], header["fortran_order"], descr_to_dtype(header["descr"])
        if type(is_fortran) is not bool or any(type(n) is not int for n in shape):
            raise ValueError
    except OSError:
        raise
    except Exception as error:  # the header is parsed by Python: hostile ones end in many ways
        if by_a_handler(error):
            raise
        if _is_archive(file):
            told = "it is an archive, of several perhaps (.npz); np.save writes one array"
            raise ValueError(told) from error
        raise ValueError("it is none") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    if any(n < 0 for n in shape) or not dtype.itemsize:
        raise ValueError(f"its header tells {dtype}{short_repr(list(shape))}")
    return shape, is_fortran, dtype


def _bytes(count: int) -> str:
    """A number in a message; headers can tell one of thousands of digits."""
    return f"{count:,} bytes" if count < 1 << 64 else "more bytes than any file has"


def _open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """The file, if it is a regular one or a pipe. A device is not opened: that alone can do something."""
    _check_readable(os.stat(path), os.fspath(path))
    file = open(path, "rb")  # noqa: SIM115  (the caller closes it)
    try:
        _check_readable(os.fstat(file.fileno()), os.fspath(path))  # another one may have come
    except OSError:
        file.close()
        raise
    return file


def _check_readable(status: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file, but got a folder", name)
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        message = "expected a file or a pipe, but got a device, which may never end"
        raise OSError(errno.EINVAL, message, name)


def _size(file: IO[bytes]) -> int:
    """A regular file's bytes, -1 for a pipe."""
    status = os.fstat(file.fileno())
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


def _read_up_to(stream: IO[bytes], most: int) -> io.BytesIO:
    """So many bytes, or as many as there are; memory grows with what comes."""
    content = io.BytesIO()
    while part := stream.read(min(_CHUNK, most - content.tell())):
        content.write(part)
    return content


def _too_large(limit: int, got: str, name: str) -> OSError:
    return OSError(errno.EFBIG, f"expected at most {limit:,} bytes, but got {got}", name)


# ---- writing -----------------------------------------------------------------------------------------


def write_atomically(path: Path, write: Callable[[Any], object]) -> None:
    """A file that is either written whole or left as it was; `Pending` tells what becomes of what was there.

    Raises:
        OSError: it cannot be written.
    """
    with Pending(path, write) as pending:
        pending.place()


def check_writable(path: Path) -> None:
    """Raises the OSError that writing would end in, as far as that can be told before."""
    _check_writable(path)


def is_alone(path: Path) -> bool:
    """Whether what a path leads to is no regular file, beside which others could be: a pipe, a device."""
    place, status = _follow_links(path)
    return status is not None and not stat.S_ISDIR(status.st_mode) and not _is_replaced(place, status)


def real_path(path: Path) -> Path:
    """Where a path leads through its links."""
    return _follow_links(path)[0]


class Pending:
    """A file whose content is complete, but not yet in its place. A context: what was not placed goes away.

    - A new file has the mode that the umask leaves.
    - A regular file is replaced by a new one with its mode, and with its owner and group where that is
      allowed. So it changes at once and as a whole, as with `install` or `sed -i`: other hard links to the
      old file keep the old content, and its folder must allow new files.
    - A read-only file is refused, as by `cp`; to the superuser, whom modes do not bind, it is like any other.
    - A symbolic link stays, and what it leads to is written; it may be a file that is not there yet.
    - A pipe, a device, an open file under /dev/fd is written to, once all of the content is there.
    - A folder is an error.
    """

    def __init__(self, path: Path, write: Callable[[Any], object]) -> None:
        """Have `write` write the content to the file that it is given.

        Raises:
            OSError: it cannot be written.
        """
        self._path = path
        self._place, status = _check_writable(path)
        self._temporary: Path | None = None
        self._spooled: IO[bytes] | None = None
        if status is not None and not _is_replaced(self._place, status):
            import tempfile  # which pipes and devices need

            self._spooled = tempfile.SpooledTemporaryFile(_MAX_SPOOLED_BYTES)  # noqa: SIM115
            with self._or_not_at_all():
                write(self._spooled)
            return
        try:
            handle, self._temporary = _new_file(self._place.parent, 0o666 if status is None else 0o600)
        except OSError as error:  # which names the file that nobody asked for
            raise OSError(error.errno, error.strerror, str(path)) from error
        with self._or_not_at_all():
            with os.fdopen(handle, "wb") as file:
                write(file)
            if status is not None:
                _resemble(self._temporary, status)

    def place(self) -> None:
        """Put the content where it belongs.

        Raises:
            OSError: that cannot be done; a regular file is as it was then.
        """
        if self._spooled is not None:
            import shutil

            self._spooled.seek(0)
            try:
                with os.fdopen(_open_end(self._place), "wb") as file:
                    shutil.copyfileobj(self._spooled, file, _CHUNK)
            except BrokenPipeError as error:
                message = "its reader ended before all was written"
                raise OSError(errno.EIO, message, str(self._path)) from error
            except OSError as error:
                raise self._named(error) from error
        elif self._temporary is not None:
            try:
                os.replace(self._temporary, self._place)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._path)) from error
            self._temporary = None

    def __enter__(self) -> Pending:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._spooled is not None:
            self._spooled.close()
        if self._temporary is not None:
            with suppress(OSError):
                self._temporary.unlink()
            self._temporary = None

    @contextmanager
    def _or_not_at_all(self) -> Iterator[None]:
        """Nothing is left behind of a content that could not be completed."""
        try:
            yield
        except OSError as error:
            self._drop()
            raise self._named(error) from error
        except BaseException:
            self._drop()
            raise

    def _named(self, error: OSError) -> OSError:
        """An error, of a full disk perhaps, with the name of the file that was to be written."""
        if error.filename is not None or error.errno is None:
            return error
        return OSError(error.errno, error.strerror, str(self._path))


def _follow_links(path: Path) -> tuple[Path, os.stat_result | None]:
    """Where a path leads through its links, and what is there; None: nothing.

    Under /proc stand open files of processes: they look like links, whose ends may have no name.
    """
    place = path
    for _ in range(_MAX_LINKS):
        folder = Path(os.path.realpath(place.parent))
        place = folder / place.name
        if folder.parts[:2] == ("/", "proc") or not place.is_symlink():
            break
        place = folder / os.readlink(place)
    else:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    try:
        return place, os.stat(place)
    except FileNotFoundError:
        return place, None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _check_writable(path: Path) -> tuple[Path, os.stat_result | None]:
    """Where a path leads, and what is there, if that can be written."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(path.parent))
    place, status = _follow_links(path)
    if not place.parent.is_dir():  # the link dangles by more than a file
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(place.parent))
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "expected a file to write, but got a folder", str(path))
    as_we_are = os.access in os.supports_effective_ids
    allowed = _own_handle(place) is not None or os.access(place, os.W_OK, effective_ids=as_we_are)
    if status is not None and not allowed:
        raise PermissionError(errno.EACCES, "it may not be written: permission denied", str(path))
    return place, status


def _is_replaced(place: Path, status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and place.parts[:2] != ("/", "proc")


def _open_end(place: Path) -> int:
    """A pipe or a device, open to be written; of our own open files, another handle, which goes on there."""
    own = _own_handle(place)
    return os.open(place, os.O_WRONLY | os.O_TRUNC) if own is None else os.dup(own)


def _own_handle(place: Path) -> int | None:
    """The number of an open file of this process that has a name under /dev/fd."""
    is_one = place.parent == Path(f"/proc/{os.getpid()}/fd") and place.name.isdecimal()
    return int(place.name) if is_one else None


def _new_file(folder: Path, mode: int) -> tuple[int, Path]:
    """A file that was not there, with what the umask leaves of a mode."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    while True:
        path = folder / f".anydml-{os.urandom(8).hex()}"
        with suppress(FileExistsError):
            return os.open(path, flags, mode), path


def _resemble(path: Path, status: os.stat_result) -> None:
    """Give a file another one's mode, and its owner and group where that is allowed."""
    if hasattr(os, "chown"):
        own = path.stat()
        for user, group in ((status.st_uid, -1), (-1, status.st_gid)):
            if (user, group) not in ((own.st_uid, -1), (-1, own.st_gid)):
                with suppress(OSError):
                    os.chown(path, user, group)
    os.chmod(path, stat.S_IMODE(status.st_mode) & 0o777)
