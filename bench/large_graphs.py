"""DirectML graphs of many nodes beside JAX: `python -m bench.large_graphs`.

Random element-wise nodes, each of the one before and of another: one of the last eight, or the input. Each
library alone in a process that has compiled a little before; told are the seconds from the first node to the
first result, with nothing on the disk, and of a run once it is warm.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np

from bench.processes import run

NODES, ELEMENTS, ROUNDS = 1000, 1 << 16, 3


def built(x: Any, f: Any, near: bool) -> Any:
    """What 1,000 nodes make of `x` by the functions of `f`."""
    rnd, values = random.Random(0), [x]
    operators: Sequence[Callable[[Any, Any], Any]] = (
        lambda a, b: a + b,
        lambda a, b: a * b * 0.5 + 0.2,
        lambda a, b: f.max(a, b),
        lambda a, b: f.tanh(a),
        lambda a, b: f.choose(a, b, a * 0.5 + 0.1),
        lambda a, b: f.abs(a - b) + 0.1,
    )
    for _ in range(NODES):
        other = values[max(len(values) - 1 - rnd.randrange(8), 0)] if near else x
        values.append(rnd.choice(operators)(values[-1], other))
    return values[-1]


Compile = Callable[[Callable[[Any], Any]], Callable[[], object]]
"""A function of a tensor to a run of it."""


def ours(x: np.ndarray) -> tuple[Compile, type]:
    import anydml as dml

    class Functions:
        max, tanh, abs = dml.max, dml.tanh, dml.abs

        @staticmethod
        def choose(a: Any, b: Any, c: Any) -> Any:
            return dml.if_(dml.less_than(a, b), c, b)

    def compiled(make: Callable[[Any], Any]) -> Callable[[], object]:
        g = dml.GraphBuilder()
        graph = g.compile({"y": make(g.input("x", "FLOAT32", list(x.shape)))})
        return lambda: graph({"x": x})

    return compiled, Functions


def jax(x: np.ndarray) -> tuple[Compile, type]:
    library, jnp = import_module("jax"), import_module("jax.numpy")

    class Functions:
        max, tanh, abs = jnp.maximum, jnp.tanh, jnp.abs

        @staticmethod
        def choose(a: Any, b: Any, c: Any) -> Any:
            return jnp.where(a < b, c, b)

    def compiled(make: Callable[[Any], Any]) -> Callable[[], object]:
        jitted = library.jit(make)
        return lambda: jitted(x).block_until_ready()

    return compiled, Functions


def times(library: str, near: bool) -> tuple[float, float]:
    """Seconds until the first result, and of a run."""
    compiled, functions = LIBRARIES[library](np.random.default_rng(0).random(ELEMENTS, np.float32))
    compiled(lambda v: v + 1)()
    start = time.perf_counter()
    call = compiled(lambda v: built(v, functions, near))
    call()
    first, found = time.perf_counter() - start, []
    for _ in range(40):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return first, median(found[20:])


LIBRARIES: Mapping[str, Callable[[np.ndarray], tuple[Compile, type]]] = {"anydml": ours, "JAX": jax}


def measured(library: str, near: bool) -> tuple[float, float]:
    """In a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(
            "bench.large_graphs", library, str(int(near)), ANYDML_CACHE_DIR=folder, JAX_PLATFORMS="cpu"
        )
    done.check_returncode()
    first, warm = json.loads(done.stdout.splitlines()[-1])
    return first, warm


def main() -> None:
    if len(sys.argv) > 2:
        print(json.dumps(times(sys.argv[1], bool(int(sys.argv[2])))))
        return
    print("| the other operand | library | until the first result | a run |\n| --- | --- | --- | --- |")
    for near, name in ((True, "one of the last eight"), (False, "the input")):
        for library in LIBRARIES:
            found = [measured(library, near) for _ in range(ROUNDS)]
            first, warm = (median(f[k] for f in found) for k in range(2))
            print(f"| {name} | {library} | {first:.2f} s | {warm * 1e3:,.1f} ms |", flush=True)


if __name__ == "__main__":
    main()
