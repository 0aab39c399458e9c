"""Cases for `search_provider_quirks`: nodes from quirk_table.txt, and what differs a little from them."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

Array = Any
_SIZES = "A2 B3 C4 D5 E6 G2 H5 I3 K5 L3 M4 N2 P2 Q3 R2 S4 V3 W6 X3 Y2 Z40"
SIZES = {word[0]: int(word[1:]) for word in _SIZES.split()}
_TYPES = "f:float32 d:float64 i64:int64 i32:int32 i16:int16 i8:int8 u8:uint8 u16:uint16 b:bool s:string"
TYPES = dict(word.split(":") for word in _TYPES.split())
DTYPES = tuple(
    "float32 int64 bool string uint8 float64 int32 int8 float16 uint64 int16 uint16 uint32".split()
)
"""What `T` stands for, one after the other."""
FULLY = frozenset(DTYPES[:5])
"""Of these every variation is tried, of the others those of contents only."""
_CONTROL = (0, 1, -1, -2, 3, 100, -(2**63), 2**63 - 1)
"""What axes, sizes and the like are replaced with, one element at a time."""


@dataclass(frozen=True)
class Slot:
    """An input of an example: its type's letter, and either sizes or content."""

    letter: str
    dims: str | None = None
    content: str | None = None
    scalar: bool = False
    below: str | None = None
    positive: bool = False
    elements: tuple[Slot, ...] | None = None


@dataclass(frozen=True)
class Example:
    """An operator with inputs and attributes, as a line of the table has them."""

    op: str
    opsets: tuple[int, int]
    slots: tuple[Slot | None, ...]
    attributes: Mapping[str, Any]
    outputs: int
    first: bool
    """Whether it is the first of its line."""


