"""An If whose condition is not known becomes both of its branches, and a choice between what they give.

    %y = If(%c) {then %t = Neg(%x)} {else %e = Abs(%x)}
        ->   %t = Neg(%x); %e = Abs(%x); %y = Where(%c, %t, %e)

Only where it is right: nodes of the branch that is not taken must not be able to fail, and what they give
is never multiplied with, only not chosen. Nodes that both branches have in common are run once, before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

from anydml.ir.graph import Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import (
    eliminate_dead_code,
    keep_outputs,
    make_subgraph,
    read_values,
    replace_uses,
    replace_values,
)
from anydml.onnx.if_conversion.cost import work
from anydml.onnx.if_conversion.placeholders import Placeholder
from anydml.onnx.if_conversion.speculation import speculation_hazard
from anydml.onnx.node_builder import PAD_TYPES, Choice, NodeBuilder
from anydml.onnx.partial_eval.evaluator import node_key, same_content
from anydml.onnx.partial_eval.shape_errors import fails
from anydml.onnx.partial_eval.shape_inference import AbstractValue
from anydml.onnx.types import leaf, type_text, without_symbols

Convert = Literal["auto", "always", "never"]
MAX_FREE_FLOPS = 1 << 14
"""Multiplications and additions that take less than an If does."""


@dataclass(frozen=True)
class Decision:
    """What became of an If that was not folded: `converted`, `guarded`, `merged` or `kept`."""

    node: If
    what: str
    because: str
    extra_work: int = 0
    """That of the branch that is not taken, at most."""
    nodes: int = 0
    """How many there are more than before, once it runs."""


@dataclass
class Conversion:
    """How Ifs are converted, and what was decided."""

    opset: int
    how: Convert = "auto"
    max_extra_cost: float = 1.0
    safe_placeholders: Callable[[Graph], Placeholder | None] | None = None
    """Finds sizes on which a branch cannot fail."""
    worthwhile: Callable[[Graph], bool] | None = None
    """Whether a branch is to be run even where it is not taken; otherwise cost decides."""
    own: bool = False
    """Choose by an operator of ours, which keeps every bit, instead of by Where."""
    avoided: Callable[[If], str | None] = lambda node: None
    """Why an If is to stay whatever could be done."""
    decisions: list[Decision] = field(default_factory=list)

    def converted(
        self, graph: Graph, around: int = 0, outer: Mapping[Value, Constant] | None = None
    ) -> Graph:
        """The graph with as few Ifs as may be; `around` is the work of the graphs that it stands in."""
        made = NodeBuilder({**(outer or {}), **graph.constants}, self.opset, self.own)
        total = work(graph.nodes)
        nodes: list[Node | If] = []
        same: dict[Value, Value] = {}
        for node in graph.nodes:
            made.start(node)
            node = read_values(node, same)
            if isinstance(node, If):
                self._if(node, around + total - work([node]), made, same)
            else:
                made.add(node)
            nodes += made.taken()
        outputs = tuple(same.get(v, v) for v in graph.outputs)
        constants = {**graph.constants, **made.new_constants}
        return eliminate_dead_code(Graph(graph.name, graph.inputs, outputs, tuple(nodes), constants))

    def _if(self, node: If, rest: int, made: NodeBuilder, same: dict[Value, Value]) -> None:
        """Add what stands for an If; outputs that are other values' go to `same`."""
        original = 1 + sum(len(list(b.walk())) for _, b in node.branches)
        avoided = self.avoided(node)
        guarded = self._guard(node, made) if self.how == "always" and avoided is None else None
        if guarded is not None:
            self.decisions.append(replace(guarded, nodes=len(made.taken()) - original))
            return
        inner = [self.converted(b, rest, made.constants) for _, b in node.branches]
        if avoided is not None:
            node = replace(node, then_branch=inner[0], else_branch=inner[1])
            self.decisions.append(Decision(node, "kept", avoided))
            made.add(node)
            return
        node = hoist(replace(node, then_branch=inner[0], else_branch=inner[1]), made)
        ends = zip(node.outputs, node.then_branch.outputs, node.else_branch.outputs, strict=True)
        alike = {v: a for v, a, b in ends if v is not None and a is b}
        for v in alike.values():
            made.adopt_constant(v, node.then_branch.constants)
        same |= alike
        node = keep_outputs(node, [v for v in node.writes if v not in alike])
        if not node.outputs:
            saved = len(made.taken()) - original
            self.decisions.append(Decision(node, "merged", "both branches do the same", nodes=saved))
            return
        decision = self._decide(node, rest, made)
        if decision.what == "kept":
            made.add(node)
        nodes = sum(len(list(make_subgraph("", [n], (), {}).walk())) for n in made.taken())
        self.decisions.append(replace(decision, nodes=nodes - original))

    def _decide(self, node: If, rest: int, made: NodeBuilder) -> Decision:
        """Convert an If, or say why not. Adds nodes only where it converts."""
        if self.how == "never":
            return Decision(node, "kept", "nothing is to be converted")
        if not _one_truth(node.condition, self.own):
            return Decision(node, "kept", "its condition is not known to be one bool")
        if self.worthwhile is not None and not all(self.worthwhile(b) for _, b in node.branches):
            return Decision(node, "kept", "running both branches would not pay")
        works = [work(b.nodes) for _, b in node.branches]
        costs = [w / max(other + rest, 1) for w, other in zip(works, works[::-1], strict=True)]
        if self.how == "auto" and max(works) > MAX_FREE_FLOPS and max(costs) > self.max_extra_cost:
            because = f"the branch not taken would cost {max(costs):.1f} times what else runs"
            return Decision(node, "kept", because)
        mark = made.mark()
        parts: list[Graph] = []
        notes: list[str] = []
        for truth, (word, branch) in zip((True, False), node.branches, strict=True):
            reason = _first_speculation_hazard(branch, made)
            if reason is None:
                parts.append(branch)
                continue
            found = (
                self.safe_placeholders(branch)
                if self.how == "always" and self.safe_placeholders is not None
                else None
            )
            if found is None or any(leaf(v.type).dtype not in PAD_TYPES for v in found.sizes if v.type):
                made.forget(mark)
                return Decision(node, "kept", f"cannot execute the {word}-branch speculatively: {reason}")
            places = {
                v: made.safe_placeholders(
                    node.condition, truth, v, sizes, f"{v.name}~{node.outputs[0].name}_{word}"
                )
                for v, sizes in found.sizes.items()
                if node.outputs[0] is not None
            }
            parts.append(_of_any_size(replace_uses(branch, places, {})))
            notes.append(f"the {word} branch sees {found} when it is not taken")
        choices = []
        for v, a, b in zip(node.outputs, parts[0].outputs, parts[1].outputs, strict=True):
            choice = None if v is None else self._choice(v, a, b, parts, bool(notes), made)
            if v is not None and choice is None:
                made.forget(mark)
                return Decision(node, "kept", _differ(v, a, b, made))
            choices.append(choice)
        for part in parts:
            made.splice(part)
        for choice in choices:
            if choice is not None:
                choice(node.condition)
        because = "; ".join(notes) or "both branches can always run"
        return Decision(node, "converted", because, max(works))

    def _choice(
        self, value: Value, a: Value, b: Value, parts: Sequence[Graph], loose: bool, made: NodeBuilder
    ) -> Choice | None:
        """What makes an output of the If from those of its branches; None if that cannot be."""
        anything = self.how == "always"
        makers = [_constructor(part, v) for part, v in zip(parts, (a, b), strict=True)]
        if makers[0] is not None and makers[1] is not None:
            return made.sequence_choice(value, makers[0], makers[1], loose, anything)
        return made.choice(value, a, b, loose, anything)

    def _guard(self, node: If, made: NodeBuilder) -> Decision | None:
        """Put a branch in the place of an If whose other branch always fails, and fail where it would."""
        failing = [
            next((n.label for n in b.nodes if isinstance(n, Node) and fails(n)), None)
            for _, b in node.branches
        ]
        if (failing[0] is None) == (failing[1] is None):
            return None
        truth = failing[0] is None
        branch = self.converted(node.then_branch if truth else node.else_branch, 0, made.constants)
        made.splice(branch)
        for v, a in zip(node.outputs, branch.outputs, strict=True):
            if v is not None:
                made.guard(node.condition, a, truth, v)
        other = "else" if truth else "then"
        because = (
            f"the {other} branch always fails ({failing[1 if truth else 0]}); now an index is out of range"
        )
        return Decision(node, "guarded", because)


