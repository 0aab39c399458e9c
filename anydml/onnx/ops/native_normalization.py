"""How programs normalize: statistics along axes, summed in float64, and every element by them."""

from __future__ import annotations

from collections.abc import Sequence

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.reductions import (
    AVERAGE,
    LARGEST,
    MEAN_SQUARE,
    NORM,
    SUM_OF_ABSOLUTES,
    TOTAL,
    fold_axes,
)
from anydml.codegen.program.values import Bounded, NotNative, Tensor
from anydml.onnx.ops.native import Inputs, Native, each_by_itself, of_float32, operand
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.ops.shared import axis_in
from anydml.ops import elementary, expr
from anydml.ops.dtypes import FLOAT32

ONE, OTHER, THIRD, FOURTH = (expr.read(k, FLOAT32) for k in range(4))
_STAGED_IN_FLOAT32 = 1


# ---- along an axis -----------------------------------------------------------------------------------


def _shifted_powers(b: ProgramBuilder, n: KnownNode, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest along the axis, what x is apart from it, and e to that, of which nothing overflows."""
    if n.version < 13:
        raise NotNative(f"{n.op.name} of several axes")
    top = b.use(fold_axes(b, x, [_axis(n, x)], True, LARGEST))
    apart = b.use(b.elementwise(expr.sub(ONE, OTHER), [x, top]))
    return top, apart, b.use(b.elementwise(elementary.exp(ONE), [apart]))


def _axis(n: KnownNode, x: Tensor) -> int:
    return axis_in(n.int("axis"), len(x.sizes))


def _before(n: KnownNode, inputs: Inputs, k: int) -> int | None:
    """An axis in front of the one from which on it is about all elements."""
    x = inputs[0]
    return (
        x.axis
        if k == 0 and isinstance(x, Bounded) and x.axis < axis_in(n.int("axis"), len(x.sizes))
        else None
    )


def before_axis(rule: Native) -> Native:
    return each_by_itself(rule, _before)


@before_axis
@of_float32
def softmax(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = b.use(operand(inputs))
    _, _, powers = _shifted_powers(b, n, x)
    total = fold_axes(b, powers, [_axis(n, x)], True, TOTAL)
    return [b.elementwise(expr.div(ONE, OTHER), [powers, total])]


@before_axis
@of_float32
def log_softmax(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = b.use(operand(inputs))
    _, apart, powers = _shifted_powers(b, n, x)
    total = fold_axes(b, powers, [_axis(n, x)], True, TOTAL)
    logarithm = b.use(b.elementwise(elementary.log(ONE), [total]))
    return [b.elementwise(expr.sub(ONE, OTHER), [apart, logarithm])]


@of_float32
def lp(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Where the norm is 0 so are the results."""
    x, p = b.use(operand(inputs)), n.int("p")
    if p not in (1, 2):
        raise NotNative(f"a norm {p}")
    norm = b.use(fold_axes(b, x, [_axis(n, x)], True, NORM if p == 2 else SUM_OF_ABSOLUTES))
    normal = expr.select(expr.eq(OTHER, 0.0), 0.0, expr.div(ONE, OTHER))
    return [b.elementwise(normal, [x, norm])]


# ---- by mean and variance ----------------------------------------------------------------------------


def _standard(
    b: ProgramBuilder, x: Tensor, axes: Sequence[int], epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What x is apart from its mean along axes, the standard deviation, and the mean."""
    mean = b.use(fold_axes(b, x, axes, True, AVERAGE))
    apart = b.use(b.elementwise(expr.sub(ONE, OTHER), [x, mean]))
    return apart, _deviation(b, apart, axes, epsilon), mean


def _deviation(b: ProgramBuilder, apart: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    squares = fold_axes(b, apart, axes, True, MEAN_SQUARE)
    return b.use(b.elementwise(expr.sqrt(expr.add(ONE, epsilon)), [squares]))


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
    x = b.use(operand(inputs))
    axes = sorted({axis_in(k, len(x.sizes)) for k in n.ints("axes") or []})
    if not axes:
        raise NotNative("MeanVarianceNormalization along no axes")
    apart, deviation, _ = _standard(b, x, axes, 0.0)
    return [b.elementwise(expr.div(ONE, expr.add(OTHER, 1e-9)), [apart, deviation])]


@before_axis
@of_float32
def layer(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = b.use(operand(inputs))
    apart, deviation, mean = _standard(b, x, _last_axes(n, x), n.float("epsilon"))
    result = b.elementwise(_SCALED, [apart, deviation, operand(inputs, 1)])
    if len(inputs) > 2 and inputs[2] is not None:
        result = b.elementwise(expr.add(ONE, OTHER), [result, inputs[2]])
    if not any(n.outputs[1:]):
        return [result]
    return [result, mean, b.elementwise(expr.div(1.0, ONE), [deviation])][: len(n.outputs)]


@before_axis
@of_float32
def root_mean_square(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = b.use(operand(inputs))
    deviation = _deviation(b, x, _last_axes(n, x), n.float("epsilon"))
    return [b.elementwise(_SCALED, [x, deviation, operand(inputs, 1)])]


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


@of_float32
def instance(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x = b.use(operand(inputs))
    if len(x.sizes) < 3:
        raise NotNative(f"InstanceNormalization of rank {len(x.sizes)}")
    scale, bias = _per_channel(b, x, inputs, (1, 2))
    apart, deviation, _ = _standard(b, x, range(2, len(x.sizes)), n.float("epsilon"))
    return [b.elementwise(expr.add(_SCALED, FOURTH), [apart, deviation, scale, bias])]


@of_float32
def group(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Scale and bias are per group at opset 18, per channel since 21."""
    x, groups = b.use(operand(inputs)), n.int("num_groups")
    if n.attribute("stash_type") not in (None, _STAGED_IN_FLOAT32):
        raise NotNative("statistics in another type than float32")
    if len(x.sizes) < 2 or groups < 1 or x.sizes[1] % groups:
        raise NotNative(f"{groups} groups of {list(x.sizes)}")
    parts = b.reshape(x, (x.sizes[0], groups, x.count // (x.sizes[0] * groups)))
    apart, deviation, _ = _standard(b, parts, [2], n.float("epsilon"))
    if n.version < 21:
        scale, bias = _per_channel(b, parts, inputs, (1, 2))
        moved = b.elementwise(expr.add(_SCALED, FOURTH), [apart, deviation, scale, bias])
        return [b.reshape(moved, x.sizes)]
    scale, bias = _per_channel(b, x, inputs, (1, 2))
    normal = b.reshape(b.elementwise(expr.div(ONE, OTHER), [apart, deviation]), x.sizes)
    return [b.elementwise(expr.add(expr.mul(ONE, OTHER), THIRD), [normal, scale, bias])]
