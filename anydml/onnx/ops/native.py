"""How programs compute operators that are not element by element: with what a `ProgramBuilder` has.

Each rule answers with the outputs' tensors, or raises `NotNative` for a case that programs leave to others.
Element-wise operators need none: they compute what their DirectML operators say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.values import Known, NotNative, Tensor
from anydml.onnx.ops.opinfo import Array, Fold, KnownNode, NodeView
from anydml.onnx.ops.windows import Windows
from anydml.ops.dtypes import BOOL, FLOAT32, FLOATING, NUMPY

Inputs = Sequence[Tensor | None]
Native = Callable[[ProgramBuilder, KnownNode, Inputs], Sequence[Tensor]]
MOVING: set[Native] = set()
"""Rules that take elements of any type, as they do not look at them."""


def operand(inputs: Inputs, k: int = 0) -> Tensor:
    """An input that is not left out."""
    found = inputs[k] if k < len(inputs) else None
    if found is None:
        raise NotNative(f"input {k} that is left out")
    return found


def known(inputs: Inputs, k: int) -> Known | None:
    """Input k, which must be known before the program runs; None if it is left out."""
    given = inputs[k] if k < len(inputs) else None
    if given is not None and not isinstance(given, Known):
        raise NotNative(f"input {k} that is computed")
    return given


def of_float32(rule: Native) -> Native:
    """The rule, for tensors of float32, and integers that tell axes."""

    def checked(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> Sequence[Tensor]:
        types = [t.dtype for t in inputs if t is not None]
        if types[:1] != [FLOAT32] or not {t for t in types if t in FLOATING} <= {FLOAT32}:
            raise NotNative(f"{n.op.name} of another type than float32")
        return rule(b, n, inputs)

    return checked


def _placed(fold: Fold, n: NodeView, x: Tensor, rest: Inputs) -> list[Array]:
    """For each output, the places of its elements in x: the rule in NumPy, of places."""
    others = [known(rest, k) for k in range(len(rest))]
    places = np.arange(x.count).reshape(x.sizes)
    found = fold(n, places, *(None if other is None else other.array for other in others))
    listed = list(found) if isinstance(found, tuple) else [found]
    return [np.asarray(p) for p in listed]


def moves(fold: Fold) -> Native:
    """Of an operator whose rule in NumPy moves elements about, whatever they are."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = operand(inputs)
        return [b.rearrange(x, places) for places in _placed(fold, n, x, inputs[1:])]

    MOVING.add(rule)
    return rule


def reshapes(fold: Fold) -> Native:
    """Of an operator that gives the same elements in the same order."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = operand(inputs)
        return [b.reshape(x, places.shape) for places in _placed(fold, n, x, inputs[1:])]

    MOVING.add(rule)
    return rule


def passes_on(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    return [operand(inputs)]


MOVING.add(passes_on)


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
                around.append((at, Known.of(np.full(block, fill, NUMPY[x.dtype]))))
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
