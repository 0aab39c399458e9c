"""Chains of nodes behind a NonZero, and how they are run: in memory that was something else, between guard pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import prod
from typing import Any
from zlib import crc32

import numpy as np
import onnx

import anydml as dml
from anydml.codegen.program.module import ProgramFailed
from anydml.codegen.program.types import array_type
from tests.onnx.test_native import expected, model, same
from tests.robustness.guard_memory import Memory

MEMORY = Memory()
SIZES = (3, 16, 17, 40, 200)
CONSTANTS = ", ".join(
    (
        "float half = {0.5}, int64 zero = {0}, int64 last = {-1}, int64[1] one = {1}, int64[1] z1 = {0}",
        "int64[1] all = {-1}, int64[2] pairs = {-1, 2}, int64[2] some = {2, 0}, int64[1] two = {2}",
    )
)
FOUND = "m = Greater (s, half) nz = NonZero (m) i = Squeeze (nz, z1) t = Transpose (nz) v = Gather <axis = 0> (s, i) g = Gather <axis = 0> (b, i)"
"""Of s[n] and b[n, 4]: which are large, and these."""
CHAINS = {
    "places": "y = Identity (nz)",
    "column": "y = Identity (t)",
    "rows": "y = Identity (g)",
    "of two axes": "m2 = Greater (b, half) y = NonZero (m2)",
    "of none that is zero": "y = NonZero (s)",
    "of halves": "h = Cast <to = 10> (b) y = NonZero (h)",
    "of integers": "h = Cast <to = 6> (b) y = NonZero (h)",
    "of those": "e = Exp (v) d = Greater (e, half) y = NonZero (d)",
    "element by element": "e = Mul (g, g) f = Add (e, half) y = Sqrt (f)",
    "broadcast": "u = Unsqueeze (v, one) e = Mul (g, u) y = Add (e, b0)",
    "with what is known": "c = Cast <to = 1> (i) y = Mul (c, half)",
    "selected": "c = Less (v, half2) y = Where (c, v, half)",
    "as integers": "c = Cast <to = 6> (i) y = Add (c, c)",
    "turned": "w = Transpose (g) y = Neg (w)",
    "of another form": "y = Reshape (g, pairs)",
    "in a row": "y = Reshape (g, all)",
    "flat": "y = Flatten <axis = 1> (g)",
    "columns": "y = Gather <axis = 1> (g, some)",
    "a column": "y = Gather <axis = 1> (g, last)",
    "sliced": "y = Slice (g, one, two, one)",
    "split": "y, z = Split <axis = 1> (g, halves)",
    "repeated": "y = Tile (g, times)",
    "joined beside": "y = Concat <axis = 1> (g, b2, g)",
    "joined behind": "y = Concat <axis = 0> (g, b, g)",
    "joined in rows": "w = Transpose (g) c = Transpose (b) y = Concat <axis = 1> (w, c, w, w)",
    "how many": "y = Shape (g)",
    "how many elements": "y = Size (g)",
    "how many of an axis": "n = Shape (nz) y = Gather <axis = 0> (n, last)",
    "by tuples": "y = GatherND (b, t)",
    "by elements": "at = Concat <axis = 1> (t, t) y = GatherElements <axis = 0> (b, at)",
    "of these": "p = NonZero (v) r1 = Squeeze (p, z1) r = Sub (zeros, r1) j = Sub (r, ones) y = Gather <axis = 0> (g, j)",
    "of these, by tuples": "p = NonZero (v) r1 = Transpose (p) r = Sub (zeros, r1) j = Sub (r, ones) y = GatherND (g, j)",
    "of these, by elements": "p = NonZero (v) r1 = Transpose (p) r = Sub (zeros, r1) j = Sub (r, ones) y = GatherElements <axis = 0> (g, j)",
    "put back": "e = Neg (g) y = ScatterND (b, t, e)",
    "put back singly": "e = Neg (v) y = ScatterElements <axis = 0> (s, i, e)",
    "put among these": "p = NonZero (v) r1 = Transpose (p) r = Sub (zeros, r1) j = Sub (r, ones) y = ScatterND (g, j, g)",
    "by conditions": "y = Compress <axis = 0> (b, m)",
    "of all by conditions": "y = Compress (b, m)",
    "first of them": "y = Slice (g, z1, five, z1)",
    "last of them": "y = Slice (g, minus, end, z1)",
    "all but some": "y = Slice (v, one, all, z1)",
    "more than there are": "y = Slice (v, z1, end)",
    "both ways": "at = Concat <axis = 0> (z1, one) to = Concat <axis = 0> (minus, two) y = Slice (g, at, to)",
    "the first of all": "n = Shape (i) y = Slice (b, z1, n, z1)",
    "the rest of all": "n = Shape (i) y = Slice (b, n, end, z1)",
    "of all, by int32": "n = Shape (i) k = Cast <to = 6> (n) a = Cast <to = 6> (z1) y = Slice (s, a, k, a)",
    "best of all": "n = Shape (i) y, z = TopK (s, n)",
    "best": "n = Shape (v) y, z = TopK (v, n)",
    "worst, and where": "n = Shape (v) z, y = TopK <largest = 0> (v, n)",
    "best of integers": "n = Shape (v) z, y = TopK (i, n)",
    "best of each": "z, y = TopK <axis = 1> (g, two)",
    "in order of another": "n = Shape (v) z, k = TopK (v, n) y = Gather <axis = 0> (g, k)",
    "if there are some": "n = Size (v) c = Greater (n, zero) y = If (c) <then_branch = p () => (float[j, 4] x)"
    " { x = Neg (g) }, else_branch = q () => (float[j, 4] x) { x = Identity (none) }>",
    "if there are many": "n = Size (v) c = Greater (n, two0) y = If (c) <then_branch = p () => (float[j] x)"
    " { x = Slice (v, one, two) }, else_branch = q () => (float[j] x) { x = Concat <axis = 0> (v, v) }>",
    "if all or some": "n = Size (v) c = Greater (n, two0) e = If (c) <then_branch = p () => (float[j, 4] x)"
    " { x = Identity (b) }, else_branch = q () => (float[j, 4] x) { x = Neg (g) }> y = Exp (e)",
    "a sum": "y = ReduceSum <keepdims = 0> (v)",
    "sums": "y = ReduceSum (g, z1)",
    "sums of rows": "y = ReduceSum <keepdims = 0> (g, one)",
    "sum of integers": "y = ReduceSum (i)",
    "how many are": "c = Cast <to = 7> (m) y = ReduceSum <keepdims = 0> (c)",
    "greatest": "y = ReduceMax <keepdims = 0> (g)",
    "greatest of columns": "y = ReduceMax <axes = [0], keepdims = 0> (g)",
    "greatest of rows": "y = ReduceMax <axes = [1]> (g)",
    "smallest integer": "y = ReduceMin <keepdims = 0> (i)",
    "mean": "y = ReduceMean <keepdims = 0> (g)",
    "means": "w = Transpose (g) y = ReduceMean <axes = [1]> (w)",
    "means of rows": "c = Concat <axis = 0> (g, b) y = ReduceMean <axes = [-1]> (c)",
    "product": "y = ReduceProd <keepdims = 0> (v)",
    "norms": "y = ReduceL2 <axes = [0]> (g)",
    "where in each": "y = ArgMax <axis = 1, keepdims = 0> (g)",
    "where in each of columns": "w = Transpose (g) y = ArgMax <axis = 0, keepdims = 0> (w)",
    "products": "w = Transpose (b0x) y = MatMul (g, w)",
    "products of columns": "w = Transpose (g) y = MatMul (b0x, w)",
    "sums of products": "c = Transpose (b0x) y = Gemm (g, c, half)",
    "sums of products of columns": "w = Transpose (g) y = Gemm <alpha = 2.0> (b0x, w)",
    "shares": "y = Softmax <axis = 1> (g)",
    "logarithms of shares": "y = LogSoftmax <axis = -1> (g)",
    "layers": "y = LayerNormalization (g, b0)",
    "sums so far": "y = CumSum (g, zero)",
    "sums so far of each": "y = CumSum <exclusive = 1> (g, axis1)",
    "numbered": "n = Shape (v) k = Squeeze (n, z1) y = Range (zero, k, axis1)",
    "in pairs with their numbers": "n = Size (v) k = Range (zero, n, axis1) y = Add (k, i)",
    "filled": "n = Shape (g) y = ConstantOfShape (n)",
    "filled to a size": "n = Shape (v) d = Concat <axis = 0> (two, n, one) y = ConstantOfShape (d)",
    "expanded": "n = Shape (g) y = Expand (half, n)",
    "a row expanded": "n = Shape (g) y = Expand (b0, n)",
    "expanded along another axis": "n = Shape (v) d = Concat <axis = 0> (n, five) u = Unsqueeze (v, one) y = Expand (u, d)",
    "of its own form": "n = Shape (v) d = Concat <axis = 0> (n, two, two) y = Reshape (g, d)",
    "of a form with a rest": "c = Concat <axis = 0> (g, b) n = Shape <end = 1> (c) d = Concat <axis = 0> (n, all) y = Reshape (c, d)",
    "in a loop": "n = Shape (i) k = Squeeze (n, z1) y = Loop (k, , half) <body = l (int64 q, bool c, float a)"
    " => (bool d, float w) { d = Identity (c) x = Gather <axis = 0> (v, q) w = Add (a, x) }>",
}
"""Name -> nodes that give y."""


def made(chain: str, size: int | str) -> onnx.ModelProto:
    text = model(
        f"m (float[{size}] s, float[{size}, 4] b) => (float[q] y) <{CONSTANTS}, float half2 = {{0.75}},"
        f" int64[1] ones = {{1}}, int64[1] zeros = {{0}}, int64[2] halves = {{1, 3}}, int64[2] times = {{1, 3}},"
        f" float[0, 4] none = {{}}, int64 two0 = {{2}}, int64 axis1 = {{1}}, int64[1] five = {{5}}, int64[1] minus = {{-2}},"
        f" int64[1] end = {{9223372036854775807}}>"
        f" {{ {FOUND} b0 = Gather <axis = 0> (b, zero) b1 = Unsqueeze (b0, z1) b2 = Gather <axis = 0> (b, i)"
        " b0x = Slice (b, z1, two, z1)"
        f" {CHAINS[chain]} }}"
    )
    output = onnx.shape_inference.infer_shapes(text).graph.output[0]
    named = {v.name: v for v in onnx.shape_inference.infer_shapes(without_output(text)).graph.value_info}
    output.type.CopyFrom(named["y"].type)
    output.type.tensor_type.ClearField("shape")
    text.graph.output[0].CopyFrom(output)
    return text


def without_output(text: onnx.ModelProto) -> onnx.ModelProto:
    """So that inference tells the type of y, and does not compare it with what stands there."""
    found = onnx.ModelProto()
    found.CopyFrom(text)
    del found.graph.output[:]
    return found


def feeds_of(size: int) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(crc32(str(size).encode()))
    for part in (0, 0.1, 0.5, 1, 0.9, 0.03):
        s = np.where(rng.random(size) < part, 0.55 + rng.random(size), rng.random(size) / 2)
        yield {"s": s.astype(np.float32), "b": rng.random((size, 4)).astype(np.float32)}


def check(session: dml.Session, made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> bool:
    """As any array, in memory that was something else, and between guard pages: what is fed, what is given,
    and the memory that the program uses. Whether it does not leave that to others."""
    wanted = expected(made, feeds)
    for _ in range(2):
        same(session.run(None, feeds), wanted)
    step = session._program.plan([*feeds.values()]).steps[0]
    if not hasattr(step, "program"):
        return False
    program = step.program
    for pattern in (0x00, 0xFF, 0x7F):
        block, address = program._memory()
        block[:] = pattern
        program._spare[:] = [(block, address)]
        same(session.run(None, feeds), wanted)
    if os.name == "nt":
        return True
    try:
        return _stays_inside(program, feeds, wanted)
    finally:
        MEMORY.take_back()


def _stays_inside(program: Any, feeds: dict[str, np.ndarray], wanted: list[np.ndarray]) -> bool:
    for at_end in (True, False):
        held = [_held(x, at_end) for x in feeds.values()]
        outputs = [_held(np.zeros(o.count, array_type(o.dtype)), at_end) for o in program._outputs]
        block = _held(program._memory()[0], at_end)  # of whole cache lines, as a page is
        program._spare[:] = [(block, block.ctypes.data)]
        try:
            told = dict(program.run(held, outputs))
        except ProgramFailed as failure:
            if failure.left:
                return False
            raise
        finally:
            program._spare.clear()
        sizes = [told.get(k, o.sizes) for k, o in enumerate(program._outputs)]
        same([y[: prod(n)].reshape(n) for y, n in zip(outputs, sizes, strict=True)], wanted)
    return True


def _held(array: np.ndarray, at_end: bool) -> np.ndarray:
    place = MEMORY.take(array.nbytes, at_end=at_end)
    found = place.window[place.start : place.start + place.size].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found
