"""Whose memory a result is. What a run returns is the caller's alone: nobody else's, and nobody's later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np


def owned(results: list[Any], unsure: Collection[int], given: Sequence[Any]) -> list[Any]:
    """The results, with copies in the place of what is somebody else's.

    Constants of a model are read-only, and so are views of them.

    Args:
        results: which is changed.
        unsure: the places of those that may be memory of something else; all others are known to be new.
        given: what the caller fed.
    """
    if not unsure:
        return results
    taken = {id(_memory(x)) for x in _arrays(given)}
    taken.update(
        id(_memory(x)) for place, x in enumerate(results) if place not in unsure for x in _arrays([x])
    )
    for place in unsure:
        results[place] = _own(results[place], taken)
    return results


def _own(result: Any, taken: set[int]) -> Any:
    if isinstance(result, list):
        return [_own(item, taken) for item in result]
    if not isinstance(result, np.ndarray):
        return result
    memory = id(_memory(result))
    if memory in taken or not result.flags.writeable:
        return result.copy()
    taken.add(memory)
    return result


def _arrays(values: Sequence[Any]) -> list[np.ndarray]:
    found = []
    for value in values:
        if isinstance(value, np.ndarray):
            found.append(value)
        elif isinstance(value, list):
            found += _arrays(value)
    return found


def _memory(array: np.ndarray) -> np.ndarray:
    """The array that an array is a view of, in the end."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
