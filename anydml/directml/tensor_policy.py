"""How the tensors that a graph makes lie in memory, where nothing else is said (DirectMLX's TensorPolicy)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydml.errors import InvalidInput, Problem, nearest, short_repr
from anydml.ops.enums import TensorDataType
from anydml.ops.tensor_desc import packed_strides

TensorPolicy = Callable[[TensorDataType, tuple[int, ...]], Sequence[int] | None]
"""Gives the strides, in elements, of a tensor of a type and sizes; None: packed."""


def default(data_type: TensorDataType, sizes: tuple[int, ...]) -> Sequence[int] | None:
    """Packed, the last dimension innermost."""
    return None


def interleaved_channel(data_type: TensorDataType, sizes: tuple[int, ...]) -> Sequence[int] | None:
    """The channels innermost: N, C, H, W lies as N, H, W, C.

    >>> interleaved_channel(TensorDataType.FLOAT32, (2, 3, 4, 5))
    (60, 1, 15, 3)
    """
    if len(sizes) < 3:
        return None
    batch, *spatial, channel = packed_strides((sizes[0], *sizes[2:], sizes[1]))
    return (batch, channel, *spatial)


_NAMED: dict[str, TensorPolicy] = {"DEFAULT": default, "INTERLEAVED_CHANNEL": interleaved_channel}


def read_policy(policy: TensorPolicy | str) -> TensorPolicy:
    """A policy, or the name of one of DirectMLX's.

    Raises:
        InvalidInput: it is neither.
    """
    if isinstance(policy, str) and policy.upper() in _NAMED:
        return _NAMED[policy.upper()]
    if not callable(policy):
        message = f"expected {' or '.join(_NAMED)}, or a function, but got {short_repr(policy)}"
        raise InvalidInput(Problem("tensor_policy", message, nearest(str(policy).upper(), _NAMED)))
    return policy
