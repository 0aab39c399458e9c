"""Products of matrices. Those of float32 and below are summed in float64; integers wrap around."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from anydml.codegen import program
from anydml.codegen.program.refusal import NotNative
from anydml.errors import counted, short_repr
from anydml.onnx.ops import product_types
from anydml.onnx.ops.native import Inputs, each_by_itself, operand
from anydml.onnx.ops.opinfo import Array, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.precision import FLOATS, round_to, to_float64, widen, without_detour
from anydml.onnx.ops.shared import NOTHING_TO_SUM, assumed_sizes, both_zero, nothing_inside
from anydml.onnx.ops.speculation import gemm_fits, if_run, multiplies, of_columns, one_number
from anydml.onnx.protos import AttributeProto
from anydml.ops import expr
from anydml.ops.dtypes import INT32

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Memory, Tensor


def sum_products(compute: Callable[..., Array], *factors: Array) -> Array:
    """`compute`, sums of products of the factors, in their type.

    Raises:
        NotFoldable: a sum that is in range, but not on the way to it.
    """
    dtype = factors[0].dtype
    if dtype not in FLOATS:
        return np.asarray(compute(*factors))
    wide = [to_float64(f) for f in factors]
    result = np.asarray(compute(*wide))
    largest = np.prod([np.abs(w).max(initial=1) for w in wide]) * max(f.size for f in factors)
    if not largest < 1e38:
        return without_detour(result, np.asarray(compute(*(np.abs(w) for w in wide))), dtype)
    return round_to(result, dtype)


def _matmul(node: NodeView, a: Array, b: Array) -> Array:
    inner, other = a.shape[-1:], b.shape[-2:][:1]
    if not a.ndim or not b.ndim or inner != other:
        shapes = f"{a.shape} and {b.shape}"
        raise ValueError(f"expected as many columns of A as rows of B, but got shapes {shapes}")
    return sum_products(np.matmul, a, b)


def _gemm(node: NodeView, a: Array, b: Array, c: Array | None = None) -> Array:
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"expected matrices, but got ranks {a.ndim} and {b.ndim}")
    alpha, beta = node.float("alpha"), node.float("beta")
    a, b = (a.T if node.int("transA") else a), (b.T if node.int("transB") else b)
    if a.dtype not in FLOATS:
        return _integer_gemm(a, b, c, alpha, beta)
    product = to_float64(sum_products(np.matmul, widen(a), widen(b)))
    result = product * alpha
    if c is not None:
        _check_added(node, c, result.shape)
        if beta == 0 and not np.isfinite(to_float64(c)).all():
            raise NotFoldable("0 times what is not finite")
        result = result + to_float64(c) * beta
    if alpha == 0 and not (np.isfinite(to_float64(a)).all() and np.isfinite(to_float64(b)).all()):
        raise NotFoldable("0 times what is not finite")
    return round_to(result, a.dtype)


def _check_added(node: NodeView, c: Array, shape: tuple[int, ...]) -> None:
    """C is broadcast to the product's shape; before opset 7 only if `broadcast` says so."""
    if np.broadcast_shapes(c.shape, shape) != shape:
        raise ValueError(f"expected C to be broadcast to {list(shape)}, but got {list(c.shape)}")
    if node.version < 7 and c.shape != shape and not node.int("broadcast"):
        raise NotFoldable("C of another shape than the product")


def _integer_gemm(a: Array, b: Array, c: Array | None, alpha: float, beta: float) -> Array:
    if alpha != int(alpha) or beta != int(beta) or alpha < 0 or beta < 0:
        raise NotFoldable("a part of an integer")
    result = np.matmul(a, b) * a.dtype.type(alpha)
    if c is None:
        return np.asarray(result)
    if np.broadcast_shapes(c.shape, result.shape) != result.shape:
        raise ValueError(f"expected C to be broadcast to {list(result.shape)}, but got {list(c.shape)}")
    return np.asarray(result + c * c.dtype.type(beta))


