"""The partial evaluator: from what is known of a graph's inputs to a graph that knows it.

It walks forward and keeps for every value what is known: its type with sizes, and its content. A node
whose inputs' contents are known (and small) is evaluated; `Shape` and `Size` need only sizes; an `If` on
a known condition becomes its branch, an `If` on an unknown one tells its branches what the condition is.
Sizes that are not known are symbols, and what is computed from them is known in terms of them.

    x: float32[2,3]                            x: float32[2,3]
    %s = Shape(%x)                             %y = Relu(%x)
    %c = Equal(%s, [2, 3]) ...          ->     return %y
    %y = If(%c) {then Relu(%x), else ...}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from anydml.dataclass import dataclass, replace
from anydml.ir.dims import Affine, whole
from anydml.ir.graph import Constant, Graph, If, Node, OnnxOp, SequenceType, TensorType, Type, Value
from anydml.ir.transforms import make_subgraph, read_values, replace_uses
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import KnownNode, OpInfo, Symbols
from anydml.onnx.partial_eval.annotate import with_typed_bodies
from anydml.onnx.partial_eval.joined_types import either, with_fresh_symbols
from anydml.onnx.partial_eval.shape_errors import fails
from anydml.onnx.partial_eval.shape_inference import AbstractValue, ShapeInference, small_content
from anydml.onnx.protos import make_attribute
from anydml.onnx.providers.provider import Provider
from anydml.onnx.types import of_content


@dataclass(frozen=True)
class FoldedIf:
    """An If that became one of its branches, or nothing."""

    node: If
    taken: bool | None
    because: str


@dataclass(frozen=True)
class Specialization:
    """A specialised graph, and the Ifs that are not in it any more.

    `inputs`: what stands for each of the original's inputs, those of known content included. `integers`: what
    is known, in terms of symbols, of contents that are not constants; of values in branches, too.
    """

    graph: Graph
    inputs: tuple[Value, ...]
    folded: tuple[FoldedIf, ...]
    integers: Mapping[Value, Symbols]


def specialize(
    graph: Graph,
    types: Mapping[Value, Type],
    contents: Mapping[Value, Constant],
    opsets: Mapping[str, int],
    provider: Provider,
    deep: bool = False,
    least: int = 0,
    likely: Mapping[Value, tuple[int, ...]] = MappingProxyType({}),
    integers: Mapping[Value, Symbols] = MappingProxyType({}),
    by_failure: bool = True,
) -> Specialization:
    """The graph for inputs of these types, of which some have these contents.

    Inputs whose content is given are no longer inputs of the result; all others stay, in order.
    `provider` evaluates the nodes whose inputs are known. `deep`: the branches of Ifs that stay are
    specialised, too, by all that is known where they stand. `least`: what sizes of inputs are at least that
    are not known; `likely`: what they were once. `integers`: what is known of inputs' contents in terms
    of symbols. `by_failure`: an If goes, too, where its other outcome could only lead to an error.
    """
    evaluator = _Evaluator(ShapeInference(opsets, provider), deep, by_failure)
    stood = []
    for value in graph.inputs:
        known = Value(value.name, with_fresh_symbols(types.get(value, value.type), least, likely.get(value)))
        evaluator.facts[value] = AbstractValue(known, contents.get(value), integers.get(value))
        stood.append(known)
    outputs = evaluator.walk(graph)
    inputs = tuple(s for v, s in zip(graph.inputs, stood, strict=True) if v not in contents)
    result = Graph(graph.name, inputs, outputs, tuple(evaluator.nodes), evaluator.constants())
    return Specialization(result, tuple(stood), tuple(evaluator.folded), evaluator.integers)


class _Evaluator:
    def __init__(self, oracle: ShapeInference, deep: bool, by_failure: bool) -> None:
        self.oracle, self.deep, self.by_failure = oracle, deep, by_failure
        self.facts: dict[Value, AbstractValue] = {}
        self.nodes: list[Node | If] = []
        self.folded: list[FoldedIf] = []
        self._computed: dict[object, tuple[AbstractValue | None, ...]] = {}
        """What the nodes so far compute, by what they are: the same again is not computed again."""
        self._makers: dict[Value, Node] = {}
        self.integers: dict[Value, Symbols] = {}
        """Of all values that a fact has them of, in branches too."""

    def constants(self) -> dict[Value, Constant]:
        return {f.value: f.constant for f in self.facts.values() if f.constant is not None}

    def walk(self, graph: Graph) -> tuple[Value, ...]:
        """Add the graph's nodes to the result, and answer with its outputs' stand-ins."""
        for value, constant in graph.constants.items():
            self.facts.setdefault(value, AbstractValue(value, constant))
        for place, node in enumerate(graph.nodes):
            if isinstance(node, If):
                self._if(node, graph.nodes[place + 1 :])
            else:
                self._node(node)
        return tuple(self.facts[v].value for v in graph.outputs)

    # ---- Ifs

    def _if(self, node: If, rest: Sequence[Node | If]) -> None:
        """Add an If, or one of its branches; `rest` are the nodes after it."""
        condition = self.facts[node.condition].constant
        if condition is not None and condition.content.size == 1 and condition.content.dtype == np.bool_:
            truth = condition.content.item()
            self._take(node, truth, f"the condition is {str(truth).lower()}")
            return
        if self.deep:
            for truth in (True, False) if self.by_failure else ():
                failing = self._failing(node, not truth, rest) if self._fails_unless(node, truth) else None
                if failing is not None:
                    because = f"otherwise {failing} fails; what stays fails then, too"
                    self._take(node, truth, because)
                    return
            self._both(node)
            return
        outputs = tuple(None if v is None else Value(v.name, v.type) for v in node.outputs)
        self.nodes.append(
            replace(
                node,
                condition=self.facts[node.condition].value,
                then_branch=self._specialize_branch(node.then_branch, node.condition, True),
                else_branch=self._specialize_branch(node.else_branch, node.condition, False),
                outputs=outputs,
            )
        )
        for old, new in zip(node.outputs, outputs, strict=True):
            if old is not None and new is not None:
                self.facts[old] = AbstractValue(new)

    def _take(self, node: If, truth: bool, because: str) -> None:
        """Put a branch in the place of the If."""
        branch = node.then_branch if truth else node.else_branch
        self.folded.append(FoldedIf(node, truth, because))
        self.walk(branch)
        for output, inner in zip(node.outputs, branch.outputs, strict=True):
            if output is not None:
                self.facts[output] = self.facts[inner]

    def _inner(self, deep: bool) -> _Evaluator:
        """An evaluator that knows the same, for nodes that may not come to be."""
        inner = _Evaluator(self.oracle, deep, self.by_failure)
        inner.facts, inner._makers = dict(self.facts), dict(self._makers)
        inner._computed = dict(self._computed)
        inner.integers = self.integers
        return inner

    def _failing(self, node: If, truth: bool, rest: Sequence[Node | If]) -> str | None:
        """The node that surely fails if a branch is taken: one of its own, or of those after it."""
        trial = self._inner(False)
        trial._take(node, truth, "")
        for later in rest:
            if isinstance(later, If):
                trial._if(later, ())
            else:
                trial._node(later)
        return next((n.label for n in trial.nodes if isinstance(n, Node) and fails(n)), None)

    def _fails_unless(self, node: If, truth: bool) -> bool:
        """Whether a branch fails by itself where the condition is not `truth`.

        If(Equal(Shape(%x)[2], 1)) {then Squeeze(%x, 2)}: where the size is not 1, Squeeze fails.
        """
        maker = self._makers.get(self.facts[node.condition].value)
        info = None if maker is None else info_of(maker.op)
        if not truth or maker is None or info is None or not info.equates:
            return False
        by_value = {f.value: f for f in self.facts.values()}
        a, b = (self.oracle.integers(by_value.get(v) if v is not None else None) for v in maker.inputs)
        if a is None or b is None or a.size != 1 or b.size != 1:
            return False
        difference = a.reshape(-1)[0] - b.reshape(-1)[0]
        for inner in node.then_branch.nodes:
            if isinstance(inner, Node) and any(
                size - whole(1) in (difference, -difference)
                for size in self._needed_ones(inner, node.then_branch)
            ):
                return True
        return False

    def _needed_ones(self, node: Node, branch: Graph) -> list[Affine]:
        """The sizes that a node of a branch needs to be 1, as far as they are known."""
        info, given = info_of(node.op), node.inputs[0] if node.inputs else None
        sizes = None if given is None else self.oracle.sizes(self.facts.get(given))
        if info is None or sizes is None:
            return []
        axes = info.needs_one(KnownNode(node, branch.constants))
        return [sizes[k] for k in axes if -len(sizes) <= k < len(sizes)]

    def _both(self, node: If) -> None:
        """Specialise both branches, each by what its being taken says."""
        condition = self.facts[node.condition].value
        branches: list[Graph] = []
        results: list[list[AbstractValue]] = []
        for truth, (_, branch) in zip((True, False), node.branches, strict=True):
            inner = self._inner(True)
            inner.folded = self.folded
            inner._assume(condition, truth)
            ends = inner.walk(branch)
            results.append([inner.facts[v] for v in branch.outputs])
            branches.append(make_subgraph(branch.name, inner.nodes, ends, inner.constants()))
        outputs = tuple(
            [
                None if v is None else Value(v.name, either(a.value.type, b.value.type))
                for v, a, b in zip(node.outputs, results[0], results[1], strict=True)
            ]
        )
        made = replace(
            node, condition=condition, then_branch=branches[0], else_branch=branches[1], outputs=outputs
        )
        stays = False
        for old, new, a, b in zip(node.outputs, outputs, results[0], results[1], strict=True):
            if old is None or new is None:
                continue
            if _same(a, b):
                self.facts[old] = a
            else:
                self.facts[old], stays = AbstractValue(new), True
        if stays:
            self.nodes.append(made)
        else:
            self.folded.append(FoldedIf(node, None, "both branches give the same"))

    def _assume(self, value: Value, truth: bool) -> None:
        """Know that a value is true (or false) all over, and what follows from that."""
        self._tell(value, np.bool_(truth))
        node = self._makers.get(value)
        if node is None or node.op.domain:
            return
        given = [v for v in node.inputs if v is not None]
        info = info_of(node.op)
        if info is not None:
            for k, implied in info.implies(KnownNode(node, {}), truth).items():
                if (operand := node.inputs[k]) is not None:
                    self._assume(operand, implied)
        if info is not None and info.equates and truth:
            for v, other in (given, given[::-1]):
                known = next((f.constant for f in self.facts.values() if f.value is other), None)
                if known is not None and known.content.size == 1 and known.content.dtype.kind in "biu":
                    self._tell(v, known.content.reshape(())[()])

    def _tell(self, value: Value, content: np.generic) -> None:
        """Know the content of a value of one element."""
        sizes = value.known_sizes
        if sizes is None or prod(sizes) != 1:
            return
        known = Constant(np.full(sizes, content))
        told = AbstractValue(Value(value.name, value.type), known)

        def now(fact: AbstractValue | None) -> AbstractValue | None:
            return told if fact is not None and fact.value is value and fact.constant is None else fact

        unknown = [v for v, fact in self.facts.items() if fact.value is value and fact.constant is None]
        self.facts |= dict.fromkeys(unknown, told)
        computed = [k for k, facts in self._computed.items() if any(f and f.value is value for f in facts)]
        self._computed |= {key: tuple(map(now, self._computed[key])) for key in computed}

    def _specialize_branch(self, branch: Graph, condition: Value, truth: bool) -> Graph:
        """A branch in terms of the new graph, with what is known of its captures."""
        facts = {v: f for v, f in self.facts.items() if v is not condition}
        values = {v: f.value for v, f in facts.items()}
        known = {f.value: f.constant for f in facts.values() if f.constant is not None}
        type = self.facts[condition].value.type
        sizes = type.known_sizes if isinstance(type, TensorType) else None
        if condition in branch.inputs and sizes is not None:
            told = values[condition] = Value(condition.name, type)
            known[told] = Constant(np.full(sizes, truth))
        else:
            values[condition] = self.facts[condition].value
        return replace_uses(branch, values, known)

    def _node(self, node: Node) -> None:
        if node.is_onnx("Loop"):
            node = self._with_scalar_condition(node)
        known, info = self.facts, info_of(node.op)
        inputs = [None if v is None else known[v] for v in node.inputs]
        if node.bodies:
            stood = read_values(node, {v: known[v].value for v in node.reads})
        else:
            stood = node.changed(inputs=tuple([None if f is None else f.value for f in inputs]))
        if info is not None:
            if info.agreed is not None:
                stood = info.agreed(stood)
            if self._passes_on(node, stood, info):
                return
        key = node_key(stood, inputs) if self.deep else None
        if key is not None and key in self._computed:
            for value, fact in zip(node.outputs, self._computed[key], strict=True):
                if value is not None and fact is not None:
                    self.facts[value] = fact
            return
        stood, facts, follows = self.oracle.outputs(stood, inputs)
        if stood.contains_if or (stood.bodies and any(v.sizes is None for v in stood.writes)):
            stood, facts = self._typed_by_bodies(stood, facts)
        for value, fact in zip(node.outputs, facts, strict=True):
            if value is not None and fact is not None:
                known[value] = fact
                if fact.integers is not None:
                    self.integers[fact.value] = fact.integers
        if not follows:
            self.nodes.append(stood)
            for made in stood.writes:
                self._makers[made] = stood
        if key is not None:
            self._computed[key] = tuple(None if v is None else self.facts[v] for v in node.outputs)

    def _with_scalar_condition(self, node: Node) -> Node:
        """A Loop that begins by a scalar, as ONNX wants it: libraries take one element of any rank, but only
        while no file says so. Without one it begins: what its body says then counts, as in onnxruntime, while
        ONNX's text has nobody listen to it."""
        condition = node.inputs[1] if len(node.inputs) > 1 else None
        if condition is None:
            begins = Value(f"{node.name or node.op.name}~begins", TensorType("bool", ()))
            self.facts[begins] = AbstractValue(begins, Constant(np.array(True)))
            trips = node.inputs[0] if node.inputs else None
            return replace(node, inputs=(trips, begins, *node.inputs[2:]))
        sizes = self.facts[condition].value.known_sizes
        if not sizes or prod(sizes) != 1:
            return node
        scalar, op = Value(f"{condition.name}~scalar"), OnnxOp("", "Squeeze", node.op.version)
        # axes are told: without them, no rank follows for a library that is told none of the sizes
        axes, as_input = np.arange(len(sizes)), op.version >= 13
        told = Value(f"{condition.name}~axes", of_content(axes))
        self.facts[told] = AbstractValue(told, Constant(axes))
        given = {} if as_input else {"axes": make_attribute("axes", axes.tolist())}
        reads = (condition, told) if as_input else (condition,)
        self._node(Node(op, reads, (scalar,), given, scalar.name, node.path, nofail=True))
        return replace(node, inputs=(node.inputs[0], scalar, *node.inputs[2:]))

    def _typed_by_bodies(
        self, node: Node, facts: list[AbstractValue | None]
    ) -> tuple[Node, list[AbstractValue | None]]:
        """A loop and what it gives, with what its body says of the items of sequences, and of ranks."""
        typed = with_typed_bodies(node, self.constants(), self.oracle.opsets, self.oracle.provider)
        outputs = tuple(
            v if v is None or t is None or not _says_more(t.type, v.type) else Value(v.name, t.type)
            for v, t in zip(node.outputs, typed.outputs, strict=True)
        )
        changed = [
            f if f is None or v is None else replace(f, value=v) for f, v in zip(facts, outputs, strict=True)
        ]
        return replace(node, outputs=outputs), changed

    def _passes_on(self, node: Node, stood: Node, info: OpInfo) -> bool:
        """Know what an Identity is, and what a node makes of an optional with content."""
        output = node.outputs[0] if node.outputs else None
        if output is None or (info.same_as_input is None and info.constant is None):
            return False
        known = KnownNode(stood, {})
        given = node.inputs[0] if info.same_as_input is not None and info.same_as_input(known) else None
        if given is not None:
            self.facts[output] = self.facts[given]
            return True
        content = None if info.constant is None else info.constant(known)
        if content is None:
            return False
        self.facts[output] = AbstractValue(Value(output.name, of_content(content)), Constant(content))
        return True


