"""When a node cannot fail, whatever it is fed: what rules of several operators need.

A rule answers None where it needs more than a proof: the node cannot fail if it runs on zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from anydml.ir.dims import Affine, may_be_zero
from anydml.onnx.ops.opinfo import KnownNode, Sizes


def always(n: KnownNode) -> bool:
    return True


def if_run(n: KnownNode) -> None:
    """It can run if it runs on zeros."""
    return


def has_ranks(n: KnownNode) -> bool:
    """Whatever is wrong with it, the rank would tell."""
    return n.input_sizes() is not None and None not in n.output_sizes()


def can_broadcast(sizes: Sequence[Sizes]) -> bool:
    """Whether shapes broadcast whatever their symbols are."""
    rank = max(map(len, sizes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in sizes]
    return all(None not in axis and len({*axis} - {1}) <= 1 for axis in zip(*padded, strict=True))


def broadcasts(n: KnownNode) -> bool:
    """Whether its inputs do; scalars fit whatever the other one is."""
    if n.version < 7:
        return False
    others = [s for k in range(n.count) if n.value(k) is not None and (s := n.sizes(k)) != ()]
    known = [s for s in others if s is not None]
    return len(others) < 2 or (len(known) == len(others) and can_broadcast(known))


def scalar_parameters(n: KnownNode) -> bool:
    """Whether all inputs but the first are scalars, where they are there."""
    return all(n.value(k) is None or n.sizes(k) == () for k in range(1, n.count))


def is_integer(n: KnownNode, k: int) -> bool:
    return "int" in (n.dtype(k) or "")


def same_count(before: Sizes, after: Sizes) -> bool:
    """Whether two shapes have equally many elements whatever their symbols are."""
    if None in before or None in after:
        return False
    symbols = [Counter(n for n in sizes if isinstance(n, Affine)) for sizes in (before, after)]
    numbers = [prod(n for n in sizes if isinstance(n, int)) for sizes in (before, after)]
    return symbols[0] == symbols[1] and numbers[0] == numbers[1]


def reduces_any(n: KnownNode) -> bool:
    """Sums and products of nothing are 0 and 1."""
    return has_ranks(n) and ("axes" in n.given or n.count < 2 or n.content(1) is not None)


def reduces_some(n: KnownNode) -> bool | None:
    """A largest of nothing does not exist."""
    if not reduces_any(n):
        return False
    sizes, axis = n.sizes(0) or (), n.attribute("axis")
    axes = [axis] if isinstance(axis, int) else n.axes()
    inside = axes and all(-len(sizes) <= k < len(sizes) for k in axes)
    return True if axes and inside and not any(may_be_zero(sizes[k]) for k in axes) else None


def multiplies(n: KnownNode, a: int = 0, b: int = 1) -> bool:
    """Whether matrices fit, and those of a batch. `a`, `b`: the places of the factors."""
    first, second = n.sizes(a), n.sizes(b)
    if not first or not second or None in (*first, *second):
        return False
    if first[-1] != (second[-2] if len(second) > 1 else second[-1]):
        return False
    return can_broadcast([first[:-2], second[:-2]])


def gemm_fits(n: KnownNode) -> bool:
    """Whether matrices, turned or not, and what is added to their product fit."""
    a, b = n.sizes(0), n.sizes(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return False
    a = a[::-1] if n.attribute("transA") else a
    b = b[::-1] if n.attribute("transB") else b
    rest = n.sizes(2) if n.value(2) is not None else ()
    if rest is None or len(rest) > 2 or a[1] is None or a[1] != b[0]:
        return False
    return can_broadcast([rest, (a[0], b[1])]) and all(
        size in (1, m) for size, m in zip(rest[::-1], (b[1], a[0]), strict=False)
    )


def convolves(n: KnownNode, weight: int = 1) -> bool:
    """Whether filters fit. `weight`: their place."""
    x, w = n.sizes(0), n.sizes(weight)
    if x is None or w is None or not 3 <= len(x) == len(w):
        return False
    if not all(isinstance(size, int) for size in (*x[1:], *w)):
        return False
    if tuple(n.ints("kernel_shape") or w[2:]) != w[2:]:
        return False
    groups = n.attribute("group") or 1
    return x[1] == w[1] * groups and w[0] % groups == 0  # type: ignore[operator]


def one_number(n: KnownNode, *places: int) -> bool:
    """Whether inputs are left out, or one number each."""
    return all(n.value(k) is None or n.sizes(k) in ((), (1,)) for k in places)


def of_columns(n: KnownNode, k: int, matrix: int) -> bool:
    """Whether an input is one number, or one for each column of a matrix."""
    sizes = n.sizes(matrix)
    return one_number(n, k) or (sizes is not None and len(sizes) == 2 and n.sizes(k) == (sizes[1],))


def of_filters(n: KnownNode, k: int, weight: int, several: bool = False) -> bool:
    """Whether an input is left out, or has a number for each filter; or one for all, if not `several`."""
    sizes = n.sizes(weight)
    each = n.value(k) is None or (sizes is not None and n.sizes(k) == sizes[:1])
    return each or (not several and one_number(n, k))
