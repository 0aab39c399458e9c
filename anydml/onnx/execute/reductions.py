"""Reductions that our kernels run: as DirectML's REDUCE, fused with what is element-wise around them.

A library walks element by element along most axes, and for most functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from math import prod

from anydml.dataclass import dataclass
from anydml.ir.dims import likely
from anydml.ir.graph import Constant, Node, Value
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, NotFoldable
from anydml.ops.enums import ReduceFunction
from anydml.ops.reductions import MIN_COLUMNS

PLAIN_SECONDS, POWERS_SECONDS = 0.6e-9, 3.5e-9
"""Of an element, that a kernel takes less than a library: for most functions, and for those with exp."""
_FAST_IN_LIBRARIES = frozenset({"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
PLACES = frozenset({ReduceFunction.ARGMAX, ReduceFunction.ARGMIN})


@dataclass(frozen=True)
class Reduction:
    """What a node reduces float32 to."""

    function: ReduceFunction
    axes: tuple[int, ...]
    keeps: bool
    root: bool = False
    """Whether it is the root of that."""

    @property
    def result_type(self) -> str:
        return "int64" if self.function in PLACES else "float32"

    def kept(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """Of the result, each axis kept with one element."""
        return tuple(1 if a in self.axes else n for a, n in enumerate(given))

    def result(self, given: tuple[int, ...]) -> tuple[int, ...]:
        """Of the result, as the node gives it."""
        return self.kept(given) if self.keeps else tuple(n for a, n in enumerate(given) if a not in self.axes)


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
    if function in PLACES:
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


def goes_well(node: Node, reduction: Reduction) -> bool:
    """Whether rows are neighbours in memory, or enough of them lie beside each other, as far as is known.

    How long they are must be known: kernels for means are made for a length.
    """
    source = node.inputs[0]
    if source is None or source.sizes is None:
        return False
    if not all(isinstance(source.sizes[a], int) for a in reduction.axes):
        return False
    behind = source.sizes[reduction.axes[-1] + 1 :]
    columns = prod(likely(n) or 0 for n in behind)
    return not behind or columns == 1 or columns >= MIN_COLUMNS


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
