"""A program as an object file for C, with its constants in it, and without Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydml.codegen.jit import emit_object_file, host
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.layout import DETAIL_BYTES
from anydml.codegen.target import PROCESSORS, Target

_BYTES = [f"\\{byte:02X}" for byte in range(256)]
"""As LLVM writes them in texts."""


def target_of(processor: str | None) -> Target:
    """What code generation must know of one of these; None: the processor at hand."""
    if processor is None:
        return host()
    return replace(PROCESSORS[processor], streams=False, masks=False, scratch=0)


def object_file(b: ProgramBuilder, name: str, inputs: int, outputs: int, processor: str | None) -> bytes:
    """The function `name(inputs..., outputs..., memory)`, which `b` has written."""
    return emit_object_file(object_text(b, name, inputs, outputs), processor)


def object_text(b: ProgramBuilder, name: str, inputs: int, outputs: int) -> str:
    arguments = [f"ptr %in{k}" for k in range(inputs)] + [f"ptr %out{k}" for k in range(outputs)]
    content = b.weights.content().tobytes()
    text = "".join(_BYTES[byte] for byte in content)
    constants = f'c"{text}"' if content else "zeroinitializer"
    lines = [
        f"@weights = internal constant [{len(content)} x i8] {constants}, align 64",
        f"define i32 @{name}({', '.join([*arguments, 'ptr %detail'])}) {{",
        "entry:",
        f"  %arena = getelementptr i8, ptr %detail, i64 {DETAIL_BYTES}",
        "  %weights = getelementptr i8, ptr @weights, i64 0",
        *b.code.lines,
        "  ret i32 0",
        "}",
        *sorted(b.code.declared),
    ]
    return "\n".join(lines) + "\n"


def memory_bytes(b: ProgramBuilder) -> int:
    """Of memory that a call needs."""
    return DETAIL_BYTES + b.arena.size


def failures(b: ProgramBuilder) -> Sequence[str]:
    """What the numbers mean that the function returns, from 1 on."""
    ends = ("", ", which is no error, but nothing that this function computes")
    return [f"{f.node}: {f.message.format('the number in memory')}{ends[f.left]}" for f in b.failures]
