"""LSTM, GRU and RNN, which have no rule of ours in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.contraction import matrix_product
from anydml.codegen.program.control import Iterated, repeat
from anydml.codegen.program.values import Known, Memory, NotNative, Register, Tensor
from anydml.onnx.ops import result_types
from anydml.onnx.ops.native import Inputs, known, operand
from anydml.onnx.ops.opinfo import KnownNode, OpInfo, Quirk
from anydml.onnx.ops.shared import assumed_sizes
from anydml.onnx.ops.speculation import if_run
from anydml.ops import elementary, expr
from anydml.ops.dtypes import BOOL, FLOAT32, INT64


def _flops(n: KnownNode, results: int) -> int:
    x, w, r = (assumed_sizes(n, k) for k in range(3))
    return 2 * x[0] * x[1] * (prod(w) + prod(r)) if len(x) == len(w) == 3 else results


_EMPTY = Quirk(
    "onnxruntime ends the process on an empty input", lambda n: n.may_be_empty(0), fatal=True, empty=True
)
_LENGTHS = ("ignores sequence_lens", lambda n: n.value(4) is not None)


def _no_batch(n: KnownNode) -> bool:
    return n.rank(0) not in (None, 3)


_DIRECTIONS = {"": (False,), "forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_I, _O, _F, _C = (expr.read(k, FLOAT32) for k in range(4))
_CELL = expr.read(4, FLOAT32)
_NEW_CELL = expr.add(
    expr.mul(elementary.sigmoid(_F), _CELL), expr.mul(elementary.sigmoid(_I), elementary.tanh(_C))
)
_NEW_HIDDEN = expr.mul(elementary.sigmoid(_O), elementary.tanh(_CELL))
_SUM = expr.add(expr.read(0, FLOAT32), expr.read(1, FLOAT32))


def _native_lstm(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Of float32, with the usual functions and known weights."""
    x, w, r, bias = operand(inputs), known(inputs, 1), known(inputs, 2), known(inputs, 3)
    given = [*inputs, *[None] * (8 - len(inputs))]
    ways = _DIRECTIONS.get(n.mode("direction"))
    if n.given - {"hidden_size", "direction"} or ways is None:
        raise NotNative("LSTM with functions or a layout of its own")
    if given[4] is not None or given[7] is not None or w is None or r is None or x.dtype is not FLOAT32:
        raise NotNative("LSTM with lengths or peepholes, or not of float32")
    batch, width, hidden = *x.sizes[1:], r.sizes[-1]
    expected = [(len(ways), 4 * hidden, width), (len(ways), 4 * hidden, hidden)]
    if n.attribute("hidden_size") != hidden or [w.sizes, r.sizes] != expected:
        raise NotNative("LSTM whose sizes do not fit")
    source = b.packed(x)
    found: list[list[Tensor]] = []
    for d, backward in enumerate(ways):
        both = np.zeros(8 * hidden, np.float32) if bias is None else bias.array[d]
        weights = [Known.of(np.ascontiguousarray(m.array[d].T)) for m in (w, r)]
        states: list[Tensor] = []
        for state in given[5:7]:
            places = np.arange(batch * hidden).reshape(batch, hidden) + d * batch * hidden
            nothing = Known.of(np.zeros((batch, hidden), np.float32))
            states.append(nothing if state is None else b.rearrange(state, places))
        shift = Known.of(both[: 4 * hidden] + both[4 * hidden :])
        found.append(_one_way(b, source, weights, shift, states, backward))
    rows, *last = (
        b.assemble(
            FLOAT32,
            (*front, len(ways), batch, hidden),
            [((*[0] * len(front), d, 0, 0), results[k]) for d, results in enumerate(found)],
        )
        for k, front in enumerate([(x.sizes[0],), (), ()])
    )
    return [rows, *last][: len(n.outputs)]


def _one_way(
    b: ProgramBuilder,
    x: Memory,
    weights: Sequence[Known],
    shift: Known,
    states: Sequence[Tensor],
    backward: bool,
) -> list[Tensor]:
    """One direction of an LSTM: all hidden states, the last one, and the last cell."""
    steps, batch, width = x.sizes
    hidden = weights[1].sizes[0]
    flat = b.reshape(x, (steps * batch, width))
    fed = b.memory(b.elementwise(_SUM, [matrix_product(b, flat, weights[0]), shift]))

    def step(number: Register, on: Register, current: list[Tensor]) -> Iterated:
        h, c = current
        index = b.code.line(f"sub i64 {steps - 1}, {number.name}") if backward else number.name
        at = b.code.at(fed.pointer, b.code.times(index, batch * fed.strides[0]), FLOAT32)
        now = Memory(FLOAT32, (batch, 4 * hidden), at, fed.strides, fed.lies_in)
        every = b.use(b.elementwise(_SUM, [now, matrix_product(b, h, weights[1])]))
        places = np.arange(every.count).reshape(batch, 4, hidden)
        gates = [b.rearrange(every, places[:, k]) for k in range(4)]
        new = b.use(b.elementwise(_NEW_CELL, [*gates, c]))
        out = b.use(b.elementwise(_NEW_HIDDEN, [*gates, new]))
        return Iterated(None, [out, new], [out])

    if steps == 1:
        made = step(Register(INT64, (), "0"), Register(BOOL, (), "true"), [*states])
        last, rows = list(made.states), list(made.rows)
    else:
        last, rows = repeat(b, Known.of(np.array(steps)), None, states, step)
    places = np.arange(steps * batch * hidden).reshape(steps, 1, batch, hidden)
    whole = b.rearrange(rows[0], places[::-1] if backward else places)
    return [whole, *(b.reshape(s, (1, batch, hidden)) for s in last)]


OPS = (
    OpInfo(
        "LSTM",
        native=_native_lstm,
        result=result_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        quirks=(_EMPTY,),
        reference_error=_LENGTHS,
        moves_first=True,
    ),
    OpInfo(
        "GRU",
        result=result_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        quirks=(_EMPTY,),
        reference_error=_LENGTHS,
        moves_first=True,
    ),
    OpInfo(
        "RNN",
        result=result_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        reference_error=_LENGTHS,
        moves_first=True,
    ),
)
