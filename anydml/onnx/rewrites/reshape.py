"""Nodes that keep all elements in their order: they go, or one Reshape stands for a chain of them.

%b: [1,3] = Squeeze(%a: [1,3,1]); %c: [1,1,3] = Unsqueeze(%b); %d: [1,3,1] = Cast(...); %e = Neg(%d)
    ->   %e = Neg(%a)

Where sizes are known, that is. A Slice of everything, a Cast to the same type, a mean over one element and a
Transpose that moves only sizes of 1 count, too.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value
from anydml.ir.transforms import replace_uses

_ALWAYS = frozenset("Squeeze Unsqueeze Reshape Flatten Expand".split())
_OF_SAME_SIZES = frozenset("Cast CastLike".split())
_UNARY = frozenset("Relu Sigmoid Tanh".split())
_OF_ONE = frozenset("ReduceMean ReduceSum ReduceMax ReduceMin".split())


def merge_reshapes(graph: Graph) -> Graph:
    source: dict[Value, Value] = {}
    """What holds a value's elements, under the sizes of the value itself or others."""
    same: dict[Value, Value] = {}
    nodes: list[Node | If] = []
    constants = dict(graph.constants)
    for node in graph.nodes:
        if isinstance(node, Node) and _element_by_element(node) and node.inputs[0] in source:
            root = source[node.inputs[0]]  # what it computes can be reshaped afterwards, with others
            (output,) = node.writes
            assert isinstance(output.type, TensorType)
            early = source[output] = Value(
                f"{output.name}~early", replace(output.type, sizes=_type(root).sizes)
            )
            nodes.append(replace(node, inputs=(root,), outputs=(early,)))
            nodes.append(reshape_node(early, output, constants, node))
            continue
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
            nodes.append(reshape_node(root, output, constants, node))
        else:
            nodes.append(node)
            del source[output]
    if not source:
        return graph
    changed = Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants)
    return replace_uses(changed, same, {})


def reshape_node(source: Value, output: Value, constants: dict[Value, Constant], like: Node) -> Node:
    """A Reshape to the sizes of `output`, in the place of the node `like`. Adds a constant."""
    assert isinstance(like.op, OnnxOp)
    sizes = output.known_sizes
    assert sizes is not None, "sizes are known"
    assert 0 not in sizes, "a 0 would mean another size"
    wanted = Value(f"{output.name}~sizes", TensorType("int64", (len(sizes),)))
    constants[wanted] = Constant(np.array(sizes, np.int64))
    op = OnnxOp("", "Reshape", like.op.version)
    return Node(op, (source, wanted), (output,), {}, like.name, like.path)


def _element_by_element(node: Node) -> bool:
    simple = (
        isinstance(node.op, OnnxOp) and not node.op.domain and node.op.name in _UNARY and node.op.version >= 6
    )
    writes = list(node.writes)
    whole = len(node.inputs) == 1 and node.inputs[0] is not None and len(writes) == 1
    return simple and whole and isinstance(writes[0].type, TensorType)


def _kept(node: Node, graph: Graph) -> Value | None:
    """The input whose elements are the only output's, in order; None if there is none, or not surely."""
    if not isinstance(node.op, OnnxOp) or node.op.domain or not node.inputs or len(node.outputs) != 1:
        return None
    value, output = node.inputs[0], node.outputs[0]
    if value is None or output is None or value.known_sizes is None or output.known_sizes is None:
        return None
    given, result = _type(value), _type(output)
    sizes, wanted = given.known_sizes or (), result.known_sizes or ()
    if given.dtype != result.dtype or prod(sizes) != prod(wanted) or 0 in wanted:
        return None
    name = node.op.name
    if name == "Expand" and node.inputs[1] not in graph.constants:  # which may not fit
        return None
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


def _type(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type