def _of_any_size(branch: Graph) -> Graph:
    """A branch that may see other sizes than it was typed for: of what it makes only numbers hold."""
    made = (v for n in branch.walk() for v in n.writes)
    return replace_values(branch, {v: Value(v.name, without_symbols(v.type)) for v in made})


def _constructor(graph: Graph, value: Value) -> Node | None:
    """The node that constructs a sequence in a graph, if one does."""
    for node in graph.nodes:
        if isinstance(node, Node) and value in node.outputs:
            return node if node.is_onnx("SequenceConstruct") else None
    return None


def _one_truth(condition: Value, surely: bool) -> bool:
    """Whether a condition is one bool; unless `surely`, what reshapes it may find out."""
    type = condition.type
    if not isinstance(type, TensorType) or type.dtype != "bool":
        return False
    return prod(type.known_sizes) == 1 if type.known_sizes is not None else not surely


def _first_speculation_hazard(branch: Graph, made: NodeBuilder) -> str | None:
    constants = {**made.constants, **branch.constants}
    return next((f"{n.label}: {h}" for n in branch.nodes if (h := speculation_hazard(n, constants))), None)


def hoist(node: If, made: NodeBuilder) -> If:
    """The If without the nodes that both branches have; those are added before it."""
    first, second = node.then_branch, node.else_branch
    constants = {**made.constants, **first.constants, **second.constants}
    same: dict[Value, Value] = {}
    """The second branch's values that are the first one's."""

    def key(n: Node) -> object:
        return node_key(
            n, [None if v is None else AbstractValue(same.get(v, v), constants.get(v)) for v in n.inputs]
        )

    known = {key(n): n for n in first.nodes if isinstance(n, Node)}
    known.pop(None, None)
    inside = {v for n in first.nodes for v in n.writes}
    common: dict[Node, None] = {}
    rest: list[Node | If] = []
    for n in second.nodes:
        twin = known.get(key(n)) if isinstance(n, Node) else None
        ready = set(same.values())
        if twin is None or twin in common or any(v in inside and v not in ready for v in twin.reads):
            rest.append(n)
            continue
        common[twin] = None
        pairs = zip(n.outputs, twin.outputs, strict=True)
        same |= {mine: its for mine, its in pairs if mine is not None and its is not None}
    for twin in common:
        made.adopt(twin, first.constants)
    for a, b in zip(first.outputs, second.outputs, strict=True):
        if a is not b and a in constants and b in constants and same_content(constants[a], constants[b]):
            same[b] = a
    kept = [n for n in first.nodes if n not in common]
    outputs = tuple(same.get(v, v) for v in second.outputs)
    return replace(
        node,
        then_branch=make_subgraph(first.name, kept, first.outputs, first.constants),
        else_branch=make_subgraph(second.name, [read_values(n, same) for n in rest], outputs, constants),
    )


def _differ(value: Value, a: Value, b: Value, made: NodeBuilder) -> str:
    shown = " and ".join(type_text(v.type) for v in (a, b))
    given = f"the branches give {shown} for {value.name!r}"
    if isinstance(a.type, TensorType) and not made.moves(a.type):
        return f"{given}, a type that ONNX's Where, Concat and Gather do not take"
    return f"{given}, which may differ in shape" + ("" if isinstance(a.type, TensorType) else " or in length")
