"""Forked children: of whatever parent, they work, and they end.

Each test is a script in a process of its own, for a child that hangs must not hold up the others.
"""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PARENT = """
import multiprocessing, os, signal, sys, threading, time
import numpy as np
import anydml as dml
from onnx import parser

def model(body):
    return parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + body)

MATMUL = model("m (float[n,n] x) => (float[n,n] y) { y = MatMul(x, x) }")
LOOP = model('''m (int64 k, bool c, float[n,n] w) => (float[p,q] y) { t = Constant<value=bool {1}>() y = Loop(k, t, w)
    <body = b (int64 i, bool cc, float[n,n] st) => (bool c2, float[n,n] s2) { c2 = Identity(cc) s2 = If(c)
    <then_branch = g () => (float[n,n] q) { q = MatMul(st, st) }, else_branch = h () => (float[n,n] q) { q = Abs(st) }> }> }''')
x = np.ones((4, 4), np.float32)
large = np.ones((64, 64), np.float32)
LOOPED = {"k": np.array(2), "c": np.array(True), "w": x}

fixed = dml.load(model("m (float[4,4] x) => (float[4,4] y) { y = MatMul(x, x) }"))
session, loop = dml.load(MATMUL), dml.load(LOOP)
bound = session.bind({"x": large})

def right(session, x=x):
    (y,) = session.run(None, {"x": x})
    assert (y == len(x)).all(), y

def same_session():
    right(session), right(session, large), right(fixed)
    assert (loop.run(None, LOOPED)[0] == 64).all()

def new_session():
    right(dml.load(MATMUL)), right(dml.load(MATMUL), large)

def function():
    numbers = np.arange(1 << 18, dtype=np.float32)
    assert (dml.add(numbers, numbers) == 2 * numbers).all()

def bound_session():
    assert (bound.run()[0] == 64).all()

def flattened():
    dml.flatten(model('''m (bool c, float[n] x) => (float[n] y) { y = If(c) <then_branch = t () => (float[n] z) { z = Neg(x) },
        else_branch = e () => (float[n] z) { z = Abs(x) }> }'''))

def forgotten():
    global session, bound, loop, fixed
    session = bound = loop = fixed = None

WORKS = [lambda: None, same_session, new_session, function, bound_session, flattened, forgotten]

def status(child, seconds=20):
    '''How a child ended: its exit code, or "hung".'''
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"

def warm():
    for work in WORKS[:-1]:
        work()
"""


def said(script: str, prelude: str = PARENT, **environment: str) -> str:
    """What a script prints, which must end well and say nothing else."""
    inherited = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", prelude + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=200,
        env=inherited | environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.drawn
@pytest.mark.parametrize("rest", [0, 0.6])
@pytest.mark.parametrize(("end", "code"), [("sys.exit(7)", 7), ("os._exit(7)", 7), ("pass", 0)])
def test_children_work_and_end(rest, end, code):
    script = f"""
        warm()
        time.sleep({rest})
        codes = []
        for work in WORKS:
            child = os.fork()
            if child == 0:
                work()
                {end}
                break  # off the end of the script
            codes.append(status(child))
        else:
            same_session()
            print(codes)
    """
    assert said(script) == str([code] * 7)


def test_children_of_a_parent_that_ran_nothing():
    script = """
        codes = []
        for work in WORKS:
            child = os.fork()
            if child == 0:
                work()
                sys.exit(7)
            codes.append(status(child))
        print(codes)
    """
    assert said(script) == str([7] * 7)


@pytest.mark.parametrize("rest", [0, 0.6])
def test_processes_and_pools_of_multiprocessing(rest):
    script = f"""
        warm()
        time.sleep({rest})
        fork = multiprocessing.get_context("fork")
        processes = [fork.Process(target=work) for work in WORKS]
        for process in processes:
            process.start()
        for process in processes:
            process.join(20)
        codes = [process.exitcode for process in processes]
        with fork.Pool(2) as pool:
            counted = pool.map(len, ["", "a"])
            pool.apply(same_session), pool.apply(new_session), pool.apply(function)
        pool = fork.Pool(2)
        pool.apply(same_session)
        pool.close()
        pool.join()
        print(codes, counted)
    """
    assert said(script) == f"{[0] * 7} [0, 1]"


def test_forks_of_forks():
    script = """
        warm()
        for depth in range(3):
            time.sleep(0.2)
            child = os.fork()
            if child:
                code = status(child, 60)
                same_session(), function(), bound_session()
                if depth == 0:
                    print(code)
                    sys.stdout.flush()
                sys.exit(code if depth else 0)
            same_session(), new_session(), function(), bound_session()
        sys.exit(7)
    """
    assert said(script) == "7"


def test_forks_while_other_threads_run_and_load_and_compile():
    script = """
        warm()
        huge, stop = np.ones((300, 300), np.float32), threading.Event()

        def again(*works):
            while not stop.is_set():
                for work in works:
                    work()
                    time.sleep(0.001)

        def another_graph():
            builder = dml.GraphBuilder()
            v = builder.input("x", "FLOAT32", [7])
            builder.compile({"y": v * float(np.random.random())})

        busy = [[lambda: right(session, huge), same_session], [new_session], [function, another_graph]]
        threads = [threading.Thread(target=again, args=works) for works in busy]
        for thread in threads:
            thread.start()
        codes = []
        for k in range(14):
            time.sleep(0.01 * (k % 3))
            child = os.fork()
            if child == 0:
                WORKS[k % len(WORKS)]()
                sys.exit(7)
            codes.append(status(child))
        stop.set()
        for thread in threads:
            thread.join()
        print(codes == [7] * 14 or codes)
    """
    assert said(script) == "True"


def test_a_session_that_only_another_thread_has():
    script = """
        own, ready, leave = threading.local(), threading.Event(), threading.Event()

        def hold():
            own.session = dml.load(MATMUL)
            right(own.session)
            ready.set()
            leave.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        ready.wait()
        time.sleep(0.3)
        child = os.fork()
        if child == 0:
            sys.exit(7)
        print(status(child))
        leave.set()
    """
    assert said(script) == "7"


def test_a_child_keeps_the_plans():
    script = """
        warm()
        before = session.explain()
        child = os.fork()
        if child == 0:
            same_session()
            sys.exit(0 if session.explain() == before else 1)
        print(status(child))
    """
    assert said(script) == "0"


USER = """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
"""
OWN = 'own = onnxruntime.InferenceSession(MATMUL.SerializeToString(), options)\nown.run(None, {"x": x})\n'


def test_children_beside_sessions_of_the_users_own():
    """They are destroyed by no child that ends without taking Python apart."""
    script = """
        warm()
        time.sleep(0.6)
        codes = []
        for work in WORKS:
            child = os.fork()
            if child == 0:
                work()
                os._exit(7)
            codes.append(status(child))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            pool.apply(same_session)
        print(codes)
    """
    assert said(OWN + textwrap.dedent(script), USER + PARENT) == str([7] * 7)


def test_children_of_a_user_who_switched_telemetry_off():
    script = """
        warm()
        time.sleep(0.6)
        child = os.fork()
        if child == 0:
            same_session()
            sys.exit(7)
        print(status(child))
    """
    assert said(script, USER + PARENT, ORT_DISABLE_TELEMETRY="1") == "7"


def test_telemetry_is_off_unless_the_user_says_otherwise():
    script = "import os, anydml.session; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    assert said(script, "") == "1"
    assert said(script, "", ORT_DISABLE_TELEMETRY="0") == "0"
