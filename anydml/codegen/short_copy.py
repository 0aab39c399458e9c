"""Copies of a few bytes: two moves that may overlap, of the largest size that fits."""

from __future__ import annotations

MAX_BYTES = 64
"""Beyond, a call is worth it."""


def short_copy(name: str, target: str, source: str, count: str, most: int, width: int) -> list[str]:
    """Instructions that copy `count` (an i64) bytes, of which there are fewer than `most`: 64 at most.

    Where there are none, nothing is touched. `width`: of an element, a power of two, of which `count` is a
    multiple. %name must be fresh; the block that goes on is called name.end.
    """
    lines, sizes = [], []
    size = most // 2
    while size >= width:
        sizes.append(size)
        size //= 2
    for size in sizes:
        p, kind = f"{name}.{size}", f"i{8 * size}" if size <= 8 else f"<{size} x i8>"
        lines += [
            f"%{p}.fits = icmp sge i64 {count}, {size}",
            f"br i1 %{p}.fits, label %{p}, label %{p}.less",
            f"{p}:",
            f"%{p}.at = sub i64 {count}, {size}",
            f"%{p}.s = getelementptr i8, ptr {source}, i64 %{p}.at",
            f"%{p}.t = getelementptr i8, ptr {target}, i64 %{p}.at",
            f"%{p}.x = load {kind}, ptr {source}, align 1",
            f"%{p}.y = load {kind}, ptr %{p}.s, align 1",
            f"store {kind} %{p}.x, ptr {target}, align 1",
            f"store {kind} %{p}.y, ptr %{p}.t, align 1",
            f"br label %{name}.end",
            f"{p}.less:",
        ]
    return [*lines, f"br label %{name}.end", f"{name}.end:"]
