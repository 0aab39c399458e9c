"""Lists of a tensor's parts, of length 1 each, that are only read by places, or counted, become the tensor.

    %s = SplitToSequence(%x, 1, keepdims=0)
    %y = Loop(SequenceLength(%s), ...) {(%k, ...) -> ... SequenceAt(%s, %k) ...}
        ->   %y = Loop(Shape(%x)[0], ...) {(%k, ...) -> ... Gather(%x, %k) ...}

So are written the loops of scripts over what a tensor consists of. Programs and devices have no sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from anydml.dataclass import dataclass, replace
from anydml.ir.graph import Body, Constant, Graph, If, Node, SequenceType, TensorType, Value
from anydml.ir.transforms import eliminate_dead_code, make_subgraph
from anydml.onnx.node_builder import NodeBuilder
from anydml.onnx.ops.opinfo import KnownNode

Constants = Mapping[Value, Constant]
Typed = Callable[[Node, Constants], Node]
"""A node whose bodies' values have types."""


@dataclass(frozen=True)
class _Parts:
    """Of a tensor, one after the other along an axis."""

    whole: Value
    axis: int
    keeps: bool
    """Parts have the axis, too."""


def lists_as_tensors(graph: Graph, typed: Typed) -> Graph:
    """The graph with tensors in the place of lists of their parts; itself if there are none.

    Those of branches and bodies go, too.
    """
    if not any(isinstance(n, Node) and n.is_onnx("SplitToSequence") for n in graph.walk(bodies=True)):
        return graph
    found = _Lists(typed).followed(graph, {}, {})
    if found is None:
        return graph
    nodes, constants = found
    return eliminate_dead_code(replace(graph, nodes=nodes, constants=constants))


@dataclass
class _Lists:
    """How lists go."""

    typed: Typed

    def followed(
        self, graph: Graph, outer: Constants, lists: Mapping[Value, _Parts]
    ) -> tuple[tuple[Node | If, ...], dict[Value, Constant]] | None:
        """A graph's nodes and constants without such lists, its own and those around it; None if it has
        none."""
        known = {**outer, **graph.constants}
        before, own = self._own(graph, known)
        lists = {**lists, **own}
        made, nodes, changed = NodeBuilder(known, 0, False), list[Node | If](), False
        for node in before:
            made.start(node)
            if node.subgraphs:
                after = self._with_bodies(node, known, lists)
                changed = changed or after is not node
                nodes.append(after)
            elif isinstance(node, Node) and node.reads and node.reads[0] in lists:
                made.opset = node.op.version
                _read(node, lists[node.reads[0]], made)
                nodes += made.taken()
                changed = True
            else:
                nodes.append(node)
        return (tuple(nodes), {**graph.constants, **made.new_constants}) if changed else None

    def _own(self, graph: Graph, known: Constants) -> tuple[Sequence[Node | If], dict[Value, _Parts]]:
        """The lists that a graph makes and that nobody needs as such; and its nodes, with types where they
        tell that."""
        found = {}
        for node in graph.nodes:
            if isinstance(node, Node) and node.is_onnx("SplitToSequence"):
                parts, made = _parts(node, known), node.outputs[0]
                if parts is not None and made is not None and made not in graph.outputs:
                    found[made] = parts
        nodes = [self._told(n, known) if found.keys() & {*n.reads} else n for n in graph.nodes]
        return nodes, {v: parts for v, parts in found.items() if _only_read(nodes, v)}

    def _told(self, node: Node | If, known: Constants) -> Node | If:
        """The node with what is known of its bodies' values: of places that they compute."""
        if isinstance(node, If) or not node.bodies:
            return node
        return replace(node, bodies=self.typed(node, known).bodies)

    def _with_bodies(self, node: Node | If, known: Constants, lists: Mapping[Value, _Parts]) -> Node | If:
        if isinstance(node, If):
            then_branch, else_branch = (self._branch(b, known, lists) for _, b in node.branches)
            same = then_branch is node.then_branch and else_branch is node.else_branch
            return node if same else replace(node, then_branch=then_branch, else_branch=else_branch)
        bodies = {name: self._body(body, known, lists) for name, body in node.bodies.items()}
        return node if all(b is node.bodies[n] for n, b in bodies.items()) else replace(node, bodies=bodies)

    def _branch(self, branch: Graph, known: Constants, lists: Mapping[Value, _Parts]) -> Graph:
        found = self.followed(branch, known, lists)
        return branch if found is None else make_subgraph(branch.name, found[0], branch.outputs, found[1])

    def _body(self, body: Body, known: Constants, lists: Mapping[Value, _Parts]) -> Body:
        found = self.followed(body, known, lists)
        if found is None:
            return body
        nodes, constants = found
        inner = make_subgraph(body.name, nodes, body.outputs, constants)
        captures = tuple(v for v in inner.inputs if v not in body.parameters)
        return replace(body, inputs=captures, nodes=inner.nodes, constants=inner.constants)


