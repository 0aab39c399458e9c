"""Lists to which a loop appends one tensor in each iteration, and which are joined then, become its rows.

    %s = Loop(5, true, SequenceEmpty()) {(%k, %c, %l) -> (%c, SequenceInsert(%l, %t))}
    %y = ConcatFromSequence(%s, axis=0, new_axis=1)
        ->   %y = Loop(5, true) {(%k, %c) -> (%c, %t)}

So are written the lists of scripts, with `torch.stack` or `torch.cat` behind the loop. Rows may be part of a
program, and devices have no sequences. All items have to be of one known shape, and there has to be one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from anydml.ir.graph import Body, Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import eliminate_dead_code, make_subgraph
from anydml.onnx.node_builder import NodeBuilder
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.rewrites.trip_counts import is_true, passed_on

Constants = Mapping[Value, Constant]
Typed = Callable[[Node, Constants], Node]
"""A loop whose body's values have types."""


def lists_as_rows(graph: Graph, typed: Typed) -> Graph:
    """The graph with rows in the place of lists that are only joined, measured, or read by places; itself if
    there are none."""
    if not any(isinstance(n, Node) and n.is_onnx("SequenceEmpty") for n in graph.nodes):
        return graph
    makers = {v: n for n in graph.nodes for v in n.writes}
    made = NodeBuilder(graph.constants, 0, False)
    rows: dict[Value, Value] = {}
    nodes: list[Node | If] = []
    for node in graph.nodes:
        if isinstance(node, Node) and node.is_onnx("Loop") and node.op.version >= 11:
            for k in _empty_lists(node, makers):
                readers = [n for n in graph.nodes if node.outputs[k] in n.reads]
                readable = node.outputs[k] not in graph.outputs and all(map(_can_read, readers))
                found = _with_rows(node, k, graph.constants, typed) if readable else None
                if found is not None and all(_fits(n, found[1]) for n in readers):
                    rows[_output(node, k)] = found[1]
                    node = found[0]
                    break  # the others' places have changed: they are found when it is asked again
            nodes.append(node)
        elif isinstance(node, Node) and node.reads and node.reads[0] in rows:
            made.start(node)
            made.opset = node.op.version
            _read(node, rows[node.reads[0]], made)
            nodes += made.taken()
        else:
            nodes.append(node)
    if not rows:
        return graph
    constants = {**graph.constants, **made.new_constants}
    result = Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants)
    return lists_as_rows(eliminate_dead_code(result), typed)


def _output(node: Node, k: int) -> Value:
    output = node.outputs[k]
    assert output is not None
    return output


def _empty_lists(node: Node, makers: Mapping[Value, Node | If]) -> list[int]:
    """The states of a loop that begin as sequences without items, and are read behind it."""
    found = []
    for k, value in enumerate(node.inputs[2:]):
        maker = None if value is None else makers.get(value)
        if isinstance(maker, Node) and maker.is_onnx("SequenceEmpty") and node.outputs[k] is not None:
            found.append(k)
    return found


def _can_read(node: Node | If) -> bool:
    named = ("ConcatFromSequence", "SequenceAt", "SequenceLength")
    return isinstance(node, Node) and any(map(node.is_onnx, named))


def _fits(node: Node | If, rows: Value) -> bool:
    """Whether a node that joins has an axis to do so along."""
    if not node.reads or not isinstance(node, Node) or not node.is_onnx("ConcatFromSequence"):
        return True
    known = KnownNode(node, {})
    axis, rank = known.int("axis"), (rows.rank or 0) - (not known.int("new_axis"))
    return -rank <= axis < rank


# ---- the loop ----------------------------------------------------------------------------------------


def _with_rows(node: Node, k: int, constants: Constants, typed: Typed) -> tuple[Node, Value] | None:
    """The loop with rows in the place of its state k, and what these are; None if that cannot be."""
    if not _runs(node, constants):
        return None
    body = typed(node, constants).bodies["body"]
    state, after = body.parameters[2 + k], body.outputs[1 + k]
    grown = _appended(body, after, state)
    if grown is None:
        return None
    nodes, item = grown
    type = item.type
    if not isinstance(type, TensorType) or not all(type.known_sizes or (type.sizes == (),)):
        return None
    states = len(node.inputs) - 2
    outputs = (*body.outputs[: 1 + k], *body.outputs[2 + k : 1 + states], item, *body.outputs[1 + states :])
    rest = eliminate_dead_code(replace(body, nodes=tuple(nodes), outputs=outputs))
    assert isinstance(rest, Body)
    if any(state in n.reads for n in rest.nodes) or state in outputs:
        return None
    read = {*(v for n in rest.nodes for v in n.reads), *rest.outputs}
    told = dict(zip(body.outputs, body.returns, strict=True))
    less = replace(
        rest,
        inputs=tuple(v for v in rest.inputs if v in read),
        parameters=tuple(v for v in body.parameters if v is not state),
        takes=tuple(t for v, t in zip(body.parameters, body.takes, strict=True) if v is not state),
        returns=tuple(type if v is item else told.get(v) for v in outputs),
    )
    rows = Value(f"{_output(node, k).name}~rows", TensorType(type.dtype, (None, *(type.sizes or ()))))
    given = tuple(v for j, v in enumerate(node.inputs) if j != 2 + k)
    results = (*node.outputs[:k], *node.outputs[k + 1 : states], rows, *node.outputs[states:])
    return replace(node, inputs=given, outputs=results, bodies={"body": less}), rows


