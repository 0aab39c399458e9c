"""REDUCE's MULTIPLY by kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from anydml.codegen.descriptor import DescriptorTemplate, template_of
from anydml.codegen.kernel import shared_out
from anydml.codegen.product import ProductSpec, ProductWriter
from anydml.codegen.row_writer import body_address
from anydml.errors import require
from anydml.ops.call import Call, Implementation
from anydml.ops.dtypes import FLOAT16, FLOAT32, SIZE
from anydml.ops.enums import ReduceFunction
from anydml.ops.opdef import Operator
from anydml.ops.reduction import scaled
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, packed
from anydml.runtime.threads import pool

PARTS = 16
"""Of a long line, where there are fewer lines: as many on any number of threads."""
MIN_PART = 1 << 10
"""Elements of one."""


def product_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of products by a kernel; None where its definition is as good."""
    if attributes["Function"] is not ReduceFunction.MULTIPLY:
        return None
    given, axes = tensors["InputTensor"], sorted(attributes["Axes"])
    sizes = given.sizes
    if not axes or axes[-1] - axes[0] + 1 != len(axes):
        return None
    before, behind = prod(sizes[: axes[0]]), prod(sizes[axes[-1] + 1 :])
    length = prod(sizes[axes[0] : axes[-1] + 1])
    dtype = FLOAT32 if given.data_type is FLOAT16 else given.data_type
    spec = ProductSpec(dtype, beside=behind > 1)
    launch = _ProductLaunch(spec, threads)
    parts = PARTS if behind == 1 and before < PARTS and length >= PARTS * MIN_PART else 1
    part = length // parts

    def compute(c: Call) -> Array:
        x = packed(c.input, threads)
        if spec.beside:
            found = launch.products(x.reshape(before, length, behind).transpose(0, 2, 1))
        else:
            lines = x.reshape(before, length)
            found = launch.products(lines[:, : parts * part].reshape(before, parts, part))
            if parts * part < length:
                rest = launch.products(lines[:, np.newaxis, parts * part :])
                found = [np.concatenate(both, axis=1) for both in zip(found, rest, strict=True)]
            if parts > 1:
                found = [_multiplied(found[0]), *(e.sum(1) for e in found[1:])]
        if not spec.floating:
            return found[0].reshape(c.output.shape)
        with np.errstate(all="ignore"):
            return scaled(*found).reshape(c.output.shape)

    return compute


def _multiplied(parts: Array) -> Array:
    with np.errstate(all="ignore"):
        product: Array = parts.prod(1, parts.dtype)
        return product


class _ProductLaunch(RepeatedLaunch):
    """Over lines in two dimensions. Arrays: the input, with the lines along its last dimension, and of each
    line its product; of floats the mantissas and the powers of two."""

    def __init__(self, spec: ProductSpec, threads: int | None) -> None:
        self._spec = spec
        self._threads, self._known = threads, {}

    def products(self, x: Array) -> list[Array]:
        sizes, spec = x.shape[:2], self._spec
        found = [np.empty(sizes, np.float64 if spec.floating else x.dtype)]
        if spec.floating:
            found.append(np.empty(sizes, np.int64))
        self([x, *found])
        return found

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, (x, *made) = self._spec, arrays
        require(
            x.itemsize == SIZE[spec.dtype],
            x.strides[1 if spec.beside else 2] == x.itemsize,
            len(made) == (2 if spec.floating else 1),
            all(y.shape == x.shape[:2] and y.flags.c_contiguous for y in made),
            all(y.itemsize == SIZE[spec.wide] for y in made),
        )
        before, inner, length = x.shape
        values = {"length": length, "along": x.strides[2]}
        steps = dict(zip(spec.names, [a.strides for a in arrays], strict=False))
        descriptor = shared_out(
            body_address(ProductWriter, spec),
            inner,
            [(before, [steps[n][0] if n in steps else 0 for n in spec.names])],
            [values.get(n, 0) for n in spec.names],
            [steps[n][1] if n in steps else 0 for n in spec.names],
            row=length,
            cost=2 * SIZE[spec.dtype],
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))
