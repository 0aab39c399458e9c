"""Where mutations start: small inputs that are right, all made in code.

A corpus is ONNX models as bytes, DxDispatch models as JSON texts, and operator descriptions as dictionaries.
The wide one has the models of the onnx package's own test suite, too, which takes some seconds to make.
"""

from __future__ import annotations

import copy
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
from anydml.ops.catalog import BY_NAME
from anydml.ops.opdef import REQUIRED

WEIGHTS = np.array([1, -2, 3], np.float32).tobytes()
"""The content of the file that the seed with external data refers to."""
WEIGHTS_FILE = "weights.bin"
LARGEST = 20_000
"""Bytes of a model of the wide corpus at most."""

_PLAIN: dict[str, tuple[int, str]] = {
    "one if": (
        17,
        """m (bool c, float[N] x) => (float[N] y) {
        y = If (c) <then_branch = t () => (float[N] p) { p = Neg (x) },
                    else_branch = e () => (float[N] q) { q = Abs (x) }> }""",
    ),
    "nested": (
        13,
        """m (bool a, bool b, float[N, 2] x) => (float[N, 2] y) {
        w = Exp (x)
        y = If (a) <
            then_branch = t () => (float[N, 2] p) {
                p = If (b) <then_branch = tt () => (float[N, 2] pp) { pp = Add (x, w) },
                            else_branch = te () => (float[N, 2] pq) { k = Mul (w, w)  pq = Sub (k, x) }> },
            else_branch = e () => (float[N, 2] q) {
                n = Not (b)
                q = If (n) <then_branch = et () => (float[N, 2] qp) { qp = Identity (w) },
                            else_branch = ee () => (float[N, 2] qq) { qq = Relu (x) }> }> }""",
    ),
    "shapes decide": (
        17,
        """m (float[A, B, C] x) => (y) {
        s = Shape (x)  i = Constant <value_ints = [2]> ()  n = Gather (s, i)
        one = Constant <value_ints = [1]> ()  eq = Equal (n, one)  axes = Constant <value_ints = [2]> ()
        y = If (eq) <then_branch = t () => (p) { p = Squeeze (x, axes) },
                     else_branch = e () => (q) { q = Identity (x) }> }""",
    ),
    "branches of other ranks": (
        21,
        """m (bool c, float[2, 3] x) => (y) {
        y = If (c) <then_branch = t () => (float[6] p) { k = Constant <value_ints = [6]> ()
        p = Reshape (x, k) },
                    else_branch = e () => (float[3, 2] q) { q = Transpose <perm = [1, 0]> (x) }> }""",
    ),
    "two outputs": (
        11,
        """m (bool c, float[4] x, int64[4] i) => (float[4] y, int64[4] z) {
        y, z = If (c) <then_branch = t () => (float[4] p, int64[4] r) { p = Neg (x)  r = Neg (i) },
                       else_branch = e () => (float[4] q, int64[4] s) { q = Abs (x)  s = Abs (i) }> }""",
    ),
    "loop": (
        17,
        """m (int64 n, float[3] x) => (float[3] y, float[K, 3] all) {
        go = Constant <value_int = 1> ()  more = Cast <to = 9> (go)
        y, all = Loop (n, more, x) <body = b (int64 i, bool k, float[3] s)
        => (bool k1, float[3] s1, float[3] o)
            { k1 = Identity (k)  s1 = Add (s, x)  o = Identity (s1) }> }""",
    ),
    "an if in a loop": (
        17,
        """m (int64 n, bool c, float[3] x) => (float[3] y) {
        y = Loop (n, , x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1) {
            k1 = Identity (k)
            s1 = If (c) <then_branch = t () => (float[3] p) { p = Add (s, x) },
                         else_branch = e () => (float[3] q) { q = Sub (s, x) }> }> }""",
    ),
    "a loop in an if": (
        19,
        """m (int64 n, bool c, float[3] x) => (float[3] y) {
        y = If (c) <then_branch = t () => (float[3] p) {
            p = Loop (n, c, x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1)
                { k1 = Identity (k)  s1 = Mul (s, x) }> },
            else_branch = e () => (float[3] q) { q = Abs (x) }> }""",
    ),
    "scan": (
        16,
        """m (float[2] a, float[T, 2] x) => (float[2] y, float[T, 2] z) {
        y, z = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] s1, float[2] o)
            { s1 = Add (s, e)  o = Mul (s1, e) }> (a, x) }""",
    ),
    "an if in a scan": (
        16,
        """m (bool c, float[2] a, float[T, 2] x) => (float[2] y, float[T, 2] z) {
        y, z = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] s1, float[2] o)
            { s1 = If (c) <then_branch = t () => (float[2] p) { p = Add (s, e) },
                           else_branch = f () => (float[2] q) { q = Sub (s, e) }>
              o = Mul (s1, e) }> (a, x) }""",
    ),
    "sequences": (
        17,
        """m (bool c, float[N] x, float[N] w) => (float[M] y, seq(float[N]) s) {
        s = If (c) <then_branch = t () => (seq(float[N]) p) { p = SequenceConstruct (x, w) },
                    else_branch = e () => (seq(float[N]) q) { q = SequenceConstruct (w) }>
        y = ConcatFromSequence <axis = 0> (s) }""",
    ),
    "a sequence fed": (
        18,
        """m (seq(float[N]) s, int64 i) => (float[N] y, int64 n) {
        y = SequenceAt (s, i)  n = SequenceLength (s) }""",
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
    "quantized": (
        13,
        """m (float[2, 3] x) => (float[2, 3] y) {
        s = Constant <value_float = 0.05> ()  i = Constant <value_int = 3> ()  z = Cast <to = 2> (i)
        q = QuantizeLinear (x, s, z)  y = DequantizeLinear (q, s, z) }""",
    ),
    "a small network": (
        17,
        """m (float[1, 1, H, W] x) => (y)
        <float[2, 1, 3, 3] k = {0,1,0,1,2,1,0,1,0, 1,0,1,0,2,0,1,0,1}, float[2] b = {1, 2}> {
        c = Conv <pads = [1, 1, 1, 1]> (x, k, b)  r = Relu (c)
        p = GlobalAveragePool (r)  f = Flatten (p)  y = Softmax <axis = 1> (f) }""",
    ),
    "shape arithmetic": (
        17,
        """m (float[A, B] x) => (y, z, w) {
        s = Shape (x)  two = Constant <value_ints = [2]> ()  d = Mul (s, two)
        zero = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()
        a = Slice (d, zero, one)  m = Constant <value_ints = [-1]> ()  t = Concat <axis = 0> (a, m)
        r = Concat <axis = 0> (x, x)  f = Concat <axis = 1> (r, r)  y = Reshape (f, t)
        z = ConstantOfShape (d)  w = Expand (a, d) }""",
    ),
    "ranges and tiles": (
        15,
        """m (int64 n, float[2] x) => (y, z, p) {
        a = Constant <value_int = 0> ()  d = Constant <value_int = 1> ()
        y = Range (a, n, d)  one = Constant <value_ints = [1]> ()  k = Reshape (n, one)  z = Tile (x, k)
        two = Constant <value_ints = [1, 2]> ()  p = Pad (x, two) }""",
    ),
    "recurrent": (
        14,
        """m (float[T, B, 2] x, float[1, 4, 2] w, float[1, 4, 1] r) => (y, h, c) {
        y, h, c = LSTM <hidden_size = 1> (x, w, r) }""",
    ),
    "resize": (
        18,
        """m (float[1, 1, H, W] x) => (y) <float[4] s = {1, 1, 2, 2}> {
        y = Resize <mode = "linear"> (x, , s) }""",
    ),
    "others": (
        20,
        """m (float[2, 3] x, int64[1, 2] i) => (a, b, c, d, e) {
        k = Constant <value_ints = [2]> ()
        a, b = TopK <axis = 1> (x, k)  c = GatherND (x, i)  d = NonZero (x)
        j = Constant <value_int = 1> ()  e = CumSum (x, j) }""",
    ),
    "einsum": (
        12,
        """m (float[A, B] x, float[B, C] w) => (y, z) {
        y = Einsum <equation = "ij,jk->ik"> (x, w)  z = ReduceSum <axes = [0], keepdims = 0> (y) }""",
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
        yield (
            f"opset {opset} {dtype}",
            _parsed(_VERSIONED.replace("T[N]", f"{dtype}[N]"), opset).SerializeToString(),
        )
    yield "external data", _with(TensorProto(name="w", data_type=1, dims=[3]), external=True)
    yield "raw data", _with(numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w"))
    yield "numbers", _with(helper.make_tensor("w", TensorProto.FLOAT, [3], [1, 2, 3]))
    yield "sparse", _sparse()


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
    resources = {
        "A": {"initialValuesDataType": "UNKNOWN", "initialValues": values, "sizeInBytes": 64},
        "B": {"initialValuesDataType": "FLOAT32", "initialValues": ["inf", "-inf", 7, "nan"]},
        "C": {
            "initialValuesDataType": "INT64",
            "initialValues": {"valueCount": 4, "valueStart": 1, "valueDelta": 2},
        },
        "D": {"initialValuesDataType": "FLOAT32", "initialValues": {"sourcePath": WEIGHTS_FILE}},
        "Y": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}},
    }
    commands: list[dict[str, Any]] = [{"type": "print", "resource": n} for n in resources]
    commands += [
        {"type": "writeFile", "resource": "B", "targetPath": f"out.{kind}"} for kind in ("npy", "bin")
    ]
    dispatchables: dict[str, Any] = {}
    yield "buffers", json.dumps({"resources": resources, "dispatchables": {}, "commands": commands})
    dispatchables["net"] = {
        "type": "onnx",
        "sourcePath": MODEL_FILE,
        "freeDimensionNameOverrides": {"N": 4},
    }
    bindings = {"x": {"name": "B", "shape": [4]}, "y": "Y"}
    commands[:] = [{"type": "dispatch", "dispatchable": "net", "bindings": bindings}, *commands[:1]]
    yield "onnx", json.dumps({"resources": resources, "dispatchables": dispatchables, "commands": commands})


MODEL_FILE = "beside.onnx"
"""The ONNX model that a DxDispatch model refers to: the first of the small corpus."""


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
    for name, operator in BY_NAME.items():
        example = operator.example
        shape = list(np.shape(example.output)) or [1]
        fields: dict[str, Any] = {}
        for operand, given in zip(operator.inputs, example.inputs, strict=True):
            if given is not None:
                sizes = list(np.shape(given)) or shape
                fields[operand.name] = {
                    "DataType": operator.example_type(operand.dtype).label.upper(),
                    "Sizes": sizes,
                }
        for operand in operator.outputs:
            fields[operand.name] = {
                "DataType": operator.example_type(operand.dtype).label.upper(),
                "Sizes": shape,
            }
        for attribute in operator.attributes:
            value = example.attributes.get(attribute.parameter, attribute.default)
            if attribute.name == "MinMaxDataType":
                value = "FLOAT32"
            if value is not REQUIRED and value is not None:
                fields[attribute.name] = getattr(value, "name", value)
        desc = {"Type": f"DML_OPERATOR_{name}", "Desc": fields}
        if not anydml.validate(desc):
            yield name, desc


# ---- the corpus --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corpus:
    """Names and contents."""

    models: list[tuple[str, bytes]]
    texts: list[tuple[str, str]]
    descs: list[tuple[str, dict[str, Any]]]

    def desc(self, place: int) -> dict[str, Any]:
        return copy.deepcopy(self.descs[place][1])


def corpus(wide: bool, kept: Path | None = None) -> Corpus:
    """All seeds; the wide ones are kept in a file, once they are made."""
    if kept is not None and kept.exists():
        found = pickle.loads(kept.read_bytes())
        assert isinstance(found, Corpus)
        return found
    all_models = list(models())
    if wide:
        all_models += [(n, m) for n, m in _suite() if len(m) <= LARGEST]
    made = Corpus(all_models, list(texts()), list(descs()))
    if kept is not None:
        kept.write_bytes(pickle.dumps(made))
    return made
