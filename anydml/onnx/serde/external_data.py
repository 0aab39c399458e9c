"""Where a model's external data lies."""

from __future__ import annotations

from pathlib import Path

from anydml.onnx.protos import ModelProto, StringStringEntryProto, TensorProto
from anydml.onnx.subgraphs import all_tensors


def resolve(folder: Path, location: str) -> Path | None:
    """Where a location leads; None if it is no name of a file."""
    try:
        file = (folder / location).resolve()
        file.exists()
    except (OSError, ValueError, RuntimeError):  # too long, with a NUL in it, links in a circle
        return None
    return file if location else None


def home_of(path: Path, proto: ModelProto) -> Path:
    """The folder that a model's external data must lie in.

    Where the model's file is a link, as in the caches of model hubs, its data may be beside the link, behind
    links of its own, or beside the file itself. The message names it there then.
    """
    beside, real = path.parent.resolve(), path.resolve().parent
    if beside == real:
        return real
    entries = _locations(proto)
    if all(_is_in(resolve(beside, e.value), beside) for e in entries):
        return beside
    files = [next(filter(_is_file, (resolve(f, e.value) for f in (beside, real))), None) for e in entries]
    if all(_is_in(file, real) for file in files):
        for entry, file in zip(entries, files, strict=True):
            assert file is not None
            entry.value = str(file.relative_to(real))
        return real
    return beside  # what is missing, or elsewhere, is told when it is read


def _is_file(file: Path | None) -> bool:
    return file is not None and file.is_file()


def _is_in(file: Path | None, folder: Path) -> bool:
    return file is not None and file.is_file() and file.is_relative_to(folder)


def _locations(proto: ModelProto) -> list[StringStringEntryProto]:
    tensors = (t for t in all_tensors(proto.graph) if t.data_location == TensorProto.EXTERNAL)
    entries = [e for t in tensors for e in t.external_data if e.key == "location"]
    return [e for e in entries if isinstance(e.value, str)]  # and no bytes that are not UTF-8
