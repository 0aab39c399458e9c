"""How programs normalize: statistics along axes, summed in float64, and every element by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anydml.codegen import program
from anydml.codegen.program.foldings import AVERAGE, LARGEST, MEAN_SQUARE, NORM, SUM_OF_ABSOLUTES, TOTAL
from anydml.codegen.program.refusal import NotNative
from anydml.onnx.ops.native import Inputs, Native, each_by_itself, of_float32, operand
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.ops.shared import axis_in
from anydml.ops import elementary, expr
from anydml.ops.dtypes import FLOAT32

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.rows import Rule, Steps
    from anydml.codegen.program.values import Tensor

ONE, OTHER, THIRD, FOURTH = (expr.read(k, FLOAT32) for k in range(4))
_STAGED_IN_FLOAT32 = 1


# ---- along an axis -----------------------------------------------------------------------------------


def _axis(n: KnownNode, x: Tensor) -> int:
    return axis_in(n.int("axis"), len(x.sizes))


def _before(n: KnownNode, inputs: Inputs, k: int) -> int | None:
    """An axis in front of the one from which on it is about all elements."""
    x = inputs[0]
    return (
        x.axis
        if k == 0 and isinstance(x, program.Bounded) and x.axis < axis_in(n.int("axis"), len(x.sizes))
        else None
    )


def before_axis(rule: Native) -> Native:
    return each_by_itself(rule, _before)


def _one_axis(n: KnownNode, x: Tensor) -> list[int]:
    if n.version < 13:
        raise NotNative(f"{n.op.name} of several axes")
    return [_axis(n, x)]


@before_axis
@of_float32
def softmax(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """By powers of what is apart from the largest, of which nothing overflows."""

    def rule(s: Steps, x: Any) -> Any:
        powers = s.keep(s.each(elementary.exp(expr.sub(ONE, OTHER)), x, s.fold(x, LARGEST)))
        return s.each(expr.div(ONE, OTHER), powers, s.fold(powers, TOTAL))

    x = operand(inputs)
    return [program.by_rows(b, x, _one_axis(n, x), [], rule)]


@before_axis
@of_float32
def log_softmax(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    def rule(s: Steps, x: Any) -> Any:
        apart = s.keep(s.each(expr.sub(ONE, OTHER), x, s.fold(x, LARGEST)))
        total = s.fold(s.keep(s.each(elementary.exp(ONE), apart)), TOTAL)
        return s.each(expr.sub(ONE, OTHER), apart, s.keep(s.each(elementary.log(ONE), total)))

    x = operand(inputs)
    return [program.by_rows(b, x, _one_axis(n, x), [], rule)]


@of_float32
def lp(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Where the norm is 0 so are the results."""
    x, p = operand(inputs), n.int("p")
    if p not in (1, 2):
        raise NotNative(f"a norm {p}")
    normal = expr.select(expr.eq(OTHER, 0.0), 0.0, expr.div(ONE, OTHER))

    def rule(s: Steps, x: Any) -> Any:
        return s.each(normal, x, s.fold(x, NORM if p == 2 else SUM_OF_ABSOLUTES))

    return [program.by_rows(b, x, [_axis(n, x)], [], rule)]


# ---- by mean and variance ----------------------------------------------------------------------------


def _standard(s: Steps, x: Any, epsilon: float) -> tuple[Any, Any, Any]:
    """What x is apart from its mean, the standard deviation, and the mean."""
    mean = s.fold(x, AVERAGE)
    apart = s.keep(s.each(expr.sub(ONE, OTHER), x, mean))
    return apart, _deviation(s, apart, epsilon), mean


def _deviation(s: Steps, apart: Any, epsilon: float) -> Any:
    squares = s.fold(apart, MEAN_SQUARE)
    return s.keep(s.each(expr.sqrt(expr.add(ONE, epsilon)), squares))


_SCALED = expr.mul(expr.div(ONE, OTHER), THIRD)
"""What is apart from the mean, the deviation and a scale."""


def _per_channel(b: ProgramBuilder, x: Tensor, inputs: Inputs, places: Sequence[int]) -> list[Tensor]:
    """Inputs of a number for each channel, which broadcast with x of [N, C, ...]."""
    channels = x.sizes[1] if len(x.sizes) > 1 else 1
    found = [operand(inputs, k) for k in places]
    if any(t.sizes != (channels,) for t in found):
        raise NotNative("parameters that are not one for each channel")
    return [b.reshape(t, (channels, *[1] * (len(x.sizes) - 2))) for t in found]


def _last_axes(n: KnownNode, x: Tensor) -> list[int]:
    if n.attribute("stash_type") not in (None, _STAGED_IN_FLOAT32):
        raise NotNative("statistics in another type than float32")
    return [*range(_axis(n, x), len(x.sizes))]


