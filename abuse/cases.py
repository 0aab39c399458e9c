"""One case: an input that was made worse, and what is done with it."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

import anydml
from abuse import mutate, mutate_text
from abuse.seeds import MODEL_FILE, WEIGHTS, WEIGHTS_FILE, Corpus
from anydml.dxdispatch.model import DispatchModel
from anydml.inspection import drawn
from anydml.ops.dtypes import NUMPY

MOST_INPUT = 16 << 20
"""Bytes of a model's inputs at most; what declares more is loaded, and not run."""
MOST_DISPATCH = 1 << 20
"""Bytes of an operator's buffers at most; what needs more is made, and not dispatched."""


@dataclass(frozen=True)
class Case:
    """What is tried: `kind` is `model`, `flatten`, `inspect`, `json` or `desc`."""

    kind: str
    origin: str
    """The seed that it was made from."""
    content: Any
    """A file's bytes, or a description."""


def case(seed: int, number: int, corpus: Corpus) -> Case:
    """The case of a number, the same each time."""
    rng = random.Random(f"{seed}:{number}")
    what = rng.random()
    if what < 0.2:
        place = rng.randrange(len(corpus.texts))
        name, source = corpus.texts[place]
        return Case("json", name, mutate_text.text(source, rng, corpus))
    if what < 0.4:
        place = rng.randrange(len(corpus.descs))
        return Case("desc", corpus.descs[place][0], mutate_text.tree(corpus.desc(place), rng, python=True))
    name, data = _chosen(corpus, rng)
    worse = mutate.model(data, rng, corpus)
    return Case("flatten" if what < 0.52 else "inspect" if what < 0.58 else "model", name, worse)


def _chosen(corpus: Corpus, rng: random.Random) -> tuple[str, bytes]:
    """A model; of a wide corpus, those with control flow are a third."""
    few = corpus.models[:SMALL]
    return rng.choice(few if rng.random() < 0.34 else corpus.models)


SMALL = 57
"""So many models are in the small corpus, which the wide one begins with."""


def tried(this: Case, seed: int, number: int, corpus: Corpus) -> bool:
    """Do what is to be done in the working folder; tells whether the input was accepted.

    Raises:
        Exception: whatever came out; it is of anydml's family, or a finding.
    """
    rng = random.Random(f"{seed}:{number}:run")
    Path(WEIGHTS_FILE).write_bytes(WEIGHTS)
    if this.kind == "desc":
        return _description(this.content)
    if this.kind == "json":
        Path(MODEL_FILE).write_bytes(corpus.models[0][1])
        path = Path("case.json")
        path.write_bytes(this.content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", anydml.UnknownFieldWarning)
            DispatchModel(path).run(lambda line: None)
        return True
    source: Any = this.content
    if rng.random() < 0.3 or this.origin == "external data":
        source = Path("case.onnx")
        source.write_bytes(this.content)
    if this.kind == "flatten":
        verify = rng.random() < 0.3
        convert: Any = rng.choice(["auto", "always", "never"])
        anydml.flatten(source, convert=convert, verify=verify, trials=3)
    elif this.kind == "inspect":
        drawn(source, "a page")
    else:
        _run(source, rng)
    return True


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
    code = TensorProto.DataType.items()
    numbers = dict(code)
    number = numbers.get(name.upper(), numbers.get({"float": "FLOAT", "double": "DOUBLE"}.get(name, "FLOAT")))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(number or 1)
    draw = np.random.default_rng(rng.randrange(1 << 30))
    return np.asarray(draw.integers(0, 4, sizes)).astype(dtype)


def _description(desc: Any) -> bool:
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
        return True
    compiled = device.compile_operator(operator)
    dtypes = {n: NUMPY[t.data_type] for n, t in operator.tensors.items()}
    arrays = {n: np.ones(-(-sizes[n] // dtype.itemsize), dtype) for n, dtype in dtypes.items()}
    outputs = {n: a for n, a in arrays.items() if n in compiled.output_names}
    inputs = {n: a for n, a in arrays.items() if n not in outputs}
    owned = dict(_owned(operator, inputs))
    if owned:
        compiled.initialize(owned)
    compiled.dispatch({n: a for n, a in inputs.items() if n not in owned}, outputs)
    return True


def _owned(operator: anydml.DeviceOperator, arrays: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, array in arrays.items():
        if operator.tensors[name].flags & anydml.TensorFlags.OWNED_BY_DML:
            yield name, array
