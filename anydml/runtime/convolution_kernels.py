"""Convolutions by kernels: what windows see as columns, and a product of matrices with these.

    input --pad--> [N, C, ...] --windows--> [N, groups, C / groups * window, places]
                                            times filters [groups, M / groups, C / groups * window]

Where each channel has a filter of its own there is nothing to share between filters: an expression adds up
what views of the padded input have at each place of the window, and no columns are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from anydml.codegen.kernel import group
from anydml.codegen.matrix import SUM, C
from anydml.errors import require
from anydml.ops.call import Call, empty
from anydml.ops.dtypes import FLOAT16, FLOAT32, UINT32
from anydml.ops.enums import ConvolutionDirection, ConvolutionMode
from anydml.ops.expr import Expr, add, fma, mul, read
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, between, copying, packed, scratch
from anydml.runtime.matrix_kernels import MatrixLaunches, activated

MAX_TAPS = 49
"""Places of a window that an expression may have."""


def convolution_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> _Columns | _ByChannel | None:
    """What computes a `Call` of CONVOLUTION by kernels; None where a library, or its definition, does."""
    if tensors["InputTensor"].data_type not in (FLOAT32, FLOAT16):
        return None
    if not _is_able(tensors, attributes):
        return None
    filters, made = tensors["FilterTensor"].sizes, tensors["OutputTensor"].sizes
    windows = Windows(attributes, tensors["InputTensor"].sizes, filters, made, threads)
    kind = _ByChannel if is_by_channel(filters, attributes) else _Columns
    return kind(windows, attributes, "BiasTensor" in tensors)


def _is_able(tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any]) -> bool:
    filters, made = tensors["FilterTensor"].sizes, tensors["OutputTensor"].sizes
    forward = attributes["Direction"] is ConvolutionDirection.FORWARD
    turned = attributes["Mode"] is ConvolutionMode.CONVOLUTION and prod(filters[2:]) > 1
    return forward and not turned and not any(attributes["OutputPadding"]) and 0 not in (*filters, *made)


def is_by_channel(filters: Sequence[int], attributes: Mapping[str, Any]) -> bool:
    """Whether each channel has a filter of its own, of not too many taps."""
    alone = filters[1] == 1 and filters[0] == attributes["GroupCount"]
    return alone and 1 < prod(filters[2:]) <= MAX_TAPS


def best_by_kernels(tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any]) -> bool:
    """Whether kernels compute a convolution at least as fast as a library, whatever its size: of each channel
    alone, or of single elements, which is a product of matrices as it stands."""
    filters, x = tensors["FilterTensor"].sizes, tensors["InputTensor"]
    padded = any((*attributes["StartPadding"], *attributes["EndPadding"]))
    single = prod(filters[2:]) == 1 and not padded and max(attributes["Strides"]) == 1
    good = x.data_type is FLOAT32 and (is_by_channel(filters, attributes) or single)
    return good and _is_able(tensors, attributes)


class Windows:
    """What each window of a convolution sees, for an input of these sizes."""

    def __init__(
        self,
        attributes: Mapping[str, Any],
        sizes: Sequence[int],
        filters: Sequence[int],
        made: Sequence[int],
        threads: int | None,
    ) -> None:
        self.groups, self.threads = attributes["GroupCount"], threads
        self.taps, self.places = tuple(filters[2:]), tuple(made[2:])
        self._strides, self._dilations = attributes["Strides"], attributes["Dilations"]
        around = [*zip(attributes["StartPadding"], attributes["EndPadding"], strict=True)]
        self._inside = tuple(slice(a, a + n) for (a, _), n in zip(around, sizes[2:], strict=True))
        self._padded = (*sizes[:2], *(a + n + z for (a, z), n in zip(around, sizes[2:], strict=True)))
        self._copy = copying(UINT32, threads)

    def padded(self, x: Array) -> Array:
        """The input, or one with zeros around."""
        if self._padded == x.shape:
            return x
        whole, inside = self.around(x.dtype)
        self.copied(x, inside)
        return whole

    def around(self, dtype: np.dtype) -> tuple[Array, Array]:
        """Memory for an input with zeros around, and the part of it that is the input's."""
        whole = between(np.zeros(self._padded, dtype))
        return whole, whole[(slice(None), slice(None), *self._inside)]

    def view(self, x: Array) -> Array:
        """What windows see of an input with what is around it."""
        require(x.shape == self._padded)
        spatial = x.strides[2:]
        within = (s * d for s, d in zip(spatial, self._dilations, strict=True))
        from_one_to_the_next = (s * n for s, n in zip(spatial, self._strides, strict=True))
        for n, taps, places, d, s in zip(
            x.shape[2:], self.taps, self.places, self._dilations, self._strides, strict=True
        ):
            require((taps - 1) * d + (places - 1) * s < n)
        sizes = (*x.shape[:2], *self.taps, *self.places)
        strides = (*x.strides[:2], *within, *from_one_to_the_next)
        if x.flags.c_contiguous:  # NumPy compares with the buffer itself, in a tenth of the time
            return np.ndarray(sizes, x.dtype, x, 0, strides)
        return as_strided(x, sizes, strides, writeable=False)

    def columns(self, x: Array) -> Array:
        """The same as matrices: [N, groups, C / groups * window, places]."""
        seen = self.view(x)
        if prod(self.taps) > 1 or not seen.flags.c_contiguous:
            seen = self.copied(seen, scratch(seen.shape, seen.dtype))
        return seen.reshape(x.shape[0], self.groups, -1, prod(self.places))

    def by_tap(self, x: Array, filters: Array) -> list[Array]:
        """What there is of the input, and then of filters of single channels, for each place of a window."""
        every, one = (slice(None), slice(None)), (slice(None), 0)
        seen, column = self.view(x), (1, filters.shape[0], *[1] * len(self.taps))
        places = [*np.ndindex(*self.taps)]
        return [*(seen[(*every, *k)] for k in places), *(filters[(*one, *k)].reshape(column) for k in places)]

    def copied(self, x: Array, into: Array) -> Array:
        self._copy.alone([x.view(np.uint32), into.view(np.uint32)])
        return into


