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
    cache._room_made.clear()
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


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no POSIX permissions here")
def test_a_folder_that_others_may_write_is_not_used(tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)
    compiled, asked = run(folder)
    assert compiled == asked > 0
    assert not list(folder.iterdir())


def test_many_writers_of_one_entry(folder):
    key, contents = cache.key_of("shared"), [bytes([k]) * 100_000 for k in range(8)]

    def write(k):
        for _ in range(20):
            cache.store(key, contents[k])
            assert cache.load(key) in contents

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
    cache._room_made.clear()
    cache.store(cache.key_of("new"), b"x")
    left = {k for k in range(12) if cache.load(cache.key_of(str(k))) is not None}
    assert left == set(range(6, 12))
    assert cache.load(cache.key_of("new")) == b"x"


def test_keys_depend_on_every_part():
    keys = {
        cache.key_of(*parts) for parts in (("a", "b"), ("ab", ""), ("", "ab"), ("a", "b", ""), ("a", "c"))
    }
    assert len(keys) == 5
