"""Operators that read or write a window of a tensor, one definition each."""

from __future__ import annotations

import numpy as np

from anydml.ops.attributes import INTS, UINTS
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import FLOAT16, FLOAT32, INT16, INT32, UINT16, UINT32, UP_TO_32_BIT, UP_TO_64_BIT
from anydml.ops.families import FL_1_0, FL_2_1, FL_3_0, FL_3_1, FL_4_1
from anydml.ops.layout import field_of, same_ranks
from anydml.ops.opdef import Asked, Rule, at, attr, example, inp, of_tensors, out
from anydml.ops.rules import holds
from anydml.ops.shapes import said

_SLICE_RULES = (
    same_ranks("input", "output"),
    holds(
        "Offsets + Strides * (Sizes - 1) below the sizes of InputTensor",
        lambda c: all(
            o + s * (n - 1) < size
            for o, s, n, size in zip(c.offsets, c.strides, c.sizes, c.input.shape, strict=True)
        ),
        lambda c: f"{c.offsets} + {c.strides} * ({c.sizes} - 1) in {c.input.shape}",
    ),
)


def _slice_sizes(c: Call) -> tuple[int, ...]:
    return tuple(n for n, _ in zip(c.sizes, c.input.shape, strict=True))


def _steps(start: int, step: int, count: int) -> slice:
    """`count` elements from `start` on; a step of 0 gives one, to repeat."""
    if step == 0:
        return slice(start, start + 1)
    stop = start + step * count
    return slice(start, stop if stop >= 0 else None, step)


def _slice(c: Call) -> Array:
    steps = map(_steps, c.offsets, c.strides, c.sizes)
    return np.broadcast_to(c.input[tuple(steps)], c.sizes)


SLICE = of_tensors(
    name="SLICE",
    doc="Output is Sizes elements of the input along each dimension, from Offsets on, Strides apart.",
    text="output[i, j, ...] = input[offsets + strides * (i, j, ...)]",
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        attr("Offsets", UINTS, per="dimension"),
        attr("Sizes", UINTS, per="dimension"),
        attr("Strides", UINTS, per="dimension"),
    ),
    levels={
        FL_1_0: at(rank=(4, 5), T=(FLOAT32, FLOAT16, INT32, INT16, UINT32, UINT16), rules=_SLICE_RULES),
        FL_2_1: at(rank=(4, 5), T=UP_TO_32_BIT, rules=_SLICE_RULES),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_SLICE_RULES),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, rules=_SLICE_RULES),
    },
    sizes=_slice_sizes,
    shapes={"input": "...", "output": said("sizes")},
    view=_slice,
    example=example(
        [[1, 2, 3, 4], [5, 6, 7, 8]], [[2, 4], [6, 8]], offsets=[0, 1], sizes=[2, 2], strides=[1, 2]
    ),
    notes="DirectML's documents do not forbid a stride of 0: it repeats one element.",
)


def _window_rules(whole: str, part: str) -> tuple[Rule, ...]:
    """Of the tensor that windows lie in, and the one that has their elements."""

    def inside(c: Call) -> bool:
        windows = zip(c.input_window_offsets, c.input_window_sizes, getattr(c, whole).shape, strict=True)
        return all(offset + n <= size for offset, n, size in windows)

    return (
        same_ranks(whole, part),
        holds(
            "InputWindowSizes of at least 1", lambda c: min(c.input_window_sizes) > 0, "input_window_sizes"
        ),
        holds(
            f"InputWindowOffsets + InputWindowSizes of at most the sizes of {field_of(whole)}",
            inside,
            lambda c: f"{c.input_window_offsets} + {c.input_window_sizes} in {getattr(c, whole).shape}",
        ),
        holds(
            "InputWindowStrides other than 0",
            lambda c: 0 not in c.input_window_strides,
            "input_window_strides",
        ),
        holds(
            f"sizes of {field_of(part)} of at most 1 + (InputWindowSizes - 1) / abs(InputWindowStrides)",
            lambda c: all(
                n <= most for n, most in zip(getattr(c, part).shape, _window_counts(c), strict=True)
            ),
            lambda c: f"{getattr(c, part).shape} where {_window_counts(c)} fit",
        ),
    )


