"""Products of matrices by kernels, with bias and activation on the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anydml.codegen.descriptor import DescriptorTemplate, template_of
from anydml.codegen.jit import host
from anydml.codegen.kernel import shared_out
from anydml.codegen.matrix import (
    SUM,
    WIDTH,
    C,
    MatrixSpec,
    MatrixWriter,
    is_small,
    rounded,
    tile_of,
    tile_of_dots,
)
from anydml.codegen.row_writer import body_address
from anydml.directml.weights import has_rows, replace_reads
from anydml.errors import require
from anydml.ops.attributes import Activation
from anydml.ops.call import Call, Implementation, empty
from anydml.ops.dtypes import FLOAT16, FLOAT32, UINT32
from anydml.ops.enums import MatrixTransform
from anydml.ops.expr import Expr, add, mul
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import Array, RepeatedLaunch, copying, not_alone, packed, scratch
from anydml.runtime.threads import cores, default_threads, pool

MIN_BLAS, MIN_BLAS_DOTS, MIN_BLAS_ROWS = 1 << 23, 1 << 22, 8
"""Multiply-adds from which NumPy's BLAS is faster than kernels of vectors of up to 32 bytes; such of columns
that lie as rows do; and from how many rows on."""
MIN_BLAS_ROW = 1 << 20
"""The same of one row, which a kernel does not share among threads."""
MAX_BYTES = 1 << 24
"""Of the first matrix, all of which is read for each tile of columns: what is not far from a core."""
MIN_PANELS_ROWS = 128
MIN_PANELS_DEPTH = 1 << 10
MIN_TURNED_ROWS, MIN_FAR_ROWS, MAX_NEAR = 64, 256, 1 << 18
"""Rows that a matrix is turned for, and one of more elements than stay near."""
PAGE = 1 << 12
"""Lines so far apart fall upon each other in caches, which have no room for a tile's columns then. For so
many rows and lines they are copied in the order in which they are read, again and again."""


def matrix_kernel(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], threads: int | None
) -> Implementation | None:
    """What computes a `Call` of GEMM by a kernel; None where its definition is as good."""
    if tensors["ATensor"].data_type not in (FLOAT32, FLOAT16):
        return None
    sizes = tensors["OutputTensor"].sizes
    turned = [attributes[f"Trans{name}"] is MatrixTransform.TRANSPOSE for name in "AB"]
    depth = tensors["ATensor"].sizes[-2 if turned[0] else -1]
    if 0 in sizes or depth == 0 or (sizes[-1] > 1 and sizes[-2] * depth * WIDTH > MAX_BYTES):
        return None
    if _is_for_blas(sizes[-2], depth, sizes[-1], turned[1]) and (threads or default_threads()) == cores():
        return _by_blas
    return Product(sizes, turned, attributes, "CTensor" in tensors, threads)


def _is_for_blas(rows: int, depth: int, columns: int, dots: bool) -> bool:
    if host().vector_bytes >= 64:
        return False
    if rows < MIN_BLAS_ROWS:
        return rows == 1 and not dots and depth * columns >= MIN_BLAS_ROW and cores() > 1
    return rows * depth * columns >= (MIN_BLAS_DOTS if dots else MIN_BLAS)


def _by_blas(c: Call) -> Array:
    """By NumPy's library, which takes all cores."""
    not_alone()
    result: Array = c.by_definition()
    return result


