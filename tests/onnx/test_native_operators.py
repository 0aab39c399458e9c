"""Operators as programs: with drawn sizes, attributes and opsets, between guard pages, in poisoned memory."""

from __future__ import annotations

import os
from zlib import crc32

import numpy as np
import pytest
from onnx import numpy_helper

import anydml as dml
from tests.onnx.native_cases import CASES, Draw
from tests.onnx.test_native import agree, expected, model, native, numbers, same
from tests.robustness.guard_memory import Memory


def compare(session, made, feeds, tolerance):
    """As new arrays, in memory that was something else, and into arrays between guard pages."""
    wanted = expected(made, feeds)
    within = {"rtol": tolerance, "atol": tolerance}
    same(session.run(None, feeds), wanted, **within)
    if "program: " not in session.explain():
        return False
    same(session.run(None, feeds), wanted, **within)
    (planned,) = session._program._plans
    program = planned.plan.steps[0].program
    turned = {
        name: np.ascontiguousarray(x[..., ::-1])[..., ::-1] if x.ndim else x for name, x in feeds.items()
    }
    for pattern in (0x00, 0xFF, 0x7F):
        block, address = program._memory()
        block[:] = pattern
        program._spare[:] = [(block, address)]
        same(session.run(None, turned), wanted, **within)
    if os.name == "nt":
        return True
    for at_end in (True, False):
        memory = Memory()

        def held(array, memory=memory, at_end=at_end):
            place = memory.take(array.nbytes, at_end=at_end)
            found = place.window[place.start : place.start + place.size].view(array.dtype)
            found = found.reshape(array.shape)
            found[...] = array
            return found

        given = {name: held(x) for name, x in feeds.items()}
        outputs = {o.name: held(y) for o, y in zip(session.get_outputs(), wanted, strict=True)}
        for y in outputs.values():
            y.reshape(-1).view(np.uint8)[...] = 0xA5
        same(session.bind(given, outputs).run(), wanted, **within)
    return True


def is_program(op, seed):
    """Whether a drawn case is one; it computes what onnxruntime computes in any case."""
    case = CASES[op](Draw(crc32(op.encode()) + seed))
    made, feeds = case.model()
    return compare(native(made), made, feeds, case.tolerance)


@pytest.mark.parametrize("op", CASES)
@pytest.mark.drawn
def test_drawn_nodes(op):
    found = [is_program(op, seed) for seed in range(8)]
    assert sum(found) >= (5 if op == "resize" else 8)  # whose places must not depend on roundings


# ---- failing ----------------------------------------------------------------------------------------

OUT_OF_RANGE = {
    "GatherElements": "y = GatherElements <axis = 1> (x, at)",
    "GatherND": "y = GatherND (x, at)",
    "ScatterElements": "y = ScatterElements <axis = 1> (x, at, new)",
    "ScatterND": "y = ScatterND (x, at, parts)",
}


@pytest.mark.parametrize("op", OUT_OF_RANGE)
@pytest.mark.parametrize("wrong", [20, -21, 2**62, -(2**63)])
def test_an_index_out_of_range(op, wrong):
    made = model(
        "m (float[20,20] x, int64[3,2] at, float[3,2] new, float[3] parts) => (float[q] y)"
        f" {{ {OUT_OF_RANGE[op]} }}"
    )
    made.graph.output[0].type.tensor_type.ClearField("shape")
    session = native(made)
    at = np.array([[0, 1], [2, 3], [-4, 5]])
    feeds = {"x": numbers(20, 20), "at": at, "new": numbers(3, 2), "parts": numbers(3)}
    wanted = expected(made, feeds)
    bad = at.copy()
    bad[1, 1] = wrong
    for _ in range(2):
        same(session.run(None, feeds), wanted)
        with pytest.raises(
            dml.ExecutionFailed, match=rf"{op}.*expected an index from -20 to 19, but got {wrong}"
        ):
            session.run(None, feeds | {"at": bad})
    assert "program: " in session.explain()


# ---- what is not drawn --------------------------------------------------------------------------------


@pytest.mark.parametrize("greatest", [0, 1])
@pytest.mark.parametrize("size", [7, 40])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_best_beside_nan(dtype, size, greatest):
    """NaN of either sign is greater than all numbers, as NumPy sorts, and -0 is 0."""
    name = {np.float16: "float16", np.float32: "float", np.float64: "double"}[dtype]
    made = model(
        f"m ({name}[{size}] x) => ({name}[q] y, int64[q] k) <int64[1] all = {{{size}}}>"
        f" {{ y, k = TopK <largest = {greatest}> (x, all) }}"
    )
    x = (np.arange(size) % 4 - 1).astype(dtype)
    x[[0, 3]] = np.nan, -np.nan
    x[[2, 4, 5]] = -np.inf, np.inf, -0.0
    session = native(made)
    y, k = session.run(None, {"x": x})
    assert "program: " in session.explain()
    ranks = np.where(np.isnan(x), 1e9, x.astype(np.float64).clip(-1e8, 1e8))
    order = np.argsort(-ranks if greatest else ranks, kind="stable")
    np.testing.assert_array_equal(k, order)
    np.testing.assert_array_equal(y, x[order])


def test_the_best_of_the_largest_and_least_numbers():
    for dtype, name in ((np.int64, "int64"), (np.int32, "int32")):
        info = np.iinfo(dtype)
        x = np.array([info.min, info.max, 0, info.min, info.max, -1], dtype)
        for greatest in (0, 1):
            made = model(
                f"m ({name}[6] x) => ({name}[6] y, int64[6] k) <int64[1] all = {{6}}>"
                f" {{ y, k = TopK <largest = {greatest}> (x, all) }}"
            )
            agree(made, {"x": x})


def test_an_order_that_is_none():
    """More runs than pieces: elements are picked by a table."""
    made = model(
        "m (float[30,40] x) => (float[30,40] y, float[q] z) { n = Neg (x) y = Gather <axis = 1> (n, k)"
        " z = GatherElements <axis = 0> (n, e) }"
    )
    made.graph.output[1].type.tensor_type.ClearField("shape")
    rng = np.random.default_rng(0)
    for name, at in (("k", rng.permutation(40)), ("e", rng.integers(-30, 30, (25, 40)))):
        made.graph.initializer.append(numpy_helper.from_array(at, name))
    agree(made, {"x": numbers(30, 40)})
