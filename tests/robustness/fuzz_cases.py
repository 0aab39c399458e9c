"""One case of the fuzzer: an input that was made worse, and what is done with it."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from onnx import TensorProto

import anydml
from anydml.dxdispatch.model import DispatchModel
from anydml.inspection import drawn
from anydml.ops.dtypes import NUMPY
from tests.robustness import fuzz_models, fuzz_text
from tests.robustness.fuzz_seeds import MODEL_FILE, WEIGHTS, WEIGHTS_FILE, Corpus, beside

KINDS = {
    "model": "mutated ONNX models, loaded and run",
    "flatten": "mutated ONNX models, flattened",
    "inspect": "mutated ONNX models, inspected",
    "json": "mutated DxDispatch models",
    "desc": "mutated operator descriptions",
}
MOST_INPUT = 16 << 20
"""Bytes of a model's inputs at most; what declares more is loaded, and not run."""
MOST_DISPATCH = 1 << 20
"""Bytes of an operator's buffers at most; what needs more is made, and not dispatched."""


@dataclass(frozen=True)
class Case:
    """What is tried; `kind` is one of `KINDS`."""

    kind: str
    origin: str
    """The seed that it was made from."""
    content: Any
    """A file's bytes, or a description."""
    way: int
    """Decides about feeds and options."""


def cases(kind: str, corpus: Corpus) -> SearchStrategy[Case]:
    """Cases of a kind."""

    @st.composite
    def drawn_case(draw: DrawFn) -> Case:
        way = draw(st.integers(0, 1 << 16))
        if kind == "json":
            name, source = fuzz_text.one(draw, corpus.texts)
            return Case(kind, name, fuzz_text.text(draw, source, [t for _, t in corpus.texts]), way)
        if kind == "desc":
            name, desc = fuzz_text.one(draw, corpus.descs)
            return Case(kind, name, fuzz_text.tree(draw, copy.deepcopy(desc), python=True), way)
        name, data = fuzz_text.one(draw, corpus.small if fuzz_text.chance(draw, 34) else corpus.models)
        return Case(kind, name, fuzz_models.model(draw, data, [m for _, m in corpus.models]), way)

    return drawn_case()


def tried(this: Case) -> None:
    """Do what is to be done in the working folder.

    Raises:
        Exception: whatever came out; it is of anydml's family, or a finding.
    """
    rng = random.Random(this.way)
    Path(WEIGHTS_FILE).write_bytes(WEIGHTS)
    if this.kind == "desc":
        return _description(this.content)
    if this.kind == "json":
        Path(MODEL_FILE).write_bytes(beside())
        path = Path("case.json")
        path.write_bytes(this.content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", anydml.UnknownFieldWarning)
            DispatchModel(path).run(lambda line: None)
        return None
    source: Any = this.content
    if rng.random() < 0.3 or this.origin == "external data":
        source = Path("case.onnx")
        source.write_bytes(this.content)
    if this.kind == "flatten":
        convert: Any = rng.choice(["auto", "always", "never"])
        anydml.flatten(source, convert=convert, verify=rng.random() < 0.3, trials=3)
    elif this.kind == "inspect":
        drawn(source, "a page")
    else:
        _run(source, rng)
    return None


def _run(source: Any, rng: random.Random) -> None:
    session = anydml.load(source, threads=1)
    for _ in range(rng.choice([1, 1, 1, 2])):
        symbols: dict[str, int] = {}
        feeds = {}
        for wanted in session.get_inputs():
            value = _value(wanted.type, wanted.shape, symbols, rng)
            if value is _TOO_LARGE:
                return
            feeds[wanted.name] = value
        session.run(None, feeds)


_TOO_LARGE = object()


def _value(
    kind: str, shape: list[int | str | None] | None, symbols: dict[str, int], rng: random.Random
) -> Any:
    """Something of a declared type, in the words of onnxruntime: `seq(tensor(float))`."""
    if kind.startswith("optional("):
        inner = kind[len("optional(") : -1]
        return None if rng.random() < 0.3 else _value(inner, shape, symbols, rng)
    if kind.startswith("seq("):
        items = [_value(kind[len("seq(") : -1], shape, symbols, rng) for _ in range(rng.randrange(3))]
        return _TOO_LARGE if any(i is _TOO_LARGE for i in items) else items
    if shape is None:
        shape = [None] * rng.randrange(4)
    sizes = [
        n
        if isinstance(n, int)
        else rng.randrange(1, 4)
        if n is None
        else symbols.setdefault(n, rng.randrange(1, 4))
        for n in shape
    ]
    if any(not 0 <= n <= MOST_INPUT for n in sizes) or len(sizes) > 32 or prod(sizes) * 16 > MOST_INPUT:
        return _TOO_LARGE
    name = kind.removeprefix("tensor(").removesuffix(")")
    if name == "string":
        return np.full(sizes, "text", object)
    numbers = dict(TensorProto.DataType.items())
    number = numbers.get(name.upper(), numbers.get({"float": "FLOAT", "double": "DOUBLE"}.get(name, "FLOAT")))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(number or 1)
    draw = np.random.default_rng(rng.randrange(1 << 30))
    return np.asarray(draw.integers(0, 4, sizes)).astype(dtype)


def _description(desc: Any) -> None:
    problems = anydml.validate(desc)
    device = anydml.Device(threads=1)
    try:
        operator = device.create_operator(desc)
    except anydml.AnyDMLError:
        if not problems:
            raise AssertionError("validate finds nothing wrong with what create_operator refuses") from None
        raise
    if problems:
        raise AssertionError("create_operator takes what validate finds wrong")
    sizes = {n: max(t.minimum_size, t.total_tensor_size_in_bytes or 0) for n, t in operator.tensors.items()}
    if sum(sizes.values()) > MOST_DISPATCH:
        return
    compiled = device.compile_operator(operator)
    dtypes = {n: NUMPY[t.data_type] for n, t in operator.tensors.items()}
    arrays = {n: np.ones(-(-sizes[n] // dtype.itemsize), dtype) for n, dtype in dtypes.items()}
    outputs = {n: a for n, a in arrays.items() if n in compiled.output_names}
    inputs = {n: a for n, a in arrays.items() if n not in outputs}
    owned = dict(_owned(operator, inputs))
    if owned:
        compiled.initialize(owned)
    compiled.dispatch({n: a for n, a in inputs.items() if n not in owned}, outputs)


def _owned(operator: anydml.DeviceOperator, arrays: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, array in arrays.items():
        if operator.tensors[name].flags & anydml.TensorFlags.OWNED_BY_DML:
            yield name, array
