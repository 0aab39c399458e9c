"""The best of boxes that do not overlap much.

The best one is selected, all that overlap it are gone, and so on. So each box is compared with those that
were selected, and it does not matter that worse ones of those that are gone overlap each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anydml.codegen.emit import value_type
from anydml.codegen.program.bounded import same_length
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.reductions import LARGEST, folded_lanes, least
from anydml.codegen.program.sorting import key_of
from anydml.codegen.program.values import Bounded, Known, Memory, Tensor
from anydml.ops import expr
from anydml.ops.dtypes import FLOAT32, INT64, SIZE
from anydml.ops.expr import Expr, read

GONE = int(least(INT64))
"""The key of a box that is selected or overlaps one that is."""


@dataclass(frozen=True)
class Limits:
    """How many boxes of a class, by how much two may overlap, which score is too low, and whether boxes are
    centers and sizes instead of corners."""

    most: Tensor
    overlap: Tensor
    score: Tensor | None
    centered: bool


def suppressed(b: ProgramBuilder, boxes: Tensor, scores: Tensor, limits: Limits) -> Bounded:
    """[as many as are selected, 3]: batch, class and number of each box, the best of each class first.

    Args:
        boxes: [batches, boxes, 4] of FLOAT32.
        scores: [batches, classes, boxes]. Without a limit, one that is NaN is left to others.
    """
    batches, classes, count = scores.sizes
    if boxes.sizes[1] != count or isinstance(boxes, Bounded) or isinstance(scores, Bounded):
        same_length(b, str(b.length(boxes, 1)), b.length(scores, 2))
    most = min(limits.most.integers[0], count) if isinstance(limits.most, Known) else count
    result = b.room(INT64, (batches * classes * most, 3))
    b.work += batches * classes * count * (8 + most // 4)
    writer = _Classes(b, boxes, scores, limits, result)

    def batch(at: str, carried: list[str]) -> list[str]:
        return b.code.loop(classes, lambda c, now: [writer.write(at, c, now[0])], [("i64", carried[0])])

    (length,) = b.code.loop(batches, batch, [("i64", "0")])
    return Bounded.of(b.settled(result), 0, length)


class _Classes:
    """Writes what is selected of one class of one batch."""

    def __init__(
        self, b: ProgramBuilder, boxes: Tensor, scores: Tensor, limits: Limits, result: Memory
    ) -> None:
        self.b, self.limits, self.result = b, limits, result
        self.boxes, self.scores = b.memory(boxes), b.memory(scores)
        self.count, self.length = scores.sizes[2], b.length(scores, 2)
        self.lanes = b.vector_lanes(SIZE[INT64])
        room = self.count + self.lanes  # the last vector may reach further
        self.keys = b.room(INT64, (room,))
        self.extents = [b.room(FLOAT32, (room,)) for _ in range(5)]
        zero, most = ("i64", "0"), ("i64", b.scalar(limits.most))
        self.most = b.code.call("i64", "llvm.smax.i64", most, zero)
        self.overlap = b.scalar(limits.overlap)
        self.score = None if limits.score is None else b.scalar(limits.score)

    def write(self, batch: str, group: str, found: str) -> str:
        """`found`: how many there are before; answers with how many there are behind."""
        code = self.b.code
        boxes = code.at(self.boxes.pointer, code.times(batch, self.boxes.strides[0]), FLOAT32)
        candidates, best = self._candidates(self._scores(batch, group))
        some = code.constant(np.full(self.lanes, GONE), INT64)
        code.store(some, code.at(self.keys.pointer, candidates, INT64), INT64, self.lanes)

        def describe(index: str, _: list[str]) -> list[str]:
            key = code.load(code.at(self.keys.pointer, index, INT64), INT64)
            for extent, value in zip(self.extents, self._extents(boxes, self._number(key)), strict=True):
                code.store(value, code.at(extent.pointer, index, FLOAT32), FLOAT32)
            return []

        code.loop(candidates, describe)
        end = code.line(f"add i64 {found}, {self.most}")

        def more(now: list[str]) -> str:
            alive = code.line(f"icmp ne i64 {now[0]}, {GONE}")
            return code.line(f"and i1 {alive}, {code.line(f'icmp ult i64 {now[1]}, {end}')}")

        def select(now: list[str]) -> list[str]:
            number = self._number(now[0])
            row = code.at(self.result.pointer, code.times(now[1], 3), INT64)
            for k, told in enumerate((batch, group, number)):
                code.store(told, code.at(row, k, INT64), INT64)
            following = self._suppress(now[0], self._extents(boxes, number), candidates)
            return [following, code.line(f"add nuw nsw i64 {now[1]}, 1")]

        return code.loop_while(more, select, [("i64", best), ("i64", found)])[1]

    def _scores(self, batch: str, group: str) -> str:
        code, place = self.b.code, self.scores.pointer
        for index, stride in zip((batch, group), self.scores.strides, strict=False):
            place = code.at(place, code.times(index, stride), FLOAT32)
        return place

    def _candidates(self, scores: str) -> list[str]:
        """The keys of the boxes that may be selected: how many, and the best."""
        code, step = self.b.code, self.scores.strides[2]
        x, end, one, other = read(0, FLOAT32), read(1, INT64), read(2, INT64), read(3, INT64)
        key = key_of(x, end, True)

        def look(index: str, now: list[str]) -> list[str]:
            score = code.load(code.at(scores, code.times(index, step), FLOAT32), FLOAT32)
            if self.score is None:
                ordered = code.line(f"fcmp ord float {score}, {score}")
                self.b.leave_unless(ordered, "expected numbers as scores", index)
                taken = "true"
            else:
                taken = code.line(f"fcmp ogt float {score}, {self.score}")
            from_end = code.line(f"sub i64 {self.count - 1}, {index}")
            (own,) = code.evaluate([key], 1, {x: score, end: from_end})
            code.store(own, code.at(self.keys.pointer, now[0], INT64), INT64)
            counted = code.line(f"select i1 {taken}, i64 {own}, i64 {GONE}")
            (best,) = code.evaluate([expr.maximum(one, other)], 1, {one: now[1], other: counted})
            return [code.line(f"add nuw nsw i64 {now[0]}, {code.line(f'zext i1 {taken} to i64')}"), best]

        return code.loop(self.length, look, [("i64", "0"), ("i64", str(GONE))])

    def _number(self, key: str) -> str:
        """Of the box with this key."""
        code = self.b.code
        return code.line(f"sub i64 {self.count - 1}, {code.line(f'and i64 {key}, {0xFFFFFFFF}')}")

    def _extents(self, boxes: str, number: str) -> list[str]:
        """From where to where a box reaches along both axes, and its area."""
        code, (_, along, step) = self.b.code, self.boxes.strides
        place = code.at(boxes, code.times(number, along), FLOAT32)
        sides = [read(k, FLOAT32) for k in range(4)]
        known = {x: code.load(code.at(place, k * step, FLOAT32), FLOAT32) for k, x in enumerate(sides)}
        one, other = (_reach(sides[k], sides[k + 2], self.limits.centered) for k in (0, 1))
        extents = [*one, *other]
        return code.evaluate([*extents, _area(extents)], 1, known)

    def _suppress(self, best: str, extents: Sequence[str], candidates: str) -> str:
        """Those that overlap the best one are gone; answers with the next best one."""
        b, code, lanes = self.b, self.b.code, self.lanes
        key, chosen, top = (read(k, INT64) for k in range(3))
        these, those = ([read(k + j, FLOAT32) for j in range(5)] for k in (3, 8))
        overlap = read(13, FLOAT32)
        gone = expr.or_(_overlap(those, these, overlap), expr.eq(key, chosen))
        left = expr.select(gone, GONE, key)
        spread = {x: code.splat(e, FLOAT32, lanes) for x, e in zip(those, extents, strict=True)}
        spread |= {chosen: code.splat(best, INT64, lanes), overlap: code.splat(self.overlap, FLOAT32, lanes)}

        def block(index: str, now: list[str]) -> list[str]:
            first = code.times(index, lanes)
            known = dict(spread)
            for x, memory in zip([key, *these], [self.keys, *self.extents], strict=True):
                known[x] = code.load(code.at(memory.pointer, first, memory.dtype), memory.dtype, lanes)
            kept, highest = code.evaluate([left, expr.maximum(top, left)], lanes, {**known, top: now[0]})
            code.store(kept, code.at(self.keys.pointer, first, INT64), INT64, lanes)
            return [highest]

        start = code.constant(np.full(lanes, GONE), INT64)
        (found,) = code.loop(code.blocks(candidates, lanes), block, [(value_type(INT64, lanes), start)])
        return folded_lanes(b, LARGEST, INT64, found, lanes)


def _reach(one: Expr, other: Expr, centered: bool) -> tuple[Expr, Expr]:
    """Of two corners, whichever comes first, or of a center and a width."""
    if centered:
        half = expr.div(other, 2.0)
        return expr.sub(one, half), expr.add(one, half)
    turned = expr.ge(one, other)
    return expr.select(turned, other, one), expr.select(turned, one, other)


def _area(extents: Sequence[Expr]) -> Expr:
    return expr.mul(expr.sub(extents[1], extents[0]), expr.sub(extents[3], extents[2]))


def _overlap(one: Sequence[Expr], other: Sequence[Expr], limit: Expr) -> Expr:
    """Whether the area that two boxes share is more than so much of what both cover; as onnxruntime compares,
    also where a corner is NaN."""
    lower, upper = zip(
        *(
            (
                expr.select(expr.lt(one[k], other[k]), other[k], one[k]),
                expr.select(expr.lt(other[k + 1], one[k + 1]), other[k + 1], one[k + 1]),
            )
            for k in (0, 2)
        ),
        strict=True,
    )
    shared = _area([lower[0], upper[0], lower[1], upper[1]])
    covered = expr.sub(expr.add(one[4], other[4]), shared)
    none = [expr.le(u, v) for v, u in zip(lower, upper, strict=True)]
    none += [expr.le(area, 0.0) for area in (shared, one[4], other[4], covered)]
    found = expr.gt(expr.div(shared, covered), limit)
    for apart in none:
        found = expr.and_(found, expr.not_(apart))
    return found
