"""Child processes for what may crash, hang or take too much memory: the parent learns how each task ended.

A child is started by spawn, makes a function once, and applies it to one task after the other. Of a child
that dies or takes too long, its Python stack at that time is known, and which library it was in.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import itertools
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anydml

Tell = Callable[[str], None]
"""Is told what a task is about to do."""
Function = Callable[[Any, Tell], Any]
Make = Callable[[], Function]

STARTUP = 60.0
"""Seconds that a child's imports may take."""
GRACE = 10.0
"""Seconds after which a child that should have ended itself is killed."""
_SPAWN = multiprocessing.get_context("spawn")
_ENVIRONMENT = threading.Lock()
_HOME = f"{Path(anydml.__file__).parent}/"


@dataclass(frozen=True)
class Limits:
    """What children may take.

    Attributes:
        seconds: of a task.
        space: bytes of address space beyond what there is when a task begins; 0: any.
        memory: resident bytes of a task after which its child is replaced.
        tasks: after which a child is replaced: what it leaks must not add up.
    """

    seconds: float = 60.0
    space: int = 0
    memory: int = 1 << 30
    tasks: int = 500
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a task ended.

    Attributes:
        how: `done`, `error` for an exception, `crash` or `hang`.
        error: name of the exception's class, of the signal, or `exit 1`.
        place: file and line of anydml where it was.
        library: which library anydml had called then, if the process died in one.
        trace: of the exception or the process.
        processor: seconds of processors, which other programs do not lengthen.
        memory: the most resident bytes.
    """

    task: Any
    how: str
    value: Any = None
    error: str = ""
    text: str = ""
    place: str = ""
    library: str = ""
    phase: str = ""
    trace: str = ""
    seconds: float = 0.0
    processor: float = 0.0
    memory: int = 0

    @property
    def about(self) -> str:
        """What went wrong, in a line."""
        parts = (
            self.error,
            f"at {self.place}" if self.place else "",
            f"in {self.library}" * bool(self.library),
        )
        what = " ".join(p for p in (self.how, *parts) if p)
        return f"{what}; {self.phase or 'start'}: {' '.join(self.text.split())[:500]}"


# ---- the child ---------------------------------------------------------------------------------------


def _serve(channel: Connection, make: Make, limits: Limits, folder: str) -> None:
    with open(f"{folder}/said", "wb") as said:  # libraries write to both, whatever they are told
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    with open(f"{folder}/trace", "w") as trace:
        faulthandler.enable(trace)
        faulthandler.dump_traceback_later(STARTUP, exit=True, file=trace)
        function = make()
        faulthandler.cancel_dump_traceback_later()
        channel.send("ready")
        for number in itertools.count(1):
            try:
                task, seconds = channel.recv()
            except (EOFError, OSError):
                return
            _begin(limits)
            faulthandler.dump_traceback_later(seconds, exit=True, file=trace)
            ended = _applied(function, task, channel.send)
            faulthandler.cancel_dump_traceback_later()
            channel.send(ended)
            del ended, task
            if number % 64 == 0:
                gc.collect()


def _begin(limits: Limits) -> None:
    """Limit address space anew, and forget the peak of memory so far."""
    if sys.platform != "linux":
        return
    import resource

    if limits.space:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + limits.space, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The most resident bytes since `_begin`; getrusage would tell the parent's, from before the child's exec."""
    if sys.platform != "linux":
        return 0
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _applied(function: Function, task: Any, tell: Tell) -> Ended:
    start, used = time.perf_counter(), time.process_time()
    try:
        ended = Ended(task, "done", value=function(task, tell))
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename.startswith(_HOME)]
        place = f"{own[-1].filename.removeprefix(_HOME)}:{own[-1].lineno}" if own else ""
        trace = "".join(traceback.format_exception(error))[-6000:]
        name = type(error).__name__
        ended = Ended(task, "error", error=name, text=str(error)[:1500], place=place, trace=trace)
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    return replace(ended, seconds=seconds, processor=processor, memory=_peak())


# ---- the parent --------------------------------------------------------------------------------------


