"""What goes wrong while a DxDispatch model is read: collected, and told together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anydml.dxdispatch.buffers import kind_of
from anydml.dxdispatch.json_text import entries
from anydml.dxdispatch.unknown_fields import UnknownFields
from anydml.errors import AnyDMLError, Problem, Unsupported, nearest, short_repr

MOST_PROBLEMS = 100


class Report:
    """The problems of one file, and its fields that are not known, which may be their cause."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.unknown = UnknownFields()

    def raise_problems(self, error: type[AnyDMLError]) -> None:
        """Raise them as one error, if there are any."""
        if self.problems:
            found = (*self.problems, *self.unknown.problems())
            raise error(*(p.under(self.file) for p in found))

    def add(self, where: str, message: str, remedy: str = "") -> None:
        self.problems.append(Problem(where, message, remedy))

    def is_full(self) -> bool:
        """Whether so much is wrong that more would help nobody."""
        return len(self.problems) >= MOST_PROBLEMS

    @contextmanager
    def under(self, where: str) -> Iterator[None]:
        """Collect what goes wrong meanwhile as problems of this place."""
        try:
            yield
        except Unsupported as error:
            raise self.unsupported(where, str(error)) from error
        except AnyDMLError as error:
            self.problems += [p.under(where) for p in error.problems]

    def unsupported(self, where: str, message: str) -> Unsupported:
        return Unsupported(Problem(where, message).under(self.file))

    def find_named(
        self, item: Mapping[str, Any], field: str, known: Mapping[str, Any], where: str
    ) -> str | None:
        """The name in a field; None, and a problem, unless it is one of those that are known."""
        name = item.get(field)
        if not isinstance(name, str) or name not in known:
            wanted = f"the name of one of the {len(known)}" if known else "a name, of which there is none"
            message = f"expected {wanted}, but got {short_repr(name)}"
            self.add(f"{where}.{field}", message, nearest(name, known))
            return None
        return name

    def dictionary(self, value: Any, where: str) -> Mapping[str, Any]:
        """An object that the tool makes a dictionary of; empty, and a problem, if it is something else."""
        if isinstance(value, dict):
            return entries(value)
        self.add(where, f"expected an object, but got {kind_of(value)}")
        return {}
