"""Writes docs/operators from the catalog: `python -m tools.generate_docs`."""

from __future__ import annotations

from pathlib import Path

from anydml.heavy import how_computed
from anydml.ops.catalog import CATALOG
from anydml.ops.document import markdown, table, types_in_words

FOLDER = Path(__file__).parent.parent / "docs" / "operators"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)


def pages() -> dict[str, str]:
    """The text of each file."""
    rows = [
        (
            f"[{o.name}]({o.name}.md)",
            f"`dml.{o.function}`",
            o.introduced.label,
            types_in_words(o),
            "yes" if o.in_place else "no",
            how_computed(o),
        )
        for o in CATALOG
    ]
    head = (
        f"# Operators\n\nAll {len(CATALOG)} of DirectML's, with types, feature levels, rules, examples. "
        "How exact they are: [accuracy](../accuracy.md).\n\n"
    )
    heads = ("operator", "function", "since", "types of the first tensor", "in place", "computed by")
    index = head + table(heads, rows) + "\n"
    return {"README.md": index} | {f"{o.name}.md": markdown(o) for o in CATALOG}


if __name__ == "__main__":
    main()
