"""Convolutions of 8-bit integers, less their zero points: sums that are exact, modulo 2^32.

As convolutions of floats: products of filters and of what windows see as columns, of pairs or fours of
channels (`integer_products`); or what views of the input see, added up, where each channel has a filter of
its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.jit import host
from anydml.codegen.kernel import group
from anydml.ops.call import Call
from anydml.ops.dtypes import FLOAT32, INT8, INT32, UINT8
from anydml.ops.expr import Expr, convert, read
from anydml.ops.reductions import row_sum
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.convolution_kernels import Windows, is_by_channel, tap_by_tap
from anydml.runtime.integer_products import (
    FILTER,
    ONE,
    SUM,
    WORD,
    Fours,
    Pairs,
    Terms,
    along,
    difference,
    four_times,
)
from anydml.runtime.launch import Array, RepeatedLaunch, packed, scratch
from anydml.runtime.matrix_kernels import MatrixLaunches


def sums_of_convolutions(
    tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> _Convolution:
    """What writes the sums of a `Call` of a convolution."""
    if is_by_channel(tensors["FilterTensor"].sizes, attributes):
        return _ByChannel(tensors, attributes, threads)
    return (_ByFours if host().fours else _ByPairs)(tensors, attributes, threads)


class _Convolution(ABC):
    """Of tensors of these sizes."""

    parts = 1
    """Channels that are one element."""

    def __init__(
        self, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
    ) -> None:
        self._threads, self._attributes = threads, attributes
        self._sizes = [tensors[f"{name}Tensor"].sizes for name in ("Input", "Filter", "Output")]
        self._types = [tensors[f"{name}Tensor"].data_type for name in ("Filter", "Input")]
        self._points = [f"{name}ZeroPointTensor" in tensors for name in ("Filter", "Input")]
        self._groups, self._channels = attributes["GroupCount"], self._sizes[1][1]
        self._windows = self._windows_of(-(-self._channels // self.parts))

    def _windows_of(self, channels: int) -> Windows:
        """`channels`: of a group."""
        (batch, _, *spatial), filters, made = self._sizes
        sizes = (batch, self._groups * channels, *spatial)
        return Windows(self._attributes, sizes, filters, made, self._threads)

    def _grouped(self, x: Array, channels: int) -> Array:
        """[N, C, ...] as [N, groups, C / groups, ...]."""
        return x.reshape(x.shape[0], self._groups, channels, *x.shape[2:])

    def _by_group(self, filters: Array) -> Array:
        """[M, ...] as [1, groups, M / groups, the rest]; of one for all, as it is."""
        count = filters.shape[0]
        return filters.reshape(1, self._groups if count > 1 else 1, -1 if count > 1 else 1, filters[0].size)

    def _given(self, x: Array | None, how: str) -> list[Array]:
        """A zero point beside tensors of the input's rank, if there is one."""
        return [] if x is None else [along(x, how, len(self._sizes[0]), self._threads)]

    def _differences(self, k: int) -> Expr:
        """Of filters (0) or of the input (1), with what is read behind them."""
        dtype = self._types[k]
        return difference(read(0, dtype), read(1, dtype) if self._points[k] else None)

    @abstractmethod
    def __call__(self, c: Call, into: Array) -> None:
        """Write the sums."""

    def _multiply(
        self, by: MatrixLaunches, weights: Array, columns: Array, into: Array, terms: Sequence[Array] = ()
    ) -> None:
        batch, filters = into.shape[:2]
        of_filters = [weights, *terms[:1]]
        if batch > 1:
            of_filters = [np.broadcast_to(x, (batch, *x.shape[1:])) for x in of_filters]
        made = into.reshape(batch, self._groups, filters // self._groups, -1)
        by.run([of_filters[0], columns, made], terms=[*of_filters[1:], *terms[1:]])


class _ByPairs(_Convolution):
    parts = 2

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._pairs = Pairs(self._threads)
        self._product = MatrixLaunches(SUM, self._threads, parts=2)

    def __call__(self, c: Call, into: Array) -> None:
        whole, inside = self._windows.around(WORD)
        halves = -(-self._channels // 2)
        self._pairs.of(
            self._grouped(c.input, self._channels), 2, c.input_zero_point, ONE, self._grouped(inside, halves)
        )
        weights = self._by_group(self._pairs.of(c.filter, 1, c.filter_zero_point, FILTER))
        self._multiply(self._product, weights, self._windows.columns(whole), into)


class _ByFours(_Convolution):
    """The input as it is; filters as the instruction wants them beside it."""

    parts = 4

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        a, b = self._types
        signed, threads = b is UINT8, self._threads
        self._a, self._b = Fours(a, INT8 if signed else UINT8, threads), Fours(b, b, threads)
        self._terms = Terms(self._a, self._b, self._points, threads)
        self._product = MatrixLaunches(SUM, threads, parts=4, a_signed=signed)
        spatial, types = len(self._windows.taps), (b,) * (1 + self._points[1])
        self._around = RepeatedLaunch(group((b,), (four_times(convert(read(0, b), INT32)),)), threads)
        self._sums = self._windows_of(1)
        channels = row_sum(self._differences(1), (-1 - spatial,))
        self._of_channels = RepeatedLaunch(group(types, (channels,)), threads)
        taps = row_sum(read(0, INT32), tuple(range(-2 * spatial, -spatial)))
        self._of_taps = RepeatedLaunch(group((INT32,), (taps,)), threads)

    def __call__(self, c: Call, into: Array) -> None:
        grouped, fours = self._grouped(c.input, self._channels), -(-self._channels // 4)
        p, q = self._given(c.filter_zero_point, FILTER), self._given(c.input_zero_point, ONE)
        whole, inside = self._windows.around(WORD)
        if q and inside.size < whole.size:
            self._around.alone([*q, whole])
        self._b.of(grouped, 2, self._grouped(inside, fours))
        weights = self._by_group(self._a.of(c.filter, 1))
        batch, places = into.shape[0], self._windows.places

        def columns(sums: Array) -> None:
            whole, inside = self._sums.around(WORD)
            self._of_channels.alone([grouped, *q, self._grouped(inside, 1)], grouped.shape)
            seen = self._sums.view(whole)
            ones = (1,) * len(places)
            self._of_taps.alone([seen, sums.reshape(batch, self._groups, *ones, *places)], seen.shape)

        points = [[self._by_group(x) for x in p], q]
        filters = self._by_group(packed(c.filter, self._threads))
        terms = self._terms.of(filters, points, (batch, self._groups, prod(places)), columns)
        self._multiply(self._product, weights, self._windows.columns(whole), into, terms)


class _ByChannel(_Convolution):
    """Tap by tap as FLOAT32, which holds the sums of so few exactly."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._filters, self._inputs = (
            RepeatedLaunch(
                group((t,) * (1 + point), (convert(self._differences(k), FLOAT32),)), self._threads
            )
            for k, (t, point) in enumerate(zip(self._types, self._points, strict=True))
        )
        count = prod(self._windows.taps)
        total = convert(tap_by_tap(count), INT32)
        self._total = RepeatedLaunch(group((FLOAT32,) * (2 * count), (total,)), self._threads)

    def __call__(self, c: Call, into: Array) -> None:
        whole, inside = self._windows.around(np.dtype(np.float32))
        self._inputs.alone([c.input, *self._given(c.input_zero_point, ONE), inside])
        weights = scratch(c.filter.shape, whole.dtype)
        self._filters.alone([c.filter, *self._given(c.filter_zero_point, FILTER), weights])
        self._total.alone([*self._windows.by_tap(whole, weights), into])
