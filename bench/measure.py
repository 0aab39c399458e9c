"""Times of several contenders in one process, in turns, so that each meets the same machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

ROUNDS = 7


def medians(contenders: Mapping[str, Callable[[], object]], seconds: float = 0.25) -> dict[str, float]:
    """Seconds of one call of each: the median over rounds of the median within a round.

    Args:
        contenders: what to call, by name.
        seconds: to spend on each contender, about, over all rounds.
    """
    counts = {}
    for name, call in contenders.items():
        call()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        counts[name] = max(3, min(20000, int(seconds / ROUNDS / max(once, 1e-7))))
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            rounds[name].append(_within(call, counts[name]))
    return {name: median(times) for name, times in rounds.items()}


def _within(call: Callable[[], object], count: int) -> float:
    clock = time.perf_counter
    call()
    times = []
    for _ in range(count):
        start = clock()
        call()
        times.append(clock() - start)
    return median(times)
