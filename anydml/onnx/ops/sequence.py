"""Sequences and optionals: lists of tensors, and what may be None."""

from __future__ import annotations

import numpy as np

from anydml.errors import counted
from anydml.ir.graph import OptionalType, SequenceType, TensorType, Type
from anydml.onnx.ops import result_types
from anydml.onnx.ops.cast import dtype_of
from anydml.onnx.ops.opinfo import Array, Content, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.result_types import Types
from anydml.onnx.ops.shared import axis_in, flag, numbers, single
from anydml.onnx.ops.speculation import always
from anydml.onnx.protos import TensorProto
from anydml.onnx.types import DTYPES, leaf, only_ranks, without_sizes

Sequence = list[Array]


def _construct(node: NodeView, *inputs: Array) -> Sequence:
    return list(inputs)


def _empty(node: NodeView) -> Sequence:
    code = node.attribute("dtype")
    dtype_of(TensorProto.FLOAT if code is None else code)
    return []


def _place(position: Array | None, count: int, last: int) -> int:
    """A position up to `last`, counted from the front; that of the last one where none is given."""
    if position is None:
        return last
    found: int = single(position)
    if not -count <= found <= last:
        raise IndexError(f"expected a position in {counted(count, 'tensor')}, but got {found}")
    return found + count if found < 0 else found


def _at(node: NodeView, sequence: Sequence, position: Array) -> Array:
    return sequence[_place(position, len(sequence), len(sequence) - 1)]


def _insert(node: NodeView, sequence: Sequence, tensor: Array, position: Array | None = None) -> Sequence:
    if sequence and sequence[0].dtype != tensor.dtype:
        raise ValueError(f"expected a tensor of {sequence[0].dtype}, but got {tensor.dtype}")
    place = _place(position, len(sequence), len(sequence))
    return [*sequence[:place], tensor, *sequence[place:]]


def _erase(node: NodeView, sequence: Sequence, position: Array | None = None) -> Sequence:
    place = _place(position, len(sequence), len(sequence) - 1)
    if place < 0:
        raise IndexError("expected a tensor to erase, but the sequence is empty")
    return [*sequence[:place], *sequence[place + 1 :]]


def _length(node: NodeView, sequence: Sequence) -> Array:
    return np.array(len(sequence), np.int64)


def _split(node: NodeView, x: Array, split: Array | None = None) -> Sequence:
    """Into parts of one size of which the last may be smaller, of given sizes, or of single elements.

    keepdims is for when no split is given, says ONNX. Exporters write it beside a scalar of 1, too, and
    onnxruntime heeds it there.
    """
    axis = axis_in(node.int("axis"), x.ndim)
    size = x.shape[axis]
    if split is None or not split.ndim:
        part = 1 if split is None else single(split)
        if part <= 0:
            raise ValueError(f"expected parts of 1 or more, but got {part}")
        sizes = [min(part, size - k) for k in range(0, size, part)]
    else:
        sizes = numbers(split)
        if not sizes:
            raise NotFoldable("no sizes")
    if sum(sizes) != size or min(sizes, default=0) < 0:
        raise ValueError(f"expected sizes that add up to {size}, but got {sizes}")
    ends = np.cumsum([0, *sizes]).tolist()
    along = (slice(None),) * axis
    parts = [x[(*along, slice(end - n, end))] for n, end in zip(sizes, ends[1:], strict=True)]
    if (split is None or (not split.ndim and single(split) == 1)) and not flag(node, "keepdims"):
        return [np.squeeze(part, axis) for part in parts]
    return parts


def _concat(node: NodeView, sequence: Sequence) -> Array:
    if not sequence:
        raise ValueError("expected a tensor at least, but the sequence is empty")
    rank = sequence[0].ndim
    axis = node.int("axis")
    if any(x.ndim != rank for x in sequence):
        raise ValueError(f"expected equal ranks, but got {[x.ndim for x in sequence]}")
    if flag(node, "new_axis"):
        return np.stack(sequence, axis_in(axis, rank + 1))
    return np.concatenate(sequence, axis_in(axis, rank))


def _optional(node: NodeView, content: Content = None) -> Content:
    if content is None and node.attribute("type") is None:
        raise NotFoldable("an optional of nothing that is known")
    return content


def _has_element(node: NodeView, content: Content = None) -> Array:
    return np.array(content is not None)


def _get_element(node: NodeView, content: Content = None) -> Content:
    if content is None:
        raise NotFoldable("the element of an optional that has none")
    return content


def _has_content(n: KnownNode) -> bool:
    """Since opset 18 there may be a tensor or a sequence in the place of an optional."""
    value = n.value(0)
    return value is not None and value.type is not None and not isinstance(value.type, OptionalType)


def _is_there(n: KnownNode) -> Array | None:
    """Whether an optional has content, where its type tells."""
    value = n.value(0)
    empty = value is not None and isinstance(value.type, OptionalType) and value.type.empty
    return np.array(not empty) if empty or _has_content(n) else None


