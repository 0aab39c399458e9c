"""Random whole models against onnxruntime without optimisation and onnx.reference: `tests/robustness`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from abuse.figures import Figure
from tests.robustness.differential import Checks
from tests.robustness.running import Summary, outcomes


def check(count: int, seed: int, tell: Callable[[float], object]) -> list[Figure]:
    """Models of these many seeds: in sessions, with inputs made constants, flattened in each way."""
    start, summary, wrong = time.monotonic(), Summary(), 0
    seeds = range(seed * 1_000_000, seed * 1_000_000 + count)
    for done, outcome in enumerate(outcomes(seeds, os.cpu_count() or 1, Checks()), start=1):
        summary.add(outcome)
        wrong += bool(outcome.findings)
        for finding in outcome.findings:
            print(finding)
        tell(done / count)
    seconds = time.monotonic() - start
    note = f"each on 4 feeds, run again and again, as constants, flattened; {seconds:.0f} s"
    return [Figure("random whole models, against two oracles", count, wrong, note)]
