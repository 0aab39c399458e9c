"""About how long nodes take: to tell whether kernels of ours pay beside a library's regions.

A kernel passes over memory once for a whole group of element-wise nodes, where a library does for each, but
for what it fuses itself. Against that stands what a cut costs: calls, and regions that have one thread only,
since another one has them all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod

from anydml.ir.graph import If, Node, Value
from anydml.onnx.if_conversion.cost import work

BYTES_PER_SECOND = 8e9
"""Of one thread, in and out of memory."""
FLOPS_PER_SECOND = 2e10
CALL_SECONDS = 12e-6
"""Of a step: a library's call with its feeds, or our kernels'."""
_FUSED_BY_LIBRARIES = {"Erf": 4, "Tanh": 4, "Sigmoid": 1, "HardSigmoid": 1, "Relu": 1, "Softplus": 1}
"""Nodes around one of these that a library passes over together with it: GELU, SiLU, and the like."""


def seconds(nodes: Iterable[Node | If]) -> float:
    """In a library, on one thread."""
    return sum(max(work([n]) / FLOPS_PER_SECOND, _moved([n]) / BYTES_PER_SECOND) for n in nodes)


def seconds_saved(group: Sequence[Node]) -> float:
    """What one kernel for a group of element-wise nodes saves, on one thread, before its own call."""
    made = {v for n in group for v in n.writes}
    read = dict.fromkeys(v for n in group for v in n.reads if v not in made)
    fused = sum(_FUSED_BY_LIBRARIES.get(n.op.name, 0) for n in group)
    passes = max(len(group) - fused, 1) / len(group)
    largest = max(map(elements, made), default=0)
    own = 4 * (sum(map(elements, read)) + largest)
    return (_moved(group) * passes - own) / BYTES_PER_SECOND


def _moved(nodes: Iterable[Node | If]) -> int:
    """Bytes that nodes read and write, one after the other; elements mostly have four."""
    return sum(4 * elements(v) for n in nodes for v in (*n.reads, *n.writes))


def elements(value: Value) -> int:
    """How many elements a value has; 0 where that is not known."""
    return 0 if value.known_sizes is None else prod(value.known_sizes)


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
