"""Tests keep their compiled code to themselves: one folder for a run, which its processes share.

First runs of sessions wait for it: most tests run once. tests/onnx/test_first_run.py has those that do not.
"""

import os
import signal
import sys
import tempfile
from zlib import crc32

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background, as by `make test &` in a script: the processes that tests interrupt would
    # inherit that, and never end.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("ANYDML_DETERMINISTIC", "1")
if "PYTEST_XDIST_WORKER" not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="anydml-kernels-", ignore_cleanup_errors=True)
    os.environ["ANYDML_CACHE_DIR"] = _folder.name
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        # Hundreds of processes that tests start would compile every module anew. They leave nothing behind:
        os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(_folder.name, "bytecode")


LONG = ("test_many_machines.py", "test_pages.py", "test_hostile_structure.py", "test_abuse.py")
"""Files with tests of half a minute: they begin first, as else one process waits for another at the end."""


EVERY = 5
"""Of cases that are drawn, the check runs one of so many."""


def pytest_addoption(parser):
    told = f"of cases marked as drawn, one of {EVERY}, and none marked as long: for the check; all is the default"
    parser.addoption("--brief", action="store_true", help=told)


def pytest_configure(config):
    told = (
        "drawn: one of many random cases, or of many sizes and types of one thing, of which some are enough"
    )
    config.addinivalue_line("markers", told)
    told = "long: half a minute or so of other people's code, or of files beyond any use; for the weekly run"
    config.addinivalue_line("markers", told)


def _is_kept(item):
    """By a hash, so that no type or size goes with every fifth case; always the same ones."""
    if item.get_closest_marker("long"):
        return False
    return not item.get_closest_marker("drawn") or crc32(item.nodeid.encode()) % EVERY == 0


def pytest_collection_modifyitems(config, items):
    if config.getoption("--brief"):
        kept = {item: _is_kept(item) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not kept[item]])
        items[:] = [item for item in items if kept[item]]
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--brief"):
        terminalreporter.write_line(
            f"--brief: of cases that are drawn one of {EVERY} ran, and none of the longest; make thorough runs all"
        )


@pytest.fixture(autouse=True)
def _nothing_loaded():
    """Sessions of a test have plans of their own, and not those of equal models of another one."""
    session = sys.modules.get("anydml.session")
    if session is not None:
        session._recent.clear()


@pytest.fixture
def share_all_work(monkeypatch):
    """`share_all_work()`: from here on, the work of kernels is shared by threads, however little it is."""

    def share():
        from anydml.codegen import kernel

        for limit in ("MIN_SPLIT_BYTES", "MIN_PERHAPS_BYTES", "MIN_WAKE_BYTES"):
            monkeypatch.setattr(kernel, limit, 0)
        monkeypatch.setattr(kernel, "MIN_CHUNK_ELEMENTS", 16)

    return share
