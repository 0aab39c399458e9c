"""Planes that are walked in tiles: turned operands, of every width, size and place."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

import anydml as dml
from anydml.codegen import kernel
from anydml.codegen.jit import host
from anydml.codegen.kernel_body import kernel_body
from anydml.eager import compute
from anydml.ops.catalog import BY_NAME
from anydml.ops.dtypes import FLOAT32
from anydml.ops.expr import read

SIDES = [1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129]
TYPES = ["uint8", "int16", "float16", "float32", "float64", "int64"]


@pytest.fixture(params=["near", "direct", "split"])
def way(request, monkeypatch, share_all_work):
    """How tiles are turned: near by, or where a copy is to stand; and by several threads."""
    monkeypatch.setattr(kernel, "MAX_DIRECT_BYTES", {"near": 0}.get(request.param, 1 << 30))
    if request.param == "split":
        share_all_work()


@pytest.fixture
def layouts(monkeypatch):
    """The kernel variants that are asked for."""
    seen = []
    lay_out = kernel._lay_out_tiles

    def noted(*arguments):
        found = lay_out(*arguments)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(kernel, "_lay_out_tiles", noted)
    return seen


def numbers(rng, dtype, sizes):
    return rng.integers(0, 100, sizes).astype(dtype)


def framed(sizes, dtype):
    """An array for outputs, with bytes around it that nobody may touch."""
    count = int(np.prod(sizes))
    block = np.full(count + 64, 77, dtype)
    return block, block[32 : 32 + count].reshape(sizes)


def ran(name, arrays, out):
    """The operator on arrays the ordinary way, which is planned anew."""
    return compute(BY_NAME[name], arrays, (None,) * len(BY_NAME[name].parameters), out)


@pytest.mark.parametrize("dtype", TYPES)
def test_turned_copies(dtype, way, layouts):
    rng = np.random.default_rng(0)
    for rows in SIDES:
        for cols in SIDES[rows % 3 :: 3]:
            x = numbers(rng, dtype, (rows, cols + 3))[:, 1 : cols + 1]
            block, out = framed((cols, rows), dtype)
            ran("ELEMENT_WISE_IDENTITY", (x.T,), out)
            np.testing.assert_array_equal(out, x.T)
            assert (block[:32] == 77).all()
            assert (block[-32:] == 77).all()
    assert any(layouts)


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_turned_beside_others(dtype, way, layouts):
    rng = np.random.default_rng(1)
    for rows, cols in [(8, 8), (9, 200), (70, 65), (130, 33), (257, 12)]:
        x, y = numbers(rng, dtype, (rows, cols)), numbers(rng, dtype, (cols, rows))
        z = numbers(rng, dtype, (rows, 1))
        for arrays in [
            (x, y.T),
            (y.T, x),
            (x.T, y),
            (y.T, z),
            (y.T, y.T * 2),
            (x[::-1], y.T),
            (x, y[::-1].T),
        ]:
            shape = np.broadcast_shapes(*(a.shape for a in arrays))
            block, out = framed(shape, dtype)
            ran("ELEMENT_WISE_ADD", arrays, out)
            np.testing.assert_array_equal(out, reduce(np.add, arrays))
            assert (block[:32] == 77).all()
            assert (block[-32:] == 77).all()
    assert any(layouts)


def test_permutations_of_more_dimensions(way, layouts):
    rng = np.random.default_rng(2)
    for sizes, order in [
        ((3, 20, 30, 9), (0, 2, 3, 1)),
        ((17, 18, 19), (2, 0, 1)),
        ((9, 10, 11, 12), (3, 1, 2, 0)),
    ]:
        x = numbers(rng, "float32", sizes).transpose(order)
        for other in (x.copy(), np.float32([2]), x.copy()[:, :1]):
            _, out = framed(x.shape, "float32")
            ran("ELEMENT_WISE_MULTIPLY", (x, other), out)
            np.testing.assert_array_equal(out, x * other)
    assert any(layouts)


def test_expensive_expressions(way, layouts):
    x = np.random.default_rng(3).random((70, 90), np.float32)
    _, out = framed((90, 70), np.float32)
    ran("ELEMENT_WISE_EXP", (x.T,), out)
    np.testing.assert_array_equal(out, dml.exp(x).T)
    assert any(layouts)


def test_in_place_beside_a_turned_input(way, layouts):
    rng = np.random.default_rng(4)
    x, y = numbers(rng, "float32", (100, 130)), numbers(rng, "float32", (130, 100))
    expected = x + y.T
    ran("ELEMENT_WISE_ADD", (x, y.T), x)
    np.testing.assert_array_equal(x, expected)
    assert any(layouts)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_blocks_are_as_wide_as_vectors(width):
    machine = replace(host(), vector_bytes=width, streams=False, masks=False)
    group = kernel.group((FLOAT32,), (read(0, FLOAT32),))
    variant = kernel.KernelVariant((kernel.Access.PACKED,) * 2, turned=(0,), direct=True)
    assert f"<{width // 4} x i32>" in kernel_body(group, variant, machine)
