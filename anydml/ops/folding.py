"""Windows that slide over tensors: what they see as columns of a matrix, and columns added up again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from anydml.dataclass import dataclass, replace
from anydml.ops.attributes import UINTS
from anydml.ops.call import Array, Call
from anydml.ops.dtypes import UP_TO_64_BIT
from anydml.ops.families import FL_6_4, OUTPUT_SIZES
from anydml.ops.opdef import Rule, at, attr, example, inp, of_tensors, out, snake
from anydml.ops.rules import holds
from anydml.ops.shapes import said, window

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Windows over data of sizes (N, C, ...), one entry for each dimension behind the first two.

    Element w of window b lies at b * stride + w * dilation - start: outside of the data there are zeros.
    """

    sizes: Sizes
    blocks: Sizes
    """How many windows there are."""
    strides: Sizes
    dilations: Sizes
    start: Sizes

    def part(self, first: int, last: int) -> Windows:
        """The windows from `first` to before `last` along the first dimension."""
        return replace(
            self,
            blocks=(last - first, *self.blocks[1:]),
            start=(self.start[0] - first * self.strides[0], *self.start[1:]),
        )

    def unfold(self, x: Array) -> Array:
        """What each window sees, as (N, C, *sizes, *blocks); of `x` itself, if possible."""
        if prod(self.sizes) == 1 and not any(self.start):  # nothing overlaps
            steps = (slice(0, (b - 1) * s + 1, s) for b, s in zip(self.blocks, self.strides, strict=True))
            seen = x[(slice(None), slice(None), *steps)]
            if seen.shape[2:] == self.blocks:
                return seen.reshape((*x.shape[:2], *self.sizes, *self.blocks))
        columns = np.zeros((*x.shape[:2], *self.sizes, *self.blocks), x.dtype)
        self.unfold_into(x, columns)
        return columns

    def unfold_into(self, x: Array, columns: Array) -> None:
        """The same, put into zeros."""
        for place, elements in self._places(x.shape[2:]):
            columns[place] = x[elements]

    def fold(self, columns: Array, x: Array) -> None:
        """Add what each window has, (N, C, *sizes, *blocks), to the elements of `x` that it sees."""
        for place, elements in self._places(x.shape[2:]):
            x[elements] += columns[place]

    def _places(self, spatial: Sizes) -> Iterator[tuple[tuple[slice | int, ...], tuple[slice, ...]]]:
        """Places in columns beside those in the data, each as many as a slice can take at once.

        Windows and the elements of one are alike: the fewer of both are visited one by one.
        """
        by_element = prod(self.sizes) <= prod(self.blocks)
        visited, steps = (self.sizes, self.dilations) if by_element else (self.blocks, self.strides)
        run, run_steps = (self.blocks, self.strides) if by_element else (self.sizes, self.dilations)
        both = (slice(None), slice(None))
        slices = [
            [_within(run[d], run_steps[d], i * steps[d] - self.start[d], n) for i in range(visited[d])]
            for d, n in enumerate(spatial)
        ]
        for at_once in product(*(range(n) for n in visited)):
            found = [slices[d][i] for d, i in enumerate(at_once)]
            if any(s is None for s in found):
                continue
            places, elements = zip(*found, strict=True)
            yield both + (at_once + places if by_element else places + at_once), both + elements


