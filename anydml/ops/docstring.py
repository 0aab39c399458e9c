"""A definition as the docstring of its Python function, with its example as a doctest."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from anydml.ops.attributes import EnumKind
from anydml.ops.dtypes import listed
from anydml.ops.enums import TensorDataType
from anydml.ops.opdef import ONE, Operand, Operator


def docstring(operator: Operator) -> str:
    """What `help` says of the operator's function."""
    table = operator.levels[max(operator.levels)]
    lines = [
        operator.doc,
        "",
        f"DirectML: {operator.name}, from feature level {operator.introduced.label} on.",
        "",
    ]
    if operator.notes:
        lines += [operator.notes, ""]
    lines.append("Args:")
    for operand in operator.inputs:
        lines.append(f"    {operand.parameter}: {_operand(operand, table.dtypes[operand.dtype])}.")
    for a in operator.asked:
        lines.append(f"    {a.parameter}: {a.kind.documented}{'' if isinstance(a.kind, EnumKind) else '.'}")
    if operator.output_types:
        has_zero_point = any("ZeroPoint" in s.name for s in operator.inputs)
        default = "that of zero_point, else UINT8" if has_zero_point else "UINT8"
        lines.append(f"    output_data_type: {listed(operator.output_types)}; default {default}.")
    lines.append("    out: where to write.")
    lines += ["", "Returns:", f"    {_result(operator)}", ""]
    return "\n".join([*(part for line in lines for part in _wrap(line)), *_example(operator)])


def _wrap(line: str) -> list[str]:
    """A line as several."""
    if len(line) <= 100:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    after = indent + ("    " if indent else "")
    return textwrap.wrap(
        line.strip(), 100, initial_indent=indent, subsequent_indent=after, break_on_hyphens=False
    )


def _operand(operand: Operand, types: tuple[TensorDataType, ...]) -> str:
    said = listed(types)
    if operand.sizes == ONE:
        said += ", one element"
    return said + ("; may be left out" if operand.optional is not None else "")


def _result(operator: Operator) -> str:
    (output,) = operator.outputs
    tied = next((s.parameter for s in operator.inputs if s.dtype == output.dtype), "")
    kind = "that type" if operator.output_types else f"the type of {tied}" if tied else "UINT8"
    shape = "the common shape" if len(operator.inputs) > 1 else "the shape of input"
    return f"An array of {kind} and {shape}, or `out`."


def _example(operator: Operator) -> list[str]:
    """The definition's example as a doctest."""
    example = operator.example
    arguments = []
    for operand, content in zip(operator.inputs, example.inputs, strict=True):
        dtype = operator.example_type(operand.dtype)
        arguments.append(_array(content, dtype) if isinstance(content, list) else repr(content))
    for a in operator.asked:
        if a.parameter in example.attributes:
            arguments.append(f"{a.parameter}={example.attributes[a.parameter]!r}")
    while arguments[-1] == "None":
        arguments.pop()
    call = f"dml.{operator.function}({', '.join(arguments)})"
    output = operator.example_type(operator.outputs[0].dtype)
    with np.errstate(all="ignore"):
        shown = repr(np.array(example.output, output.label)).splitlines()
    return [">>> import numpy as np, anydml as dml", *_break_call(call), *shown]


def _break_call(call: str) -> list[str]:
    """A call in a doctest, over two lines if it is long."""
    if len(call) <= 95:
        return [f">>> {call}"]
    name, _, arguments = call.partition("(")
    half = arguments.index("np.", len(arguments) // 2)
    lines = [arguments[:half].rstrip(), arguments[half:-1]]
    return [f">>> {name}(", *(f"...     {line}" for line in lines), "... )"]


def _array(content: Any, dtype: TensorDataType) -> str:
    return f"np.{dtype.label}({_literal(content)})"


def _literal(content: Any) -> str:
    if isinstance(content, list):
        return "[" + ", ".join(map(_literal, content)) + "]"
    if isinstance(content, float) and not math.isfinite(content):
        return "np.nan" if math.isnan(content) else "np.inf" if content > 0 else "-np.inf"
    return repr(content)
