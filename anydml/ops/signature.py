"""The parameters of operators' functions."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

from anydml.ops.opdef import REQUIRED, Operator

GIVEN_BY_NAME = ("output_data_type", "out")
"""What every function has, or most, behind an operator's own parameters."""


def signature(operator: Operator) -> Signature:
    """The parameters of an operator's function: tensors, what sizes need, attributes, and keywords."""

    def parameter(name: str, annotation: str, default: Any = REQUIRED) -> Parameter:
        given = Parameter.empty if default is REQUIRED else default
        return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=given, annotation=annotation)

    parts = []
    needed = max((k for k, s in enumerate(operator.inputs) if s.optional is None), default=-1)
    for k, s in enumerate(operator.inputs):
        kind = "Sequence[Tensor | Expression]" if s.array else "Tensor | Expression"
        kind += " | None" * (s.optional is not None)
        parts.append(parameter(s.parameter, kind, None if k > needed else REQUIRED))
    parts += [parameter(a.name, a.annotation, a.default) for a in operator.asks]
    parts += [parameter(a.parameter, a.kind.annotation, a.default) for a in operator.asked]
    first = next((k for k, p in enumerate(parts) if p.default is not Parameter.empty), len(parts))
    late = [p for p in parts[first:] if p.default is Parameter.empty]  # behind what may be left out
    parts = [p for p in parts if p not in late] + [p.replace(kind=Parameter.KEYWORD_ONLY) for p in late]
    keywords = {"output_data_type": "TensorDataType | str | None"} if operator.output_types else {}
    keywords["out"] = "Out | None"
    parts += [Parameter(n, Parameter.KEYWORD_ONLY, default=None, annotation=a) for n, a in keywords.items()]
    several = "tuple[Array, ...] | " * operator.gives_several
    return Signature(parts, return_annotation=f"Array | {several}Out | Expression")
