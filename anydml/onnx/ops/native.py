"""How programs compute operators that are not element by element: with what a `ProgramBuilder` has.

Each rule answers with the outputs' tensors, or raises `NotNative` for a case that programs leave to others.
Element-wise operators need none: they compute what their DirectML operators say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.dataclass import dataclass
from anydml.onnx.ops.opinfo import Array, Fold, KnownNode, NodeView, NotFoldable
from anydml.onnx.ops.windows import Windows
from anydml.ops.dtypes import BOOL, FLOAT32, FLOATING, NUMPY

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Bounded, Known, Tensor

Inputs: TypeAlias = "Sequence[Tensor | None]"
Native: TypeAlias = "Callable[[ProgramBuilder, KnownNode, Inputs], Sequence[Tensor]]"
MOVING: set[Native] = set()
"""Rules that take elements of any type, as they do not look at them."""
BOUNDED: set[Native] = set()
"""Rules that take tensors of which the data decides how much there is along an axis."""


def bounded(rule: Native) -> Native:
    """A rule that takes such tensors."""
    BOUNDED.add(rule)
    return rule


def operand(inputs: Inputs, k: int = 0) -> Tensor:
    """An input that is not left out."""
    found = inputs[k] if k < len(inputs) else None
    if found is None:
        raise NotNative(f"input {k} that is left out")
    return found


def known(inputs: Inputs, k: int) -> Known | None:
    """Input k, which must be known before the program runs; None if it is left out."""
    given = inputs[k] if k < len(inputs) else None
    if given is not None and not isinstance(given, program.Known):
        raise NotNative(f"input {k} that is computed")
    return given


def each_by_itself(rule: Native, kept: Callable[[KnownNode, Inputs, int], int | None]) -> Native:
    """The rule, also for an operand of which the data decides how long it is along an axis that does not
    matter to the others: (node, inputs, which operand) -> the result's axis, or None where it does."""

    def whole(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
        open = [k for k, t in enumerate(inputs) if isinstance(t, program.Bounded)]
        if not open:
            return rule(b, n, inputs)
        x, axis = inputs[open[0]], kept(n, inputs, open[0])
        if len(open) > 1 or axis is None or not isinstance(x, program.Bounded):
            raise NotNative(f"{n.op.name} along an axis of which it is not known how long it is")
        given = [b.whole(t) if t is x else t for t in inputs]
        return [program.Bounded.of(b.use(result), axis, x.length) for result in rule(b, n, given)]

    return bounded(whole)


def of_float32(rule: Native) -> Native:
    """The rule, for tensors of float32, and integers that tell axes."""

    def checked(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
        types = [t.dtype for t in inputs if t is not None]
        if types[:1] != [FLOAT32] or not {t for t in types if t in FLOATING} <= {FLOAT32}:
            raise NotNative(f"{n.op.name} of another type than float32")
        return rule(b, n, inputs)

    return checked


def _placed(fold: Fold, n: NodeView, sizes: tuple[int, ...], rest: Inputs) -> list[Array]:
    """For each output, the places of its elements in what has these sizes: the rule in NumPy, of places."""
    others = [known(rest, k) for k in range(len(rest))]
    places = np.arange(prod(sizes)).reshape(sizes)
    found = fold(n, places, *(None if other is None else other.array for other in others))
    listed = list(found) if isinstance(found, tuple) else [found]
    return [np.asarray(p) for p in listed]


@dataclass(frozen=True)
class _Kept:
    """The axis that one becomes of which the data decides how long it is; `each` times as long."""

    axis: int
    each: int


def _kept(b: ProgramBuilder, x: Bounded, placed: Callable[[tuple[int, ...]], list[Array]]) -> list[_Kept]:
    """For each output of a rule, by what it does to one element more.

    Where it does something else to no element, or to one, as Squeeze does, that is left to others.
    """
    bound = x.sizes[x.axis]

    def of(size: int) -> list[Array]:
        return placed((*x.sizes[: x.axis], size, *x.sizes[x.axis + 1 :]))

    found = []
    for one, more in zip(of(bound), of(bound + 1), strict=True):
        grown = [k for k, (m, n) in enumerate(zip(one.shape, more.shape, strict=False)) if m != n]
        if one.ndim != more.ndim or len(grown) != 1:
            raise NotNative("what depends on how many there are")
        (axis,) = grown
        each = more.shape[axis] - one.shape[axis]
        if one.shape[axis] != bound * each:
            raise NotNative("what depends on how many there are")
        found.append(_Kept(axis, each))
    for size in (0, 1):
        try:
            same = [
                few.shape == (*one.shape[: k.axis], size * k.each, *one.shape[k.axis + 1 :])
                for few, one, k in zip(of(size), of(bound), found, strict=True)
            ]
        except (NotFoldable, ValueError, IndexError):
            same = [False]
        if not all(same):
            other = b.code.line(f"icmp ne i64 {x.length}, {size}")
            b.leave_unless(other, "expected more or fewer than {}", x.length)
    return found


def moves(fold: Fold) -> Native:
    """Of an operator whose rule in NumPy moves elements about, whatever they are."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = operand(inputs)
        if not isinstance(x, program.Bounded):
            return [b.rearrange(x, places) for places in _placed(fold, n, x.sizes, inputs[1:])]
        kept = _kept(b, x, lambda sizes: _placed(fold, n, sizes, inputs[1:]))
        results: list[Tensor] = []
        for places, k in zip(_placed(fold, n, x.sizes, inputs[1:]), kept, strict=True):
            along = np.unravel_index(places, x.sizes)[x.axis]
            own = np.arange(places.shape[k.axis]).reshape([-1] + [1] * (places.ndim - k.axis - 1))
            if not (along == own).all():
                raise NotNative("what moves elements along an axis of which it is not known how long it is")
            results.append(program.Bounded.of(b.rearrange(b.whole(x), places), k.axis, x.length))
        return results

    MOVING.add(rule)
    return bounded(rule)


def reshapes(fold: Fold) -> Native:
    """Of an operator that gives the same elements in the same order."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = operand(inputs)
        (places,) = _placed(fold, n, x.sizes, inputs[1:])
        if not isinstance(x, program.Bounded):
            return [b.reshape(x, places.shape)]
        (kept,) = _kept(b, x, lambda sizes: _placed(fold, n, sizes, inputs[1:]))
        if prod(places.shape[: kept.axis]) != prod(x.sizes[: x.axis]):
            raise NotNative("elements that are not in front any more")
        whole = b.reshape(b.whole(x), places.shape)
        return [program.Bounded.of(whole, kept.axis, b.code.times(x.length, kept.each))]

    MOVING.add(rule)
    return bounded(rule)


def passes_on(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    return [operand(inputs)]


MOVING.add(bounded(passes_on))


def truth(tensor: Tensor) -> Tensor:
    """A bool of one element, as a scalar."""
    if tensor.dtype is not BOOL or tensor.count != 1:
        raise NotNative("a condition that is not one bool")
    return tensor


def padded(b: ProgramBuilder, x: Tensor, widths: Sequence[tuple[int, int]], fill: int | float) -> Tensor:
    """With so many elements of one content in front and behind, along each axis."""
    if not any(map(any, widths)):
        return x
    sizes = tuple(first + m + last for (first, last), m in zip(widths, x.sizes, strict=True))
    before = [first for first, _ in widths]
    around: list[tuple[Sequence[int], Tensor]] = []
    for axis, (first, last) in enumerate(widths):  # blocks around it, those along the first axis first
        for start, width in ((0, first), (sizes[axis] - last, last)):
            if width:
                block = (*x.sizes[:axis], width, *sizes[axis + 1 :])
                at = [*before[:axis], start, *[0] * (len(sizes) - axis - 1)]
                around.append((at, program.Known.of(np.broadcast_to(NUMPY[x.dtype].type(fill), block))))
    return b.assemble(x.dtype, sizes, [*around, (before, x)])


def windowed(b: ProgramBuilder, x: Tensor, where: Windows, fill: int | float) -> Tensor:
    """[N, C, ...] as [N, C, windows along each axis..., places in a window...], which are views of it."""
    x = padded(b, x, [(0, 0), (0, 0), *where.needed(x.sizes[2:])], fill)
    places = np.arange(x.count).reshape(x.sizes)
    axes = len(where.kernel)
    every = [np.arange(n) for n in x.sizes[:2]]
    starts = [np.arange(c) * s for c, s in zip(where.count, where.strides, strict=True)]
    steps = [np.arange(k) * d for k, d in zip(where.kernel, where.dilations, strict=True)]
    index: list[NDArray[np.int64]] = []
    for k, line in enumerate(every):
        index.append(line.reshape([-1 if j == k else 1 for j in range(2 + 2 * axes)]))
    for k in range(axes):
        first = starts[k].reshape([-1 if j == 2 + k else 1 for j in range(2 + 2 * axes)])
        index.append(first + steps[k].reshape([-1 if j == 2 + axes + k else 1 for j in range(2 + 2 * axes)]))
    return b.rearrange(x, places[tuple(index)])
