"""Speech in a recording, found by Silero VAD: a recurrent model with 25 nested `If`s.

The model sees one window of sound after another, each with the end of the one before it (its context) and
its own state. It comes from the PyPI package `silero-vad`, of which only the model file is used.
"""

from __future__ import annotations

import importlib.util
import time
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
Run = Callable[[Any, dict[str, Any]], list[Any]]

WINDOW = {16000: 512, 8000: 256}
"""Samples of one window, by sample rate: 32 ms."""
CONTEXT = {16000: 64, 8000: 32}
THRESHOLD = 0.5


@dataclass(frozen=True)
class Track:
    """The probability of speech in each window, and what it took."""

    rate: int
    probabilities: NDArray[np.float32]
    seconds: NDArray[np.float64]
    """Time of each window's run."""

    @property
    def microseconds(self) -> float:
        return float(np.median(self.seconds) * 1e6)

    def segments(self) -> list[tuple[float, float]]:
        """Stretches of speech as (start, end) in seconds; gaps shorter than 0.2 s do not part them."""
        step = WINDOW[self.rate] / self.rate
        found: list[tuple[float, float]] = []
        for k in np.flatnonzero(self.probabilities >= THRESHOLD):
            start, end = float(k * step), float((k + 1) * step)
            if found and start - found[-1][1] < 0.2:
                found[-1] = (found[-1][0], end)
            else:
                found.append((start, end))
        return found


def model_path() -> Path:
    """The model file inside the installed package silero-vad, which is not imported."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package silero-vad is missing: pip install --no-deps silero-vad")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.onnx"


def read_wav(path: Path) -> tuple[Samples, int]:
    """16-bit mono sound as samples in [-1, 1), and its rate."""
    with wave.open(str(path), "rb") as file:
        if file.getnchannels() != 1 or file.getsampwidth() != 2:
            raise ValueError(f"{path}: expected 16-bit mono sound")
        raw = file.readframes(file.getnframes())
        return np.frombuffer(raw, "<i2").astype(np.float32) / np.float32(32768), file.getframerate()


def halved(samples: Samples) -> Samples:
    """Every second sample, after a low-pass filter that keeps the rest from folding back."""
    taps = np.arange(-31, 32)
    kernel = np.sinc(taps / 2) * np.hamming(taps.size)
    return np.convolve(samples, kernel / kernel.sum(), mode="same")[::2].astype(np.float32)


def listen(run: Run, samples: Samples, rate: int) -> Track:
    """Run the model over a recording, window by window, with its state."""
    size, context = WINDOW[rate], CONTEXT[rate]
    count = len(samples) // size
    padded = np.concatenate([np.zeros(context, np.float32), samples])
    state = np.zeros((2, 1, 128), np.float32)
    sr = np.array(rate, np.int64)
    probabilities, seconds = np.zeros(count, np.float32), np.zeros(count)
    for k in range(count):
        window = padded[None, k * size : (k + 1) * size + context]
        start = time.perf_counter()
        output, state = run(None, {"input": window, "state": state, "sr": sr})
        seconds[k] = time.perf_counter() - start
        probabilities[k] = output[0, 0]
    return Track(rate, probabilities, seconds)
