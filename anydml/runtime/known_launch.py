"""Calls of operators of whole tensors that are launches of kernels: what the next one need not ask Python.

Launches that compute an operator alone (`RepeatedLaunch.alone`) do the same on other arrays of the same
layouts. Each address in a descriptor must be of an argument, of a result, of a table of its own, or of what
lies between launches: an operator that is more than its launches keeps to the ordinary way.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from anydml.runtime.addresses import address, has_no_gaps
from anydml.runtime.call import Launched
from anydml.runtime.launch import Array, Watched

MAX_OWN_BYTES = 1 << 19
"""Of memory that a known call keeps for what lies between its launches."""


def apart(arrays: Sequence[Array]) -> list[Array]:
    """The arrays, with copies of those that are memory of another one: to tell which of them is read."""
    found: list[Array] = []
    for x in arrays:
        if any(np.may_share_memory(x, y) for y in found) and has_no_gaps(x):
            copy = x.copy(order="K")
            x = copy if copy.strides == x.strides else x
        found.append(x)
    return found


def launched_again(
    launches: Sequence[Watched], inputs: Sequence[Array], results: Sequence[Array]
) -> Launched | None:
    """The launches for other arrays in the place of these; None if they have to do with others, too. What
    lies between them gets memory of its own.

    `inputs`: those among a call's arguments, in their order.
    """
    if not launches or any(np.may_share_memory(x, y) for x, y in combinations(inputs, 2)):
        return None
    arrays = (*inputs, *results)
    given = launches[0].between
    if sum(x.nbytes for x in given) > MAX_OWN_BYTES:
        return None
    if any(np.may_share_memory(x, y) for x in given for y in results):  # which others may have changed since
        return None
    own = [np.zeros(x.nbytes, np.uint8) for x in given]
    moved = [
        address(new) - np.lib.array_utils.byte_bounds(old)[0] for old, new in zip(given, own, strict=True)
    ]
    found, seen = [], set[int]()
    for launch in launches:
        places = None if launch.template is None else _places(launch, (*arrays, *given))
        if launch.template is None or places is None:
            return None
        seen |= {*places}
        addresses = []
        for x, k in zip(launch.arrays, places, strict=True):
            between = k - len(arrays)
            addresses.append(
                address(x) + (moved[between] if between >= 0 else -address(arrays[k]) if k >= 0 else 0)
            )
        extents = launch.template.operands - len(places)
        kept = [k if k < len(arrays) else -1 for k in places]
        found.append((launch.template.at(addresses), [*kept, *[-1] * extents]))
    if not {*range(len(inputs), len(arrays))} <= seen:
        return None
    size = sum(x.nbytes for x in (*arrays, *given))
    return Launched(found, results, size, ([x.tables for x in launches], own), exclusive=bool(own))


def bound_launches(launches: Sequence[Watched], memory: Sequence[Array]) -> list[array[int]] | None:
    """The launches as descriptors that may run again and again; None if one reads or writes elsewhere."""
    found = []
    for launch in launches:
        if launch.template is None or _places(launch, [*memory, *launch.between]) is None:
            return None
        found.append(launch.template.at([address(x) for x in launch.arrays]))
    return found or None


def _places(launch: Watched, arrays: Sequence[Array]) -> list[int] | None:
    """Of each of a launch's arrays, which of these it is or lies in; -1: it is a table of its own. None if
    there is another."""
    if any(x.size == 0 for x in arrays):
        return None
    ends = [np.lib.array_utils.byte_bounds(x) for x in arrays]
    places = []
    for x in launch.arrays:
        first, last = np.lib.array_utils.byte_bounds(x)
        there = (k for k, (start, end) in enumerate(ends) if start <= first and last <= end)
        if any(x is table for table in launch.tables):
            places.append(-1)
        elif (k := next(there, None)) is not None:
            places.append(k)
        else:
            return None
    return places
