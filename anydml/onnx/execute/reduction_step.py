"""Reductions by our kernels: a library's walk element by element along most axes, and for most functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from anydml.ir.graph import Constant, Node, Value
from anydml.onnx.execute.steps import MAX_KERNEL_SHAPES, Shape, Step
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, NotFoldable
from anydml.ops.call import Computation
from anydml.ops.dtypes import FLOAT32, INT64
from anydml.ops.enums import ReduceFunction
from anydml.ops.reduction import REDUCE
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.row_kernels import row_kernel

PLAIN_SECONDS, POWERS_SECONDS = 0.6e-9, 3.5e-9
"""Of an element, that a kernel takes less than a library: for most functions, and for those with exp."""
_FAST_IN_LIBRARIES = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
_PLACES = frozenset({ReduceFunction.ARGMAX, ReduceFunction.ARGMIN})


@dataclass(frozen=True)
class Reduction:
    """What a node reduces float32 to."""

    function: ReduceFunction
    axes: tuple[int, ...]
    keeps: bool
    root: bool = False
    """Whether it is the root of that."""


def reduction_of(node: Node, constants: Mapping[Value, Constant]) -> Reduction | None:
    """What a node reduces, where a kernel computes the same."""
    try:
        return _reduction_of(node, constants)
    except NotFoldable:  # an attribute of another type
        return None


def _reduction_of(node: Node, constants: Mapping[Value, Constant]) -> Reduction | None:
    info = info_of(node.op)
    if info is None or info.reduction is None or node.op.domain or len(node.outputs) != 1:
        return None
    seen = KnownNode(node, constants)
    rank = seen.rank(0)
    if seen.dtype(0) != "float32" or not rank or node.outputs[0] is None:
        return None
    function = info.reduction
    if function in _PLACES:
        if seen.attribute("select_last_index"):
            return None
        axes = [seen.int("axis")]
    elif seen.value(1) is None:
        axes = list(seen.ints("axes") or ())
    else:
        axes = seen.integers(1) or []
    root = function is ReduceFunction.L2
    if root:  # squares overflow in float32, by ONNX
        function = ReduceFunction.SUM_SQUARE
    found = {a + rank if a < 0 else a for a in axes}
    if not axes or len(found) < len(axes) or not all(0 <= a < rank for a in found):
        return None
    return Reduction(function, tuple(sorted(found)), bool(seen.int("keepdims")), root)


def seconds_for_each(node: Node, reduction: Reduction) -> float:
    """How much longer a library takes for an element, where sizes are known well enough to tell."""
    source = node.inputs[0]
    sizes = None if source is None else source.known_sizes
    if sizes is not None and prod(sizes[a] for a in reduction.axes) == 1:
        return 0.0
    if reduction.function is ReduceFunction.LOG_SUM_EXP:
        return POWERS_SECONDS
    if node.op.name not in _FAST_IN_LIBRARIES:
        return PLAIN_SECONDS
    if sizes is None:
        return 0.0
    turns = [key for key, _ in groupby(a in reduction.axes for a in range(len(sizes)))]
    first, last = reduction.axes[0], reduction.axes[-1]
    before, behind = prod(sizes[:first]), prod(sizes[last + 1 :])
    alone = first > 0 and before == 1 and behind > 1
    return PLAIN_SECONDS if len(turns) > 3 or alone else 0.0


class ReductionStep:
    """A reduction in our kernels, made for each shape when that is first met; what has none is left to
    others.
    """

    fresh = True

    def __init__(
        self,
        node: Node,
        reduction: Reduction,
        threads: int,
        read: int,
        write: int,
        others: Callable[[], Step],
    ) -> None:
        """`others`: makes a step that computes the same."""
        self.node, self._reduction, self._threads = node, reduction, threads
        self._read, self._write, self._others = read, write, others
        self._made: dict[Shape, Callable[[np.ndarray], np.ndarray] | None] = {}

    @property
    def reads(self) -> tuple[int, ...]:
        return (self._read,)

    @property
    def writes(self) -> tuple[int, ...]:
        return (self._write,)

    def run(self, slots: list[Any]) -> None:
        x = slots[self._read]
        if x.shape not in self._made:
            if len(self._made) >= MAX_KERNEL_SHAPES:
                self._made.clear()
            self._made[x.shape] = self._make(x.shape)
        made = self._made[x.shape]
        if made is None or x.dtype != np.float32:
            self._others().run(slots)
        else:
            slots[self._write] = made(x)

    def _make(self, shape: Shape) -> Callable[[np.ndarray], np.ndarray] | None:
        reduction = self._reduction
        if 0 in shape or len(shape) <= reduction.axes[-1]:
            return None
        kept = tuple(1 if a in reduction.axes else n for a, n in enumerate(shape))
        dtype = INT64 if reduction.function in _PLACES else FLOAT32
        attributes = {"Function": reduction.function, "Axes": reduction.axes}
        given, made = TensorDesc(FLOAT32, shape), TensorDesc(dtype, kept)
        by = row_kernel(REDUCE, {"InputTensor": given, "OutputTensor": made}, attributes, self._threads)
        if by is None:
            return None
        computed = Computation(REDUCE, {"OutputTensor": made}, attributes, by)
        final = kept
        if not reduction.keeps:
            final = tuple(n for a, n in enumerate(shape) if a not in reduction.axes)

        def compute(x: np.ndarray) -> np.ndarray:
            result = computed({"InputTensor": x})["OutputTensor"].reshape(final)
            return np.sqrt(result, out=result) if reduction.root else result

        return compute

    def describe(self) -> str:
        return f"kernels: {self.node.op}"