def without_zero(x: Array, zero: Array | None, rows: bool) -> Array:
    """x as int32, less its zero point: one, one for each row (or column), or of a shape that broadcasts."""
    wide = x.astype(np.int32)
    if zero is None:
        return wide
    return wide - along(zero.astype(np.int32), x, rows)


def along(parameter: Array, x: Array, rows: bool) -> Array:
    """A quantization's parameter that broadcasts with the matrices x.

    Raises:
        NotFoldable: a vector for many matrices, of which ONNX does not say what it stands for.
    """
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim == 1:
        if x.ndim != 2:
            raise NotFoldable("a vector of parameters of what is no matrix")
        parameter = parameter.reshape((-1, 1) if rows else (1, -1))
    if parameter.ndim != x.ndim or parameter.shape[-1 if rows else -2] != 1:
        raise NotFoldable("parameters of neither rows nor columns")
    if np.broadcast_shapes(parameter.shape, x.shape) != x.shape:
        raise ValueError(f"expected parameters of {list(x.shape)}, but got {list(parameter.shape)}")
    return parameter


def _matmul_integer(
    node: NodeView, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None
) -> Array:
    return np.asarray(np.matmul(without_zero(a, a_zero, rows=True), without_zero(b, b_zero, rows=False)))


def _einsum(node: NodeView, *inputs: Array) -> Array:
    """As NumPy's, with what ONNX leaves open left out."""
    equation = node.text("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(inputs):
        raise ValueError(f"expected {counted(len(terms), 'input')} of {equation!r}, but got {len(inputs)}")
    sizes: dict[str, int] = {}
    dots = set()
    for term, x in zip(terms, inputs, strict=True):
        front, ellipsis, back = term.partition("...")
        extra = x.ndim - len(front) - len(back)
        if extra < 0 or (extra and not ellipsis):
            raise ValueError(f"expected an input of {term!r}, but got rank {x.ndim}")
        if ellipsis:
            dots.add(extra)
        own = (*x.shape[: len(front)], *x.shape[x.ndim - len(back) :])
        for letter, size in zip(front + back, own, strict=True):
            if sizes.setdefault(letter, size) != size:
                if 1 in (sizes[letter], size):
                    raise NotFoldable(f"sizes {size} and {sizes[letter]} of {letter!r}")
                raise ValueError(f"expected size {sizes[letter]} of {letter!r}, but got {size}")
    if len(dots) > 1 or (arrow and dots and "..." not in right):
        raise NotFoldable("ellipses of several ranks, or one that is summed over")
    return sum_products(lambda *xs: np.asarray(np.einsum(equation, *xs)), *inputs)


def _det(node: NodeView, x: Array) -> Array:
    """The determinants of the last two axes; of a matrix without elements 1.

    Raises:
        NotFoldable: next to singular, where the result is rounding errors.
    """
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"expected square matrices, but got {list(x.shape)}")
    wide = to_float64(x)
    if not np.isfinite(wide).all():
        raise NotFoldable("the determinant of what is not finite")
    result = np.asarray(np.linalg.det(wide))
    largest = np.sqrt(np.square(wide).sum(-1)).prod(-1)
    if ((np.abs(result) < 1e-4 * largest) | ~np.isfinite(result)).any():
        raise NotFoldable("a determinant next to 0, or beyond all numbers")
    return round_to(result, x.dtype)


def _vector(n: KnownNode) -> bool:
    """A product with a vector, or with what may be one."""
    return (n.rank(0) == 1 or n.rank(1) in (1, None)) and nothing_inside(n, 0, 1)


def unequal_batches(n: KnownNode, a: int, b: int) -> bool:
    """Nothing in one of the factors, and one of them a vector, or stacks of matrices that differ."""
    x, y = n.sizes(a), n.sizes(b)
    if x is None or y is None or 0 not in x + y:
        return False
    return 1 in (len(x), len(y)) or (min(len(x), len(y)) > 2 and x[:-2] != y[:-2])


def _scaled_bias(n: KnownNode) -> bool:
    """Gemm with a factor before C, where nothing is summed."""
    if n.value(2) is None or n.attribute("beta") in (0.0, 1.0):
        return False
    k_of_a, k_of_b = (0 if n.attribute("transA") else 1), (1 if n.attribute("transB") else 0)
    return both_zero(n.size(0, k_of_a), n.size(1, k_of_b))


