"""An ONNX model as a C function: `compile_model`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.object_file import failures, memory_bytes, object_file, target_of
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.target import PROCESSORS
from anydml.dataclass import dataclass, field
from anydml.errors import (
    InvalidInput,
    Problem,
    Unsupported,
    counted,
    nearest,
    short_repr,
    translate_memory_error,
)
from anydml.onnx.execute.native_writer import write_graph
from anydml.onnx.execute.specialization import specialized
from anydml.onnx.input_shapes import Shapes, check_request
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.serde.deserialize import read
from anydml.onnx.serde.parse import ModelSource
from anydml.ops.dtypes import ScalarType

MAX_INSTRUCTIONS = 200_000
_C_TYPES = {"float32": "float", "float64": "double", "float16": "uint16_t", "bool": "uint8_t"}


_C_WORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
    class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue
    decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long main memory mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()
)
"""What nothing can be called in C or C++, or should not be."""


@dataclass(frozen=True)
class Parameter:
    """An array that the function is called with: `name` in C, the model's name, data type and sizes."""

    name: str
    of_model: str
    dtype: str
    sizes: tuple[int, ...]

    @property
    def c_type(self) -> str:
        return _C_TYPES.get(self.dtype, f"{self.dtype}_t")

    def __str__(self) -> str:
        return f"{self.of_model} {self.dtype}[{','.join(map(str, self.sizes))}]"


@dataclass(frozen=True)
class CompiledModel:
    """A model as an object file."""

    name: str
    """Of the function."""
    object_file: bytes = field(repr=False)
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    memory: int
    """Bytes that a call needs."""
    failures: tuple[str, ...]
    """What the function's result means, from 1 on."""

    def header(self) -> str:
        """For C and C++."""
        guard = f"{self.name.upper()}_H"
        arguments = [f"const {p.c_type} *{p.name}" for p in self.inputs]
        arguments += [f"{p.c_type} *{p.name}" for p in self.outputs]
        told = [f"{p.name}: {p}, {counted(prod(p.sizes), 'element')}" for p in (*self.inputs, *self.outputs)]
        results = [f"{k}: {text}" for k, text in enumerate(self.failures, start=1)]
        comment = "\n".join(
            f" * {line}".replace("*/", "* /")
            for line in (
                *told,
                f"memory: {self.name.upper()}_MEMORY bytes for the length of the call",
                "Outputs and memory are apart from each other and from all inputs.",
                "Returns 0, or the number of what failed:" if results else "Returns 0.",
                *results,
            )
        )
        return f"""#ifndef {guard}
#define {guard}
#include <stdint.h>
#define {self.name.upper()}_MEMORY {self.memory}
#ifdef __cplusplus
extern "C" {{
#endif
/*
{comment}
 */
int32_t {self.name}({", ".join([*arguments, "void *memory"])});
#ifdef __cplusplus
}}
#endif
#endif
"""


@translate_memory_error
def compile_model(
    model: ModelSource,
    *,
    shapes: Shapes | None = None,
    fixed: Mapping[str, Any] | None = None,
    name: str = "model",
    cpu: str | None = None,
) -> CompiledModel:
    """A model as a C function in an object file, weights included, which needs no library.

    Args:
        model: a path, a file's bytes, or an `onnx.ModelProto`.
        shapes: sizes of inputs, by name, where the model leaves them open.
        fixed: contents of inputs, by name. They are no parameters of the function.
        name: of the function.
        cpu: "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4" or "aarch64"; None: the
            processor at hand.

    Raises:
        InvalidInput: an unknown input, a value or a shape that does not fit it; no name for a function; a
            processor that is not listed.
        InvalidModel, OSError: as `load` does.
        Unsupported: the model cannot be one function of machine code, and why.
    """
    problems = []
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in _C_WORDS:
        problems.append(Problem("name", f"expected a name that C has, but got {short_repr(name)}"))
    if cpu is not None and cpu not in PROCESSORS:
        message = f"expected {' | '.join(PROCESSORS)}, but got {short_repr(cpu)}"
        problems.append(Problem("cpu", message, nearest(cpu, PROCESSORS)))
    if problems:
        raise InvalidInput(*problems)
    read_model = read(model, None, mapped=False)
    contents, types = check_request(read_model, fixed or {}, shapes or {}, {}, "never")
    provider = OnnxRuntime()
    graph, _ = specialized(read_model.graph, types, contents, read_model.opsets, provider)
    builder = partial(ProgramBuilder, target_of(cpu), MAX_INSTRUCTIONS, polls=False)
    try:
        b, given, written = write_graph(graph, builder, read_model.opsets, provider)
        made = [(o.dtype, o.sizes) for o in written if o.sizes is not None]
        if len(made) < len(written):
            raise NotNative("the data decides the sizes of its outputs")
    except NotNative as reason:
        remedy = "`shapes` fixes sizes" if "no fixed sizes" in str(reason) else ""
        raise Unsupported(Problem("model", f"cannot be one function: {reason}", remedy)) from None
    names = _c_names([v.name for v in graph.inputs], [o.name for o in read_model.outputs])
    typed: list[tuple[str, ScalarType, tuple[int, ...]]] = [
        *((v.name, i.dtype, i.sizes) for v, i in zip(graph.inputs, given, strict=True)),
        *((o.name, *m) for o, m in zip(read_model.outputs, made, strict=True)),
    ]
    parameters = tuple(
        Parameter(c, told, dtype.label, sizes) for c, (told, dtype, sizes) in zip(names, typed, strict=True)
    )
    return CompiledModel(
        name,
        object_file(b, name, len(given), len(made), cpu),
        parameters[: len(given)],
        parameters[len(given) :],
        memory_bytes(b),
        tuple(failures(b)),
    )


def _c_names(inputs: list[str], outputs: list[str]) -> list[str]:
    """Names that C has, each once, like those of the model."""
    found: list[str] = []
    for k, name in enumerate((*inputs, *outputs)):
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name) or f"value{k}"
        if plain[0].isdigit() or plain in _C_WORDS:
            plain = f"v_{plain}"
        while plain in found:
            plain += "_"
        found.append(plain)
    return found
