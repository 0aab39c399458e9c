"""Machine code kept on disk, so that the next process need not compile.

An entry is found by a hash of everything that its code depends on: the IR, LLVM's version, the processor
with its features, the code generator's level. It carries that hash and one of its content, and is taken
only if both are right: half-written, damaged or exchanged files are compiled anew. Entries appear by an
atomic rename, so writers do not meet. A disk that is full, or a folder that others may change, means that
nothing is kept; the logger "anydml" tells why, at level INFO.

The folder is $ANYDML_CACHE_DIR ("off" turns the cache off), or `anydml` among the user's caches.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path

from anydml.errors import by_a_handler

_log = logging.getLogger("anydml.cache")

MAGIC = b"anydml1\n"
MAX_ENTRIES = 4096
"""Beyond, a process that adds one takes away the half that was not used for longest."""
LONG_UNUSED = 86_400.0
"""Seconds after which an entry that is used becomes a new one."""
LOOKED_AFTER = 256
"""Entries of a process after which it looks again how many there are."""


def key_of(*parts: str) -> str:
    """The name of the entry for code that depends on these texts."""
    digest = hashlib.sha256(MAGIC)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def load(key: str) -> bytes | None:
    """The code kept under `key`, if it is there and whole."""
    folder = directory()
    if folder is None:
        return None
    try:
        with open(folder / key, "rb") as file:
            data, age = file.read(), time.time() - os.fstat(file.fileno()).st_mtime
        if age > LONG_UNUSED:
            with suppress(OSError):  # a folder that is read only
                os.utime(folder / key)
    except OSError as error:
        if by_a_handler(error):
            raise
        return None
    head, content = data[: len(MAGIC) + 64], data[len(MAGIC) + 64 :]
    return content if head == _head(key, content) else None


def store(key: str, content: bytes) -> None:
    """Keep code under `key`, if that is possible."""
    folder = directory()
    if folder is None:
        return
    import tempfile  # only those who write need it

    try:
        _make_room(folder)
        handle, name = tempfile.mkstemp(prefix=".new-", dir=folder)
    except OSError as error:
        if by_a_handler(error):
            raise
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_head(key, content) + content)
        os.replace(name, folder / key)
    except (OSError, ImportError) as error:  # the latter when the process is about to end
        Path(name).unlink(missing_ok=True)
        if by_a_handler(error):
            raise


def _head(key: str, content: bytes) -> bytes:
    return MAGIC + bytes.fromhex(key) + hashlib.sha256(content).digest()


@cache
def directory() -> Path | None:
    """The folder of the entries, made if need be; None where code cannot be kept."""
    asked = os.environ.get("ANYDML_CACHE_DIR", "")
    if asked.lower() in ("off", "0", "none"):
        _log.info("kernels are not kept: ANYDML_CACHE_DIR is %s", asked)
        return None
    try:
        folder = (Path(asked).expanduser() if asked else _users_caches() / "anydml").resolve()
        for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        why = _danger(folder)
    except (OSError, RuntimeError) as error:  # the latter: nobody's home is known
        if by_a_handler(error):
            raise
        folder, why = Path(asked), str(error)
    if why:
        _log.info("kernels are not kept: %s", why)
        return None
    _log.info("kernels are kept in %s", folder)
    return folder


def _users_caches() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    asked = os.environ.get("XDG_CACHE_HOME", "")
    return Path(asked) if os.path.isabs(asked) else Path.home() / ".cache"  # as its specification says


def _danger(folder: Path) -> str:
    """Why others may put code into a folder, which would run as we do; "" if they cannot.

    Neither it nor a folder above may be another user's or be written by others, as with the keys of ssh: who
    can rename a folder above can put another one in its place. Above, the sticky bit prevents that.
    """
    if not hasattr(os, "getuid"):
        return "" if folder.is_dir() else f"{folder} is no folder"
    for place in (folder, *folder.parents):
        status = place.lstat()  # the path is resolved: what is a link now was put there since
        if not stat.S_ISDIR(status.st_mode):
            return f"{place} is no folder"
        if status.st_uid not in (0, os.getuid()):
            return f"{place} belongs to another user, number {status.st_uid}"
        open_to_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if open_to_others and (place == folder or not status.st_mode & stat.S_ISVTX):
            mode = stat.S_IMODE(status.st_mode)
            return f"others may write to {place} (mode {mode:04o}); chmod go-w {place}"
    return ""


def _is_ours(name: str) -> bool:
    """Whether a file is an entry, or was to become one: nothing else is ever taken away."""
    return name.startswith(".new-") or (len(name) == 64 and set(name) <= set("0123456789abcdef"))


_stored: Counter[Path] = Counter()


def _make_room(folder: Path) -> None:
    """Before the first entry of this process, and after some: not more entries than MAX_ENTRIES."""
    _stored[folder] += 1
    if _stored[folder] % LOOKED_AFTER != 1:
        return
    entries = [entry for entry in folder.iterdir() if _is_ours(entry.name)]
    if len(entries) > MAX_ENTRIES:
        used: dict[Path, float] = {}
        for entry in entries:
            with suppress(FileNotFoundError):  # another process makes room, too
                used[entry] = entry.stat().st_mtime
        for entry in sorted(used, key=used.__getitem__)[: len(entries) // 2]:
            entry.unlink(missing_ok=True)
