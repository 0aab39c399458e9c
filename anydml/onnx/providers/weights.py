"""A region's weights, which onnxruntime reads where they are: in memory, in the model's file, beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort

from anydml.ir.graph import ExternalData
from anydml.onnx.providers.provider import GIVEN, MADE, Made, Region
from anydml.runtime.mapped_file import InFile, MappedFile, owned


def files_of(region: Region) -> set[MappedFile]:
    """The files that weights of a region are left in."""
    sources = [s.source.source if isinstance(s, Made) else s for s in (c.source for _, c in region.weights)]
    files = (s.file for s in sources if isinstance(s, InFile | ExternalData))
    return {file for file in files if file is not None}


def lend(region: Region, options: ort.SessionOptions) -> tuple[list[Any], list[Any]]:
    """Give a session the region's weights: the memory that it will read, and not own; and what it reads only
    until it is open.

    It copies what is in the model's file, or made, and what it may change, and drops what it has packed for
    products.
    """
    for file in files_of(region):
        file.check()
    beside = {
        n: c.source for n, c in region.weights if isinstance(c.source, ExternalData) and _is_there(c.source)
    }
    within = {n: c.source.file for n, c in region.weights if isinstance(c.source, InFile)}
    made = {n: c.source for n, c in region.weights if isinstance(c.source, Made) and copies_weights()}
    given = {n: c for n, c in region.weights if not (n in beside or n in within or n in made)}
    contents = [(GIVEN, np.frombuffer(file.data, np.uint8)) for file in {*within.values()}]
    if made:
        contents.append((MADE, _made([*made.values()])))
    for place, content in contents:
        options.add_external_initializers_from_files_in_memory([place], [content], [content.size])
    for source in beside.values():  # it maps files into memory itself
        folder = str(source.folder)
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        break
    arrays = [np.ascontiguousarray(owned(c.content)) for c in given.values()]
    lent = [ort.OrtValue.ortvalue_from_numpy(a) for a in arrays]
    if lent:  # the first lets it optimise with their contents, the second has it read them where they are
        options.add_external_initializers(list(given), lent)
        for name, value in zip(given, lent, strict=True):
            if name in region.unchanged:
                options.add_initializer(name, value)
    return [*arrays, *lent], contents


def _made(weights: list[Made]) -> np.ndarray:
    """Weights that are made, each at its place."""
    contents = [(w.offset, np.ascontiguousarray(w.make(w.source.content))) for w in weights]
    whole = np.zeros(max(offset + x.nbytes for offset, x in contents), np.uint8)
    for offset, x in contents:
        whole[offset : offset + x.nbytes] = x.reshape(-1).view(np.uint8)
    return whole


def copies_weights() -> bool:
    """Whether onnxruntime copies weights out of a file's content in memory, and so does not keep that.

    Older ones cannot be given such a content.
    """
    return hasattr(ort.SessionOptions, "add_external_initializers_from_files_in_memory")


def _is_there(data: ExternalData) -> bool:
    """Whether a library finds external data by its path."""
    return data.file is None or data.file.is_at_its_path()
