"""Writes anydml/onnx/schemas.txt from the onnx package: `python -m tools.generate_schemas`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx

from anydml.onnx.schema import ML_DOMAIN, Form, Formal, form_from, table_name

TARGET = Path(__file__).parent.parent / "anydml" / "onnx" / "schemas.txt"


def main() -> None:
    TARGET.write_text(source(), "utf-8", newline="\n")


def source() -> str:
    """In lines: the newest opset of each domain; sets of types; operators by name, a domain with a colon in
    front if it is not ONNX's own, their revisions from the newest on."""
    types: list[list[str]] = []
    operators: dict[str, list[Any]] = {}
    schemas = onnx.defs.get_all_schemas_with_history()
    for schema in sorted(schemas, key=lambda s: (s.name, s.since_version)):
        if schema.domain in ("", ML_DOMAIN):
            name = table_name(schema.domain, schema.name)
            operators.setdefault(name, []).append(_entry(form_from(schema), types))
    lines = [
        f"{name} {_text(sorted(revisions, key=lambda r: -r[0]))}"
        for name, revisions in sorted(operators.items())
    ]
    newest = {"": onnx.defs.onnx_opset_version(), ML_DOMAIN: onnx.defs.onnx_ml_opset_version()}
    parts = [_text(newest)], map(_text, types), lines
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _entry(form: Form, types: list[list[str]]) -> list[Any]:
    attributes = {
        name: [kind, int(name in form.required), [_plain(d) for n, d in form.defaults.items() if n == name]]
        for name, kind in form.attributes.items()
    }
    given, made = ([_formal(f, types) for f in formals] for formals in (form.given, form.made))
    return [form.since, form.inputs, form.outputs, given, made, attributes]


def _formal(formal: Formal, types: list[list[str]]) -> list[Any]:
    names = sorted(formal.types)
    if names not in types:
        types.append(names)
    return [formal.name, types.index(names), formal.variable, int(formal.homogeneous), int(formal.optional)]


def _plain(value: Any) -> Any:
    """Bytes as text, which nothing else is."""
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, int | float) else [_plain(item) for item in value]


if __name__ == "__main__":
    main()
