"""What a plan depends on: types and sizes of its inputs, and contents of those that decide branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from anydml.ir.graph import Graph, If, Node, SequenceType, TensorType, Type, Value
from anydml.onnx.partial_eval.symbolic import measures
from anydml.onnx.types import dtype_name

MAX_GUARD_ELEMENTS = 16
"""Elements up to which an input may be a guard. A rate or a flag is one; data is larger."""

Key = tuple[Any, ...]
ANY: Key = ("any",)
"""In the place of contents: a plan for whatever they are."""
UNSPECIFIC = frozenset(np.dtype(kind).num for kind in "SUVmM")
"""NumPy's types whose number alone does not say what an element is. Objects are texts, if they are taken."""


def quick_key(values: Sequence[Any], deciding: Sequence[int] = ()) -> list[Any] | None:
    """Types and sizes of arrays, and of those in lists, in the form that is quickest to make, and small
    contents of the `deciding` ones; None if there is anything else, or an array of no native type."""
    key: list[Any] = []
    for value in values:
        if type(value) is np.ndarray and value.dtype.isnative and value.dtype.num not in UNSPECIFIC:
            key += (value.dtype.num, value.shape)
        elif type(value) is list and (inner := quick_key(value)) is not None:
            key.append(tuple(inner))
        else:
            return None
    for k in deciding:
        value = values[k]
        if type(value) is list:
            return None
        key.append(value.tobytes() if value.size <= MAX_GUARD_ELEMENTS else None)
    return key


def shape_key(value: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Type and sizes. A sequence has no sizes, and an optional without content no type either."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    if isinstance(value, list):
        return ("seq", shape_key(value[0])[0] if value else None), None
    return None, None


def join(a: Key | None, b: Key | None) -> Key | None:
    """What two keys have in common, sizes that differ being open; None where types or ranks differ.

    An open size is not 0: operators do other things on nothing, and some libraries wrong ones.
    """
    if a is None or b is None or any(_kind(x) != _kind(y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(
        (dtype, sizes and tuple(n if n == m else None for n, m in zip(sizes, others, strict=True)))
        for (dtype, sizes), (_, others) in zip(a, b, strict=True)
    )


def _kind(key: Any) -> tuple[Any, tuple[bool, ...] | None]:
    """Type, and which sizes are 0."""
    dtype, sizes = key
    return dtype, None if sizes is None else tuple(n == 0 for n in sizes)


def opened(shapes: Key, inputs: Sequence[Value]) -> Key:
    """The key with every size open but those of 0, and those that the file declares."""
    opened = []
    for (dtype, sizes), value in zip(shapes, inputs, strict=True):
        told, rank = value.sizes, len(sizes or ())
        if told is None or len(told) != rank:  # libraries take a condition of one element for a scalar
            told = (None,) * rank
        kept = sizes and tuple(n if n == 0 or n == m else None for n, m in zip(sizes, told, strict=True))
        opened.append((dtype, kept))
    return tuple(opened)


def open_sizes(shapes: Key) -> int:
    return sum(n is None for _, sizes in shapes for n in sizes or ())


def key_text(key: Any) -> str:
    dtype, sizes = key
    if sizes is None:
        return "none" if dtype is None else "sequence"
    return f"{dtype_name(dtype)}[{','.join('?' if n is None else str(n) for n in sizes)}]"


def can_decide(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biu" and value.size <= MAX_GUARD_ELEMENTS


def content_key(value: Any) -> Any:
    return (value.dtype, value.shape, value.tobytes()) if can_decide(value) else None


def content_text(key: Any) -> str:
    found = np.frombuffer(key[2], key[0]).tolist()
    return str(found[0] if len(found) == 1 else found)


# ---- which inputs decide ------------------------------------------------------------------------------


def guard_inputs(graph: Graph) -> tuple[int, ...]:
    """The inputs, by place, whose contents a condition is computed from.

    Sizes do not count as contents, so the search stops at `Shape` and `Size`; and only tensors of
    integers or truths can be guards.
    """
    makers = {v: node for node in graph.walk() for v in node.writes}
    outer = {v: w for node in graph.walk() for v, w in _results(node)}
    wanted = [node.condition for node in graph.walk() if isinstance(node, If)]
    seen: set[Value] = set()
    while wanted:
        value = wanted.pop()
        if value in seen:
            continue
        seen.add(value)
        wanted += outer.get(value, ())
        node = makers.get(value)
        if isinstance(node, Node) and not measures(node):
            wanted += node.reads
        elif isinstance(node, If):
            wanted.append(node.condition)
    return tuple(k for k, v in enumerate(graph.inputs) if v in seen and _may_guard(v.type))


def _results(node: Node | If) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """An If's output and the branches' outputs that it can be."""
    if isinstance(node, If):
        for k, output in enumerate(node.outputs):
            if output is not None:
                yield output, (node.then_branch.outputs[k], node.else_branch.outputs[k])


def _may_guard(type: Type | None) -> bool:
    if isinstance(type, SequenceType):
        return False
    return (
        not isinstance(type, TensorType) or type.dtype == "bool" or type.dtype.lstrip("u").startswith("int")
    )
