"""LSTM, GRU and RNN: in NumPy of sequences without steps only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.dataclass import dataclass, replace
from anydml.onnx.ops import product_types
from anydml.onnx.ops.native import Inputs, Native, known, operand
from anydml.onnx.ops.opinfo import Array, Content, Fold, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.shared import affordable, assumed_sizes
from anydml.onnx.ops.speculation import if_run
from anydml.ops import elementary, expr
from anydml.ops.dtypes import BOOL, FLOAT32, INT64
from anydml.ops.expr import Expr

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.control import Iterated
    from anydml.codegen.program.values import Known, Memory, Register, Tensor


def _flops(n: KnownNode, results: int) -> int:
    x, w, r = (assumed_sizes(n, k) for k in range(3))
    return 2 * x[0] * x[1] * (prod(w) + prod(r)) if len(x) == len(w) == 3 else results


_EMPTY = Quirk(
    "onnxruntime ends the process on an empty input", lambda n: n.may_be_empty(0), fatal=True, empty=True
)
_NO_STEPS = Quirk(
    "onnxruntime forgets the initial state where there are no steps",
    lambda n: n.value(5) is not None and n.may_be_empty(0, 0, 1),
    empty=True,
)
_LENGTHS = ("ignores sequence_lens", lambda n: n.value(4) is not None)


def _no_batch(n: KnownNode) -> bool:
    return n.rank(0) not in (None, 3)


def _without_steps(states: int) -> Fold:
    """No library has it: no output of any step, and the initial states."""

    def rule(
        node: NodeView,
        x: Array,
        w: Array,
        r: Array,
        bias: Content = None,
        lengths: Content = None,
        *initial: Content,
    ) -> tuple[Array, ...]:
        batch, steps = x.shape[:2] if node.attribute("layout") else x.shape[1::-1]
        if steps:
            raise NotFoldable("a sequence with steps")
        ways, _, hidden = r.shape
        sizes = (batch, ways, hidden) if node.attribute("layout") else (ways, batch, hidden)
        affordable(sizes, x.dtype)
        begun = [np.zeros(sizes, x.dtype) if s is None else np.asarray(s) for s in (*initial, None, None)]
        if any(s.shape != sizes for s in begun[:states]):
            raise ValueError(f"expected initial states of sizes {sizes}")
        rows = (batch, 0, ways, hidden) if node.attribute("layout") else (0, ways, batch, hidden)
        return (np.zeros(rows, x.dtype), *begun[:states])

    return rule


# ---- in programs -------------------------------------------------------------------------------------

_DIRECTIONS = {"": (False,), "forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    "sigmoid": elementary.sigmoid,
    "tanh": elementary.tanh,
    "relu": lambda x: expr.maximum(x, 0.0),
}
Functions = Sequence[Callable[[Expr], Expr]]


@dataclass(frozen=True)
class _Weights:
    """Of one direction. The input's and the state's, turned: [width, gates * hidden]; and their biases."""

    w: Known
    r: Known
    w_bias: Array
    r_bias: Array
    turn: str = ""
    """The register that tells odd steps from even ones, where there are several."""

    @property
    def hidden(self) -> int:
        return self.r.sizes[0]


Step: TypeAlias = "Callable[[ProgramBuilder, Tensor, list[Tensor], _Weights, Functions], list[Tensor]]"
"""(what the input gives with its bias, states, ...) -> the next states; the first one is the output."""


@dataclass(frozen=True)
class _Cell:
    gates: int
    states: int
    functions: tuple[str, ...]
    step: Step
    added: Callable[[KnownNode, Array], Array]
    """(node, biases of the state) -> what of them is added to the input's."""


def _read(count: int) -> list[Expr]:
    return [expr.read(k, FLOAT32) for k in range(count)]


_SUM = expr.add(*_read(2))


def _parts(b: ProgramBuilder, every: Tensor, hidden: int) -> list[Tensor]:
    """The gates of [batch, gates * hidden]."""
    every = b.use(every)
    places = np.arange(every.count).reshape(every.sizes[0], -1, hidden)
    return [b.rearrange(every, places[:, k]) for k in range(places.shape[1])]


def _sum(b: ProgramBuilder, *terms: Tensor) -> Tensor:
    first, *others = _read(len(terms))
    for other in others:
        first = expr.add(first, other)
    return b.elementwise(first, terms)


def _lstm_step(
    b: ProgramBuilder, fed: Tensor, states: list[Tensor], weights: _Weights, functions: Functions
) -> list[Tensor]:
    h, c = states
    f, g, last = functions
    every = program.matrix_product(b, h, weights.r, _SUM, [fed], turn=weights.turn)
    gates = _parts(b, every, weights.hidden)
    i, o, forget, new, cell = _read(5)
    after = expr.add(expr.mul(f(forget), cell), expr.mul(f(i), g(new)))
    after_cell = b.use(b.elementwise(after, [*gates, c]))
    return [b.use(b.elementwise(expr.mul(f(o), last(cell)), [*gates, after_cell])), after_cell]


