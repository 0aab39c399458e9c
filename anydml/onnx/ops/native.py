"""How programs compute operators that are not element by element: with what a `ProgramBuilder` has.

Each rule answers with the outputs' tensors, or raises `NotNative` for a case that programs leave to others.
Element-wise operators need none: they compute what their DirectML operators say.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence

import numpy as np

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.contraction import matrix_product
from anydml.codegen.program.reductions import Folding, largest, least, place_of_extreme, reduce
from anydml.codegen.program.values import Known, Memory, NotNative, Tensor, scalar_type
from anydml.onnx.ops.opinfo import Array, Fold, KnownNode, NodeView
from anydml.ops import elementary, expr
from anydml.ops.dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64, FLOATING, INT32, INT64, NUMPY
from anydml.ops.expr import Expr, read

Inputs = Sequence[Tensor | None]
Native = Callable[[ProgramBuilder, KnownNode, Inputs], Sequence[Tensor]]


def first(inputs: Inputs) -> Tensor:
    """Input 0."""
    assert inputs[0] is not None
    return inputs[0]


def known(inputs: Inputs, k: int) -> Known | None:
    """Input k, which must be known before the program runs; None if it is left out."""
    given = inputs[k] if k < len(inputs) else None
    if given is not None and not isinstance(given, Known):
        raise NotNative(f"input {k} that is computed")
    return given


def axis_in(axis: int, x: Tensor) -> int:
    """Counted from the front."""
    if not -len(x.sizes) <= axis < len(x.sizes):
        raise NotNative(f"axis {axis} of rank {len(x.sizes)}")
    return axis % len(x.sizes)


def _placed(fold: Fold, n: NodeView, x: Tensor, rest: Inputs) -> list[Array]:
    """For each output, the places of its elements in x: the rule in NumPy, of places."""
    contents = [None if known(rest, k) is None else known(rest, k).array for k in range(len(rest))]  # type: ignore[union-attr]
    places = np.arange(x.count).reshape(x.sizes)
    found = fold(n, places, *contents)
    listed = list(found) if isinstance(found, tuple) else [found]
    return [np.asarray(p) for p in listed]


def moves(fold: Fold) -> Native:
    """Of an operator whose rule in NumPy moves elements about, whatever they are."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = first(inputs)
        return [b.rearrange(x, places) for places in _placed(fold, n, x, inputs[1:])]

    return rule


def reshapes(fold: Fold) -> Native:
    """Of an operator that gives the same elements in the same order."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = first(inputs)
        return [b.reshape(x, places.shape) for places in _placed(fold, n, x, inputs[1:])]

    return rule


def passes_on(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    return [first(inputs)]


def shape(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    sizes = np.array(first(inputs).sizes, np.int64)
    start, end = n.attribute("start") or 0, n.attribute("end")
    return [Known.of(sizes[start:end])]


def size(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    return [Known.of(np.array(first(inputs).count, np.int64))]


def concat(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    parts = [t for t in inputs if t is not None]
    axis = axis_in(1 if n.attribute("axis") is None else n.int("axis"), parts[0])
    sizes = [*parts[0].sizes]
    sizes[axis] = sum(p.sizes[axis] for p in parts)
    start, placed = [0] * len(sizes), []
    for part in parts:
        if part.dtype is not parts[0].dtype or [m for k, m in enumerate(part.sizes) if k != axis] != [
            m for k, m in enumerate(sizes) if k != axis
        ]:
            raise NotNative("parts that do not fit")
        placed.append(([*start], part))
        start[axis] += part.sizes[axis]
    return [b.assemble(parts[0].dtype, tuple(sizes), placed)]


def gather(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Parts along an axis, by numbers from -size to size - 1."""
    x, at = first(inputs), inputs[1]
    assert at is not None
    axis = axis_in(n.int("axis"), x)
    length = x.sizes[axis]
    if isinstance(at, Known):
        indices = at.array.astype(np.int64)
        if ((indices < -length) | (indices >= length)).any():
            raise NotNative("an index that is out of range")
        places = np.arange(x.count).reshape(x.sizes)
        return [b.rearrange(x, np.take(places, indices % length, axis))]
    sizes = (*x.sizes[:axis], *at.sizes, *x.sizes[axis + 1 :])
    source = b.memory(x)
    if at.count == 1:
        part = _part(b, source, axis, b.scalar(at), at, length)
        strides = (*part.strides[:axis], *[1] * len(at.sizes), *part.strides[axis:])
        view = Memory(x.dtype, sizes, part.pointer, strides, part.lies_in)
        return [b.register(view) if view.small else view]
    listed = b.packed(at)
    flat = (*x.sizes[:axis], at.count, *x.sizes[axis + 1 :])
    result = b.room(x.dtype, flat)

    def one(index: str, _: list[str]) -> list[str]:
        number = b.code.load(b.code.at(listed.pointer, index, at.dtype), at.dtype)
        part = _part(b, source, axis, number, at, length)
        home = b.code.at(result.pointer, b.code.times(index, result.strides[axis]), x.dtype)
        strides = (*result.strides[:axis], *result.strides[axis + 1 :])
        b.memory(part, Memory(x.dtype, part.sizes, home, strides))
        return []

    b.code.loop(at.count, one)
    return [b.reshape(result, sizes)]


