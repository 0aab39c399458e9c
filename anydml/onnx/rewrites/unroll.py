"""Loops that surely run a few times become what they do, that many times.

    %s = Loop(3, true, %x) {(%k, %c, %v) -> (true, Mul(%v, %v))}
        ->   %a = Mul(%x, %x); %b = Mul(%a, %a); %s = Mul(%b, %b)

The count has to be a constant. Where something may end the loop before, and it gathers no rows, an If asks in
each iteration whether it still runs:

    %s = Loop(3, %c, %x) {...}  ->  %on1, %s1 = If(%c) <the body of %x | false, %x>; %on2, %s2 = If(%on1) <...

Types are left to be inferred.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anydml.dataclass import dataclass, replace
from anydml.ir.graph import Body, Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import make_subgraph, replace_values
from anydml.onnx.node_builder import NodeBuilder
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.rewrites.trip_counts import always_goes_on
from anydml.onnx.types import numpy_type

MAX_UNROLLED_NODES = 10_000
"""Of one loop, all iterations together."""
Constants = Mapping[Value, Constant]


@dataclass(frozen=True)
class Unrolled:
    """A loop that is none any more, and how often its body ran."""

    node: Node
    count: int
    ifs: tuple[If, ...] = ()
    """What asks in each iteration whether it still runs."""


def unroll(
    graph: Graph, limit: int, outer: Constants | None = None, rows: bool = True, early: bool = False
) -> tuple[Graph, list[Unrolled]]:
    """The graph without loops that run at most `limit` times, or never, in branches and bodies too.

    Args:
        rows: those that gather rows, too. In a branch they stay: if these differ in size the loop fails, and
            so would a file that has them joined, even if the branch is never taken.
        early: those, too, that something may end before.
    """
    constants = {**(outer or {}), **graph.constants}
    made = NodeBuilder(constants, 0, False)
    nodes: list[Node | If] = []
    done: list[Unrolled] = []
    for node in graph.nodes:
        node, inner = _inside(node, limit, constants, rows, early)
        done += inner
        count = _count(node, constants) if isinstance(node, Node) else None
        ends = False
        if count is None and early and isinstance(node, Node):
            count, ends = _most(node, constants), True
        size = 0 if count is None else count * sum(1 for b in _bodies(node) for _ in b.walk(bodies=True))
        if (
            not isinstance(node, Node)
            or count is None
            or count > limit
            or (count == 0 and any(_no_rows(v) is None for v in _rows(node)))
            or size > MAX_UNROLLED_NODES
            or (not rows and len(node.outputs) > _states(node))
            or _ranks_differ(node)
        ):
            nodes.append(node)
            continue
        made.opset = node.op.version
        made.start(node)
        (_unroll_early if ends else _unroll)(node, count, made)
        nodes += made.taken()
        asking = tuple(n for n in made.taken() if isinstance(n, If)) if ends else ()
        done.append(Unrolled(node, count, asking))
    if not done:
        return graph, done
    own = {**graph.constants, **made.new_constants}
    return replace(graph, nodes=tuple(nodes), constants=own), done


def longest(graph: Graph) -> int:
    """Iterations of the longest of the loops that `unroll` could take; 0 if there is none."""
    return max((one.count for one in unroll(graph, MAX_UNROLLED_NODES)[1]), default=0)


def _bodies(node: Node | If) -> list[Body]:
    return list(node.bodies.values()) if isinstance(node, Node) else []


def _states(node: Node) -> int:
    """How many values it carries from one iteration to the next."""
    if node.is_onnx("Loop"):
        return max(len(node.inputs) - 2, 0)
    return len(node.inputs) - KnownNode(node, {}).int("num_scan_inputs")


def _inside(
    node: Node | If, limit: int, constants: Constants, rows: bool, early: bool
) -> tuple[Node | If, list[Unrolled]]:
    """A node with the loops in its branches or bodies unrolled."""
    if isinstance(node, If):
        (then_branch, first), (else_branch, second) = (
            unroll(b, limit, constants, False, early) for _, b in node.branches
        )
        if not first and not second:
            return node, []
        branches = [
            make_subgraph(b.name, b.nodes, b.outputs, {**constants, **b.constants})
            for b in (then_branch, else_branch)
        ]
        return replace(node, then_branch=branches[0], else_branch=branches[1]), [*first, *second]
    done: list[Unrolled] = []
    bodies = {}
    for name, body in node.bodies.items():
        flat, found = unroll(body, limit, constants, rows, early)
        assert isinstance(flat, Body)
        bodies[name] = flat
        done += found
    return (replace(node, bodies=bodies), done) if done else (node, done)


def _ranks_differ(node: Node) -> bool:
    """Whether an If gives rows of several ranks, for all that is known. onnxruntime joins those by$
    their elements alone; nothing else does."""
    body, states = node.bodies["body"], _states(node)
    makers = {v: n for n in body.nodes for v in n.writes}
    given = body.outputs[body.conditions_of(node) + states :]
    for output, row in zip(node.outputs[states:], given, strict=True):
        maker = makers.get(row)
        while isinstance(maker, Node) and maker.is_onnx("Identity") and maker.inputs[0] is not None:
            maker = makers.get(maker.inputs[0])
        if isinstance(maker, If) and output is not None and output.rank is None:
            return True
    return False


def _count(node: Node, constants: Constants) -> int | None:
    """How often its body runs, where that is sure."""
    if node.is_onnx("Loop"):
        body, (trips, go, *_) = node.bodies["body"], (*node.inputs, None, None)
        most, begins = _number(trips, constants), _number(go, constants)
        if most == 0 or begins == 0:
            return 0
        begins_always = go is None or begins is not None
        return most if begins_always and always_goes_on(body, constants) else None
    if node.is_onnx("Scan") and node.op.version >= 9:
        known = KnownNode(node, {})
        first, axes = len(node.inputs) - known.int("num_scan_inputs"), known.ints("scan_input_axes") or []
        sizes = {known.size(k, axes[k - first] if axes else 0) for k in range(first, len(node.inputs))}
        only = sizes.pop() if len(sizes) == 1 else None
        return only if isinstance(only, int) and only else None
    return None


def _number(value: Value | None, constants: Constants) -> int | None:
    """A count, at least 0, or a condition; None if it is not known."""
    content = constants[value].content if value is not None and value in constants else None
    return max(int(content.item()), 0) if isinstance(content, np.ndarray) and content.size == 1 else None


def _rows(node: Node) -> list[Value]:
    """The outputs that gather rows."""
    return [v for v in node.outputs[_states(node) :] if v is not None]


def _no_rows(output: Value) -> np.ndarray | None:
    """What a Loop without iterations gives there, if type and sizes of a row are known."""
    if not isinstance(output.type, TensorType) or output.type.sizes is None:
        return None
    sizes = [n for n in output.type.sizes[1:] if isinstance(n, int)]
    whole = len(sizes) == len(output.type.sizes) - 1
    return np.zeros((0, *sizes), numpy_type(output.type.dtype)) if whole else None


def _most(node: Node, constants: Constants) -> int | None:
    """How often its body may run, of a Loop that may end before and gathers no rows."""
    if not node.is_onnx("Loop") or len(node.outputs) > _states(node):
        return None
    trips, go = (*node.inputs, None)[:2]
    return None if go is None else _number(trips, constants)  # without, libraries do otherwise than ONNX says


def _unroll(node: Node, count: int, made: NodeBuilder) -> None:
    """Add what the iterations do."""
    body = node.bodies["body"]
    made.adopt_constants(body.constants)
    is_loop = node.is_onnx("Loop")
    known = KnownNode(node, {})
    scanned = 0 if is_loop else known.int("num_scan_inputs")
    given = node.inputs[2:] if is_loop else node.inputs[: len(node.inputs) - scanned]
    states = [v for v in given if v is not None]
    rows: list[list[Value]] = [[] for _ in node.outputs[len(states) :]]
    for k in range(count):
        name = f"{node.name or node.op.name}~{k}"
        if is_loop:
            counter = made.constant(f"{name}~number", np.array(k, np.int64))
            arguments = [counter, made.constant(f"{name}~condition", np.array(True)), *states]
        else:
            parts = [_part(known, j, k, count, name, made) for j in range(scanned)]
            arguments = [*states, *parts]
        results = _once(body, arguments, name, made)[1 if is_loop else 0 :]
        states = results[: len(states)]
        for listed, row in zip(rows, results[len(states) :], strict=True):
            listed.append(row)
    for output, state in zip(node.outputs, states, strict=False):
        if output is not None:
            made.pass_on(state, output)
    if count == 0:
        for output in _rows(node):
            made.pass_on(made.constant(f"{output.name}~nothing", _no_rows(output)), output)
        return
    for j, (output, listed) in enumerate(zip(node.outputs[len(states) :], rows, strict=True)):
        if output is not None:
            _joined(known, j, listed, output, made)


def _unroll_early(node: Node, count: int, made: NodeBuilder) -> None:
    """Add what the iterations do, each in a branch that runs if the loop has not ended."""
    body, on = node.bodies["body"], node.inputs[1]
    assert on is not None
    made.adopt_constants(body.constants)
    states = [v for v in node.inputs[2:] if v is not None]
    ended = made.constant(f"{node.name}~ended", np.array(False))
    going = made.constant(f"{node.name}~condition", np.array(True))
    for k in range(count):
        name = f"{node.name or node.op.name}~{k}"
        inner = NodeBuilder({}, made.opset, False)
        inner.start(node)
        counter = made.constant(f"{name}~number", np.array(k, np.int64))
        goes_on, *after = _once(body, [counter, going, *states], name, inner)
        scalar = inner.nofail("Squeeze", [goes_on], Value(f"{name}~goes_on"))
        results = (scalar, *after[: len(states)])
        branches = (
            make_subgraph(name, inner.taken(), results, made.constants),
            make_subgraph(f"{name}~ended", (), (ended, *states), made.constants),
        )
        outputs = [Value(f"{v.name}~{name}") for v in results]
        made.add(If(on, *branches, tuple(outputs), name, node.path))
        on, *states = outputs
    for output, state in zip(node.outputs, states, strict=True):
        if output is not None:
            made.pass_on(state, output)


def _part(known: KnownNode, j: int, k: int, count: int, name: str, made: NodeBuilder) -> Value:
    """What a Scan reads of one of its inputs in an iteration."""
    x = known.node.inputs[len(known.node.inputs) - known.int("num_scan_inputs") + j]
    assert x is not None
    axes, backwards = known.ints("scan_input_axes") or [], known.ints("scan_input_directions") or []
    place = count - 1 - k if backwards and backwards[j] else k
    index = made.constant(f"{name}~place{j}", np.array(place, np.int64))
    return made.op("Gather", [x, index], Value(f"{name}~part{j}"), axis=axes[j] if axes else 0)


def _joined(known: KnownNode, j: int, rows: Sequence[Value], output: Value, made: NodeBuilder) -> None:
    """The rows of an output, along a new axis."""
    axes, backwards = known.ints("scan_output_axes") or [], known.ints("scan_output_directions") or []
    made.stack(rows[::-1] if backwards and backwards[j] else rows, axes[j] if axes else 0, output)


def _once(body: Body, arguments: Sequence[Value], name: str, made: NodeBuilder) -> list[Value]:
    """Add one iteration, and answer with what it gives."""
    new: dict[Value, Value] = dict(zip(body.parameters, arguments, strict=True))
    for node in body.walk(bodies=True):
        new |= {v: Value(f"{v.name}~{name}") for v in node.writes}
        for graph in node.subgraphs:
            # constants of the body itself, of which branches have their own, stay what they are
            own = [v for v in graph.constants if v not in body.constants]
            own += graph.parameters if isinstance(graph, Body) else ()
            new |= {v: Value(f"{v.name}~{name}", v.type) for v in own}
    copy = replace_values(Graph(body.name, body.inputs, body.outputs, body.nodes, {}), new)
    for node in copy.nodes:
        made.add(node)
    return list(copy.outputs)
