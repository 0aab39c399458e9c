"""How programs divide integers by what the data decides: they fail at a zero, as libraries do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anydml.codegen import program
from anydml.codegen.llvm_types import value_type
from anydml.codegen.program.refusal import NotNative
from anydml.onnx.ops.native import Inputs, Native, bounded, operand
from anydml.onnx.ops.opinfo import KnownNode
from anydml.ops.dtypes import BOOL, FLOATING
from anydml.ops.enums import TensorDataType
from anydml.ops.opdef import Operator

if TYPE_CHECKING:
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.values import Tensor


def divided(operator: Callable[[KnownNode], Operator]) -> Native:
    """As the DirectML operator says, which makes 0 of a division by zero, and wraps around."""

    @bounded
    def rule(b: ProgramBuilder, n: KnownNode, inputs: Inputs) -> list[Tensor]:
        dividend, divisor = operand(inputs), b.use(operand(inputs, 1))
        dtype = divisor.dtype
        if not isinstance(dtype, TensorDataType) or dtype in FLOATING or dividend.dtype is not dtype:
            raise NotNative(f"{n.op.name} of other types than integers")
        if n.version < 7:
            raise NotNative(f"{n.op.name} that broadcasts along an axis")
        _fail_at_zero(b, divisor)
        operands, wrap = program.as_long_as_each_other(b, [dividend, divisor])
        return [wrap(b.elementwise(operator(n).expression((dtype, dtype), dtype, {}, 1), operands))]

    return rule


def _fail_at_zero(b: ProgramBuilder, divisor: Tensor) -> None:
    dtype = divisor.dtype
    assert dtype is not BOOL

    def check(number: str) -> None:
        other = b.code.line(f"icmp ne {value_type(dtype, 1)} {number}, 0")
        b.fail_unless(other, "integer division by zero", "0")

    if divisor.small and not isinstance(divisor, program.Bounded):
        for number in b.scalars(divisor):
            check(number)
        return
    whole = b.memory(divisor)
    b.work += 2 * divisor.count
    lengths = [b.length(divisor, k) for k in range(len(divisor.sizes))]
    dims = [(n, (s,)) for n, s in zip(lengths, whole.strides, strict=True)]
    b.over(dims, [(dtype, whole.pointer)], lambda pointers: check(b.code.load(pointers[0], dtype)))
