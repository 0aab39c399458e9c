"""A definition as the docstring of its Python function, with its example as a doctest."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np

from anydml.ops.attributes import EnumKind
from anydml.ops.dtypes import FLOAT32, UINT32, listed
from anydml.ops.enums import TensorDataType
from anydml.ops.opdef import ONE, Operand, Operator
from anydml.ops.shapes import explained, shape_in_words


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
        said = _operand(operator, operand, table.dtypes[operand.dtype])
        if operand.optional is not None:
            said += "; or None" if _needed_behind(operator, operand) else "; may be left out"
        lines.append(f"    {operand.parameter}: {said}.")
    for asked in operator.asks:
        lines.append(f"    {asked.name}: {asked.documented}.")
    for a in operator.asked:
        lines.append(f"    {a.parameter}: {a.kind.documented}{'' if isinstance(a.kind, EnumKind) else '.'}")
    if operator.output_types:
        has_zero_point = any("ZeroPoint" in s.name for s in operator.inputs)
        usual = "UINT8"
        if operator.compute:  # as `types_of` has it
            may_be = {t for s in operator.inputs for t in table.dtypes[s.dtype]}
            named = [t.name for t in (FLOAT32, UINT32) if t in operator.output_types]
            from_inputs = "that of the first input" if may_be & {*operator.output_types} else None
            usual = named[0] if named else from_inputs or operator.output_types[0].name
        default = f"that of zero_point, else {usual}" if has_zero_point else usual
        if operator.usual_type is not None:
            default = "as the function usually has it"
        usually = "must be given if no out is" if operator.told else f"default {default}"
        lines.append(f"    output_data_type: {listed(operator.output_types)}; {usually}.")
    lines.append("    out: where to write.")
    lines += ["", "Returns:", f"    {_result(operator)}", ""]
    if more := explained(operator.shapes.values()):
        lines += [f"{more}.", ""]
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


def _operand(operator: Operator, operand: Operand, types: tuple[TensorDataType, ...]) -> str:
    said = listed(types)
    if operator.shapes:
        said = f"{shape_in_words(operator.shapes[operand.parameter])}; {said}"
    elif operand.sizes == ONE:
        said += ", one element"
    if operand.array:
        said = f"a list of arrays; {said}"
    return said


def _result(operator: Operator) -> str:
    if operator.compute is not None:
        names = [s.parameter for s in operator.outputs]
        shapes = [shape_in_words(operator.shapes[n]) for n in names if n in operator.shapes]
        if len(names) > 1:
            each = [f"{n} {s}" for n, s in zip(names, shapes, strict=True)] if shapes else names
            return f"A tuple of arrays, {', '.join(each)}, or `out`."
        what = "A tuple of arrays" if operator.outputs[0].array else "An array"
        return " ".join([what, *(f"({s})" if s[0] != "[" else s for s in shapes)]) + ", or `out`."
    (output,) = operator.outputs
    tied = next((s.parameter for s in operator.inputs if s.dtype == output.dtype), "")
    kind = "that type" if operator.output_types else f"the type of {tied}" if tied else "UINT8"
    shape = "the common shape" if len(operator.inputs) > 1 else "the shape of input"
    return f"An array of {kind} and {shape}, or `out`."


def _example(operator: Operator) -> list[str]:
    """The definition's example as a doctest."""
    call = call_of_example(operator)
    outputs = operator.example.output if operator.gives_several else (operator.example.output,)
    shown = []
    with np.errstate(all="ignore"):
        for operand, content in zip(_output_operands(operator), outputs, strict=True):
            shown.append(repr(np.array(content, operator.example_type(operand.dtype).label)))
    lines = (
        ("(" + ", ".join(shown) + ("," if len(shown) == 1 else "") + ")")
        if operator.gives_several
        else shown[0]
    )
    return [">>> import numpy as np, anydml as dml", *_break_call(call), *filter(None, lines.splitlines())]


def _output_operands(operator: Operator) -> list[Operand]:
    """The operand of each array of the example's result."""
    (first, *_) = operator.outputs
    return [first] * len(operator.example.output) if first.array else list(operator.outputs)


def call_of_example(operator: Operator) -> str:
    """The example as Python."""
    example, arguments, named = operator.example, [], False
    for operand, content in zip(operator.inputs, example.inputs, strict=True):
        dtype = operator.example_type(operand.dtype)
        if operand.array:
            text = "[" + ", ".join(_array(x, dtype) for x in content) + "]"
        else:
            text = _array(content, dtype) if isinstance(content, list) else repr(content)
        if operator.compute is not None and content is None and not _needed_behind(operator, operand):
            named = True  # what follows is given by name
            continue
        arguments.append(f"{operand.parameter}={text}" if named else text)
    names = [a.name for a in operator.asks] + [a.parameter for a in operator.asked]
    arguments += [f"{n}={example.attributes[n]!r}" for n in names if n in example.attributes]
    if "output_data_type" in example.attributes:
        arguments.append(f"output_data_type={example.attributes['output_data_type']!r}")
    while arguments and arguments[-1] == "None":
        arguments.pop()
    return f"dml.{operator.function}({', '.join(arguments)})"


def _needed_behind(operator: Operator, operand: Operand) -> bool:
    """Whether a tensor stands before one that must be given, and so is given as None."""
    behind = operator.inputs[operator.inputs.index(operand) :]
    return any(s.optional is None for s in behind)


def _break_call(call: str) -> list[str]:
    """A call in a doctest, over two lines if it is long."""
    if len(call) <= 95:
        return [f">>> {call}"]
    name, _, arguments = call.partition("(")
    parts = arguments[:-1].split(", np.")
    lines = [f"{'np.' * (k > 0)}{part}," for k, part in enumerate(parts)]
    lines[-1] = lines[-1].removesuffix(",")
    return [f">>> {name}(", *(f"...     {line}" for line in lines), "... )"]


def _array(content: Any, dtype: TensorDataType) -> str:
    return f"np.{dtype.label}({_literal(content)})"


def _literal(content: Any) -> str:
    if isinstance(content, list):
        return "[" + ", ".join(map(_literal, content)) + "]"
    if isinstance(content, float) and not math.isfinite(content):
        return "np.nan" if math.isnan(content) else "np.inf" if content > 0 else "-np.inf"
    return repr(content)