def by_rows(n: KnownNode, k: int) -> bool:
    """A scale or zero point of the first factor that is not one number."""
    return n.sizes(k) not in (None, (), (1,))


def _too_few_dimensions(n: KnownNode) -> bool:
    """Fewer dimensions than letters in the equation, or perhaps."""
    equation = n.attribute("equation")
    if not isinstance(equation, bytes):  # of an opset that has no Einsum
        return True
    terms = equation.replace(b"...", b"").replace(b" ", b"").split(b"->")[0].split(b",")
    sizes = [n.sizes(k) for k in range(n.count)]
    return len(terms) != len(sizes) or any(
        s is None or len(s) < len(t) for s, t in zip(sizes, terms, strict=True)
    )


CANNOT_BROADCAST = "onnxruntime refuses empty factors, or does not broadcast them"


def product_flops(n: KnownNode, results: int) -> int:
    first = assumed_sizes(n, 0)
    return 2 * results * first[0 if n.attribute("transA") else -1] if first else results


_EQUATION = re.compile(rb"TERM(,TERM)*(->TERM)?".replace(b"TERM", rb"[A-Za-z]*(\.\.\.)?[A-Za-z]*"))


def _wrong_equation(attributes: Mapping[str, AttributeProto]) -> str | None:
    """On which ONNX's own inference can loop for ever."""
    equation = attributes["equation"].s if "equation" in attributes else b""
    if _EQUATION.fullmatch(equation.replace(b" ", b"")):
        return None
    text = short_repr(equation.decode(errors="replace"))
    return f"expected an equation of Einsum such as 'ij,jk->ik', but got {text}"


