"""The first lanes of a vector: which they are, and loads and stores of no others."""

from __future__ import annotations

from anydml.codegen.llvm_types import element_type, mangle, value_type
from anydml.ops.dtypes import ScalarType


def iota(lanes: int) -> str:
    """The numbers of a vector's lanes."""
    return f"<{', '.join(f'i32 {k}' for k in range(lanes))}>"


def first_lanes(name: str, count: str, lanes: int) -> list[str]:
    """Instructions for the mask %name: true in the first `count` (an i64) lanes."""
    whole = f"<{lanes} x i32>"
    return [
        f"%{name}.m = trunc i64 {count} to i32",
        f"%{name}.i = insertelement {whole} poison, i32 %{name}.m, i32 0",
        f"%{name}.ms = shufflevector {whole} %{name}.i, {whole} poison, {whole} zeroinitializer",
        f"%{name} = icmp slt {whole} {iota(lanes)}, %{name}.ms",
    ]


def masked_load(pointer: str, mask: str, dtype: ScalarType, lanes: int) -> tuple[str, str]:
    """The call that gives a vector, 0 where the mask is false, and its declaration."""
    kind, truths = value_type(dtype, lanes), f"<{lanes} x i1>"
    name = f"{kind} @llvm.masked.load.{mangle(element_type(dtype), lanes)}.p0"
    given = f"ptr {pointer}, i32 1, {truths} {mask}, {kind} zeroinitializer"
    return f"call {name}({given})", f"declare {name}(ptr, i32, {truths}, {kind})"


def masked_store(value: str, pointer: str, mask: str, dtype: ScalarType, lanes: int) -> tuple[str, str]:
    """The call that stores a vector where the mask is true, and its declaration."""
    kind, truths = value_type(dtype, lanes), f"<{lanes} x i1>"
    name = f"void @llvm.masked.store.{mangle(element_type(dtype), lanes)}.p0"
    return f"call {name}({kind} {value}, ptr {pointer}, i32 1, {truths} {mask})", (
        f"declare {name}({kind}, ptr, i32, {truths})"
    )
