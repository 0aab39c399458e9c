"""A definition as documentation: what `anydml operators NAME` prints, and the pages in docs/operators."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from inspect import Parameter

from anydml.ops.attributes import EnumKind
from anydml.ops.docstring import call_of_example
from anydml.ops.dtypes import listed
from anydml.ops.formula import text
from anydml.ops.opdef import ONE, REQUIRED, Attribute, Operand, Operator, Rule, Table
from anydml.ops.shapes import explained, shape_in_words
from anydml.ops.signature import GIVEN_BY_NAME
from anydml.ops.signature import signature as parameters


def markdown(operator: Operator) -> str:
    """The page of an operator."""
    newest = operator.levels[max(operator.levels)]
    parts = [
        f"# {operator.name}",
        operator.doc,
        f"`dml.{signature(operator)}`",
        *([operator.notes] if operator.notes else []),
        f"**Formula{_instance(operator)}:** `{formula(operator)}`",
        "## Tensors",
        _tensors(operator, newest),
    ]
    if operator.attributes:
        rows = [
            (a.name, a.parameter, a.kind.documented or a.kind.form, _default(a)) for a in operator.attributes
        ]
        parts += ["## Attributes", table(("field", "parameter", "value", "default"), rows)]
    parts += ["## Feature levels", table(("level", "ranks", *_letters(operator)), list(_levels(operator)))]
    parts += ["## Constraints", "\n".join(f"- {line}" for line in constraints(operator))]
    parts += ["## Example", f"```python\n{example(operator)}\n```"]
    return "\n\n".join(parts) + "\n"


def _tensors(operator: Operator, newest: Table) -> str:
    heads = ["field", "parameter", f"data types from {max(operator.levels).label} on", ""]
    rows = [[s.name, s.parameter, listed(newest.dtypes[s.dtype]), _role(s)] for s in operator.tensors]
    if operator.shapes:
        heads.insert(2, "sizes")
        for row, s in zip(rows, operator.tensors, strict=True):
            row.insert(2, shape_in_words(operator.shapes[s.parameter]))
    more = explained(operator.shapes.values())
    return table(heads, rows) + (f"\n\n`{more}`" if more else "")


def _instance(operator: Operator) -> str:
    """What the formula is written out for."""
    if operator.compute is not None:
        return ""
    return ", with the types and attributes of the example" if operator.parameters else ""


def signature(operator: Operator) -> str:
    if operator.compute is not None:
        shown = [p for p in parameters(operator).parameters.values() if p.name not in GIVEN_BY_NAME]
        parts = [_in_signature(p) for p in shown]
        by_name = next((k for k, p in enumerate(shown) if p.kind is Parameter.KEYWORD_ONLY), None)
        if by_name is not None:
            parts.insert(by_name, "*")
        return f"{operator.function}({', '.join(parts)})"
    # an input that may be left out, before one that may not, is given as None
    needed = max(k for k, s in enumerate(operator.inputs) if s.optional is None)
    tensors = [s.parameter + "=None" * (k > needed) for k, s in enumerate(operator.inputs)]
    given = [a.parameter if a.default is REQUIRED else f"{a.parameter}={_default(a)}" for a in operator.asked]
    return f"{operator.function}({', '.join([*tensors, *given])})"


def _in_signature(p: Parameter) -> str:
    if p.default is Parameter.empty:
        return p.name
    return f"{p.name}={p.default.name if isinstance(p.default, Enum) else repr(p.default)}"


def formula(operator: Operator) -> str:
    """The meaning, for the example's types and attributes."""
    if operator.compute is not None:
        return operator.text
    types = tuple(operator.example_type(s.dtype) for s in operator.inputs)
    (output,) = operator.outputs
    values = {a.name: a.default for a in operator.parameters}
    for a in operator.parameters:
        if a.parameter in operator.example.attributes and not a.optional:
            values[a.name] = a.kind.read(operator.example.attributes[a.parameter], a.name)
        elif isinstance(a.kind, EnumKind):
            values[a.name] = a.default
    meaning = operator.expression(types, operator.example_type(output.dtype), values, 2)
    return f"{output.parameter} = {text(meaning, [s.parameter for s in operator.inputs])}"


def constraints(operator: Operator) -> list[str]:
    """What must hold, in words."""
    lines = []
    for what, field in (("data type", "dtype"), ("sizes", "sizes")):
        for type_variable in dict.fromkeys(getattr(s, field) for s in operator.tensors):
            tied = [s.name for s in operator.tensors if getattr(s, field) == type_variable]
            if not type_variable:
                continue
            if type_variable == ONE and what == "sizes":
                lines.append(f"{', '.join(tied)}: one element each, of as many dimensions.")
            elif len(tied) > 1:
                lines.append(f"{', '.join(tied)}: the same {what}.")
    before: tuple[Rule, ...] = ()
    for level, at in sorted(operator.levels.items()):
        lines += [f"From {level.label}: {rule.text}." for rule in at.rules if rule not in before]
        lines += [f"No more from {level.label}: {rule.text}." for rule in before if rule not in at.rules]
        before = at.rules
    for operand in operator.inputs:
        if operand.optional is not None:
            lines.append(f"{operand.name} may be left out from {operand.optional.label} on.")
    if operator.in_place:
        lines.append(f"In place: the output may be {' or '.join(operator.in_place)}.")
    else:
        apart = "Not in place: a dispatch's output must lie apart from the inputs; functions take any `out`"
        alike = ", but one that overlaps an input otherwise than element upon element"
        lines.append(f"{apart}{alike if operator.compute is None else ''}.")
    return lines


def example(operator: Operator) -> str:
    """The worked example as Python."""
    shown = operator.example
    if operator.compute is not None:
        return f"{call_of_example(operator)}  # {shown.output}"
    arguments = [
        repr(x) if not isinstance(x, list) else f"np.{operator.example_type(s.dtype).label}({x})"
        for s, x in zip(operator.inputs, shown.inputs, strict=True)
    ]
    while arguments[-1] == "None":
        arguments.pop()
    arguments += [f"{k}={v!r}" for k, v in shown.attributes.items()]
    given = re.sub(r"\b(inf|nan)\b", r"np.\1", ", ".join(arguments))
    return f"dml.{operator.function}({given})  # {shown.output}"


def types_in_words(operator: Operator) -> str:
    """The types of the first tensor at the newest level."""
    return listed(operator.levels[max(operator.levels)].dtypes[operator.tensors[0].dtype])


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads), *(list(row) for row in rows)]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    shown = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([shown[0], "|" + " --- |" * len(cells[0]), *shown[1:]])


def _role(operand: Operand) -> str:
    return f"{operand.kind}, optional" if operand.optional is not None else operand.kind


def _default(attribute: Attribute) -> str:
    if attribute.default is REQUIRED:
        return "that of the tensors" if attribute.implied else "must be given"
    return attribute.default.name if isinstance(attribute.kind, EnumKind) else repr(attribute.default)


def _letters(operator: Operator) -> list[str]:
    """Column heads: the tensors behind each type variable."""
    type_variables = dict.fromkeys(s.dtype for s in operator.tensors)
    return [
        ", ".join(s.name for s in operator.tensors if s.dtype == type_variable)
        for type_variable in type_variables
    ]


def _levels(operator: Operator) -> Iterable[tuple[str, ...]]:
    type_variables = dict.fromkeys(s.dtype for s in operator.tensors)
    for level, at in sorted(operator.levels.items()):
        low, high = at.rank
        ranks = str(low) if low == high else f"{low} to {high}"
        yield level.label, ranks, *(listed(at.dtypes[type_variable]) for type_variable in type_variables)
