"""Tensors of strings."""

from __future__ import annotations

import numpy as np

from anydml.onnx.ops.opinfo import Array, NodeView, NotFoldable, OpInfo
from anydml.onnx.ops.shared import texts


def _concat(node: NodeView, a: Array, b: Array) -> Array:
    x, y = np.broadcast_arrays(a, b)
    return texts([m + n for m, n in zip(x.reshape(-1), y.reshape(-1), strict=True)], x.shape)


def _normalize(node: NodeView, x: Array) -> Array:
    """Without the stop words, in upper or lower case as ASCII has it."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(f"expected sizes [n] or [1, n], but got {x.shape}")
    action, exact = node.text("case_change_action"), node.int("is_case_sensitive")
    words = [word.decode() for word in node.attribute("stopwords") or ()]
    found: list[str] = x.reshape(-1).tolist()
    if not found:
        raise NotFoldable("no strings to normalize")
    if (action != "NONE" or (words and not exact)) and not all(t.isascii() for t in (*found, *words)):
        raise NotFoldable("upper and lower case beyond ASCII")
    stop = set(words) if exact else {word.lower() for word in words}
    kept = [t for t in found if (t if exact else t.lower()) not in stop]
    if action not in ("NONE", "LOWER", "UPPER"):
        raise NotFoldable(f"case_change_action {action}")
    if action != "NONE":
        kept = [t.lower() if action == "LOWER" else t.upper() for t in kept]
    kept = kept or [""]
    return texts(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))


def _split(node: NodeView, x: Array) -> tuple[Array, Array]:
    """The parts, filled up with empty strings, and how many they are.

    Libraries differ in what is white beside the space, and in the parts of an empty string.
    """
    delimiter, most = node.attribute("delimiter"), node.attribute("maxsplit")
    by = (delimiter or b"").decode() or None
    found: list[str] = x.reshape(-1).tolist()
    if by is None and any(c.isspace() and c != " " for t in found for c in t):
        raise NotFoldable("white space other than the space")
    if by is not None and "" in found:
        raise NotFoldable("the parts of an empty string")
    parts = [(t.strip() if by is None else t).split(by, -1 if most is None else most) for t in found]
    width = max(map(len, parts), default=0)
    filled = [part for line in parts for part in (*line, *([""] * (width - len(line))))]
    counts = np.array([len(line) for line in parts], np.int64).reshape(x.shape)
    return texts(filled, (*x.shape, width)), counts


OPS = (
    OpInfo("StringConcat", fold=_concat),
    OpInfo("StringNormalizer", fold=_normalize),
    OpInfo("StringSplit", counts=True, fold=_split),
)
