"""What libraries say, in fewer words."""

from __future__ import annotations

import re


def first_line(error: Exception) -> str:
    """The library's own words, without its prefix of codes."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error)) or type(error).__name__
    text = text.splitlines()[0] if text.splitlines() else text
    text = re.sub(r" node with name '\d*'$", "", text)
    return re.sub(
        r"Non-zero status code returned while running \w+ node\. Name:'\d+' Status Message: ", "", text
    )
