"""Mistakes put on purpose into what writes programs: the checks find each of them, or are blind to its kind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anydml.codegen.loop_dims import collapse
from tests.onnx.native_bounded import check, feeds_of, made
from tests.onnx.test_native import expected, model, native
from tests.robustness.guard_memory import Memory

# As Any: what is put in their places is none of the types' business.
program: Any = import_module("anydml.codegen.program")
bounded: Any = import_module("anydml.codegen.program.bounded")
contraction: Any = import_module("anydml.codegen.program.contraction")
elements: Any = import_module("anydml.codegen.program.elements")
layout: Any = import_module("anydml.codegen.program.layout")
module: Any = import_module("anydml.codegen.program.module")
reductions: Any = import_module("anydml.codegen.program.reductions")
suppression: Any = import_module("anydml.codegen.program.suppression")
writing: Any = import_module("anydml.codegen.program.function_writer")
resampling: Any = import_module("anydml.codegen.program.resampling")
rows: Any = import_module("anydml.codegen.program.rows")
convolution: Any = import_module("anydml.onnx.ops.native_convolution")
indexing: Any = import_module("anydml.onnx.ops.native_indexing")


def last_vectors_reach_behind_the_end() -> None:
    elements.ElementWriter.block_start = lambda self, index, lanes, count: self.code.times(index, lanes)


def indices_are_not_compared() -> None:
    indexing._place = lambda b, number, dtype, length: number


def places_are_not_compared() -> None:
    writing.FunctionWriter.shorter = lambda self, one, other: one


def lengths_are_not_compared() -> None:
    def unchecked(b: Any, one: str, other: Any) -> None:
        """Whatever they are."""

    bounded.same_length = unchecked


def tiles_have_more_rows_than_the_product() -> None:
    found = contraction._Tiling.of
    contraction._Tiling.of = staticmethod(lambda *args: replace(found(*args), rows=4))


def windows_lie_further_apart() -> None:
    convolution.collapse = lambda sizes, strides, reorder: [
        (n, (2 * s,)) for n, (s,) in collapse(sizes, strides, reorder=reorder)
    ]


def windows_at_the_edges_see_everything() -> None:
    convolution._alike = lambda where, axis, size: [(0, where.count[axis], range(where.kernel[axis]))]


def what_is_beside_sums_lies_elsewhere() -> None:
    over = contraction.over

    def further(memory: Any, sizes: tuple[int, ...]) -> Any:
        found = over(memory, sizes)
        return replace(found, strides=tuple(2 * s for s in found.strides))

    contraction.over = further


def vectors_of_rows_are_whole() -> None:
    near = writing.FunctionWriter.near

    def wider(self: Any, pointer: str, offsets: Any, dtype: Any) -> Any:
        return near(self, pointer, [*offsets[:-1], offsets[-1] + 4], dtype)

    writing.FunctionWriter.near = wider


def outputs_hold_what_they_are_parts_of() -> None:
    computed_there = elements.ElementWriter.computed_there

    def whatever(self: Any, tensor: Any, home: str) -> bool:
        buffer = self._begins.get(tensor.pointer)
        if buffer is not None:
            buffer.used = tensor.count * 4
        return bool(computed_there(self, tensor, home))

    elements.ElementWriter.computed_there = whatever


def rows_are_whole_vectors() -> None:
    of = rows._Row.of

    def longer(b: Any, x: Any, axes: Any) -> Any:
        row = of(b, x, axes)
        return row and replace(row, parts=tuple((16, start) for _, start in row.parts))

    rows._Row.of = staticmethod(longer)


def neighbours_lie_further_apart() -> None:
    between = resampling.between

    def further(b: Any, x: Any, axis: int, sides: Any, *rest: Any) -> Any:
        return between(b, x, axis, (sides[0], sides[1] + 1), *rest)

    program.between = further


def rooms_are_too_small() -> None:
    allocate = layout.ArenaPlan.allocate
    layout.ArenaPlan.allocate = lambda self, size: allocate(self, size // 2)


def outputs_are_larger_than_told() -> None:
    told = module.write_outputs

    def short(*args: Any) -> list[Any]:
        return [module.replace(o, count=o.count // 2) for o in told(*args)]

    module.write_outputs = program.write_outputs = short


def gaps_stay_in_outputs() -> None:
    module.fill = lambda b, tensor, home: b.memory(tensor, home)


def what_is_behind_the_end_counts() -> None:
    reductions.masked = lambda b, tensor, content: tensor.whole


def boxes_behind_the_last_are_looked_at() -> None:
    suppression._Classes._hide = lambda self, place: None


def chain(name: str, size: int) -> Callable[[], None]:
    def run() -> None:
        text = made(name, size)
        session = native(text)
        for feeds in feeds_of(size):
            check(session, text, feeds)

    return run


def far_away() -> None:
    text = model("m (float[40] s, int64[1] at) => (float[k] y) <float half = {0.5}> { c = Greater (s, half)"
                 " v = Compress <axis = 0> (s, c) y = Gather <axis = 0> (v, at) }")  # fmt: skip
    session, s = native(text), np.ones(40, np.float32)
    session.run(None, {"s": s, "at": np.array([39])})
    session.run(None, {"s": s, "at": np.array([2**40])})


def other_lengths() -> None:
    text = model("m (float[40] s, float[40] t) => (float[k] y) <float half = {0.5}> { c = Greater (s, half)"
                 " v = Compress <axis = 0> (s, c) d = Greater (t, half) w = Compress <axis = 0> (t, d) y = Add (v, w) }")  # fmt: skip
    session, s = native(text), np.ones(40, np.float32)
    check(session, text, {"s": s, "t": np.eye(1, 40, 5, np.float32)[0]})


def guarded(text: str, *sizes: int) -> Callable[[], None]:
    """A model of one input x, which ends with its pages, as does its output: from the first run on, as what is
    written into the heap goes unnoticed now and then. (A binding's first runs make arrays there.)"""

    def run() -> None:
        session, memory = native(model(text)), Memory()
        x = (np.arange(np.prod(sizes)) % 7).astype(np.float32).reshape(sizes)
        (wanted,) = expected(model(text), {"x": x})
        places = [memory.take(a.nbytes, at_end=True, shift=0) for a in (x, wanted)]
        given, y = (
            p.window[p.start : p.start + a.nbytes].view(np.float32).reshape(a.shape)
            for p, a in zip(places, (x, wanted), strict=True)
        )
        given[...] = x
        entry = session._program.plan([given]).entry
        assert entry is not None
        assert entry({"x": given}, [y]) is not None
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)

    return run