def _part(b: ProgramBuilder, source: Memory, axis: int, number: str, at: Tensor, length: int) -> Memory:
    """The part of a tensor at a computed number."""
    if at.dtype is INT32:
        number = b.code.line(f"sext i32 {number} to i64")
    negative = b.code.line(f"icmp slt i64 {number}, 0")
    turned = b.code.line(f"add i64 {number}, {length}")
    place = b.code.line(f"select i1 {negative}, i64 {turned}, i64 {number}")
    inside = b.code.line(f"icmp ult i64 {place}, {length}")
    b.fail_unless(inside, f"expected an index from {-length} to {length - 1}, but got {{}}", number)
    pointer = b.code.at(source.pointer, b.code.times(place, source.strides[axis]), source.dtype)
    sizes, strides = ((*s[:axis], *s[axis + 1 :]) for s in (source.sizes, source.strides))
    return Memory(source.dtype, sizes, pointer, strides, source.lies_in)


def pad(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, told, value, axes = first(inputs), known(inputs, 1), known(inputs, 2), known(inputs, 3)
    pads = n.ints("pads") if told is None else told.integers
    rank = len(x.sizes)
    if pads is None or axes is not None or len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise NotNative("pads of some axes, or that take away")
    mode = n.text("mode")
    before, after = pads[:rank], pads[rank:]
    widths = list(zip(before, after, strict=True))
    if mode != "constant":
        places = np.arange(x.count).reshape(x.sizes)
        if mode == "reflect" and any(p >= m for w, m in zip(widths, x.sizes, strict=True) for p in w):
            raise NotNative("reflections of reflections")
        if mode not in ("reflect", "edge", "wrap"):
            raise NotNative(f"mode {mode}")
        return [b.rearrange(x, np.pad(places, widths, mode=mode))]  # type: ignore[call-overload]
    sizes = tuple(a + m + c for a, m, c in zip(before, x.sizes, after, strict=True))
    fill = n.attribute("value") or 0.0 if value is None else value.array.item()
    around = []
    for axis in range(rank):  # blocks around it, the outermost axis' first
        for start, width in ((0, before[axis]), (sizes[axis] - after[axis], after[axis])):
            block = [
                *x.sizes[:axis],
                width,
                *sizes[axis + 1 :],
            ]
            if width:
                at = [*before[:axis], start, *[0] * (rank - axis - 1)]
                around.append((at, Known.of(np.full(block, fill, NUMPY[x.dtype]))))
    return [b.assemble(x.dtype, sizes, [*around, (before, x)])]


# ---- arithmetic --------------------------------------------------------------------------------------


def cast(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Floats to integers, and what is no change; all other casts are DirectML's operators.

    ONNX leaves open what a float becomes that the type does not have: here what the processor makes of it,
    as with libraries.
    """
    from anydml.onnx.ops.cast import dtype_of

    x, wanted = first(inputs), scalar_type(dtype_of(n.int("to")))
    if x.dtype is wanted:
        return [x]
    if wanted is BOOL:
        return [b.elementwise(expr.ne(read(0, x.dtype), 0), [x])]
    if x.dtype not in (FLOAT32, FLOAT64) or wanted not in (INT32, INT64):
        raise NotNative(f"Cast of {x.dtype.label} to {wanted.label}")
    y = read(0, x.dtype)
    whole = expr.convert(y, wanted)
    if platform.machine().lower() in ("x86_64", "amd64"):
        limit = 2.0 ** (31 if wanted is INT32 else 63)
        inside = expr.and_(expr.ge(y, -limit), expr.lt(y, limit))
        whole = expr.select(inside, whole, -int(limit))
    return [b.elementwise(whole, [x])]


def divided(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Integers, cut off towards zero; by what is known, and not 0."""
    x, y = first(inputs), known(inputs, 1)
    assert y is not None
    if x.dtype in FLOATING or not y.array.all():
        raise NotNative("a division by 0")
    return [b.elementwise(expr.div(read(0, x.dtype), read(1, x.dtype)), [x, y])]


def _axes(n: KnownNode, x: Tensor, told: Known | None) -> list[int]:
    axes = (n.ints("axes") or []) if told is None else told.integers
    if not axes:
        return [] if n.attribute("noop_with_empty_axes") else list(range(len(x.sizes)))
    return sorted({axis_in(k, x) for k in axes})


def reduces(folding: Folding) -> Native:
    """Of floats, and of integers, which wrap around."""

    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = first(inputs)
        if x.dtype is BOOL:
            raise NotNative("bools that are folded")
        if folding.floats_only and x.dtype not in FLOATING:
            raise NotNative("integers, which libraries fold in ways of their own")
        axes = _axes(n, x, known(inputs, 1))
        if not axes:
            return [b.elementwise(folding.alone(read(0, x.dtype)), [x])]
        return [reduce(b, x, axes, bool(n.int("keepdims")), folding)]

    return rule


def _start(number: float) -> Callable[[object], float]:
    return lambda dtype: number


SUM = Folding(expr.add, _start(0))
MEAN = Folding(expr.add, _start(0), end=lambda x, n: expr.div(x, float(n)), floats_only=True)
PRODUCT = Folding(expr.mul, _start(1))
MAX = Folding(expr.maximum, least, wide=False)
MIN = Folding(expr.minimum, largest, wide=False)
L1 = Folding(expr.add, _start(0), of=expr.absolute)
L2 = Folding(
    expr.add,
    _start(0),
    of=lambda x: expr.mul(x, x),
    last=expr.sqrt,
    floats_only=True,
)
SUM_SQUARE = Folding(expr.add, _start(0), of=lambda x: expr.mul(x, x))


def extreme(better: Callable[[Expr, Expr], Expr]) -> Native:
    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        x = first(inputs)
        if n.attribute("select_last_index") or x.dtype in (BOOL, FLOAT16):
            raise NotNative("the last of equal ones, or of bools or float16")
        return [place_of_extreme(b, x, axis_in(n.int("axis"), x), bool(n.int("keepdims")), better)]

    return rule


LARGEST, LEAST = extreme(expr.gt), extreme(expr.lt)


def softmax(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Of float32, along one axis."""
    x = first(inputs)
    if n.version < 13 or x.dtype is not FLOAT32:
        raise NotNative("Softmax of several axes, or of another type than float32")
    axis = axis_in(n.int("axis"), x)
    one, other = read(0, FLOAT32), read(1, FLOAT32)
    x = b.use(x)
    top = reduce(b, x, [axis], True, MAX)
    grown = b.use(b.elementwise(elementary.exp(expr.sub(one, other)), [x, top]))
    return [b.elementwise(expr.div(one, other), [grown, reduce(b, grown, [axis], True, SUM)])]


def matmul(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    """Of matrices and vectors; stacks of matrices one after the other, where there are few."""
    x, y = first(inputs), inputs[1]
    assert y is not None
    if not x.sizes or not y.sizes:
        raise NotNative("products of scalars")
    left = b.reshape(x, (1, *x.sizes)) if len(x.sizes) == 1 else x
    right = b.reshape(y, (*y.sizes, 1)) if len(y.sizes) == 1 else y
    sizes = (*left.sizes[:-1], right.sizes[-1])
    if len(right.sizes) > 2:
        raise NotNative("products of stacks of matrices")
    flat = b.reshape(left, (left.count // left.sizes[-1], left.sizes[-1]))
    product = b.reshape(matrix_product(b, flat, right), sizes)
    wanted = [*sizes[:-2], *sizes[-2:-1] * (len(x.sizes) > 1), *sizes[-1:] * (len(y.sizes) > 1)]
    result = b.reshape(product, tuple(wanted))
    return [b.register(result) if result.small else result]


def gemm(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, y = first(inputs), inputs[1]
    assert y is not None
    if n.version < 7 or len(x.sizes) != 2 or len(y.sizes) != 2:
        raise NotNative("products of other ranks")
    one, two = (
        b.rearrange(t, np.arange(t.count).reshape(t.sizes).T) if n.int(name) else t
        for t, name in ((x, "transA"), (y, "transB"))
    )
    product: Tensor = matrix_product(b, one, two)
    a, c = read(0, x.dtype), read(1, x.dtype)
    if (alpha := n.float("alpha")) != 1:
        product = b.elementwise(expr.mul(a, alpha), [product])
    extra = inputs[2] if len(inputs) > 2 else None
    if extra is not None:
        scaled = c if (beta := n.float("beta")) == 1 else expr.mul(c, beta)
        product = b.elementwise(expr.add(a, scaled), [product, extra])
    return [b.register(product) if product.small else product]


def truth(tensor: Tensor) -> Tensor:
    """A bool of one element, as a scalar."""
    if tensor.dtype is not BOOL or tensor.count != 1:
        raise NotNative("a condition that is not one bool")
    return tensor
