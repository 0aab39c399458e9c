"""Nodes that keep all elements in their order: they go, or one Reshape stands for a chain of them.

%b: [1,3] = Squeeze(%a: [1,3,1]); %c: [1,1,3] = Unsqueeze(%b); %d: [1,3,1] = Cast(...); %e = Neg(%d)
    ->   %e = Neg(%a)

Where sizes are known, that is. A Slice of everything, a Cast to the same type, a mean over one element and a
Transpose that moves only sizes of 1 count, too.
"""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value
from anydml.passes.substitute import substituted

_ALWAYS = frozenset("Squeeze Unsqueeze Reshape Flatten Expand".split())
_OF_SAME_SIZES = frozenset("Cast CastLike".split())
_OF_ONE = frozenset("ReduceMean ReduceSum ReduceMax ReduceMin".split())


def merge_reshapes(graph: Graph) -> Graph:
    source: dict[Value, Value] = {}
    """What holds a value's elements, under the sizes of the value itself or others."""
    same: dict[Value, Value] = {}
    nodes: list[Node | If] = []
    constants = dict(graph.constants)
    for node in graph.nodes:
        origin = None if isinstance(node, If) else _kept(node, graph)
        if origin is None or isinstance(node, If):
            nodes.append(node)
            continue
        (output,) = node.writes
        root = source[output] = source.get(origin, origin)
        sizes = _type(output).sizes
        if sizes == _type(root).sizes:
            same[output] = root
        elif root is origin and isinstance(node.op, OnnxOp) and node.op.name == "Reshape":
            nodes.append(node)
        elif isinstance(node.op, OnnxOp) and node.op.version >= 5:
            wanted = Value(f"{output.name}~sizes", TensorType("int64", (len(sizes or ()),)))
            constants[wanted] = Constant(np.array(sizes, np.int64))
            op = OnnxOp("", "Reshape", node.op.version)
            nodes.append(Node(op, (root, wanted), (output,), {}, node.name, node.path))
        else:
            nodes.append(node)
            del source[output]
    if not source:
        return graph
    changed = Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants)
    return substituted(changed, same, {})


def _kept(node: Node, graph: Graph) -> Value | None:
    """The input whose elements are the only output's, in order; None if there is none, or not surely."""
    if not isinstance(node.op, OnnxOp) or node.op.domain or not node.inputs or len(node.outputs) != 1:
        return None
    value, output = node.inputs[0], node.outputs[0]
    if value is None or output is None or not _known(value) or not _known(output):
        return None
    given, result = _type(value), _type(output)
    sizes, wanted = given.known_sizes or (), result.known_sizes or ()
    if given.dtype != result.dtype or prod(sizes) != prod(wanted) or 0 in wanted:
        return None
    name = node.op.name
    keeps = (
        name in _ALWAYS
        or (name in _OF_SAME_SIZES and sizes == wanted)
        or (name in _OF_ONE and given.dtype.startswith("float"))
        or (name == "Slice" and sizes == wanted and _forward(node, graph))
        or (name == "Transpose" and _in_order(node, sizes))
    )
    return value if keeps else None


def _forward(node: Node, graph: Graph) -> bool:
    """A Slice without negative steps."""
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    return steps is None or (steps in graph.constants and bool((graph.constants[steps].content > 0).all()))


def _in_order(node: Node, sizes: tuple[int, ...]) -> bool:
    """A Transpose that moves dimensions of size 1 only, the others staying in their order."""
    perm = node.attributes.get("perm")
    axes = reversed(range(len(sizes))) if perm is None else perm.ints
    moved = [k for k in axes if sizes[k] != 1]
    return moved == sorted(moved)


def _known(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.known_sizes is not None


def _type(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type