def _chunks_without_keepdims(n: KnownNode) -> bool:
    """ONNX ignores keepdims beside lengths; onnxruntime heeds it, as torch does, for a length of 1."""
    if n.value(1) is None or n.attribute("keepdims") != 0 or n.rank(1) == 1:
        return False
    length = n.content(1)
    return length is None or length.tolist() != 1


def _empty_type(n: KnownNode) -> Type | None:
    code = n.attribute("dtype")
    found = DTYPES.get(TensorProto.FLOAT if code is None else code)
    return None if found is None else SequenceType(TensorType(found), empty=True)


def _inserted_type(n: KnownNode) -> Type | None:
    """Of the items' common rank: what is in a list that a loop fills follows from what it puts in."""
    given, item = n.value(0), n.value(1)
    if given is None or item is None or not isinstance(given.type, SequenceType) or item.type is None:
        return None
    ranked = only_ranks(item.type)
    if given.type.empty or only_ranks(given.type.element) == ranked:
        return SequenceType(ranked)
    return SequenceType(without_sizes(item.type))


def _item(n: KnownNode) -> Types:
    """The type of a sequence's items."""
    value = n.value(0)
    return [value.type.element] if value is not None and isinstance(value.type, SequenceType) else None


def _joined_type(n: KnownNode) -> Types:
    """Items of one rank along an axis, or a new one."""
    value, axis, new = n.value(0), n.int("axis"), n.int("new_axis")
    item = value.type.element if value is not None and isinstance(value.type, SequenceType) else None
    if not isinstance(item, TensorType) or item.sizes is None:
        return None
    rank = len(item.sizes) + new
    if not -rank <= axis < rank or new not in (0, 1):
        return None
    sizes = list(item.sizes)
    sizes[axis % rank : axis % rank + 1 - new] = [None]
    return result_types.only(n, item.dtype, sizes)


def _part_type(n: KnownNode) -> Types:
    """Parts of one length, or of several."""
    sizes, dtype = n.sizes(0), n.dtype()
    if dtype is None or sizes is None or not -len(sizes) <= n.int("axis") < len(sizes):
        return None
    axis = n.int("axis") % len(sizes)
    if n.value(1) is None:
        part = [1] if n.int("keepdims") else []
        return [SequenceType(TensorType(dtype, (*sizes[:axis], *part, *sizes[axis + 1 :])))]
    told, size = n.integers(1), sizes[axis]
    length = told[0] if told and len({*told}) == 1 else None
    if n.rank(1) == 0 and length is not None and (not isinstance(size, int) or not length or size % length):
        length = None
    return [SequenceType(TensorType(dtype, (*sizes[:axis], length, *sizes[axis + 1 :])))]


def _one_type(type: Type | None) -> Types:
    return None if type is None else [type]


def _ranks_unknown(n: KnownNode) -> bool:
    """A sequence whose tensors may be of any ranks."""
    value = n.value(0)
    return value is None or value.type is None or leaf(value.type).sizes is None


# SplitToSequence with lengths and without keepdims: onnxruntime and torch, which exports it, drop the axis of
# parts of length 1; inference says that it stays.
OPS = (
    OpInfo(
        "ConcatFromSequence",
        result=_joined_type,
        fold=_concat,
        quirks=(
            Quirk("onnxruntime ends the process on tensors of different ranks", _ranks_unknown, fatal=True),
        ),
    ),
    OpInfo("Optional", fold=_optional, makes_container=True),
    OpInfo("OptionalGetElement", fold=_get_element, same_as_input=_has_content),
    OpInfo(
        "OptionalHasElement",
        fold=_has_element,
        constant=_is_there,
    ),
    OpInfo("SequenceAt", result=_item, fold=_at),
    OpInfo("SequenceConstruct", fold=_construct, speculatable=always, makes_container=True),
    OpInfo(
        "SequenceEmpty",
        result=lambda n: _one_type(_empty_type(n)),
        fold=_empty,
        sequence=_empty_type,
        makes_container=True,
    ),
    OpInfo("SequenceErase", fold=_erase, makes_container=True),
    OpInfo(
        "SequenceInsert",
        result=lambda n: _one_type(_inserted_type(n)),
        fold=_insert,
        sequence=_inserted_type,
        speculatable=lambda n: n.value(2) is None,
        makes_container=True,
    ),
    OpInfo("SequenceLength", result=result_types.counted, fold=_length),
    OpInfo(
        "SplitToSequence",
        result=_part_type,
        fold=_split,
        makes_container=True,
        quirks=(Quirk("onnxruntime fails on chunks of several without keepdims", _chunks_without_keepdims),),
        rank_unsure=lambda n: n.value(1) is not None and n.int("keepdims") == 0,
    ),
)
