"""What may go wrong when a node runs whose branch was not taken, and about how much work a node is.

A node is harmless if the types, sizes and constants of its inputs prove that it cannot fail. Where sizes are
open, a rule of its operator proves it; where all are numbers, it is run once, on zeros. NaN and infinities
are no failures: they are never selected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import helper

from anydml.errors import Unsupported
from anydml.ir.dims import Affine, Dim, may_be_zero
from anydml.ir.graph import Constant, If, Node, OnnxOp, TensorType, Value
from anydml.onnx.ops.quirks import quirk_of
from anydml.onnx.partial_eval.shape_errors import fails, impossible
from anydml.onnx.partial_eval.shape_inference import RANDOM
from anydml.onnx.providers.onnxruntime import DTYPES, OnnxRuntime
from anydml.onnx.providers.provider import RegionFailed
from anydml.onnx.serde.region_model import region
from anydml.onnx.types import CODES, leaf

Constants = Mapping[Value, Constant]
Sizes = tuple[Dim, ...]


def hazard(node: Node | If, constants: Constants) -> str | None:
    """Why a node may fail, or must not run in vain; None if it can always run."""
    if isinstance(node, If):
        return "holds an If"
    op = node.op
    assert isinstance(op, OnnxOp)
    if node.sure:
        return None
    if op.domain:
        return f"{op} is not an operator of ONNX"
    if op.name in RANDOM and not _infers(node):
        return f"{op} draws random numbers"
    if op.name == "SequenceConstruct":
        return None
    rule = _RULES.get(op.name)
    if rule is None:
        return f"{op} may fail, or take long"
    if any(v.type is None or not isinstance(v.type, TensorType) for v in (*node.reads, *node.writes)):
        return f"{op} works on a value of unknown type"
    if node.fails or fails(node) or impossible(node, [None if v is None else v.type for v in node.outputs]):
        return f"{op} fails on these sizes"
    return None if rule(node, constants) else f"{op} may fail on sizes or contents that are not known"


def _infers(node: Node) -> bool:
    """Whether it is a Dropout that drops nothing: without training."""
    assert isinstance(node.op, OnnxOp)
    trains = len(node.inputs) > 2 and node.inputs[2] is not None
    return node.op.name == "Dropout" and node.op.version >= 7 and not trains


# ---- proofs ------------------------------------------------------------------------------------------


def _sizes(value: Value | None) -> Sizes | None:
    return None if value is None else value.sizes


def _all_sizes(node: Node) -> list[Sizes] | None:
    found = [v.sizes for v in node.reads]
    return None if any(s is None for s in found) else [s for s in found if s is not None]


def _integer(value: Value | None) -> bool:
    return isinstance(value, Value) and isinstance(value.type, TensorType) and "int" in value.type.dtype


def _content(node: Node, k: int, constants: Constants) -> list[int] | None:
    value = node.inputs[k] if k < len(node.inputs) else None
    return None if value is None or value not in constants else constants[value].content.reshape(-1).tolist()


def _always(node: Node, constants: Constants) -> bool:
    return True


def _ranked(node: Node, constants: Constants) -> bool:
    """Whatever is wrong with it, the rank would tell."""
    return _all_sizes(node) is not None and all(_sizes(v) is not None for v in node.writes)


def broadcast(sizes: Sequence[Sizes]) -> bool:
    """Whether shapes broadcast whatever their symbols are."""
    rank = max(map(len, sizes), default=0)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in sizes]
    return all(None not in axis and len({*axis} - {1}) <= 1 for axis in zip(*padded, strict=True))


def _broadcasts(node: Node, constants: Constants) -> bool:
    assert isinstance(node.op, OnnxOp)
    others = [_sizes(v) for v in node.reads if _sizes(v) != ()]
    if len(others) < 2:  # scalars fit whatever the other one is
        return node.op.version >= 7
    return None not in others and broadcast([s for s in others if s is not None]) and node.op.version >= 7


def _slope(node: Node, constants: Constants) -> bool:
    """A PRelu's slope broadcasts to its input, not the input to it."""
    sizes = _all_sizes(node)
    if sizes is None or len(sizes) != 2 or len(sizes[1]) > len(sizes[0]) or None in sizes[0]:
        return False
    return all(n in (1, m) for n, m in zip(sizes[1][::-1], sizes[0][::-1], strict=False))


def _bounds(node: Node, constants: Constants) -> bool:
    """All inputs but the first are scalars, where they are there."""
    return all(v is None or _sizes(v) == () for v in node.inputs[1:])


