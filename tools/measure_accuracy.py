"""Writes docs/accuracy.md: how far results lie from exact ones. `python -m tools.measure_accuracy`.

Exact values are the tests' own (tests/operators/oracle.py): float64 or mpmath, without the definitions.
float32 arguments are random bit patterns, ordinary numbers and edges, and a dense sweep over [-20, 20];
of float16 all 65536, or random pairs. The unit is the distance to the next number of the type (ULP).
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from tests.operators.cases import CASES
from tests.operators.checking import apply, distance, expected, samples, spacing

TARGET = Path(__file__).parent.parent / "docs" / "accuracy.md"
COUNT = 150_000

HEAD = """# Accuracy

The largest error measured, in ULP of the result's type, and where. Written by
`python -m tools.measure_accuracy`, which says how; exact values come from the tests' oracles. An error of 0.5
is that of a correctly rounded result. Arithmetic, comparisons, selection and everything on integers are exact
(or correctly rounded) and not listed.

A float16 result is the float32 one rounded to nearest even. Where that one lies in the middle of two float16
the last rounding may go the wrong way, by a ten-thousandth of a unit: the last column tells for how many of
all 63,488 finite arguments. Errors of composed activations are those of
the formula in exact arithmetic; where a formula cancels (log-softmax near 0, Alpha * Input + Beta), the
absolute error is below 2^-24 and the relative one means little: such rows are marked with *.

"""


def main() -> None:
    rows = []
    chosen = [c for c in CASES.values() if c.ulps > 0.5]
    for case in track(chosen, description="operators"):
        for dtype in ("float32", "float16"):
            types = {k: np.dtype(dtype) for k in case.types}
            if dtype in next(iter(case.types.values())).split() and case.needs(types):
                rows.append(_row(case, types))
    mark = f"<!-- measured {date.today()} by python -m tools.measure_accuracy -->\n\n"
    lines = ["| operator | type | max ULP | at | not the nearest |", "| --- | --- | --- | --- | --- |"]
    TARGET.write_text(HEAD + mark + "\n".join([*lines, *(f"| {' | '.join(r)} |" for r in rows)]) + "\n")


def _row(case: Any, types: dict[str, np.dtype]) -> tuple[str, ...]:
    """The worst over the case's choices of attributes."""
    rng, dtype = np.random.default_rng(1), types[case.output.type_variable]
    worst, where, marked, other = 0.0, "-", False, 0
    for attributes in case.attributes:
        inputs = _inputs(case, rng, dtype)
        with np.errstate(all="ignore"):
            y = apply(case, inputs, attributes, types)
            exact = np.broadcast_to(expected(case, inputs, attributes, dtype), y.shape)
            limit = float(np.finfo(dtype).max)
            error = distance(y, exact, dtype) / spacing(exact, dtype)
            fine = np.isfinite(exact) & (np.abs(exact) <= limit)
            if case.defined is not None:
                fine &= case.defined(inputs, attributes)
            if case.slack is not None:
                cancels = fine & (distance(y, exact, dtype) <= case.slack(inputs, attributes)) & (error > 4)
                marked, fine = marked or bool(cancels.any()), fine & ~cancels
            other = max(other, int(np.count_nonzero(fine & (y != exact.astype(dtype)))))
        error = np.where(fine, error, 0)
        k = np.unravel_index(int(error.argmax()), error.shape)
        if error[k] > worst:
            worst = float(error[k])
            where = ", ".join(f"{np.broadcast_to(x, y.shape)[k]:.9g}" for x in inputs)
    name = case.name.removeprefix("ELEMENT_WISE_")
    every = dtype == np.float16 and len(case.inputs) == 1 and "SOFTMAX" not in name
    return name + ("*" if marked else ""), str(dtype), f"{worst:.2f}", where, str(other) if every else ""


def _inputs(case: Any, rng: Any, dtype: np.dtype) -> list[Any]:
    if "SOFTMAX" in case.name:
        x = samples(rng, dtype, COUNT).reshape(-1, 50)
        return [np.where(np.isfinite(x), x, 0).astype(dtype)]
    if len(case.inputs) == 1 and dtype == np.float16:
        return [np.arange(65536).astype(np.uint16).view(np.float16)]
    sweep = np.linspace(-20, 20, COUNT // 2).astype(dtype)
    parts = [np.concatenate([samples(rng, dtype, COUNT // 2), rng.permutation(sweep)]) for _ in case.inputs]
    return [np.ascontiguousarray(p) for p in parts]


if __name__ == "__main__":
    main()
