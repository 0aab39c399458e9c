"""What it costs to compute an expression in a kernel: its words, and how often rows are walked for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from weakref import WeakKeyDictionary

from anydml.ops.expr import Expr, inline_calls, walk, with_args
from anydml.ops.reductions import REDUCTIONS, needed_for, stages_of

MAX_KERNEL_OPS = 1200
"""Words of a kernel at most, functions written out: what the compiler and the registers bear."""

_WEIGHTS: WeakKeyDictionary[Expr, int] = WeakKeyDictionary()
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
    """Words of an expression, functions written out: about what it costs to compute and to compile.

    As a tree, which is quickly known of an expression that grows; exactly where that seems too much.
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
