"""Resampling by kernels: axis after axis, terms in the order of the definitions, and so the same bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.taken import TakenSpec
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT32, FROM_NUMPY, INT32, UINT8, UINT32
from anydml.ops.interpolation import in_order
from anydml.ops.opdef import Operator
from anydml.ops.resampling import terms_of
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, copying, packed, scratch
from anydml.runtime.taken_launch import TakenLaunch

MAX_TERMS = 8
"""That are added up along an axis: code is written for each."""
RESAMPLING = ("UPSAMPLE_2D", "RESAMPLE", "RESAMPLE1", "RESAMPLE2", "RESAMPLE3")

Pass = Callable[[Array, Array], None]
"""Along one axis, from one array to another."""


def resample_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of an operator that resamples; None where its definition is as good."""
    return _Resampling(threads)


class _Resampling:
    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._passes: list[tuple[tuple[int, ...], Pass]] | None = None
        """For each axis the sizes that it leads to; none, where definitions compute."""

    def __call__(self, c: Call) -> Array:
        if self._passes is None:  # every call has the same sizes
            self._passes = self._plan(c)
        if not self._passes:
            result: Array = c.by_definition()
            return result
        x = packed(c.input, self._threads)
        for k, (sizes, run) in enumerate(self._passes, 1):
            last = k == len(self._passes)
            made = empty(c.output, x.dtype) if last else scratch(sizes, x.dtype)
            run(x, made)
            x = made
        return x

    def _plan(self, c: Call) -> list[tuple[tuple[int, ...], Pass]]:
        with np.errstate(all="ignore"):  # scales may be next to nothing
            terms = terms_of(c)
        sizes, dtype = list(c.input.shape), c.input.dtype
        passes: list[tuple[tuple[int, ...], Pass]] = []
        for axis in in_order(sizes, c.output.shape):
            along = terms[axis]
            if not along:
                continue
            weights = [w.astype(np.float32) for _, _, w in along if w is not None]
            if weights and (dtype != np.float32 or len(weights) != len(along) or len(along) > MAX_TERMS):
                return []
            before, sizes[axis] = sizes[axis], c.output.shape[axis]
            each = sizes[axis] // before
            if not weights and prod(sizes[axis + 1 :]) == 1 and _repeats(along[0][1], before, each):
                passes.append(
                    (tuple(sizes), partial(_repeat, copying(FROM_NUMPY[dtype], self._threads), each))
                )
                continue
            tables = [source.astype(np.int32) for _, source, _ in along] + weights
            words = {1: UINT8, 4: UINT32}[dtype.itemsize] if not weights else FLOAT32
            rows = prod(sizes[axis + 1 :]) > 1
            spec = TakenSpec(words, INT32, len(along), bool(weights), rows)
            passes.append((tuple(sizes), partial(_take, TakenLaunch(spec, axis, self._threads, tables))))
        return passes


def _repeats(source: Array, count: int, each: int) -> bool:
    """Whether every element comes so many times."""
    return len(source) == count * each and np.array_equal(source, np.arange(count).repeat(each))


def _repeat(copy: RepeatedLaunch, each: int, x: Array, made: Array) -> None:
    """Each element so many times, along the last axis: a copy of what is broadcast."""
    whole = made.reshape(-1, each)
    copy.alone([np.broadcast_to(x.reshape(-1, 1), whole.shape), whole])


def _take(launch: TakenLaunch, x: Array, made: Array) -> None:
    launch.alone([x, made, *launch.tables])
