"""An If whose condition is not known becomes both of its branches, and a choice between what they give.

    %y = If(%c) {then %t = Neg(%x)} {else %e = Abs(%x)}
        ->   %t = Neg(%x); %e = Abs(%x); %y = Where(%c, %t, %e)

Only where it is right: nodes of the branch that is not taken must not be able to fail, and what they give
is never multiplied with, only not chosen. Nodes that both branches have in common are run once, before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Literal

from anydml.dataclass import dataclass, field, replace
from anydml.ir.graph import Constant, Graph, If, Node, TensorType, Value
from anydml.ir.transforms import (
    eliminate_dead_code,
    keep_outputs,
    make_subgraph,
    read_values,
    replace_uses,
    replace_values,
)
from anydml.onnx.if_conversion.cost import IF_TIME, Budget, time, work
from anydml.onnx.if_conversion.join import join
from anydml.onnx.if_conversion.placeholders import Placeholder
from anydml.onnx.if_conversion.predication import Infer, Predicate, predicate, without_predicates
from anydml.onnx.if_conversion.speculation import speculation_hazard
from anydml.onnx.node_builder import PAD_TYPES, Choice, NodeBuilder
from anydml.onnx.partial_eval.evaluator import node_key, same_content
from anydml.onnx.partial_eval.shape_errors import fails
from anydml.onnx.partial_eval.shape_inference import AbstractValue
from anydml.onnx.types import leaf, type_text, without_symbols

ALWAYS = Predicate()
Convert = Literal["auto", "always", "never"]


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
    budget: Budget | None = None
    """For `auto`: how much longer the model may take."""
    infer: Infer | None = None
    """Types branches anew; without it, nodes are not predicated."""
    safe_placeholders: Callable[[Graph, Collection[Value]], Placeholder | None] | None = None
    """Finds sizes on which a branch cannot fail."""
    worthwhile: Callable[[Graph], bool] | None = None
    """Whether a branch is to be run even where it is not taken."""
    in_vain: Callable[[Graph], Graph] = lambda branch: branch
    """What a branch becomes that runs though it is not taken."""
    own: bool = False
    """Choose by an operator of ours, which keeps every bit, instead of by Where."""
    avoided: Callable[[If], str | None] = lambda node: None
    """Why an If is to stay whatever could be done."""
    decisions: list[Decision] = field(default_factory=list)

    def converted(
        self, graph: Graph, when: Predicate = ALWAYS, outer: Mapping[Value, Constant] | None = None
    ) -> Graph:
        """The graph with as few Ifs as may be; `when`: what must be so for it to run."""
        made = NodeBuilder({**(outer or {}), **graph.constants}, self.opset, self.own)
        nodes: list[Node | If] = []
        same: dict[Value, Value] = {}
        for node in graph.nodes:
            made.start(node)
            node = read_values(node, same)
            if isinstance(node, If):
                self._if(node, when, made, same)
            else:
                made.add(node)
            nodes += made.taken()
        outputs = tuple(same.get(v, v) for v in graph.outputs)
        constants = {**graph.constants, **made.new_constants}
        return eliminate_dead_code(Graph(graph.name, graph.inputs, outputs, tuple(nodes), constants))

    def _if(self, node: If, when: Predicate, made: NodeBuilder, same: dict[Value, Value]) -> None:
        """Add what stands for an If; outputs that are other values' go to `same`."""
        original = 1 + sum(len(list(b.walk())) for _, b in node.branches)
        avoided = self.avoided(node)
        wanted = self.infer is not None and self.how != "never" and avoided is None
        guarded = self._guard(node, when, made) if wanted else None
        if guarded is not None:
            self.decisions.append(replace(guarded, nodes=len(made.taken()) - original))
            return
        whens = [when.and_if(node.condition, truth) for truth in (True, False)]
        inner = [self.converted(b, w, made.constants) for w, (_, b) in zip(whens, node.branches, strict=True)]
        if avoided is not None:
            node = replace(node, then_branch=inner[0], else_branch=inner[1])
            self.decisions.append(Decision(node, "kept", avoided))
            made.add(_kept(node))
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
        decision = self._decide(node, whens, made)
        if decision.what == "kept":
            made.add(_kept(join(node, made) if wanted else node))
        nodes = sum(len(list(make_subgraph("", [n], (), {}).walk())) for n in made.taken())
        self.decisions.append(replace(decision, nodes=nodes - original))

    def _decide(self, node: If, whens: Sequence[Predicate], made: NodeBuilder) -> Decision:
        """Convert an If, or say why not. Adds nodes only where it converts."""
        if self.how == "never":
            return Decision(node, "kept", "nothing is to be converted")
        if not _one_truth(node.condition, self.own):
            return Decision(node, "kept", "its condition is not known to be one bool")
        if self.worthwhile is not None and not all(self.worthwhile(b) for _, b in node.branches):
            return Decision(node, "kept", "running both branches would not pay")
        times = [time(b.nodes) for _, b in node.branches]
        budget = self.budget if self.how == "auto" else None
        if budget is not None and not budget.allows(max(times) - IF_TIME):
            return Decision(node, "kept", _too_long(budget.ratio(max(times) - IF_TIME)))
        mark = made.mark()
        parts: list[Graph] = []
        notes: list[str] = []
        loose = False
        for when, (word, branch) in zip(whens, node.branches, strict=True):
            safe, note = self._safe(branch, when, word, node, made)
            if safe is None:
                made.forget(mark)
                return Decision(node, "kept", f"cannot execute the {word}-branch speculatively: {note}")
            parts.append(self.in_vain(safe[0]))
            loose = loose or safe[1]
            notes += [note] if note else []
        choices = []
        for v, a, b in zip(node.outputs, parts[0].outputs, parts[1].outputs, strict=True):
            choice = None if v is None else self._choice(v, a, b, parts, loose, made)
            if v is not None and choice is None:
                made.forget(mark)
                return Decision(node, "kept", _differ(v, a, b, made))
            choices.append(choice)
        for part in parts:
            made.splice(part)
        for choice in choices:
            if choice is not None:
                choice(node.condition)
        if budget is not None:
            more = time(made.taken()[mark:]) - IF_TIME - min(times)
            if not budget.allows(more):
                made.forget(mark)
                return Decision(node, "kept", _too_long(budget.ratio(more)))
            budget.spent += max(more, 0)
        because = "; ".join(notes) or "both branches can always run"
        return Decision(node, "converted", because, max(work(b.nodes) for _, b in node.branches))

    def _safe(
        self, branch: Graph, when: Predicate, word: str, node: If, made: NodeBuilder
    ) -> tuple[tuple[Graph, bool] | None, str]:
        """A branch that can always run, whether its symbols do not mean what they say, and what was done.

        None where it cannot be, and why.
        """
        if self.infer is not None and any(isinstance(n, Node) and n.predicated for n in branch.nodes):
            branch = self.infer(branch, made.constants)  # what is not taken there has other sizes
        reason = _first_speculation_hazard(branch, made)
        if reason is None:
            return (branch, False), ""
        tried = [branch]
        if self.infer is not None:
            safe, labels = predicate(branch, when, made.constants, self.opset, self.infer)
            left = _first_speculation_hazard(safe, made)
            if left is None:
                return (safe, False), f"{', '.join(labels)}: of other operands when it is not taken"
            reason, tried = left, [safe, branch] if labels else [branch]
        for one in tried:
            conditions = [condition for condition, _ in when.parts]
            if self.safe_placeholders is None or self.opset < 11:  # before, Pad takes no computed amounts
                break
            found = self.safe_placeholders(one, conditions)
            if found is None or any(leaf(v.type).dtype not in PAD_TYPES for v in found.sizes if v.type):
                continue
            places = {
                v: made.safe_placeholders(when.choose, v, sizes, f"{v.name}~{node.outputs[0].name}_{word}")
                for v, sizes in found.sizes.items()
                if node.outputs[0] is not None
            }
            shown = _all_safe(_of_any_size(replace_uses(one, places, {})))
            return (shown, True), f"the {word} branch sees {found} when it is not taken"
        return None, reason

    def _choice(
        self, value: Value, a: Value, b: Value, parts: Sequence[Graph], loose: bool, made: NodeBuilder
    ) -> Choice | None:
        """What makes an output of the If from those of its branches; None if that cannot be."""
        makers = [_maker(part, v) for part, v in zip(parts, (a, b), strict=True)]
        for maker, mine, other in zip(makers, (a, b), (b, a), strict=True):
            if maker is not None and maker.predicated == "passes" and maker.inputs[0] is other:
                return lambda c: made.pass_on(mine, value)
        anything = self.infer is not None
        if makers[0] is not None and makers[1] is not None and not isinstance(value.type, TensorType):
            return made.sequence_choice(value, makers[0], makers[1], loose, anything)
        return made.choice(value, a, b, loose, anything)

    def _guard(self, node: If, when: Predicate, made: NodeBuilder) -> Decision | None:
        """Put a branch in the place of an If whose other branch always fails, and fail where it would."""
        failing = [
            next((n.label for n in b.nodes if isinstance(n, Node) and (n.refused or fails(n))), None)
            for _, b in node.branches
        ]
        if (failing[0] is None) == (failing[1] is None):
            return None
        if not all(isinstance(v.type, TensorType) for _, b in node.branches for v in b.outputs):
            return None
        truth = failing[0] is None
        branch = self.converted(
            node.then_branch if truth else node.else_branch,
            when.and_if(node.condition, truth),
            made.constants,
        )
        made.splice(branch)
        for v, a in zip(node.outputs, branch.outputs, strict=True):
            if v is not None:
                made.guard(node.condition, a, truth, v)
        other = "else" if truth else "then"
        because = (
            f"the {other} branch always fails ({failing[1 if truth else 0]}); now an index is out of range"
        )
        return Decision(node, "guarded", because)


def _kept(node: If) -> If:
    """An If that stays, without what was only said of a branch that is run in vain."""
    then_branch, else_branch = (without_predicates(b) for _, b in node.branches)
    return replace(node, then_branch=then_branch, else_branch=else_branch)


def _too_long(ratio: float) -> str:
    return f"without it, the model could take {ratio:.1f} times as long"


def _all_safe(branch: Graph) -> Graph:
    """A branch that sees safe sizes while it is not taken, so that nothing in it can fail then."""
    nodes = (
        replace(n, predicated=n.predicated or "safe") if isinstance(n, Node) else n for n in branch.nodes
    )
    return replace(branch, nodes=tuple(nodes))


def _of_any_size(branch: Graph) -> Graph:
    """A branch that may see other sizes than it was typed for: of what it makes only numbers hold."""
    made = (v for n in branch.walk() for v in n.writes)
    return replace_values(branch, {v: Value(v.name, without_symbols(v.type)) for v in made})


def _maker(graph: Graph, value: Value) -> Node | None:
    """The node of a graph that makes a value, if one does."""
    return next((n for n in graph.nodes if isinstance(n, Node) and value in n.outputs), None)


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
