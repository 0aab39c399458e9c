"""What onnxruntime does wrong with valid nodes, as one table: what it computes otherwise than ONNX says,
refuses while it runs, or ends the process on. Something else has to run these nodes.

Found with `python -m tools.search_provider_quirks` and the test suite of the onnx package. Left out is what
nobody would notice as wrong: the sign of a NaN or of a zero, and what ONNX leaves undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from anydml.ir.dims import may_be_zero
from anydml.ir.graph import Constant, Node, OnnxOp, Value
from anydml.onnx.ops.known import Known, both_zero
from anydml.onnx.types import leaf

SEEN = "1.31"
"""The onnxruntime that was searched."""


@dataclass(frozen=True)
class Quirk:
    """Something that onnxruntime does wrong with an operator."""

    reason: str
    """For explain(): what it does, of which nodes."""
    when: Callable[[Known], bool]
    """Whether it may come to that, from what is known of a node before it runs."""
    fatal: bool = False
    """Whether it ends the process, or never returns."""
    empty: bool = False
    """Whether it does so only where an input has no elements, which can be looked at when it runs."""


def quirk_of(node: Node, constants: Mapping[Value, Constant] = MappingProxyType({})) -> Quirk | None:
    """What onnxruntime may do wrong with this node: what is wrong whatever the sizes comes first."""
    return min(quirks_of(node, constants), key=lambda quirk: quirk.empty, default=None)


def has_empty_input(node: Node) -> bool:
    """Whether an input of a node is known to have no elements."""
    return any(0 in (v.sizes or ()) for v in node.reads)


def quirks_of(node: Node, constants: Mapping[Value, Constant]) -> list[Quirk]:
    """All that onnxruntime may do wrong with this node."""
    if not isinstance(node.op, OnnxOp) or node.op.domain or node.op.name not in QUIRKS:
        return []
    known = Known(node, constants)
    return [q for q in QUIRKS[node.op.name] if q.when(known)]


def _fatal_if_empty(reason: str, when: Callable[[Known], bool]) -> Quirk:
    return Quirk(reason, when, fatal=True, empty=True)


# ---- products ----------------------------------------------------------------------------------------


def _inner(n: Known, a: int, b: int) -> bool:
    """Whether the axis that a product sums over may be empty."""
    return both_zero(n.size(a, -1), n.size(b, -1 if n.rank(b) == 1 else -2))


def _vector(n: Known) -> bool:
    """A product with a vector, or with what may be one."""
    return (n.rank(0) == 1 or n.rank(1) in (1, None)) and _inner(n, 0, 1)


def _batches(n: Known, a: int, b: int) -> bool:
    """Nothing in one of the factors, and one of them a vector, or stacks of matrices that differ."""
    x, y = n.sizes(a), n.sizes(b)
    if x is None or y is None or 0 not in x + y:
        return False
    return 1 in (len(x), len(y)) or (min(len(x), len(y)) > 2 and x[:-2] != y[:-2])


def _scaled_bias(n: Known) -> bool:
    """Gemm with a factor before C, where nothing is summed."""
    if n.value(2) is None or n.attribute("beta") in (0.0, 1.0):
        return False
    k_of_a, k_of_b = (0 if n.attribute("transA") else 1), (1 if n.attribute("transB") else 0)
    return both_zero(n.size(0, k_of_a), n.size(1, k_of_b))


def _by_rows(n: Known, k: int) -> bool:
    """A scale or zero point of the first factor that is not one number."""
    return n.sizes(k) not in (None, (), (1,))


def _einsum(n: Known) -> bool:
    """Fewer dimensions than letters, or perhaps."""
    equation = n.attribute("equation")
    if not isinstance(equation, bytes):  # of an opset that has no Einsum
        return True
    terms = equation.replace(b"...", b"").replace(b" ", b"").split(b"->")[0].split(b",")
    sizes = [n.sizes(k) for k in range(len(n._node.inputs))]
    return len(terms) != len(sizes) or any(
        s is None or len(s) < len(t) for s, t in zip(sizes, terms, strict=True)
    )


def _einsum_of_nothing(n: Known) -> bool:
    return any(n.may_be_empty(k) for k in range(len(n._node.inputs)))


def _attention_heads(n: Known) -> bool:
    return any(n.rank(k) == 4 and may_be_zero(n.size(k, 1)) for k in (0, 1)) or (
        0 in (n.attribute("q_num_heads"), n.attribute("kv_num_heads"))
    )


# ---- elements ----------------------------------------------------------------------------------------


def _integer_division(n: Known) -> bool:
    """Of 32 and 64 bits, unless it is known not to be of the smallest integer by -1, nor by 0."""
    if n.dtype() not in (None, "int32", "int64") or (n.op.name == "Mod" and n.attribute("fmod") == 1):
        return False
    dividend, divisor = n.content(0), n.content(1)
    if divisor is not None and not np.isin(divisor, (0, -1)).any():
        return False
    return divisor is not None or dividend is None or bool((dividend == np.iinfo(dividend.dtype).min).any())


def _long(n: Known) -> bool:
    """Integers that float64 does not hold."""
    return n.dtype() in ("int64", "uint64")


def _strings_in_slices(n: Known) -> bool:
    """Gather of texts, more than one at each index."""
    axis, sizes = n.attribute("axis"), n.sizes(0)
    if n.dtype() != "string" or not isinstance(axis, int):
        return False
    if sizes is None:
        return True
    after = sizes[axis % len(sizes) + 1 :] if sizes else ()
    return any(not isinstance(s, int) for s in after) or prod(s for s in after if isinstance(s, int)) > 1


def _distribution(n: Known) -> bool:
    """A scale that is not positive, or a range that is none."""
    low, high, scale = (n.attribute(name) for name in ("low", "high", "scale"))
    if scale is not None:
        return not scale > 0
    return not (low is not None and high is not None and low <= high and high - low < float("inf"))


_LARGEST = (2**31 - 1, 2**63 - 1)


# ---- axes --------------------------------------------------------------------------------------------


def _axes_from_the_end(n: Known) -> bool:
    if not n.may_be_empty(0):
        return False
    if n.op.name in ("ArgMax", "ArgMin"):
        axis = n.attribute("axis")
        return isinstance(axis, int) and axis < 0
    if n.value(1) is None:
        return any(axis < 0 for axis in n.ints("axes") or ())
    axes = n.content(1)
    return axes is None or bool((axes < 0).any())


def _unique_slices(n: Known) -> bool:
    """Unique of slices that have no elements."""
    axis, sizes = n.attribute("axis"), n.sizes(0)
    if axis is None:
        return False
    if sizes is None:
        return True
    return any(may_be_zero(s) for k, s in enumerate(sizes) if k != axis % max(len(sizes), 1))


def _nothing_normalized(n: Known) -> bool:
    axis, sizes = n.attribute("axis"), n.sizes(0) or ()
    return isinstance(axis, int) and 0 in sizes[axis if -len(sizes) <= axis else 0 :]


def _backwards_to_the_end(n: Known) -> bool:
    """Slice backwards to what stands for the end forwards."""
    ends, steps = n.content(2), n.content(4)
    if ends is None or steps is None or ends.shape != steps.shape:
        return False
    return bool(((steps < 0) & np.isin(ends, _LARGEST)).any())


def _chunks_without_keepdims(n: Known) -> bool:
    """ONNX ignores keepdims beside lengths; onnxruntime heeds it, as torch does, for a length of 1."""
    if n.value(1) is None or n.attribute("keepdims") != 0 or n.rank(1) == 1:
        return False
    length = n.content(1)
    return length is None or length.tolist() != 1


def _ranks_unknown(n: Known) -> bool:
    """A sequence whose tensors may be of any ranks."""
    value = n.value(0)
    return value is None or value.type is None or leaf(value.type).sizes is None


def _split_evenly(n: Known) -> bool:
    axis = n.attribute("axis")
    given = n.attribute("num_outputs") is not None
    return given and isinstance(axis, int) and may_be_zero(n.size(0, axis))


def _resize_corners(n: Known) -> bool:
    """Align corners by scales: the sizes that the formula needs are not the rounded ones."""
    return n.mode("coordinate_transformation_mode") == "align_corners" and n.mode("mode") in (
        "linear",
        "cubic",
    )


def _resize_rank(n: Known) -> bool:
    ranks = {"linear": (2, 3, 4, 5), "cubic": (2, 4)}.get(n.mode("mode"))
    return ranks is not None and n.rank(0) not in (None, *ranks)


def _resize_aspect(n: Known) -> bool:
    kept = n.mode("keep_aspect_ratio_policy") in ("not_larger", "not_smaller")
    return kept and any(axis < 0 for axis in n.ints("axes") or ())


def _short_cache(n: Known) -> bool:
    """Fewer rows of angles than positions, which are numbered."""
    rows, length = n.size(1, 0), n.size(0, 1 if n.rank(0) == 3 else 2)
    return n.value(3) is not None and isinstance(rows, int) and isinstance(length, int) and rows < length


# ---- the table ---------------------------------------------------------------------------------------

_NO_CHANNELS = "onnxruntime answers with memory that nobody wrote, or never, where there are no channels"
_NO_INNER = "onnxruntime answers with memory that nobody wrote where there is nothing to sum"
_CANNOT_BROADCAST = "onnxruntime refuses empty factors, or does not broadcast them"
_FROM_THE_END = Quirk(
    "onnxruntime does not reduce an empty tensor over axes that are counted from the end",
    _axes_from_the_end,
    empty=True,
)
_EMPTY_TRUTHS = Quirk(
    "onnxruntime refuses to reduce an empty tensor of truths",
    lambda n: n.dtype() == "bool" and n.may_be_empty(0),
    empty=True,
)
_EMPTY_CHANNELS = Quirk(
    "onnxruntime refuses to pool no channels", lambda n: n.rank(0) != 0 and n.size(0, 1) == 0
)
_DIVISION = Quirk(
    "onnxruntime ends the process when the smallest integer is divided by -1", _integer_division, fatal=True
)
_RANDOM = Quirk(
    "onnxruntime ends the process where a scale is not positive, or a range is none",
    _distribution,
    fatal=True,
)
_NO_SLICES = Quirk("onnxruntime refuses to normalize empty slices", _nothing_normalized)
_TRUTHS = Quirk(
    "onnxruntime has no largest or smallest of truths",
    lambda n: n.dtype() == "bool" and n.mode("reduction") in ("max", "min"),
)
_NAIVE = "onnxruntime sums naively, with an error that grows with the length"
_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

_NEGATIVE = Quirk(
    "onnxruntime makes a negative size of a negative length, and can end the process",
    lambda n: (
        (lengths := n.content(1)) is not None and lengths.dtype.kind in "if" and bool((lengths < 0).any())
    ),
    fatal=True,
)

QUIRKS: Mapping[str, tuple[Quirk, ...]] = {
    **{f"Reduce{name}": (_FROM_THE_END,) for name in _REDUCTIONS.split()},
    "ArgMax": (_FROM_THE_END,),
    "ArgMin": (_FROM_THE_END,),
    "Attention": (
        _fatal_if_empty("onnxruntime ends the process where there are no heads", _attention_heads),
        Quirk("onnxruntime refuses attention to or by nothing", lambda n: n.empty(0, 1, 2)),
        Quirk(
            "onnxruntime gives scores without the causal mask",
            lambda n: n.outputs[3:4] == (True,) and bool(n.attribute("is_causal")),
        ),
        Quirk(
            "onnxruntime does not take a mask that is shorter than the keys, with padded keys",
            lambda n: n.value(6) is not None and n.value(3) is not None,
        ),
    ),
    "AveragePool": (_EMPTY_CHANNELS,),
    "Bernoulli": (Quirk("onnxruntime gives 1 with the probability of 0", lambda n: True),),
    "ConcatFromSequence": (
        Quirk("onnxruntime ends the process on tensors of different ranks", _ranks_unknown, fatal=True),
    ),
    "Conv": (
        _fatal_if_empty(_NO_CHANNELS, lambda n: both_zero(n.size(0, 1), n.size(1, 1))),  # with padding
    ),
    "ConvInteger": (
        _fatal_if_empty(_NO_CHANNELS, lambda n: both_zero(n.size(0, 1), n.size(1, 1))),
        Quirk(
            "onnxruntime takes no zero point for each channel",
            lambda n: n.sizes(3) not in (None, (), (1,)),
        ),
    ),
    "ConvTranspose": (
        _fatal_if_empty(
            "onnxruntime ends the process on an empty tensor of three dimensions or more",
            lambda n: (n.rank(0) or 5) > 4 and n.may_be_empty(0, 2),
        ),
    ),
    "DFT": (Quirk(_NAIVE, lambda n: True),),
    "Div": (_DIVISION,),
    "Dropout": (
        Quirk("onnxruntime drops others than ONNX's generator in training", lambda n: n.value(2) is not None),
    ),
    "Einsum": (
        Quirk("onnxruntime ends the process on fewer dimensions than letters", _einsum, fatal=True),
        _fatal_if_empty("onnxruntime ends the process on an empty axis", _einsum_of_nothing),
    ),
    "Gather": (Quirk("onnxruntime gathers the first text of each slice only", _strings_in_slices),),
    "Gemm": (Quirk("onnxruntime leaves out beta where there is nothing to sum", _scaled_bias, empty=True),),
    "GlobalAveragePool": (_EMPTY_CHANNELS,),
    "GlobalLpPool": (_EMPTY_CHANNELS,),
    "GlobalMaxPool": (_EMPTY_CHANNELS,),
    "GroupNormalization": (Quirk("onnxruntime refuses to normalize an empty tensor", lambda n: n.empty(0)),),
    "GRU": (_fatal_if_empty("onnxruntime ends the process on an empty input", lambda n: n.may_be_empty(0)),),
    "InstanceNormalization": (
        _fatal_if_empty("onnxruntime ends the process on empty channels", lambda n: n.may_be_empty(0, 2)),
    ),
    "LayerNormalization": (_NO_SLICES,),
    "LpPool": (_EMPTY_CHANNELS,),
    "LRN": (Quirk("onnxruntime wants tensors of rank 4 here", lambda n: n.rank(0) not in (None, 4)),),
    "LSTM": (_fatal_if_empty("onnxruntime ends the process on an empty input", lambda n: n.may_be_empty(0)),),
    "MatMul": (
        Quirk(_NO_INNER, _vector, empty=True),
        Quirk(_CANNOT_BROADCAST, lambda n: _batches(n, 0, 1)),
    ),
    "MatMulInteger": (
        Quirk(_NO_INNER, lambda n: _inner(n, 0, 1), empty=True),
        Quirk(_CANNOT_BROADCAST, lambda n: _batches(n, 0, 1)),
        Quirk("onnxruntime takes no zero point for each row", lambda n: _by_rows(n, 2)),
    ),
    "MaxPool": (_EMPTY_CHANNELS,),
    "MaxUnpool": (
        Quirk(
            "onnxruntime refers indices to the pooled shape, not to that of the output",
            lambda n: n.value(2) is not None,
        ),
    ),
    "Mod": (
        _DIVISION,
        Quirk(
            "onnxruntime takes remainders of 64-bit integers as if they were float64",
            lambda n: n.attribute("fmod") == 1 and _long(n),
        ),
    ),
    "NonZero": (Quirk("onnxruntime gives indices of one axis for a scalar", lambda n: n.rank(0) == 0),),
    "OneHot": (_NEGATIVE,),
    "QLinearConv": (
        _fatal_if_empty(
            "onnxruntime ends the process, or answers with memory that nobody wrote, where weights are empty",
            lambda n: n.may_be_empty(3, 0, 2),
        ),
    ),
    "QLinearMatMul": (
        Quirk(_NO_INNER, lambda n: _inner(n, 0, 3), empty=True),
        Quirk(_CANNOT_BROADCAST, lambda n: _batches(n, 0, 3)),
        Quirk("onnxruntime takes no scale for each row", lambda n: _by_rows(n, 1) or _by_rows(n, 2)),
    ),
    "Pow": (Quirk("onnxruntime takes powers of 64-bit integers as if they were float64", _long),),
    "QuantizeLinear": (
        Quirk("onnxruntime does not saturate in blocks", lambda n: bool(n.attribute("block_size"))),
        _fatal_if_empty(
            "onnxruntime ends the process on an empty tensor of blocks",
            lambda n: bool(n.attribute("block_size")) and n.may_be_empty(0),
        ),
    ),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), (_RANDOM,)),
    "ReduceMax": (_FROM_THE_END, _EMPTY_TRUTHS),
    "ReduceMin": (_FROM_THE_END, _EMPTY_TRUTHS),
    "Resize": (
        Quirk("onnxruntime aligns corners by rounded sizes", _resize_corners),
        Quirk("onnxruntime does not interpolate along so many axes", _resize_rank),
        Quirk("onnxruntime does not keep the aspect of axes that are counted from the end", _resize_aspect),
    ),
    "RMSNormalization": (_NO_SLICES,),
    "RoiAlign": (
        _fatal_if_empty("onnxruntime ends the process on empty images", lambda n: n.may_be_empty(0, 2)),
    ),
    "RotaryEmbedding": (Quirk("onnxruntime refuses fewer angles than positions", _short_cache),),
    "ScatterElements": (_TRUTHS,),
    "ScatterND": (_TRUTHS,),
    "Shrink": (Quirk("onnxruntime takes 64-bit integers as if they were float64", _long),),
    "Slice": (
        Quirk("onnxruntime takes the largest end for the beginning, backwards", _backwards_to_the_end),
    ),
    "SoftmaxCrossEntropyLoss": (Quirk("onnxruntime refuses empty scores", lambda n: n.empty(0)),),
    "SplitToSequence": (
        Quirk("onnxruntime fails on chunks of several without keepdims", _chunks_without_keepdims),
    ),
    "Split": (Quirk("onnxruntime refuses to split an empty axis evenly", _split_evenly, empty=True),),
    "STFT": (Quirk(_NAIVE, lambda n: True, fatal=True),),
    "Tile": (_NEGATIVE,),
    "Unique": (_fatal_if_empty("onnxruntime ends the process on slices that are empty", _unique_slices),),
}
"""By operator of ONNX's own domain: what may go wrong."""


