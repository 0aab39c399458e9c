"""How DxDispatch measures a dispatch: samples over iterations, the first ones cold, each over repeats.

Dispatch 'if': 10 iterations, 0.0021 ms median (CPU)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median

from anydml.dataclass import dataclass


@dataclass(frozen=True)
class DispatchTiming:
    """DxDispatch's timing options, under their names there.

    Attributes:
        dispatch_iterations: samples to take.
        dispatch_repeat: dispatches in each, which is their mean.
        milliseconds_to_run: time to go on taking samples, instead of their number.
        dispatch_interval: milliseconds from one sample's beginning to the next one's, at least.
        warmup_samples: the first ones, which are cold.
        timing_verbosity: 0, the median of the hot ones; 1, more of both kinds; 2, every sample, too.
    """

    dispatch_iterations: int = 1
    dispatch_repeat: int = 1
    milliseconds_to_run: float | None = None
    dispatch_interval: float = 0
    warmup_samples: int = 1
    timing_verbosity: int = 0

    def samples(self, dispatch: Callable[[], object]) -> list[float]:
        """Milliseconds of a dispatch, sample by sample."""
        found: list[float] = []
        clock = time.perf_counter
        start = clock()
        end = start + (self.milliseconds_to_run or 0) / 1e3
        while not found or (
            clock() < end if self.milliseconds_to_run is not None else len(found) < self.dispatch_iterations
        ):
            if found and (early := start + self.dispatch_interval / 1e3 - clock()) > 0:
                time.sleep(early)
            start = clock()
            for _ in range(self.dispatch_repeat):
                dispatch()
            found.append((clock() - start) * 1e3 / self.dispatch_repeat)
        return found

    def told(self, name: str, samples: Sequence[float], initialize: float) -> Iterator[str]:
        """The lines that tell them; `initialize`: milliseconds that it took to make the dispatchable."""
        count = min(self.warmup_samples, len(samples) - 1)  # the last one is hot in any case
        cold, hot = samples[:count], samples[count:]
        if self.timing_verbosity == 0:
            yield f"Dispatch '{name}': {len(samples)} iterations, {median(hot):.4f} ms median (CPU)"
            return
        yield f"Initialize '{name}': {initialize:.4f} ms"
        yield f"Dispatch '{name}': {len(samples)} iterations"
        for word, part in (("(Cold) ", cold), ("(Hot)  ", hot)):
            if part:
                figures = (f"{f(part):.4f} ms {n}" for f, n in _FIGURES)
                yield f"CPU Timings {word}: {len(part)} samples, {', '.join(figures)}"
        if self.timing_verbosity > 1:
            yield "The timings of each iteration:"
            yield from (f"iteration {k}: {sample:.4f} ms (CPU)" for k, sample in enumerate(samples))


_FIGURES: tuple[tuple[Callable[[Sequence[float]], float], str], ...] = (
    (mean, "average"),
    (min, "min"),
    (median, "median"),
    (max, "max"),
)
