"""Random graphs between guard pages: several outputs, rows, views of inputs and of what was computed."""

from __future__ import annotations

from typing import Any

import numpy as np

import anydml as dml
from anydml.compiled_graph import CompiledGraph
from anydml.expression import Expression
from anydml.ops.catalog import ELEMENT_WISE
from anydml.ops.dtypes import FLOAT32, NUMPY, UP_TO_64_BIT
from anydml.ops.opdef import ONE, Operator
from anydml.ops.tensor_desc import packed_strides
from anydml.runtime.prepared import PreparedGraph
from anydml.runtime.reference import run_reference
from tests.robustness import guard_draw as draw
from tests.robustness.guard_cases import CHEAP, Case, Wrong, look_after, same
from tests.robustness.guard_memory import Array, Held, Layout

OPERATORS = [o for o in ELEMENT_WISE if not any(s.sizes == ONE for s in o.tensors)]
SUMS: list[object] = [o for o in OPERATORS if "SOFTMAX" in o.name]
FUNCTIONS = ("SUM", "AVERAGE", "MAX", "L2", "SUM_SQUARE", "LOG_SUM_EXP", "MULTIPLY")
ROWS = [o for o in OPERATORS if "MAX" in o.name and o.name.startswith("ACTIVATION")]


class Growing:
    """A graph that is drawn node by node. The recipe decides about nodes, the case about sizes."""

    def __init__(self, case: Case) -> None:
        self.case = case
        recipe, own = case.recipe, case.own
        self.g = dml.GraphBuilder(dml.Device(threads=draw.choice(recipe, (1, 2))))
        p, q = (int(n) for n in own.integers(2, 8, 2))
        r = draw.choice(own, (3, 5, 8, 9, 17, 31, 33, 64, 65, 129))
        if draw.chance(own, 0.1):
            r *= draw.choice(own, (7, 16, 33))
        self.sizes = ((p, q, r), (p, q, r), (q, r), (1, r), (r,), (p, 1, 1), (p, q, 1), (1, 1, 1))
        self.known: list[Expression] = []
        self.held: dict[str, Held] = {}
        self.beyond = False
        """Whether a view was taken that reaches beyond its memory."""

    def input(self, dtype: dml.TensorDataType) -> Expression:
        sizes = draw.choice(self.case.recipe, self.sizes)
        special = draw.chance(self.case.recipe, 0.3)
        layout = Layout(sizes, packed_strides(sizes))
        if special:
            layout = draw.layout_for(self.case.own, sizes, repeats=True)
        name = f"in{len(self.held)}"
        self.held[name] = self.case.held(NUMPY[dtype], layout)
        e = self.g.input(name, dtype, sizes, layout.strides if special else None)
        self.known.append(e)
        return e

    def operand(self, dtype: dml.TensorDataType) -> Expression:
        """Something known of this type, or a new input; sometimes seen through other strides."""
        recipe = self.case.recipe
        fitting = [e for e in self.known if e.data_type is dtype]
        take, which = draw.chance(recipe, 0.75), recipe.random()
        e = fitting[int(which * len(fitting))] if fitting and take else self.input(dtype)
        return self.view(e) if draw.chance(recipe, 0.15) else e

    def view(self, e: Expression) -> Expression:
        """The same sizes through other strides, which must be refused if they reach too far."""
        strides = tuple(int(s) for s in self.case.own.integers(0, 3, len(e.sizes)))
        if draw.chance(self.case.recipe, 0.5):
            strides = tuple(s * draw.choice(self.case.own, (0, 1, 1, 1, 2)) for s in packed_strides(e.sizes))
        fits = Layout(e.sizes, strides).span <= Layout(e.sizes, e.desc.effective_strides).span
        try:
            seen = e.reinterpret(e.sizes, strides)
        except dml.InvalidOperator:
            if fits:
                raise
            return e
        self.beyond |= not fits
        return seen

    def node(self, operator: Operator) -> None:
        recipe = self.case.recipe
        types = draw.types_for(recipe, operator)
        fitting = [e.data_type for e in self.known[-4:]]
        favoured = draw.chance(recipe, 0.7) and operator.name != "ELEMENT_WISE_QUANTIZE_LINEAR"
        table = operator.table(draw.NEWEST)
        assert table is not None
        for type_variable, allowed in table.dtypes.items():
            at_hand = [t for t in fitting if t in allowed]
            if at_hand and favoured:
                types[type_variable] = draw.choice(recipe, at_hand)
        operands: list[Any] = [self.operand(types[s.dtype]) for s in operator.inputs]
        if "_BIT_" in operator.name:
            operands = [settled(e) for e in operands]
        alike = len(operands) > 1 and operator.inputs[0].dtype == operator.inputs[1].dtype
        if draw.chance(recipe, 0.15) and alike:
            operands[1] = draw.choice(recipe, (0, 1, 2))
        fields = draw.attributes_for(recipe, operator, types)
        if operator.has_axes:
            fields["Axes"] = [-1]
        values = {a.parameter: fields[a.name] for a in operator.parameters}
        if isinstance(scale := values.get("scale_bias"), dict):
            values["scale_bias"] = (scale["Scale"], scale["Bias"])
        if operator.name in draw.TWO_DIMENSIONS and len(operands[0].sizes) > 2:
            return  # which it does not take
        if operator.free_output and len(table.dtypes[operator.free_output]) > 1:
            values["output_data_type"] = types[operator.free_output]
        self.known.append(getattr(dml, operator.function)(*operands, **values))

    def rows(self, recipe: np.random.Generator) -> None:
        """A reduction or normalization of something known, and something that is computed with it."""
        floats = [e for e in self.known if e.data_type.label == "float32"] or [self.input(FLOAT32)]
        e = draw.choice(recipe, floats)
        rank = len(e.sizes)
        axes = draw.choice(
            recipe, ([rank - 1], [0], [*range(rank)], [rank // 2], [*range(min(1, rank - 1), rank)])
        )
        kind = draw.choice(recipe, ("reduce", "reduce", "normalize", "lp"))
        if kind == "reduce":
            y = dml.reduce(e, draw.choice(recipe, FUNCTIONS), axes=axes)
            self.known.append(y)
            y = draw.choice(recipe, (y * 2, y.broadcast_to(e.sizes), e - y.broadcast_to(e.sizes)))
        elif kind == "normalize":
            y = dml.mean_variance_normalization1(e * 2, axes=axes, normalize_variance=True)
        else:
            y = dml.lp_normalization(e, axis=axes[0], p=draw.choice(recipe, (1, 2)))
        self.known.append(y + 1 if draw.chance(recipe, 0.5) else y)


def settled(e: Expression) -> Expression:
    """Floats whose bits are decided: neither NaNs nor negative zeros."""
    if e.data_type.label not in ("float16", "float32"):
        return e
    result: Expression = dml.if_(dml.is_nan(e), 0.0, e) + 0.0
    return result


def _repeated(case: Case, graph: CompiledGraph, inputs: list[Held], outputs: list[Held]) -> None:
    """The way of ONNX sessions: made once, for memory that is another one each time."""
    repeated = PreparedGraph(graph._graph, draw.choice(case.recipe, (1, 2)))
    for _ in range(2):
        results: list[Held] = []

        def empty(sizes: tuple[int, ...], dtype: np.dtype, results: list[Held] = results) -> Array:
            results.append(case.held(dtype, Layout(sizes, packed_strides(sizes))))
            return results[-1].seen()

        moved = [case.held(x.dtype, x.layout) for x in inputs]
        for x, y in zip(inputs, moved, strict=True):
            y.fill(x.flat)
        repeated([y.seen() for y in moved], empty)
        case.facts.add("repeated")
        look_after({f"input {k}": x for k, x in enumerate(moved)}, set())
        look_after(names := {f"again {k}": y for k, y in enumerate(results)}, set(names))
        for y, wanted in zip(results, outputs, strict=True):
            same("again", y.seen(), wanted.seen())


def graph_case(case: Case) -> None:
    """A graph of 1 to 12 nodes, compiled, bound, dispatched."""
    recipe, rng = case.recipe, case.own
    growing = Growing(case)
    growing.input(draw.choice(recipe, UP_TO_64_BIT))
    count = int(recipe.integers(1, 13))
    operators = [
        draw.choice(recipe, ROWS if draw.chance(recipe, 0.15) else OPERATORS) for _ in range(count - 1)
    ]
    (of_rows,) = recipe.spawn(1)
    for operator in (*operators, case.operator if case.operator in OPERATORS else OPERATORS[0]):
        growing.node(operator)
        if draw.chance(of_rows, 0.2):
            growing.rows(of_rows)
            case.facts.add("reduced in graphs")
    made = [e for e in growing.known if e._value.name.startswith("%") and e.name not in growing.held]
    if not made:
        growing.node(OPERATORS[0])
        made = growing.known[-1:]
    picked = [made[-1], *(draw.choice(recipe, made) for _ in range(int(recipe.integers(0, 4))))]
    if draw.chance(recipe, 0.2):
        picked.append(growing.known[0])  # an input, given out as it is
    outputs = {f"out{k}": e for k, e in enumerate(picked)}
    graph = growing.g.compile(outputs)
    read = [n for n in growing.held if n in graph.tensors]
    held = dict(growing.held)
    short = draw.choice(rng, [*read, *outputs]) if draw.chance(rng, 0.1) else ""
    for name, e in outputs.items():
        layout = Layout(e.sizes, packed_strides(e.sizes))
        held[name] = case.held(NUMPY[e.data_type], layout, short=name == short)
    if short in read:
        held[short] = case.held(held[short].dtype, held[short].layout, short=1)
    copies = {graph._values[n]: held[n].flat.copy() for n in growing.held}
    try:
        bound = graph.bind({n: held[n].flat for n in read}, {n: held[n].flat for n in outputs})
    except dml.InvalidInput:
        if short:
            case.facts.add("refused")
            return
        raise
    for _ in range(int(rng.integers(1, 3))):
        bound.dispatch()
    if short or growing.beyond:
        raise Wrong("taken, though a buffer is too short for it")
    look_after(held, set(outputs))

    elementwise = all(n.op.compute is None for n in graph._graph.nodes)  # as those of sessions are
    if elementwise and all(held[n].packed for n in growing.held):
        _repeated(case, graph, [held[n] for n in growing.held], [held[n] for n in outputs])
    # What follows a sum of rows may make much of its least bit.
    summed = not elementwise or any(n.op in SUMS for n in graph._graph.nodes)
    if sum(e.desc.element_count for e in made) <= CHEAP * 4 and not summed:
        case.facts.add("compared")
        results: dict[str, Array] = {n: np.zeros(e.sizes, NUMPY[e.data_type]) for n, e in outputs.items()}
        with np.errstate(all="ignore"):
            run_reference(graph._graph, [copies[v] for v in graph._graph.inputs], list(results.values()))
        for name in outputs:
            same(name, held[name].seen(), results[name])
