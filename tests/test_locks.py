"""No lock stays held by what a signal's handler ends."""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import anydml
from anydml.locks import Lock

RAISING = """
import random, signal, sys, threading, time
from anydml.locks import Lock

lock, depth = Lock(), int(sys.argv[1])

def enter(n):
    with lock:
        if n:
            enter(n - 1)

signal.signal(signal.SIGALRM, signal.default_int_handler)
random.seed(1)
raised, until = 0, time.monotonic() + 2
while time.monotonic() < until:
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-5 + random.random() * 1e-4)
        for _ in range(10_000):
            enter(depth)
    except KeyboardInterrupt:
        raised += 1
    found = []
    other = threading.Thread(target=lambda: found.append(lock.acquire(timeout=5)) or lock.release())
    other.start()
    other.join()
    assert found == [True], raised
print(raised > 50)
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no alarm")
@pytest.mark.parametrize("depth", [0, 1])
def test_a_handler_that_raises_leaves_no_lock_held(depth):
    command = [sys.executable, "-c", RAISING, str(depth)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True", done.stderr[-2000:]


def test_one_thread_at_a_time_as_often_as_it_likes():
    lock, found = Lock(), []
    with lock, lock:
        other = threading.Thread(target=lambda: found.append(lock.acquire(blocking=False)))
        other.start()
        other.join()
    assert found == [False]
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert lock.acquire(blocking=False)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_no_lock_of_python_s_own_is_entered():
    """Its `with` may leave it held: see anydml.locks. Those that are only tried are no matter."""
    package = Path(anydml.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path.name != "locks.py" and re.search(r"\b(threading\.R?Lock|allocate_lock|Condition)\(", text):
            assert not re.search(r"with (self\.)?_?\w*(lock|busy)\b", text), path
            assert "with turn" not in text, path


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no alarm")
def test_the_collector_goes_on_after_a_handler_that_raises():
    program = (
        "import gc, random, signal, time\n"
        "from anydml.runtime.collector import collector_paused\n"
        "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "random.seed(1)\n"
        "raised, until = 0, time.monotonic() + 2\n"
        "while time.monotonic() < until:\n"
        "    try:\n"
        "        signal.setitimer(signal.ITIMER_REAL, 1e-5 + random.random() * 1e-4)\n"
        "        for _ in range(10_000):\n"
        "            with collector_paused():\n"
        "                pass\n"
        "    except KeyboardInterrupt:\n"
        "        raised += 1\n"
        "    assert gc.isenabled(), raised\n"
        "print(raised > 50)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True", done.stderr[-2000:]
