"""Signals amid the making of code: their handlers may raise, and nobody waits for ever afterwards."""

import os
import subprocess
import sys
import threading

import pytest

from anydml.codegen import elf
from anydml.codegen.compiling import uninterrupted
from anydml.errors import OutOfMemory

RAISING = """
import os, random, signal, tempfile, threading, time
os.environ["ANYDML_CACHE_DIR"] = tempfile.mkdtemp()
import numpy as np, anydml as dml

def compute(factor):
    b = dml.GraphBuilder()
    x = b.input("x", "FLOAT32", [4])
    return b.compile({"y": dml.sin(x * factor)})({"x": np.ones(4, np.float32)})["y"][0]

signal.signal(signal.SIGALRM, signal.default_int_handler)
random.seed(1)
compute(0.5)
until = time.monotonic() + 6
k = raised = 0
while time.monotonic() < until:
    k += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + random.random() * 0.01)
        compute(1.0 + k)
    except KeyboardInterrupt:
        raised += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if k % 20 == 0:
        found = []
        other = threading.Thread(target=lambda: found.append(compute(random.random())), daemon=True)
        other.start()
        other.join(20)
        assert found, k
        def fork():
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
            found.append(child)
        forker = threading.Thread(target=fork, daemon=True)
        forker.start()
        forker.join(20)
        assert len(found) == 2, k
assert np.isclose(compute(2.0), np.sin(2.0))
print(raised > 20)
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork, nor an alarm")
def test_handlers_that_raise_leave_no_lock():
    env = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", RAISING], capture_output=True, text=True, env=env, timeout=120, check=False
    )
    assert done.stdout.strip() == "True", done.stderr[-2000:]


def test_the_main_thread_has_results_and_errors_of_another_one():
    @uninterrupted
    def work(fail):
        if fail:
            raise ValueError("as it was")
        return threading.get_ident()

    assert work(False) != threading.get_ident()
    with pytest.raises(ValueError, match="as it was"):
        work(True)
    found = []
    thread = threading.Thread(target=lambda: found.append((work(False), threading.get_ident())))
    thread.start()
    thread.join()
    assert found[0][0] == found[0][1]


def test_a_system_without_a_thread_to_give(monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("anydml.codegen.compiling._thread.start_new_thread", refuse)
    assert uninterrupted(threading.get_ident)() == threading.get_ident()


def test_a_system_without_memory_for_code(monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(elf.mmap, "mmap", refuse)
    with pytest.raises(OutOfMemory, match="4,096 bytes of memory for machine code"):
        elf._memory(4096)
