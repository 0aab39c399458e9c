"""In how many files of the package each ONNX operator is named: `python -m tools.count_places`.

Not counted are rewrites, whose rules are about operators, and the node builder, which makes nodes.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import onnx

ROOT = Path(__file__).parent.parent / "anydml"
NOT_COUNTED = ("onnx/rewrites/", "onnx/node_builder.py")


def files_by_operator() -> dict[str, list[str]]:
    """The files that name an operator in quotes, by operator of ONNX's own domain."""
    names = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ""}
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "onnx").rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(NOT_COUNTED):
            continue
        words = {w for text in strings(ast.parse(path.read_text())) for w in text.split()}
        for name in names & words:
            found.setdefault(name, []).append(place)
    return found


def strings(tree: ast.Module) -> Iterator[str]:
    """The strings of a file that are no docstrings."""
    docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def main() -> None:
    found = files_by_operator()
    for name, places in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        if len(places) > 1:
            print(f"{name}: {', '.join(places)}")
    counts = Counter(len(places) for places in found.values())
    once = counts[1] / max(len(found), 1)
    print(
        f"{len(found)} operators are named; {counts[1]} ({once:.0%}) in one file",
        dict(sorted(counts.items())),
    )


if __name__ == "__main__":
    main()
