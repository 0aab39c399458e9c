"""Files on the command line: MODEL, which may be standard input; OUTPUT, which may be standard output."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TextIO

import click
import numpy as np

from anydml.cli.common import quoted
from anydml.dataclass import dataclass
from anydml.files import MAX_MODEL, check_writable, read_file, read_stream, short_path, write_atomically

MODEL_PATH = click.Path(exists=True, dir_okay=False, allow_dash=True)
MODEL = click.argument("model", type=MODEL_PATH)
"""The argument; `given_model` or `given_onnx_model` reads what it names."""
OUTPUT = click.Path(dir_okay=False, readable=False, allow_dash=True)
"""The type of arguments that `Output` is made of."""
_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_LONGEST = 200
"""Bytes of a file's name, at most: file systems allow 255, of which counts and endings take some."""


@dataclass(frozen=True)
class GivenModel:
    """A model that was named: its file, or its content if it came out of a pipe, which can be read once.

    Attributes:
        source: as `anydml.load` takes it.
        name: how it is called.
    """

    source: Path | bytes
    name: str

    @property
    def folder(self) -> Path:
        """Where its external data lies."""
        if isinstance(self.source, bytes):
            return Path()
        beside = self.source.parent.resolve()
        if beside == self.source.resolve().parent:
            return beside
        from anydml.onnx.serde.parse import parse  # which loads onnx

        return parse(self.source)[1] or beside

    @property
    def is_dispatch(self) -> bool:
        """Whether it is a DxDispatch model: by its name, or, without one, by how it begins."""
        if isinstance(self.source, bytes):
            return self.source[:4096].removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"//", b"/*"))
        return self.name.lower().endswith(".json")

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """As a file; that of a content is gone afterwards."""
        if isinstance(self.source, Path):
            yield self.source
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "stdin.json" if self.is_dispatch else "stdin.onnx")
            path.write_bytes(self.source)
            yield path

    def check_distinct(self, *outputs: Output) -> None:
        """Raises click.UsageError where what is written would take the place of the model's own file."""
        if any(not out.is_stdout and self._is_file(out.path) for out in outputs):
            raise click.UsageError("expected another file than the model itself, which would be lost")

    def _is_file(self, path: Path) -> bool:
        """Whether a path leads to the model's own file."""
        if not path.is_file():
            return False
        if isinstance(self.source, Path):
            return path.samefile(self.source)
        try:
            return os.path.samestat(path.stat(), os.fstat(_standard("stdin").fileno()))
        except OSError:  # no file of the system's
            return False


def given_model(text: str) -> GivenModel:
    """What MODEL names.

    Raises:
        OSError: it cannot be read; it is a device; it has more than 2 GiB.
    """
    if text in _STDIN:
        return GivenModel(read_stream(_standard("stdin"), MAX_MODEL, "standard input"), "stdin")
    path = Path(text)
    if path.is_file():
        return GivenModel(path, path.name)
    return GivenModel(read_file(path, MAX_MODEL), path.name)


def given_onnx_model(text: str) -> GivenModel:
    """What MODEL names, for a command that takes ONNX models only.

    Raises:
        OSError: as `given_model`.
        click.UsageError: it is a DxDispatch model, which `anydml run` takes.
    """
    given = given_model(text)
    if given.is_dispatch:
        run = f"`anydml run {quoted(text)}`"
        other = (
            f"{given.name} is a DxDispatch model; {run} runs it, with -i 1000 measures it, with --emit text"
        )
        raise click.UsageError(f"expected an ONNX model, but {other} prints its kernels")
    return given


class Output:
    """Where a command writes: a file, or standard output; then what is told goes to standard error."""

    def __init__(self, text: str) -> None:
        """Raises OSError where nothing can be written, before there is anything to be written."""
        self.is_stdout = text in _STDOUT
        self.path = Path(text)
        self.name = "standard output" if self.is_stdout else short_path(text)
        if not self.is_stdout:
            if text.endswith(("/", os.sep)):
                raise IsADirectoryError(errno.EISDIR, "expected a file to write, but got a folder", text)
            check_writable(self.path)

    @property
    def target(self) -> Path | IO[bytes]:
        return _standard("stdout") if self.is_stdout else self.path

    def write(self, write: Callable[[Any], object]) -> None:
        """Have `write` write to a file; what is in there arrives whole, or not at all."""
        if not self.is_stdout:
            write_atomically(self.path, write)
            return
        content, out = io.BytesIO(), _standard("stdout")
        write(content)
        out.write(content.getvalue())
        out.flush()


def _standard(name: Literal["stdin", "stdout"]) -> IO[bytes]:
    """The bytes of standard input or output; an OSError if whoever started us closed it."""
    stream: TextIO | None = getattr(sys, name)
    if stream is None:
        raise OSError(errno.EBADF, "it is closed", f"standard {name.removeprefix('std')}put")
    return stream.buffer


def saved(folder: Path, names: Iterable[str], results: Iterable[Any]) -> Iterator[str]:
    """Save arrays as .npy files in a folder, sequences item by item; yields which is in which file."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for name, result in zip(names, results, strict=True):
        for item, array in _items(name, result):
            path = _free_file(folder, item, taken)
            plain = array.astype(str) if array.dtype == object else array
            write_atomically(path, partial(np.save, arr=plain, allow_pickle=False))
            yield f"{short_path(item)}: saved to {path}"


def _items(name: str, result: Any) -> Iterator[tuple[str, Any]]:
    parts = (
        [(f"{name}.{k}", r) for k, r in enumerate(result)] if isinstance(result, list) else [(name, result)]
    )
    yield from ((item, array) for item, array in parts if isinstance(array, np.ndarray))


def _free_file(folder: Path, name: str, taken: set[str]) -> Path:
    """A file for an output: its name as far as file systems take it, and no other output's file.

    Names that differ in case only are the same to some file systems; links may lead to one file.
    """
    stem = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "output"
    stem = stem.encode(errors="replace")[:_LONGEST].decode(errors="ignore")
    path, count = folder / f"{stem}.npy", 1
    while (place := os.path.realpath(path).lower()) in taken:
        count += 1
        path = folder / f"{stem}-{count}.npy"
    taken.add(place)
    return path