def _divides(node: Node, constants: Constants) -> bool:
    if not _broadcasts(node, constants):
        return False
    divisor = _content(node, 1, constants)
    if node.is_onnx("Mod") and not _integer(node.inputs[0]):
        return "fmod" in node.attributes and node.attributes["fmod"].i == 1
    return not _integer(node.inputs[0]) or (divisor is not None and all(n not in (0, -1) for n in divisor))


def _casts(node: Node, constants: Constants) -> bool:
    return isinstance(node.inputs[0], Value) and "string" not in str(node.inputs[0].type)


def _concatenates(node: Node, constants: Constants) -> bool:
    sizes = _all_sizes(node)
    if not sizes or "axis" not in node.attributes or len({len(s) for s in sizes}) != 1:
        return False
    axis = node.attributes["axis"].i % max(len(sizes[0]), 1)
    columns = [c for k, c in enumerate(zip(*sizes, strict=True)) if k != axis]
    return all(len(set(c)) == 1 and None not in c for c in columns)


def _axes(node: Node, constants: Constants) -> list[int] | None:
    if "axes" in node.attributes:
        return list(node.attributes["axes"].ints)
    return _content(node, 1, constants)


def _squeezes(node: Node, constants: Constants) -> bool:
    sizes, axes = _sizes(node.inputs[0]), _axes(node, constants)
    if len(node.inputs) < 2 and "axes" not in node.attributes:
        return sizes is not None
    if sizes is None or axes is None:
        return False
    return all(-len(sizes) <= k < len(sizes) and sizes[k] == 1 for k in axes)


def _reshapes(node: Node, constants: Constants) -> bool:
    before, after = _sizes(node.inputs[0]), _sizes(node.outputs[0])
    if before is None or after is None or not same_count(before, after):
        return False
    shape = _content(node, 1, constants) if "shape" not in node.attributes else []
    if shape is None:  # there may be a -1 in it, and of nothing no size follows
        return not any(map(may_be_zero, before))
    rest = [n for n, asked in zip(after, shape, strict=False) if asked != -1]
    return -1 not in shape or not any(map(may_be_zero, rest))


def same_count(before: Sizes, after: Sizes) -> bool:
    """Whether two shapes have equally many elements whatever their symbols are."""
    if None in before or None in after:
        return False
    symbols = [Counter(n for n in sizes if isinstance(n, Affine)) for sizes in (before, after)]
    numbers = [prod(n for n in sizes if isinstance(n, int)) for sizes in (before, after)]
    return symbols[0] == symbols[1] and numbers[0] == numbers[1]


def _expands(node: Node, constants: Constants) -> bool:
    before, after = _sizes(node.inputs[0]), _sizes(node.outputs[0])
    shape = _content(node, 1, constants)
    if before is None or after is None or shape is None:
        return False
    return broadcast([before, tuple(shape)]) and all(n >= 0 for n in shape)


def _gathers(node: Node, constants: Constants) -> bool:
    sizes, places = _sizes(node.inputs[0]), _content(node, 1, constants)
    axis = node.attributes["axis"].i if "axis" in node.attributes else 0
    if sizes is None or places is None or not -len(sizes) <= axis < len(sizes):
        return False
    size = sizes[axis]
    return isinstance(size, int) and all(-size <= k < size for k in places)


def _slices(node: Node, constants: Constants) -> bool:
    """As many starts as ends; axes and steps that are known, and no axis twice."""
    sizes = _sizes(node.inputs[0])
    if not _ranked(node, constants) or sizes is None:
        return False
    if "starts" in node.attributes:
        counts: list[Dim] = [len(node.attributes[n].ints) for n in ("starts", "ends")]
        axes: list[int] | None = list(node.attributes["axes"].ints) if "axes" in node.attributes else None
        steps: list[int] | None = None
    else:
        given = [_sizes(v) for v in node.inputs[1:3]]
        if any(s is None or len(s) != 1 for s in given):
            return False
        counts = [s[0] for s in given if s]
        told = [node.inputs[k] if len(node.inputs) > k else None for k in (3, 4)]
        axes, steps = (_content(node, k, constants) for k in (3, 4))
        if any(v is not None and c is None for v, c in zip(told, (axes, steps), strict=True)):
            return False
    if len(set(counts)) != 1 or not isinstance(counts[0], int) or (steps is not None and 0 in steps):
        return False
    axes = list(range(counts[0])) if axes is None else axes
    if any(not -len(sizes) <= k < len(sizes) for k in axes) or (
        steps is not None and len(steps) != counts[0]
    ):
        return False
    return len(axes) == counts[0] == len({k % len(sizes) for k in axes})


