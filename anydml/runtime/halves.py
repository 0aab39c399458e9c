"""float16 around operators of whole tensors that compute in float32: read and rounded by kernels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.errors import require
from anydml.ops.call import Call, Halves, Implementation
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

_SINGLE = np.dtype(np.float32)


class LaunchedHalves(Halves):
    """Known calls consist of launches, so there these are made of small arrays, too, for which NumPy's
    conversions take less time."""

    def __init__(self, threads: int | None) -> None:
        self._widen = RepeatedLaunch(group((FLOAT16,), (convert(read(0, FLOAT16), FLOAT32),)), threads)
        self._round = RepeatedLaunch(group((FLOAT32,), (convert(read(0, FLOAT32), FLOAT16),)), threads)

    def widened(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return {n: self._widened(x) if x.dtype.char == "e" else x for n, x in inputs.items()}

    def _widened(self, x: Array) -> Array:
        if not _by_kernel(x):
            return x.astype(_SINGLE)
        result = scratch(x.shape, _SINGLE)
        self._widen.alone([x, result])
        if not launches_run():  # what computes may look at it all the same
            np.copyto(result, x)
        return result

    def rooms(self, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        return {name: scratch(n, _SINGLE) for name, n in sizes.items()}

    def computed(self, compute: Implementation, call: Call) -> Any:
        """Perhaps by other means than launches."""
        before = count_launches()
        made = compute(call)
        if before is not None and count_launches() == before:
            not_alone()
        return made

    def rounded(self, x: Array, result: Array | None) -> Array:
        if x.dtype.char == "e":
            return x
        if result is None:
            result = np.empty(x.shape, np.float16)
        require(x.shape == result.shape)
        if x.dtype == _SINGLE and _by_kernel(x):
            self._round.alone([x, result])
            return result
        if count_launches() is not None:
            not_alone()
        with np.errstate(all="ignore"):
            np.copyto(result, x, casting="unsafe")
        return result


def _by_kernel(x: Array) -> bool:
    large = x.size >= MIN_TURNED or count_launches() is not None
    return large and x.flags.aligned and x.dtype.isnative and x.size > 0


@cache
def halves(threads: int | None) -> Halves:
    return LaunchedHalves(threads)
