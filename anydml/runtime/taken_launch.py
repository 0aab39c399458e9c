"""Launches of kernels that take elements from where indices say, put them there, or turn them round."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from anydml.codegen.descriptor import DescriptorTemplate, template_of
from anydml.codegen.kernel import shared_out
from anydml.codegen.row_writer import body_address
from anydml.codegen.scattered import NAMES, ScatteredSpec, ScatteredWriter
from anydml.codegen.taken import TakenSpec, TakenWriter
from anydml.codegen.tuples import TuplesSpec, TuplesWriter
from anydml.codegen.turned import NAMES as TURNED
from anydml.codegen.turned import TurnedSpec, TurnedWriter
from anydml.errors import require
from anydml.ops.dtypes import SIZE, UINT32
from anydml.runtime.launch import Array, RepeatedLaunch
from anydml.runtime.threads import pool


class TakenLaunch(RepeatedLaunch):
    """Along an axis. Arrays, all packed: the source, the target, indices, and weights where there are any."""

    def __init__(self, spec: TakenSpec, axis: int, threads: int | None, tables: Sequence[Array] = ()) -> None:
        """`tables`: the indices and weights, where they are always the same."""
        self._spec, self._axis, self.tables = spec, axis, tables
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, axis = self._spec, self._axis
        source, target, *others = arrays
        before, length = prod(source.shape[:axis]), source.shape[axis]
        behind = prod(source.shape[axis + 1 :])
        places = others[0].shape[axis] if spec.own else others[0].size
        width = SIZE[spec.dtype]
        require(
            all(a.flags.c_contiguous for a in arrays),
            source.itemsize == target.itemsize == width,
            length > 0,
            target.size == before * places * behind,
            spec.rows or behind == 1,
            len(others) == spec.terms * (2 if spec.weighted else 1),
            spec.terms == 1 or not spec.own,
            all(a.size == (target.size if spec.own else places) for a in others),
            all(a.itemsize == SIZE[spec.index] for a in others[: spec.terms]),
            all(a.itemsize == width for a in others[spec.terms :]),
        )
        names, values = spec.names, {"length": length}
        if spec.rows:
            values["run"], inner = behind, places
            steps = {n: a.itemsize for n, a in zip(names[2:], others, strict=False)}
            steps["target"] = behind * width
            outer = {"source": length * behind * width, "target": places * behind * width}
            if spec.own:
                steps["index0"] = behind * others[0].itemsize
                outer["index0"] = places * behind * others[0].itemsize
        else:
            values["run"], inner, outer = places, before, {}
            steps = {"source": length * width, "target": places * width}
            if spec.own:
                steps["index0"] = places * others[0].itemsize
        descriptor = shared_out(
            body_address(TakenWriter, spec),
            inner,
            [(before, [outer.get(n, 0) for n in names])] if outer else [],
            [values.get(n, 0) for n in names],
            [steps.get(n, 0) for n in names],
            row=values["run"],
            cost=(2 if spec.rows and not spec.own else 4) * spec.terms * width,
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))


class TuplesLaunch(RepeatedLaunch):
    """By tuples of indices. Arrays, all packed: the whole, rows of it, and their tuples. Rows are put by one
    thread, as those in one place have an order."""

    def __init__(self, spec: TuplesSpec, batches: int, lengths: Sequence[int], threads: int | None) -> None:
        """`lengths`: of the whole, along the axes that a tuple has indices for."""
        require(len(lengths) == spec.count, batches > 0, all(n > 0 for n in lengths))
        self._spec, self._batches, self._lengths = spec, batches, lengths
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, batches, (whole, rows, tuples) = self._spec, self._batches, arrays
        width, names = SIZE[spec.dtype], spec.names
        many, places = tuples.size // (batches * spec.count), prod(self._lengths)
        run = whole.size // (batches * places)
        require(
            all(a.flags.c_contiguous for a in arrays),
            whole.itemsize == rows.itemsize == width,
            tuples.itemsize == SIZE[spec.index],
            tuples.size == batches * many * spec.count,
            whole.size == batches * places * run,
            rows.size == batches * many * run,
            spec.long or run == 1,
        )
        values = {"run": run} | {f"length{k}": n for k, n in enumerate(self._lengths)}
        steps = {"rows": run * width, "tuples": spec.count * tuples.itemsize}
        outer = {n: many * step for n, step in steps.items()} | {"whole": places * run * width}
        descriptor = shared_out(
            body_address(TuplesWriter, spec),
            many,
            [(batches, [outer.get(n, 0) for n in names])],
            [values.get(n, 0) for n in names],
            [steps.get(n, 0) for n in names],
            row=run,
            cost=2 * width + spec.count * tuples.itemsize,
            pool=pool.address,
            threads=1 if spec.put else count,
        )
        return template_of(descriptor, len(arrays))


class ScatteredLaunch(RepeatedLaunch):
    """Along the last axis. Arrays, all packed: the source, the target, indices and updates, as rows; of what
    is added up the source is the target."""

    def __init__(self, spec: ScatteredSpec, threads: int | None) -> None:
        self._spec = spec
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, (source, target, index, updates) = self._spec, arrays
        width = SIZE[spec.dtype]
        require(
            all(a.flags.c_contiguous for a in arrays),
            source.shape == target.shape,
            index.shape == updates.shape == (len(source), updates.shape[1]),
            source.itemsize == target.itemsize == width,
            updates.itemsize == (4 if spec.added else width),
            index.itemsize == SIZE[spec.index],
            not spec.added or (spec.index is UINT32 and source.size < 1 << 32),
        )
        (rows, length), run = source.shape, updates.shape[1]
        require(
            length > 0,
        )
        descriptor = shared_out(
            body_address(ScatteredWriter, spec),
            rows,
            [],
            [{"length": length, "run": run}.get(n, 0) for n in NAMES],
            [*(a.strides[0] for a in arrays), length, 0, 0],
            row=length + run,
            cost=4 * width,
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))


class TurnedLaunch(RepeatedLaunch):
    """Arrays, all packed: the source and the target, [before, length, beside, row], and of each sequence how
    many rows are turned round, [before, beside], of INT64 and from 0 on."""

    def __init__(self, spec: TurnedSpec, threads: int | None) -> None:
        self._spec = spec
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        source, target, counts = arrays
        before, length, beside, row = source.shape
        require(
            all(a.flags.c_contiguous for a in arrays),
            source.shape == target.shape,
            source.itemsize == target.itemsize == SIZE[self._spec.dtype],
            counts.shape == (before, beside),
            counts.itemsize == 8,
        )
        (whole, along, beneath, _), still = source.strides, (0, 0, 0)
        down = length, [0, along, 0, 1, *still]
        across = beside, [beneath, beneath, counts.itemsize, 0, *still]
        outer, (inner, steps) = (down, across) if beside >= length else (across, down)
        descriptor = shared_out(
            body_address(TurnedWriter, self._spec),
            inner,
            [(before, [whole, whole, counts.strides[0], 0, *still]), outer],
            [{"length": length, "run": row, "along": along}.get(n, 0) for n in TURNED],
            steps,
            row=row,
            cost=2 * source.itemsize,
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))