def _runs(node: Node, constants: Constants) -> bool:
    """Whether there surely is an iteration: nothing cannot be joined."""
    trips, go = (*node.inputs, None)[:2]
    count = KnownNode(node, constants).integers(0)
    return (trips is None or (bool(count) and count is not None and count[0] > 0)) and (
        go is None or is_true(go, constants)
    )


def _appended(body: Graph, after: Value, state: Value) -> tuple[list[Node | If], Value] | None:
    """The nodes of a body, or branch, that tell what it appends to a sequence; and that item."""
    after = passed_on(body, after)
    maker = next((n for n in body.nodes if after in n.writes), None)
    if isinstance(maker, If):
        return _chosen(body, maker, maker.outputs.index(after), state)
    if maker is None or not maker.is_onnx("SequenceInsert"):
        return None
    into, item, place = (*maker.inputs, None)[:3]
    if into is None or item is None or place is not None or passed_on(body, into) is not state:
        return None
    return list(body.nodes), item


def _chosen(body: Graph, node: If, k: int, state: Value) -> tuple[list[Node | If], Value] | None:
    """The same of an If, both of whose branches append something."""
    grown = [_appended(branch, branch.outputs[k], state) for _, branch in node.branches]
    if None in grown:
        return None
    branches, items = [], []
    for (_, branch), found in zip(node.branches, grown, strict=True):
        assert found is not None
        nodes, item = found
        items.append(item)
        outputs = tuple(item if j == k else v for j, v in enumerate(branch.outputs))
        less = eliminate_dead_code(
            make_subgraph(branch.name, nodes, outputs, {**body.constants, **branch.constants})
        )
        branches.append(make_subgraph(less.name, less.nodes, less.outputs, branch.constants))
    a, b = (v.type for v in items)
    if not isinstance(a, TensorType) or a != b:
        return None
    item = Value(f"{_named(node, k)}~item", a)
    results = tuple(item if j == k else v for j, v in enumerate(node.outputs))
    chosen = replace(node, then_branch=branches[0], else_branch=branches[1], outputs=results)
    return [chosen if n is node else n for n in body.nodes], item


def _named(node: If, k: int) -> str:
    output = node.outputs[k]
    return "" if output is None else output.name


# ---- what reads it -----------------------------------------------------------------------------------


def _read(node: Node, rows: Value, made: NodeBuilder) -> None:
    """What a node does with a list, done with rows."""
    (output,) = node.writes
    if node.is_onnx("SequenceAt"):
        assert node.inputs[1] is not None
        made.op("Gather", [rows, node.inputs[1]], output, axis=0)
    elif node.is_onnx("SequenceLength"):
        shape = made.nofail("Shape", [rows], Value(f"{output.name}~shape", TensorType("int64", (rows.rank,))))
        first = made.constant(f"{output.name}~first", np.array(0, np.int64))
        made.nofail("Gather", [shape, first], output, axis=0)
    else:
        _join(KnownNode(node, made.constants), rows, output, made)


def _join(known: KnownNode, rows: Value, output: Value, made: NodeBuilder) -> None:
    new, (count, *sizes) = known.int("new_axis"), rows.tensor.sizes or (None,)
    axis = known.int("axis") % (len(sizes) + new)
    moved, turned = rows, [*sizes[:axis], count, *sizes[axis:]]
    if axis:
        type = TensorType(rows.tensor.dtype, tuple(turned))
        moved = output if new else Value(f"{output.name}~turned", type)
        made.op("Transpose", [rows], moved, perm=[*range(1, axis + 1), 0, *range(axis + 1, len(turned))])
    elif new:
        made.pass_on(rows, output)
    if not new:
        whole = made.constant(f"{output.name}~sizes", [-1 if k == axis else n for k, n in enumerate(sizes)])
        made.op("Reshape", [moved, whole], output)
