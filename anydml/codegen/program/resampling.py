"""Tensors of another size along an axis: each element is made of two of before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.geometry import loops, strides_like
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import Known, Memory, Tensor
from anydml.ops.dtypes import INT32, SIZE, ScalarType
from anydml.ops.expr import Expr, read

_Sides = tuple[NDArray[np.int64], NDArray[np.int64]]


def between(
    b: ProgramBuilder, tensor: Tensor, axis: int, sides: _Sides, shares: NDArray[Any], meaning: Expr
) -> Tensor:
    """What `meaning` makes of two elements, read(0) and read(1), and a share, read(2), which are told for
    each place along an axis."""
    x = b.use(tensor)
    if isinstance(x, Memory) and x.strides[axis] == 1:
        along = _in_rows(b, x, axis, sides, shares, meaning)
        if along is not None:
            return along
    elif isinstance(x, Memory) and 1 in x.strides:
        return _of_rows(b, x, axis, sides, shares, meaning)
    places = np.arange(x.count).reshape(x.sizes)
    taken = [b.rearrange(x, places.take(side, axis)) for side in sides]
    wanted = Known.of(shares.reshape(-1, *[1] * (len(x.sizes) - axis - 1)))
    return b.elementwise(meaning, [*taken, wanted])


def _of_rows(
    b: ProgramBuilder, x: Memory, axis: int, sides: _Sides, shares: NDArray[Any], meaning: Expr
) -> Memory:
    """Whole rows, by a table of which."""
    code, dtype, count = b.code, x.dtype, len(shares)
    sizes = (*x.sizes[:axis], count, *x.sizes[axis + 1 :])
    result = b.room(dtype, sizes, strides_like(sizes, [x]))
    offsets = np.stack([side * x.strides[axis] for side in sides], 1)
    if not 0 <= offsets.min() <= offsets.max() < 1 << 31:
        raise NotNative("elements that are far apart")
    table, share = b.memory(Known.of(offsets.astype(np.int32))), b.memory(Known.of(shares))
    kept = [k for k in range(len(sizes)) if k != axis]
    steps = [tuple(m.strides[k] for k in kept) for m in (result, x, x)]
    b.work += 2 * result.count

    def row(index: str, _: list[str]) -> list[str]:
        begins = [code.at(result.pointer, code.times(index, result.strides[axis]), dtype)]
        for k in range(2):
            at = code.load(code.at(code.at(table.pointer, code.times(index, 2), INT32), k, INT32), INT32)
            begins.append(code.at(x.pointer, code.line(f"sext i32 {at} to i64"), dtype))
        part = code.load(code.at(share.pointer, index, dtype), dtype)

        def write(pointers: list[str], lanes: int, steps: tuple[int, ...], _: Mapping[int, str]) -> None:
            one, two = (b.lanes(p, dtype, lanes, s) for p, s in zip(pointers[1:], steps[1:], strict=True))
            known = _known(dtype, one, two, code.splat(part, dtype, lanes))
            code.store(code.evaluate([meaning], lanes, known)[0], pointers[0], dtype, lanes)

        operands = [(dtype, begin, s) for begin, s in zip(begins, steps, strict=True)]
        b.nest([sizes[k] for k in kept], operands, write, SIZE[dtype])
        return []

    code.loop(count, row)
    return result


def _in_rows(
    b: ProgramBuilder, x: Memory, axis: int, sides: _Sides, shares: NDArray[Any], meaning: Expr
) -> Memory | None:
    """Vectors of elements of the same row; None where too many lie between them."""
    code, dtype = b.code, x.dtype
    found = b.near_vectors(sides, dtype)
    sizes = (*x.sizes[:axis], len(shares), *x.sizes[axis + 1 :])
    strides = strides_like(sizes, [x])
    if found is None or strides[axis] != 1:
        return None
    lanes, vectors = found
    result = b.room(dtype, sizes, strides)
    share = b.memory(Known.of(shares))
    kept = [k for k in range(len(sizes)) if k != axis]
    outer = loops([sizes[k] for k in kept], [[m.strides[k] for k in kept] for m in (result, x)])
    b.work += 2 * result.count

    def row(pointers: list[str]) -> None:
        for start, places in vectors:
            one, two = (b.near(pointers[1], line, dtype) for line in places)
            part = code.load(code.at(share.pointer, start, dtype), dtype, lanes)
            (value,) = code.evaluate([meaning], lanes, _known(dtype, one, two, part))
            code.store(value, code.at(pointers[0], start, dtype), dtype, lanes)

    b.over([(d.size, d.steps) for d in outer], [(dtype, result.pointer), (dtype, x.pointer)], row)
    return result


def _known(dtype: ScalarType, one: str, two: str, share: str) -> dict[Expr, str]:
    return {read(0, dtype): one, read(1, dtype): two, read(2, dtype): share}
