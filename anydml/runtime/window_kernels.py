"""Pooling as kernels, axis by axis: the taps of a window are operands, the input seen from other starts.

    y[i] = max(x[2i], x[2i + 1], x[2i + 2])        three views of x along an axis, with steps of 2

Windows that reach beyond the input have fewer taps, and so a kernel of their own. Long windows, and small
outputs, stay with the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from math import isfinite, prod
from typing import Any

import numpy as np

from anydml.codegen.kernel import group
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, FROM_NUMPY, NUMPY
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, absolute, add, convert, div, maximum, mul, read, sqrt
from anydml.ops.opdef import Operator
from anydml.ops.pooling_windows import Window, divisors, lowest, windows_of
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch

MAX_TAPS = 16
"""Of a window along an axis: a kernel has so many operands, and a few more."""
MIN_ELEMENTS = 1 << 14
"""Of the output."""
POOLING = {
    "AVERAGE_POOLING": "AVERAGE",
    "AVERAGE_POOLING1": "AVERAGE",
    "LP_POOLING": "LP",
    "LP_POOLING1": "LP",
    "MAX_POOLING": "MAX",
    "MAX_POOLING1": "MAX",
    "MAX_POOLING2": "MAX",
}

Implementation = Callable[[Call], Any]


def window_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of a pooling by kernels; None where its definition is as good."""
    word, given = POOLING.get(operator.name), tensors.get("InputTensor")
    if word is None or given is None:
        return None
    window, sizes = attributes["WindowSize"], tensors["OutputTensor"].sizes
    if prod(sizes) < MIN_ELEMENTS or max(window) > MAX_TAPS or "OutputIndicesTensor" in tensors:
        return None
    dtype = FLOAT32 if given.data_type is FLOAT16 else given.data_type
    if (word != "MAX" and dtype is not FLOAT32) or (word == "LP" and attributes["P"] > 2):
        return None
    return _Pooling(word, dtype, attributes.get("P", 0), threads)


@dataclass(frozen=True)
class _Stretch:
    """Windows beside each other that have the same taps within the input, by their numbers."""

    first: int
    last: int
    taps: range

    def reads(self, w: Window) -> Iterator[tuple[Any, ...]]:
        """For each tap, where these windows find it."""
        for k in self.taps:
            first, last = (p * w.stride + k * w.dilation - w.start for p in (self.first, self.last))
            yield w.at(slice(first, last + 1, w.stride))


def _stretches(w: Window) -> list[_Stretch]:
    def taps(place: int) -> range:
        first = place * w.stride - w.start
        least = max(0, -(first // w.dilation))
        return range(least, max(least, min(w.size, (w.length - 1 - first) // w.dilation + 1)))

    found = ((k, list(places)) for k, places in groupby(range(w.places), taps))
    return [_Stretch(places[0], places[-1], k) for k, places in found]


class _Pooling:
    """Reduces one axis after the other. Sums of squares have float64 in between, averages where need be."""

    def __init__(self, word: str, dtype: TensorDataType, p: int, threads: int | None) -> None:
        self._word, self._dtype, self._p, self._threads = word, dtype, p, threads
        self._wide = FLOAT64 if word == "LP" else dtype
        self._windows: list[tuple[Window, list[_Stretch]]] = []
        self._divisors = np.zeros(())
        self._launches: dict[tuple[int, int], RepeatedLaunch] = {}

    def __call__(self, c: Call) -> Any:
        if not self._windows:  # every call has the same sizes
            windows = windows_of(c, c.input.shape)
            if self._word == "AVERAGE":
                self._divisors = divisors(c, windows)
            self._windows = [(w, _stretches(w)) for w in windows]
        x = c.input
        for w, stretches in self._windows:
            last = w.axis == x.ndim - 1
            dtype = NUMPY[self._dtype if last else self._wide]
            made = np.empty((*x.shape[: w.axis], w.places, *x.shape[w.axis + 1 :]), dtype)
            for s in stretches:
                here = made[w.at(slice(s.first, s.last + 1))]
                if not s.taps:
                    here[...] = lowest(made.dtype) if self._word == "MAX" else 0
                    continue
                given = [x[part] for part in s.reads(w)]
                if last and self._word == "AVERAGE":
                    whole = np.broadcast_to(self._divisors, made.shape)
                    given.append(whole[w.at(slice(s.first, s.last + 1))])
                self._launch(w, x, len(s.taps), last)([*given, here])
            x = made
        if self._word == "AVERAGE" and not isfinite(x.sum()):
            assert c.operator.compute is not None
            x = c.operator.compute(c)  # sums may be too large for float32 where averages are not
        return (x, None) if len(c.operator.outputs) > 1 else x

    def _launch(self, w: Window, x: Array, taps: int, last: bool) -> RepeatedLaunch:
        launch = self._launches.get((w.axis, taps))
        if launch is None:
            types = [FROM_NUMPY[x.dtype]] * taps
            values: list[Expr] = [convert(read(k, t), self._wide) for k, t in enumerate(types)]
            if self._word == "LP" and w.axis == 2:
                values = [absolute(v) if self._p == 1 else mul(v, v) for v in values]
            total = reduce(maximum if self._word == "MAX" else add, values)
            if last and self._word == "AVERAGE":
                total = div(total, read(taps, FLOAT32))
                types.append(FLOAT32)
            elif last and self._p == 2:
                total = sqrt(total)
            kernel = group(tuple(types), (convert(total, self._dtype) if last else total,))
            launch = self._launches[w.axis, taps] = RepeatedLaunch(kernel, self._threads)
        return launch