@dataclass(frozen=True)
class Case:
    """A node and its inputs. `kind` is what was varied, `detail` how."""

    op: str
    opset: int
    dtype: str
    kind: str
    detail: str
    inputs: tuple[Any, ...]
    """Arrays, lists of arrays, or None."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def node(self) -> onnx.NodeProto:
        names = ["" if x is None else f"i{k}" for k, x in enumerate(self.inputs)]
        while names and not names[-1]:
            names.pop()
        return helper.make_node(self.op, names, [f"o{k}" for k in range(self.outputs)], **self.attributes)

    @property
    def elements(self) -> int:
        return sum(x.size if isinstance(x, np.ndarray) else 1 for x in self.inputs if x is not None)


# ---- the table ---------------------------------------------------------------------------------------


def table() -> list[Example]:
    lines = Path(__file__).with_name("quirk_table.txt").read_text().splitlines()
    return [e for line in lines if line and not line.startswith("#") for e in _line(line)]


def _line(line: str) -> Iterator[Example]:
    ops, inputs, attributes, outputs = ([*re.split(r"\s*\|\s*", line.strip()), "", ""])[:4]
    named = re.fullmatch(r"([\w ]+?)(?:@(\d*)-(\d*))?", ops)
    assert named is not None, line
    opsets = int(named[2] or 1), int(named[3] or 999)
    alternatives = product(inputs.split(";"), re.split(r"(?:^|\s)/(?:\s|$)", attributes))
    for k, (given, set_) in enumerate(alternatives):
        slots = tuple(_slot(word) for word in given.split())
        for op in named[1].split():
            yield Example(op, opsets, slots, _attributes(set_), int(outputs or 1), not k)


def _attributes(text: str) -> dict[str, Any]:
    value = re.fullmatch(r"value=(\w+)(\{.*\})", text.strip())
    if value is not None:
        return {"value": onnx.numpy_helper.from_array(_listed(value[2], TYPES[value[1]], {}))}
    found: dict[str, Any] = eval(f"dict({text})", {"dict": dict})
    return found


def _slot(word: str) -> Slot | None:
    if word == "-":
        return None
    if word.startswith("seq:"):
        parts = re.findall(r"(\w+)\[([^\]]*)\]", word[4:])
        return Slot("T" if not parts else parts[0][0], elements=tuple(Slot(t, dims=d) for t, d in parts))
    found = re.fullmatch(r"(\w+)(\+?)(?:<(.*?)>)?(?:\[(.*)\]|(\{.*\})|\((.*)\))", word)
    assert found is not None, word
    letter, plus, below, dims, vector, scalar = found.groups()
    if scalar is not None:
        return Slot(letter, content=scalar, scalar=True, below=below) if scalar else Slot(letter, dims="")
    return Slot(letter, dims, vector, below=below, positive=bool(plus))


def _listed(text: str, dtype: str, sizes: Mapping[str, int]) -> Array:
    content = eval(text.replace("{", "[").replace("}", "]"), dict(sizes))
    with np.errstate(all="ignore"):
        return np.array(content).astype(numpy_type(dtype))


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(object if dtype == "string" else dtype)


# ---- contents ----------------------------------------------------------------------------------------


def _plain(dtype: str, shape: tuple[int, ...], slot: Slot, sizes: Mapping[str, int], rng: Any) -> Array:
    if slot.below is not None:
        most = eval(slot.below, dict(sizes))
        return np.asarray(rng.integers(0, max(most, 1), shape)).astype(numpy_type(dtype))
    if dtype == "string":
        return np.asarray(rng.choice(np.array(["a", "b", "bc", "a,b", ""], object), shape), dtype=object)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape), bool)
    if "int" in dtype:
        low = 1 if slot.positive else 0 if dtype[0] == "u" else -3
        return np.asarray(rng.integers(low, 5, shape)).astype(dtype)
    x = rng.uniform(0.3, 2.5, shape) if slot.positive else rng.uniform(-2.5, 2.5, shape)
    return np.asarray(np.round(x * 8) / 8 + (0.125 if slot.positive else 0)).astype(dtype)


def _edges(dtype: str) -> dict[str, list[Any]]:
    if dtype == "string":
        return {"texts": ["", "é", "ß", "İ", "日本", " a ", "a\x00b", "A,B"]}
    if dtype == "bool":
        return {"false": [False], "true": [True]}
    if "int" in dtype:
        info = np.iinfo(dtype)
        found: dict[str, list[Any]] = {"0": [0], "1": [1], "largest": [info.max], "half": [info.max // 2 + 1]}
        return found if dtype[0] == "u" else {**found, "-1": [-1], "smallest": [info.min]}
    f = np.finfo(dtype)
    return {
        "nan": [np.nan], "inf": [np.inf], "-inf": [-np.inf], "0.0": [0.0], "-0.0": [-0.0],
        "subnormal": [float(f.smallest_subnormal), -3 * float(f.smallest_subnormal)],
        "huge": [float(f.max), -float(f.max)], "large": [float(f.max) / 4],
        "halves": [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8388609.0],
        "10 to 90": [10.0, -10.0, 30.0, -30.0, 90.0, -90.0],
    }  # fmt: skip


def _filled(x: Array, values: Sequence[Any], rng: Any, share: float) -> Array:
    """x with some elements replaced."""
    y = x.copy()
    chosen = rng.random(x.shape) < share if x.size > 1 else np.ones(x.shape, bool)
    with np.errstate(all="ignore"):
        kept = np.array(values, object) if x.dtype == object else np.array(values).astype(x.dtype)
    y[chosen] = rng.choice(kept, x.shape)[chosen]
    return y


# ---- cases -------------------------------------------------------------------------------------------


def cases(example: Example, opset: int, dtype: str, nth: int) -> Iterator[Case]:
    """The example itself first, then its variations. `nth`: of how many types it is."""
    made = _make(example, opset, dtype, {}, "plain", "")
    yield made
    rng = np.random.default_rng(zlib.crc32(repr((example.op, opset, dtype)).encode()))
    if dtype in FULLY or not dtype:
        yield from _sized(example, opset, dtype)
        if nth < 2 or example.first:
            yield from _controlled(example, made)
            yield from _left_out(example, made)
            yield from _indexed(example, made, rng)
        if example.first and nth == 0:
            yield from _attributed(made)
    yield from _contents(example, made, rng, nth < 2 and example.first)


def _make(
    example: Example, opset: int, dtype: str, changed: Mapping[str, int], kind: str, detail: str
) -> Case:
    sizes = {**SIZES, **changed}
    rng = np.random.default_rng(zlib.crc32(example.op.encode()))

    def content(slot: Slot) -> Any:
        if slot.elements is not None:
            return [content(s) for s in slot.elements]
        named = dtype if slot.letter == "T" else TYPES[slot.letter]
        if slot.dims is not None:
            shape = tuple(eval(f"[{slot.dims}]", dict(sizes)))
            return _plain(named, shape, slot, sizes, rng)
        assert slot.content is not None
        return _listed(slot.content, named, sizes)

    inputs = tuple(None if s is None else content(s) for s in example.slots)
    return Case(example.op, opset, dtype, kind, detail, inputs, example.attributes, example.outputs)


def _sized(example: Example, opset: int, dtype: str) -> Iterator[Case]:
    used = "".join(s.dims or "" for s in example.slots if s is not None)
    used += "".join(e.dims or "" for s in example.slots if s is not None for e in s.elements or ())
    letters = sorted(set(re.findall(r"[A-Z]", used)))
    choices = [({n: 0}, "an empty axis", n) for n in letters] + [({n: 1}, "an axis of 1", n) for n in letters]
    if len(letters) > 1:
        choices.append((dict.fromkeys(letters, 0), "all axes empty", ""))
        choices.append((dict.fromkeys(letters, 1), "all axes of 1", ""))
    for changed, kind, letter in choices:
        shapes = " ".join(
            "-" if s is None else (s.dims if s.dims is not None else "*") for s in example.slots
        )
        with suppress(ValueError):  # an axis of H - 1 for an H of 0
            yield _make(example, opset, dtype, changed, kind, f"{letter} of {shapes}".strip())


def _replaced(case: Case, k: int, x: Any, kind: str, detail: str) -> Case:
    return replace(case, inputs=(*case.inputs[:k], x, *case.inputs[k + 1 :]), kind=kind, detail=detail)


def _controlled(example: Example, case: Case) -> Iterator[Case]:
    """Axes, sizes, limits: other numbers, other ranks."""
    for k, slot in enumerate(example.slots):
        x = case.inputs[k]
        if slot is None or slot.content is None or slot.letter in "bs" or x.dtype.kind not in "iuf":
            continue
        floating = x.dtype.kind == "f"
        numbers = (0.0, -0.0, -1.0, 1e38, np.inf, np.nan) if floating else _CONTROL
        for at in np.ndindex(x.shape):
            for n in numbers:
                if not floating:
                    info = np.iinfo(x.dtype)
                    n = int(np.clip(n, info.min, info.max))
                y = x.copy()
                y[at] = n if not floating else np.float64(n).astype(x.dtype)
                if y.tobytes() != x.tobytes():
                    yield _replaced(case, k, y, "another control input", f"input {k}{list(at)} = {n}")
        if x.ndim == 0:
            yield _replaced(case, k, x.reshape(1), "a vector for a scalar", f"input {k}")
        elif x.size == 1:
            yield _replaced(case, k, x.reshape(()), "a scalar for a vector", f"input {k}")
        if x.size and x.ndim:
            yield _replaced(case, k, x[:0], "an empty control input", f"input {k}")


def _left_out(example: Example, case: Case) -> Iterator[Case]:
    schema = onnx.defs.get_schema(case.op, case.opset, "")
    for k, x in enumerate(case.inputs):
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        if x is not None and formal.option == onnx.defs.OpSchema.FormalParameterOption.Optional:
            yield _replaced(case, k, None, "an input left out", f"input {k}")


def _indexed(example: Example, case: Case, rng: Any) -> Iterator[Case]:
    for k, slot in enumerate(example.slots):
        if slot is None or slot.below is None or slot.dims is None or not case.inputs[k].size:
            continue
        x, n = case.inputs[k], eval(slot.below, dict(SIZES))
        unsigned = x.dtype.kind == "u"
        where = f"input {k}"
        yield _replaced(case, k, np.zeros_like(x), "equal indices", f"{where} = 0")
        yield _replaced(case, k, np.full_like(x, n - 1), "equal indices", f"{where}: the last")
        yield _replaced(case, k, np.full_like(x, n), "indices out of range", f"{where} = size")
        if not unsigned:
            yield _replaced(
                case,
                k,
                np.where(rng.random(x.shape) < 0.5, x - n, x).astype(x.dtype),
                "negative indices",
                where,
            )
            yield _replaced(case, k, np.full_like(x, -1), "negative indices", f"{where} = -1")
            yield _replaced(case, k, np.full_like(x, -n - 1), "indices out of range", f"{where} = -size - 1")
            if x.dtype.kind == "i":
                for edge in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max):
                    yield _replaced(
                        case, k, np.full_like(x, edge), "indices out of range", f"{where} = {edge}"
                    )


def _attributed(case: Case) -> Iterator[Case]:
    for name, value in case.attributes.items():
        changes: list[tuple[str, Any]] = []
        if isinstance(value, bool | int) and name not in ("to", "dtype", "output_datatype", "output_dtype"):
            changes = [(f"{name} = {n}", n) for n in (0, 1, -1, -2, 100, 2**62) if n != value]
        elif isinstance(value, float):
            changes = [(f"{name} = {n}", n) for n in (0.0, -1.0, 1e38, float("inf"), float("nan"))]
        elif isinstance(value, list) and value and isinstance(value[0], int):
            for k in range(len(value)):
                for n in (0, -1, 100, 2**62):
                    changes.append((f"{name}[{k}] = {n}", [*value[:k], n, *value[k + 1 :]]))
            changes += [(f"{name} one short", value[:-1]), (f"{name} one more", [*value, value[-1]])]
        for detail, changed in changes:
            yield replace(
                case, attributes={**case.attributes, name: changed}, kind="another attribute", detail=detail
            )


def _contents(example: Example, case: Case, rng: Any, fully: bool) -> Iterator[Case]:
    """Special numbers: one kind in one input, or in all; and mixed."""
    data = [
        k for k, s in enumerate(example.slots)
        if s is not None and s.dims is not None and s.below is None and case.inputs[k].size
    ]  # fmt: skip
    if not data:
        return
    edges = {
        k: _edges(case.dtype if (s := example.slots[k]) and s.letter == "T" else str(_named(case.inputs[k])))
        for k in data
    }
    for k in data if fully else ():
        for name, values in edges[k].items():
            yield _replaced(
                case, k, _filled(case.inputs[k], values, rng, 0.4), f"contents {name}", f"input {k}"
            )
            if name in ("nan", "-inf"):
                full = _filled(case.inputs[k], values, rng, 2)
                yield _replaced(case, k, full, f"contents {name}", f"all of input {k}")
    if len(data) == 2 and example.first and case.inputs[data[0]].shape == case.inputs[data[1]].shape:
        a, b = data
        for (one, these), (other, those) in product(edges[a].items(), edges[b].items()):
            changed = _replaced(case, a, _filled(case.inputs[a][:4], these, rng, 2), "", "")
            second = _filled(case.inputs[b][:4], those, rng, 2)
            yield _replaced(changed, b, second, "pairs of contents", f"{one} and {other}")
    for nth in range(3 if fully else 1):
        inputs = list(case.inputs)
        for k in data:
            all_ = [v for values in edges[k].values() for v in values]
            inputs[k] = _filled(inputs[k], all_, rng, (0.6, 0.2, 2)[nth])
        yield replace(case, inputs=tuple(inputs), kind="mixed contents", detail=f"{nth}")


def _named(x: Array) -> str:
    return "string" if x.dtype == object else x.dtype.name
