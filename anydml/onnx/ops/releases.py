"""Which onnxruntime is installed, for what only some do wrong. It is not imported for that."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def onnxruntime_since(major: int, minor: int) -> bool:
    """Whether it is this release or a later one; where nobody tells, it may be older."""
    return _release() >= (major, minor)


@cache
def _release() -> tuple[int, int]:
    """As its package says: several distributions bring that (onnxruntime-directml, ...), and where two are
    installed their own records do not tell which one wrote it last."""
    text = ""
    with suppress(OSError, ValueError):  # of a program that was packed into one file, there is no text
        package = find_spec("onnxruntime")
        text = Path(package.origin).read_text("utf-8") if package is not None and package.origin else ""
    found = re.search(r'^__version__ = "(\d+)\.(\d+)', text, re.MULTILINE)
    return (int(found[1]), int(found[2])) if found else (0, 0)
