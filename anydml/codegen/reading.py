"""Modules that are read when they are first needed."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from anydml.codegen.compiling import uninterrupted


def read_module(name: str) -> Any:
    """A module of ours, which is read now if it was not before: whole, whatever a signal's handler raises
    meanwhile. Amid a class that would come out as another error, of Python's."""
    return import_module(name) if name in sys.modules else _read(name)  # the former waits for other threads


@uninterrupted
def _read(name: str) -> Any:
    return import_module(name)