# ---- which they are ----------------------------------------------------------------------------------


def _parts(node: Node, known: Constants) -> _Parts | None:
    """What a list consists of, if these are parts of length 1 whose rank is sure."""
    view, whole, made = KnownNode(node, known), node.inputs[0], node.outputs[0]
    lengths = node.inputs[1] if len(node.inputs) > 1 else None
    if whole is None or whole.rank is None or made is None or not isinstance(made.type, SequenceType):
        return None
    if lengths is not None and (lengths.sizes != () or view.integers(1) != [1]):
        return None
    if whole.tensor.dtype == "string":  # of which onnxruntime's Gather loses some
        return None
    item, axis = made.type.element, view.int("axis")
    rank = len(item.sizes) if isinstance(item, TensorType) and item.sizes is not None else None
    if rank not in (whole.rank, whole.rank - 1) or not -whole.rank <= axis < whole.rank:
        return None
    return _Parts(whole, axis % whole.rank, rank == whole.rank)


def _only_read(nodes: Iterable[Node | If], made: Value) -> bool:
    """Whether nodes, and those in them, read a list by places, or count it."""
    return all(_reads_parts(node, made) for node in nodes if made in node.reads)


def _reads_parts(node: Node | If, made: Value) -> bool:
    if node.subgraphs:
        given = (node.condition,) if isinstance(node, If) else node.inputs
        inner = node.subgraphs
        return made not in given and all(made not in g.outputs and _only_read(g.nodes, made) for g in inner)
    assert isinstance(node, Node)
    return node.is_onnx("SequenceLength") or (node.is_onnx("SequenceAt") and _is_one(node.inputs[1]))


def _is_one(place: Value | None) -> bool:
    """Whether a place is surely one number: libraries take the first one of several."""
    return place is not None and isinstance(place.type, TensorType) and place.sizes in ((), (1,))


# ---- what reads it -----------------------------------------------------------------------------------


def _read(node: Node, parts: _Parts, made: NodeBuilder) -> None:
    """What a node does with a list, done with the tensor."""
    (output,), whole, axis = node.writes, parts.whole, parts.axis
    if node.is_onnx("SequenceAt"):
        place, wanted = node.inputs[1], (1,) if parts.keeps else ()
        assert place is not None
        if place.sizes != wanted:
            sizes = made.constant(f"{output.name}~sizes", np.array(wanted, np.int64))
            type = TensorType(place.tensor.dtype, wanted)
            place = made.nofail("Reshape", [place, sizes], Value(f"{output.name}~place", type))
        made.op("Gather", [whole, place], output, axis=axis)
        return
    size = whole.sizes[axis] if whole.sizes is not None else None
    if isinstance(size, int):
        made.pass_on(made.constant(f"{output.name}~length", np.array(size, np.int64)), output)
        return
    type = TensorType("int64", (whole.rank,))
    shape = made.nofail("Shape", [whole], Value(f"{output.name}~shape", type))
    place = made.constant(f"{output.name}~axis", np.array(axis, np.int64))
    made.nofail("Gather", [shape, place], output, axis=0)
