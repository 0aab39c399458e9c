"""Faults around the library: bad kernel caches, memory that runs out, processes that are killed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

import anydml as dml
from tests.robustness import work
from tests.robustness.scenarios import Found, scenario

_RIGHT = "from tests.robustness import work; import sys; sys.exit(not work.all_right())"


def _right(cache: Path, prefix: str = "") -> bool:
    """Whether a process that uses this cache computes what it should, without a word."""
    env = {**os.environ, "ANYDML_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", prefix + _RIGHT], capture_output=True, text=True, env=env)
    return done.returncode == 0 and not done.stderr


def _entries(cache: Path) -> list[Path]:
    return [p for p in cache.iterdir() if p.is_file()]


def _damaged(harm: Callable[[bytes, int], bytes]) -> Callable[[Path, int], None]:
    def done(cache: Path, k: int) -> None:
        for entry in _entries(cache):
            entry.write_bytes(harm(entry.read_bytes(), k))

    return done


def _flipped(data: bytes, k: int) -> bytes:
    at = (k * 7919) % len(data)
    return data[:at] + bytes([data[at] ^ (1 << k % 8)]) + data[at + 1 :]


def _exchanged(cache: Path, k: int) -> None:
    entries = _entries(cache)
    contents = [e.read_bytes() for e in entries]
    for entry, content in zip(entries, contents[1:] + contents[:1], strict=True):
        entry.write_bytes(content)


def _folders(cache: Path, k: int) -> None:
    for entry in _entries(cache):
        entry.unlink()
        entry.mkdir()


_HARMS: dict[str, Callable[[Path, int], None]] = {
    "a bit flipped": _damaged(_flipped),
    "cut off": _damaged(lambda data, k: data[: (k * 97) % len(data)]),
    "empty": _damaged(lambda data, k: b""),
    "longer": _damaged(lambda data, k: data + b"\x90" * 64),
    "another's content": _exchanged,
    "folders in their place": _folders,
    "read-only": lambda cache, k: cache.chmod(0o500),
    "gone": lambda cache, k: shutil.rmtree(cache),
}


@scenario("kernel caches damaged, foreign, unwritable or gone: results are right", bounded=1, long=10)
def caches(count: int) -> Found:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "original"
        assert _right(original)
        assert _entries(original), "kernels are kept"
        for k in range(count):
            for name, harm in _HARMS.items():
                cache = Path(folder) / f"{name}-{k}"
                shutil.copytree(original, cache)
                harm(cache, k)
                wrong += not _right(cache)
                if cache.exists():
                    cache.chmod(0o700)
    return Found(count * len(_HARMS), wrong, ", ".join(_HARMS))


@scenario("a full disk under the kernel cache: results are right, nothing half is kept", bounded=2, long=10)
def full_disk(count: int) -> Found:
    """Files may have 100 bytes, as on a disk that is full: writes fail."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); "
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for k in range(count):
            cache = Path(folder) / str(k)
            wrong += not _right(cache, limit) or bool(_entries(cache))
    return Found(count, wrong)


@scenario("processes that write the same kernels at once", bounded=6, long=60)
def writers(count: int) -> Found:
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for k in range(0, count, 6):
            env = {**os.environ, "ANYDML_CACHE_DIR": str(Path(folder) / str(k))}
            six = [subprocess.Popen([sys.executable, "-c", _RIGHT], env=env) for _ in range(6)]
            wrong += sum(child.wait() != 0 for child in six)
    return Found(-(-count // 6) * 6, wrong)


@scenario("memory runs out in a run, a graph, a function: an error, and then it works", bounded=5, long=50)
def memory(count: int) -> Found:
    """Address space ends a little above what is used; what is asked for is a multiple of that."""
    text = """<ir_version: 8, opset_import: ["": 17]> m (int64[1] n, bool c) => (float[K] y) {
        one = Constant <value_float = 1.0> ()
        y = If (c) <then_branch = t () => (float[K] p) { p = Expand (one, n) },
                    else_branch = e () => (float[K] q) { z = Expand (one, n)  q = Exp (z) }> }"""
    session, made = dml.load(onnx.parser.parse_model(text), threads=1), work.graph(100)
    expected = {True: 1.0, False: float(np.exp(np.float32(1)))}

    def small(c: bool) -> bool:
        (y,) = session.run(None, {"n": np.array([3]), "c": np.array(c)})
        return bool(np.allclose(y, expected[c]))

    assert small(True)
    assert small(False)
    assert work.all_right()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    wrong = refused = 0
    for k in range(count):
        for c in (True, False):
            try:
                session.run(None, {"n": np.array([(200 + k) << 20]), "c": np.array(c)})
                wrong += 1
            except dml.ExecutionFailed:
                refused += 1
            wrong += not small(c)
        try:
            dml.exp(np.broadcast_to(np.float32(1), (300 << 20,)))
            wrong += 1
        except MemoryError:
            refused += 1
        wrong += not work.graph_call(made, 100, k)()
    return Found(3 * count, wrong, f"{refused} refused")


@scenario("`anydml flatten` killed at random: the output is whole, or as it was", bounded=10, long=50)
def killed(count: int) -> Found:
    rng = np.random.default_rng(0)
    wrong = written = 0
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "model.onnx", Path(folder) / "flat.onnx"
        proto = onnx.parser.parse_model(work.MODEL)
        weight = onnx.numpy_helper.from_array(np.ones(4_000_000, np.float32), "weight")
        proto.graph.initializer.append(weight)
        proto.graph.node.append(onnx.helper.make_node("ReduceSum", ["weight"], ["s"]))
        proto.graph.output.append(onnx.helper.make_tensor_value_info("s", 1, None))
        onnx.save(proto, source)
        command = [sys.executable, "-m", "anydml", "flatten", str(source), str(target)]
        start = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        whole = time.monotonic() - start
        before = target.read_bytes()
        for _ in range(count):
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(float(rng.uniform(0.3, 1.0)) * whole)
            child.send_signal(signal.SIGKILL)
            written += child.wait() == 0
            wrong += target.read_bytes() != before
    return Found(count, wrong, f"{written} of them had ended by themselves")


_LEAVES = """
import threading
from tests.robustness import work
assert work.all_right() and work.operator_call(work.operator(1 << 20, threads=4), 1 << 20, 1)()
assert all(t.daemon for t in threading.enumerate() if t is not threading.main_thread())
"""


@scenario("processes that end after threads, sessions and loops: at once, and quietly", bounded=10, long=50)
def exits(count: int) -> Found:
    wrong = 0
    for _ in range(count):
        done = subprocess.run([sys.executable, "-c", _LEAVES], capture_output=True, text=True, timeout=60)
        wrong += done.returncode != 0 or bool(done.stderr)
    return Found(count, wrong)
