"""Times of several contenders in one process, in turns, so that each meets the same machine.

Before its turn, everybody else's threads have come to rest: those of onnxruntime, for one, spin for some
60 ms after a run, and whoever came next would have one core less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from statistics import median

ROUNDS = 7
WARM_UP = 0.01
"""Seconds of calls before those that count, for threads to wake and find their cores."""
PATIENCE = 3.0
"""Seconds to wait for other threads to rest, at most."""


def geometric_mean(ratios: Sequence[float]) -> float:
    return exp(sum(map(log, ratios)) / len(ratios))


def middle(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The pair with the median of the ratios; of two in the middle, the larger one."""
    return sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]


def medians(contenders: Mapping[str, Callable[[], object]], seconds: float = 0.25) -> dict[str, float]:
    """Seconds of one call of each: the median over rounds of the median within a round.

    Args:
        contenders: what to call, by name.
        seconds: to spend on each contender, about, over all rounds.
    """
    return {name: median(times) for name, times in rounds(contenders, seconds, ROUNDS).items()}


def rounds(
    contenders: Mapping[str, Callable[[], object]], seconds: float, count: int
) -> dict[str, list[float]]:
    """Seconds of one call of each, round by round."""
    calls = {}
    for name, call in contenders.items():
        until_quiet()
        call()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        calls[name] = max(3, min(20000, int(seconds / count / max(once, 1e-7))))
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(count):
        for name, call in contenders.items():
            until_quiet()
            found[name].append(_within(call, calls[name]))
    return found


def until_quiet() -> None:
    """Return when this process has used next to no processor for 20 ms in a row."""
    deadline, calm = time.perf_counter() + PATIENCE, 0
    while calm < 5 and time.perf_counter() < deadline:
        used = time.process_time()
        time.sleep(0.004)
        calm = calm + 1 if time.process_time() - used < 0.001 else 0


def _within(call: Callable[[], object], count: int) -> float:
    clock = time.perf_counter
    end = clock() + WARM_UP
    while clock() < end:
        call()
    times = []
    for _ in range(count):
        start = clock()
        call()
        times.append(clock() - start)
    return median(times)
