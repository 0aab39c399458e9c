"""The tables of what runtimes take, a file of tab-separated values each: operators, revisions, types.

directml.tsv: what onnxruntime's DirectML provider registers. The others: what their makers' pages say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from anydml.dataclass import dataclass
from anydml.ir.graph import OnnxOp
from anydml.onnx.schema import form_of

NAMES: Mapping[str, str] = {
    "directml": "DirectML, through onnxruntime's provider",
    "tensorrt": "TensorRT",
    "openvino": "OpenVINO",
    "qnn": "QNN, through onnxruntime's provider",
    "coreml": "CoreML, through onnxruntime's provider",
    "webnn": "WebNN, through onnxruntime's provider",
}

BRANCHES: Mapping[str, Literal["ranks", "sizes"]] = {"tensorrt": "ranks", "openvino": "ranks", "qnn": "sizes"}
"""What has to be equal of the results of an If's branches, and known before the run."""


@dataclass(frozen=True)
class Registration:
    """One revision of an operator that onnxruntime's DirectML provider takes.

    Attributes:
        types: by the name of the constraint in ONNX's schema, in ONNX's words: `float`.
        constants: numbers of inputs that have to be constants in a compiled graph.
        directml: names of the DirectML operators that it may become; none: a copy, or the host does it.
        compiled: whether a compiled graph may hold it.
    """

    since: int
    types: Mapping[str, frozenset[str]]
    constants: tuple[int, ...]
    directml: tuple[str, ...]
    compiled: bool
    note: str


@dataclass(frozen=True)
class Support:
    """What a page says of an operator. `first`, `last`: opsets; None where it does not say."""

    taken: bool
    first: int | None
    last: int | None
    types: frozenset[str]
    note: str


@cache
def registrations() -> Mapping[str, Sequence[Registration]]:
    """DirectML's, by operator, as `com.microsoft.Gelu` where it is not ONNX's own; the oldest first."""
    found: dict[str, list[Registration]] = {}
    for operator, since, types, constants, directml, compiled, note in _rows("directml"):
        by_name = dict(one.split("=") for one in types.split(";") if one)
        found.setdefault(operator, []).append(
            Registration(
                int(since),
                {name: frozenset(listed.split(",")) for name, listed in by_name.items()},
                tuple(int(k) for k in constants.split(",") if k),
                tuple(name for name in directml.split(",") if name),
                compiled == "yes",
                note,
            )
        )
    return {name: sorted(rows, key=lambda r: r.since) for name, rows in found.items()}


def registered(op: OnnxOp) -> Registration | None:
    """The registration of exactly the revision that an operator has at an opset."""
    form = form_of(op)
    rows = registrations().get(str(op), ())
    return next((r for r in rows if form is None or r.since == form.since), None)


@cache
def supported(target: str) -> Mapping[str, Support]:
    """What another runtime takes, by operator."""
    found = {}
    for operator, opsets, types, note in _rows(target):
        first, _, last = opsets.rstrip("+").partition("-")
        refused = note.startswith("not supported")
        found[operator] = Support(
            not refused,
            int(first) if first else None,
            int(last) if last else None,
            frozenset(t for t in types.split(",") if t),
            note.removeprefix("not supported:").strip(),
        )
    return found


def source(target: str) -> str:
    """What a table was made from."""
    return _text(target).splitlines()[0].removeprefix("#").strip()


def _rows(target: str) -> list[list[str]]:
    lines = [line for line in _text(target).splitlines() if not line.startswith("#")]
    width = len(lines[0].split("\t"))
    return [(line + "\t" * width).split("\t")[:width] for line in lines[1:]]


def _text(target: str) -> str:
    return Path(__file__).with_name(f"{target}.tsv").read_text("utf-8")
