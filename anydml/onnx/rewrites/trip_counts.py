"""Loops that count for themselves when to end are told how many iterations that is.

    Loop(none, true, 0, %x) {(%k, %c, %i, %v) -> (Less(Add(%i, 1), 5), Add(%i, 1), Mul(%v, %v))}
        ->   Loop(5, true, 0, %x) {(%k, %c, %i, %v) -> (%c, Add(%i, 1), Mul(%v, %v))}

Frontends that have only `while` write all their loops so. Then the rows of such a loop have a known number,
and it can be unrolled. One that also ends by what the data decides (`while i < 5 and not done`) is told how
many iterations that is at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from anydml.ir.graph import Body, Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import G1, eliminate_dead_code
from anydml.onnx.ops.fold import fold, has_rule
from anydml.onnx.ops.opinfo import NodeFailed, NotFoldable

MAX_EVALUATIONS = 1 << 12
"""Nodes that are computed to find out, some 10 us each."""
MAX_ELEMENTS = 64
"""Of what decides."""
UNLIMITED = 1 << 62
Constants = Mapping[Value, Constant]


def with_trip_counts(graph: G1, outer: Constants = MappingProxyType({})) -> G1:
    """The graph, branches and bodies included; itself if there is no such loop. `outer`: constants around."""
    own = dict(graph.constants)
    nodes = tuple(_counted(node, {**outer, **own}, own) for node in graph.nodes)
    same = all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    return graph if same else cast("G1", eliminate_dead_code(replace(graph, nodes=nodes, constants=own)))


def _inside(graph: G1, constants: Constants) -> G1:
    """A branch or body with trip counts; what only decided is captured no more."""
    counted = with_trip_counts(graph, constants)
    return graph if counted is graph else _less_captured(counted)


def _less_captured(graph: G1) -> G1:
    read = {*(v for n in graph.nodes for v in n.reads), *graph.outputs}
    return replace(graph, inputs=tuple(v for v in graph.inputs if v in read))


def _counted(node: Node | If, constants: Constants, own: dict[Value, Constant]) -> Node | If:
    """The node, and in it, with constant trip counts, which are added to `own`."""
    if isinstance(node, If):
        then_branch, else_branch = (_inside(b, constants) for b in node.subgraphs)
        if then_branch is node.then_branch and else_branch is node.else_branch:
            return node
        return replace(node, then_branch=then_branch, else_branch=else_branch)
    bodies = {name: _inside(body, constants) for name, body in node.bodies.items()}
    if any(bodies[name] is not body for name, body in node.bodies.items()):
        node = replace(node, bodies=bodies)
    if not node.is_onnx("Loop") or len(node.inputs) < 2:
        return node
    if node.inputs[0] is not None and _limit(node, constants) is None:
        return node
    count = _trip_count(node, constants)
    most = _most(node, constants) if count is None else count
    if most is None:
        return node
    limit = Value(f"{node.name or node.op.name}~count", TensorType("int64", ()))
    own[limit] = Constant(np.array(most, np.int64))
    if count is None:
        return replace(node, inputs=(limit, *node.inputs[1:]))
    body = node.bodies["body"]
    counted = _less_captured(
        eliminate_dead_code(replace(body, outputs=(body.parameters[1], *body.outputs[1:])))
    )
    assert isinstance(counted, Body)
    return replace(node, inputs=(limit, *node.inputs[1:]), bodies={"body": counted})


def _trip_count(node: Node, constants: Constants) -> int | None:
    """How often the body runs, which looks at what is known only to decide that; else None."""
    begins = _content(node.inputs[1], constants)
    if always_goes_on(node.bodies["body"], constants) or begins is None or not begins.all():
        return None
    most = _limit(node, constants)
    return _simulate(node, node.bodies["body"].outputs[0], constants, UNLIMITED if most is None else most)


def _most(node: Node, constants: Constants) -> int | None:
    """How often the body runs at most, by one of several conditions that must all hold; None if that is not
    less than what is known already."""
    body, known = node.bodies["body"], _limit(node, constants)
    found = [_simulate(node, part, constants, UNLIMITED) for part in _conjuncts(body, body.outputs[0])[1:]]
    least = min((count for count in found if count is not None), default=UNLIMITED)
    return least if least < (UNLIMITED if known is None else known) else None


def _conjuncts(body: Body, value: Value) -> list[Value]:
    """A condition, and those which must all hold for it to."""
    found, makers = [passed_on(body, value)], {v: n for n in body.nodes for v in n.writes}
    for part in found:
        node = makers.get(part)
        if isinstance(node, Node) and node.is_onnx("And"):
            found += [passed_on(body, v) for v in node.reads if v not in found]
    return found


def _limit(node: Node, constants: Constants) -> int | None:
    """The trip count, if it is known; a negative one lets nothing run."""
    limit = _content(node.inputs[0], constants)
    return None if limit is None else max(int(limit.reshape(-1)[0]), 0)


def always_goes_on(body: Body, constants: Constants) -> bool:
    """Whether the body of a Loop says nothing but that it goes on."""
    goes_on = passed_on(body, body.outputs[0])
    return goes_on is body.parameters[1] or is_true(goes_on, {**constants, **body.constants})


def passed_on(body: Graph, value: Value) -> Value:
    """What a value is that Identities pass on."""
    makers = {v: n for n in body.nodes if isinstance(n, Node) and n.is_onnx("Identity") for v in n.writes}
    while value in makers and (given := makers[value].inputs[0]) is not None:
        value = given
    return value


def is_true(value: Value, constants: Constants) -> bool:
    content = constants[value].content if value in constants else None
    return isinstance(content, np.ndarray) and content.size == 1 and bool(content.reshape(-1)[0])


def _content(value: Value | None, constants: Constants) -> Any:
    """The few elements that a constant has."""
    content = constants[value].content if value is not None and value in constants else None
    return content if isinstance(content, np.ndarray) and 0 < content.size <= MAX_ELEMENTS else None


def _deciding(
    body: Body, states: Mapping[Value, Any], constants: Constants, condition: Value
) -> tuple[list[Node], dict[Value, Any]] | None:
    """The nodes that the condition follows from, and the states with what they begin with; None if something
    that is not known is among it."""
    makers = {v: n for n in body.nodes for v in n.writes}
    after = dict(zip(body.parameters[2:], body.outputs[1:], strict=False))
    needed: set[Node | If] = set()
    carried: dict[Value, Any] = {}
    seen, waiting = set[Value](), [condition]
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in makers:
            node = makers[value]
            if isinstance(node, If) or node.bodies or not has_rule(node.op):
                return None
            needed.add(node)
            waiting += node.reads
        elif value in after:
            if states.get(value) is None:
                return None
            carried[value] = states[value]
            waiting.append(after[value])
        elif value not in body.parameters[:2] and _content(value, {**constants, **body.constants}) is None:
            return None
    return [n for n in body.nodes if isinstance(n, Node) and n in needed], carried


def _simulate(node: Node, condition: Value, constants: Constants, most: int) -> int | None:
    """How many iterations there are, at most `most`, of a loop that begins, and ends by this condition."""
    body = node.bodies["body"]
    begin = [_content(v, constants) for v in node.inputs[2:]]
    deciding = _deciding(body, dict(zip(body.parameters[2:], begin, strict=False)), constants, condition)
    if deciding is None:
        return None
    nodes, states = deciding
    after = dict(zip(body.parameters[2:], body.outputs[1:], strict=False))
    known = {**constants, **body.constants}
    for number in range(MAX_EVALUATIONS // max(len(nodes), 1)):
        if number == most:
            return number
        found: dict[Value, Any] = dict(zip(body.parameters, (np.array(number), np.array(True)), strict=False))
        found |= states

        def content(value: Value | None, found: dict[Value, Any] = found) -> Any:
            return None if value is None else found[value] if value in found else known[value].content

        try:
            for inner in nodes:
                results = fold(inner, [content(v) for v in inner.inputs])
                if not all(isinstance(r, np.ndarray) and r.size <= MAX_ELEMENTS for r in results):
                    return None
                found |= {v: r for v, r in zip(inner.outputs, results, strict=True) if v is not None}
        except (NotFoldable, NodeFailed):
            return None
        if not np.all(content(condition)):
            return number + 1
        states = {v: content(after[v]) for v in states}
    return None
