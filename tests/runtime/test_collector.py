"""Python's collector is kept from running while models are read and planned, and only then."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import onnx.parser
import pytest

import anydml
from anydml.onnx.serde import deserialize
from anydml.runtime.collector import collector_paused

MODEL = """<ir_version: 8, opset_import: ["": 17]> main (float[n] x) => (float[n] y) {
    a = Add(x, x)  b = Mul(a, x)  c = Softmax(b)  y = MatMul(c, c)
}"""


@pytest.fixture(autouse=True)
def as_before():
    was = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was else gc.disable)()


@pytest.fixture
def passes():
    """What the collector does, from so small a number of new objects on that it has to do all the time."""
    found = []

    def note(phase, info):
        if phase == "start":
            found.append(info["generation"])

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(20, 1, 1)
    yield found
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(note)


def test_pauses_end_where_the_last_one_does():
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_pause_ends_with_an_error():
    with pytest.raises(KeyError), collector_paused():
        raise KeyError
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off():
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_a_pause_lasts_while_another_thread_has_one():
    begun, go_on = threading.Event(), threading.Event()

    def other():
        with collector_paused():
            begun.set()
            go_on.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(10)
    with collector_paused():
        pass
    assert not gc.isenabled()
    go_on.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_process_that_plans_has_a_collector():
    begun, go_on = threading.Event(), threading.Event()

    def other():
        with collector_paused():
            begun.set()
            go_on.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(10)
    child = os.fork()
    if not child:
        os._exit(0 if gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go_on.set()
    thread.join()


def test_nothing_is_collected_while_a_model_is_read(passes, monkeypatch):
    data = onnx.parser.parse_model(MODEL).SerializeToString()
    seen = []
    inner = deserialize.read_proto

    def read_proto(*arguments):
        passes.clear()
        model = inner(*arguments)
        seen.append((gc.isenabled(), list(passes)))
        return model

    monkeypatch.setattr(deserialize, "read_proto", read_proto)
    deserialize.read(data)
    assert seen == [(False, [])]
    assert gc.isenabled()


def test_nothing_is_collected_while_a_plan_is_made(passes, monkeypatch):
    session = anydml.load(onnx.parser.parse_model(MODEL).SerializeToString(), native=False)
    seen = []
    make = type(session._program)._lower

    def lower(self, *arguments):
        passes.clear()
        plan = make(self, *arguments)
        seen.append((gc.isenabled(), list(passes)))
        return plan

    monkeypatch.setattr(type(session._program), "_lower", lower)
    session.run(None, {"x": np.ones(4, np.float32)})
    assert seen == [(False, [])]
    assert gc.isenabled()


def run_alone(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()


def test_what_an_import_makes_is_taken_for_old():
    code = """
import gc
import anydml
anydml.load
print(len(gc.get_objects(generation=0)) < 1000, len(gc.get_objects(generation=2)) > 10_000, gc.get_freeze_count())
"""
    assert run_alone(code) == ["True", "True", "0"]


def test_what_somebody_froze_stays_frozen():
    code = """
import gc
import anydml
gc.freeze()
was = gc.get_freeze_count()
anydml.load
print(was > 1000, 0.9 * was < gc.get_freeze_count() <= was)
"""
    assert run_alone(code) == ["True", "True"]


def test_garbage_among_it_is_still_found():
    code = """
import gc, weakref
import anydml

class Node:
    pass

gc.disable()
a, b = Node(), Node()
a.other, b.other = b, a
seen = weakref.ref(a)
del a, b
anydml.load
print(seen() is not None)
gc.collect()
print(seen() is None)
"""
    assert run_alone(code) == ["True", "True"]
