"""Sizes that are not known, as objects: symbols, and sums of them.

    n = Symbol("n")      Affine.of(n) * 2 + 1      prints as 2*n+1

A symbol is known by identity. Its name, if a file gave it one, is for people and files only: a file may call
its sizes anything, `2*n` and `{x.0}` included, and two files may call different sizes the same.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from operator import attrgetter

from anydml.dataclass import dataclass

MAX_TERMS = 6
"""Symbols of one sum; more is unknown."""
_numbers = count()


class Symbol:
    """A size that is not known. `least`: what it is at least. `likely`: what it was once, for estimates."""

    __slots__ = ("least", "likely", "name", "number")

    def __init__(self, name: str = "", least: int = 0, likely: int | None = None) -> None:
        self.name, self.least, self.likely = name, least, likely
        self.number = next(_numbers)
        """In the order in which symbols are made, so that sums have one order of terms."""

    def __repr__(self) -> str:
        return self.name or "?"


@dataclass(frozen=True)
class Affine:
    """A sum of whole multiples of symbols, and a number. Of `terms` None: unknown."""

    terms: tuple[tuple[Symbol, int], ...] | None
    offset: int = 0

    @staticmethod
    def of(symbol: Symbol) -> Affine:
        return Affine(((symbol, 1),))

    @property
    def number(self) -> int | None:
        return self.offset if self.terms == () else None

    @property
    def least(self) -> int | None:
        """What it is at least; None where that is not known."""
        if self.terms is None:
            return None
        found = self.offset
        for symbol, k in self.terms:
            if k < 0:
                return None
            found += k * symbol.least
        return found

    @property
    def likely(self) -> int | None:
        """What it was once; None where that is not known."""
        if self.terms is None or any(symbol.likely is None for symbol, _ in self.terms):
            return None
        return self.offset + sum(k * (symbol.likely or 0) for symbol, k in self.terms)

    @property
    def name(self) -> str:
        """What a file calls it: that of a symbol alone, or nothing."""
        match self.terms, self.offset:
            case ((symbol, 1),), 0:
                return symbol.name
        return ""

    def __add__(self, other: Affine) -> Affine:
        if self.terms is None or other.terms is None:
            return UNKNOWN
        counts = dict(self.terms)
        for symbol, k in other.terms:
            counts[symbol] = counts.get(symbol, 0) + k
        symbols = sorted((s for s, k in counts.items() if k), key=attrgetter("number"))
        if len(symbols) > MAX_TERMS:
            return UNKNOWN
        return Affine(tuple((s, counts[s]) for s in symbols), self.offset + other.offset)

    def __neg__(self) -> Affine:
        return self.scaled(-1)

    def __sub__(self, other: Affine) -> Affine:
        return self + -other

    def __mul__(self, other: Affine) -> Affine:
        if other.number is not None:
            return self.scaled(other.number)
        return UNKNOWN if self.number is None else other.scaled(self.number)

    def scaled(self, factor: int) -> Affine:
        if self.terms is None:
            return UNKNOWN
        return Affine(tuple((s, k * factor) for s, k in self.terms) if factor else (), self.offset * factor)

    def divided(self, divisor: int) -> Affine:
        """Where nothing remains, whatever the symbols are."""
        if self.terms is None or divisor == 0:
            return UNKNOWN
        if any(k % divisor for k in (self.offset, *(k for _, k in self.terms))):
            return UNKNOWN
        return Affine(tuple((s, k // divisor) for s, k in self.terms), self.offset // divisor)

    def __str__(self) -> str:
        if self.terms is None:
            return "?"
        parts = [str(symbol) if k == 1 else f"{k}*{symbol}" for symbol, k in self.terms]
        return "+".join([*parts, *([str(self.offset)] if self.offset or not parts else [])])


UNKNOWN = Affine(None)
Dim = int | Affine | None
"""A size: known, a sum of symbols, or unknown."""


@lru_cache(4096)
def whole(number: int) -> Affine:
    return Affine((), int(number))


def as_affine(dim: Dim) -> Affine:
    """A dimension as a sum."""
    if dim is None:
        return UNKNOWN
    return whole(dim) if isinstance(dim, int) else dim


def as_dim(size: Affine) -> Dim:
    """A sum as a dimension: a number where it is one; None where no size can be so large, or so small."""
    if size.terms is None or (size.number is not None and not 0 <= size.number < 1 << 63):
        return None
    return size if size.number is None else size.number


def likely(dim: Dim) -> int | None:
    """A size, or what it was once."""
    return dim.likely if isinstance(dim, Affine) else dim


def may_be_zero(dim: Dim) -> bool:
    least = dim.least if isinstance(dim, Affine) else dim
    return least is None or least < 1


def is_anonymous(dim: Dim) -> bool:
    """Whether no file has a word for it: unknown, a symbol of ours, or a sum."""
    return not isinstance(dim, int) and (dim is None or not dim.name)


def are_sizes(value: object) -> bool:
    """A list of non-negative integers."""
    return isinstance(value, list | tuple) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    )
