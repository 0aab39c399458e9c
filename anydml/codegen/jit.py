"""LLVM: the machine at hand, and IR text to addresses in it.

Where code is on disk already, and what there is to know of the machine, LLVM is not brought into the process.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

from anydml.codegen import cache
from anydml.codegen.compiling import compiling, uninterrupted
from anydml.codegen.descriptor import ir_file
from anydml.codegen.elf import NotLinkable, link
from anydml.codegen.target import PROCESSORS, SCRATCH, Target
from anydml.dataclass import asdict, dataclass
from anydml.errors import InvalidInput, Problem, nearest, short_repr

if TYPE_CHECKING:
    import llvmlite.binding as llvm

SPINS = 3000
"""Pauses (about 20 ns each) that an idle worker waits before it sleeps: long enough to bridge the gap
between two dispatches of a loop, too short to be seen in a processor's load."""

HAS_CLOCK = platform.machine().lower() in ("x86_64", "amd64")
"""Whether code may look at a clock without a call."""
WORTH = 150_000
"""Ticks of it, 40 to 70 us, that a caller would need for the rest of its work by itself, from which it wakes
workers: on virtual machines they come some 50 us later."""


@lru_cache
def _llvm() -> Any:
    """llvmlite, which is large: a model that a library runs as a whole has no need of it."""
    import llvmlite.binding

    compiling.active = True
    atexit.register(compiling.end)  # again, to be called before what llvmlite has registered
    return llvmlite.binding


def _keep(thing: Any) -> Any:
    """It lives as long as the process: code may run until then, and be made when it is about to end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


@lru_cache
def _machine(level: int) -> llvm.TargetMachine:
    llvm = _llvm()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for the one inline instruction in forkjoin.ll
    return _keep(_new_machine(level))


def _new_machine(level: int) -> llvm.TargetMachine:
    llvm = _llvm()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features().flatten(), opt=level, jit=True
    )


_NEWER = {
    "x86-64-v3": ("avx512", "avx10", "avxvnni", "amx"),
    "x86-64-v2": ("avx", "amx", "fma", "f16c", "vaes", "vpclmul"),
}
"""How the features begin that processors of a level have not."""


@lru_cache
def _without() -> tuple[str, ...]:
    """How features begin that code is to do without ($ANYDML_PROCESSOR).

    Raises:
        InvalidInput: no level that is known.
    """
    level = os.environ.get("ANYDML_PROCESSOR", "")
    if level and level not in _NEWER:
        message = f"expected {' | '.join(_NEWER)}, but got {short_repr(level)}"
        raise InvalidInput(Problem("$ANYDML_PROCESSOR", message, nearest(level, _NEWER)))
    return _NEWER.get(level, ())


def _features() -> llvm.FeatureMap:
    features = _llvm().get_host_cpu_features()
    for name in features:
        features[name] = features[name] and not name.startswith(_without())
    if features.get("avx512f"):  # LLVM prefers 256 bits even where 512 are faster
        features["prefer-256-bit"] = False
    return features


@dataclass(frozen=True)
class _Processor:
    """What LLVM says of itself and of the processor at hand."""

    version: str
    triple: str
    name: str
    features: Mapping[str, bool]


@lru_cache
def _processor() -> _Processor:
    """From the disk, if LLVM was asked before: its import takes longer than to load code that is there."""
    mark = _mark()
    key = None if mark is None else cache.key_of("processor", mark)
    kept = None if key is None else cache.load(key)
    if kept is not None:
        return _Processor(**json.loads(kept))
    with compiling.lock:
        found = _asked_processor()
    if key is not None:
        cache.store(key, json.dumps(asdict(found)).encode())
    return found


@uninterrupted
def _asked_processor() -> _Processor:
    llvm = _llvm()
    version = ".".join(map(str, llvm.llvm_version_info))
    return _Processor(version, _machine(2).triple, llvm.get_host_cpu_name(), dict(_features()))


@lru_cache
def _mark() -> str | None:
    """What tells this LLVM and this processor from others; None where the system does not say."""
    spec = find_spec("llvmlite")
    binding = Path(str(spec and spec.origin)).parent / "binding"
    try:
        lines = _first_processor().splitlines()
        libraries = [binding / n for n in sorted(os.listdir(binding)) if n.startswith("libllvmlite")]
        built = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in libraries]
    except OSError:
        return None
    kinds = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
    said = [line for line in lines if line.partition(":")[0].strip() in kinds]
    return f"{said} {built} {_without()}" if len(said) == len(kinds) and built else None


def _first_processor() -> str:
    """What Linux says of it; of each one it takes time to say so."""
    with open("/proc/cpuinfo", "rb", buffering=0) as file:
        said = b""
        while b"\n\n" not in said and (more := file.read(4096)):
            said += more
    return said.partition(b"\n\n")[0].decode("utf-8", "replace")


@lru_cache
def host() -> Target:
    features = _processor().features
    arm = platform.machine().lower() in ("arm64", "aarch64")
    if features.get("avx512f"):
        width = 64
    elif features.get("avx2"):
        width = 32
    else:
        width = 16
    half = arm or bool(features.get("f16c"))
    scratch = SCRATCH if _probes_stack() else 0
    scales, halves = width == 64, width == 64 and _processor().name == "znver4"
    fours = bool((features.get("avx512vnni") and features.get("avx512vl")) or features.get("avxvnni"))
    ends = bool(width == 64 and features.get("avx512bw") and features.get("avx512vl"))
    return Target(
        width,
        converts_half=half,
        streams=not arm,
        scales=scales,
        masks=width >= 32,
        saturates=arm,
        scratch=scratch,
        halves=halves,
        fours=fours,
        ends=ends,
    )


def _probes_stack() -> bool:
    """Whether code may take more than a page of the stack at once. On Windows each of its pages has to be
    touched in order, for which LLVM calls a function of the system's."""
    if os.name != "nt":
        return True
    probe = getattr(ctypes.CDLL("ntdll.dll"), "__chkstk", None)
    if probe is not None:
        add_function("__chkstk", probe)
    return probe is not None


