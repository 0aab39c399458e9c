"""Whether two models do the same: both run on random inputs, drawn to take different branches.

The integers that a model compares with are among those drawn (a sample rate, a flag), and sizes that are
free are drawn from small ones and from those given. A third of the inputs are wild: NaN and infinities,
integers below zero and out of range; but not where operators are a library's own. That both fail alike
counts as the same. What no output needs is left out of both: the original may fail in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from anydml.dataclass import dataclass, field
from anydml.errors import counted
from anydml.onnx.model_pair import ModelPair
from anydml.onnx.providers.provider import RegionEnded
from anydml.onnx.random_inputs import MAX_ELEMENTS, Sizes, compared_with, drawn, elements_of, guess_sizes

SIZES = (1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256, 288, 512, 576, 1024, 0)
MAX_ATTEMPTS_PER_TRIAL = 20
"""Attempts for each that is wanted: most random sizes fit no model."""
MIN_TRIALS = 3
"""That agree, however long they take: a model may take seconds for a run."""
MAX_SECONDS_WITHOUT_SUCCESS = 8.0
"""After which it is given up, if no input was accepted."""
MAX_ENDED_RUNS = 4
"""After so many it is enough, if time is up."""
WARM_UP = 4
"""Runs that are not counted where times are compared."""


@dataclass(frozen=True)
class Verified:
    """How often both models ran, how often both refused, the seed, and what ran them.

    `time_ratio`: how long the new model took, of the original's time, on one thread of onnxruntime; None if
    another provider ran them, or too seldom. Random inputs are small: of a large one it may be another.
    `empty`: of those on which both ran, how many had no elements where they could have had some.
    """

    agreed: int
    refused: int
    seed: int
    provider: str
    time_ratio: float | None = field(default=None, compare=False)
    empty: int = 0

    @property
    def conclusive(self) -> bool:
        """Whether both ran on something: many models take what has no elements, and then do nothing."""
        return self.agreed > self.empty

    def __str__(self) -> str:
        refused = f", both refused {counted(self.refused, 'other')}" if self.refused else ""
        return f"{counted(self.agreed, 'random input')} with {self.provider}{refused} (seed {self.seed})"


def verify(
    pair: ModelPair,
    fixed: Mapping[str, Any],
    seed: int,
    trials: int,
    seconds: float,
    progress: Callable[[int, int], None] | None = None,
    sizes: Sequence[int] = SIZES,
    others: Collection[int] = (),
) -> Verified:
    """Compare a model with what was made of it.

    Args:
        fixed: contents of inputs that the result does not have.
        trials: inputs that both are to run on, if that takes no more than `seconds`.
        sizes: those that free ones are drawn from.
        others: integers to feed beside those that the original compares with.

    Raises:
        VerificationFailed: an output differs, or only one of them failed, with the seed and the inputs; but
            the result may take inputs without elements that the original does not.
    """
    graph = pair.graph
    if not pair.takes_empty:
        sizes = [n for n in sizes if n]
    numbers = sorted({*compared_with(graph), *others})
    always_empty = {v.name for v in graph.inputs if 0 in (v.sizes or ())}
    agreed = refused = ended = empty = 0
    good: list[Sizes] = []
    seconds_each: list[tuple[float, float]] = []
    start = time.monotonic()
    while agreed < trials and agreed + refused < MAX_ATTEMPTS_PER_TRIAL * trials:
        took = time.monotonic() - start
        if took > seconds and (agreed >= MIN_TRIALS or ended >= MAX_ENDED_RUNS):
            break
        if took > max(seconds, MAX_SECONDS_WITHOUT_SUCCESS) and not agreed:
            break
        rng = np.random.default_rng((seed, agreed + refused))
        shapes = good[rng.integers(len(good))] if good and rng.integers(2) else guess_sizes(graph, sizes, rng)
        if elements_of(graph, shapes) > MAX_ELEMENTS:  # may be declared so large that nothing has room
            refused += 1
            continue
        feeds = drawn(graph, fixed, numbers, shapes, rng, pair.tame)
        try:
            ran = pair.agrees(feeds, seed)
        except RegionEnded:
            refused, ended = refused + 1, ended + 1
            continue
        if ran is None:
            refused += 1
        else:
            agreed += 1
            empty += any(getattr(x, "size", 1) == 0 for n, x in feeds.items() if n not in always_empty)
            if agreed > WARM_UP:
                seconds_each.append(ran.seconds)
            good.append(shapes)
        if progress is not None:
            progress(agreed, trials)
    one, other = (sum(column) for column in zip(*seconds_each, strict=True)) if seconds_each else (0.0, 0.0)
    ratio = other / one if one and pair.provider.name == "onnxruntime" and not pair.literal else None
    return Verified(agreed, refused, seed, pair.provider.name, ratio, empty)