def _splits(node: Node, constants: Constants) -> bool:
    sizes = _sizes(node.inputs[0])
    axis = node.attributes["axis"].i if "axis" in node.attributes else 0
    results = [_sizes(v) for v in node.outputs]
    if sizes is None or not all(r is not None and -len(r) <= axis < len(r) == len(sizes) for r in results):
        return False
    parts = [r[axis] for r in results if r is not None]
    size, known = sizes[axis], [n for n in parts if isinstance(n, int) and n >= 0]
    if not isinstance(size, int) or len(known) != len(parts):
        return False
    enough = "num_outputs" not in node.attributes or len(parts) <= size  # as onnxruntime asks
    return sum(known) == size and enough


def _multiplies(node: Node, constants: Constants) -> bool:
    a, b = _sizes(node.inputs[0]), _sizes(node.inputs[1])
    if a is None or b is None or not a or not b or None in (*a, *b):
        return False
    if a[-1] != (b[-2] if len(b) > 1 else b[-1]):
        return False
    return broadcast([a[:-2], b[:-2]])


def _products(node: Node, constants: Constants) -> bool:
    a, b = _sizes(node.inputs[0]), _sizes(node.inputs[1])
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return False
    flips = [node.attributes[n].i if n in node.attributes else 0 for n in ("transA", "transB")]
    a, b = (s[::-1] if flip else s for s, flip in zip((a, b), flips, strict=True))
    rest = _sizes(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else ()
    if rest is None or len(rest) > 2:
        return False
    fits = broadcast([rest, (a[0], b[1])])
    return (
        a[1] == b[0]
        and a[1] is not None
        and fits
        and all(n in (1, m) for n, m in zip(rest[::-1], (b[1], a[0]), strict=False))
    )


def _known(node: Node, constants: Constants) -> bool:
    """All sizes are numbers, none of them 0, and it runs on zeros.

    Integers say where and how often; all of them must be constants, but for the data of what moves data.
    """
    for value in (*node.reads, *node.writes):
        sizes = value.known_sizes
        if sizes is None or 0 in sizes:
            return False
    told = node.inputs[1:] if node.op.name in _MOVES_FIRST else node.inputs
    if any(v is not None and v not in constants and not _is_float(v) for v in told):
        return False
    return _runs_on_zeros(node, constants)


_MOVES_FIRST = frozenset(
    "ArgMax ArgMin CumSum DepthToSpace GRU LSTM Pad ReduceLogSum ReduceLogSumExp ReduceMax ReduceMin Resize"
    " RNN SpaceToDepth Tile TopK Trilu".split()
)
"""Operators whose first input may be integers, whatever these are."""


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and "float" in value.type.dtype


MAX_TRIED_ELEMENTS = 1 << 24
"""Of all tensors of a node that is run to see whether it fails."""


def _runs_on_zeros(node: Node, constants: Constants) -> bool:
    """Whether a node whose sizes and integers are all known runs: then it does so on any numbers."""
    given = list(dict.fromkeys(node.reads))
    if sum(prod(v.known_sizes or ()) for v in (*given, *node.writes)) > MAX_TRIED_ELEMENTS:
        return False
    if quirk_of(node, constants) is not None or any(
        leaf(v.type).dtype not in DTYPES for v in node.reads if v.type
    ):
        return False
    assert isinstance(node.op, OnnxOp)
    contents = [constants[v].content if v in constants else _zeros(v) for v in given]
    alone = region([node], given, list(node.writes), {}, {"": node.op.version})
    try:
        OnnxRuntime().compile(alone, 1)(contents)
    except (Unsupported, RegionFailed):
        return False
    return True


def _zeros(value: Value) -> Any:
    assert isinstance(value.type, TensorType)
    return np.zeros(value.known_sizes or (), helper.tensor_dtype_to_np_dtype(CODES[value.type.dtype]))


def _convolves(node: Node, constants: Constants) -> bool:
    x, w = _sizes(node.inputs[0]), _sizes(node.inputs[1])
    if x is None or w is None or not 3 <= len(x) == len(w):
        return False
    if not all(isinstance(n, int) for n in (*x[1:], *w)):
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and _sizes(bias) != (w[0],):
        return False
    if "kernel_shape" in node.attributes and tuple(node.attributes["kernel_shape"].ints) != w[2:]:
        return False
    groups = node.attributes["group"].i if "group" in node.attributes else 1
    return x[1] == w[1] * groups and w[0] % groups == 0  # type: ignore[operator]


def _quantizes(node: Node, constants: Constants) -> bool:
    """One scale, or one for each place along the axis; and zero points alike."""
    x, scale = (_sizes(v) for v in node.inputs[:2])
    axis = node.attributes["axis"].i if "axis" in node.attributes else 1
    blocks = "block_size" in node.attributes and node.attributes["block_size"].i
    zeros = _sizes(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else scale
    if x is None or scale is None or zeros != scale or blocks:
        return False
    return scale in ((), (1,)) or (
        -len(x) <= axis < len(x) and scale == (x[axis],) and isinstance(x[axis], int)
    )


def _pads(node: Node, constants: Constants) -> bool:
    mode = node.attributes["mode"].s if "mode" in node.attributes else b"constant"
    pads = list(node.attributes["pads"].ints) if "pads" in node.attributes else _content(node, 1, constants)
    sizes = _sizes(node.inputs[0])
    if pads is None or sizes is None or len(pads) != 2 * len(sizes) or len(node.inputs) > 3:
        return False
    if len(node.inputs) > 2 and node.inputs[2] is not None and _sizes(node.inputs[2]) != ():
        return False
    if mode == b"constant" and min(pads, default=0) >= 0:
        return True
    return mode == b"reflect" and _known(node, constants) and not impossible(node, [], pads)


def _reduces(node: Node, constants: Constants) -> bool:
    """Sums of nothing are 0; a largest of nothing does not exist."""
    axes_known = "axes" in node.attributes or len(node.inputs) < 2 or _content(node, 1, constants) is not None
    sums = node.op.name in (
        "ReduceSum",
        "ReduceMean",
        "ReduceL1",
        "ReduceL2",
        "ReduceSumSquare",
        "ReduceProd",
    )
    return _ranked(node, constants) and axes_known and (sums or _known(node, constants))


Rule = Callable[[Node, Constants], bool]
_FAMILIES: tuple[tuple[str, Rule], ...] = (
    (
        "Identity Shape Size Constant Neg Abs Sign Not IsNaN IsInf Relu Sigmoid Tanh Exp Log Sqrt Reciprocal"
        " Floor Ceil Round Erf Gelu LeakyRelu Elu Selu Celu HardSigmoid HardSwish Mish Softplus Softsign Sin"
        " Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh ThresholdedRelu BitwiseNot Swish Shrink NonZero",
        _always,
    ),
    ("Clip Dropout", _bounds),
    ("PRelu", _slope),
    (
        "Add Sub Mul Where Max Min Sum Mean And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual"
        " BitwiseAnd BitwiseOr BitwiseXor",
        _broadcasts,
    ),
    ("Transpose Flatten Softmax LogSoftmax", _ranked),
    ("Unsqueeze", lambda n, c: _ranked(n, c) and _axes(n, c) is not None),
    ("Div Mod", _divides),
    ("Pow", lambda n, c: _broadcasts(n, c) and not _integer(n.inputs[0])),
    ("Cast", _casts),
    ("Concat", _concatenates),
    ("Squeeze", _squeezes),
    ("Reshape", _reshapes),
    ("Expand", _expands),
    ("Gather", _gathers),
    ("Slice", _slices),
    ("Split", _splits),
    ("MatMul", _multiplies),
    ("Gemm", _products),
    ("Conv", _convolves),
    ("Pad", _pads),
    (
        "ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceSumSquare ReduceProd ReduceMax ReduceMin ArgMax ArgMin"
        " ReduceLogSum ReduceLogSumExp",
        _reduces,
    ),
    (
        "LSTM GRU RNN LayerNormalization BatchNormalization InstanceNormalization MaxPool AveragePool"
        " GlobalAveragePool GlobalMaxPool ConvTranspose CumSum Trilu DepthToSpace SpaceToDepth Hardmax Tile"
        " LpNormalization Einsum TopK DynamicQuantizeLinear Resize",
        _known,
    ),
    ("QuantizeLinear DequantizeLinear", _quantizes),
)
_RULES: Mapping[str, Rule] = {name: rule for names, rule in _FAMILIES for name in names.split()}
