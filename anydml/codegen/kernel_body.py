"""Row functions: the innermost loops of a kernel, as LLVM IR.

    void row(ptr operands, ptr strides, i64 n)

computes n neighbouring elements; `operands` holds each operand's address and `strides` its bytes from one
element to the next. Two kinds are written. A *plain* one, for cheap expressions, is loops over vectors, and
one for what is before and behind these. A *block* one, for expensive expressions, contains their code only
once, in a loop over blocks of `lanes` elements: what is shorter or not packed is copied through a block on
the stack. Where rows of cheap expressions are short, an "element" is a row.

Where rows are reduced, an "element" is a whole row. Its extents follow the operands as further words:
for each reduced dimension, outermost first, its size and then each operand's stride in bytes. A row is
passed once for each stage: reductions that depend on other reductions come later, the outputs last. A pass
over packed operands is a loop of whole blocks, one of vectors, and some lanes of the last one. Short
rows go through the stages in batches, or stay in registers; rows that lie beside each other go together, a
lane for each.
"""

from __future__ import annotations

from anydml.codegen.blocked_loop import BlockedLoopEmitter
from anydml.codegen.columns import ColumnEmitter
from anydml.codegen.group import KernelSpec, KernelVariant
from anydml.codegen.reduction import ReductionEmitter
from anydml.codegen.register_rows import RegisterRowEmitter
from anydml.codegen.short_rows import ShortRowEmitter
from anydml.codegen.target import Target
from anydml.codegen.tiles import tiled_body
from anydml.codegen.vector_loop import VectorLoopEmitter
from anydml.codegen.writer import LoopEmitter

NARROW = ' "prefer-vector-width"="256" "min-legal-vector-width"="256"'
"""Says to LLVM that vectors are of 32 bytes."""


def kernel_body(group: KernelSpec, shape: KernelVariant, target: Target) -> str:
    """LLVM IR of a module with the kernel body."""
    kind: type[LoopEmitter] = (
        ShortRowEmitter
        if shape.short
        else VectorLoopEmitter
        if group.plain
        else BlockedLoopEmitter
        if group.axes is None
        else ColumnEmitter
        if shape.columns
        else RegisterRowEmitter
        if shape.registers
        else ReductionEmitter
    )
    writer = kind(group, shape, target)
    writer.write()
    marks = NARROW if kind is VectorLoopEmitter and _may_be_narrow(writer, target) else ""
    head = f"define void @row(ptr %operands, ptr %strides, i64 %n){marks} {{"
    lines = [head, "entry:", *writer.lines]
    if shape.stream:  # streaming stores are weakly ordered; be done with them before anyone is told
        lines.append("  fence seq_cst")
    text = "\n".join([*lines, "  ret void", "}", *sorted(writer.declared), "!0 = !{i32 1}"]) + "\n"
    return tiled_body(group, shape, target, text) if shape.turned else text


def _may_be_narrow(writer: LoopEmitter, target: Target) -> bool:
    """Where that is as quick to compute, and nothing is called that takes 64 bytes."""
    return target.halves and not any("x86.avx512" in line for line in writer.lines)