class _Columns:
    def __init__(self, windows: Windows, attributes: Mapping[str, Any], bias: bool) -> None:
        self._windows = windows
        end, self.activates = activated(add(SUM, C) if bias else SUM, attributes, 3)
        self._product = MatrixLaunches(end, windows.threads)

    def __call__(self, c: Call) -> Array:
        w = self._windows
        columns, result = w.columns(w.padded(c.input)), empty(c.output, c.input.dtype)
        batch, filters, places = c.input.shape[0], c.filter.shape[0], prod(w.places)
        weights = packed(c.filter, w.threads).reshape(1, w.groups, filters // w.groups, -1)
        made = (batch, w.groups, filters // w.groups, places)
        beside = []
        if c.bias is not None:
            bias = packed(c.bias, w.threads).reshape(1, w.groups, filters // w.groups, 1)
            beside = [np.broadcast_to(bias, made)]
        if batch > 1:
            weights = np.broadcast_to(weights, (batch, *weights.shape[1:]))
        self._product.run([weights, columns, result.reshape(made), *beside])
        return result


def tap_by_tap(count: int) -> Expr:
    """The sum of products of what `Windows.by_tap` gives for so many places."""
    seen, weights = ([read(first + k, FLOAT32) for k in range(count)] for first in (0, count))
    total: Expr = mul(seen[0], weights[0])
    for one, weight in zip(seen[1:], weights[1:], strict=True):
        total = fma(one, weight, total)
    return total


class _ByChannel:
    def __init__(self, windows: Windows, attributes: Mapping[str, Any], bias: bool) -> None:
        self._windows, count = windows, prod(windows.taps)
        total = tap_by_tap(count)
        if bias:
            total = add(total, read(2 * count, FLOAT32))
        rank = 2 + len(windows.taps)
        total, self.activates = activated(total, attributes, rank)
        kernel = group((FLOAT32,) * (2 * count + bias), (total,))
        self._launch = RepeatedLaunch(kernel, windows.threads)

    def __call__(self, c: Call) -> Array:
        w = self._windows
        result = empty(c.output, c.input.dtype)
        given = w.by_tap(w.padded(c.input), c.filter)
        if c.bias is not None:
            given.append(c.bias)
        self._launch.alone([*given, result])
        return result
