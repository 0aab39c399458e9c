"""The best elements along an axis."""

from __future__ import annotations

import numpy as np

from anydml.codegen.emit import value_type
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.reductions import largest, least
from anydml.codegen.program.values import Tensor
from anydml.ops import expr
from anydml.ops.dtypes import FLOATING, INT64, NUMPY, ScalarType
from anydml.ops.expr import Expr, read


def best(b: ProgramBuilder, tensor: Tensor, axis: int, count: int, greatest: bool) -> tuple[Tensor, Tensor]:
    """So many of the greatest (or least) elements along an axis, best first, and their places.

    Of equal ones the first comes first; NaN is greater than all numbers.
    """
    source, dtype = b.memory(tensor), tensor.dtype
    sizes = (*tensor.sizes[:axis], count, *tensor.sizes[axis + 1 :])
    values, places = b.room(dtype, sizes), b.room(INT64, sizes)
    n, step = tensor.sizes[axis], source.strides[axis]
    b.work += 2 * tensor.count * count
    kind, code = value_type(dtype, 1), b.code
    new, other = read(0, dtype), read(1, dtype)
    beats, beaten = _beats(new, other, greatest), _beats(other, new, greatest)
    top = b.code.constant(np.array(_top(dtype, greatest), NUMPY[dtype]), dtype)

    def row(pointers: list[str]) -> None:
        pointer, value_home, place_home = pointers

        def pick(rank: str, last: list[str]) -> list[str]:
            """The best of those that come after the last one."""

            def look(index: str, found: list[str]) -> list[str]:
                x = code.load(code.at(pointer, code.times(index, step), dtype), dtype)
                worse, better = code.evaluate([beaten, beats], 1, {new: x, other: last[0]})
                (wins,) = code.evaluate([beats], 1, {new: x, other: found[0]})
                equal = code.line(f"xor i1 {better}, true")  # or worse
                later = code.line(f"icmp sgt i64 {index}, {last[1]}")
                after = code.line(f"or i1 {worse}, {code.line(f'and i1 {equal}, {later}')}")
                none = code.line(f"icmp slt i64 {found[1]}, 0")
                takes = code.line(f"and i1 {after}, {code.line(f'or i1 {none}, {wins}')}")
                return [
                    code.line(f"select i1 {takes}, {kind} {x}, {kind} {found[0]}"),
                    code.line(f"select i1 {takes}, i64 {index}, i64 {found[1]}"),
                ]

            found = code.loop(n, look, [(kind, last[0]), ("i64", "-1")])
            code.store(found[0], code.at(value_home, code.times(rank, values.strides[axis]), dtype), dtype)
            code.store(found[1], code.at(place_home, code.times(rank, places.strides[axis]), INT64), INT64)
            return found

        code.loop(count, pick, [(kind, top), ("i64", "-1")])

    every = (source, values, places)
    stays = [(m, [t.strides[k] for t in every]) for k, m in enumerate(sizes) if k != axis]
    b.over(stays, [(t.dtype, t.pointer) for t in every], row)
    return b.settled(values), b.settled(places)


def _beats(x: Expr, y: Expr, greatest: bool) -> Expr:
    wins = expr.gt(x, y) if greatest else expr.lt(x, y)
    if x.dtype not in FLOATING:
        return wins
    above, below = (x, y) if greatest else (y, x)
    return expr.or_(wins, expr.and_(expr.is_nan(above), expr.not_(expr.is_nan(below))))


def _top(dtype: ScalarType, greatest: bool) -> int | float:
    """What nothing beats."""
    if not greatest:
        return least(dtype)
    return float("nan") if dtype in FLOATING else largest(dtype)