def boxes() -> None:
    from tests.onnx import test_native_suppression as tests

    tests.test_drawn_boxes((1, 2, 70), 0, True)


FOUND: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
    f.__name__: (f, run)
    for f, run in (
        (last_vectors_reach_behind_the_end, chain("element by element", 17)),
        (indices_are_not_compared, far_away),
        (places_are_not_compared, chain("more than there are", 40)),
        (lengths_are_not_compared, other_lengths),
        (
            tiles_have_more_rows_than_the_product,
            guarded(
                "m (float[3,9] x) => (float[3,20] y) <int64[2] sizes = {9, 20}>"
                " { w = ConstantOfShape <value = float[1] {2}> (sizes) y = MatMul (x, w) }",
                3,
                9,
            ),
        ),
        (
            windows_lie_further_apart,
            guarded(
                "m (float[1,1,6,9] x) => (float[1,2,5,7] y) <int64[4] sizes = {2, 1, 2, 3}>"
                " { w = ConstantOfShape <value = float[1] {2}> (sizes) y = Conv (x, w) }",
                1,
                1,
                6,
                9,
            ),
        ),
        (
            windows_at_the_edges_see_everything,
            guarded(
                "m (float[1,16,2,2] x) => (float[1,16,2,2] y) <int64[4] sizes = {16, 1, 3, 3}>"
                " { w = ConstantOfShape <value = float[1] {2}> (sizes)"
                " y = Conv <group = 16, pads = [1, 1, 1, 1]> (x, w) }",
                1,
                16,
                2,
                2,
            ),
        ),
        (
            what_is_beside_sums_lies_elsewhere,
            guarded(
                "m (float[3,9] x) => (float[3,20] y) <int64[2] sizes = {9, 20}, int64 none = {0},"
                " int64 one = {1}, int64 all = {20}> { w = ConstantOfShape <value = float[1] {2}> (sizes)"
                " p = MatMul (x, w) r = Range (none, all, one) f = Cast <to = 1> (r) y = Add (p, f) }",
                3,
                9,
            ),
        ),
        (
            vectors_of_rows_are_whole,
            guarded(
                "m (float[3,35] x) => (float[3,18] y) <int64[1] a = {0}, int64[1] b = {35},"
                " int64[1] k = {1}, int64[1] s = {2}> { y = Slice (x, a, b, k, s) }",
                3,
                35,
            ),
        ),
        (
            outputs_hold_what_they_are_parts_of,
            guarded(
                "m (float[9,20] x) => (float[2,20] y) <int64[1] a = {0}, int64[1] b = {2}>"
                " { s = Softmax (x) y = Slice (s, a, b) }",
                9,
                20,
            ),
        ),
        (rows_are_whole_vectors, guarded("m (float[5,21] x) => (float[5,21] y) { y = Softmax (x) }", 5, 21)),
        (
            neighbours_lie_further_apart,
            guarded(
                "m (float[1,1,20,6] x) => (float[1,1,31,6] y) <int64[4] sizes = {1, 1, 31, 6}>"
                ' { y = Resize <mode = "linear"> (x, , , sizes) }',
                1,
                1,
                20,
                6,
            ),
        ),
        (rooms_are_too_small, chain("column", 40)),
        (outputs_are_larger_than_told, chain("rows", 40)),
        (gaps_stay_in_outputs, chain("of two axes", 40)),
        (what_is_behind_the_end_counts, chain("sums", 40)),
        (boxes_behind_the_last_are_looked_at, boxes),
    )
}
ROOT = Path(__file__).parents[2]


def ended_well(code: str) -> bool:
    """In a process of its own, which may end by reading what it must not."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.onnx.test_native_mistakes import FOUND\n{code}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    crashed = not 0 <= done.returncode < 256  # by a signal; Windows has large numbers
    assert done.returncode == 0 or crashed or "Error" in done.stderr, done.stderr
    return done.returncode == 0


HEAP = {"last_vectors_reach_behind_the_end", "outputs_are_larger_than_told"}
"""What writes behind blocks of the heap, which Windows does not look at when they are freed."""


@pytest.mark.parametrize("mistake", [m for m in FOUND if os.name != "nt" or m not in HEAP])
def test_it_is_found(mistake):
    assert not ended_well(f"mistake, run = FOUND[{mistake!r}]; mistake(); run()")


def test_without_mistakes_nothing_is_found():
    others = [m for m in FOUND if m != "indices_are_not_compared"]
    assert ended_well(f"for mistake in {others}: FOUND[mistake][1]()")
