"""Writes docs/operators from the catalog: `python -m tools.generate_docs`."""

from __future__ import annotations

import re
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
            f"[{o.name}]({o.name}.md)<br>`dml.{o.function}` ([example]({o.name}.md#example))",
            ", ".join(level.label for level in sorted(o.levels)),
            in_brief(types_in_words(o)),
            "yes" if o.in_place else "no",
            how_computed(o),
        )
        for o in CATALOG
    ]
    head = (
        f"# Operators\n\nAll {len(CATALOG)} of DirectML's: the function of each, the feature levels that "
        "brought or changed it, the types of its first tensor (`int8..64`: int8, int16, int32, int64), "
        "whether the output may lie where an input does, and what computes it. Their pages tell sizes, types "
        "and ranks by feature level, rules, and an example. How exact they are: "
        "[accuracy](../accuracy.md).\n\n"
        "Sizes are listed as in `[N, C, S...]`: capital letters are sizes, the same in all tensors of an "
        "operator, `S...` several of them, `...` any number; small letters are parameters.\n\n"
    )
    heads = ("operator, function", "levels", "types", "in place", "computed by")
    index = head + table(heads, rows) + "\n"
    return {"README.md": index} | {f"{o.name}.md": markdown(o) for o in CATALOG}


def in_brief(types: str) -> str:
    """Types of which each is twice as wide as the one before it, three or more, as a range.

    >>> in_brief("float16 | float32 | int8 | int16 | int32 | int64 | uint8 | uint32")
    'float16, float32, int8..64, uint8, uint32'
    """
    runs: list[list[tuple[str, int]]] = []
    for kind, width in re.findall(r"([a-z]+)(\d+)", types):
        if runs and runs[-1][-1] == (kind, int(width) // 2):
            runs[-1].append((kind, int(width)))
        else:
            runs.append([(kind, int(width))])
    parts: list[str] = []
    for run in runs:
        (kind, least), (_, most) = run[0], run[-1]
        parts += [f"{kind}{least}..{most}"] if len(run) > 2 else [f"{k}{w}" for k, w in run]
    return ", ".join(parts)


if __name__ == "__main__":
    main()
