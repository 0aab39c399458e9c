"""Fields of DxDispatch files that are not known: ignored, as the real tool does, and told together."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from anydml.errors import Problem, UnknownFieldWarning, nearest, short_repr

MAX_SUGGESTED_FIELDS = 20
"""So many are told by name: to find the nearest known field takes time, which a hostile file asks for."""


class UnknownFields:
    """What one file says in fields that are not known, each with its place and the nearest known field."""

    def __init__(self, place: str = "", found: dict[tuple[str, str], str] | None = None) -> None:
        self._place = place
        self._found: dict[tuple[str, str], str] = {} if found is None else found
        """The remedy by place and name; what is read twice, bindings of owned tensors, is here once."""

    def at(self, place: str) -> UnknownFields:
        """The same list, for what is found further in."""
        dot = "." if self._place and not place.startswith("[") else ""
        return UnknownFields(f"{self._place}{dot}{place}", self._found)

    def drop(self, item: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """An object of the file without its unknown fields, which are noted."""
        kept = {}
        for name, value in item.items():
            if name in known:
                kept[name] = value
            elif (self._place, name) not in self._found:
                guess = nearest(name, known) if len(self._found) < MAX_SUGGESTED_FIELDS else ""
                self._found[self._place, name] = guess if guess.startswith("did you mean") else ""
        return kept

    def problems(self) -> Iterator[Problem]:
        """One for each field, for a file that is wrong in other ways, too: they may be the cause."""
        for (place, name), remedy in self._tell():
            yield Problem(place, f"field {short_repr(name)} is not known, and was ignored", remedy)
        if (more := len(self._found) - MAX_SUGGESTED_FIELDS) > 0:
            yield Problem("", f"{more:,} more fields are not known, and were ignored")

    def _tell(self) -> Iterator[tuple[tuple[str, str], str]]:
        return islice(self._found.items(), MAX_SUGGESTED_FIELDS)

    def warn(self, file: str, stacklevel: int) -> None:
        """One warning of the file, if there is anything to be told."""
        if not self._found:
            return
        told = []
        for (place, name), remedy in self._tell():
            where = f"{place}.{name}" if place else name
            told.append(
                (where if _is_plain(where) else short_repr(where)) + (f" ({remedy})" if remedy else "")
            )
        if (more := len(self._found) - MAX_SUGGESTED_FIELDS) > 0:
            told.append(f"and {more:,} more")
        text = f"{file}: fields that are not known were ignored: {', '.join(told)}"
        warnings.warn(text, UnknownFieldWarning, stacklevel=stacklevel + 1)


def _is_plain(where: str) -> bool:
    return where.isprintable() and len(where) <= 120