_LIVING: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before multiprocessing, imported above, waits for its children for ever."""
    for worker in list(_LIVING):
        worker.stop()


class Worker:
    """A child process, and what it is at."""

    def __init__(self, make: Make, limits: Limits = Limits()) -> None:
        self.limits, self.folder = limits, tempfile.mkdtemp(prefix="child-")
        self.channel, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=_serve, args=(theirs, make, limits, self.folder))
        with _ENVIRONMENT, patch.dict(os.environ, limits.environment):
            self.process.start()
        theirs.close()
        self.stop = weakref.finalize(self, _stopped, self.channel, self.process, self.folder)
        _LIVING.add(self)
        self.task: Any = None
        self.phase, self.since, self.done, self.seconds = "", time.monotonic(), 0, STARTUP
        self.worn = False
        """Whether it is to be replaced."""

    def send(self, task: Any, seconds: float | None = None) -> None:
        """Give it a task; `seconds` if it may take another time than others."""
        self.task, self.since, self.seconds = task, time.monotonic(), seconds or self.limits.seconds
        self.phase = self.phase and "ready"
        with contextlib.suppress(OSError):  # who is dead already is found so when asked
            self.channel.send((task, self.seconds))

    def receive(self) -> Ended | None:
        """How its task ended, if it has."""
        try:
            message: str | Ended | None = self.channel.recv() if self.channel.poll() else None
        except (EOFError, OSError):
            return self._died()
        patience = self.seconds + GRACE + (0 if self.phase else STARTUP)
        if message is None and time.monotonic() - self.since > patience:
            self.process.kill()
            return self._died()
        if isinstance(message, str):
            if not self.phase:
                self.since = time.monotonic()
            self.phase = message
        elif message is not None:
            self.done += 1
            self.worn = self.done >= self.limits.tasks or message.memory > self.limits.memory
            return replace(message, task=self.task, phase=self.phase)
        return None

    def ask(self, task: Any, seconds: float | None = None) -> Ended:
        """Give it a task and wait until it has ended."""
        self.send(task, seconds)
        while True:
            self.channel.poll(1.0)
            ended = self.receive()
            if ended is not None:
                return ended

    def _died(self) -> Ended:
        self.process.join(GRACE)
        late = self.process.exitcode is None
        if late:
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        trace, said = (_end_of(Path(self.folder) / name) for name in ("trace", "said"))
        killed = late or (code == -signal.SIGKILL and time.monotonic() - self.since > self.seconds)
        hang = killed or "Timeout (" in trace
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        place, library = _place(trace)
        self.worn = True
        self.stop()
        return Ended(
            *(self.task, "hang" if hang else "crash"),
            error=f"after {self.seconds:.0f} s" if hang else how,
            text=said[-1500:],
            place=place,
            library=library,
            phase=self.phase,
            trace=trace,
            seconds=time.monotonic() - self.since,
        )


def _stopped(channel: Connection, process: BaseProcess, folder: str) -> None:
    channel.close()
    process.kill()
    process.join()
    shutil.rmtree(folder, ignore_errors=True)


def _end_of(path: Path) -> str:
    return path.read_text(errors="replace")[-6000:] if path.exists() else ""


def _place(trace: str) -> tuple[str, str]:
    """The last line of anydml in a trace of faulthandler's, and the library that it had called, if any."""
    threads = [t for t in re.split(r"\n(?=Current thread|Thread)", trace) if "in _applied" in t]
    frames = re.findall(r'File "(.+?)", line (\d+) in (\S+)', threads[-1]) if threads else []
    own = next((k for k, f in enumerate(frames) if f[0].startswith(_HOME)), None)
    if own is None:
        return "", ""
    file, line, _ = frames[own]
    called = re.search(r"-packages/(\w+)", frames[0][0])
    library = "" if own == 0 or called is None else called[1]
    if own == 0 and "onnx/partial_eval/shape_inference.py" in file:
        library = "onnx"
    return f"{file.removeprefix(_HOME)}:{line}", library


def all_ended(
    make: Make, tasks: Iterable[Any], processes: int | None = None, limits: Limits = Limits()
) -> Iterator[Ended]:
    """How every task ended, as they come; in as many children at once as there are cores, if not told."""
    waiting, nothing = iter(tasks), object()
    workers: list[Worker] = []

    def give(worker: Worker | None = None) -> None:
        task = next(waiting, nothing)
        if worker is not None and (task is nothing or worker.worn):
            worker.stop()
            worker = None
        if task is not nothing:
            worker = worker or Worker(make, limits)
            worker.send(task)
            workers.append(worker)

    try:
        for _ in range(processes or os.cpu_count() or 1):
            give()
        while workers:
            wait([w.channel for w in workers], timeout=1.0)
            for worker in list(workers):
                ended = worker.receive()
                if ended is not None:
                    workers.remove(worker)
                    give(worker)
                    yield ended
    finally:
        for worker in workers:
            worker.stop()


def _plain(function: Callable[..., Any]) -> Function:
    return lambda arguments, tell: function(*arguments)


def alone(function: Callable[..., Any], *arguments: Any, limits: Limits = Limits()) -> Ended:
    """How a call in a child of its own ended."""
    worker = Worker(partial(_plain, function), limits)
    try:
        return worker.ask(arguments)
    finally:
        worker.stop()
