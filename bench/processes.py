"""Benchmarks of what may end the process or never come back, each case in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

SECONDS = 120


def tell(result: str) -> None:
    """Tell the process that asked; what libraries print beside it does not matter."""
    print(json.dumps({"result": result}))


def run(
    module: str, *arguments: str, seconds: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python -m module arguments`, with what it prints.

    Raises:
        subprocess.TimeoutExpired: it took longer than `seconds`.
    """
    command = [sys.executable, "-m", module, *arguments]
    around = os.environ | environment
    return subprocess.run(command, env=around, capture_output=True, text=True, timeout=seconds, check=False)


def told_by(module: str, *arguments: str) -> Any:
    """What `python -m module arguments` prints last, as JSON, with no kernel on disk.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    with tempfile.TemporaryDirectory() as cache:
        done = run(module, *arguments, ANYDML_CACHE_DIR=cache, ORT_DISABLE_TELEMETRY="1")
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def asked(module: str, *arguments: str) -> str:
    """What `python -m module arguments` tells, or how it ended."""
    try:
        done = run(module, *arguments, seconds=SECONDS)
    except subprocess.TimeoutExpired:
        return f"over {SECONDS} s"
    if done.returncode < 0:
        return "ends the process"
    told = [line for line in done.stdout.splitlines() if line.startswith('{"result"')]
    return str(json.loads(told[-1])["result"]) if told and done.returncode == 0 else "fails"
