"""What a plan depends on: types and sizes of its inputs, and contents of those that decide branches."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np

from anydml.ir.dims import Affine, Dim, Symbol
from anydml.ir.graph import Value
from anydml.onnx.types import are_texts, dtype_name

MAX_GUARD_ELEMENTS = 16
"""Elements up to which an input may be a guard. A rate or a flag is one; data is larger."""

Key = tuple[Any, ...]
ANY: Key = ("any",)
"""In the place of contents: a plan for whatever they are."""
ANY_SIZE = -1
"""In the place of a size: any, also 0, which an open one (None) is not."""
UNSPECIFIC = frozenset(np.dtype(kind).num for kind in "SUVmM")
"""NumPy's types whose number alone does not say what an element is."""
OBJECTS = np.dtype(object).num
"""Texts, if they are."""


def quick_key(values: Sequence[Any], deciding: Sequence[int] = ()) -> list[Any] | None:
    """Types and sizes of arrays, and of those in lists, in the form that is quickest to make, and small
    contents of the `deciding` ones; None if there is anything else but optionals without content, or an array
    of no native type."""
    key: list[Any] = []
    for value in values:
        if type(value) is np.ndarray and value.dtype.isnative and value.dtype.num not in UNSPECIFIC:
            if value.dtype.num == OBJECTS and not are_texts(value):
                return None
            key += (value.dtype.num, value.shape)
        elif type(value) is list and (inner := quick_key(value)) is not None:
            key.append(tuple(inner))
        elif value is None:
            key.append(None)
        else:
            return None
    for k in deciding:
        value = values[k]
        if type(value) is list:
            return None
        small = value is not None and value.size <= MAX_GUARD_ELEMENTS
        key.append(value.tobytes() if small else None)
    return key


def quick_pattern(
    values: Sequence[Any], deciding: Sequence[int], shapes: Key, exact: Container[int]
) -> Key | None:
    """What quick keys are like of inputs that a plan for a pattern of shapes is for; None where quick keys do
    not tell.

    Args:
        values: some of these inputs.
        exact: the places of inputs whose sizes must be as they are in `values`.
    """
    key = quick_key(values, deciding)
    if key is None:
        return None
    place = 0
    for k, (value, (_, sizes)) in enumerate(zip(values, shapes, strict=True)):
        if type(value) is np.ndarray:
            place += 1
            if k not in exact:
                key[place] = sizes
        place += 1
    return tuple(key)


def quickly_fits(pattern: Key, key: Key) -> bool:
    """Whether a quick key is like a pattern of them."""
    for like, part in zip(pattern, key, strict=True):
        if like != part and not (type(like) is tuple and type(part) is tuple and _admits(like, part)):
            return False
    return True


def shape_key(value: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Type and sizes. A sequence has no sizes, and an optional without content no type either."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape
    if isinstance(value, list):
        return ("seq", shape_key(value[0])[0] if value else None), None
    return None, None


def join(a: Key | None, b: Key | None) -> Key | None:
    """What two keys have in common, sizes that differ being open; None where types or ranks differ.

    An open size is not 0: operators do other things on nothing, and some libraries wrong ones.
    """
    if a is None or b is None:
        return None
    joined: list[Any] = []
    for (dtype, sizes), (other, others) in zip(a, b, strict=True):
        if dtype != other or (sizes is None) != (others is None) or len(sizes or ()) != len(others or ()):
            return None
        if sizes is None:
            joined.append((dtype, None))
            continue
        ends = [*zip(sizes, others, strict=True)]
        if any(n != m and 0 in (n, m) and ANY_SIZE not in (n, m) for n, m in ends):
            return None
        joined.append(
            (dtype, tuple([n if n == m else ANY_SIZE if ANY_SIZE in (n, m) else None for n, m in ends]))
        )
    return tuple(joined)


def fits(pattern: Key, shapes: Key) -> bool:
    """Whether a plan for a pattern is one for these shapes."""
    for (dtype, sizes), (given, others) in zip(pattern, shapes, strict=True):
        if dtype != given or (sizes is None) != (others is None):
            return False
        if sizes is not None and not _admits(sizes, others):
            return False
    return True


def _admits(pattern: tuple[Any, ...], sizes: tuple[Any, ...]) -> bool:
    """Whether sizes are those of a pattern where it has them."""
    if len(pattern) != len(sizes):
        return False
    for n, m in zip(pattern, sizes, strict=True):
        if n != m and n != ANY_SIZE and (n is not None or m == 0):
            return False
    return True


def opened(
    shapes: Key,
    inputs: Sequence[Value],
    growing: Container[tuple[int, int]] | None = None,
    from_nothing: Container[tuple[int, int]] = (),
) -> Key:
    """The key with every size open but those of 0, and those that the file declares; and where others are
    known to be `growing`, those of 1: of a batch, and of what is new. What grows `from_nothing` may be 0."""
    opened = []
    for place, ((dtype, sizes), value) in enumerate(zip(shapes, inputs, strict=True)):
        told, rank = value.sizes, len(sizes or ())
        if told is None or len(told) != rank:  # libraries take a condition of one element for a scalar
            told = (None,) * rank
        pattern: list[int | None] = []
        for k, (n, m) in enumerate(zip(sizes or (), told, strict=True)):
            is_new = n == 1 and growing is not None and (place, k) not in growing
            kept = n if n == 0 or n == m or is_new else None
            pattern.append(ANY_SIZE if (place, k) in from_nothing else kept)
        opened.append((dtype, None if sizes is None else tuple(pattern)))
    return tuple(opened)


def as_sizes(sizes: Sequence[int | None]) -> tuple[Dim, ...]:
    """A pattern's, as a graph's value has them: any is a symbol that may be 0."""
    return tuple([Affine.of(Symbol()) if n == ANY_SIZE else n for n in sizes])


def open_sizes(shapes: Key) -> int:
    return sum(n in (None, ANY_SIZE) for _, sizes in shapes for n in sizes or ())


def key_text(key: Any) -> str:
    dtype, sizes = key
    if sizes is None:
        return "none" if dtype is None else "sequence"
    told = ("?" if n is None else "*" if n == ANY_SIZE else str(n) for n in sizes)
    return f"{dtype_name(dtype)}[{','.join(told)}]"


def can_decide(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biu" and value.size <= MAX_GUARD_ELEMENTS


def content_key(value: Any) -> Any:
    return (value.dtype, value.shape, value.tobytes()) if can_decide(value) else None


def content_text(key: Any) -> str:
    found = np.frombuffer(key[2], key[0]).tolist()
    return str(found[0] if len(found) == 1 else found)


def inputs_text(inputs: Sequence[Value], shapes: Key, deciding: Sequence[int], contents: Key) -> str:
    """The inputs that a plan is for."""
    parts = [f"{v.name} {key_text(k)}" for v, k in zip(inputs, shapes, strict=True)]
    if contents is not ANY:
        for k, content in zip(deciding, contents, strict=True):
            if content is not None:
                parts.append(f"{inputs[k].name} = {content_text(content)}")
    return ", ".join(parts) or "no input"
