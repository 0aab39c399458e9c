"""Fourier transforms."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from anydml.onnx.ops.opinfo import Array, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import round_to, to_float64
from anydml.onnx.ops.shared import single

_NAIVE = "onnxruntime sums naively, with an error that grows with the length"
FRAMES = 1024
"""That are transformed at once: they overlap, and so take more memory than the signal."""


def _short_time(
    node: NodeView, signal: Array, step: Array, window: Array | None = None, length: Array | None = None
) -> Array:
    """By fast transforms of each frame. A signal of rank 2 is real, as torch's exporter writes it, and
    onnxruntime takes it; ONNX has an axis more.

    Raises:
        NotFoldable: no frame fits, or sizes that fit no other.
    """
    parts = 1 if signal.ndim == 2 else signal.shape[-1]
    onesided, hop = bool(node.int("onesided")), single(step)
    if signal.ndim not in (2, 3) or parts not in (1, 2) or (parts == 2 and onesided):
        raise NotFoldable("no signal")
    own = signal.shape[1] if window is None else window.shape[0]
    size = own if length is None else single(length)
    if hop < 1 or not 1 <= size <= signal.shape[1] or (window is not None and window.shape != (size,)):
        raise NotFoldable("no frame that fits")
    wide = to_float64(signal.reshape(*signal.shape[:2], parts))
    numbers = wide[..., 0] if parts == 1 else wide[..., 0] + 1j * wide[..., 1]
    frames = sliding_window_view(numbers, size, axis=1)[:, ::hop]
    result = np.empty((*frames.shape[:2], size // 2 + 1 if onesided else size, 2), signal.dtype)
    for k in range(0, frames.shape[1], FRAMES):
        some = frames[:, k : k + FRAMES]
        some = some if window is None else some * to_float64(window)
        found = np.fft.rfft(some) if onesided else np.fft.fft(some)
        for place, part in enumerate((found.real, found.imag)):
            result[:, k : k + FRAMES, :, place] = round_to(part, signal.dtype)
    return result


def _transform(node: NodeView, x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
    """By fast transforms, in the precision of the numbers, or in float32. Backwards and onesided it gives
    real numbers, as of half of their waves.

    Raises:
        NotFoldable: what is transformed are no numbers, or half of what complex ones give.
    """
    inverse, onesided = bool(node.int("inverse")), bool(node.int("onesided"))
    place = single(axis) if axis is not None else node.int("axis") if node.version < 20 else -2
    if x.ndim < 2 or not -x.ndim <= place < x.ndim or place % x.ndim == x.ndim - 1:
        raise NotFoldable("no axis of numbers")
    parts, place = x.shape[-1], place % x.ndim
    if parts not in (1, 2) or (onesided and (parts == 2) != inverse):
        raise NotFoldable("no numbers")
    given = x.shape[place]
    size = single(length) if length is not None else 2 * (given - 1) if inverse and onesided else given
    if size < 1 or not x.size:
        raise NotFoldable("nothing to transform")
    wide = x.astype(np.float32) if x.dtype.itemsize < 4 else x
    numbers = wide[..., 0] if parts == 1 else wide[..., 0] + 1j * wide[..., 1]
    if inverse and onesided:
        return round_to(np.fft.irfft(numbers, size, place)[..., np.newaxis], x.dtype)
    found = (np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft)(numbers, size, place)
    return round_to(np.stack([found.real, found.imag], -1), x.dtype)


OPS = (
    OpInfo(
        "DFT",
        fold=_transform,
        quirks=(Quirk(_NAIVE, lambda n: True),),
    ),
    OpInfo(
        "STFT",
        fold=_short_time,
        quirks=(Quirk(_NAIVE, lambda n: True, fatal=True),),
        unsure_axes=lambda n, rank: range(1, rank),
    ),
)
