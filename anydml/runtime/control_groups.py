"""What Linux's control groups leave a process of its machine: containers are limited by them.

A group's own limits and those of the groups around it hold together. Both versions are read: of the first one
each controller has a tree of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

_GROUPS = "/proc/self/cgroup"
_TREES = "/sys/fs/cgroup"


def processors() -> float | None:
    """Of how many processors the process may use the time; None: of all."""
    found = []
    for folder in _folders("cpu"):
        words = _read(f"{folder}/cpu.max").split()
        words = words or [_read(f"{folder}/cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
        if all(word.isdecimal() for word in words):  # and not max, or -1, or nothing
            quota, period = map(int, words)
            found.append(quota / max(period, 1))
    return min(found, default=None)


def memory() -> int | None:
    """How many bytes the process may have; None: all there are."""
    words = (
        _read(f"{folder}/{name}").strip()
        for folder in _folders("memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    )
    return min((int(word) for word in words if word.isdecimal()), default=None)


def _folders(controller: str) -> Iterator[str]:
    """Where the limits of the process's group stand, and those of the groups around it.

    In a container its own group may be mounted where the tree begins, whatever the process is told.
    """
    for line in _read(_GROUPS).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            tree = _TREES
        elif controller in controllers.split(","):
            tree = f"{_TREES}/{controller}"  # also where several have a tree together
        else:
            continue
        while group.strip("/"):
            yield tree + group
            group = group.rpartition("/")[0]
        yield tree


def _read(file: str) -> str:
    """Nothing for what cannot be read, as on other systems than Linux."""
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as text:
            return text.read()
    except OSError:
        return ""
