"""Where mutations start: small inputs that are right, all made in code.

A corpus is ONNX models as bytes, DxDispatch models as JSON texts, and operator descriptions as dictionaries.
Control flow and most operators come from the generator of random models. The wide corpus has the models of
the onnx package's own tests, too, which takes some seconds to make.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import anydml
from anydml.ops.catalog import ELEMENT_WISE
from anydml.ops.opdef import REQUIRED
from tests.robustness.random_models import random_case

WEIGHTS = np.array([1, -2, 3], np.float32).tobytes()
"""The content of the file that the seed with external data refers to."""
WEIGHTS_FILE = "weights.bin"
GENERATED = 40
"""Random models in the corpus."""
LARGEST = 20_000
"""Bytes of a model of the wide corpus at most."""

_PLAIN: dict[str, tuple[int, str]] = {
    "an if in a loop": (
        17,
        """m (int64 n, bool c, float[3] x) => (float[3] y) {
        y = Loop (n, , x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1) {
            k1 = Identity (k)
            s1 = If (c) <then_branch = t () => (float[3] p) { p = Add (s, x) },
                         else_branch = e () => (float[3] q) { q = Sub (s, x) }> }> }""",
    ),
    "a sequence mapped": (
        17,
        """m (bool c, seq(float[N]) s) => (seq(float[N]) y) {
        y = SequenceMap (s) <body = b (float[N] e) => (float[N] o) {
            o = If (c) <then_branch = t () => (float[N] p) { p = Neg (e) },
                        else_branch = f () => (float[N] q) { q = Exp (e) }> }> }""",
    ),
    "optionals": (
        18,
        """m (optional(float[N]) o, float[N] x) => (float[N] y) {
        h = OptionalHasElement (o)
        y = If (h) <then_branch = t () => (float[N] p) { p = OptionalGetElement (o) },
                    else_branch = e () => (float[N] q) { q = Neg (x) }> }""",
    ),
    "strings": (
        20,
        """m (bool c, string[N] a, string[N] b) => (string[N] y) {
        y = If (c) <then_branch = t () => (string[N] p) { p = StringConcat (a, b) },
                    else_branch = e () => (string[N] q) { k = Constant <value_strings = ["one", "two"]> ()
        q = Identity (a) }> }""",
    ),
    "a function": (
        17,
        """m (bool c, float[N] x) => (float[N] y) {
        w = own.twice (x)
        y = own.choose (c, w) }
        <opset_import: ["": 17], domain: "own"> twice (a) => (b) { b = Add (a, a) }
        <opset_import: ["": 17, "own": 1], domain: "own"> choose (k, a) => (b) {
            b = If (k) <then_branch = t () => (p) { p = own.twice (a) },
                        else_branch = e () => (q) { q = Abs (a) }> }""",
    ),
    "a function with attributes": (
        17,
        """m (float[N] x) => (float[N] y) {
        y = own.leaky <slope = 0.25> (x) }
        <opset_import: ["": 17], domain: "own"> leaky <slope> (a)
        => (b) { b = LeakyRelu <alpha: float = @slope> (a) }""",
    ),
}

_VERSIONED = """m (bool c, T[N] x) => (T[N] y) {
    y = If (c) <then_branch = t () => (T[N] p) { p = Mul (x, x) },
                else_branch = e () => (T[N] q) { q = Add (x, x) }> }"""


def _parsed(text: str, opset: int) -> onnx.ModelProto:
    imports = f'"": {opset}, "own": 1' if "own." in text else f'"": {opset}'
    return onnx.parser.parse_model(
        f"<ir_version: {8 if opset < 21 else 10}, opset_import: [{imports}]> {text}"
    )


def models() -> Iterator[tuple[str, bytes]]:
    """The small corpus: names and files."""
    for name, (opset, text) in _PLAIN.items():
        yield name, _parsed(text, opset).SerializeToString()
    newest = onnx.defs.onnx_opset_version()
    for opset in range(1, newest + 1):
        dtype = ("float", "float16", "bfloat16", "double", "int32", "uint8")[opset % 6]
        model = _parsed(_VERSIONED.replace("T[N]", f"{dtype}[N]"), opset)
        yield f"opset {opset} {dtype}", model.SerializeToString()
    yield "external data", _with(TensorProto(name="w", data_type=1, dims=[3]), external=True)
    yield "raw data", _with(numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w"))
    yield "numbers", _with(helper.make_tensor("w", TensorProto.FLOAT, [3], [1, 2, 3]))
    yield "sparse", _sparse()
    for seed in range(GENERATED):
        yield f"random model {seed}", random_case(seed).model.SerializeToString()


def beside() -> bytes:
    """The content of that file."""
    return bytes(_parsed(_VERSIONED.replace("T[N]", "float[N]"), 17).SerializeToString())


def _with(tensor: TensorProto, external: bool = False) -> bytes:
    model = _parsed(
        """m (bool c, float[3] x) => (float[3] y) {
        w = Identity (x)
        y = If (c) <then_branch = t () => (float[3] p) { p = Add (x, w) },
                    else_branch = e () => (float[3] q) { q = Mul (x, w) }> }""",
        17,
    )
    del model.graph.node[0]
    model.graph.initializer.append(tensor)
    if external:
        kept = model.graph.initializer[0]
        kept.data_location = TensorProto.EXTERNAL
        for key, value in (("location", WEIGHTS_FILE), ("offset", "0"), ("length", str(len(WEIGHTS)))):
            kept.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString())


def _sparse() -> bytes:
    model = onnx.ModelProto.FromString(_with(TensorProto(name="gone")))
    del model.graph.initializer[:]
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    places = numpy_helper.from_array(np.array([0, 2], np.int64), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [3]))
    return bytes(model.SerializeToString())


def _suite() -> Iterator[tuple[str, bytes]]:
    """The models of the onnx package's tests: of its nodes, and those that it brings as files."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if case.model is not None:
                yield case.name, case.model.SerializeToString()
    folder = Path(onnx.__file__).parent / "backend/test/data"
    for path in sorted(folder.glob("*/*/model.onnx")):
        yield path.parent.name, path.read_bytes()


