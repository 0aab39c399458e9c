"""Which inputs decide branches, and which grow from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

from anydml.dataclass import dataclass
from anydml.ir.dims import Affine
from anydml.ir.graph import Graph, If, Node, SequenceType, TensorType, Type, Value
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.partial_eval.symbolic import measures

MOVES = frozenset(
    ("Identity", "Cast", "Gather", "Slice", "Split", "Squeeze", "Unsqueeze", "Reshape", "Transpose")
)
"""What moves a cache before something is appended to it, and behind that."""
CACHES = {
    "Attention": (4, 5),
    "MultiHeadAttention": (6, 7),
    "GroupQueryAttention": (3, 4),
    "DecoderMaskedMultiHeadAttention": (5, 6),
}
"""Of what appends to caches itself, ONNX's and onnxruntime's, which inputs these are: along the last axis but
one. They are its outputs, but for the first."""


@dataclass(frozen=True)
class InputRoles:
    """
    Attributes:
        deciding: the places of inputs whose contents a condition is computed from.
        growing: sizes of inputs that are others in each run: the input's place, and the axis. These are of
            what comes back as an output with something appended, as the caches of decoders do; and those
            whose names speak of such a size: `past + new`.
        from_nothing: those of them that are 0 in a first run, so that one plan may be for that and for all
            others: what has them is only measured, and joined along that axis with something that has
            elements.
    """

    deciding: tuple[int, ...]
    growing: frozenset[tuple[int, int]]
    from_nothing: frozenset[tuple[int, int]]


def input_roles(graph: Graph) -> InputRoles:
    makers = {v: node for node in graph.walk() for v in node.writes}
    outer = {v: w for node in graph.walk() for v, w in _results(node)}
    appended = [*_appended(graph, makers, outer)]
    deciding = _deciding(graph, makers, outer)
    return InputRoles(deciding, _growing(graph, appended), _from_nothing(graph, appended))


Makers = dict[Value, Node | If]
"""What makes a value, branches included."""
Outer = dict[Value, tuple[Value, ...]]
"""For the outputs of Ifs, what they can be."""
Appended = Sequence[tuple[int, Sequence[int]]]
"""Inputs that outputs are made of by appending something, and along which axes."""


def _deciding(graph: Graph, makers: Makers, outer: Outer) -> tuple[int, ...]:
    """Sizes do not count as contents, so the search stops at `Shape` and `Size`; and only tensors of
    integers or truths can be guards.
    """
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


def _growing(graph: Graph, appended: Appended) -> frozenset[tuple[int, int]]:
    found = {(place, axis) for place, axes in appended for axis in axes}
    names = {n for n in (_name(graph.inputs[place], axis) for place, axis in found) if n}
    for place, value in enumerate(graph.inputs):
        for axis in range(value.rank or 0):
            if any(name in _name(value, axis) for name in names):
                found.add((place, axis))
    return frozenset(found)


def _from_nothing(graph: Graph, appended: Appended) -> frozenset[tuple[int, int]]:
    if not appended or any(isinstance(n, If) or n.bodies for n in graph.nodes):
        return frozenset()
    readers: dict[Value, list[Node | If]] = {}
    for node in graph.nodes:
        for value in node.reads:
            readers.setdefault(value, []).append(node)
    able = {graph.inputs[place]: (place, axes[0]) for place, axes in appended if len(axes) == 1}

    def joins(node: Node | If) -> bool:
        appends = _is_concat(node) and not able.keys() >= {*node.reads}
        return appends or (isinstance(node, Node) and measures(node))

    return frozenset(end for value, end in able.items() if all(map(joins, readers[value])))


def _is_concat(node: Node | If | None) -> TypeGuard[Node]:
    return isinstance(node, Node) and node.is_onnx("Concat")


def _appended(graph: Graph, makers: Makers, outer: Outer) -> Iterator[tuple[int, Sequence[int]]]:
    places = {v: k for k, v in enumerate(graph.inputs)}
    wanted: list[tuple[Value, Node | None, bool]] = [(v, None, False) for v in graph.outputs]
    """Values with what appended to them, and whether they were moved since then."""
    seen = set()
    while wanted:
        value, appends, moved = path = wanted.pop()
        if path in seen:
            continue
        seen.add(path)
        if appends is not None and value in places and value.rank:
            axis = NodeView(appends).attribute("axis") if _is_concat(appends) else -2
            axes = [axis % value.rank] if not moved and isinstance(axis, int) else range(value.rank)
            yield places[value], [k for k in axes if not isinstance((value.sizes or ())[k], int)]
        wanted += [(v, appends, moved) for v in outer.get(value, ())]
        node = makers.get(value)
        if _is_concat(node):
            wanted += [(v, node, False) for v in node.reads]
        elif isinstance(node, Node) and node.op.name in MOVES:
            wanted += [(v, appends, True) for v in node.reads[:1]]
        elif isinstance(node, Node) and node.op.name in CACHES and value is not node.outputs[0]:
            caches = (node.inputs[k] for k in CACHES[node.op.name] if k < len(node.inputs))
            wanted += [(v, node, False) for v in caches if v is not None]


def _name(value: Value, axis: int) -> str:
    """What a file calls a size that it leaves open."""
    size = (value.sizes or ())[axis]
    return size.name if isinstance(size, Affine) else ""


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
