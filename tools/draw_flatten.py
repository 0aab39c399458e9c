"""Draw what `flatten` does to Silero VAD as docs/flatten.png: `python -m tools.draw_flatten [FILE]`.

Both models at one scale: a square is a node, a frame an If with its branches side by side; what runs later
stands below. Constants are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto, GraphProto, NodeProto

import anydml
from demo.speech import model_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TARGET = Path(__file__).parent.parent / "docs" / "flatten.png"
FIXED = {"sr": 16000}
COLUMNS = 8
"""Nodes in one row."""
HEAD, MARGIN, GAP = 1.6, 0.5, 0.45
"""In sides of a node's square: what a frame needs above, around and between its parts."""
BACK, TEXT, NODE, FRAME = "#fbfbf9", "#1d2433", "#7f8ca3", "#2f6feb"
BRANCHES = {"then": "#d9efdf", "else": "#fbe2d2"}


def main(path: Path) -> None:
    before = onnx.load(model_path())
    after, report = anydml.flatten(before, fixed=FIXED, verify=False)
    assert not report.left
    draw(before.graph, after.graph, path)


@dataclass(frozen=True)
class Run:
    """Nodes one after the other, without an If between them."""

    count: int

    @property
    def size(self) -> tuple[float, float]:
        return min(self.count, COLUMNS), -(-self.count // COLUMNS)

    def draw(self, axes: Axes, x: float, y: float) -> None:
        for k in range(self.count):
            row, column = divmod(k, COLUMNS)
            _box(axes, x + column + 0.14, y + row + 0.14, 0.72, 0.72, NODE)


@dataclass(frozen=True)
class Stack:
    """A graph: its parts from top to bottom, each in the middle."""

    parts: tuple[Run | Frame, ...]

    @property
    def size(self) -> tuple[float, float]:
        sizes = [part.size for part in self.parts]
        return max(w for w, _ in sizes), sum(h for _, h in sizes) + GAP * (len(sizes) - 1)

    def draw(self, axes: Axes, x: float, y: float) -> None:
        middle = x + self.size[0] / 2
        for part in self.parts:
            width, height = part.size
            part.draw(axes, middle - width / 2, y)
            y += height + GAP


@dataclass(frozen=True)
class Frame:
    """An If: its branches side by side."""

    branches: dict[str, Stack]

    @property
    def size(self) -> tuple[float, float]:
        sizes = [stack.size for stack in self.branches.values()]
        wide = sum(max(w, 2) + 2 * MARGIN for w, _ in sizes) + GAP * (len(sizes) + 1)
        return wide, max(h for _, h in sizes) + HEAD + 2 * MARGIN + GAP

    def draw(self, axes: Axes, x: float, y: float) -> None:
        width, height = self.size
        _box(axes, x, y, width, height, "white", FRAME)
        axes.text(x + width / 2, y + HEAD / 2, "If", color=FRAME, fontsize=7, ha="center", va="center")
        x += GAP
        for word, stack in self.branches.items():
            inner, wide = stack.size[0], max(stack.size[0], 2) + 2 * MARGIN
            _box(axes, x, y + HEAD, wide, height - HEAD - GAP, BRANCHES[word])
            stack.draw(axes, x + (wide - inner) / 2, y + HEAD + MARGIN)
            x += wide + GAP


def stacked(graph: GraphProto) -> Stack:
    """A graph as it is drawn."""
    parts: list[Run | Frame] = []
    for node in graph.node:
        if node.op_type == "If":
            parts.append(
                Frame({word: stacked(branch) for word, branch in sorted(branches(node), reverse=True)})
            )
        elif node.op_type != "Constant":
            before = parts[-1] if parts else None
            if isinstance(before, Run):
                parts[-1] = Run(before.count + 1)
            else:
                parts.append(Run(1))
    return Stack(tuple(parts))


def branches(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.name.removesuffix("_branch"), attribute.g


def counted(graph: GraphProto) -> tuple[int, int]:
    """Nodes that are no constants, and how many of them are Ifs; those of branches, too."""
    shown = [node for node in graph.node if node.op_type != "Constant"]
    inside = [counted(branch) for node in shown for _, branch in branches(node)]
    ifs = sum(node.op_type == "If" for node in shown)
    return len(shown) + sum(n for n, _ in inside), ifs + sum(n for _, n in inside)


def draw(before: GraphProto, after: GraphProto, path: Path) -> None:
    """Both side by side, as a PNG of 1,600 pixels' width."""
    import matplotlib  # only here: it takes a while to import

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    left, right, between = stacked(before), stacked(after), 13.5
    edge, top = 1.5, 4.5
    width = left.size[0] + between + right.size[0] + 2 * edge + 3
    height = left.size[1] + top + edge
    figure = plt.figure(figsize=(8, 8 * height / width), facecolor=BACK)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    there = edge + left.size[0] + between
    for graph, stack, x, y in (
        (before, left, edge, top),
        (after, right, there, (height - right.size[1]) / 2),
    ):
        nodes, ifs = counted(graph)
        title = f"{nodes} nodes, {f'{ifs} of them Ifs' if ifs else 'no If'}"
        axes.text(x + stack.size[0] / 2, y - 1.6, title, color=TEXT, fontsize=10, ha="center", va="center")
        stack.draw(axes, x, y)
    start, middle = there - between + 1.5, height / 2
    axes.annotate("", (there - 1.5, middle), (start, middle), arrowprops={"arrowstyle": "->", "color": TEXT})
    command = "anydml flatten\n" + " ".join(f"--set {name}={value}" for name, value in FIXED.items())
    axes.text(
        (start + there - 1.5) / 2,
        middle - 1,
        command,
        color=TEXT,
        fontsize=8,
        family="monospace",
        ha="center",
        va="bottom",
    )
    _legend(axes, there, height - edge)
    figure.savefig(path, dpi=200, metadata={"Software": None})
    plt.close(figure)


def _legend(axes: Axes, x: float, bottom: float) -> None:
    for k, (color, word) in enumerate([(NODE, "a node"), *((c, w) for w, c in BRANCHES.items())][::-1]):
        y = bottom - 1 - 1.6 * k
        _box(axes, x + 0.14, y + 0.14, 0.72, 0.72, color)
        axes.text(x + 1.6, y + 0.5, word, color=TEXT, fontsize=8, va="center")


def _box(axes: Axes, x: float, y: float, width: float, height: float, color: str, edge: str = "none") -> None:
    from matplotlib.patches import FancyBboxPatch

    style = f"round,pad=0,rounding_size={min(0.35, min(width, height) / 4)}"
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle=style, facecolor=color, edgecolor=edge, linewidth=0.8, zorder=2
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
