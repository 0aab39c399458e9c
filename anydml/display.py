"""What notebooks show of reports, models, graphs and sessions: plain HTML, without styles of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def page(title: str, *parts: str) -> str:
    """A title in bold, and what stands below it."""
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Rows of cells as text; nothing where there are no rows."""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return (
        f"<table><thead><tr>{_cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>" if body else ""
    )


def text(content: str) -> str:
    """Lines as they are."""
    return f"<pre>{escape(content)}</pre>" if content else ""


def signature(inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """Types by name, as `(x float32[n,4]) -> (y float32[n])`."""
    listed = (", ".join(f"{name} {type}" for name, type in ends.items()) for ends in (inputs, outputs))
    return "({}) -> ({})".format(*listed)


def escape(content: str) -> str:
    import html  # large, and of no use to who has no notebook

    return html.escape(content)


def _cells(tag: str, content: Iterable[object]) -> str:
    return "".join(f'<{tag} style="text-align: left">{escape(str(cell))}</{tag}>' for cell in content)
