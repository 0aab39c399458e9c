"""Writes docs/accuracy.md: how far results lie from exact ones. `python -m tools.measure_accuracy`.

Exact values are the tests' own (tests/operators/oracle.py): float64 or mpmath, without the definitions.
Of functions of one float32, arguments of every sign and exponent are sampled, and all 2^23 of those that
come near the largest error are tried. Those of several, and rows, are random bit patterns, ordinary numbers
and edges, and a dense sweep over [-20, 20]; of float16 all 65536, or random pairs. The unit is the distance
to the next number of the type (ULP).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from tests.operators.cases import CASES
from tests.operators.checking import apply, distance, expected, samples, spacing

TARGET = Path(__file__).parent.parent / "docs" / "accuracy.md"
COUNT = 150_000
"""Arguments of what has several."""
SAMPLES, MANTISSAS = 1 << 16, 1 << 23
"""Of one sign and exponent: those that are tried first, and all."""
NEAR = 0.4
"""What a sample's error may lack of the largest where all arguments around it are tried."""
MOST = 24
"""Signs and exponents of which all are tried."""

HEAD = """# Accuracy

The largest error measured, in ULP of the result's type, and where. Written by
`python -m tools.measure_accuracy`, which says how; exact values come from the tests' oracles. Of functions of
one float32, all arguments of the exponents where errors are largest are tried; of several, and of rows, many
that are drawn, so that there may be a slightly larger one. An error of 0.5 is that of a correctly rounded
result. Arithmetic, comparisons, selection and everything on integers are exact
(or correctly rounded) and not listed.

A float16 result is the float32 one rounded to nearest even. Where that one lies in the middle of two float16
the last rounding may go the wrong way, by a ten-thousandth of a unit: the last column tells for how many of
all 63,488 finite arguments. Errors of composed activations are those of
the formula in exact arithmetic; where a formula cancels (log-softmax near 0, Alpha * Input + Beta), the
absolute error is below 2^-24 and the relative one means little: such rows are marked with *.

"""


def main() -> None:
    wanted = []
    for case in (c for c in CASES.values() if c.ulps > 0.5):
        for dtype in ("float32", "float16"):
            types = {k: np.dtype(dtype) for k in case.types}
            if dtype in next(iter(case.types.values())).split() and case.needs(types):
                wanted.append((case.name, dtype))
    with ProcessPoolExecutor() as processes:
        made = processes.map(_named_row, wanted)
        rows = list(track(made, description="operators", total=len(wanted)))
    mark = f"<!-- measured {date.today()} by python -m tools.measure_accuracy -->\n\n"
    lines = ["| operator | type | max ULP | at | not the nearest |", "| --- | --- | --- | --- | --- |"]
    TARGET.write_text(HEAD + mark + "\n".join([*lines, *(f"| {' | '.join(r)} |" for r in rows)]) + "\n")


def _named_row(wanted: tuple[str, str]) -> tuple[str, ...]:
    name, dtype = wanted
    case = CASES[name]
    return _row(case, {k: np.dtype(dtype) for k in case.types})


class _Worst:
    """The largest error of a case so far."""

    def __init__(self, case: Any, types: dict[str, np.dtype]) -> None:
        self.case, self.types = case, types
        self.error, self.where, self.marked, self.other = 0.0, "-", False, 0

    def look(self, inputs: list[Any], attributes: Any) -> np.ndarray:
        """The errors of these arguments."""
        case, dtype = self.case, self.types[self.case.output.type_variable]
        with np.errstate(all="ignore"):
            y = apply(case, inputs, attributes, self.types)
            exact = np.broadcast_to(expected(case, inputs, attributes, dtype), y.shape)
            limit = float(np.finfo(dtype).max)
            error = distance(y, exact, dtype) / spacing(exact, dtype)
            fine = np.isfinite(exact) & (np.abs(exact) <= limit)
            if case.defined is not None:
                fine &= case.defined(inputs, attributes)
            if case.slack is not None:
                cancels = fine & (distance(y, exact, dtype) <= case.slack(inputs, attributes)) & (error > 4)
                self.marked, fine = self.marked or bool(cancels.any()), fine & ~cancels
            self.other = max(self.other, int(np.count_nonzero(fine & (y != exact.astype(dtype)))))
        error = np.where(fine, error, 0)
        k = np.unravel_index(int(error.argmax()), error.shape)
        if error[k] > self.error:
            self.error = float(error[k])
            self.where = ", ".join(f"{np.broadcast_to(x, y.shape)[k]:.9g}" for x in inputs)
        return error


def _row(case: Any, types: dict[str, np.dtype]) -> tuple[str, ...]:
    """The worst over the case's choices of attributes."""
    rng, dtype = np.random.default_rng(1), types[case.output.type_variable]
    worst, rows = _Worst(case, types), "SOFTMAX" in case.name
    for attributes in case.attributes:
        if len(case.inputs) == 1 and dtype == np.float32 and not rows:
            _sweep(worst, attributes)
        else:
            worst.look(_inputs(case, rng, dtype), attributes)
    name = case.name.removeprefix("ELEMENT_WISE_")
    every = dtype == np.float16 and len(case.inputs) == 1 and not rows
    told = str(worst.other) if every else ""
    return name + ("*" if worst.marked else ""), str(dtype), f"{worst.error:.2f}", worst.where, told


def _sweep(worst: _Worst, attributes: Any) -> None:
    found: dict[int, float] = {}
    for first in _signs_and_exponents():
        sampled = first + (np.arange(SAMPLES, dtype=np.int64) * (MANTISSAS // SAMPLES))
        found[first] = float(worst.look([_floats(sampled)], attributes).max())
    near = sorted((first for first in found if found[first] > worst.error - NEAR), key=found.__getitem__)
    for first in near[-MOST:]:
        for part in range(first, first + MANTISSAS, 1 << 20):
            worst.look([_floats(np.arange(part, min(part + (1 << 20), first + MANTISSAS)))], attributes)


def _signs_and_exponents() -> Iterator[int]:
    """The bits of the first number of each, in magnitude, that is finite."""
    for sign in (0, 1 << 31):
        for exponent in range(255):
            yield sign + exponent * MANTISSAS


def _floats(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.uint32).view(np.float32)


def _inputs(case: Any, rng: Any, dtype: np.dtype) -> list[Any]:
    if "SOFTMAX" in case.name:
        odd = samples(rng, dtype, COUNT).reshape(-1, 50)
        count = 10 * len(odd)
        usual = rng.standard_normal((count, 50)) * rng.choice([1, 5, 20, 40], (count, 1))
        return [np.concatenate([np.where(np.isfinite(odd), odd, 0), usual]).astype(dtype)]
    if len(case.inputs) == 1 and dtype == np.float16:
        return [np.arange(65536).astype(np.uint16).view(np.float16)]
    sweep = np.linspace(-20, 20, COUNT // 2).astype(dtype)
    parts = [np.concatenate([samples(rng, dtype, COUNT // 2), rng.permutation(sweep)]) for _ in case.inputs]
    return [np.ascontiguousarray(p) for p in parts]


if __name__ == "__main__":
    main()