class Product:
    """A product of matrices of these sizes, for tensors of any layout."""

    def __init__(
        self,
        sizes: Sequence[int],
        turned: Sequence[bool],
        attributes: Mapping[str, Any],
        c: bool,
        threads: int | None,
    ) -> None:
        self._turned, self._threads = turned, threads
        end: Expr = SUM if attributes["Alpha"] == 1 else mul(SUM, attributes["Alpha"])
        if c:
            end = add(end, C if attributes["Beta"] == 1 else mul(C, attributes["Beta"]))
        end, self.activates = activated(end, attributes, len(sizes))
        self._product = MatrixLaunches(end, threads)

    def __call__(self, c: Call) -> Array:
        a, b = (
            np.swapaxes(x, -1, -2) if turned else x
            for x, turned in zip((c.a, c.b), self._turned, strict=True)
        )
        dots = _packed(a, -1) and _packed(b, -2) and (b.shape[-1] == 1 or not _packed(b, -1))
        dots = dots and not _pays_to_turn(c.output.shape[-2], *b.shape[-2:])
        if not dots and not _packed(b, -1):
            b = self._product.copied(b, scratch(b.shape, b.dtype))
        result = empty(c.output, a.dtype)
        bias = None if c.c is None else np.broadcast_to(c.c, result.shape)
        if bias is not None:
            bias = with_neighbours(bias, self._threads)
        self._product.run([a, b, result, *([] if bias is None else [bias])], dots)
        return result


def activated(end: Expr, attributes: Mapping[str, Any], rank: int) -> tuple[Expr, bool]:
    """An expression with an operator's fused activation, if that is of one element; and whether it is."""
    activation = attributes.get("FusedActivation")
    if not isinstance(activation, Activation):
        return end, False
    meaning = activation.operator.expression((FLOAT32,), FLOAT32, activation.attributes, rank)
    alone = not has_rows(meaning)
    return (replace_reads(meaning, {0: end}) if alone else end), alone


def _pays_to_turn(rows: int, depth: int, columns: int) -> bool:
    """Whether so many rows get back what it takes to copy columns into the order of rows."""
    near = depth * columns <= MAX_NEAR
    return columns > 1 and rows >= (MIN_TURNED_ROWS if near else MIN_FAR_ROWS)


