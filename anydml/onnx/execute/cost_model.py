"""About how long nodes take: to tell whether kernels of ours pay beside a library's regions.

A kernel passes over memory once for a whole group of element-wise nodes, where a library does for each, but
for what it fuses itself. Against that stands what a cut costs: calls, and regions that have one thread only,
since another one has them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from weakref import WeakKeyDictionary

from anydml.ir.dims import likely
from anydml.ir.graph import If, Node, Value
from anydml.onnx.execute.directml_lowering import lower_to_directml
from anydml.onnx.execute.reductions import Reduction, seconds_for_each
from anydml.onnx.execute.turns import TURN_SECONDS, Turn
from anydml.onnx.if_conversion.cost import work
from anydml.onnx.ops.opinfo import KnownNode

CACHED_BYTES, CACHED_BYTES_PER_SECOND, BYTES_PER_SECOND = 1 << 20, 3e10, 8e9
"""Of one thread: tensors up to so many bytes are mostly at hand; larger ones come from memory."""
FLOPS_PER_SECOND = 5e10
CALL_SECONDS = 20e-6
"""Of a step: a library's call with its feeds and results, or our kernels'."""
BLOCKED_BYTES_PER_SECOND = 1.5e9
"""Of what passes between a convolution and another step: libraries keep it in blocks of channels, and choose
worse ways for convolutions whose neighbours they do not see."""
_COPIES = 4
"""Passes over memory that is at hand, which take as long."""
MIN_GAIN = 0.05
"""Part of a graph's time that kernels must save, before regions are cut: estimates are rough, and a library
fuses across what would be cut."""
ROUND_TURN_SECONDS, NEAR_TURN_SECONDS = 8e-9, 0.5e-9
"""Of an element that changes its place and comes back, and of one that does as in a matrix."""
_FUSED_BY_LIBRARIES = {"Erf": 4, "Tanh": 4, "Sigmoid": 1, "HardSigmoid": 1, "Relu": 1, "Softplus": 1}
"""Nodes around one of these that a library passes over together with it: GELU, SiLU, and the like."""
_FUSED_AROUND_MEANS = 5
"""Of normalizations that are written out, for each mean along the last axis."""
_FUSED_AROUND = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""Nodes that tell a library to compute what stands between them with integers: it must see them."""

_ON_INTEGERS = frozenset({"Add", "Mul", "Sigmoid", "LeakyRelu"})
"""Of those, the element-wise ones that onnxruntime has for integers."""


def may_leave(node: Node) -> bool:
    """Whether a library that runs others of its graph does well without an element-wise node."""
    return node.op.name not in _FUSED_AROUND


def integers_pay(nodes: Iterable[Node]) -> bool:
    """Whether a library computes one of some element-wise nodes with integers, between quantized tensors."""
    listed = list(nodes)
    maker = {v: n.op.name for n in listed for v in n.writes}
    readers: dict[Value, set[str]] = {}
    for node in listed:
        for value in node.reads:
            readers.setdefault(value, set()).add(node.op.name)
    return any(
        node.op.name in _ON_INTEGERS
        and all(maker.get(v) == "DequantizeLinear" for v in node.reads)
        and all(readers.get(v) == {"QuantizeLinear"} for v in node.writes)
        for node in listed
    )


def seconds(nodes: Iterable[Node | If]) -> float:
    """In a library, on one thread."""
    return sum(map(_seconds, nodes))


def _seconds(node: Node | If) -> float:
    found = _SECONDS.get(node)
    if found is None:
        found = _SECONDS[node] = max(work([node]) / FLOPS_PER_SECOND, _moving([node])) + _turning(node)
    return found


_SECONDS: WeakKeyDictionary[Node | If, float] = WeakKeyDictionary()
"""Of nodes, which are asked for again and again while a graph is divided."""


def seconds_saved(
    group: Sequence[Node],
    moved: Mapping[Node | If, Reduction | Turn] = MappingProxyType({}),
    settled: Collection[Node | If] = (),
) -> float:
    """What one kernel for a group of nodes saves, on one thread, before its own call.

    `moved`: those that are not element-wise; `settled`: those that a library computes once.
    """
    made = {v for n in group for v in n.writes}
    read = dict.fromkeys(v for n in group for v in n.reads if v not in made)
    fused = sum(_fused_around(n, moved.get(n)) for n in group)
    passes = max(len(group) - fused, 1) / len(group)
    largest = max(map(elements, made), default=0)
    own = sum(_passing(elements(v)) for v in read) + _passing(largest)
    each_run = [n for n in group if n not in settled]
    walking = sum(_walking(n, m) for n in each_run if (m := moved.get(n)) is not None)
    return _moving(each_run) * passes - own + sum(map(_turning, each_run)) + walking


def _turning(node: Node | If) -> float:
    """Seconds for which a library turns tensors, to have an axis last and back: element by element, unless
    it was the last but one."""
    if isinstance(node, If) or node.op.name not in ("Softmax", "LogSoftmax"):
        return 0.0
    meaning, source = lower_to_directml(node), node.inputs[0]
    if meaning is None or source is None or source.rank is None:
        return 0.0
    near = meaning.attributes["Axes"] == (source.rank - 2,)
    return elements(source) * (NEAR_TURN_SECONDS if near else ROUND_TURN_SECONDS)


