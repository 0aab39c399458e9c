"""The child that tries cases, one after the other, and says how each ended; it may die of one.

    python -m abuse.worker SEED FIRST LAST FOLDER [--keep FOLDER]

It works in FOLDER, where the corpus is. A line of JSON for each case goes to standard output. Before it dies
of a signal, or of a case that takes too long, Python's faulthandler writes where it was to FOLDER/trace.

Address space is limited to 3 GiB beyond what the process has once everything is imported: more than the
2 GiB of memory that a case may take, since libraries reserve what they never touch. What asks for more gets
an error at once instead of harming the machine. What is really used is measured after each case.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import mmap
import os
import re
import resource
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

import anydml
from abuse.cases import Case, case, tried
from abuse.seeds import corpus
from anydml.onnx.providers import onnxruntime as library

SECONDS = 10
"""What a case may take."""
MOST_MEMORY = 2 << 30
"""Bytes that a case may take."""
SPACE = 3 << 30
"""Bytes of address space beyond what is there at the start."""
NOTE = 1 << 16
"""Bytes of the note of what a library was last asked to do."""
_HOME = str(Path(anydml.__file__).parent)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int)
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    keep = asked.keep.resolve() if asked.keep else None
    os.chdir(asked.folder)
    told = os.fdopen(os.dup(1), "w")
    with open("said", "w") as said:  # libraries write to both, whatever they are told
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    warnings.simplefilter("ignore")
    seeds = corpus(True, Path("corpus"))
    _limit_space()
    noted = _noting(Path("note"))
    with open("trace", "w") as trace:
        faulthandler.enable(trace)
        for number in range(asked.first, asked.last):
            noted(f"{number}\n".encode())
            this = case(asked.seed, number, seeds)
            start = time.perf_counter()
            faulthandler.dump_traceback_later(SECONDS, exit=True, file=trace)
            outcome, about = _outcome(this, asked.seed, number, seeds)
            faulthandler.cancel_dump_traceback_later()
            seconds = time.perf_counter() - start
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if memory > MOST_MEMORY and outcome != "wrong":
                outcome, about = "wrong", {"key": f"memory of {this.kind}", "text": f"{memory >> 20} MB"}
            if outcome == "wrong" and keep is not None:
                kept(this, keep / f"{asked.seed}-{number}", about.get("traceback", about["text"]))
            line = {"case": number, "kind": this.kind, "origin": this.origin, "outcome": outcome}
            print(json.dumps({**line, "seconds": seconds, "memory": memory, **about}), file=told, flush=True)
            if memory > MOST_MEMORY:
                break  # its peak cannot be told from that of later cases
            if number % 64 == 0:
                gc.collect()


def _limit_space() -> None:
    """Beyond what a first session needs, which brings threads and their stacks."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _noting(path: Path) -> Any:
    """Note in a file what libraries are asked, so that it is known when one of them ends the process."""
    path.write_bytes(b"\0" * NOTE)
    with path.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), NOTE)

    def note(data: bytes) -> None:
        data = data[: NOTE - 8]
        memory[: 8 + len(data)] = len(data).to_bytes(8, "little") + data

    compile_, run, bound = library.OnnxRuntime.compile, library._Session.__call__, library._Bound.__call__
    infer = onnx.shape_inference.infer_node_outputs

    def compiled(self: Any, region: Any, threads: int) -> Any:
        note(region.model)
        call: Any = compile_(self, region, threads)
        call.noted = region.model
        return call

    def ran(self: Any, values: Any) -> Any:
        note(self.noted)
        return run(self, values)

    def bound_ran(self: Any, values: Any) -> Any:
        note(self._call.noted)
        return bound(self, values)

    def inferred(schema: Any, node: Any, *args: Any, **options: Any) -> Any:
        note(b"infer " + schema.name.encode() + b" " + node.SerializeToString())
        return infer(schema, node, *args, **options)

    library.OnnxRuntime.compile = compiled  # type: ignore[method-assign]
    library._Session.__call__ = ran  # type: ignore[method-assign]
    library._Bound.__call__ = bound_ran  # type: ignore[method-assign]
    onnx.shape_inference.infer_node_outputs = inferred
    return note


def _outcome(this: Case, seed: int, number: int, seeds: Any) -> tuple[str, dict[str, Any]]:
    """`accepted`, `refused`, or `wrong` and what is to be told of it."""
    try:
        return ("accepted" if tried(this, seed, number, seeds) else "refused"), {}
    except anydml.AnyDMLError:
        return "refused", {}
    except BaseException as error:
        if isinstance(error, OSError) and this.kind == "json":  # it says where it reads and writes
            return "refused", {}
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if f.filename.startswith(_HOME)]
        place = f"{own[-1].filename.removeprefix(_HOME + '/')}:{own[-1].lineno}" if own else "abuse"
        last = f"{type(error).__name__}: {str(error)[:300]}"
        full = "".join(traceback.format_exception(error))[-6000:]
        return "wrong", {"key": f"{type(error).__name__} at {place}", "text": last, "traceback": full}


def kept(this: Case, path: Path, note: str) -> None:
    """Store what was tried, and what came of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ending = {"json": "json", "desc": "desc.txt"}.get(this.kind, f"{this.kind}.onnx")
    content = this.content if isinstance(this.content, bytes) else repr(this.content).encode(errors="replace")
    path.with_name(f"{path.name}.{ending}").write_bytes(content)
    path.with_name(f"{path.name}.trace.txt").write_text(note, errors="replace")


def read_note(path: Path) -> str:
    """What a library was last asked to do, in a line."""
    data = path.read_bytes() if path.exists() else b""
    data = data[8 : 8 + int.from_bytes(data[:8], "little")]
    if data.startswith(b"infer "):
        return f"shape inference of {data.split(b' ')[1].decode(errors='replace')}"
    try:
        nodes = onnx.ModelProto.FromString(data).graph.node
    except Exception:  # cut off, or no model
        found = re.match(rb"\d+\n", data)
        return "nothing yet" if found else "a region"
    return f"a region of {', '.join(sorted({n.op_type for n in nodes})) or 'no nodes'}"[:300]


if __name__ == "__main__":
    assert onnxruntime.__version__  # imported before address space is limited
    main()