# ---- DxDispatch --------------------------------------------------------------------------------------


def texts() -> Iterator[tuple[str, str]]:
    """DxDispatch models. The last one runs an ONNX model, whose file is beside it."""
    for name, desc in descs():
        if name.endswith(("_IF", "_CLIP", "_ADD1", "_GELU", "_QUANTIZE_LINEAR", "_SOFTMAX1")):
            yield name, json.dumps(_dispatching(desc), indent=1)
    values = [{"name": "a", "type": "FLOAT32", "value": 1.5}, {"type": "UINT8", "value": 7}]
    sequence = {"valueCount": 4, "valueStart": 1, "valueDelta": 2}
    resources = {
        "A": {"initialValuesDataType": "UNKNOWN", "initialValues": values, "sizeInBytes": 64},
        "B": {"initialValuesDataType": "FLOAT32", "initialValues": ["inf", "-inf", 7, "nan"]},
        "C": {"initialValuesDataType": "INT64", "initialValues": sequence},
        "D": {"initialValuesDataType": "FLOAT32", "initialValues": {"sourcePath": WEIGHTS_FILE}},
        "Y": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}},
    }
    commands: list[dict[str, Any]] = [{"type": "print", "resource": n} for n in resources]
    commands += [
        {"type": "writeFile", "resource": "B", "targetPath": f"out.{kind}"} for kind in ("npy", "bin")
    ]
    yield "buffers", json.dumps({"resources": resources, "dispatchables": {}, "commands": commands})
    net = {"type": "onnx", "sourcePath": MODEL_FILE, "freeDimensionNameOverrides": {"N": 4}}
    bindings = {"x": {"name": "B", "shape": [4]}, "y": "Y"}
    commands[:] = [{"type": "dispatch", "dispatchable": "net", "bindings": bindings}, *commands[:1]]
    yield "onnx", json.dumps({"resources": resources, "dispatchables": {"net": net}, "commands": commands})


MODEL_FILE = "beside.onnx"
"""The ONNX model that a DxDispatch model refers to."""


def _dispatching(desc: dict[str, Any]) -> dict[str, Any]:
    tensors = {n: t for n, t in desc["Desc"].items() if n.endswith("Tensor")}
    resources = {
        n: {
            "initialValuesDataType": t["DataType"],
            "initialValues": {"valueCount": int(np.prod(t["Sizes"])), "value": 1},
        }
        for n, t in tensors.items()
    }
    commands: list[dict[str, Any]] = [
        {"type": "dispatch", "dispatchable": "op", "bindings": {n: n for n in tensors}},
        {"type": "print", "resource": "OutputTensor"},
    ]
    return {"resources": resources, "dispatchables": {"op": desc}, "commands": commands}


def descs() -> Iterator[tuple[str, dict[str, Any]]]:
    """A description of each operator that is accepted: that of its documented example."""
    for operator in ELEMENT_WISE:
        example = operator.example
        shape = list(np.shape(example.output)) or [1]
        operands = [
            *zip(operator.inputs, example.inputs, strict=True),
            *((o, shape) for o in operator.outputs),
        ]
        fields: dict[str, Any] = {
            operand.name: {
                "DataType": operator.example_type(operand.dtype).label.upper(),
                "Sizes": shape if operand.kind == "output" else list(np.shape(given)) or shape,
            }
            for operand, given in operands
            if given is not None
        }
        for attribute in operator.attributes:
            value = example.attributes.get(attribute.parameter, attribute.default)
            if attribute.name == "MinMaxDataType":
                value = "FLOAT32"
            if value is not REQUIRED and value is not None:
                fields[attribute.name] = getattr(value, "name", value)
        desc = {"Type": f"DML_OPERATOR_{operator.name}", "Desc": fields}
        if not anydml.validate(desc):
            yield operator.name, desc


# ---- the corpus --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corpus:
    """Names and contents."""

    small: list[tuple[str, bytes]]
    """Models with control flow, among others."""
    models: list[tuple[str, bytes]]
    texts: list[tuple[str, str]]
    descs: list[tuple[str, dict[str, Any]]]


def corpus(wide: bool, kept: Path | None = None) -> Corpus:
    """All seeds; they are kept in a file, once they are made."""
    if kept is not None and kept.exists():
        found: Corpus = pickle.loads(kept.read_bytes())
        return found
    small = list(models())
    suite = [(n, m) for n, m in _suite() if len(m) <= LARGEST] if wide else []
    made = Corpus(small, [*small, *suite], list(texts()), list(descs()))
    if kept is not None:
        kept.write_bytes(pickle.dumps(made))
    return made
