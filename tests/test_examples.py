"""The programs in examples/ run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_digits():
    command = [sys.executable, str(ROOT / "examples" / "digits.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    read = float(done.stdout.split()[2].rstrip("%"))
    assert read > 90