def _rnn_step(
    b: ProgramBuilder, fed: Tensor, states: list[Tensor], weights: _Weights, functions: Functions
) -> list[Tensor]:
    total = program.matrix_product(b, states[0], weights.r, _SUM, [fed], turn=weights.turn)
    return [b.use(b.elementwise(functions[0](_read(1)[0]), [total]))]


def _gru_step(
    b: ProgramBuilder, fed: Tensor, states: list[Tensor], weights: _Weights, functions: Functions
) -> list[Tensor]:
    """With linear_before_reset: the state's part of the new one is computed before it is reset."""
    (h,), (f, g) = states, functions
    one, two, three, four = _read(4)
    update, reset, new = _parts(b, fed, weights.hidden)
    beside = _parts(b, program.matrix_product(b, h, weights.r, turn=weights.turn), weights.hidden)
    shift = program.Known.of(weights.r_bias[2 * weights.hidden :])
    inner = expr.mul(f(expr.add(one, two)), expr.add(three, four))
    total = _sum(b, new, b.elementwise(inner, [reset, beside[1], beside[2], shift]))
    return [_mixed(b, update, beside[0], total, h, f, g)]


def _gru_step_reset_first(
    b: ProgramBuilder, fed: Tensor, states: list[Tensor], weights: _Weights, functions: Functions
) -> list[Tensor]:
    (h,), (f, g), hidden = states, functions, weights.hidden
    one, two, three = _read(3)
    update, reset, new = _parts(b, fed, hidden)
    matrices = np.split(weights.r.array, [2 * hidden], 1)
    gates, last = (program.Known.of(np.ascontiguousarray(m)) for m in matrices)
    beside = _parts(b, program.matrix_product(b, h, gates, turn=weights.turn), hidden)
    kept = b.elementwise(expr.mul(f(expr.add(one, two)), three), [reset, beside[1], h])
    total = _sum(b, new, program.matrix_product(b, kept, last, turn=weights.turn))
    return [_mixed(b, update, beside[0], total, h, f, g)]


def _mixed(
    b: ProgramBuilder,
    update: Tensor,
    beside: Tensor,
    new: Tensor,
    h: Tensor,
    f: Callable[[Expr], Expr],
    g: Callable[[Expr], Expr],
) -> Tensor:
    """A GRU's next state: the last one and a new one, in the shares that its update gate says."""
    one, two, fresh, old = _read(4)
    share = f(expr.add(one, two))
    mixed = expr.add(expr.mul(expr.sub(1.0, share), g(fresh)), expr.mul(share, old))
    return b.use(b.elementwise(mixed, [update, beside, new, h]))


def _all(n: KnownNode, bias: Array) -> Array:
    return bias


