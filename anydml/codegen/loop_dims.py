"""Dimensions of a loop nest: as few as the strides allow."""

from __future__ import annotations

from collections.abc import Sequence

LONG_ENOUGH, PAGE = 32, 4096
"""Elements from which a dimension is worth walking along; and bytes beyond which strides are all far."""


def collapse(
    sizes: Sequence[int],
    strides: Sequence[Sequence[int]],
    *,
    reorder: bool = True,
    exchange: bool = True,
) -> list[tuple[int, tuple[int, ...]]]:
    """Dimensions as (size, stride of each operand), outermost first, as few as the strides allow.

    Dimensions of size 1 go, and neighbours that every operand passes in one stride become one. With
    `reorder` they are first ordered by the last operand's strides (an output's), and with `exchange` a short
    innermost dimension gives its place to a much longer one, whose elements are near each other. At least one
    dimension is returned.

    >>> collapse((2, 3, 4), [(48, 16, 4), (0, 0, 0)])
    [(24, (4, 0))]
    """
    dims = [(n, tuple(s[d] for s in strides)) for d, n in enumerate(sizes) if n != 1]
    if reorder:
        dims.sort(key=lambda dim: (-abs(dim[1][-1]), -max(map(abs, dim[1]))))
    merged: list[tuple[int, tuple[int, ...]]] = []
    for n, s in dims:
        if merged:
            outer_n, outer_s = merged[-1]
            if all(o == i * n for o, i in zip(outer_s, s, strict=True)):
                merged[-1] = (outer_n * n, s)
                continue
        merged.append((n, s))
    if not merged:
        return [(1, tuple(0 for _ in strides))]
    if not (reorder and exchange):
        return merged
    longest = max(n for n, _ in merged)
    if merged[-1][0] < 16 and longest >= 4 * merged[-1][0]:
        long = [dim for dim in merged if dim[0] >= min(longest, LONG_ENOUGH)]
        nearest = min(long, key=lambda dim: (sum(min(abs(s), PAGE) for s in dim[1]), -dim[0]))
        merged.remove(nearest)
        merged.append(nearest)
    return merged
