"""Interpreters that end while daemon threads are at work: as they were told to, at once, and quietly.

Each test is a script in a process of its own.
"""

import os
import subprocess
import sys
import textwrap

import pytest

SETUP = """
import atexit, sys, threading, time
import numpy as np
from onnx import parser

def late():
    '''What is registered before anydml is there is called after its own.'''

atexit.register(lambda: late())
import anydml as dml

def session(body):
    return dml.load(parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + body))

def matmul():
    return session("m (float[n,n] x) => (float[n,n] y) { y = MatMul(x, x) }")

def loop(step):
    return session('''m (int64 k, bool c, float[n,n] w) => (float[p,q] y) { t = Constant<value=bool {1}>() y = Loop(k, t, w)
        <body = b (int64 i, bool cc, float[n,n] st) => (bool c2, float[n,n] s2) { c2 = Identity(cc) ''' + step + " }> }")

LONG = {"k": np.array(10**9), "c": np.array(True), "w": np.ones((64, 64), np.float32)}

def started(work, count=2):
    '''Daemon threads that are at work.'''
    inside = threading.Semaphore(0)

    def again():
        inside.release()
        while True:
            work()

    for _ in range(count):
        threading.Thread(target=again, daemon=True).start()
        inside.acquire()
    time.sleep(0.1)
"""
IF = (
    "s2 = If(c) <then_branch = g () => (float[n,n] q) { q = MatMul(st, st) }, "
    "else_branch = h () => (float[n,n] q) { q = Abs(st) }>"
)
SCRIPTS = {
    "large runs": """
        s, x = matmul(), np.ones((700, 700), np.float32)
        started(lambda: s.run(None, {"x": x}))""",
    "small runs": """
        s, x = matmul(), np.ones((4, 4), np.float32)
        started(lambda: s.run(None, {"x": x}))""",
    "a loop that does not end": """
        s = loop("s2 = MatMul(st, st)")
        started(lambda: s.run(None, LONG))""",
    "a loop of ours that does not end": f'''
        s = loop("{IF}")
        started(lambda: s.run(None, LONG))''',
    "bound memory": """
        s = session("m (float[4,4] x) => (float[4,4] y) { y = MatMul(x, x) }")
        bound = s.bind({"x": np.ones((4, 4), np.float32)})
        started(bound.run)""",
    "functions on large arrays": """
        x = np.ones(1 << 22, np.float32)
        started(lambda: dml.sin(x))""",
    "functions on small arrays": """
        x = np.ones(16, np.float32)
        started(lambda: dml.sin(x))""",
    "dispatches": """
        builder = dml.GraphBuilder()
        graph = builder.compile({"y": dml.sin(builder.input("x", "FLOAT32", [1 << 22]))})
        x = np.ones(1 << 22, np.float32)
        started(graph.bind({"x": x}, {"y": x.copy()}).dispatch)""",
    "models loaded": """
        started(lambda: matmul().run(None, {"x": np.ones((4, 4), np.float32)}))""",
    "kernels made": """
        def work():
            builder = dml.GraphBuilder()
            y = x = builder.input("x", "FLOAT32", [4])
            for _ in range(40):  # which takes some while
                y = dml.sin(x * float(np.random.random())) + dml.erf(y)
            builder.compile({"y": y})
        started(work)""",
}


def ended(script: str, folder: os.PathLike) -> tuple[int, str, str]:
    """How a script ends: exit code, standard output and error."""
    done = subprocess.run(
        [sys.executable, "-c", SETUP + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"ANYDML_CACHE_DIR": str(folder)},
    )
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_exit_code_is_what_was_asked_for(name, tmp_path):
    for code in (0, 3):
        script = f"{SCRIPTS[name]}\n        print('at work', flush=True)\n        sys.exit({code})"
        assert ended(script, tmp_path) == (code, "at work", "")


def test_an_error_that_nobody_caught_is_all_that_is_told(tmp_path):
    code, out, error = ended(SCRIPTS["small runs"] + "\n        raise ValueError('told')", tmp_path)
    assert (code, out, error.splitlines()[-1]) == (1, "", "ValueError: told")


def test_what_is_called_later_at_exit_may_run_and_compile(tmp_path):
    script = """
        s, x = matmul(), np.ones((4, 4), np.float32)
        started(lambda: s.run(None, {"x": x}))

        def late():
            large = np.ones(1 << 18, np.float32)
            print(s.run(None, {"x": x})[0].sum(), matmul().run(None, {"x": x})[0].sum(), dml.add(large, large).sum())

        sys.exit(3)
    """
    assert ended(script, tmp_path) == (3, "64.0 64.0 524288.0", "")


def test_who_waits_for_a_daemon_thread_at_exit_gets_its_results(tmp_path):
    """It is kept out for a while only, for nobody knows that it is waited for."""
    script = """
        s, x, stop, results = matmul(), np.ones((4, 4), np.float32), threading.Event(), []

        def work():
            stop.wait()
            for k in range(20):
                results.append(s.run(None, {"x": x})[0].sum())
            builder = dml.GraphBuilder()
            v = builder.input("x", "FLOAT32", [4])
            results.append(builder.compile({"y": dml.sin(v)})({"x": np.zeros(4, np.float32)})["y"].sum())

        thread = threading.Thread(target=work, daemon=True)
        thread.start()

        def late():
            stop.set()
            thread.join()
            print(len(results), results[0], results[-1])
    """
    assert ended(script, tmp_path) == (0, "21 64.0 0.0", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_waits_for_no_thread_of_its_parents(tmp_path):
    script = """
        import os
        s = loop("s2 = MatMul(st, st)")
        started(lambda: s.run(None, LONG))
        child = os.fork()
        if child == 0:
            sys.exit(5)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(code, flush=True)
        os._exit(0)
    """
    assert ended(script, tmp_path)[:2] == (0, "5")


IMPORT = """
import sys, threading, time
from importlib.machinery import ModuleSpec
from types import ModuleType
import anydml.onnx.providers

assert "onnxruntime" not in sys.modules
library = sys.modules["onnxruntime"] = ModuleType("onnxruntime")
library.__spec__ = ModuleSpec("onnxruntime", None)
library.__spec__._initializing = True

def work():
    time.sleep(0.5)
    print("imported", flush=True)
    library.__spec__._initializing = False
    time.sleep(60)

threading.Thread(target=work, daemon=True).start()
sys.exit(3)
"""


def test_an_import_of_a_library_comes_to_its_end():
    """It lets go of Python's lock, and would abort the process where it cannot have it back."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "imported\n", "")
