"""LSTM, GRU and RNN, which have no rule of ours in NumPy."""

from __future__ import annotations

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


def _native_lstm(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Of float32, in one direction, with the usual functions and known weights."""
    x, w, r = operand(inputs), known(inputs, 1), known(inputs, 2)
    bias = known(inputs, 3)
    given = [*inputs, *[None] * (8 - len(inputs))]
    if n.given - {"hidden_size", "direction"} or n.mode("direction") not in ("", "forward"):
        raise NotNative("LSTM that is not the usual one")
    if given[4] is not None or given[7] is not None or w is None or r is None or x.dtype is not FLOAT32:
        raise NotNative("LSTM with lengths or peepholes, or not of float32")
    steps, batch, width = x.sizes
    hidden = r.sizes[2]
    if (n.attribute("hidden_size"), w.sizes, r.sizes) != (
        hidden,
        (1, 4 * hidden, width),
        (1, 4 * hidden, hidden),
    ):
        raise NotNative("LSTM whose sizes do not fit")
    weights = Known.of(np.ascontiguousarray(np.concatenate([w.array[0], r.array[0]], 1).T))
    both = np.zeros(8 * hidden, np.float32) if bias is None else bias.array[0]
    shift = Known.of(both[: 4 * hidden] + both[4 * hidden :])
    nothing = Known.of(np.zeros((batch, hidden), np.float32))
    first = [nothing if s is None else b.reshape(s, (batch, hidden)) for s in given[5:7]]
    source = b.packed(x)
    gates = [expr.read(k, FLOAT32) for k in range(4)]
    cell = expr.read(4, FLOAT32)
    kept = expr.mul(elementary.sigmoid(gates[2]), cell)
    grown = expr.add(kept, expr.mul(elementary.sigmoid(gates[0]), elementary.tanh(gates[3])))
    shown = expr.mul(elementary.sigmoid(gates[1]), elementary.tanh(cell))

    def step(number: Register, on: Register, states: list[Tensor]) -> Iterated:
        h, c = states
        at = b.code.at(source.pointer, b.code.times(number.name, batch * width), FLOAT32)
        now = Memory(FLOAT32, (batch, width), at, source.strides[1:], source.lies_in)
        row = b.assemble(FLOAT32, (batch, width + hidden), [((0, 0), now), ((0, width), h)])
        sums = b.elementwise(
            expr.add(expr.read(0, FLOAT32), expr.read(1, FLOAT32)), [matrix_product(b, row, weights), shift]
        )
        every = b.use(sums)
        places = np.arange(every.count).reshape(batch, 4, hidden)
        parts = [b.rearrange(every, places[:, k]) for k in range(4)]
        new = b.use(b.elementwise(grown, [*parts, c]))
        out = b.use(b.elementwise(shown, [*parts, new]))
        return Iterated(None, [out, new], [out])

    if steps == 1:
        made = step(Register(INT64, (), "0"), Register(BOOL, (), "true"), first)
        last, rows = list(made.states), [b.reshape(made.rows[0], (1, batch, hidden))]
    else:
        last, rows = repeat(b, Known.of(np.array(steps)), None, first, step)
    every = b.reshape(rows[0], (steps, 1, batch, hidden))
    return [every, *(b.reshape(s, (1, batch, hidden)) for s in last)][: len(n.outputs)]


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
