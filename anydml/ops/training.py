"""Operators that update what a model has learned, one definition each."""

from __future__ import annotations

import numpy as np

from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOATS_UP_TO_32_BIT, UINT32
from anydml.ops.families import FL_3_0
from anydml.ops.opdef import at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds


def _mean(old: Array, new: Array, share: float) -> Array:
    """A moving average: `share` of what was there, and the rest of what is new."""
    result: Array = old * np.float32(share)
    result += new * np.float32(1 - share)
    return result


def rate_of(c: Call) -> np.float64:
    """By how much the parameters change, which moments that began with 0 make too small at first."""
    step = float(c.training_step.reshape(-1)[0])
    rate = c.learning_rate * np.sqrt(1 - np.float64(c.beta2) ** step) / (1 - np.float64(c.beta1) ** step)
    return np.float64(rate)


def _adam(c: Call) -> tuple[Array, Array, Array]:
    gradient = c.gradient
    first = _mean(c.input_first_moment, gradient, c.beta1)
    second = _mean(c.input_second_moment, gradient * gradient, c.beta2)
    change = np.sqrt(second)
    change += np.float32(c.epsilon)
    np.divide(first, change, out=change)
    change *= np.float32(rate_of(c))
    return c.input_parameters - change, first, second


_STEP_RULES = (
    holds(
        "TrainingStepTensor of one element",
        lambda c: all(n == 1 for n in c.training_step.shape),
        lambda c: c.training_step.shape,
    ),
)

ADAM_OPTIMIZER = of_tensors(
    name="ADAM_OPTIMIZER",
    doc="Output is the parameters after one step of Adam, and the moments of their gradient.",
    text="m = beta1 * first_moment + (1 - beta1) * gradient; v = beta2 * second_moment + (1 - beta2) * "
    "gradient ^ 2; rate = learning_rate * sqrt(1 - beta2 ^ step) / (1 - beta1 ^ step); output_parameters = "
    "parameters - rate * m / (sqrt(v) + epsilon)",
    operands=(
        inp("InputParametersTensor", dtype="T", sizes="S"),
        inp("InputFirstMomentTensor", dtype="T", sizes="S"),
        inp("InputSecondMomentTensor", dtype="T", sizes="S"),
        inp("GradientTensor", dtype="T", sizes="S"),
        inp("TrainingStepTensor", dtype="N"),
        out("OutputParametersTensor", dtype="T", sizes="S"),
        out("OutputFirstMomentTensor", dtype="T", sizes="S"),
        out("OutputSecondMomentTensor", dtype="T", sizes="S"),
        attr("LearningRate"),
        attr("Beta1", default=0.9),
        attr("Beta2", default=0.999),
        attr("Epsilon", default=1e-8),
    ),
    levels={FL_3_0: at(rank=(4, 4), T=FLOATS_UP_TO_32_BIT, N=UINT32, rules=_STEP_RULES)},
    shapes={
        "input_parameters": "...",
        "input_first_moment": "...",
        "input_second_moment": "...",
        "gradient": "...",
        "training_step": "1 1 1 1",
        "output_parameters": "...",
        "output_first_moment": "...",
        "output_second_moment": "...",
    },
    compute=_adam,
    in_place=("InputParametersTensor", "InputFirstMomentTensor", "InputSecondMomentTensor", "GradientTensor"),
    example=example(
        [[[[1, 2]]]],
        [[[[0, 0]]]],
        [[[[0, 0]]]],
        [[[[4, -8]]]],
        [[[[1]]]],
        ([[[[0.5, 2.5]]]], [[[[2, -4]]]], [[[[8, 32]]]]),
        learning_rate=0.5,
        beta1=0.5,
        beta2=0.5,
        epsilon=0,
    ),
    notes="The type of TrainingStepTensor is what the text of its page says, UINT32; a table there says "
    "floats. Steps count from 1.",
)
