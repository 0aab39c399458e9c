"""What rules of several families need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from anydml.ir.dims import Dim, likely, may_be_zero
from anydml.onnx.ops.opinfo import Array, Fold, KnownNode, NodeView, NotFoldable, Quirk
from anydml.onnx.ops.precision import double, round_to, widen
from anydml.runtime.memory import size_problem


def in_single(formula: Callable[..., Any]) -> Fold:
    """A rule formula(node, *inputs) in which halves are float32 until the end."""

    def rule(node: NodeView, *inputs: Array) -> Array:
        return round_to(formula(node, *map(widen, inputs)), inputs[0].dtype)

    return rule


def in_double(formula: Callable[..., Any]) -> Fold:
    """A rule formula(node, *inputs) in which all floats are float64 until the end."""

    def rule(node: NodeView, *inputs: Array) -> Array:
        return round_to(formula(node, *map(double, inputs)), inputs[0].dtype)

    return rule


def like(formula: Callable[..., Any]) -> Fold:
    """A rule of one expression in NumPy on inputs of one type."""
    return lambda node, *inputs: formula(*inputs)


def without_old_broadcast(node: NodeView, *inputs: Array) -> None:
    """Before opset 7 broadcasting was by attributes; what needs none is the same."""
    if node.version < 7 and len({x.shape for x in inputs}) > 1:
        raise NotFoldable("broadcasting before opset 7")


def old_or(formula: Callable[..., Any]) -> Fold:
    """A rule of one expression on inputs that are broadcast."""

    def rule(node: NodeView, *inputs: Array) -> Any:
        without_old_broadcast(node, *inputs)
        return formula(*inputs)

    return rule


def flag(node: NodeView, name: str) -> bool:
    """An attribute that is 0 or 1; libraries differ in what others are."""
    value = node.int(name)
    if value not in (0, 1):
        raise NotFoldable(f"{name} of {value}")
    return value == 1


def scatter_reduction(node: NodeView) -> str:
    """How updates are put in their places: attributes of other meanings are not read."""
    return node.text("reduction") if node.version >= 16 and node.op.name != "Scatter" else "none"


def axis_in(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"expected an axis of {rank}, but got {axis}")
    return axis % rank


def axes_in(axes: Iterable[int], rank: int) -> list[int]:
    """Axes counted from the front; ValueError where one comes twice."""
    found = [axis_in(axis, rank) for axis in axes]
    if len(set(found)) < len(found):
        raise ValueError(f"expected different axes, but got {found}")
    return found


def single(x: Array) -> Any:
    """The content of an input that is a scalar; libraries take [1], too, and some of them anything."""
    if x.shape not in ((), (1,)):
        raise NotFoldable(f"sizes {x.shape} for a scalar")
    return x.reshape(-1).tolist()[0]


def numbers(x: Array) -> list[int]:
    """The content of an input that is a list of integers; some libraries take anything for one."""
    if x.ndim != 1:
        raise NotFoldable(f"rank {x.ndim} for a list")
    found: list[int] = x.tolist()
    return found


def sizes_in(x: Array | Sequence[int]) -> list[int]:
    """The content of an input that is a list of sizes."""
    found = numbers(x) if isinstance(x, np.ndarray) else list(x)
    if any(n < 0 for n in found):
        raise ValueError(f"expected sizes of 0 or more, but got {found}")
    return found


def texts(x: Any, shape: Sequence[int]) -> Array:
    """Strings as a tensor; NumPy takes a lone str for no array, and a list of equal lists for a matrix."""
    result = np.empty(tuple(shape), object)
    result.reshape(-1)[:] = list(x)
    return result


def affordable(sizes: Sequence[int], dtype: np.dtype[Any]) -> Sequence[int]:
    """Sizes of a result that fits into the machine's memory; others are left to whoever runs the node."""
    problem = size_problem("", dtype.name, sizes, dtype.itemsize)
    if problem is not None:
        raise NotFoldable(problem.message)
    return sizes


@cache
def zero_of(dtype: np.dtype[Any]) -> Any:
    """What tensors are filled with by default."""
    return "" if dtype.kind == "O" else np.zeros((), dtype)[()]


def no_flops(n: KnownNode, results: int) -> int:
    return 0


UNKNOWN_SIZE = 16
"""Elements that a size of unknown number counts for, where a cost is estimated."""


def assumed_sizes(n: KnownNode, k: int) -> list[int]:
    """The sizes of input k, for an estimate."""
    return [assumed(size) for size in n.sizes(k) or ()]


def assumed(size: Dim) -> int:
    """A size, for an estimate: what it was once, if that is known."""
    once = likely(size)
    return UNKNOWN_SIZE if once is None else once


NOTHING_TO_SUM = "onnxruntime answers with memory that nobody wrote where there is nothing to sum"


def nothing_inside(n: KnownNode, a: int, b: int) -> bool:
    """Whether the axis that a product sums over may be empty."""
    return both_zero(n.size(a, -1), n.size(b, -1 if n.rank(b) == 1 else -2))


def both_zero(a: Dim, b: Dim) -> bool:
    """Whether an axis may be empty of which two inputs tell the size."""
    known = [n for n in (a, b) if isinstance(n, int)]
    return 0 in known if known else may_be_zero(a) and may_be_zero(b)


def _is_negative(n: KnownNode) -> bool:
    lengths = n.content(1)
    return lengths is not None and lengths.dtype.kind in "if" and bool((lengths < 0).any())


NEGATIVE_LENGTH = Quirk(
    "onnxruntime makes a negative size of a negative length, and can end the process",
    _is_negative,
    fatal=True,
)


def slice_range(size: int, start: int, end: int, step: int) -> slice:
    """Backward, a start before the first element is the first; for Python there is nothing then."""
    if step == 0:
        raise ValueError("expected steps other than 0")
    start, end = (n + size if n < 0 else n for n in (start, end))
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    if not size:
        return slice(0, 0)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, end if end >= 0 else None, step)
