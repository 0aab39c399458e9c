"""What signals' handlers raise comes out as it is, wherever it comes, and leaves nothing behind."""

import gc
import os
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest

import anydml
from anydml.codegen.compiling import uninterrupted
from anydml.errors import by_a_handler
from anydml.onnx.providers import interrupt
from anydml.runtime.collector import collector_paused
from anydml.runtime.process import Calls

MODEL = """
import os, random, signal, sys, tempfile, time
os.environ["ANYDML_CACHE_DIR"] = tempfile.mkdtemp()
import numpy as np, onnx.parser
import anydml

def model(k):
    return onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]> main (float[b, n] x) => (y) {
        k = Constant <value_float = %d.0> () a = Softmax (x) b = MatMul (a, x) c = Add (b, k) y = Erf (c)
    }''' % k).SerializeToString()

class Late(TimeoutError):
    pass

armed = False

def late(*_):
    global fired
    if armed:  # and not when it is too late for a `try`
        fired = True
        raise Late

signal.signal(signal.SIGALRM, late)
random.seed(1)
feed = {"x": np.ones((3, 3), np.float32)}
anydml.load(model(0)).run(None, feed)
"""

TOLD = """
told = lost = 0
ignored = []  # finalizers', of which Python itself tells
sys.unraisablehook = ignored.append
for k in range(1, 250):
    fired, session = False, anydml.load(model(k))
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 1e-4 + random.random() * 5e-3)
            session.run(None, feed)
        finally:
            armed = False
        lost += fired
    except Late:
        told += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
assert told > 50, told
assert lost <= len(ignored), (lost, len(ignored))
"""

FORKED = """
kept = []
for k in range(1, 120):
    try:
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, 1e-4 + random.random() * 5e-3)
            anydml.load(model(k)).run(None, feed)
        finally:
            armed = False
    except Late as error:
        kept.append(error)  # and with it, whatever was under way
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if k % 20 == 0:
        child = os.fork()
        if not child:
            kept.clear()
            signal.alarm(0)
            anydml.load(model(k)).run(None, feed)
            os._exit(0)
        until = time.monotonic() + 20
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                raise AssertionError("the child hangs")
            time.sleep(0.01)
        assert ended[1] == 0, ended
assert len(kept) > 20
"""

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no alarm")


@pytest.mark.parametrize("rest", [TOLD, FORKED], ids=["it is told", "children"])
def test_a_timeout_amid_a_session(rest):
    env = os.environ | {"PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", MODEL + rest]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


class Handler:
    def __init__(self, error):
        self.error = error

    def __call__(self, number, frame):
        raise self.error

    def in_a_tuple(self, *given):
        self.deeper(given[0])

    def deeper(self, number):
        raise self.error


@pytest.mark.parametrize("kind", ["object", "method", "function", "partial"])
def test_what_a_handler_raised(kind):
    handler = Handler(TimeoutError())
    installed = {
        "object": handler,
        "method": handler.in_a_tuple,
        "function": lambda number, frame: handler.deeper(number),
        "partial": partial(lambda error, number, frame: handler.deeper(number), 0),
    }[kind]
    before = signal.signal(signal.SIGALRM, installed)
    try:
        with pytest.raises(TimeoutError) as found:
            signal.raise_signal(signal.SIGALRM)
        assert by_a_handler(found.value)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_timeout_in_another_librarys_tensor():
    class Slow:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **_):
            signal.raise_signal(signal.SIGALRM)

    def late(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    try:
        with pytest.raises(TimeoutError):
            anydml.abs(Slow())
    finally:
        signal.signal(signal.SIGALRM, before)


def test_what_no_handler_raised():
    """Somebody may have put code of their own around a library's."""

    def wrapped(*arguments):
        return int(*arguments)

    with pytest.raises(ValueError, match="invalid literal") as found:
        wrapped("x")
    assert not by_a_handler(found.value)


def test_what_is_raised_apart_is_not_kept():
    class Large:
        pass

    def fail():
        raise KeyError

    def hold():
        large = Large()
        with pytest.raises(KeyError):
            uninterrupted(fail)()
        return id(large)

    gc.collect()
    gc.disable()
    try:
        hold()
        assert not any(type(x) is Large for x in gc.get_objects())
    finally:
        gc.enable()


def test_a_pause_of_the_collector_that_nobody_ends():
    pause = collector_paused()
    pause.__enter__()
    assert not gc.isenabled()
    with collector_paused():
        pass
    assert not gc.isenabled()
    del pause
    assert gc.isenabled()


class Options:
    terminate = False


def test_the_end_waits_for_no_call_that_its_own_thread_did_not_leave():
    calls = Calls(Options)
    mine, other = Options(), Options()
    calls.enter(mine)
    thread = threading.Thread(target=calls.enter, args=(other,))
    thread.start()
    thread.join()
    calls.leave(other)  # of which this thread has none
    calls._ender = threading.get_ident()
    assert calls._others() == [other]


@pytest.mark.skipif(sys.platform == "win32", reason="only sockets can be woken there")
def test_ctrl_c_is_watched_anew_after_a_watch_that_was_left():
    before = signal.set_wakeup_fd(-1)
    try:
        first, second = Options(), Options()
        interrupt.watch_ctrl_c(first)
        ours = interrupt._watch.write
        interrupt._watch.options.clear()  # a handler came before it was unwatched
        interrupt.watch_ctrl_c(second)
        assert interrupt._watch.other == -1, "it passes nothing on to itself"
        interrupt.unwatch_ctrl_c(second)
        assert signal.set_wakeup_fd(-1) == -1
        interrupt.watch_ctrl_c(first)
        signal.set_wakeup_fd(-1)  # a handler came before it was noted that it was unwatched
        interrupt.watch_ctrl_c(second)
        assert interrupt._watch.options == [second]
        interrupt.watch_ctrl_c(first)
        interrupt.unwatch_ctrl_c(first)
        assert signal.set_wakeup_fd(ours) == ours, "the outer one goes on"
        interrupt.unwatch_ctrl_c(second)
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(before)
