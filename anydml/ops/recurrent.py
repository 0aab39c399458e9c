"""Recurrent networks: RNN, GRU, LSTM, one definition each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from anydml.ops.activation import ACTIVATION_SIGMOID, ACTIVATION_TANH
from anydml.ops.attributes import BOOLEAN, Activation, ActivationKind, ActivationsKind
from anydml.ops.call import Array, Call, activate
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, UINT32
from anydml.ops.enums import RecurrentNetworkDirection, TensorFlags
from anydml.ops.families import FL_1_0, FUSABLE
from anydml.ops.opdef import Rule, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import Attributes, Breaches, Tensors, holds

_BACKWARD, _BIDIRECTIONAL = RecurrentNetworkDirection.BACKWARD, RecurrentNetworkDirection.BIDIRECTIONAL
_ACTIVATIONS = ActivationsKind(ActivationKind(FUSABLE))
_SIGMOID, _TANH = Activation(ACTIVATION_SIGMOID), Activation(ACTIVATION_TANH)

# ---- activations ---------------------------------------------------------------------------------------

Function = Callable[[Array], Array]

# What nearly every network has. `activate` gives the same up to a rounding, but it interprets a formula,
# which for arrays as small as one step's takes longer than all else together.
_QUICK: Mapping[str, Function] = {
    "ACTIVATION_SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "ACTIVATION_TANH": np.tanh,
    "ACTIVATION_RELU": lambda x: np.maximum(x, 0),
    "ACTIVATION_IDENTITY": lambda x: x,
}


def _function(activation: Activation) -> Function:
    return _QUICK.get(activation.operator.name) or (lambda x: activate(activation, x))


def _activations(c: Call, usual: tuple[Activation, ...], direction: int) -> list[Activation]:
    """The activations of one direction."""
    given = c.activation_descs or usual * _directions(c)
    return list(given[len(usual) * direction :][: len(usual)])


# ---- what all three share ------------------------------------------------------------------------------

Step = Callable[[Array, tuple[Array, ...]], tuple[Array, ...]]
"""What a step's input (times its weights, biases added) makes of the states; the first is given out."""


def _directions(c: Call) -> int:
    return 2 if c.direction is _BIDIRECTIONAL else 1


def _unroll(
    c: Call, bias: Callable[[Array], Array], step_of: Callable[[int], Step], *starts: Array | None
) -> tuple[Array, ...]:
    """The first state after every step, and all states after the last one.

    `bias`: what is added to the weighted input, of a direction's biases. `starts`: the states before.
    """
    _, steps, batch, width = c.input.shape
    hidden = c.recurrence.shape[3]
    sequence = np.zeros((steps, _directions(c), batch, hidden), np.float32)
    lasts = []
    for d in range(_directions(c)):
        step = step_of(d)
        states = tuple(np.zeros((batch, hidden), np.float32) if s is None else s[0, d] for s in starts)
        weighted = c.input.reshape(steps * batch, width) @ c.weight[0, d].T
        if c.bias is not None:
            weighted += bias(c.bias[0, 0, d])
        weighted = weighted.reshape(steps, batch, -1)
        backward = c.direction is _BACKWARD or d == 1
        for t in range(steps - 1, -1, -1) if backward else range(steps):
            after = step(weighted[t], states)
            if c.sequence_lengths is None:
                sequence[t, d] = after[0]
            else:  # rows that are not there keep their states, and give zeros
                there = (t < c.sequence_lengths.reshape(batch))[:, np.newaxis]
                after = tuple(np.where(there, new, old) for new, old in zip(after, states, strict=True))
                np.copyto(sequence[t, d], after[0], where=there)
            states = after
        if c.sequence_lengths is not None:
            some = (c.sequence_lengths.reshape(batch) > 0)[:, np.newaxis]
            states = tuple(np.where(some, state, 0) for state in states)
        lasts.append(states)
    return sequence, *(np.stack(of_directions)[np.newaxis] for of_directions in zip(*lasts, strict=True))


def _both(bias: Array) -> Array:
    """The biases of the input and of the recurrence, which are only ever added up."""
    half = len(bias) // 2
    return np.add(bias[:half], bias[half:])


