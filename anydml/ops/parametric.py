"""Expressions that differ in numbers only, as one that has these numbers as operands.

What an operator computes depends on its attributes, whose values are constants of its expression: a kernel
for each value, which takes milliseconds to compile. Where values come and go (the bounds of a clip that
follow from data), one kernel serves all.

    clip(x, -1, 2), clip(x, -3, 5)      min(max(x, -1), 2), min(max(x, -3), 5)
    with numbers read                   min(max(x, read 1), read 2) of (-1, 2), (-3, 5)
"""

from __future__ import annotations

from anydml.dataclass import dataclass, field
from anydml.ops.dtypes import BOOL
from anydml.ops.expr import Expr, read, with_args

VALUES_APART = 3
"""Values of attributes that have a kernel each, before one serves those that come."""


class _Differ(Exception):
    """Two expressions differ in more than numbers."""


@dataclass
class Family:
    """What one operator computes on operands of some types, by its attributes' values."""

    operands: int
    apart: list[Expr] = field(default_factory=list)
    """Those of the first values."""
    shared: Expr | None = None
    """What serves all others."""

    def of(self, expression: Expr) -> tuple[Expr, tuple[Expr, ...]]:
        """What computes it, and the numbers that are its last operands."""
        if self.shared is not None and (numbers := self._numbers(self.shared, expression)) is not None:
            return self.shared, numbers
        if expression in self.apart:
            return expression, ()
        if len(self.apart) < VALUES_APART:
            self.apart.append(expression)
            return expression, ()
        try:
            self.shared = self._with_numbers_read(self.apart[-1], expression, {}, {})
        except _Differ:
            return expression, ()
        numbers = self._numbers(self.shared, expression)
        return (expression, ()) if numbers is None else (self.shared, numbers)

    def _with_numbers_read(
        self, a: Expr, b: Expr, made: dict[tuple[Expr, Expr], Expr], reads: dict[tuple[Expr, Expr], Expr]
    ) -> Expr:
        """What both are, with a read of a further operand where they have different numbers."""
        if a is b:
            return b
        if (a, b) in made:
            return made[a, b]
        if (a.opcode, a.dtype, len(a.args)) != (b.opcode, b.dtype, len(b.args)):
            raise _Differ
        if b.opcode == "constant":
            if b.dtype is BOOL:  # memory has none
                raise _Differ
            found = reads.setdefault((a, b), read(self.operands + len(reads), b.dtype))
        elif a.value != b.value:
            raise _Differ
        else:
            pairs = zip(a.args, b.args, strict=True)
            found = with_args(b, tuple(self._with_numbers_read(x, y, made, reads) for x, y in pairs))
        made[a, b] = found
        return found

    def _numbers(self, shared: Expr, expression: Expr) -> tuple[Expr, ...] | None:
        """The constants that an expression has where the shared one reads them; None if it is another one."""
        found: dict[int, Expr] = {}
        seen: set[tuple[Expr, Expr]] = set()
        stack = [(shared, expression)]
        while stack:
            a, b = pair = stack.pop()
            if pair in seen:
                continue
            seen.add(pair)
            if a.opcode == "read" and a.value >= self.operands:
                if b.opcode != "constant" or b.dtype is not a.dtype or found.setdefault(a.value, b) is not b:
                    return None
            elif a is not b:
                if (a.opcode, a.dtype, a.value, len(a.args)) != (b.opcode, b.dtype, b.value, len(b.args)):
                    return None
                stack += zip(a.args, b.args, strict=True)
        return tuple(found[k] for k in sorted(found))
