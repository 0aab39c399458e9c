"""What a DxDispatch model shows of its buffers: the commands print and writeFile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.dxdispatch import images
from anydml.dxdispatch.buffers import Resource
from anydml.errors import ExecutionFailed, InvalidModel, Problem, short_repr
from anydml.files import short_path, write_atomically
from anydml.ir.dims import are_sizes

MAX_PRINTED_ELEMENTS = 1_000_000


def check_print(item: Mapping[str, Any]) -> None:
    """Raises InvalidModel unless "verbose" is true, false or absent."""
    if not isinstance(item.get("verbose", False), bool):
        raise InvalidModel(
            Problem("verbose", f"expected true or false, but got {short_repr(item['verbose'])}")
        )


def format_buffer(name: str, resource: Resource, verbose: bool) -> Iterator[str]:
    """The lines that print a buffer: its elements in one; or, verbosely, each with its index and its bits."""
    values = _write(name, resource).reshape(-1)
    total, values = len(values), values[:MAX_PRINTED_ELEMENTS]
    rest = f", ... ({total:,} in all)" if total > MAX_PRINTED_ELEMENTS else ""
    texts = [f"{v:g}" if isinstance(v, float) else str(v) for v in values.tolist()]
    if not verbose:
        yield f"Resource '{name}': {', '.join(texts)}{rest}"
        return
    yield f"Resource '{name}':"
    bits = values.view(f"u{values.dtype.itemsize}").tolist()
    width, digits = len(str(len(texts))), 2 * values.dtype.itemsize
    for k, (text, word) in enumerate(zip(texts, bits, strict=True)):
        yield f"[{k:{width}}] {text} (0x{word:0{digits}X})"
    if rest:
        yield rest.removeprefix(", ")


def _is_within(folder: Path, target: str) -> bool:
    """Whether a name leads to the folder or one in it, links followed: a model may come from a stranger."""
    try:
        return (folder / target).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        return False


class FileOutput:
    """A writeFile command, checked as far as it can be before it runs: an array, a picture, or bytes."""

    def __init__(
        self, item: Mapping[str, Any], resource: Resource | None, folder: Path | None = None
    ) -> None:
        """Read the command; `resource` is its buffer, None if that has problems of its own.

        `folder`: where the file is to lie; None is the current one.

        Raises:
            InvalidModel: a file name or dimensions that cannot be.
        """
        target, self.dimensions = item.get("targetPath"), item.get("dimensions") or None
        problems = []
        if not isinstance(target, str) or target == "" or "\0" in target:
            problems.append(Problem("targetPath", f"expected a file name, but got {short_repr(target)}"))
            target = "out.npy"
        elif not _is_within(folder or Path(), target):
            message = f"expected a file in the folder that is written to, but got {short_path(target)}"
            problems.append(Problem("targetPath", message, "--output_path names another folder"))
        self.target = target if folder is None else str(folder / target)
        self.kind = Path(target).suffix.lower()
        if self.dimensions is not None and not are_sizes(self.dimensions):
            problems.append(Problem("dimensions", f"expected sizes, but got {short_repr(self.dimensions)}"))
        elif resource is not None and not resource.deferred and not problems:
            try:
                self._to_shape(resource)
            except InvalidModel as error:
                problems += error.problems
        if problems:
            raise InvalidModel(*problems)

    def _to_shape(self, resource: Resource) -> NDArray[Any]:
        """The buffer's elements in the shape that the file is to have."""
        try:
            values = resource.values if self.dimensions is None else resource.view_as(self.dimensions)
        except InvalidModel as error:
            raise InvalidModel(*(p.under("dimensions") for p in error.problems)) from error
        if self.kind in images.SUFFIXES:
            images.image_sizes(values.shape, values.dtype, self.kind)
        return values

    def write(self, name: str, resource: Resource) -> str:
        """Write the file, whole or not at all, and tell it; what is no regular file is written to."""
        _write(name, resource)
        values = self._to_shape(resource)
        path = Path(self.target)
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.kind == ".npy":
            write_atomically(path, lambda file: np.save(file, values))
        elif self.kind in images.SUFFIXES:
            write_atomically(path, lambda file: images.write_image(file, values, self.kind))
        else:
            write_atomically(path, lambda file: file.write(resource.data.tobytes()))
        return f"Resource '{name}' written to '{self.target}'"


def _write(name: str, resource: Resource) -> NDArray[Any]:
    if not resource.written:
        message = "expected a command that wrote it, but it is still deferred"
        raise ExecutionFailed(Problem(f"resource {name!r}", message))
    return resource.values