def _fused_around(node: Node, moved: Reduction | Turn | None) -> int:
    """How many nodes around one a library passes over together with it."""
    if not isinstance(moved, Reduction) or node.op.name != "ReduceMean" or node.inputs[0] is None:
        return _FUSED_BY_LIBRARIES.get(node.op.name, 0)
    along_last = moved.keeps and moved.axes == ((node.inputs[0].rank or 0) - 1,)
    return _FUSED_AROUND_MEANS if along_last else 0


def _walking(node: Node, moved: Reduction | Turn) -> float:
    """Seconds that a library takes longer than a kernel to walk, whatever is read and written."""
    source = node.inputs[0]
    if source is None:
        return 0.0
    if isinstance(moved, Turn):
        return elements(source) * (TURN_SECONDS if moved.is_slow else 0.0)
    return elements(source) * seconds_for_each(node, moved)


def _moving(nodes: Iterable[Node | If]) -> float:
    """Seconds to read and write what nodes do, one after the other."""
    return sum(_passing(elements(v)) for n in nodes for v in (*n.reads, *n.writes))


def _passing(count: int) -> float:
    """Seconds to pass over so many elements, which mostly have four bytes."""
    return 4 * count / (CACHED_BYTES_PER_SECOND if 4 * count <= CACHED_BYTES else BYTES_PER_SECOND)


def in_blocks(node: Node | If) -> bool:
    """Whether a library computes a node on blocks of channels."""
    return isinstance(node, Node) and node.op.name in _IN_BLOCKS


_IN_BLOCKS = frozenset({"Conv", "BatchNormalization", "MaxPool", "AveragePool"})


def out_of_blocks(value: Value) -> float:
    """Seconds that it takes to hand a value on between what computes on blocks and another step."""
    return 4 * elements(value) / BLOCKED_BYTES_PER_SECOND


def copied_out(value: Value) -> float:
    """Seconds that it takes to have a library's result for another step, if it is at hand: a copy, into
    memory that is not. Of larger ones, passes that are saved are longer, too."""
    count = elements(value)
    return _COPIES * _passing(count) if 4 * count <= CACHED_BYTES else 0.0


def elements(value: Value) -> int:
    """How many elements a value has, or had once; 0 where that is not known."""
    known = value.known_sizes
    if known is not None:
        return prod(known)
    return 0 if value.sizes is None else prod(likely(n) or 0 for n in value.sizes)


_NANOSECONDS = {
    **dict.fromkeys(
        """Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Concat Div Equal
        Expand Floor Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less
        LessOrEqual Max Mean Min Mul Neg Not Or PRelu Reciprocal Relu Round Shrink Sign Split Sqrt Sub Sum
        ThresholdedRelu Where Xor GlobalAveragePool GlobalMaxPool ReduceL1 ReduceL2 ReduceMax ReduceMean
        ReduceMin ReduceSum ReduceSumSquare""".split(),
        0.12,
    ),
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Constant", "Shape"), 0.0),
    **dict.fromkeys("Elu Erf Exp Gelu Log Selu Sigmoid Softplus Swish Tanh".split(), 0.42),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization", "InstanceNormalization"), 0.44),
    **dict.fromkeys(("Softmax", "LogSoftmax"), 0.86),
    "Transpose": 0.88,
}
"""Of an element in a program, on processors of 2021 with AVX2."""
_OTHER_NANOSECONDS = 0.75
_POOLING_NANOSECONDS = 0.43
"""Of an element of a window."""
_PRODUCT_NANOSECONDS, _FLOP_NANOSECONDS = 0.011, 0.0225
"""Of a multiplication or an addition: of products of matrices, and of others."""


def program_seconds(nodes: Iterable[Node | If]) -> float | None:
    """In a program, on one thread; None where sizes are not known, or there is control flow."""
    total = 0.0
    for node in nodes:
        if isinstance(node, If) or any(v.known_sizes is None for v in (*node.reads, *node.writes)):
            return None
        total += _program_nanoseconds(node)
    return total * 1e-9


def _program_nanoseconds(node: Node) -> float:
    if node.op.name in ("MatMul", "Gemm"):
        return _PRODUCT_NANOSECONDS * work([node])
    if node.op.name in ("MaxPool", "AveragePool", "LpPool"):
        window = KnownNode(node, {}).attribute("kernel_shape") or ()
        return _POOLING_NANOSECONDS * prod(window) * sum(map(elements, node.writes))
    count = max(map(elements, (*node.reads, *node.writes)), default=0)
    if node.op.name in _NANOSECONDS:
        return _NANOSECONDS[node.op.name] * count
    return max(_OTHER_NANOSECONDS * count, _FLOP_NANOSECONDS * work([node]))


def connected(nodes: Collection[Node]) -> list[list[Node]]:
    """Groups of nodes of which each reads or writes what another one of the group does."""
    listed = list(nodes)
    above = list(range(len(listed)))
    """For each node, one nearer to the first of its group."""

    def first(k: int) -> int:
        while above[k] != k:
            above[k] = above[above[k]]
            k = above[k]
        return k

    seen: dict[Value, int] = {}
    for k, node in enumerate(listed):
        for value in (*node.reads, *node.writes):
            above[first(k)] = first(seen.setdefault(value, k))
    groups: dict[int, list[Node]] = {}
    for k, node in enumerate(listed):
        groups.setdefault(first(k), []).append(node)
    return list(groups.values())
