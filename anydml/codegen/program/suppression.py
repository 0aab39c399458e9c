"""The best of boxes that do not overlap much.

keys      of the boxes whose score is not too low, in groups of vectors, each with the greatest in it
next box  the greatest of these; its group is looked through again without it
selected  if none of those that are selected overlaps it much, a vector of which is compared at once
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from anydml.codegen.llvm_types import literal, value_type
from anydml.codegen.program.bounded import same_length
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.foldings import LARGEST, least
from anydml.codegen.program.reductions import folded_lanes
from anydml.codegen.program.sorting import key_of
from anydml.codegen.program.values import Bounded, Known, Memory, Tensor
from anydml.dataclass import dataclass
from anydml.ops import expr
from anydml.ops.dtypes import BOOL, FLOAT32, INT64, SIZE
from anydml.ops.expr import Expr, read

GONE = int(least(INT64))
"""The key of a box that was looked at."""
GROUP, ALONE = 8, 16
"""Vectors of keys in a group, and in one that has all."""


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
    b.work += batches * classes * count * (8 + most // 16)
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
        self.lanes, self.wide = b.vector_lanes(SIZE[INT64]), b.vector_lanes(SIZE[FLOAT32])
        vectors = -(-self.count // self.lanes)
        self.alone = vectors <= ALONE
        self.vectors = vectors if self.alone else GROUP
        self.group = self.vectors * self.lanes
        groups = -(-self.count // self.group)
        self.keys = b.room(INT64, ((groups + 1) * self.group,))  # behind the last one, as many that are gone
        self.tops = b.room(INT64, (groups + self.lanes,))
        self.numbers = b.room(INT64, (self.count,))
        most = result.sizes[0] // prod(scores.sizes[:2])
        self.selected = [b.room(FLOAT32, (most + 1 + self.wide,)) for _ in range(5)]
        zero, told = ("i64", "0"), ("i64", b.scalar(limits.most))
        self.most = b.code.call("i64", "llvm.smax.i64", told, zero)
        self.overlap = b.code.splat(b.scalar(limits.overlap), FLOAT32, self.wide)
        self.score = None if limits.score is None else b.scalar(limits.score)
        self.gone = b.code.constant(np.full(self.lanes, GONE), INT64)
        self.nowhere = b.code.constant(np.zeros(self.wide, np.float32), FLOAT32)

    def write(self, batch: str, group: str, found: str) -> str:
        """`found`: how many there are before; answers with how many there are behind."""
        code = self.b.code
        boxes = code.at(self.boxes.pointer, code.times(batch, self.boxes.strides[0]), FLOAT32)
        candidates = self._candidates(self._scores(batch, group))
        groups = code.blocks(candidates, self.group)
        end = code.line(f"add i64 {found}, {self.most}")
        self._hide("0")

        def more(now: list[str]) -> str:
            left = code.line(f"icmp ne i64 {now[0]}, {GONE}")
            return code.line(f"and i1 {left}, {code.line(f'icmp ult i64 {now[1]}, {end}')}")

        def look(now: list[str]) -> list[str]:
            place = code.line(f"sub i64 {self.count - 1}, {code.line(f'and i64 {now[0]}, {0xFFFFFFFF}')}")
            number = code.load(code.at(self.numbers.pointer, place, INT64), INT64)
            row = code.at(self.result.pointer, code.times(now[1], 3), INT64)
            for k, told in enumerate((batch, group, number)):
                code.store(told, code.at(row, k, INT64), INT64)
            before = code.line(f"sub i64 {now[1]}, {found}")
            taken = self._select(self._extents(boxes, number), before)
            after = code.line(f"add nuw nsw i64 {now[1]}, {code.line(f'zext i1 {taken} to i64')}")
            return [self._following(now[0], place, groups), after]

        return code.loop_while(more, look, [("i64", self._first(groups)), ("i64", found)])[1]

    def _scores(self, batch: str, group: str) -> str:
        code, place = self.b.code, self.scores.pointer
        for index, stride in zip((batch, group), self.scores.strides, strict=False):
            place = code.at(place, code.times(index, stride), FLOAT32)
        return place

    def _candidates(self, scores: str) -> str:
        """Write keys and numbers of the boxes that may be selected; answers with how many there are."""
        code, step = self.b.code, self.scores.strides[2]

        def score_of(number: str) -> str:
            return code.load(code.at(scores, code.times(number, step), FLOAT32), FLOAT32)

        def look(index: str, now: list[str]) -> list[str]:
            score, taken = score_of(index), "true"
            if self.score is None:
                ordered = code.line(f"fcmp ord float {score}, {score}")
                self.b.leave_unless(ordered, "expected numbers as scores", index)
            else:
                taken = code.line(f"fcmp ogt float {score}, {self.score}")
            code.store(index, code.at(self.numbers.pointer, now[0], INT64), INT64)
            return [code.line(f"add nuw nsw i64 {now[0]}, {code.line(f'zext i1 {taken} to i64')}")]

        x, end = read(0, FLOAT32), read(1, INT64)
        key = key_of(x, end, True)

        def write(index: str, _: list[str]) -> list[str]:
            number = code.load(code.at(self.numbers.pointer, index, INT64), INT64)
            from_end = code.line(f"sub i64 {self.count - 1}, {index}")
            (own,) = code.evaluate([key], 1, {x: score_of(number), end: from_end})
            code.store(own, code.at(self.keys.pointer, index, INT64), INT64)
            return []

        (candidates,) = code.loop(self.length, look, [("i64", "0")])
        code.loop(candidates, write)
        behind = code.at(self.keys.pointer, candidates, INT64)
        for k in range(self.vectors):
            code.store(self.gone, code.at(behind, k * self.lanes, INT64), INT64, self.lanes)
        return candidates

    def _first(self, groups: str) -> str:
        """The greatest key."""
        code = self.b.code
        if self.alone:
            return self._without(str(GONE), "0")

        def one(index: str, _: list[str]) -> list[str]:
            top = self._without(str(GONE), index)
            code.store(top, code.at(self.tops.pointer, index, INT64), INT64)
            return []

        code.loop(groups, one)
        code.store(self.gone, code.at(self.tops.pointer, groups, INT64), INT64, self.lanes)
        return self._greatest(str(GONE), str(GONE), groups)

    def _following(self, key: str, place: str, groups: str) -> str:
        """The greatest key but for one, which stands at a place and is gone from now on."""
        if self.alone:
            return self._without(key, "0")
        top = self._without(key, self.b.code.line(f"udiv i64 {place}, {self.group}"))
        return self._greatest(key, top, groups)

    def _without(self, key: str, group: str) -> str:
        """The greatest key of a group, from which one is gone."""
        code, lanes = self.b.code, self.lanes
        first = code.at(self.keys.pointer, code.times(group, self.group), INT64)
        places = [code.at(first, k * lanes, INT64) for k in range(self.vectors)]
        vectors = [self._replaced(place, key, str(GONE)) for place in places]
        while len(vectors) > 1:
            pairs = [vectors[k : k + 2] for k in range(0, len(vectors), 2)]
            vectors = [self._greater(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return folded_lanes(self.b, LARGEST, INT64, vectors[0], lanes)

    def _greatest(self, key: str, top: str, groups: str) -> str:
        """The greatest key of all groups, one of which has another one now."""
        code, lanes = self.b.code, self.lanes

        def block(index: str, now: list[str]) -> list[str]:
            place = code.at(self.tops.pointer, code.times(index, lanes), INT64)
            return [self._greater(now[0], self._replaced(place, key, top))]

        found = code.loop(code.blocks(groups, lanes), block, [(value_type(INT64, lanes), self.gone)])
        return folded_lanes(self.b, LARGEST, INT64, found[0], lanes)

    def _replaced(self, place: str, key: str, other: str) -> str:
        """A vector of keys with another one in place of one: whole vectors, which soon are read again."""
        code, lanes = self.b.code, self.lanes
        x, old, new = (read(k, INT64) for k in range(3))
        known = {n: code.splat(k, INT64, lanes) for n, k in ((old, key), (new, other))}
        known[x] = code.load(place, INT64, lanes)
        (found,) = code.evaluate([expr.select(expr.eq(x, old), new, x)], lanes, known)
        code.store(found, place, INT64, lanes)
        return found

    def _greater(self, one: str, other: str) -> str:
        x, y = read(0, INT64), read(1, INT64)
        return self.b.code.evaluate([expr.maximum(x, y)], self.lanes, {x: one, y: other})[0]

    def _extents(self, boxes: str, number: str) -> list[str]:
        """From where to where a box reaches along both axes, and its area."""
        code, (_, along, step) = self.b.code, self.boxes.strides
        place = code.at(boxes, code.times(number, along), FLOAT32)
        sides = [read(k, FLOAT32) for k in range(4)]
        known = {x: code.load(code.at(place, k * step, FLOAT32), FLOAT32) for k, x in enumerate(sides)}
        one, other = (_reach(sides[k], sides[k + 2], self.limits.centered) for k in (0, 1))
        extents = [*one, *other]
        return code.evaluate([*extents, _area(extents)], 1, known)

    def _select(self, extents: Sequence[str], before: str) -> str:
        """Put a box behind those that are selected, as an i1 says: if none of them overlaps it much."""
        code, wide = self.b.code, self.wide
        those, this = ([read(k + j, FLOAT32) for j in range(5)] for k in (0, 5))
        limit = read(10, FLOAT32)
        known = {x: code.splat(e, FLOAT32, wide) for x, e in zip(this, extents, strict=True)}
        known[limit] = self.overlap
        meaning, blocks = _overlap(those, this, limit), code.blocks(before, wide)

        def more(now: list[str]) -> str:
            left = code.line(f"icmp ult i64 {now[0]}, {blocks}")
            return code.line(f"and i1 {left}, {now[1]}")

        def block(now: list[str]) -> list[str]:
            for x, memory in zip(those, self.selected, strict=True):
                place = code.at(memory.pointer, code.times(now[0], wide), FLOAT32)
                known[x] = code.load(place, FLOAT32, wide)
            (some,) = code.evaluate([meaning], wide, known)
            if wide > 1:
                kind = value_type(BOOL, wide)
                some = code.call("i1", f"llvm.vector.reduce.or.v{wide}i1", (kind, some))
            return [code.line(f"add nuw nsw i64 {now[0]}, 1"), code.line(f"xor i1 {some}, true")]

        taken = code.loop_while(more, block, [("i64", "0"), ("i1", "true")])[1]
        area = code.line(f"select i1 {taken}, float {extents[4]}, float {literal(0.0, FLOAT32)}")
        for memory, extent in zip(self.selected, [*extents[:4], area], strict=True):
            code.store(extent, code.at(memory.pointer, before, FLOAT32), FLOAT32)
        self._hide(code.line(f"add i64 {before}, 1"))
        return taken

    def _hide(self, place: str) -> None:
        """Boxes from there on overlap nothing, as they have no area."""
        pointer = self.b.code.at(self.selected[4].pointer, place, FLOAT32)
        self.b.code.store(self.nowhere, pointer, FLOAT32, self.wide)


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