class Code(Protocol):
    """Machine code that lives as long as this object."""

    def address(self, symbol: str) -> int: ...


def compile_ir(text: str, symbols: Iterable[str], *, level: int = 2) -> list[int]:
    """Machine code of the module `text`, for good; the addresses of the `symbols` that it defines.

    LLVM's middle end is not run: the text is vector code already, and it would double the time. `level`
    is the code generator's; 0 takes a fifth of the time, for code that is not in a loop over elements.
    """
    with compiling.lock:
        code = _keep(_link(_object_code(text, level)))
        return [code.address(name) for name in symbols]


_bodies: dict[int, Callable[[], str]] = {}


def compile_body(text: Callable[[], str]) -> int:
    """The address of a kernel's body, for good; `text` gives its module, whenever it is asked for."""
    (address,) = compile_ir(text(), ["row"])
    _bodies[address] = text
    return address


def body_at(address: int) -> str:
    """The module of the kernel's body that lies there."""
    return _bodies[address]()


_in_use: WeakValueDictionary[str, Code] = WeakValueDictionary()


def load_code(text: str) -> Code:
    """Machine code of the module `text`: what is in use already, or made now."""
    with compiling.lock:
        code = _in_use.get(text)
        if code is None:
            code = _in_use[text] = _link(_object_code(text, 2))
        return code


def _object_code(text: str, level: int) -> bytes:
    """From the disk, or compiled."""
    key = cache.key_of(text, _identity(level))
    code = cache.load(key)
    if code is None:
        code = _compiled(text, level)
        compiling.active = True
        cache.store(key, code)
    return code


@uninterrupted
def _compiled(text: str, level: int) -> bytes:
    return bytes(_machine(level).emit_object(_verified(text)))


@lru_cache
def _identity(level: int) -> str:
    """What code depends on beside its text."""
    found = _processor()
    features = ",".join(f"{k}={v}" for k, v in sorted(found.features.items()))
    return f"{found.version} {found.triple} {found.name} {features} level {level}"


def note_made(what: str) -> None:
    """Note on the disk that all code for something is there."""
    if not is_made(what) and (mark := _mark()) is not None:
        cache.store(cache.key_of("made", what), mark.encode())


def is_made(what: str) -> bool:
    """Whether all code for something was made once on this machine, and so is likely to be on its disk."""
    noted = cache.load(cache.key_of("made", what))
    return noted is not None and (mark := _mark()) is not None and noted == mark.encode()


_symbols: dict[str, int] = {}
"""Addresses of what code may call."""


def add_symbol(name: str, address: int) -> None:
    """Have code find a function of ours or Python's by its name."""
    _symbols[name] = address


