"""Recurrent layers as ONNX nodes: the same gates in the same order, with fewer dimensions of size 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anydml.onnx.from_directml.nodes import OnnxNodes
from anydml.ops.call import Call
from anydml.ops.dtypes import INT32, UINT64
from anydml.ops.enums import RecurrentNetworkDirection

_DIRECTIONS = {
    RecurrentNetworkDirection.FORWARD: "forward",
    RecurrentNetworkDirection.BACKWARD: "reverse",
    RecurrentNetworkDirection.BIDIRECTIONAL: "bidirectional",
}
_ACTIVATIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ACTIVATION_SIGMOID": ("Sigmoid", ()),
    "ACTIVATION_TANH": ("Tanh", ()),
    "ACTIVATION_RELU": ("Relu", ()),
    "ACTIVATION_SOFTSIGN": ("Softsign", ()),
    "ACTIVATION_IDENTITY": ("Affine", ("Alpha", "Beta")),
    "ACTIVATION_LINEAR": ("Affine", ("Alpha", "Beta")),
    "ACTIVATION_SCALED_TANH": ("ScaledTanh", ("Alpha", "Beta")),
    "ACTIVATION_HARD_SIGMOID": ("HardSigmoid", ("Alpha", "Beta")),
    "ACTIVATION_LEAKY_RELU": ("LeakyRelu", ("Alpha",)),
    "ACTIVATION_THRESHOLDED_RELU": ("ThresholdedRelu", ("Alpha",)),
    "ACTIVATION_ELU": ("Elu", ("Alpha",)),
}
"""What ONNX calls them, and the numbers that they have. Its Softplus overflows in onnxruntime's layers."""
_IDENTITY = {"Alpha": 1.0, "Beta": 0.0}


def rnn(c: Call, o: OnnxNodes) -> Any:
    return _layer(c, o, "RNN", ["Tanh"])


def gru(c: Call, o: OnnxNodes) -> Any:
    return _layer(c, o, "GRU", ["Sigmoid", "Tanh"], linear_before_reset=int(c.linear_before_reset))


def lstm(c: Call, o: OnnxNodes) -> Any:
    if c.use_clip_threshold:
        return None  # ONNX does not bound what the output's activation is applied to
    return _layer(c, o, "LSTM", ["Sigmoid", "Tanh", "Tanh"], input_forget=int(c.couple_input_forget))


def _functions(c: Call) -> dict[str, Any] | None:
    """The activations, and those of their numbers that there are, in order; None where ONNX has not all."""
    found: dict[str, Any] = {"activations": [], "activation_alpha": [], "activation_beta": []}
    for activation in c.activation_descs:
        name, numbers = _ACTIVATIONS.get(activation.operator.name, ("", ()))
        if not name:
            return None
        found["activations"].append(name)
        for number in numbers:
            values = {**_IDENTITY, **activation.attributes}
            found[f"activation_{number.lower()}"].append(values[number])
    return {key: value or None for key, value in found.items()}


def _lengths(o: OnnxNodes, lengths: str, steps: int) -> str:
    """A row ends with the sequence at the latest; onnxruntime refuses greater lengths."""
    bounded = o("Min", o.cast(lengths, UINT64), o.constant(np.uint64(steps)))  # whose Min of INT64 is wrong
    return o.cast(bounded, INT32)


def _layer(c: Call, o: OnnxNodes, op: str, usual: list[str], **attributes: Any) -> Any:
    _, steps, batch, width = c.input.shape
    _, directions, rows, hidden = c.recurrence.shape
    functions = {"activations": usual * directions} if c.activation_descs is None else _functions(c)
    if functions is None:
        return None

    def given(name: str, *sizes: int) -> str | None:
        return None if getattr(c, name, None) is None else o.reshape(name, sizes)

    lengths = given("sequence_lengths", batch)
    inputs = [
        o.reshape("input", (steps, batch, width)),
        o.reshape("weight", (directions, rows, width)),
        o.reshape("recurrence", (directions, rows, hidden)),
        given("bias", directions, 2 * rows),
        None if lengths is None else _lengths(o, lengths, steps),
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
        **functions,
        **attributes,
    )
    sequence, *lasts = made
    return (sequence, *(o.reshape(last, (1, directions, batch, hidden)) for last in lasts))
