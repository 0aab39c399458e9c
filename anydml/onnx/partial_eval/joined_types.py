"""What two types have in common, and sizes that are not known as symbols."""

from __future__ import annotations

from anydml.ir.dims import Affine, Symbol
from anydml.ir.graph import SequenceType, TensorType, Type


def with_fresh_symbols(
    type: Type | None, least: int = 0, likely: tuple[int, ...] | None = None
) -> Type | None:
    """The type with a symbol of its own for each size that is not known, which is `least` or more.

    `likely`: what they were once.
    """
    if not isinstance(type, TensorType) or type.sizes is None or None not in type.sizes:
        return type
    once = (None,) * len(type.sizes) if likely is None else likely
    sizes = tuple(
        Affine.of(Symbol(least=least, likely=m)) if n is None else n
        for n, m in zip(type.sizes, once, strict=True)
    )
    return TensorType(type.dtype, sizes)


def either(a: Type | None, b: Type | None) -> Type | None:
    """What is known of a value that is of one of two types; what is not known of its sizes are symbols."""
    return with_fresh_symbols(common(a, b))


def common(a: Type | None, b: Type | None) -> Type | None:
    """What two types have in common."""
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        if a.empty or b.empty:
            return b if a.empty else a
        element = common(a.element, b.element)
        return None if element is None else SequenceType(element)
    if a is None or b is None or not isinstance(a, TensorType) or not isinstance(b, TensorType):
        return a if a == b else None
    if a.dtype != b.dtype:
        return None
    if a.sizes is None or b.sizes is None or len(a.sizes) != len(b.sizes):
        return TensorType(a.dtype)
    return TensorType(a.dtype, tuple(n if n == m else None for n, m in zip(a.sizes, b.sizes, strict=True)))