# ---- onnx.reference ----------------------------------------------------------------------------------

_REFERENCE: Mapping[str, tuple[str, Callable[[Known], bool]]] = {
    "BatchNormalization": ("has another formula before opset 14", lambda n: 9 <= n.version < 14),
    "GlobalMaxPool": ("loses an axis", lambda n: n.rank(0) != 4),
    "GRU": ("ignores sequence_lens", lambda n: n.value(4) is not None),
    "LpNormalization": ("takes another norm", lambda n: n.attribute("p") == 1),
    "LpPool": ("takes means", lambda n: True),
    "LSTM": ("ignores sequence_lens", lambda n: n.value(4) is not None),
    "MaxPool": ("is wrong but for two dimensions and equal pads", lambda n: n.rank(0) != 4 or _uneven(n)),
    "QuantizeLinear": ("does not saturate", lambda n: "int" in (n.dtype(2) or "int8")),
    "ReduceSumSquare": ("gives another type", lambda n: _is_small_integer(n)),
    "RNN": ("ignores sequence_lens", lambda n: n.value(4) is not None),
    "RoiAlign": ("has another formula before opset 16", lambda n: n.version < 16),
    "Unique": ("is wrong along an axis", lambda n: n.attribute("axis") is not None),
}


def reference_error(node: Node) -> str | None:
    """What onnx.reference is known to do wrong with a node; it is not asked then."""
    if not isinstance(node.op, OnnxOp) or node.op.domain or node.op.name not in _REFERENCE:
        return None
    what, when = _REFERENCE[node.op.name]
    return f"onnx.reference {what}" if when(Known(node, {})) else None


def _uneven(n: Known) -> bool:
    pads = n.ints("pads") or []
    return len(set(pads)) > 1 or n.outputs[1:2] == (True,)


def _is_small_integer(n: Known) -> bool:
    return n.dtype() in ("int32", "uint32")
