"""Attributes that are computed when they are first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """As that of functools from Python 3.12 on. Before, there is one lock for all objects, which takes longer
    than most of what is computed, and which another thread may hold when a process forks.

    Two threads that ask at once may both compute.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, thing: None, owner: type) -> cached_property[T]: ...
    @overload
    def __get__(self, thing: object, owner: type) -> T: ...
    def __get__(self, thing: object | None, owner: type) -> cached_property[T] | T:
        if thing is None:
            return self
        found = thing.__dict__[self._name] = self._compute(thing)
        return found
