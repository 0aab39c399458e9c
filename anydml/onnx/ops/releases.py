"""Which onnxruntime is installed, for what only some do wrong. It is not imported for that."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import metadata


@cache
def onnxruntime_since(major: int, minor: int) -> bool:
    """Whether it is this release or a later one; where nobody tells, it may be older."""
    for name in ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino"):
        with suppress(metadata.PackageNotFoundError, ValueError):
            one, two, *_ = metadata.version(name).split(".")
            return (int(one), int(two)) >= (major, minor)
    return False
