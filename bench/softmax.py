"""Softmax and log-softmax by the length of rows, beside onnxruntime and torch: `python -m bench.softmax`.

2^20 elements in all, into memory that is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import anydml as dml
from anydml.runtime.threads import default_threads
from bench.measure import medians
from bench.peers import calls
from bench.rows import Row

LENGTHS = (64, 77, 100, 197, 256, 1024)


def row(length: int, operator: str, torch: str) -> Row:
    def theirs(t: Any, x: Any, out: Any) -> Any:
        return getattr(t, torch)(x, -1, out=out)

    return Row(
        torch, "compute", lambda x: x, torch=theirs, nodes=f"y = {operator} <axis = -1> (x)", row=length
    )


def main() -> None:
    table = Table(
        "rows of", "softmax", "log_softmax", title=f"{default_threads()} threads: ours / the faster peer's"
    )
    for length in LENGTHS:
        x = np.random.default_rng(0).standard_normal(((1 << 20) // length, length)).astype(np.float32)
        ratios = []
        for operator, torch, ours in (
            ("Softmax", "softmax", dml.activation_softmax),
            ("LogSoftmax", "log_softmax", dml.activation_log_softmax),
        ):
            made: dict[str, Callable[[], object]] = {"anydml": partial(ours, x, out=np.zeros_like(x))}
            made |= calls(row(length, operator, torch), {"x": x}, np.zeros_like(x))
            times = medians(made, 0.3)
            own = times.pop("anydml")
            ratios.append(f"{own / min(times.values()):.2f}")
        table.add_row(str(length), *ratios)
    Console().print(table)


if __name__ == "__main__":
    main()
