"""What an entry of the hand-made corpus is, and how it runs in a child."""

from __future__ import annotations

import faulthandler
import resource
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anydml

ANY_ERROR = (
    "InvalidModel",
    "InvalidInput",
    "InvalidOperator",
    "ExecutionFailed",
    "Unsupported",
    "OutOfMemory",
)
"""Which of them does not matter."""
RIGHT = ("right",)
EITHER = (*RIGHT, *ANY_ERROR)
"""Whatever a library makes of it, as long as it is one of these."""
SPACE = 3 << 30
"""Bytes of address space beyond what is there at the start."""


@dataclass(frozen=True)
class Entry:
    """Something nasty.

    Attributes:
        name: of its function.
        run: does it in the working folder, which is empty; a wrong result fails an assertion.
        expected: names of errors, or `right`.
        seconds: what it may take, and `megabytes` the process.
        interrupted: whether Ctrl-C is pressed while it runs.
    """

    name: str
    group: str
    run: Callable[[], object]
    expected: tuple[str, ...]
    seconds: float
    megabytes: int
    interrupted: bool


ENTRIES: list[Entry] = []


def nasty(
    *expected: str,
    seconds: float = 10,
    megabytes: int = 1024,
    interrupted: bool = False,
    group: str = "models",
) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Make a function an entry."""

    def kept(function: Callable[[], object]) -> Callable[[], object]:
        name = getattr(function, "__name__", "entry")
        what = f"hand-made {group}"
        ENTRIES.append(Entry(name, what, function, expected or RIGHT, seconds, megabytes, interrupted))
        return function

    return kept


def run(name: str) -> dict[str, Any]:
    """Run an entry in this process, which is limited for good, and tell how it ended."""
    entry = next(e for e in ENTRIES if e.name == name)
    warnings.simplefilter("ignore")
    anydml.load, anydml.flatten  # noqa: B018 - what is imported does not count
    import onnxruntime  # noqa: F401

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    faulthandler.dump_traceback_later(entry.seconds)  # to standard error: where it is slow
    start = time.perf_counter()
    outcome, text = "right", ""
    try:
        entry.run()
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        home = str(Path(anydml.__file__).parent)
        own = [f for f in frames if f.filename.startswith(home)]
        where = f"{own[-1].filename.removeprefix(home + '/')}:{own[-1].lineno}" if own else "the entry"
        outcome, text = type(error).__name__, f"{str(error)[:500]} (at {where})"
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"outcome": outcome, "text": text, "seconds": seconds, "memory": memory}
