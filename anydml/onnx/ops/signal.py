"""Fourier transforms, which have no rule of ours."""

from __future__ import annotations

from anydml.onnx.ops.opinfo import OpInfo, Quirk

_NAIVE = "onnxruntime sums naively, with an error that grows with the length"


OPS = (
    OpInfo("DFT", quirks=(Quirk(_NAIVE, lambda n: True),)),
    OpInfo(
        "STFT",
        quirks=(Quirk(_NAIVE, lambda n: True, fatal=True),),
        unsure_axes=lambda n, rank: range(1, rank),
    ),
)