def _sizes(c: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    _, steps, batch, _ = c.input.shape
    hidden = c.recurrence.shape[3]
    return (steps, _directions(c), batch, hidden), (1, _directions(c), batch, hidden)


def _owned(tensors: Tensors, attributes: Attributes) -> Breaches:
    owned = [name for name, desc in tensors.items() if desc.flags & TensorFlags.OWNED_BY_DML]
    if owned:
        yield f"{', '.join(owned)}: expected flags NONE, but got OWNED_BY_DML", "bind them at execution"


def _sized(parameter: str, field: str, text: str, wanted: Callable[[Call], tuple[int, ...]]) -> Rule:
    """A tensor, if it is there, has sizes that the others decide."""
    return holds(
        f"{field} {{{text}}}",
        lambda c: getattr(c, parameter) is None or getattr(c, parameter).shape == wanted(c),
        lambda c: f"{getattr(c, parameter).shape} where that is {wanted(c)}",
    )


def _rules(gates: int, activations: int) -> tuple[Rule, ...]:
    """What is asked of a network of so many gates, and activations in each direction."""
    rows = f"{gates} * HiddenSize" if gates > 1 else "HiddenSize"
    return (
        Rule("no tensor has the flag OWNED_BY_DML", _owned),
        holds("InputTensor {1, SeqLength, BatchSize, InputSize}", lambda c: c.input.shape[0] == 1, _of_input),
        _sized(
            "recurrence",
            "RecurrenceTensor",
            f"1, NumDirections, {rows}, HiddenSize",
            lambda c: (1, _directions(c), gates * c.recurrence.shape[3], c.recurrence.shape[3]),
        ),
        _sized(
            "weight",
            "WeightTensor",
            f"1, NumDirections, {rows}, InputSize",
            lambda c: (1, _directions(c), gates * c.recurrence.shape[3], c.input.shape[3]),
        ),
        _sized(
            "bias",
            "BiasTensor",
            f"1, 1, NumDirections, {2 * gates} * HiddenSize",
            lambda c: (1, 1, _directions(c), 2 * gates * c.recurrence.shape[3]),
        ),
        _sized("hidden_init", "HiddenInitTensor", _OF_STATES, lambda c: _sizes(c)[1]),
        _sized("sequence_lengths", "SequenceLengthsTensor", "1, 1, 1, BatchSize", _one_for_each_row),
        holds(
            f"in ActivationDescs {activations} for each direction"
            if activations > 1
            else "in ActivationDescs one for each direction",
            lambda c: c.activation_descs is None or len(c.activation_descs) == activations * _directions(c),
            lambda c: f"{len(c.activation_descs)} where that is {activations * _directions(c)}",
        ),
    )


_OF_STATES = "1, NumDirections, BatchSize, HiddenSize"


def _of_input(c: Call) -> str:
    return str(c.input.shape)


def _one_for_each_row(c: Call) -> tuple[int, ...]:
    return 1, 1, 1, c.input.shape[2]


def _some_output(*parameters: str) -> Rule:
    return holds("at least one output", lambda c: any(getattr(c, p) is not None for p in parameters))


_INPUTS = (
    inp("InputTensor", dtype="T"),
    inp("WeightTensor", dtype="T"),
    inp("RecurrenceTensor", dtype="T"),
    inp("BiasTensor", dtype="T", optional=FL_1_0),
    inp("HiddenInitTensor", dtype="T", optional=FL_1_0),
)
_LENGTHS = inp("SequenceLengthsTensor", dtype="L", optional=FL_1_0)
_OUTPUTS = (
    out("OutputSequenceTensor", dtype="T", optional=FL_1_0),
    out("OutputSingleTensor", dtype="T", optional=FL_1_0),
)


def _shapes(gates: int) -> dict[str, str]:
    rows = f"{gates}*H" if gates > 1 else "H"
    return {
        "input": "1 T N I",
        "weight": f"1 D {rows} I",
        "recurrence": f"1 D {rows} H",
        "bias": f"1 1 D {2 * gates}*H",
        "hidden_init": "1 D N H",
        "sequence_lengths": "1 1 1 N",
        "output_sequence": "T D N H",
        "output_single": "1 D N H",
    }


_SETTINGS = (
    attr("ActivationDescs", _ACTIVATIONS, None, optional=False, count="ActivationDescCount"),
    attr("Direction", RecurrentNetworkDirection, RecurrentNetworkDirection.FORWARD),
)


def _notes(usual: str) -> str:
    return (
        "Of two directions the forward one comes first, in activations, too. What is left out is 0, and of "
        f"activations {usual}. A row ends after its sequence length (or with the whole sequence): from there "
        "on its output sequence is 0, its single outputs are the states at its end, and backward it starts "
        "there; with a length of 0 it is 0 everywhere. Of this DirectML's pages say nothing; it is as in "
        "onnxruntime."
    )


# ---- RNN -----------------------------------------------------------------------------------------------


def _rnn(c: Call) -> tuple[Array, ...]:
    def step_of(direction: int) -> Step:
        (f,) = map(_function, _activations(c, (_TANH,), direction))
        recurrence = c.recurrence[0, direction].T
        return lambda weighted, states: (f(weighted + states[0] @ recurrence),)

    return _unroll(c, _both, step_of, c.hidden_init)


RNN = of_tensors(
    name="RNN",
    doc="A recurrent layer: each step's state is an activation of its input and the state before, weighted.",
    text="h[t] = f(input[t] @ weight.T + h[t-1] @ recurrence.T + bias of the input + bias of the recurrence)",
    operands=(*_INPUTS, _LENGTHS, *_OUTPUTS, *_SETTINGS),
    levels={
        FL_1_0: at(
            rank=(4, 4),
            T=FLOATS_UP_TO_32_BIT,
            L=UINT32,
            rules=(*_rules(1, 1), _some_output("output_sequence", "output_single")),
        )
    },
    shapes=_shapes(1),
    compute=_rnn,
    example=example(
        [[[[1]], [[2]], [[3]]]],
        [[[[1]]]],
        [[[[2]]]],
        None,
        None,
        None,
        ([[[[1]]], [[[4]]], [[[11]]]], [[[[11]]]]),
        activation_descs=["IDENTITY"],
    ),
    notes=_notes("TANH"),
)

# ---- GRU -----------------------------------------------------------------------------------------------


def _gru(c: Call) -> tuple[Array, ...]:
    hidden = c.recurrence.shape[3]

    def bias(of_direction: Array) -> Array:
        added = _both(of_direction)
        if c.linear_before_reset:  # the last gate's other half is multiplied first
            added[2 * hidden :] = of_direction[2 * hidden : 3 * hidden]
        return added

    def step_of(direction: int) -> Step:
        f, g = map(_function, _activations(c, (_SIGMOID, _TANH), direction))
        recurrence = c.recurrence[0, direction].T
        inner = 0 if c.bias is None else c.bias[0, 0, direction, 5 * hidden :]

        def step(weighted: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            (h,) = states
            if c.linear_before_reset:
                recurrent = h @ recurrence
                update, reset = _halves(f(weighted[:, : 2 * hidden] + recurrent[:, : 2 * hidden]))
                candidate = g(weighted[:, 2 * hidden :] + reset * (recurrent[:, 2 * hidden :] + inner))
            else:
                update, reset = _halves(f(weighted[:, : 2 * hidden] + h @ recurrence[:, : 2 * hidden]))
                candidate = g(weighted[:, 2 * hidden :] + (reset * h) @ recurrence[:, 2 * hidden :])
            return ((1 - update) * candidate + update * h,)

        return step

    return _unroll(c, bias, step_of, c.hidden_init)


def _halves(x: Array) -> tuple[Array, Array]:
    half = x.shape[1] // 2
    return x[:, :half], x[:, half:]


GRU = of_tensors(
    name="GRU",
    doc="A layer of gated recurrent units, with an update gate z, a reset gate r, and a hidden gate h.",
    text=(
        "z = f(zx + zh); r = f(rx + rh); "
        "h[t] = (1 - z) * g(hx + r * hh if linear_before_reset else hx + h(r * h[t-1])) + z * h[t-1], "
        "where zx = input[t] @ weight_z.T + bias, zh = h[t-1] @ recurrence_z.T + bias, and so on"
    ),
    operands=(*_INPUTS, _LENGTHS, *_OUTPUTS, *_SETTINGS, attr("LinearBeforeReset", BOOLEAN, False)),
    levels={
        FL_1_0: at(
            rank=(4, 4),
            T=FLOATS_UP_TO_32_BIT,
            L=UINT32,
            rules=(*_rules(3, 2), _some_output("output_sequence", "output_single")),
        )
    },
    shapes=_shapes(3),
    compute=_gru,
    example=example(
        [[[[4]], [[8]]]],
        [[[[0], [0], [1]]]],
        [[[[0], [0], [1]]]],
        None,
        None,
        None,
        ([[[[2]]], [[[5.5]]]], [[[[5.5]]]]),
        activation_descs=["SIGMOID", "IDENTITY"],
    ),
    notes=(
        "Weights, recurrences and both halves of the biases have the gates in the order z, r, h; activations "
        "are f, of z and r, and g. " + _notes("SIGMOID and TANH")
    ),
)

# ---- LSTM ----------------------------------------------------------------------------------------------


def _lstm(c: Call) -> tuple[Array, ...]:
    hidden = c.recurrence.shape[3]
    bound = c.clip_threshold

    def bounded(function: Function) -> Function:
        return (lambda x: function(np.clip(x, -bound, bound))) if c.use_clip_threshold else function

    def step_of(direction: int) -> Step:
        f, g, h = (bounded(_function(a)) for a in _activations(c, (_SIGMOID, _TANH, _TANH), direction))
        recurrence = c.recurrence[0, direction].T
        seen = None if c.peephole is None else np.split(c.peephole[0, 0, direction], 3)

        def step(weighted: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
            gates = weighted + states[0] @ recurrence
            before = states[1]
            new = g(gates[:, 3 * hidden :])
            if seen is None:  # at once: an activation's cost is mostly that of a call
                opened = f(gates[:, : 3 * hidden])
                i, o, kept = opened[:, :hidden], opened[:, hidden : 2 * hidden], opened[:, 2 * hidden :]
            else:
                i = f(gates[:, :hidden] + seen[0] * before)
                kept = f(gates[:, 2 * hidden : 3 * hidden] + seen[2] * before)
            if c.couple_input_forget:
                kept = 1 - i
            cell = kept * before + i * new
            if seen is not None:
                o = f(gates[:, hidden : 2 * hidden] + seen[1] * cell)
            return o * h(cell), cell

        return step

    return _unroll(c, _both, step_of, c.hidden_init, c.cell_mem_init)


LSTM = of_tensors(
    name="LSTM",
    doc="A layer of long short-term memory: an input gate i, an output gate o, a forget gate f, and cells c.",
    text=(
        "i = f(ix + ih + peephole_i * c[t-1]); f = f(fx + fh + peephole_f * c[t-1]) or 1 - i; "
        "c[t] = f * c[t-1] + i * g(cx + ch); o = f(ox + oh + peephole_o * c[t]); h[t] = o * h(c[t]), "
        "where ix = input[t] @ weight_i.T + bias, ih = h[t-1] @ recurrence_i.T + bias, and so on"
    ),
    operands=(
        *_INPUTS,
        inp("CellMemInitTensor", dtype="T", optional=FL_1_0),
        _LENGTHS,
        inp("PeepholeTensor", dtype="T", optional=FL_1_0),
        *_OUTPUTS,
        out("OutputCellSingleTensor", dtype="T", optional=FL_1_0),
        *_SETTINGS,
        attr("ClipThreshold", default=0.0),
        attr("UseClipThreshold", BOOLEAN, False),
        attr("CoupleInputForget", BOOLEAN, False),
    ),
    levels={
        FL_1_0: at(
            rank=(4, 4),
            T=FLOATS_UP_TO_32_BIT,
            L=UINT32,
            rules=(
                *_rules(4, 3),
                _sized("cell_mem_init", "CellMemInitTensor", _OF_STATES, lambda c: _sizes(c)[1]),
                _sized(
                    "peephole",
                    "PeepholeTensor",
                    "1, 1, NumDirections, 3 * HiddenSize",
                    lambda c: (1, 1, _directions(c), 3 * c.recurrence.shape[3]),
                ),
                _some_output("output_sequence", "output_single", "output_cell_single"),
            ),
        )
    },
    shapes=_shapes(4)
    | {"cell_mem_init": "1 D N H", "peephole": "1 1 D 3*H", "output_cell_single": "1 D N H"},
    compute=_lstm,
    example=example(
        [[[[4]], [[8]]]],
        [[[[0], [0], [0], [1]]]],
        [[[[0], [0], [0], [1]]]],
        None,
        None,
        None,
        None,
        None,
        ([[[[1]]], [[[2.75]]]], [[[[2.75]]]], [[[[5.5]]]]),
        activation_descs=["SIGMOID", "IDENTITY", "IDENTITY"],
    ),
    notes=(
        "Weights, recurrences and both halves of the biases have the gates in the order i, o, f, c, "
        "peepholes in the order i, o, f; activations are f, of the gates, g, of the new cells, and h, of the "
        "output. The output gate's peephole sees the new cells, as in ONNX and in onnxruntime's DirectML "
        "provider; DirectML's page writes the old ones. With UseClipThreshold, what an activation is applied "
        "to is first bounded by ClipThreshold on both sides, the cells below h, too (onnxruntime, and the "
        "page's formulas, bound the gates alone). " + _notes("SIGMOID, TANH and TANH")
    ),
)
