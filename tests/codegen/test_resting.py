"""LLVM's own code is out of memory once a plan is compiled, and comes back when there is more to compile."""

import platform
import subprocess
import sys
import textwrap

import pytest

CODE = """
import os, tempfile
os.environ["ANYDML_CACHE_DIR"] = tempfile.mkdtemp()
import numpy as np
import anydml as dml
from anydml.codegen import compiling, resting

def in_memory():
    found, inside = 0, False
    for line in open("/proc/self/smaps"):
        if line.split()[0].count("-") == 1 and ":" not in line.split()[0]:
            inside = "libllvmlite" in line and " r-xp " in line
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found

given = resting.give_back
before = []
def watched(library):
    before.append(in_memory())
    given(library)
    before.append(in_memory())
compiling.give_back = watched

for k in range(1, 4):
    g = dml.GraphBuilder()
    x = g.input("x", "FLOAT32", (1, 1, 1, 1000))
    y = x
    for _ in range(k):
        y = dml.tanh(y) * (k + 1)
    graph = g.compile({"y": y})
    given_x = np.linspace(-1, 1, 1000, dtype=np.float32).reshape(1, 1, 1, 1000)
    wanted = given_x
    for _ in range(k):
        wanted = np.tanh(wanted) * np.float32(k + 1)
    np.testing.assert_allclose(graph({"x": given_x})["y"], wanted, rtol=1e-5)
assert len(before) == 6, before
assert all(after < 0.2 * full for full, after in zip(before[::2], before[1::2])), before
g = dml.GraphBuilder()
g.compile({"y": dml.tanh(g.input("x", "FLOAT32", (1, 1, 1, 1000))) * 2})
assert len(before) == 6, "nothing was compiled, so there is nothing to give back"
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="Linux tells and does it",
)
def test_llvm_is_out_of_memory_when_it_has_compiled():
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(CODE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
