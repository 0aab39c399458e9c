"""What a check has found, in numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """How often something was tried, and how often it went wrong."""

    what: str
    """Such as "operators, functions and graphs between guard pages"."""
    count: int
    """How many were tried."""
    bad: int
    """How many went wrong; 0 is wanted."""
    note: str
    """Such as "92 operators, 11 data types, 37 s"."""
