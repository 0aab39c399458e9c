"""The worker threads: how many, that they rest when there is nothing to do, and that they leave."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import anydml as dml
from anydml.codegen.jit import places_workers
from anydml.runtime.threads import MAX_WORKERS, check_threads, pool

LARGE = """
import numpy as np, anydml as dml
from anydml.runtime.threads import default_threads, pool
n = 1 << 20
x = np.arange(n, dtype=np.float32)
y = dml.if_(np.ones(n, np.uint8), x, x)
assert (x == y).all()
"""


def said(code, warned="", **environment):
    run = subprocess.run(
        [sys.executable, "-c", LARGE + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, **environment},
    )
    assert warned in run.stderr if warned else run.stderr == ""
    return run.stdout.strip()


def test_the_number_of_threads_follows_the_environment():
    assert said("print(default_threads(), pool.size)", ANYDML_NUM_THREADS="3") == "3 3"
    assert said("print(default_threads(), pool.size)", ANYDML_NUM_THREADS="1") == "1 1"
    for many in ("1000", "9" * 5000):  # Python refuses to read so many digits
        assert said("print(default_threads())", ANYDML_NUM_THREADS=many) == str(MAX_WORKERS + 1)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    usual = str(min(cores, MAX_WORKERS + 1))
    assert said("print(default_threads())", ANYDML_NUM_THREADS="") == usual
    for wrong in ("0", "-1", "many"):
        told = f"ANYDML_NUM_THREADS: expected a positive integer, but got {wrong!r}"
        assert said("print(default_threads())", told, ANYDML_NUM_THREADS=wrong) == usual


def test_a_system_without_threads_has_one_thread_work():
    code = """
import threading
pool.stop()
start, asked = threading.Thread.start, []
def refused(thread):
    asked.append(thread)
    raise RuntimeError("can't start new thread")
threading.Thread.start = refused
for _ in range(3):
    assert (dml.if_(np.ones(n, np.uint8), x, x) == x).all()
    dml.negate(x, out=y)
assert (y == -x).all()
print(len(asked), pool.size)
"""
    assert said(code, ANYDML_NUM_THREADS="3") == "1 1"


FIRST_CALLS = """
import sys, threading
import numpy as np, anydml as dml
sys.setswitchinterval(1e-6)
functions = [dml.add, dml.subtract, dml.multiply, dml.divide, dml.max, dml.min, dml.bit_and, dml.bit_xor]
calls = [(f, np.ones(3, t)) for f in functions for t in ("float32", "float16", "int32", "uint8")]
wrong, bar = [], threading.Barrier(4)
def work():
    for f, x in calls:
        bar.wait()
        for _ in range(4):  # from the second call on, machine code knows its kind
            try:
                y = f(x, x)
                assert y.dtype == x.dtype and (y == y[0]).all()
            except dml.InvalidOperator:
                pass
            except Exception as error:
                wrong.append((f.__name__, x.dtype.name, repr(error)))
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(wrong)
"""


def test_first_calls_by_several_threads_at_once():
    for _ in range(2):
        assert said(FIRST_CALLS) == "[]"


def test_workers_leave_when_the_interpreter_does():
    code = "import threading; print(sorted(t.name for t in threading.enumerate() if t.name.startswith('anydml')))"
    assert said(code, ANYDML_NUM_THREADS="3") == "['anydml-worker-0', 'anydml-worker-1']"


def test_workers_that_left_come_back():
    x = np.arange(1 << 20, dtype=np.int32)
    for _ in range(3):
        pool.stop()
        assert pool.size == 1
        assert (dml.if_(np.ones(x.size, np.uint8), x, x) == x).all()


def test_workers_rest_when_there_is_nothing_to_do():
    x = np.arange(1 << 20, dtype=np.int32)
    pool.start(3)
    dml.if_(np.ones(x.size, np.uint8), x, x)
    time.sleep(0.2)  # longer than any worker may spin
    before = time.process_time()
    time.sleep(1)
    assert time.process_time() - before < 0.5


@pytest.mark.skipif(not places_workers(), reason="threads cannot be told where to run")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: "0")(0)) < 2, reason="one processor")
def test_workers_leave_their_callers_processor_to_it():
    code = """
import ctypes, os, time
every = os.sched_getaffinity(0)
for here in sorted(every)[:2]:
    time.sleep(0.2)  # until workers sleep
    os.sched_setaffinity(0, {here})
    z = np.zeros(1 << 23, np.float32)
    dml.add(z, z, out=z)
    seen = [os.sched_getaffinity(t.native_id) for t in pool._threads]
    assert all(s == every - {here} for s in seen), (here, every, seen)
    os.sched_setaffinity(0, every)
print(os.sched_getaffinity(0) == every)"""
    assert said(code, ANYDML_NUM_THREADS="3") == "True"


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True])
def test_threads_are_a_positive_integer(wrong):
    with pytest.raises(dml.InvalidInput, match="threads: expected a positive integer"):
        check_threads(wrong)


def test_many_workers_share_a_job():
    """More workers than cores: chunks wait for nobody, and every element is written once."""
    x = np.arange(1 << 20, dtype=np.int64)
    condition = (x % 3 == 0).astype(np.uint8)
    device = dml.Device(threads=9)
    tensors = {"ATensor": x, "BTensor": -x, "OutputTensor": np.zeros_like(x), "ConditionTensor": condition}
    desc = {n: {"DataType": str(a.dtype).upper(), "Sizes": [x.size]} for n, a in tensors.items()}
    compiled = device.compile_operator(device.create_operator({"Type": "ELEMENT_WISE_IF", "Desc": desc}))
    output = tensors.pop("OutputTensor")
    bound = compiled.bind(tensors, {"OutputTensor": output})
    for _ in range(20):
        output[:] = 0
        bound.dispatch()
        assert (output == np.where(condition, x, -x)).all()
