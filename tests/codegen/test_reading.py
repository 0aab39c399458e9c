"""Modules that are read late are read whole, whatever a signal's handler raises meanwhile."""

import ast
import signal
import sys
import threading
from pathlib import Path

import pytest

from anydml.codegen import program
from anydml.codegen.reading import read_module

MODULE = """
import time
from enum import IntEnum

class Slow(int):
    def __set_name__(self, owner, name):
        time.sleep(0.3)

class Kind(IntEnum):
    A = 1
    slow = Slow(2)

class Other:
    slow = Slow(2)

DONE = True
"""


class Stopped(Exception):
    pass


@pytest.fixture
def slow(tmp_path, monkeypatch):
    (tmp_path / "a_slow_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "a_slow_module"
    sys.modules.pop("a_slow_module", None)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs timers")
def test_a_handlers_error_comes_when_the_module_is_read(slow):
    def stop(*_):
        raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Stopped):
            read_module(slow)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sys.modules[slow].DONE
    assert read_module(slow) is sys.modules[slow]


def test_threads_wait_for_the_one_that_reads(slow):
    found = []
    threads = [threading.Thread(target=lambda: found.append(read_module(slow).DONE)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_what_a_module_raises_is_raised(tmp_path, monkeypatch):
    (tmp_path / "a_broken_module.py").write_text("raise ValueError('broken')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="broken"):
        read_module("a_broken_module")


def test_names_of_programs_are_where_they_are_said_to_be():
    told = ast.parse(Path(program.__file__).read_text("utf-8"))
    (checked,) = [n for n in told.body if isinstance(n, ast.If)]  # what type checkers see
    homes = {a.name: i.module for i in checked.body for a in i.names}
    assert homes == {name: f"{program.__name__}.{home}" for name, home in program._MODULE_OF.items()}
    for name, home in homes.items():
        assert getattr(program, name) is getattr(sys.modules[home], name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        program.nothing  # noqa: B018
