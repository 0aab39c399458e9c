"""Names for files and people. Nothing is known by its name: values are known by identity.

    names = Names(reserved={"y"})
    names.of(a), names.of(b)      two values called "x"   ->   "x", "x_1"

Whoever writes a file makes one `Names` for it, reserves what has its name from elsewhere, and asks it for
all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from anydml.ir.graph import Value


class Names:
    """A name for each value, which no other value has and nobody has reserved."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)
        self._of: dict[Value, str] = {}
        self._counts: dict[str, int] = {}

    def fix(self, value: Value, name: str) -> None:
        """Have a value go by this name, which it has from elsewhere."""
        self._taken.add(name)
        self._of[value] = name

    def of(self, value: Value) -> str:
        """The name of a value: its own where that is free, else one like it."""
        name = self._of.get(value)
        if name is None:
            name = self._of[value] = self.fresh(value.name)
        return name

    def fresh(self, like: str) -> str:
        """A name that nothing has yet."""
        name, count = like, self._counts.get(like, 0)
        while not name or name in self._taken:
            count += 1
            name = f"{like or 'value'}_{count}"
        self._counts[like] = count
        self._taken.add(name)
        return name
