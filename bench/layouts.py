"""One operator over arrays that do not lie packed in memory, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import anydml as dml

Call = Callable[[], object]


def pairs_of_layouts() -> Iterator[tuple[str, Call, Call]]:
    """What it is about; ours and NumPy's, into the same memory; mostly of 2^20 float32 elements."""
    rng, kind = np.random.default_rng(0), np.float32
    square, bytes_, flat = (
        rng.random((1024, 1024), kind),
        np.ones((1024, 1024), np.uint8),
        rng.random(1 << 21, kind),
    )
    images, pixels = rng.random((4, 64, 64, 64), kind), rng.random((4, 64, 64, 64), kind)
    narrow, column, row = (
        rng.random((1 << 15, 32), kind),
        rng.random((1 << 15, 1), kind),
        rng.random(32, kind),
    )
    colours, small = rng.random((1 << 18, 3), kind), rng.random((64, 64, 7, 7), kind)
    bias = rng.random((64, 1, 1), kind)
    windows = np.lib.stride_tricks.sliding_window_view(flat, 64)[: 1 << 14]
    half = flat[: 1 << 20]
    copies = {
        "transposed copy, 1024 x 1024": square.T,
        "transposed copy, 128 x 128": square[:128, :128].T,
        "transposed copy, 1024 x 1024 uint8": bytes_.T,
        "NHWC to NCHW": pixels.transpose(0, 3, 1, 2),
        "NCHW to NHWC": images.transpose(0, 2, 3, 1),
        "windows of 64, step 1": windows,
    }
    for what, x in copies.items():
        yield what, *_copies(x)
    sums = {
        "x + x.T": (square, square.T),
        "[n, 32] + [n, 1]": (narrow, column),
        "[n, 32] + [32]": (narrow, row),
        "[n, 3] + [3], 2^18 rows": (colours, row[:3]),
        "NCHW bias, 64 x 64": (images, bias),
        "NCHW bias, 7 x 7": (small, bias),
        "reversed": (half[::-1], half),
        "every other": (flat[::2], half),
    }
    for what, pair in sums.items():
        yield f"add: {what}", *_sums(*pair)


def _copies(x: Any) -> tuple[Call, Call]:
    out = np.empty(x.shape, x.dtype)
    return lambda: dml.identity(x, out=out), lambda: np.copyto(out, x)


def _sums(x: Any, y: Any) -> tuple[Call, Call]:
    out = np.empty(x.shape, x.dtype)
    return lambda: dml.add(x, y, out=out), lambda: np.add(x, y, out=out)