def add_function(name: str, function: Any) -> None:
    """As `add_symbol`, of a function of a library's."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    add_symbol(name, address)


def _link(code: bytes) -> Code:
    try:
        return link(code, _address_of)
    except NotLinkable:
        return _CodeByLLVM(code)


def _address_of(symbol: str) -> int | None:
    """Of what code may call: ours, or C's."""
    if symbol not in _symbols:
        found = getattr(ctypes.pythonapi, symbol, None)
        return None if found is None else ctypes.cast(found, ctypes.c_void_p).value
    return _symbols[symbol]


class _CodeByLLVM:
    """Code that its own linker puts into memory, where ours does not know how."""

    @uninterrupted
    def __init__(self, code: bytes) -> None:
        _machine(2)
        llvm = _llvm()
        for name, address in _symbols.items():
            llvm.add_symbol(name, address)
        # an engine takes its machine along when it goes
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _new_machine(2))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        found: int = self._engine.get_function_address(symbol)
        return found


def assembly(text: str, processor: str | None = None) -> str:
    """The module `text` as assembly, to read; for the processor at hand, or one of PROCESSORS."""
    with compiling.lock:
        return _assembly(text, processor)


@uninterrupted
def _assembly(text: str, processor: str | None) -> str:
    machine = _machine(2) if processor is None else _machine_of(processor)
    return str(machine.emit_assembly(_verified(text)))


def emit_object_file(text: str, processor: str | None) -> bytes:
    """The module `text` as an object file to be linked; for the processor at hand, or one of PROCESSORS."""
    with compiling.lock:
        return _object_file(text, processor)


@uninterrupted
def _object_file(text: str, processor: str | None) -> bytes:
    return bytes(_machine_of(processor).emit_object(_verified(text)))


def _verified(text: str) -> llvm.ModuleRef:
    module = _llvm().parse_assembly(text)
    module.verify()
    return module


def _machine_of(processor: str | None) -> llvm.TargetMachine:
    """What makes code that a linker may put anywhere."""
    llvm = _llvm()
    _machine(2)
    triple, cpu, features = llvm.get_default_triple(), processor or llvm.get_host_cpu_name(), ""
    if processor is None:
        features = _features().flatten()
    elif processor == "aarch64" or platform.machine().lower() not in ("x86_64", "amd64"):
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        arm = processor == "aarch64"
        triple = "aarch64-unknown-linux-gnu" if arm else "x86_64-unknown-linux-gnu"
        cpu = "generic" if arm else processor
    if processor is not None and PROCESSORS[processor].vector_bytes == 64:
        features = "-prefer-256-bit"
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="default")


@dataclass(frozen=True)
class Driver:
    """The compiled entries of forkjoin.ll, as C functions that release the GIL."""

    run: Callable[..., None]
    run_arrays: Callable[..., None]
    work: Callable[..., None]
    stop: Callable[..., None]


@lru_cache
def places_workers() -> bool:
    """Whether threads can be told which processors to leave to others."""
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    for name in ("sched_getcpu", "sched_setaffinity"):
        if not hasattr(library, name):
            return False
        add_function(name, getattr(library, name))
    return True


@lru_cache
def driver() -> Driver:
    api = ctypes.pythonapi
    for ours, theirs in (("acquire", api.PyThread_acquire_lock), ("release", api.PyThread_release_lock)):
        add_function(f"anydml_{ours}", theirs)
    (drive,) = compile_ir(ir_file("nest.ll"), ["anydml_drive"], level=0)
    add_symbol("anydml_drive", drive)
    machine = platform.machine().lower()
    pause = {"x86_64": "pause", "amd64": "pause", "arm64": "yield", "aarch64": "yield"}.get(machine, "")
    text = ir_file("forkjoin.ll")
    text = text.replace("PAUSE_INSTRUCTION", pause).replace("SPINS", str(SPINS))
    clock = "call i64 @llvm.readcyclecounter()" if HAS_CLOCK else "add i64 0, 0"
    text = text.replace("CLOCK", clock).replace("WORTH", str(WORTH))
    if places_workers():
        text += ir_file("placement.ll")
    else:
        text += "define internal void @place(ptr %pool, i64 %w) {\n  ret void\n}\n"
    entries = ("anydml_run", "anydml_run_arrays", "anydml_work", "anydml_stop")
    run, run_arrays, work, stop = compile_ir(text, entries, level=0)
    add_symbol("anydml_run", run)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    return Driver(
        ctypes.CFUNCTYPE(None, pointer)(run),
        ctypes.CFUNCTYPE(None, pointer, number)(run_arrays),
        ctypes.CFUNCTYPE(None, pointer, number)(work),
        ctypes.CFUNCTYPE(None, pointer)(stop),
    )
