"""Sizes that are not known, as symbols, and the integers that are computed from them.

    x: float32[n,64]      Shape(x) -> [n, 64]      Shape(x)[0] + 1 -> n+1      Range(n, n+1, 1) -> one element

What is known of integers is said in terms of the symbols of sizes (`ir/dims.py`), of which none is negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.ir.dims import UNKNOWN, Affine, whole
from anydml.ir.graph import Node, OnnxOp

Content = NDArray[Any]
"""Integers as far as they are known: an array of Affine."""


def of_array(array: NDArray[Any]) -> Content:
    """Known integers."""
    content = np.empty(array.shape, object)
    content.reshape(-1)[:] = [whole(n) for n in array.reshape(-1).tolist()]
    return content


def of_sizes(sizes: Iterable[Affine]) -> Content:
    listed = list(sizes)
    content = np.empty(len(listed), object)
    content[:] = listed
    return content


def numbers(content: Content | None) -> list[int] | None:
    """The integers, if every one is known."""
    if content is None:
        return None
    found = [x.number for x in content.reshape(-1)]
    return None if None in found else [n for n in found if n is not None]


# ---- what nodes compute ------------------------------------------------------------------------------


def computed(node: Node, inputs: Sequence[Content | None], sizes: tuple[int, ...] | None) -> Content | None:
    """What is known of the only output's integers; `sizes` are the output's, where they are known."""
    assert isinstance(node.op, OnnxOp)
    rule = _CONTENTS.get(node.op.name) if not node.op.domain else None
    if rule is None or not inputs or any(x is None for x in inputs[: rule.needs]):
        return None
    result = rule.apply(node, list(inputs), sizes)
    return None if result is None or all(x is UNKNOWN for x in result.reshape(-1)) else result


def compared(node: Node, inputs: Sequence[Content | None]) -> NDArray[np.bool_] | None:
    """The truths of a comparison, if they are the same whatever the symbols are."""
    assert isinstance(node.op, OnnxOp)
    decide = _COMPARISONS.get(node.op.name) if not node.op.domain else None
    if decide is None or len(inputs) != 2 or inputs[0] is None or inputs[1] is None:
        return None
    difference = np.asarray(inputs[0] - inputs[1], object)
    truths = [decide(d) for d in difference.reshape(-1)]
    if any(t is None for t in truths):
        return None
    return np.array(truths, np.bool_).reshape(difference.shape)


def decided(node: Node, inputs: Sequence[bool | None], sizes: tuple[int, ...]) -> NDArray[np.bool_] | None:
    """The truths of an And or Or of which one side decides."""
    deciding = {"And": False, "Or": True}.get(node.op.name)
    return None if deciding is None or deciding not in inputs else np.full(sizes, deciding)


def measured(node: Node, sizes: Sequence[Affine] | None) -> Content | None:
    """What Shape and Size of a tensor of these sizes compute."""
    if sizes is None:
        return None
    if node.op.name == "Size":
        return np.asarray(reduce(lambda a, b: a * b, sizes, whole(1)), object)
    start, end = (node.attributes[n].i if n in node.attributes else None for n in ("start", "end"))
    return of_sizes(sizes[start:end])


def _above(difference: Affine, least: int) -> bool | None:
    """Whether it is `least` or more."""
    if difference.least is not None and difference.least >= least:
        return True
    reverse = -difference
    return False if reverse.least is not None and reverse.least > -least else None


def _zero(difference: Affine) -> bool | None:
    if difference.number is not None:
        return difference.number == 0
    return False if _above(difference, 1) or _above(-difference, 1) else None


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


_COMPARISONS: Mapping[str, Callable[[Affine], bool | None]] = {
    "Equal": _zero,
    "Greater": lambda d: _above(d, 1),
    "GreaterOrEqual": lambda d: _above(d, 0),
    "Less": lambda d: _not(_above(d, 0)),
    "LessOrEqual": lambda d: _not(_above(d, 1)),
}


@dataclass(frozen=True)
class _Rule:
    apply: Callable[[Node, list[Any], tuple[int, ...] | None], Content | None]
    needs: int = 1
    """Inputs of which something must be known."""


def _reshaped(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    (x, *_) = given
    return np.asarray(x.reshape(sizes), object) if sizes is not None and prod(sizes) == x.size else None


def _gathered(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    x, places = given
    wanted = numbers(places)
    if wanted is None or x.ndim != 1 or any(not -x.size <= k < x.size for k in wanted):
        return None
    return np.asarray(x[np.array(wanted, int)].reshape(places.shape), object)


def _sliced(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    x = given[0]
    told: list[list[int] | None] = [numbers(v) for v in given[1:]]
    if node.op.version < 10:  # type: ignore[union-attr]
        told = [list(node.attributes[n].ints) for n in ("starts", "ends", "axes") if n in node.attributes]
    if x.ndim != 1 or len(told) < 2 or any(t is None or len(t) != 1 for t in told):
        return None
    step = told[3][0] if len(told) > 3 and told[3] else 1
    return np.asarray(x[told[0][0] : told[1][0] : step], object) if step > 0 else None  # type: ignore[index]


def _joined(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    if not any(x is not None for x in given) or any(x is None or x.ndim != 1 for x in given):
        return None
    return np.concatenate(given)


def _divided(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    x, divisor = given
    by = numbers(divisor)
    return None if by is None or len(by) != 1 else _map(lambda a: a.divided(by[0]), x)


def _product(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    total = whole(1)
    for x in given[0].reshape(-1):
        total = total * x
    return None if sizes is None or prod(sizes) != 1 else of_sizes([total]).reshape(sizes)


def _sum(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    total = reduce(add, given[0].reshape(-1), whole(0))
    return None if sizes is None or prod(sizes) != 1 else of_sizes([total]).reshape(sizes)


def _chosen(node: Node, given: list[Any], sizes: tuple[int, ...] | None) -> Content | None:
    condition = numbers(given[0])
    if condition is None or given[1] is None or given[2] is None:
        return None
    truths = np.array(condition, bool).reshape(given[0].shape)
    return np.asarray(np.where(truths, given[1], given[2]), object)


def _map(change: Callable[[Affine], Affine], x: Content) -> Content:
    return of_sizes(change(a) for a in x.reshape(-1)).reshape(x.shape)


_CONTENTS: Mapping[str, _Rule] = {
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Reshape", "Identity", "Flatten"), _Rule(_reshaped)),
    "Cast": _Rule(lambda n, g, s: g[0] if n.attributes["to"].i in (6, 7) else None),
    "Gather": _Rule(_gathered, 2),
    "Slice": _Rule(_sliced),
    "Concat": _Rule(_joined, 0),
    "Add": _Rule(lambda n, g, s: np.asarray(g[0] + g[1], object), 2),
    "Sub": _Rule(lambda n, g, s: np.asarray(g[0] - g[1], object), 2),
    "Mul": _Rule(lambda n, g, s: np.asarray(g[0] * g[1], object), 2),
    "Neg": _Rule(lambda n, g, s: _map(lambda a: -a, g[0])),
    "Div": _Rule(_divided, 2),
    "ReduceProd": _Rule(_product),
    "ReduceSum": _Rule(_sum),
    "Where": _Rule(_chosen, 3),
}


# ---- what sizes nodes make ---------------------------------------------------------------------------


def sized(
    node: Node, sizes: Sequence[Sequence[Affine] | None], contents: Sequence[Content | None]
) -> list[Affine] | None:
    """The sizes of the only output, as far as ONNX's own inference does not say them.

    Args:
        sizes: of each input, where its rank is known.
        contents: of each input, as far as it is known.
    """
    assert isinstance(node.op, OnnxOp)
    rule = _SIZES.get(node.op.name) if not node.op.domain else None
    return None if rule is None or not sizes or sizes[0] is None else rule(node, sizes, contents)


def _sizes_of_concat(node: Node, sizes: Any, contents: Any) -> list[Affine] | None:
    if "axis" not in node.attributes or any(s is None or len(s) != len(sizes[0]) for s in sizes):
        return None
    axis = node.attributes["axis"].i
    if not -len(sizes[0]) <= axis < len(sizes[0]):
        return None
    result = [
        next((s[k] for s in sizes if s[k].number is not None), sizes[0][k]) for k in range(len(sizes[0]))
    ]
    result[axis] = reduce(add, (s[axis] for s in sizes))
    return result


def _sizes_of_reshape(node: Node, sizes: Any, contents: Any) -> list[Affine] | None:
    shape = contents[1] if len(contents) > 1 else None
    if (
        shape is None
        or shape.ndim != 1
        or ("allowzero" in node.attributes and node.attributes["allowzero"].i)
    ):
        return None
    given = sizes[0]
    wanted = [given[k] if n.number == 0 and k < len(given) else n for k, n in enumerate(shape)]
    for k, n in enumerate(wanted):  # a symbol may turn out to be 0, which means the input's size
        if n.number is None and not (n.least is not None and n.least > 0) and n not in given[k : k + 1]:
            wanted[k] = UNKNOWN
    rest = [k for k, n in enumerate(wanted) if n.number == -1]
    if len(rest) == 1:
        wanted[rest[0]] = _quotient(sizes[0], [n for k, n in enumerate(wanted) if k != rest[0]])
    return wanted


def _quotient(sizes: Iterable[Affine], by: Iterable[Affine]) -> Affine:
    """The product of `sizes` without the factors `by`; unknown unless it is a sum again."""
    left, divisor = [s for s in sizes if s.number != 1], 1
    for factor in by:
        if factor.number is not None:
            divisor *= factor.number
        elif factor in left:
            left.remove(factor)
        else:
            return UNKNOWN
    product = reduce(lambda a, b: a * b, left, whole(1))
    return product.divided(divisor)


def _sizes_of_expand(node: Node, sizes: Any, contents: Any) -> list[Affine] | None:
    shape = contents[1] if len(contents) > 1 else None
    if shape is None or shape.ndim != 1 or any(n.least is None or n.least < 0 for n in shape):
        return None
    rank = max(len(shape), len(sizes[0]))
    ones = [whole(1)]
    pairs = zip(
        ones * (rank - len(sizes[0])) + list(sizes[0]), ones * (rank - len(shape)) + list(shape), strict=True
    )
    return [_broadcast(a, b) for a, b in pairs]


def _broadcast(a: Affine, b: Affine) -> Affine:
    if a == b or b.number == 1:
        return a
    if a.number == 1:
        return b
    known = [x for x in (a, b) if x.number is not None]
    return known[0] if len(known) == 1 else UNKNOWN  # a symbol beside a number is that number, or 1


def _sizes_of_constant(node: Node, sizes: Any, contents: Any) -> list[Affine] | None:
    return None if contents[0] is None or contents[0].ndim != 1 else list(contents[0])


def _sizes_of_range(node: Node, sizes: Any, contents: Any) -> list[Affine] | None:
    if len(contents) != 3 or any(c is None or c.size != 1 for c in contents):
        return None
    start, limit, delta = (c.reshape(-1)[0] for c in contents)
    if delta.number != 1:
        return None
    count = limit - start
    return [count if count.least is not None and count.least >= 0 else UNKNOWN]


def _sizes_of_pad(node: Node, sizes: Any, contents: Any) -> list[Affine] | None:
    if "pads" in node.attributes:
        pads: list[int] | None = list(node.attributes["pads"].ints)
    else:
        pads = numbers(contents[1]) if len(contents) > 1 else None
    rank = len(sizes[0])
    if pads is None or len(pads) != 2 * rank or len(node.inputs) > 3:
        return None
    return [n + whole(pads[k] + pads[k + rank]) for k, n in enumerate(sizes[0])]


def _sizes_of_slice(node: Node, sizes: Any, contents: Any) -> list[Affine] | None:
    """Where a Slice takes all of an axis, its size stays."""
    told = [n for c in contents[1:] if (n := numbers(c)) is not None]
    if len(told) < 2 or len(told) < len(contents) - 1:
        return None
    starts, ends, *more = told
    axes = more[0] if more else list(range(len(starts)))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    result = list(sizes[0])
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=False):
        if not -len(result) <= axis < len(result):
            return None
        if (start, step) != (0, 1) or end < (1 << 31) - 1:
            result[axis] = UNKNOWN
    return result


_SIZES: Mapping[str, Callable[[Node, Any, Any], list[Affine] | None]] = {
    "Concat": _sizes_of_concat,
    "Reshape": _sizes_of_reshape,
    "Expand": _sizes_of_expand,
    "ConstantOfShape": _sizes_of_constant,
    "Range": _sizes_of_range,
    "Pad": _sizes_of_pad,
    "Slice": _sizes_of_slice,
}

FOLLOWED = frozenset({*_CONTENTS, *_COMPARISONS, "And", "Or", "Shape", "Size"})
"""Operators whose results may be known where their inputs' contents are not."""