@of_float32
def mean_variance(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = operand(inputs)
    axes = sorted({axis_in(k, len(x.sizes)) for k in n.ints("axes") or []})
    if not axes:
        raise NotNative("MeanVarianceNormalization along no axes")

    def rule(s: Steps, x: Any) -> Any:
        apart, deviation, _ = _standard(s, x, 0.0)
        return s.each(expr.div(ONE, expr.add(OTHER, 1e-9)), apart, deviation)

    return [program.by_rows(b, x, axes, [], rule)]


@before_axis
@of_float32
def layer(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, scale = operand(inputs), operand(inputs, 1)
    beside = [scale] if len(inputs) < 3 or inputs[2] is None else [scale, inputs[2]]
    axes, epsilon = _last_axes(n, x), n.float("epsilon")

    def statistics(s: Steps, x: Any) -> tuple[Any, Any, Any]:
        apart, deviation, mean = _standard(s, x, epsilon)
        return apart, s.keep(s.each(expr.div(1.0, ONE), deviation)), mean

    def rule(s: Steps, x: Any, *scale_and_bias: Any) -> Any:
        apart, inverse, _ = statistics(s, x)
        scaled = expr.mul(expr.mul(ONE, OTHER), THIRD)
        return s.each(
            expr.add(scaled, FOURTH) if scale_and_bias[1:] else scaled, apart, inverse, *scale_and_bias
        )

    if not any(n.outputs[1:]):
        return [program.by_rows(b, x, axes, beside, rule)]
    s, x = program.Passes(b, axes), b.use(x)
    _, inverse, mean = statistics(s, x)
    return [rule(s, x, *beside), mean, inverse][: len(n.outputs)]


@before_axis
@of_float32
def root_mean_square(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, epsilon = operand(inputs), n.float("epsilon")

    def rule(s: Steps, x: Any, scale: Any) -> Any:
        return s.each(_SCALED, x, _deviation(s, x, epsilon), scale)

    return [program.by_rows(b, x, _last_axes(n, x), [operand(inputs, 1)], rule)]


@of_float32
def batch(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """As inference does it."""
    x = operand(inputs)
    if n.version < 9 or n.attribute("training_mode") or any(n.outputs[1:]) or not x.sizes:
        raise NotNative("BatchNormalization of training, or of an opset before 9")
    scale, bias, mean, variance = _per_channel(b, x, inputs, (1, 2, 3, 4))
    factor = expr.div(ONE, expr.sqrt(expr.add(OTHER, n.float("epsilon"))))
    factors = b.use(b.elementwise(factor, [scale, variance]))
    moved = expr.add(expr.mul(expr.sub(ONE, OTHER), THIRD), FOURTH)
    return [b.elementwise(moved, [x, mean, factors, bias])]


def _scaled(epsilon: float) -> Rule:
    """With a scale and a bias."""

    def rule(s: Steps, x: Any, scale: Any, bias: Any) -> Any:
        apart, deviation, _ = _standard(s, x, epsilon)
        return s.each(expr.add(_SCALED, FOURTH), apart, deviation, scale, bias)

    return rule


@of_float32
def instance(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = operand(inputs)
    if len(x.sizes) < 3:
        raise NotNative(f"InstanceNormalization of rank {len(x.sizes)}")
    beside = _per_channel(b, x, inputs, (1, 2))
    return [program.by_rows(b, x, range(2, len(x.sizes)), beside, _scaled(n.float("epsilon")))]


@of_float32
def group(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Scale and bias are per group at opset 18, per channel since 21."""
    x, groups, epsilon = operand(inputs), n.int("num_groups"), n.float("epsilon")
    if n.attribute("stash_type") not in (None, _STAGED_IN_FLOAT32):
        raise NotNative("statistics in another type than float32")
    if len(x.sizes) < 2 or groups < 1 or x.sizes[1] % groups:
        raise NotNative(f"{groups} groups of {list(x.sizes)}")
    parts = b.reshape(x, (x.sizes[0], groups, x.count // (x.sizes[0] * groups)))
    if n.version < 21:
        beside = _per_channel(b, parts, inputs, (1, 2))
        return [b.reshape(program.by_rows(b, parts, [2], beside, _scaled(epsilon)), x.sizes)]

    def normal(s: Steps, x: Any) -> Any:
        apart, deviation, _ = _standard(s, x, epsilon)
        return s.each(expr.div(ONE, OTHER), apart, deviation)

    scale, bias = _per_channel(b, x, inputs, (1, 2))
    normalized = b.reshape(program.by_rows(b, parts, [2], [], normal), x.sizes)
    return [b.elementwise(expr.add(expr.mul(ONE, OTHER), THIRD), [normalized, scale, bias])]
