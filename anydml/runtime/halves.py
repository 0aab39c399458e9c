"""float16 around operators of whole tensors that compute in float32: read and rounded by kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar

import numpy as np

from anydml.codegen.kernel import group
from anydml.ops.dtypes import FLOAT16, FLOAT32
from anydml.ops.expr import convert, read
from anydml.runtime.launch import (
    MIN_TURNED,
    Array,
    RepeatedLaunch,
    count_launches,
    launches_run,
    not_alone,
    scratch,
)

T = TypeVar("T")
_SINGLE = np.dtype(np.float32)


class Halves:
    """Known calls consist of launches, so there these are made of small arrays, too, for which NumPy's
    conversions take less time."""

    def __init__(self, threads: int | None) -> None:
        self._widen = RepeatedLaunch(group((FLOAT16,), (convert(read(0, FLOAT16), FLOAT32),)), threads)
        self._round = RepeatedLaunch(group((FLOAT32,), (convert(read(0, FLOAT32), FLOAT16),)), threads)

    def widened(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The inputs, those of float16 as float32."""
        return {n: self._widened(x) if x.dtype.char == "e" else x for n, x in inputs.items()}

    def _widened(self, x: Array) -> Array:
        if not _by_kernel(x):
            return x.astype(_SINGLE)
        result = scratch(x.shape, _SINGLE)
        self._widen.alone([x, result])
        if not launches_run():  # what computes may look at it all the same
            np.copyto(result, x)
        return result

    def room(self, sizes: tuple[int, ...]) -> Array:
        """Memory for a result that is to be rounded."""
        return scratch(sizes, _SINGLE)

    def computed(self, compute: Callable[[], T]) -> T:
        """What `compute` gives between reading and rounding, perhaps by other means than launches."""
        before = count_launches()
        made = compute()
        if before is not None and count_launches() == before:
            not_alone()
        return made

    def round(self, x: Array, result: Array) -> None:
        """Write it into an array of float16."""
        if x.dtype == _SINGLE and _by_kernel(x):
            self._round.alone([x, result])
            return
        if count_launches() is not None:
            not_alone()
        with np.errstate(all="ignore"):
            np.copyto(result, x, casting="unsafe")


def _by_kernel(x: Array) -> bool:
    large = x.size >= MIN_TURNED or count_launches() is not None
    return large and x.flags.aligned and x.dtype.isnative and x.size > 0


@cache
def halves(threads: int | None) -> Halves:
    return Halves(threads)