class MatrixLaunches:
    """Products with one end, of matrices of one size each. `parts`, `a_signed`: see `MatrixSpec`."""

    def __init__(self, end: Expr, threads: int | None, parts: int = 1, a_signed: bool = False) -> None:
        self._end, self._threads, self._parts, self._a_signed = end, threads, parts, a_signed
        self._launches: dict[MatrixSpec, _MatrixLaunch] = {}
        self._copy = copying(UINT32, threads)

    def run(self, arrays: Sequence[Array], dots: bool = False, terms: Sequence[Array] = ()) -> None:
        """The arrays of a `_MatrixLaunch`, of which `terms` are the last ones."""
        a, b, result, *others = arrays
        bias = others[0] if others else None
        rows, columns = result.shape[-2:]
        apart = b.strides[-2] % PAGE == 0
        panels = not dots and apart and rows >= MIN_PANELS_ROWS and b.shape[-2] >= MIN_PANELS_DEPTH
        small = is_small(rows, columns, b.shape[-2])
        rows, columns = tile_of_dots(rows, columns) if dots else tile_of(rows, columns, host())
        if small:
            rows, columns = rounded(rows), rounded(columns)
        if panels:
            arrays = [a, self._in_panels(b, columns), result, *others]
        spec = MatrixSpec(
            rows,
            columns,
            self._end,
            dots=dots,
            turned=not _packed(a, -1),
            panels=panels,
            parts=self._parts,
            a_signed=self._a_signed,
            terms=terms[0].shape[-1] if terms else 0,
            c=bias is not None,
            c_repeats=bias is not None and not _packed(bias, -1),
        )
        if spec not in self._launches:
            self._launches[spec] = _MatrixLaunch(spec, self._threads)
        self._launches[spec].alone([*arrays, *terms])

    def copied(self, x: Array, into: Array) -> Array:
        self._copy.alone([x.view(np.uint32), into.view(np.uint32)])
        return into

    def _in_panels(self, b: Array, columns: int) -> Array:
        """[..., K, N] as [..., tiles, K, columns]; the last tile begins where it ends with the whole."""
        *stack, depth, n = b.shape
        tiles = scratch((*stack, -(-n // columns), depth, columns), b.dtype)
        whole = n // columns
        parts = [(b[..., : whole * columns].reshape(*stack, depth, whole, columns), tiles[..., :whole, :, :])]
        if n % columns:
            parts.append((b[..., np.newaxis, n - columns :], tiles[..., whole:, :, :]))
        for source, target in parts:
            self.copied(np.moveaxis(source, -2, -3), target)
        return tiles


def with_neighbours(c: Array, threads: int | None) -> Array:
    """What is added to sums, as kernels take it: rows of neighbours, or of one element each."""
    return c if _packed(c, -1) or c.strides[-1] == 0 else packed(c, threads)


def _packed(x: Array, axis: int) -> bool:
    """Whether elements are neighbours along an axis; the stride of one element is any."""
    return x.strides[axis] == x.itemsize or x.shape[axis] == 1


class _MatrixLaunch(RepeatedLaunch):
    """Arrays: [..., M, K], [..., K, N], the target, and c of its sizes if there is one; of terms, [..., M, T]
    and [..., T, N]."""

    def __init__(self, spec: MatrixSpec, threads: int | None) -> None:
        self._spec = spec
        self._threads, self._known = threads, {}

    def _template(self, arrays: Sequence[Array], shape: tuple[int, ...], count: int) -> DescriptorTemplate:
        spec, (a, b, target, *others) = self._spec, arrays
        *stack, m, depth = a.shape
        n = target.shape[-1]
        terms = [others.pop() for _ in range(2)][::-1] if spec.terms else []
        tiles = {"column": (-(-n // spec.columns), spec.columns), "row": (-(-m // spec.rows), spec.rows)}
        require(target.shape == (*stack, m, n))
        if spec.panels:
            require(
                b.shape == (*stack, tiles["column"][0], depth, spec.columns),
                b.flags.c_contiguous,
            )
        else:
            require(b.shape == (*stack, depth, n))
        require(
            [x.shape for x in others] == [target.shape] * spec.c,
            [x.shape for x in terms] == [(*stack, m, spec.terms), (*stack, spec.terms, n)][: len(terms)],
            all(_packed(x, -1) for x in terms),
            all(x.itemsize == WIDTH for x in arrays),
            m >= spec.rows,
            n >= spec.columns,
            _packed(target, -1),
            spec.turned or _packed(a, -1),
            _packed(b, -2 if spec.dots else -1),
            not spec.dots or not spec.turned,
            all(x.strides[-1] == 0 if spec.c_repeats else _packed(x, -1) for x in others),
        )
        values = {"m": m, "n": n, "depth": depth, "a_row": a.strides[-2], "a_along": a.strides[-1]}
        values |= {"b_row": b.strides[-1 if spec.dots else -2], "target_row": target.strides[-2]}
        if spec.c:
            values["c_row"] = others[0].strides[-2]
        if terms:
            values |= {"left_row": terms[0].strides[-2], "right_row": terms[1].strides[-2]}
        names = spec.names
        outer = [
            (size, [x.strides[k] for x in arrays] + [0] * (len(names) - len(arrays)))
            for k, size in enumerate(stack)
        ]
        if spec.whole_rows:
            del tiles["column"]
        elif tiles["row"][0] == 1:
            tiles = dict(reversed(tiles.items()))
        nest = []
        for word, (tile_count, step) in tiles.items():
            moved = {word: step} | ({"b": b.strides[-3]} if spec.panels and word == "column" else {})
            nest.append((tile_count, [moved.get(name, 0) for name in names]))
        inner, steps = nest.pop()
        descriptor = shared_out(
            body_address(MatrixWriter, spec),
            inner,
            [*outer, *nest],
            [values.get(name, 0) for name in names],
            steps,
            row=n if spec.whole_rows else spec.rows * spec.columns,
            cost=max(depth // 4, 1),
            pool=pool.address,
            threads=count,
        )
        return template_of(descriptor, len(arrays))
