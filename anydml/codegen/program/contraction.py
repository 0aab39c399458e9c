"""Products of matrices: the one place where multiplications are added up.

Each element of the result is a chain of fused multiplications and additions over the inner axis, in its
order, whatever the tiles are. Integers wrap around.
"""

from __future__ import annotations

from math import prod

import numpy as np

from anydml.codegen.emit import element_type, mangle, value_type
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.geometry import broadcast_strides
from anydml.codegen.program.values import Memory, NotNative, Tensor
from anydml.ops.dtypes import BOOL, FLOATING, NUMPY, SIZE

TILE_ROWS = 4
TILE_VECTORS = 24
"""Accumulators of a tile: of 32 registers the most, as the processor has some for what is loaded."""
UNROLLED = 4


def matrix_product(b: ProgramBuilder, one: Tensor, other: Tensor) -> Memory:
    """[..., M, K] times [..., K, N], of numbers of 32 or 64 bits, in memory; axes in front broadcast.

    Raises:
        NotNative: another type; sizes that do not fit.
    """
    dtype = one.dtype
    if dtype is BOOL or SIZE[dtype] < 4 or other.dtype != dtype:
        raise NotNative(f"products of {dtype.label}")
    x, y = b.memory(one), b.memory(other)
    if y.sizes[-1] > 1 and y.strides[-1] != 1:
        y = b.memory(y, b.room(dtype, y.sizes))
    (m, k), (k_too, n) = x.sizes[-2:], y.sizes[-2:]
    try:
        stack = np.broadcast_shapes(x.sizes[:-2], y.sizes[:-2])
    except ValueError:
        raise NotNative("stacks of matrices that do not broadcast") from None
    if k != k_too:
        raise NotNative(f"a product over {k} and {k_too}")
    result = b.room(dtype, (*stack, m, n))
    b.work += prod(stack) * m * k * n // 8
    matrices = (x, y, result)
    strides = [broadcast_strides(t, (*stack, *t.sizes[-2:])) for t in matrices]

    def one_product(pointers: list[str]) -> None:
        one, two, made = (
            Memory(dtype, t.sizes[-2:], pointer, t.strides[-2:])
            for t, pointer in zip(matrices, pointers, strict=True)
        )
        _write_product(b, one, two, made)

    dims = [(size, [s[axis] for s in strides]) for axis, size in enumerate(stack)]
    b.over(dims, [(dtype, t.pointer) for t in matrices], one_product)
    return result


def _write_product(b: ProgramBuilder, x: Memory, y: Memory, result: Memory) -> None:
    """The product, tile by tile; the last one begins earlier where it would not be full."""
    code, dtype = b.code, x.dtype
    (m, depth), n = x.sizes, y.sizes[1]
    registers = 32 if b.target.vector_bytes == 64 else 16
    lanes = min(b.vector_lanes(SIZE[dtype]), n)
    rows = min(m, TILE_ROWS)
    budget = min(TILE_VECTORS, registers - 4) // rows if rows > 1 else registers // 2
    vectors = max(min(budget, -(-n // lanes)), 1)
    width = min(vectors * lanes, n)
    starts = [min(v * lanes, width - lanes) for v in range(-(-width // lanes))]
    kind = value_type(dtype, lanes)
    zero = code.constant(np.zeros(1, NUMPY[dtype]), dtype) if lanes == 1 else "zeroinitializer"
    cells = [(r, v) for r in range(rows) for v in range(len(starts))]

    def multiply_add(x: str, y: str, total: str) -> str:
        if dtype in FLOATING:
            fma = f"llvm.fma.{mangle(element_type(dtype), lanes)}"
            return code.call(kind, fma, (kind, x), (kind, y), (kind, total))
        return code.line(f"add {kind} {total}, {code.line(f'mul {kind} {x}, {y}')}")

    def tile(row: str, column: str) -> None:
        left = code.at(x.pointer, code.times(row, x.strides[0]), dtype)
        right = code.at(y.pointer, column, dtype)
        home = code.at(code.at(result.pointer, code.times(row, result.strides[0]), dtype), column, dtype)

        def step(k: str, count: int, sums: list[str]) -> list[str]:
            above = code.at(right, code.times(k, y.strides[0]), dtype)
            beside = code.at(left, code.times(k, x.strides[1]), dtype)
            for u in range(count):
                line = code.at(above, u * y.strides[0], dtype)
                vs = [code.load(code.at(line, start, dtype), dtype, lanes) for start in starts]
                for r in range(rows):
                    place = code.at(beside, r * x.strides[0] + u * x.strides[1], dtype)
                    one = code.splat(code.load(place, dtype), dtype, lanes)
                    for v, vector in enumerate(vs):
                        k_ = r * len(starts) + v
                        sums[k_] = multiply_add(one, vector, sums[k_])
            return sums

        unrolled = depth // UNROLLED
        sums = [zero] * len(cells)
        if unrolled:
            sums = code.loop(
                unrolled,
                lambda i, c: step(code.times(i, UNROLLED), UNROLLED, list(c)),
                [(kind, s) for s in sums],
            )
        if depth % UNROLLED:
            sums = step(str(unrolled * UNROLLED), depth % UNROLLED, sums)
        for (r, v), total in zip(cells, sums, strict=True):
            code.store(total, code.at(home, r * result.strides[0] + starts[v], dtype), dtype, lanes)

    def column_tiles(row: str) -> None:
        def one(index: str, _: list[str]) -> list[str]:
            tile(row, b.block_start(index, width, n))
            return []

        code.loop(-(-n // width), one)

    def row_tiles(index: str, _: list[str]) -> list[str]:
        column_tiles(b.block_start(index, rows, m))
        return []

    code.loop(-(-m // rows), row_tiles)