def _within(count: int, step: int, offset: int, size: int) -> tuple[slice, slice] | None:
    """The numbers i below `count` with i * step + offset in a dimension, and where; None if there is none."""
    first = max(0, -(offset // step))
    last = min(count - 1, (size - 1 - offset) // step)
    if first > last:
        return None
    return slice(first, last + 1), slice(first * step + offset, last * step + offset + 1, step)


def spans(sizes: Sequence[int], dilations: Sequence[int]) -> Sizes:
    """The elements from the first to the last of a window, both included."""
    return tuple((w - 1) * d + 1 for w, d in zip(sizes, dilations, strict=True))


@window(
    "windows",
    "windows(S, K) = (S + start_padding + end_padding - (K - 1) * dilations - 1) / strides + 1, rounded down",
)
def fitting(c: Call, spatial: Sizes, sizes: Sizes) -> Sizes:
    """How many windows fit into padded data, by the attributes' usual names; below 1 if they do not."""
    padded = [n + s + e for n, s, e in zip(spatial, c.start_padding, c.end_padding, strict=True)]
    return tuple(
        (n - span) // stride + 1
        for n, span, stride in zip(padded, spans(sizes, c.dilations), c.strides, strict=True)
    )


def from_one_on(*fields: str) -> tuple[Rule, ...]:
    """Lists of numbers without a 0."""

    def rule(field: str) -> Rule:
        parameter = snake(field)
        return holds(f"{field} from 1 on", lambda c: 0 not in getattr(c, parameter), parameter)

    return tuple(rule(field) for field in fields)


_NO_ZEROS = from_one_on("WindowSizes", "Strides", "Dilations")


def _windows(c: Call, spatial: Sizes) -> Windows:
    blocks = fitting(c, spatial, c.window_sizes)
    return Windows(c.window_sizes, blocks, c.strides, c.dilations, c.start_padding)


# ---- columns of windows ------------------------------------------------------------------------------------


_COLUMNS = said("[1..., N, C * product of window_sizes, product of windows(S, window_sizes)]")


def _unfold_sizes(c: Call) -> Sizes:
    n, channels, *spatial = c.input.shape
    blocks = fitting(c, tuple(spatial), c.window_sizes)
    if min(*blocks, *c.window_sizes) < 1:
        raise ValueError("the window does not fit")
    columns = (n, channels * prod(c.window_sizes), prod(blocks))
    output = getattr(c, "output", None)
    return (1,) * (0 if output is None else output.ndim - 3) + columns


_UNFOLD_RULES = (
    *_NO_ZEROS,
    holds(
        "OutputTensor of no more dimensions than InputTensor",
        lambda c: c.output.ndim <= c.input.ndim,
        lambda c: f"{c.output.ndim} for {c.input.ndim}",
    ),
    holds(
        "WindowSizes, with Dilations, that fit into the padded InputTensor",
        lambda c: min(fitting(c, c.input.shape[2:], c.window_sizes)) >= 1,
        lambda c: f"{c.window_sizes} for {c.input.shape[2:]}",
    ),
)


def _unfold(c: Call) -> Array:
    windows = _windows(c, c.input.shape[2:])
    columns = np.zeros(c.output.shape, c.input.dtype)
    windows.unfold_into(c.input, columns.reshape(*c.input.shape[:2], *windows.sizes, *windows.blocks))
    return columns


UNFOLD = of_tensors(
    name="UNFOLD",
    doc="Output has, in each of its columns, the elements of Input that a window sees as it slides over it.",
    text="output[n, (channel, window element), window] = input[n, channel, window * strides"
    " + window element * dilations - start_padding], 0 in the padding",
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        attr("WindowSizes", UINTS, per="spatial"),
        attr("Strides", UINTS, 1, per="spatial"),
        attr("Dilations", UINTS, 1, per="spatial"),
        attr("StartPadding", UINTS, 0, per="spatial"),
        attr("EndPadding", UINTS, 0, per="spatial"),
    ),
    levels={FL_6_4: at(rank=(3, 8), T=UP_TO_64_BIT, rules=_UNFOLD_RULES)},
    sizes=_unfold_sizes,
    shapes={"input": "N C S...", "output": _COLUMNS},
    compute=_unfold,
    moves=True,
    example=example(
        [[[[1, 2, 3], [4, 5, 6]]]],
        [[[1, 2], [2, 3], [4, 5], [5, 6]]],
        window_sizes=[2, 2],
    ),
    notes="DirectML's page says that both tensors have as many dimensions, but its output has three: here "
    "there may be sizes of 1 in front of them. It names no data types; here there are all of them.",
)


def _fold_sizes(c: Call) -> Sizes:
    return tuple(c.output_sizes)


def _is_of_columns(c: Call) -> bool:
    """Whether the input is (N, channels of windows, windows), with sizes of 1 in front."""
    *front, n, rows, windows = c.input.shape
    batch, channels, *spatial = c.output_sizes
    blocks = fitting(c, tuple(spatial), c.window_sizes)
    return (
        prod(front) == 1
        and n == batch
        and rows == channels * prod(c.window_sizes)
        and (min(blocks) >= 1 and windows == prod(blocks))
    )


_FOLD_RULES = (
    *_NO_ZEROS,
    holds(
        "InputTensor of no more dimensions than OutputTensor",
        lambda c: c.input.ndim <= len(c.output_sizes),
        lambda c: f"{c.input.ndim} for {len(c.output_sizes)}",
    ),
    holds(
        "InputTensor {N, C * WindowSizes, windows that fit the padded output} for OutputTensor {N, C, ...}",
        _is_of_columns,
        lambda c: f"{c.input.shape} for {tuple(c.output_sizes)}",
    ),
)


def _fold(c: Call) -> Array:
    batch, channels, *spatial = c.output.shape
    windows = _windows(c, tuple(spatial))
    total = np.zeros(c.output.shape, c.input.dtype)
    windows.fold(c.input.reshape(batch, channels, *windows.sizes, *windows.blocks), total)
    return total


FOLD = of_tensors(
    name="FOLD",
    doc="Output has the sums of what windows have for its elements, the reverse of UNFOLD: columns of Input.",
    text="output[n, channel, element] = sum(input[n, (channel, window element), window]) over the windows"
    " that see it there",
    operands=(
        inp("InputTensor", dtype="T"),
        out("OutputTensor", dtype="T"),
        attr("WindowSizes", UINTS, per="spatial"),
        attr("Strides", UINTS, 1, per="spatial"),
        attr("Dilations", UINTS, 1, per="spatial"),
        attr("StartPadding", UINTS, 0, per="spatial"),
        attr("EndPadding", UINTS, 0, per="spatial"),
    ),
    levels={FL_6_4: at(rank=(3, 8), T=UP_TO_64_BIT, rules=_FOLD_RULES)},
    asks=(OUTPUT_SIZES,),
    sizes=_fold_sizes,
    shapes={"input": _COLUMNS, "output": "N C S..."},
    compute=_fold,
    example=example(
        [[[1, 2], [2, 3], [4, 5], [5, 6]]],
        [[[[1, 4, 3], [4, 10, 6]]]],
        output_sizes=[1, 1, 2, 3],
        window_sizes=[2, 2],
        strides=[1, 1],
        dilations=[1, 1],
        start_padding=[0, 0],
        end_padding=[0, 0],
    ),
    notes="DirectML's page says that both tensors have as many dimensions, but its input has three: here "
    "there may be sizes of 1 in front of them. It names no data types; here there are all of them. Integers "
    "are added modulo 2 to their width, FLOAT16 in float32.",
)
