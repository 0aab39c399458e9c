"""Code on disk: found again by another process, and never trusted more than it deserves."""

import os
import subprocess
import sys
import threading

import pytest

from anydml.codegen import cache

PROGRAM = """
import numpy as np, anydml as dml
from anydml.codegen import jit
made = []
load = jit.cache.load
jit.cache.load = lambda key: made.append(content := load(key)) or content
x = np.linspace(-3, 3, 1000, dtype=np.float32)
assert np.allclose(dml.activation_gelu(x), [v * 0.5 * (1 + np.tanh(0.8 * v)) for v in x], atol=0.05)
assert dml.add(np.int8([1, 2]), np.int8([3, 4])).tolist() == [4, 6]
print(sum(content is None for content in made), len(made))
"""


def run(folder, **environment):
    """Kernels compiled, and kernels asked for, of a process that uses a few."""
    code = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"ANYDML_CACHE_DIR": str(folder)} | environment,
        capture_output=True,
        text=True,
    )
    assert code.returncode == 0, code.stderr
    return tuple(map(int, code.stdout.split()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ANYDML_CACHE_DIR", str(tmp_path / "kernels"))
    cache.directory.cache_clear()
    cache._stored.clear()
    yield tmp_path / "kernels"
    cache.directory.cache_clear()


def test_a_second_process_compiles_nothing(tmp_path):
    compiled, asked = run(tmp_path / "kernels")
    assert compiled == asked > 0
    assert run(tmp_path / "kernels") == (0, asked)


def test_it_can_be_turned_off(tmp_path, monkeypatch):
    compiled, asked = run("off")
    assert compiled == asked > 0
    assert not (tmp_path / "off").exists()


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "exchange", "foreign"])
def test_damaged_or_exchanged_entries_are_compiled_anew(tmp_path, harm):
    folder = tmp_path / "kernels"
    _, asked = run(folder)
    entries = sorted(folder.iterdir())
    contents = [e.read_bytes() for e in entries]
    for k, entry in enumerate(entries):
        data = bytearray(contents[k])
        if harm == "cut":
            data = data[:-1]
        elif harm == "flip":
            data[len(data) // 2] ^= 1
        elif harm == "empty":
            data = b""
        elif harm == "exchange":  # another entry's, whole
            data = contents[(k + 1) % len(contents)]
        else:  # another machine's code under this name, with a right hash of its content
            other = cache.key_of("another machine")
            data = cache._head(other, bytes(data[len(cache.MAGIC) + 64 :])) + data[len(cache.MAGIC) + 64 :]
        entry.write_bytes(data)
    assert run(folder) == (asked, asked)
    assert run(folder) == (0, asked)  # and mended


def test_what_cannot_be_written_is_compiled(tmp_path):
    """A file where the folder should be, and a disk that is full."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    compiled, asked = run(blocked)
    assert compiled == asked > 0


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch):
    cache.store(cache.key_of("before"), b"code")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.store(cache.key_of("after"), b"code")
    assert cache.load(cache.key_of("after")) is None
    assert [p.name for p in folder.iterdir()] == [cache.key_of("before")]


posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="no POSIX permissions here")


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_is_not_used(tmp_path, mode):
    """Without a word, and the kernels are right."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(mode)
    compiled, asked = run(folder)
    assert compiled == asked > 0
    assert not list(folder.iterdir())


def used(folder, monkeypatch, caplog):
    """Whether a folder is used, and what is told about it."""
    monkeypatch.setenv("ANYDML_CACHE_DIR", str(folder))
    cache.directory.cache_clear()
    caplog.clear()
    with caplog.at_level("INFO", "anydml"):
        found = cache.directory()
    cache.directory.cache_clear()
    (record,) = caplog.records
    return found, record.getMessage()


@posix
@pytest.mark.parametrize(("mode", "safe"), [(0o755, True), (0o777, False), (0o775, False), (0o1777, True)])
def test_a_folder_in_one_that_others_may_write(tmp_path, monkeypatch, caplog, mode, safe):
    """Who can rename it can put another one in its place; the sticky bit, as /tmp has it, prevents that."""
    (tmp_path / "above").mkdir()
    (tmp_path / "above" / "between").mkdir(0o700)
    (tmp_path / "above").chmod(mode)
    folder = tmp_path / "above" / "between" / "kernels"
    found, told = used(folder, monkeypatch, caplog)
    if safe:
        assert (found, told) == (folder, f"kernels are kept in {folder}")
    else:
        assert found is None
        assert told.startswith(f"kernels are not kept: others may write to {tmp_path / 'above'} (mode 0")


@posix
def test_folders_that_are_made_are_for_nobody_else(tmp_path, monkeypatch, caplog):
    """Whatever the umask would leave."""
    before = os.umask(0)
    try:
        found, _ = used(tmp_path / "a" / "b" / "kernels", monkeypatch, caplog)
    finally:
        os.umask(before)
    assert found == tmp_path / "a" / "b" / "kernels"
    assert {p.stat().st_mode & 0o777 for p in tmp_path.rglob("*")} == {0o700}


@posix
@pytest.mark.parametrize("which", ["kernels", "above"])
def test_a_folder_of_another_user(tmp_path, monkeypatch, caplog, which):
    """An ordinary user cannot give one away: who asks is another one then."""
    folder = tmp_path / "above" / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    owned = folder if which == "kernels" else folder.parent
    us = os.getuid()
    if us == 0:
        os.chown(owned, 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: us + 1)
    found, told = used(folder, monkeypatch, caplog)
    assert found is None
    owner = 12345 if us == 0 else us
    place = owned if us == 0 else folder
    assert told == f"kernels are not kept: {place} belongs to another user, number {owner}"


@posix
def test_a_link_to_a_folder(tmp_path, monkeypatch, caplog):
    """What counts is where it leads: that is used from then on, wherever the link may lead later."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "kernels").mkdir(0o700)
    (tmp_path / "open" / "good").symlink_to(tmp_path / "kernels")
    (tmp_path / "bad").symlink_to(tmp_path / "open")
    assert used(tmp_path / "open" / "good", monkeypatch, caplog)[0] == tmp_path / "kernels"
    assert used(tmp_path / "bad", monkeypatch, caplog)[0] is None


def test_a_folder_that_is_none(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    for asked in (tmp_path / "file", tmp_path / "file" / "kernels"):
        found, told = used(asked, monkeypatch, caplog)
        assert found is None
        assert str(tmp_path / "file") in told.replace(2 * os.sep, os.sep)  # as messages of the system have it
    assert used("off", monkeypatch, caplog) == (None, "kernels are not kept: ANYDML_CACHE_DIR is off")


def test_the_command_line_tells_on_demand(tmp_path):
    """And otherwise not."""
    (tmp_path / "file").write_text("")
    environment = os.environ | {"ANYDML_CACHE_DIR": str(tmp_path / "file")}
    for options, told in ([], False), (["--debug"], True):
        command = [sys.executable, "-m", "anydml", *options, "operators", "relu", "--emit", "asm"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert (done.returncode, "row:" in done.stdout) == (0, True)
        assert done.stderr.startswith("anydml: kernels are not kept: ") if told else done.stderr == ""


def test_many_writers_of_one_entry(folder):
    key, contents = cache.key_of("shared"), [bytes([k]) * 100_000 for k in range(8)]

    def write(k):
        for _ in range(20):
            cache.store(key, contents[k])
            found = cache.load(key)
            # Windows may keep readers out while another one writes
            assert found in contents or (found is None and os.name == "nt")

    threads = [threading.Thread(target=write, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [p.name for p in folder.iterdir()] == [key]


def test_the_oldest_entries_make_room(folder, monkeypatch):
    monkeypatch.setattr(cache, "MAX_ENTRIES", 10)
    for k in range(12):
        cache.store(cache.key_of(str(k)), b"x")
        os.utime(folder / cache.key_of(str(k)), (k, k))
    cache._stored.clear()
    cache.store(cache.key_of("new"), b"x")
    left = {k for k in range(12) if cache.load(cache.key_of(str(k))) is not None}
    assert left == set(range(6, 12))
    assert cache.load(cache.key_of("new")) == b"x"


def test_keys_depend_on_every_part():
    keys = {
        cache.key_of(*parts) for parts in (("a", "b"), ("ab", ""), ("", "ab"), ("a", "b", ""), ("a", "c"))
    }
    assert len(keys) == 5
