"""Recurrent layers as ONNX nodes: the same gates in the same order, with fewer dimensions of size 1."""

from __future__ import annotations

from typing import Any

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.enums import RecurrentNetworkDirection

_DIRECTIONS = {
    RecurrentNetworkDirection.FORWARD: "forward",
    RecurrentNetworkDirection.BACKWARD: "reverse",
    RecurrentNetworkDirection.BIDIRECTIONAL: "bidirectional",
}
_ACTIVATIONS = {
    "ACTIVATION_SIGMOID": "Sigmoid",
    "ACTIVATION_TANH": "Tanh",
    "ACTIVATION_RELU": "Relu",
    "ACTIVATION_SOFTSIGN": "Softsign",
}
"""Activations that need no numbers."""


def rnn(c: Call, o: OnnxNodes) -> Any:
    return _layer(c, o, "RNN", ["Tanh"])


def gru(c: Call, o: OnnxNodes) -> Any:
    return _layer(c, o, "GRU", ["Sigmoid", "Tanh"], linear_before_reset=int(c.linear_before_reset))


def lstm(c: Call, o: OnnxNodes) -> Any:
    if c.use_clip_threshold:
        return None  # ONNX does not bound what the output's activation is applied to
    return _layer(c, o, "LSTM", ["Sigmoid", "Tanh", "Tanh"], input_forget=int(c.couple_input_forget))


def _layer(c: Call, o: OnnxNodes, op: str, usual: list[str], **attributes: Any) -> Any:
    _, steps, batch, width = c.input.shape
    _, directions, rows, hidden = c.recurrence.shape
    activations = usual * directions
    if c.activation_descs is not None:
        names = [_ACTIVATIONS.get(a.operator.name) for a in c.activation_descs]
        if None in names:
            return None
        activations = [str(n) for n in names]

    def given(name: str, *sizes: int) -> str | None:
        return None if getattr(c, name, None) is None else o.reshape(name, sizes)

    lengths = given("sequence_lengths", batch)
    inputs = [
        o.reshape("input", (steps, batch, width)),
        o.reshape("weight", (directions, rows, width)),
        o.reshape("recurrence", (directions, rows, hidden)),
        given("bias", directions, 2 * rows),
        None if lengths is None else o("Cast", lengths, to=6),
        given("hidden_init", directions, batch, hidden),
    ]
    if op == "LSTM":
        inputs.append(given("cell_mem_init", directions, batch, hidden))
        inputs.append(given("peephole", directions, 3 * hidden))
    made = o(
        op,
        *inputs,
        outputs=3 if op == "LSTM" else 2,
        direction=_DIRECTIONS[c.direction],
        hidden_size=hidden,
        activations=activations,
        **attributes,
    )
    sequence, *lasts = made
    return (sequence, *(o.reshape(last, (1, directions, batch, hidden)) for last in lasts))