def _but_the_last(n: KnownNode, bias: Array) -> Array:
    """Of a GRU with linear_before_reset, whose last gate adds its own."""
    if not n.attribute("linear_before_reset"):
        return bias
    return np.concatenate([bias[: len(bias) // 3 * 2], np.zeros(len(bias) // 3, bias.dtype)])


_LSTM = _Cell(4, 2, ("sigmoid", "tanh", "tanh"), _lstm_step, _all)
_RNN = _Cell(1, 1, ("tanh",), _rnn_step, _all)
_GRU = _Cell(3, 1, ("sigmoid", "tanh"), _gru_step, _but_the_last)
_GRU_RESET_FIRST = _Cell(3, 1, ("sigmoid", "tanh"), _gru_step_reset_first, _all)


def _native(cell_of: Callable[[KnownNode], _Cell]) -> Native:
    """Of float32, with known weights, over sequences that are all as long as they can be."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        cell = cell_of(n)
        x, w, r, bias = operand(inputs), known(inputs, 1), known(inputs, 2), known(inputs, 3)
        given = [*inputs, *[None] * (8 - len(inputs))]
        ways = _DIRECTIONS.get(n.mode("direction"))
        told = n.given - {"hidden_size", "direction", "activations", "linear_before_reset"}
        if told or ways is None:
            raise NotNative(f"{n.op.name} with {', '.join(sorted(told)) or 'a direction of its own'}")
        if given[4] is not None or given[7] is not None or w is None or r is None or x.dtype is not FLOAT32:
            raise NotNative(f"{n.op.name} with lengths or peepholes, or not of float32")
        batch, width, hidden = *x.sizes[1:], r.sizes[-1]
        expected: list[tuple[int, ...]] = [
            (len(ways), cell.gates * hidden, width),
            (len(ways), cell.gates * hidden, hidden),
        ]
        if bias is not None:
            expected.append((len(ways), 2 * cell.gates * hidden))
        begun = [s.sizes for s in given[5 : 5 + cell.states] if s is not None]
        weighed = [m.sizes for m in (w, r, bias) if m is not None]
        fits = weighed == expected and all(sizes == (len(ways), batch, hidden) for sizes in begun)
        if n.attribute("hidden_size") != hidden or not fits:
            raise NotNative(f"{n.op.name} whose sizes do not fit")
        functions = _functions(n, cell, len(ways))
        source = b.packed(x)
        found: list[list[Tensor]] = []
        for d, backward in enumerate(ways):
            both = np.zeros((2, cell.gates * hidden), np.float32)
            if bias is not None:
                both = bias.array[d].reshape(both.shape)
            turned = [program.Known.of(np.ascontiguousarray(m.array[d].T)) for m in (w, r)]
            weights = _Weights(turned[0], turned[1], both[0] + cell.added(n, both[1]), both[1])
            states: list[Tensor] = []
            for state in given[5 : 5 + cell.states]:
                places = np.arange(batch * hidden).reshape(batch, hidden) + d * batch * hidden
                nothing = program.Known.of(np.zeros((batch, hidden), np.float32))
                states.append(nothing if state is None else b.rearrange(state, places))
            found.append(_one_way(b, cell, source, weights, functions[d], states, backward))
        rows, *last = (
            b.assemble(
                FLOAT32,
                (*front, len(ways), batch, hidden),
                [((*[0] * len(front), d, 0, 0), results[k]) for d, results in enumerate(found)],
            )
            for k, front in enumerate([(x.sizes[0],), *[()] * cell.states])
        )
        return [rows, *last][: len(n.outputs)]

    return rule


def _functions(n: KnownNode, cell: _Cell, ways: int) -> list[Functions]:
    """Those of each direction."""
    words = list(cell.functions) * ways
    if "activations" in n.given:
        words = [w.decode().lower() for w in n.attribute("activations")]
    each = len(cell.functions)
    if len(words) != ways * each or not set(words) <= set(_FUNCTIONS):
        raise NotNative(f"{n.op.name} with functions {', '.join(words)}")
    return [[_FUNCTIONS[w] for w in words[d * each : (d + 1) * each]] for d in range(ways)]


def _one_way(
    b: ProgramBuilder,
    cell: _Cell,
    x: Memory,
    weights: _Weights,
    functions: Functions,
    states: list[Tensor],
    backward: bool,
) -> list[Tensor]:
    """One direction: all hidden states, and the last states."""
    steps, batch, width = x.sizes
    hidden = weights.hidden
    flat = b.reshape(x, (steps * batch, width))
    fed = program.matrix_product(b, flat, weights.w, _SUM, [program.Known.of(weights.w_bias)])

    def step(number: Register, on: Register, current: list[Tensor]) -> Iterated:
        index = b.code.line(f"sub i64 {steps - 1}, {number.name}") if backward else number.name
        at = b.code.at(fed.pointer, b.code.times(index, batch * fed.strides[0]), FLOAT32)
        now = program.Memory(FLOAT32, (batch, cell.gates * hidden), at, fed.strides, fed.lies_in)
        turn = b.code.line(f"trunc i64 {number.name} to i1") if steps > 1 else ""
        after = cell.step(b, now, current, replace(weights, turn=turn), functions)
        return program.Iterated(None, after, after[:1])

    if steps == 1:
        made = step(program.Register(INT64, (), "0"), program.Register(BOOL, (), "true"), [*states])
        last, rows = list(made.states), list(made.rows)
    else:
        last, rows = program.repeat(b, program.Known.of(np.array(steps)), None, states, step)
    places = np.arange(steps * batch * hidden).reshape(steps, 1, batch, hidden)
    whole = b.rearrange(rows[0], places[::-1] if backward else places)
    return [whole, *(b.reshape(s, (1, batch, hidden)) for s in last)]


_OF_DOUBLES = Quirk("onnxruntime fails on doubles", lambda n: n.dtype() == "float64")

OPS = (
    OpInfo(
        "LSTM",
        _without_steps(2),
        keeps_weights=True,
        native=_native(lambda n: _LSTM),
        result=product_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        quirks=(_EMPTY, _OF_DOUBLES),
        reference_error=_LENGTHS,
        moves_first=True,
    ),
    OpInfo(
        "GRU",
        _without_steps(1),
        keeps_weights=True,
        native=_native(lambda n: _GRU if n.attribute("linear_before_reset") else _GRU_RESET_FIRST),
        result=product_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        quirks=(_EMPTY, _OF_DOUBLES),
        reference_error=_LENGTHS,
        moves_first=True,
    ),
    OpInfo(
        "RNN",
        _without_steps(1),
        keeps_weights=True,
        native=_native(lambda n: _RNN),
        result=product_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        quirks=(_NO_STEPS,),
        reference_error=_LENGTHS,
        moves_first=True,
    ),
)
