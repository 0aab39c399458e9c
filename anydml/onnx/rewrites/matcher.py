"""Rules: a pattern of nodes, and what stands in the place of the node that it was found at, its root.

    Rule("negated_twice", node("Neg", node("Neg", value("x"))), lambda m: m["x"])

%b = Neg(%a); %c = Neg(%b); %d = Abs(%c)   ->   %b = Neg(%a); %d = Abs(%a)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anydml.dataclass import dataclass, field, replace
from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, TensorType, Value
from anydml.ir.transforms import replace_uses
from anydml.onnx.protos import make_attribute


@dataclass(frozen=True)
class Pattern:
    """A value, or one that is a constant, or one that a node makes. Two of one name are the same value."""

    name: str = ""
    operators: Mapping[str, tuple[Pattern, ...]] = field(default_factory=dict)
    """Of ONNX's own, that may make it, and what their first inputs are."""
    is_constant: bool = False
    number: float | None = None
    """The only element of the constant."""

    def __or__(self, other: Pattern) -> Pattern:
        return replace(self, operators={**self.operators, **other.operators})


def value(name: str) -> Pattern:
    return Pattern(name)


def constant(name: str = "", number: float | None = None) -> Pattern:
    return Pattern(name, is_constant=True, number=number)


def node(operators: str, *inputs: Pattern, name: str = "") -> Pattern:
    """What any of these operators makes; there are blanks between them."""
    return Pattern(name, dict.fromkeys(operators.split(), inputs))


@dataclass(frozen=True)
class Match:
    """The node that a pattern was found at, and what the pattern has names for."""

    root: Node
    producers: Mapping[Value, Node]
    constants: dict[Value, Constant]
    """Of the graph; results may add some."""
    values: dict[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    @property
    def output(self) -> Value:
        (output,) = self.root.writes
        return output

    @property
    def opset(self) -> int:
        return self.root.op.version

    def has(self, node: Node, pattern: Pattern) -> bool:
        """Whether a node is one of the pattern's. Notes its named values."""
        inputs = pattern.operators.get(node.op.name)
        if inputs is None or len(node.inputs) < len(inputs):
            return False
        pairs = zip(node.inputs, inputs, strict=False)
        return all(v is not None and self._has_value(v, wanted) for v, wanted in pairs)

    def _has_value(self, value: Value, pattern: Pattern) -> bool:
        if pattern.name and self.values.setdefault(pattern.name, value) is not value:
            return False
        if pattern.operators:
            return value in self.producers and self.has(self.producers[value], pattern)
        if pattern.number is None:
            return not pattern.is_constant or value in self.constants
        content = self.constants[value].content if value in self.constants else np.zeros(0)
        return bool(content.size == 1 and content.item() == pattern.number)

    def make(self, operator: str, inputs: Iterable[Value | None], output: Value, **attributes: Any) -> Node:
        """A node in the place of the root."""
        made = {n: make_attribute(n, a) for n, a in attributes.items()}
        op = OnnxOp("", operator, self.opset)
        return Node(op, tuple(inputs), (output,), made, self.root.name, self.root.path)

    def make_constant(self, name: str, content: NDArray[Any]) -> Value:
        made = Value(name, TensorType(content.dtype.name, content.shape))
        self.constants[made] = Constant(content)
        return made

    def make_reshape(self, source: Value, output: Value) -> Node:
        """A Reshape to the sizes of `output`, of which one may be open."""
        assert output.sizes is not None, "the rank is known"
        sizes = [n if isinstance(n, int) else -1 for n in output.sizes]
        assert sizes.count(-1) < 2, "what is open is what remains"
        assert 0 not in sizes, "a 0 would mean another size"
        return self.make(
            "Reshape", (source, self.make_constant(f"{output.name}~sizes", np.array(sizes, np.int64))), output
        )


Result = Value | list[Node] | None
"""What stands for the root's output: another value, what the last of some nodes makes, or nothing better."""


@dataclass(frozen=True)
class Rule:
    """`result` for the root of `pattern`, where `condition` holds, in models of an opset or a later one."""

    name: str
    pattern: Pattern
    result: Callable[[Match], Result]
    condition: Callable[[Match], bool] = lambda match: True
    since: int = 1


RulesByRoot = Mapping[str, tuple[Rule, ...]]


def rules_by_root(rules: Iterable[Rule]) -> RulesByRoot:
    """The rules by their roots' operators, so that others need not be tried at a node."""
    by_root: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        by_root |= {o: (*by_root.get(o, ()), rule) for o in rule.pattern.operators}
    return by_root


def rewrite(graph: Graph, rules: RulesByRoot) -> Graph:
    """The graph after the rules; itself if none can be applied.

    Producers come before users, so a pattern meets what has been rewritten. Of several rules the first is
    applied, and then those for the nodes that it made. Nodes that nobody needs any more stay.
    """
    if not any(isinstance(n, Node) and n.op.name in rules for n in graph.nodes):
        return graph
    nodes: list[Node | If] = []
    same: dict[Value, Value] = {}
    producers: dict[Value, Node] = {}
    constants = dict(graph.constants)
    waiting = list(reversed(graph.nodes))
    while waiting:
        node = waiting.pop()
        result: Result = None
        if isinstance(node, Node) and not node.op.domain:
            if same and any(v in same for v in node.inputs):
                node = node.changed(inputs=tuple([v and same.get(v, v) for v in node.inputs]))
            if node.op.name in rules and len(node.writes) == len(node.outputs) == 1:
                result = _first_result(rules[node.op.name], node, producers, constants)
            producers.update(dict.fromkeys(node.writes, node))
        if result is None:
            nodes.append(node)
        elif isinstance(result, Value):
            same |= dict.fromkeys(node.writes, result)
        else:
            waiting += reversed(result)
    if not same and len(nodes) == len(graph.nodes) and all(map(operator.is_, nodes, graph.nodes)):
        return graph
    changed = Graph(graph.name, graph.inputs, graph.outputs, tuple(nodes), constants)
    return replace_uses(changed, same, {}) if same else changed


def _first_result(
    rules: Iterable[Rule], root: Node, producers: Mapping[Value, Node], constants: dict[Value, Constant]
) -> Result:
    for rule in rules:
        match = Match(root, producers, constants)
        if match.opset < rule.since or not match.has(root, rule.pattern) or not rule.condition(match):
            continue
        if (result := rule.result(match)) is not None:
            return result
    return None
