"""What it costs to compute an expression in a kernel: its words, and how often rows are walked for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from weakref import WeakKeyDictionary

from anydml.ops.expr import Expr, inline_calls, read, walk, with_args
from anydml.ops.reductions import REDUCTIONS, needed_for, stages_of

MAX_KERNEL_OPS = 1200
"""Words of a kernel at most, functions written out: what the compiler and the registers bear."""
MAX_RESULT_OPS = MAX_KERNEL_OPS * 4 // 5
"""Words of one of its results: others beside it may have some of their own."""
KEPT_PARTS = 64
"""Expressions that others are likely to grow from."""

_WEIGHTS: WeakKeyDictionary[Expr, int] = WeakKeyDictionary()
_TREES: WeakKeyDictionary[Expr, int] = WeakKeyDictionary()
_AXES: WeakKeyDictionary[Expr, frozenset[tuple[int, ...]]] = WeakKeyDictionary()


def replace_reads(expr: Expr, operands: Mapping[int, Expr]) -> Expr:
    """The expression with other expressions in the place of its reads."""
    new: dict[Expr, Expr] = {}
    for e in walk(expr):
        if e.opcode == "read":
            new[e] = operands[e.value]
        elif all(new[a] is a for a in e.args):
            new[e] = e
        else:
            new[e] = with_args(e, tuple(new[a] for a in e.args))
    return new[expr]


def has_rows(expr: Expr) -> bool:
    return bool(row_axes(expr))


def row_axes(expr: Expr) -> frozenset[tuple[int, ...]]:
    """The axes of the rows that an expression looks at."""
    if (found := _AXES.get(expr)) is not None:
        return found
    for e in _unknown(expr, _AXES):
        own = {e.value} if e.opcode in REDUCTIONS or e.opcode == "row_index" else set()
        _AXES[e] = frozenset(own).union(*(_AXES[a] for a in e.args))
    return _AXES[expr]


def weight(expr: Expr) -> int:
    """What an expression costs to compute, in words: those of functions weigh more, the more of them are in
    each other, since they keep registers from what is around them.

    As a tree, which is quickly known of an expression that grows; as it is where that seems too much.
    """
    for e in _unknown(expr, _WEIGHTS):
        own = 1
        if e.opcode == "call":
            written = inline_calls(e)
            arguments = set(walk(*e.args))
            own = sum(weight(f) if f.opcode == "call" else 1 for f in walk(written) if f not in arguments)
        _WEIGHTS[e] = min(own + sum(_WEIGHTS[a] for a in e.args), 1 << 40)
    if _WEIGHTS[expr] <= MAX_KERNEL_OPS:
        return _WEIGHTS[expr]
    return sum(_own_weight(e) for e in walk(expr))


def words_of_calls(expr: Expr) -> int:
    """Those of functions."""
    weight(expr)
    return sum(_own_weight(e) for e in walk(expr) if e.opcode == "call")


def _own_weight(expr: Expr) -> int:
    return max(_WEIGHTS[expr] - sum(_WEIGHTS[a] for a in expr.args), 1)


def _unknown(expr: Expr, known: Mapping[Expr, object]) -> Iterator[Expr]:
    """Subexpressions that are not known yet, arguments first."""
    stack = [expr]
    while stack:
        e = stack[-1]
        missing = [a for a in e.args if a not in known]
        if e in known or not missing:
            stack.pop()
            if e not in known:
                yield e
        else:
            stack += missing


class WordCounts:
    """How many words expressions have that grow out of each other: what is new in one is all that is looked
    at."""

    def __init__(self) -> None:
        self._parts: dict[Expr, tuple[set[Expr], int]] = {}
        """The subexpressions of the last few that had more than a kernel bears as trees, and their words."""

    def of(self, *exprs: Expr) -> int:
        """Words of expressions together, functions written out; as trees, if these are few."""
        tree = sum(map(_words_as_tree, exprs))
        return tree if tree <= MAX_RESULT_OPS else self._parts_of(exprs)[1]

    def _parts_of(self, exprs: tuple[Expr, ...]) -> tuple[set[Expr], int]:
        if len(exprs) == 1 and exprs[0] in self._parts:
            return self._parts[exprs[0]]
        known, new, seen, stack = [], [], set(), [*exprs]
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            if e in self._parts:
                known.append(self._parts[e])
            else:
                new.append({e})
                stack += e.args
        known.sort(key=lambda parts: parts[1])
        largest, total = known.pop() if known else (set(), 0)
        all_parts = set(largest)
        for more in (*(parts for parts, _ in known), *new):
            added = more - all_parts
            total += sum(map(_own_words, added))
            all_parts |= added
        if len(exprs) == 1:
            self._parts[exprs[0]] = all_parts, total
        if len(self._parts) > KEPT_PARTS:
            del self._parts[next(iter(self._parts))]
        return all_parts, total


def _words_as_tree(expr: Expr) -> int:
    for e in _unknown(expr, _TREES):
        _TREES[e] = min(_own_words(e) + sum(_TREES[a] for a in e.args), 1 << 40)
    return _TREES[expr]


def _own_words(expr: Expr) -> int:
    """Words of an expression without its arguments."""
    if expr.opcode != "call":
        return 1
    given = tuple(a if a.opcode == "constant" else read(k, a.dtype) for k, a in enumerate(expr.args))
    return _words_of_call(with_args(expr, given))


@lru_cache(256)
def _words_of_call(call: Expr) -> int:
    """Words of a function of what is read."""
    return sum(_own_words(e) for e in walk(inline_calls(call)) if e not in call.args)


def passes(expr: Expr) -> int:
    """Words that are computed for an element in all passes over its row.

    What the last pass but one has computed at great expense is at hand in the last (see `codegen.stages`).
    """
    weight(expr)
    known: set[Expr] = set()
    before: set[Expr] = set()
    total = 0
    for stage in stages_of((expr,)):
        before = {e for reduction in stage for e in needed_for(reduction.args[0], known)}
        total += sum(map(_own_weight, before))
        known |= {*stage}
    needed = needed_for(expr, known)
    held = max((_own_weight(e) for e in needed if e in before and e.opcode == "call"), default=0)
    return total + sum(map(_own_weight, needed)) - held