def multiply(b: ProgramBuilder, x: Tensor, y: Tensor) -> Tensor:
    """Of matrices, stacks of them, and vectors, in a program."""
    if not x.sizes or not y.sizes:
        raise NotNative("products of scalars")
    left = b.reshape(x, (1, *x.sizes)) if len(x.sizes) == 1 else x
    right = b.reshape(y, (*y.sizes, 1)) if len(y.sizes) == 1 else y
    sizes = program.product_sizes(left, right)
    wanted = (*sizes[:-2], *sizes[-2:-1] * (len(x.sizes) > 1), *sizes[-1:] * (len(y.sizes) > 1))
    if len(right.sizes) == 2:  # a stack times one matrix is one product
        left = b.reshape(left, (left.count // left.sizes[-1], left.sizes[-1]))

    def product(end: expr.Expr | None, beside: Sequence[Tensor]) -> Memory:
        made = program.reshaped(program.matrix_product(b, left, right, end, beside), wanted)
        assert made is not None, "it is packed"
        return made

    return program.pending(
        b, [left, right], wanted, product, lambda t: program.reshaped(t, program.product_sizes(left, right))
    )


def _native_matmul(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    return [multiply(b, operand(inputs), operand(inputs, 1))]


def native_along(b: ProgramBuilder, parameter: Tensor, x: Tensor, rows: bool) -> Tensor:
    """`along`, in a program."""
    found = along(np.empty(parameter.sizes, bool), np.empty(x.sizes, bool), rows)
    return b.reshape(parameter, found.shape)


def centred(b: ProgramBuilder, x: Tensor, zero: Tensor | None, rows: bool) -> Tensor:
    """`without_zero`, in a program."""
    if isinstance(x, program.Known) and (zero is None or isinstance(zero, program.Known)):
        return program.Known.of(without_zero(x.array, None if zero is None else zero.array, rows))
    wide = expr.convert(expr.read(0, x.dtype), INT32)
    if zero is None:
        return b.elementwise(wide, [x])
    less = expr.convert(expr.read(1, zero.dtype), INT32)
    return b.elementwise(expr.sub(wide, less), [x, native_along(b, zero, x, rows)])


def _native_matmul_integer(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    zeros = [*inputs[2:], None, None]
    one, two = (centred(b, operand(inputs, k), zeros[k], k == 0) for k in range(2))
    return [multiply(b, one, two)]


def _row_or_column(n: KnownNode, inputs: Inputs, k: int) -> int | None:
    """Rows of the one, and columns of the other, are those of their product."""
    sizes = [t.sizes for t in inputs[:2] if t is not None]
    x = inputs[k]
    if not isinstance(x, program.Bounded) or k > 1 or min(map(len, sizes)) < 2:
        return None
    rank = max(map(len, sizes))
    return rank - 2 + k if x.axis == len(x.sizes) - 2 + k else None


def _row_or_column_of_sum(n: KnownNode, inputs: Inputs, k: int) -> int | None:
    """Unless it is turned, or something of each row or column is added."""
    axis = _row_or_column(n, inputs, k)
    if axis is None or n.int(("transA", "transB")[k]):
        return None
    extra = inputs[2].sizes if len(inputs) > 2 and inputs[2] is not None else ()
    return axis if (1, 1, *extra)[axis - 2] == 1 else None


def _native_gemm(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
    x, y = operand(inputs), operand(inputs, 1)
    if n.version < 7 or len(x.sizes) != 2 or len(y.sizes) != 2:
        raise NotNative("products of other ranks")
    one, two = (
        b.rearrange(t, np.arange(t.count).reshape(t.sizes).T) if n.int(name) else t
        for t, name in ((x, "transA"), (y, "transB"))
    )
    product = multiply(b, one, two)
    a, c = expr.read(0, x.dtype), expr.read(1, x.dtype)
    if (alpha := n.float("alpha")) != 1:
        product = b.elementwise(expr.mul(a, alpha), [product])
    extra = inputs[2] if len(inputs) > 2 else None
    if extra is not None:
        scaled = c if (beta := n.float("beta")) == 1 else expr.mul(c, beta)
        product = b.elementwise(expr.add(a, scaled), [product, extra])
    return [b.settled(product)]


OPS = (
    OpInfo(
        "MatMul",
        keeps_weights=True,
        native=each_by_itself(_native_matmul, _row_or_column),
        result=product_types.multiplied,
        fold=_matmul,
        speculatable=multiplies,
        flops=product_flops,
        quirks=(
            Quirk(NOTHING_TO_SUM, _vector, empty=True),
            Quirk(CANNOT_BROADCAST, lambda n: unequal_batches(n, 0, 1)),
        ),
    ),
    OpInfo(
        "Gemm",
        keeps_weights=True,
        native=each_by_itself(_native_gemm, _row_or_column_of_sum),
        result=product_types.gemm,
        fold=_gemm,
        speculatable=gemm_fits,
        flops=product_flops,
        quirks=(
            Quirk("onnxruntime leaves out beta where there is nothing to sum", _scaled_bias, empty=True),
        ),
    ),
    OpInfo(
        "MatMulInteger",
        result=product_types.multiplied_integers,
        keeps_weights=True,
        native=_native_matmul_integer,
        fold=_matmul_integer,
        speculatable=lambda n: multiplies(n) and one_number(n, 2) and of_columns(n, 3, 1),
        flops=product_flops,
        quirks=(
            Quirk(NOTHING_TO_SUM, lambda n: nothing_inside(n, 0, 1), empty=True),
            Quirk(CANNOT_BROADCAST, lambda n: unequal_batches(n, 0, 1)),
            Quirk("onnxruntime takes no zero point for each row", lambda n: by_rows(n, 2)),
        ),
    ),
    OpInfo(
        "Einsum",
        form_error=_wrong_equation,
        result=product_types.summed,
        fold=_einsum,
        speculatable=if_run,
        quirks=(
            Quirk(
                "onnxruntime ends the process on fewer dimensions than letters",
                _too_few_dimensions,
                fatal=True,
            ),
            Quirk(
                "onnxruntime ends the process on an empty axis",
                lambda n: any(n.may_be_empty(k) for k in range(n.count)),
                fatal=True,
                empty=True,
            ),
        ),
    ),
    OpInfo("Det", fold=_det),
)
