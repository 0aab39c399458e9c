"""Memory between the steps of a plan is used again, and never while somebody reads it."""

from __future__ import annotations

import threading

import numpy as np
import onnx

import anydml
from anydml.runtime.arena import MAX_BLOCKS_PER_SIZE, MAX_POOLED_SIZES, MIN_POOLED_BYTES, Arena

SIDE = 512
TEXT = f"""<ir_version: 8, opset_import: ["": 17]> m (float[1, 1, {SIDE}, {SIDE}] x) => (float[1, 1, {SIDE}, {SIDE}] y, float[1, 1, {SIDE}, {SIDE}] b) {{
    h = Constant <value_float = 0.5> ()
    a1 = Mul (x, h)  a2 = Abs (a1)  a3 = Add (a2, h)
    p = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (a3)
    b1 = Mul (p, h)  b2 = Neg (b1)  b = Add (b2, h)
    q = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (b)
    c1 = Mul (q, h)  c2 = Abs (c1)  y = Add (c2, x)
}}"""


def test_memory_is_used_again_when_the_last_array_over_it_has_died():
    arena, kind = Arena(), np.dtype(np.float32)
    x = arena.empty((MIN_POOLED_BYTES,), kind)
    at = x.ctypes.data
    view = x.reshape(2, -1)[:, 3:].view(np.int32)
    del x
    y = arena.empty((4, MIN_POOLED_BYTES // 4), kind)
    assert y.ctypes.data != at, "a view of it lives"
    seen = memoryview(view)
    del view
    assert arena.empty((MIN_POOLED_BYTES,), kind).ctypes.data != at, "a memoryview of it lives"
    del seen
    assert arena.empty((MIN_POOLED_BYTES,), kind).ctypes.data == at
    assert arena.empty((3,), kind).shape == (3,)


def test_no_more_memory_is_kept_than_is_useful():
    arena, kind = Arena(), np.dtype(np.uint8)
    many = [arena.empty((MIN_POOLED_BYTES,), kind) for _ in range(9)]
    assert len({x.ctypes.data for x in many}) == 9
    assert len(arena._blocks[MIN_POOLED_BYTES]) == MAX_BLOCKS_PER_SIZE
    for k in range(100):
        arena.empty((MIN_POOLED_BYTES + k,), kind)
    assert len(arena._blocks) <= MAX_POOLED_SIZES


def test_results_stay_what_they_were():
    """Runs at once from several threads; results stay what they were."""
    model = onnx.parser.parse_model(TEXT)
    session = anydml.load(model, threads=1)
    wanted, kept, wrong = {}, [], []
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 1, SIDE, SIDE)).astype(np.float32)
        wanted[seed] = (x, anydml.load(model, threads=1).run(None, {"x": x}))
    session.run(None, {"x": wanted[0][0]})

    def work(seed):
        x, expected = wanted[seed]
        for _ in range(20):
            got = session.run(None, {"x": x})
            kept.append((seed, got))
            wrong.extend(a for a, b in zip(got, expected, strict=True) if not np.array_equal(a, b))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in wanted]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    for seed, got in kept:
        for a, b in zip(got, wanted[seed][1], strict=True):
            assert np.array_equal(a, b), "a result that was returned has changed since"