_WINDOWS = (
    attr("InputWindowOffsets", UINTS, per="dimension"),
    attr("InputWindowSizes", UINTS, per="dimension"),
    attr("InputWindowStrides", INTS, per="dimension"),
)
_COUNTS = "1 + (input_window_sizes - 1) / abs(input_window_strides)"


def _window_counts(c: Call) -> tuple[int, ...]:
    """How many elements fit into each window."""
    sizes = zip(c.input_window_sizes, c.input_window_strides, strict=True)
    return tuple(1 + max(n - 1, 0) // abs(step) for n, step in sizes)


def _windows(c: Call, counts: tuple[int, ...]) -> tuple[slice, ...]:
    """The first `counts` elements of the windows; a negative stride begins at a window's end."""
    windows = zip(c.input_window_offsets, c.input_window_sizes, c.input_window_strides, counts, strict=True)
    return tuple(_steps(offset if s > 0 else offset + n - 1, s, k) for offset, n, s, k in windows)


def _slice1_sizes(c: Call) -> tuple[int, ...]:
    if c.output_sizes is not None:
        return tuple(c.output_sizes)
    return tuple(n for n, _ in zip(_window_counts(c), c.input.shape, strict=True))


_SLICE1_RULES = _window_rules("input", "output")

SLICE1 = of_tensors(
    name="SLICE1",
    doc="Output is the input's window in steps of InputWindowStrides, backwards where they are negative.",
    text="output[i, j, ...] = window[input_window_strides * (i, j, ...)]",
    operands=(inp("InputTensor", dtype="T"), out("OutputTensor", dtype="T"), *_WINDOWS),
    levels={
        FL_2_1: at(rank=(4, 5), T=UP_TO_32_BIT, rules=_SLICE1_RULES),
        FL_3_0: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_SLICE1_RULES),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, rules=_SLICE1_RULES),
    },
    asks=(
        Asked(
            "output_sizes",
            "Sequence[int] | None",
            "the output's sizes, if not as many as the window has",
            lambda c: c.output.shape,
            default=None,
        ),
    ),
    sizes=_slice1_sizes,
    shapes={"input": "...", "output": said(f"{_COUNTS} each, or output_sizes of at most that")},
    view=lambda c: c.input[_windows(c, c.output.shape)],
    example=example(
        [[1, 2, 3, 4], [5, 6, 7, 8]],
        [[4, 2], [8, 6]],
        input_window_offsets=[0, 1],
        input_window_sizes=[2, 3],
        input_window_strides=[1, -2],
    ),
)


def _slice_grad(c: Call) -> Array:
    gradient = np.zeros(c.output_gradient.shape, c.output_gradient.dtype)
    gradient[_windows(c, c.input_gradient.shape)] = c.input_gradient
    return gradient


_SLICE_GRAD_RULES = _window_rules("output_gradient", "input_gradient")

SLICE_GRAD = of_tensors(
    name="SLICE_GRAD",
    doc="OutputGradient is InputGradient where SLICE1 reads its input, and 0 elsewhere.",
    text="window[input_window_strides * (i, j, ...)] = input_gradient[i, j, ...]; 0 elsewhere",
    operands=(
        inp("InputGradientTensor", dtype="T"),
        out("OutputGradientTensor", dtype="T"),
        *_WINDOWS,
    ),
    levels={
        FL_3_0: at(rank=(4, 5), T=UP_TO_32_BIT, rules=_SLICE_GRAD_RULES),
        FL_3_1: at(rank=(1, 8), T=UP_TO_32_BIT, rules=_SLICE_GRAD_RULES),
        FL_4_1: at(rank=(1, 8), T=UP_TO_64_BIT, rules=_SLICE_GRAD_RULES),
    },
    asks=(
        Asked(
            "output_gradient_sizes",
            "Sequence[int]",
            "the sizes of what was sliced",
            lambda c: c.output_gradient.shape,
        ),
    ),
    sizes=lambda c: c.output_gradient_sizes,
    shapes={
        "input_gradient": said(f"at most {_COUNTS} each"),
        "output_gradient": said("output_gradient_sizes"),
    },
    compute=_slice_grad,
    moves=True,
    example=example(
        [[1, 2]],
        [[0, 2, 0, 1], [0, 0, 0, 0]],
        output_gradient_sizes=[2, 4],
        input_window_offsets=[0, 1],
        input_window_sizes=[1, 3],
        input_window_strides=[1, -2],
    ),
)
