"""A hand-made corpus of what would harm a naive reader: each entry says what is expected, and within what.

    python -m abuse.nasty                 all of them
    python -m abuse.nasty nested_ifs      one of them, here, with its traceback

Each runs in a child process of its own, in an empty folder, with 3 GiB of address space more than it starts
with. Its time is that of the entry itself, without imports; its memory is the process's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from abuse import nasty_files, nasty_models, nasty_sizes  # noqa: F401 - their functions are entries
from abuse.figures import Figure
from abuse.nasty_entry import ENTRIES, Entry, run

STARTUP = 20
"""Seconds that a child's imports may take."""


def check(progress: Callable[[float], object]) -> list[Figure]:
    """Try all entries."""
    return figures(list(results(ENTRIES, progress)))


def results(
    entries: list[Entry], progress: Callable[[float], object]
) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """What came of each entry; `wrong` says what is not as expected, and is empty otherwise."""
    with tempfile.TemporaryDirectory(prefix="nasty-") as cache, ThreadPoolExecutor(os.cpu_count()) as pool:
        descriptors = [(e, pool.submit(_probe, e, cache)) for e in entries]
        for k, (entry, descriptor) in enumerate(descriptors):
            yield entry, descriptor.result()
            progress((k + 1) / len(descriptors))


def figures(found: list[tuple[Entry, dict[str, Any]]]) -> list[Figure]:
    groups = defaultdict(list)
    for entry, result in found:
        groups[entry.group].append((entry, result))
    made = []
    for group, members in groups.items():
        bad = [e.name for e, r in members if r["wrong"]]
        slowest, name = max((r["seconds"], e.name) for e, r in members)
        memory = max(r["memory"] for _, r in members)
        note = f"peak {memory >> 20} MB, slowest {slowest:.1f} s ({name})"
        made.append(Figure(group, len(members), len(bad), f"{note}; bad: {', '.join(bad)}" if bad else note))
    return made


def _probe(entry: Entry, cache: str) -> dict[str, Any]:
    """An entry in a child."""
    with tempfile.TemporaryDirectory(prefix="nasty-") as folder:
        command = [sys.executable, "-X", "faulthandler", "-m", "abuse.nasty", entry.name, "--told"]
        env = os.environ | {"ANYDML_CACHE_DIR": cache}
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
        limit = entry.seconds + STARTUP
        start = time.monotonic()
        try:
            if entry.interrupted:
                _interrupt(child, folder, entry.seconds)
            out, err = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            seconds = time.monotonic() - start
            text = f"still runs after {seconds:.0f} s; {_where(err.decode(errors='replace'))}"
            return {"wrong": text, "seconds": seconds, "memory": 0}
    lines = [line for line in out.splitlines() if line.startswith(b"{")]
    if child.returncode < 0 or not lines:
        how = signal.Signals(-child.returncode).name if child.returncode < 0 else f"exit {child.returncode}"
        text = err.decode(errors="replace")
        return {"wrong": f"the process ended: {how}; {text[:1500]}", "seconds": 0.0, "memory": 0}
    told: dict[str, Any] = json.loads(lines[-1])
    told["wrong"] = _wrong(entry, told)
    return told


def _where(trace: str) -> str:
    """The innermost lines of the thread that runs the entry."""
    threads = [t for t in trace.split("most recent call first") if "nasty_entry" in t]
    lines = re.findall(r'File "(?:.*/)?(.+?/.+?)", line (\d+) in (\S+)', threads[0]) if threads else []
    return " < ".join(f"{file}:{line} {name}" for file, line, name in lines[:5])


def _interrupt(child: subprocess.Popen[bytes], folder: str, seconds: float) -> None:
    """Ctrl-C, two seconds after the entry says that it runs."""
    end = time.monotonic() + STARTUP
    while not (Path(folder) / "runs").exists() and time.monotonic() < end and child.poll() is None:
        time.sleep(0.05)
    time.sleep(min(2.0, seconds / 2))
    if child.poll() is None:
        child.send_signal(signal.SIGINT)


def _wrong(entry: Entry, told: dict[str, Any]) -> str:
    """What is not as expected."""
    if told["outcome"] not in entry.expected:
        return f"expected {' or '.join(entry.expected)}, but got {told['outcome']}: {told['text']}"
    if told["seconds"] > entry.seconds:
        return f"expected {entry.seconds} s at most, but took {told['seconds']:.1f} s"
    if told["memory"] > entry.megabytes << 20:
        return f"expected {entry.megabytes} MB at most, but took {told['memory'] >> 20} MB"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m abuse.nasty", description=__doc__)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--only", help="names that contain this")
    parser.add_argument("--told", action="store_true", help="say how it ended as JSON")
    asked = parser.parse_args()
    if asked.name and asked.told:
        print(json.dumps(run(asked.name)), flush=True)
        os._exit(0)  # at once, whatever threads still do
    if asked.name:
        next(e for e in ENTRIES if e.name == asked.name).run()
        return
    found = []
    chosen = [e for e in ENTRIES if (asked.only or "") in e.name]
    for entry, result in results(chosen, lambda done: None):
        found.append((entry, result))
        outcome = result.get("outcome", "none")
        print(
            f"{entry.name:40} {outcome:20} {result['seconds']:6.2f} s {result['memory'] >> 20:5} MB",
            flush=True,
        )
        if result["wrong"]:
            print(f"    WRONG: {result['wrong'][:1500]}", flush=True)
    for figure in figures(found):
        print(f"{figure.what}: {figure.count}, {figure.bad} bad; {figure.note}")


if __name__ == "__main__":
    main()
