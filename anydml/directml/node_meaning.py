"""What a node of a DirectML graph computes, as an expression over an iteration space."""

from __future__ import annotations

from anydml.dataclass import dataclass
from anydml.directml.weights import has_rows, replace_reads
from anydml.ir.graph import DirectMLNode, TensorType
from anydml.ops.attributes import Activation
from anydml.ops.call import fields
from anydml.ops.dtypes import BITS, FLOAT16, FLOAT32
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, convert, read
from anydml.ops.opdef import ONE, Operator
from anydml.ops.row_expressions import row_expression
from anydml.ops.tensor_desc import TensorDesc

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class NodeMeaning:
    expr: Expr
    """Of one element of the output: of those of the inputs that are there, by number."""
    sizes: Sizes
    strides: tuple[Sizes, ...]
    """Elements of each input between neighbours in that space: 0 where it is repeated."""
    reduced: tuple[int, ...] = ()
    """Dimensions along which the output has size 1."""
    elementwise: bool = True


def meaning_of(node: DirectMLNode) -> NodeMeaning | None:
    """None of operators that move elements, look around, or have no kernel over rows."""
    assert isinstance(node.op, Operator)
    return _elementwise(node) if node.op.compute is None else _of_rows(node)


def views_of(node: DirectMLNode) -> list[TensorType]:
    """How the inputs that are there are read."""
    return [node.views.get(k) or v.tensor for k, v in enumerate(node.inputs) if v is not None]


def _elementwise(node: DirectMLNode) -> NodeMeaning:
    (output,) = node.outputs
    assert output is not None
    sizes = output.tensor.static_sizes
    types = tuple(None if v is None else node.read_type(k) for k, v in enumerate(node.inputs))
    expr = node.op.expression(types, output.data_type, node.attributes, len(sizes))
    operands = [operand for operand, v in zip(node.op.inputs, node.inputs, strict=False) if v is not None]
    strides = tuple(
        (0,) * len(sizes) if operand.sizes == ONE else view.element_strides
        for operand, view in zip(operands, views_of(node), strict=True)
    )
    return NodeMeaning(expr, sizes, strides)


def _of_rows(node: DirectMLNode) -> NodeMeaning | None:
    """float16 is computed in float32, and rounded once."""
    views = views_of(node)
    widths = [
        (BITS[view.data_type], BITS[value.data_type]) for view, value in zip(views, node.reads, strict=True)
    ]
    if any(seen < 8 or seen != given for seen, given in widths):
        return None
    inputs = zip(fields(node.op.inputs, len(node.inputs)), node.inputs, strict=True)
    names = [name for name, value in inputs if value is not None]
    tensors = {n: TensorDesc(v.data_type, v.static_sizes) for n, v in zip(names, views, strict=True)}
    found = row_expression(node.op, tensors, node.attributes)
    if found is None or list(found.operands) != names:
        return None
    if node.op.name == "BATCH_NORMALIZATION" and not all(map(_is_same_along_last, views[1:4])):
        return None  # what is the same for many elements had better be computed once
    (output,) = node.outputs
    assert output is not None
    sizes, expr = views[0].static_sizes, found.meaning
    activation = node.attributes.get("FusedActivation")
    if isinstance(activation, Activation):
        dtype = expr.dtype
        assert isinstance(dtype, TensorDataType)
        applied = activation.operator.expression((dtype,), dtype, activation.attributes, len(sizes))
        if has_rows(applied):
            return None
        expr = replace_reads(applied, {0: expr})
    elements = [read(k, view.data_type) for k, view in enumerate(views)]
    elements = [convert(e, FLOAT32) if e.dtype is FLOAT16 else e for e in elements]
    expr = replace_reads(expr, dict(enumerate(elements)))
    strides = tuple(
        tuple(0 if n == 1 else s for n, s in zip(view.static_sizes, view.element_strides, strict=True))
        for view in views
    )
    reduced = tuple(a % len(sizes) for a in found.axes) if found.single else ()
    return NodeMeaning(convert(expr, output.data_type), sizes, strides, reduced, elementwise=False)


def _is_same_along_last(view: TensorType) -> bool:
    return view.static_sizes[-1] == 1 or view.element_strides[-1] == 0
