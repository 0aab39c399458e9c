"""Whose memory a result is. What a run returns is the caller's alone: nobody else's, and nobody's later."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from anydml.runtime.addresses import address


def make_owned(results: list[Any], unsure: Collection[int], given: Sequence[Any]) -> list[Any]:
    """The results, with copies in the place of what is somebody else's.

    Constants of a model are read-only, and so are views of them.

    Args:
        results: which is changed.
        unsure: the places of those that may be memory of something else; all others are known to be new.
        given: what the caller fed.
    """
    if not unsure:
        return results
    taken = {place for x in _arrays(given) for place in _memory(x)}
    for k, result in enumerate(results):
        if k not in unsure:
            taken.update(place for x in _arrays([result]) for place in _memory(x))
    for k in unsure:
        results[k] = _own(results[k], taken)
    return results


def _own(result: Any, taken: set[int]) -> Any:
    if isinstance(result, list):
        return [_own(item, taken) for item in result]
    if not isinstance(result, np.ndarray):
        return result
    memory = _memory(result)
    if not result.flags.writeable or not taken.isdisjoint(memory):
        result = result.copy()
        memory = _memory(result)
    taken.update(memory)
    return result


def _arrays(values: Sequence[Any]) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from _arrays(value)


def _memory(array: np.ndarray) -> tuple[int, ...]:
    """The array that owns the memory of an array, in the end. If none does, where that begins of which it is
    a view, and where it begins itself: a library may give two arrays over one tensor, which know nothing of
    each other.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.flags.owndata:
        return (id(owner),)
    return (_address(array),) if owner is array else (_address(owner), _address(array))


def _address(array: np.ndarray) -> int:
    """An array without elements has none that anybody else could have."""
    return address(array) if array.nbytes else -id(array)
