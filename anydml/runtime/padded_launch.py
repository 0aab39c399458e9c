"""Launches of kernels that put something around rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from anydml.codegen.descriptor import DescriptorTemplate, template_of
from anydml.codegen.kernel import shared_out
from anydml.codegen.padded import PaddedSpec, PaddedWriter
from anydml.codegen.row_writer import body_address
from anydml.errors import require
from anydml.ops.dtypes import SIZE
from anydml.runtime.launch import Array, RepeatedLaunch
from anydml.runtime.threads import pool


class PaddedLaunch(RepeatedLaunch):
    """From [planes, rows, run] to [planes, rows around, run around], both packed.

    Of indices of rows, and of elements within a row (of a value: none), none is outside; rows that are
    nothing but the value have negative ones.
    """

    def __init__(
        self, spec: PaddedSpec, rows: Array, ends: tuple[Array, Array], value: int, threads: int | None
    ) -> None:
        """`rows`: the source's, for each of the target's; `ends`: the elements before and behind its own."""
        self._spec, self._value = spec, value
        self._around = ends[0].size, ends[1].size
        tables = [rows] if spec.constant else [rows, np.concatenate(ends)]
        self.tables = [np.ascontiguousarray(t, np.int64) for t in tables]
        self._threads, self._known = threads, {}

    def pad(self, source: Array, target: Array) -> None:
        self.alone([source, target, *self.tables])

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, (source, target, rows, *ends), (before, after) = self._spec, arrays, self._around
        planes, height, run = source.shape
        require(
            target.shape == (planes, rows.size, before + run + after),
            all(a.flags.c_contiguous for a in arrays),
            source.itemsize == target.itemsize == SIZE[spec.dtype],
            run > 0,
            rows.max() < height,
            spec.constant or rows.min() >= 0,
            [e.shape for e in ends] == ([] if spec.constant else [(before + after,)]),
            all(0 <= e.min() <= e.max() < run for e in ends if e.size),
        )
        values = {
            "run": run,
            "before": before,
            "after": after,
            "pitch": source.strides[1],
            "value": self._value,
        }
        outer = {"source": source.strides[0], "target": target.strides[0]}
        steps = {"target": target.strides[1], "rows": rows.itemsize}
        inner, nest = rows.size, [(planes, [outer.get(n, 0) for n in spec.names])]
        if inner == 1:
            inner, steps, nest = planes, outer, []
        descriptor = shared_out(
            body_address(PaddedWriter, spec),
            inner,
            nest,
            [values.get(n, 0) for n in spec.names],
            [steps.get(n, 0) for n in spec.names],
            row=target.shape[2],
            cost=2 * SIZE[spec.dtype],
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))
