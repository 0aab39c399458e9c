"""What programs are fed, and what they make: arrays, as far as they are known before a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from anydml.dataclass import dataclass
from anydml.ops.dtypes import ScalarType


@dataclass(frozen=True)
class Fed:
    """What an input must be: its type and sizes, and its content if the program was made for one."""

    name: str
    dtype: np.dtype[Any]
    sizes: tuple[int | None, ...]
    """None: the program looks at it itself."""
    content: bytes | None = None


@dataclass(frozen=True)
class Made:
    """What an output is.

    Attributes:
        sizes: None where the data decides them. Then it is written to the program's memory, and copied.
        rank: how many sizes the program tells there, `told` bytes from where its memory begins.
        home: where in it the elements are, and `width` the bytes of each.
    """

    sizes: tuple[int, ...] | None
    rank: int = 0
    told: int = 0
    home: int = 0
    width: int = 0


@dataclass(frozen=True)
class Input:
    """What a program takes.

    Attributes:
        sizes: along `axis`, if there is one, the most: the array says how much there is.
    """

    dtype: ScalarType
    sizes: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class Output:
    """What a program gives.

    Attributes:
        sizes: None where the data decides them; then as many numbers as `rank` says tell, which it leaves
            in its memory, `place` bytes from where that begins.
        count: of elements, at most.
    """

    dtype: ScalarType
    sizes: tuple[int, ...] | None
    count: int
    rank: int
    place: int = 0
