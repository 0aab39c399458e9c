"""DxDispatch's JSON, read as that tool reads it.

    {"a": 1, "a": 2, /* comments, */}   what follows the value is not looked at

A field is looked up by its name, and the first of two counts; of two entries of a dictionary that the tool
makes its own of, such as resources, the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from anydml.errors import InvalidModel, Problem

MAX_TEXT = 1 << 26
_BOM = b"\xef\xbb\xbf"
_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMA = re.compile(r'"(?:\\.|[^"\\\n])*"|,(?=\s*[}\]])', re.DOTALL)
_NO_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as Python passes them on."""


class JsonObject(dict[str, Any]):
    """An object of a file by its fields; `entries`: the same as a dictionary of the tool's."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.entries: Mapping[str, Any] = self
        if len(self) < len(pairs):
            self.entries = dict(self)
            self.update(reversed(pairs))


def entries(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a section's names stand for: the last of those that are given twice."""
    return value.entries if isinstance(value, JsonObject) else value


def parse_json(data: bytes, where: str) -> Any:
    """The value that a file begins with. Places in errors are the file's.

    Raises:
        InvalidModel: malformed, or too large to be meant.
    """
    if len(data) > MAX_TEXT:
        message = f"expected at most {MAX_TEXT:,} bytes of JSON, but got {len(data):,}"
        raise InvalidModel(Problem(where, message, "larger arrays can be in files of their own, as .npy"))
    text = data.removeprefix(_BOM).decode(errors="surrogateescape")
    blank = _TOKENS.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
    blank = _COMMA.sub(lambda m: m[0] if m[0][0] == '"' else " ", blank)

    def constant(word: str) -> Any:
        message = f'expected a number, but got {word}; write "nan", "inf" or "-inf"'
        raise InvalidModel(Problem(where, message))

    decoder = json.JSONDecoder(object_pairs_hook=JsonObject, parse_constant=constant)
    try:
        value, end = decoder.raw_decode(blank, len(blank) - len(blank.lstrip(" \t\r\n")))
    except json.JSONDecodeError as error:
        _check_text(data, text, blank, error.pos + 1, where)
        message = f"expected JSON, but line {error.lineno}, column {error.colno} is not: {error.msg}"
        raise InvalidModel(Problem(where, message)) from error
    except InvalidModel:
        raise
    except ValueError as error:  # of an integer of thousands of digits
        raise InvalidModel(Problem(where, "expected JSON, but a number has thousands of digits")) from error
    except RecursionError as error:
        raise InvalidModel(
            Problem(where, "expected JSON of reasonable depth, but it nests too deeply")
        ) from error
    _check_text(data, text, blank, end, where)
    return value


def _check_text(data: bytes, text: str, blank: str, end: int, where: str) -> None:
    """Raises InvalidModel if `blank` has bytes before `end` that are no text; in comments they may be."""
    if not text.isascii() and (found := _NO_TEXT.search(blank, 0, end)):
        before = text[: found.start()].encode(errors="surrogateescape")
        at = len(before) + (len(_BOM) if data.startswith(_BOM) else 0)
        raise InvalidModel(Problem(where, f"expected text in UTF-8, but byte {at} is not"))
