"""The gradients of the pooling operators, one definition each."""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT
from anydml.ops.families import FL_3_0, FL_4_0
from anydml.ops.opdef import Asked, Rule, at, example, inp, of_tensors, out
from anydml.ops.pooling_windows import (
    DILATIONS,
    INCLUDE_PADDING,
    WINDOWS,
    divisors,
    largest,
    pooled,
    window_rules,
    windows_of,
)
from anydml.ops.rules import holds


def _of_pooled_sizes(what: str, parameter: str) -> Rule:
    """The incoming gradient has the sizes that pooling makes of another tensor's."""
    return holds(
        f"InputGradientTensor of the sizes that pooling makes of {what}Tensor",
        lambda c: c.input_gradient.shape == pooled(c, getattr(c, parameter).shape),
        lambda c: f"{c.input_gradient.shape} where it makes {pooled(c, getattr(c, parameter).shape)}",
    )


_SHAPES = {"input_gradient": "N C pooled(S)...", "output_gradient": "N C S..."}
_ONE_RANK = holds(
    "as many dimensions of OutputGradientTensor as of InputGradientTensor",
    lambda c: c.output_gradient.ndim == c.input_gradient.ndim,
    lambda c: f"{c.output_gradient.ndim} and {c.input_gradient.ndim}",
)
_AVERAGE_RULES = (
    _ONE_RANK,
    *window_rules("OutputGradient"),
    _of_pooled_sizes("OutputGradient", "output_gradient"),
)


def _average_gradient(c: Call) -> Array:
    """Each window's share, added along one axis after the other."""
    windows = windows_of(c, c.output_gradient.shape)
    made: Array = np.divide(c.input_gradient, divisors(c, windows), dtype=np.float64)
    for w in windows:
        spread = np.zeros((*made.shape[: w.axis], w.length, *made.shape[w.axis + 1 :]))
        for here, there in w.taps():
            spread[there] += made[here]
        made = spread
    return made


AVERAGE_POOLING_GRAD = of_tensors(
    name="AVERAGE_POOLING_GRAD",
    doc="OutputGradient is the gradient of AVERAGE_POOLING's input, InputGradient that of its output.",
    text="output_gradient[x] = sum of input_gradient[y] / (elements of the window at y), "
    "over the windows that x is in",
    operands=(
        inp("InputGradientTensor", dtype="T"),
        out("OutputGradientTensor", dtype="T"),
        *WINDOWS,
        INCLUDE_PADDING,
    ),
    levels={FL_3_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_AVERAGE_RULES)},
    asks=(
        Asked(
            "output_sizes",
            "Sequence[int]",
            "the output's sizes: those of what was pooled",
            lambda c: c.output_gradient.shape,
        ),
    ),
    sizes=lambda c: c.output_sizes,
    shapes=_SHAPES,
    compute=_average_gradient,
    example=example(
        [[[[4, 8], [12, 16]]]],
        [[[[1, 3, 2], [4, 10, 6], [3, 7, 4]]]],
        window_size=2,
        include_padding=False,
        output_sizes=[1, 1, 3, 3],
    ),
    notes="InputGradientTensor must have the sizes that pooling would make of OutputGradientTensor's.",
)


def _max_gradient(c: Call) -> Array:
    """Each window's gradient, added in float64 at its first maximum."""
    windows = windows_of(c, c.input.shape)
    _, index = largest(c.input, windows)
    received = c.input_gradient.astype(np.float64)
    for w in windows:
        received[w.at(w.counts() == 0)] = 0  # nothing but padding
    sums = np.bincount(index.reshape(-1), received.reshape(-1), prod(c.input.shape))
    return sums.reshape(c.input.shape)


_MAX_RULES = (
    holds(
        "as many dimensions of InputGradientTensor as of InputTensor",
        lambda c: c.input_gradient.ndim == c.input.ndim,
        lambda c: f"{c.input_gradient.ndim} and {c.input.ndim}",
    ),
    *window_rules(dilated=True),
    _of_pooled_sizes("Input", "input"),
)

MAX_POOLING_GRAD = of_tensors(
    name="MAX_POOLING_GRAD",
    doc="OutputGradient is the gradient of MAX_POOLING2's input, InputGradient that of its output.",
    text="output_gradient[x] = sum of input_gradient[y] over the windows whose first maximum is at x",
    operands=(
        inp("InputTensor", dtype="T", sizes="S"),
        inp("InputGradientTensor", dtype="T"),
        out("OutputGradientTensor", dtype="T", sizes="S"),
        *WINDOWS,
        DILATIONS,
    ),
    levels={
        FL_3_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, rules=_MAX_RULES),
        FL_4_0: at(rank=(4, 5), T=FLOATS_UP_TO_32_BIT, rules=_MAX_RULES),
    },
    shapes={"input": "N C S..."} | _SHAPES,
    compute=_max_gradient,
    example=example(
        [[[[1, 5, 2], [5, 3, 4], [0, 8, 6]]]],
        [[[[1, 2], [3, 4]]]],
        [[[[0, 3, 0], [0, 0, 0], [0, 7, 0]]]],
        window_size=2,
    ),
    notes="InputGradientTensor must have the sizes that MAX_POOLING2 would make of InputTensor's. A NaN in a "
    "window is its maximum; the gradient of a window of nothing but padding goes nowhere.",
)
