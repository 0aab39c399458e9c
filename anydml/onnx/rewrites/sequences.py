"""Sequences of which is known what they are made of: what is taken out of them is what was put in.

    %s = SequenceConstruct(%a, %b); %y = SequenceAt(%s, 1)        ->   %y = %b
    %s = SplitToSequence(%x: [2,4], 1); %y = SequenceAt(%s, 0)    ->   %y = Slice(%x, 0, 1)
    %s = SequenceConstruct(%a); %t = SequenceInsert(%s, %b)       ->   %t = SequenceConstruct(%a, %b)

Devices have no sequences, and loops that were unrolled are full of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from anydml.dataclass import dataclass, field, replace
from anydml.ir.dims import Dim
from anydml.ir.graph import Constant, Graph, If, Node, SequenceType, TensorType, Value
from anydml.ir.transforms import eliminate_dead_code, make_subgraph, read_values
from anydml.onnx.node_builder import NodeBuilder
from anydml.onnx.ops.opinfo import KnownNode

MAX_ITEMS = 64
"""Of a sequence that is followed."""


@dataclass
class _Sequences:
    """What sequences are made of, as far as that is known."""

    made: NodeBuilder
    items: dict[Value, list[Value]] = field(default_factory=dict)
    same: dict[Value, Value] = field(default_factory=dict)

    def replaced(self, node: Node) -> bool:
        """Whether a node was followed, or others were added in its place."""
        known, output = KnownNode(node, self.made.constants), node.outputs[0]
        if output is None or len(node.outputs) != 1:
            return False
        match node.op.name:
            case "SequenceEmpty":
                self.items[output] = []
            case "SequenceConstruct":
                self.items[output] = [v for v in node.inputs if v is not None]
            case "SequenceInsert":
                return self._insert(node, known, output)
            case "SequenceErase":
                place = self._place(node, known)
                if place is not None:
                    items = self._of(node) or []
                    self.items[output] = [*items[:place], *items[place + 1 :]]
            case "SequenceAt":
                place = self._place(node, known)
                if place is not None:
                    self.same[output] = (self._of(node) or [])[place]
                    return True
            case "SequenceLength":
                found = self._of(node)
                if found is not None:
                    content = np.array(len(found), np.int64)
                    self.same[output] = self.made.constant(f"{output.name}~length", content)
                    return True
            case "SplitToSequence":
                self._split(node, known, output)
            case "ConcatFromSequence":
                return self._join(node, known, output)
        return False  # others that make a sequence stay, until nobody reads it

    def _of(self, node: Node) -> list[Value] | None:
        sequence = node.inputs[0]
        return None if sequence is None else self.items.get(sequence)

    def _place(self, node: Node, known: KnownNode) -> int | None:
        """Which item a node is about."""
        items = self._of(node)
        if not items:
            return None
        told = known.integers(1) if len(node.inputs) > 1 and node.inputs[1] is not None else [-1]
        if told is None or len(told) != 1 or not -len(items) <= told[0] < len(items):
            return None
        return told[0] % len(items)

    def _insert(self, node: Node, known: KnownNode, output: Value) -> bool:
        items, item = self._of(node), node.inputs[1]
        if items is None or item is None or len(items) >= MAX_ITEMS:
            return False
        place: int | None = len(items)
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            told = known.integers(2)
            within = told is not None and len(told) == 1 and -len(items) <= told[0] <= len(items)
            place = (told[0] + len(items) if told[0] < 0 else told[0]) if within and told else None
        if place is None:
            return False
        self.items[output] = [*items[:place], item, *items[place:]]
        self.made.op("SequenceConstruct", self.items[output], output)  # as one, it can be chosen item by item
        return True

    def _split(self, node: Node, known: KnownNode, output: Value) -> None:
        """Parts of equal and known lengths, each cut out where it is read."""
        x, sizes, axis = node.inputs[0], known.sizes(0), known.int("axis")
        if x is None or sizes is None or not -len(sizes) <= axis < len(sizes):
            return
        axis %= len(sizes)
        size = sizes[axis]
        if not isinstance(size, int):
            return
        given = node.inputs[1] if len(node.inputs) > 1 else None
        lengths = [1] * size
        if given is not None:
            told = known.integers(1)
            if told is None or any(n < 1 for n in told):
                return
            if given.sizes == ():
                rest = size % told[0]
                told = [told[0]] * (size // told[0]) + ([rest] if rest else [])
            lengths = told
        if sum(lengths) != size or not 0 < len(lengths) <= MAX_ITEMS:
            return
        item = output.type.element if isinstance(output.type, SequenceType) else None
        rank = len(item.sizes) if isinstance(item, TensorType) and item.sizes is not None else None
        if rank not in (len(sizes), len(sizes) - 1):  # libraries differ from ONNX in what keeps the axis
            return
        keeps = rank == len(sizes)
        self.items[output] = parts = []
        start = 0
        for k, length in enumerate(lengths):
            part = self._cut(x, axis, start, length, keeps, f"{output.name}~{k}")
            parts.append(part)
            start += length

    def _cut(self, x: Value, axis: int, start: int, length: int, keeps: bool, name: str) -> Value:
        made, sizes = self.made, list(x.sizes or ())
        first, end, along = (
            made.constant(f"{name}~{word}", [n])
            for word, n in (("start", start), ("end", start + length), ("axis", axis))
        )
        dtype = x.tensor.dtype
        kept: list[Dim] = [length if k == axis else n for k, n in enumerate(sizes)]
        if not keeps:
            index = made.constant(f"{name}~place", np.array(start, np.int64))
            rest = TensorType(dtype, tuple(n for k, n in enumerate(sizes) if k != axis))
            return made.op("Gather", [x, index], Value(name, rest), axis=axis)
        return made.op("Slice", [x, first, end, along], Value(name, TensorType(dtype, tuple(kept))))

    def _join(self, node: Node, known: KnownNode, output: Value) -> bool:
        items = self._of(node)
        if not items:
            return False
        axis, rank = known.int("axis"), items[0].rank
        if known.int("new_axis"):
            if axis < 0 and rank is None:
                return False
            self.made.stack(items, axis + (rank or 0) + 1 if axis < 0 else axis, output)
        elif rank is not None and not -rank <= axis < rank:
            return False  # fails when it runs, where a Concat is refused when it is loaded
        else:
            self.made.op("Concat", items, output, axis=axis)
        return True


def follow_sequences(graph: Graph, branches: bool = False) -> Graph:
    """The graph without sequences that are only made to be taken apart; itself if nothing changed.

    `branches`: and those in its branches as what they are made of, so that branches can be joined.
    """
    found = _followed(graph, {}, {}, branches)
    if found is None:
        return graph
    nodes, outputs, constants = found
    made = Graph(graph.name, graph.inputs, outputs, nodes, {**graph.constants, **constants})
    return eliminate_dead_code(made)


def _followed(
    graph: Graph, outer: Mapping[Value, Constant], items: Mapping[Value, list[Value]], branches: bool
) -> tuple[tuple[Node | If, ...], tuple[Value, ...], Mapping[Value, Constant]] | None:
    """A graph's nodes, outputs and new constants; None if nothing changed. `outer`, `items`: what is known
    around it."""
    made = NodeBuilder({**outer, **graph.constants}, 0, False)
    followed = _Sequences(made, dict(items))
    nodes: list[Node | If] = []
    changed = False
    for node in graph.nodes:
        node = read_values(node, followed.same)
        made.start(node)
        if isinstance(node, If) and branches:
            before = node.then_branch, node.else_branch
            after = [_branch(b, made.constants, followed.items) for b in before]
            if any(a is not b for a, b in zip(after, before, strict=True)):
                node, changed = replace(node, then_branch=after[0], else_branch=after[1]), True
        elif isinstance(node, Node) and not node.op.domain and node.op.version >= 11:
            made.opset = node.op.version
            gone = followed.replaced(node)
            nodes += made.taken()
            changed = changed or gone
            if gone:
                continue
        nodes.append(node)
    if not changed:
        return None
    return tuple(nodes), tuple(followed.same.get(v, v) for v in graph.outputs), made.new_constants


def _branch(branch: Graph, outer: Mapping[Value, Constant], items: Mapping[Value, list[Value]]) -> Graph:
    found = _followed(branch, outer, items, True)
    if found is None:
        return branch
    nodes, outputs, constants = found
    return eliminate_dead_code(make_subgraph(branch.name, nodes, outputs, {**branch.constants, **constants}))
