"""All operators that exist here, in one explicit tuple."""

from __future__ import annotations

from anydml.spec.elementwise import ELEMENT_WISE_IF, ELEMENT_WISE_IS_INFINITY
from anydml.spec.schema import Operator

CATALOG: tuple[Operator, ...] = (
    ELEMENT_WISE_IF,
    ELEMENT_WISE_IS_INFINITY,
)

BY_NAME: dict[str, Operator] = {operator.name: operator for operator in CATALOG}
