"""Graphs as one function of machine code: values, element-wise loops, products, branches and loops.

    from anydml.codegen import program
    result = program.matrix_product(b, x, y)

What rules of operators use of it. Its modules are read when a name is first used, which is when a program is
written: most models never are one.
"""

# ruff: noqa: F401
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anydml.codegen.reading import read_module

if TYPE_CHECKING:
    from anydml.codegen.program.bounded import (
        as_long_as_each_other,
        cut,
        expect_some,
        filled,
        first_of,
        joined,
        places_of_nonzero,
        same_length,
    )
    from anydml.codegen.program.builder import ProgramBuilder
    from anydml.codegen.program.contraction import matrix_product, pending, product_sizes
    from anydml.codegen.program.control import (
        BranchesBound,
        BranchesDiffer,
        Iterated,
        choose,
        repeat,
        wider,
    )
    from anydml.codegen.program.geometry import over, reshaped, strides_like
    from anydml.codegen.program.module import NativeProgram, ProgramFailed, read_inputs, write_outputs
    from anydml.codegen.program.reductions import fold_axes, place_of_extreme, running
    from anydml.codegen.program.resampling import between
    from anydml.codegen.program.rows import Passes, by_rows
    from anydml.codegen.program.sorting import best
    from anydml.codegen.program.suppression import Limits, suppressed
    from anydml.codegen.program.values import Bounded, Known, Memory, Pending, Register, Tensor, seen_as

_HOME = {
    "bounded": "as_long_as_each_other cut expect_some filled first_of joined places_of_nonzero same_length",
    "builder": "ProgramBuilder",
    "contraction": "matrix_product pending product_sizes",
    "control": "BranchesBound BranchesDiffer Iterated choose repeat wider",
    "geometry": "over reshaped strides_like",
    "module": "NativeProgram ProgramFailed read_inputs write_outputs",
    "reductions": "fold_axes place_of_extreme running",
    "resampling": "between",
    "rows": "Passes by_rows",
    "sorting": "best",
    "suppression": "Limits suppressed",
    "values": "Bounded Known Memory Pending Register Tensor seen_as",
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(read_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value