def _says_more(type: Type | None, told: Type | None) -> bool:
    """Whether a type of a loop's output is of its items, that of something of any rank, or of a known one."""
    if not isinstance(type, TensorType):
        return isinstance(type, SequenceType)
    return type.sizes is None or (isinstance(told, TensorType) and told.sizes is None)


def node_key(node: Node, inputs: Sequence[AbstractValue | None]) -> object:
    """What makes a node compute the same as another; None for one that never does, or must stay its own.

    Two sequences that are outputs must: before opset 14 no Identity makes two of one.
    """
    info = info_of(node.op)
    if (info is not None and (info.draws or info.makes_container)) or node.bodies:
        return None
    attributes = tuple(sorted((n, a.SerializeToString()) for n, a in node.attributes.items()))
    return node.op, tuple(map(_input_key, inputs)), attributes, tuple(v is None for v in node.outputs)


def _input_key(fact: AbstractValue | None) -> object:
    if fact is None or fact.constant is None:
        return None if fact is None else fact.value
    content = small_content(fact.value, fact.constant)
    if content is None:
        return fact.constant
    return content.dtype, content.shape, content.tobytes()


def _same(a: AbstractValue, b: AbstractValue) -> bool:
    """Whether two values are the same one, or constants of the same content."""
    if a.value is b.value:
        return True
    return a.constant is not None and b.constant is not None and same_content(a.constant, b.constant)


def same_content(a: Constant, b: Constant) -> bool:
    """Whether two constants are arrays of the same type, shape and bytes."""
    x, y = a.content, b.content
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray) or "O" in (x.dtype.kind, y.dtype.kind):
        return a is b
    return (x.dtype, x.shape) == (y.dtype, y.shape) and x.tobytes() == y.tobytes()
