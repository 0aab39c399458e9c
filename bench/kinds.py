"""ONNX nodes that become kernels beside onnxruntime: `python -m bench.kinds` (docs/sessions.md)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
from rich.console import Console
from rich.table import Table

import anydml
from bench.measure import medians

SIZES = (1 << 16, 1 << 20)
SCALED = "<float s = {0.05}, uint8 z = {128}>"
CASES = {
    "Cast of float32 to int64": "float x int64 y: y = Cast <to = 7> (x)",
    "Cast of float32 to int32": "float x int32 y: y = Cast <to = 6> (x)",
    "Cast of float32 to uint8": "float x uint8 y: a = Abs (x)  y = Cast <to = 2> (a)",
    "Cast of float64 to int32": "double x int32 y: y = Cast <to = 6> (x)",
    "Cast of float16 to int32": "float16 x int32 y: y = Cast <to = 6> (x)",
    "QuantizeLinear": f"float x uint8 y {SCALED}: y = QuantizeLinear (x, s, z)",
    "DequantizeLinear": f"uint8 x float y {SCALED}: y = DequantizeLinear (x, s, z)",
    "one after the other": f"""float x float y {SCALED}: q = QuantizeLinear (x, s, z)
        y = DequantizeLinear (q, s, z)""",
    "Div by 7 of int32": "int32 x int32 y <int32 k = {7}>: y = Div (x, k)",
    "Div by 7 of int64": "int64 x int64 y <int64 k = {7}>: y = Div (x, k)",
    "Div by 7 of uint8": "uint8 x uint8 y <uint8 k = {7}>: y = Div (x, k)",
    "Mod 7 of int32": "int32 x int32 y <int32 k = {7}>: y = Mod (x, k)",
    "Mod 7 of int64": "int64 x int64 y <int64 k = {7}>: y = Mod (x, k)",
    "Mod 7 of uint8": "uint8 x uint8 y <uint8 k = {7}>: y = Mod (x, k)",
    "Pow to 2 of float32": "float x float y <float k = {2}>: y = Pow (x, k)",
    "Pow to 2 of int32": "int32 x int32 y <int32 k = {2}>: y = Pow (x, k)",
    "Pow to 2 of int64": "int64 x int64 y <int64 k = {2}>: y = Pow (x, k)",
    "float16: Mul, Add, Sigmoid, Mul": """float16 x float16 y: a = Mul (x, x)  b = Add (a, x)
        c = Sigmoid (b)  y = Mul (c, x)""",
    "float32 to bfloat16 and back": "float x float y: a = Cast <to = 16> (x)  y = Cast <to = 1> (a)",
    "Gelu by tanh": 'float x float y: y = Gelu <approximate = "tanh"> (x)',
    "Sum of 4": "float x float y: a = Neg (x)  b = Abs (x)  y = Sum (x, a, b, x)",
    "float64: Exp": "double x double y: y = Exp (x)",
    "float64: Log": "double x double y: a = Abs (x)  y = Log (a)",
    "float64: Sigmoid": "double x double y: y = Sigmoid (x)",
    "float64: Tanh": "double x double y: y = Tanh (x)",
}  # fmt: skip
LAST: list[tuple[int, ...]] = [(256, 256), (1024, 1024)]
MIDDLE: list[tuple[int, ...]] = [(4, 64, 256), (4, 256, 1024)]
SOFTMAX = """m = ReduceMax (x, k)  d = Sub (x, m)  e = Exp (d)  s = ReduceSum (e, k)  y = Div (e, s)"""
NORMALIZATION = """m = ReduceMean (x, k)  d = Sub (x, m)  q = Mul (d, d)  v = ReduceMean (q, k)
    w = Add (v, t)  r = Sqrt (w)  y = Div (d, r)"""
NORM = "m = ReduceL2 (x, k)  y = Div (x, m)"
WALKS: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "softmax, of its operators": (f"<int64[1] k = {{-1}}>: {SOFTMAX}", LAST),
    "softmax along a middle axis": (f"<int64[1] k = {{1}}>: {SOFTMAX}", MIDDLE),
    "normalization, of its operators": (f"<int64[1] k = {{-1}}, float t = {{0.1}}>: {NORMALIZATION}", LAST),
    "normalization along a middle axis": (
        f"<int64[1] k = {{1}}, float t = {{0.1}}>: {NORMALIZATION}",
        MIDDLE,
    ),
    "divided by its L2 norm": (f"<int64[1] k = {{-1}}>: {NORM}", LAST),
    "L2 norm along a middle axis": (f"<int64[1] k = {{1}}>: {NORM}", MIDDLE),
    "pixel shuffle": (
        ": y = Transpose <perm = [0, 1, 4, 2, 5, 3]> (x)",
        [(1, 16, 2, 2, 32, 32), (1, 64, 2, 2, 64, 64)],
    ),
    "patches": (
        ": y = Transpose <perm = [0, 2, 4, 3, 5, 1]> (x)",
        [(1, 4, 16, 8, 16, 8), (1, 4, 64, 8, 64, 8)],
    ),
    "Transpose of axes 1, 0, 3, 2": (
        ": y = Transpose <perm = [1, 0, 3, 2]> (x)",
        [(16, 16, 16, 16), (32, 32, 32, 32)],
    ),
}
DTYPES = {"float": "float32", "double": "float64"}


def main() -> None:
    table = Table("one thread", *(f"2^{n.bit_length() - 1} elements" for n in SIZES))
    for name, case in CASES.items():
        table.add_row(name, *(f"{ratio(case, (n,)):.2f}" for n in SIZES))
    for name, (case, sizes) in WALKS.items():
        table.add_row(name, *(f"{ratio(f'float x float y {case}', n):.2f}" for n in sizes))
    Console().print(table)


def ratio(case: str, sizes: tuple[int, ...]) -> float:
    """Of our time to onnxruntime's."""
    heads, nodes = case.split(": ", 1)
    given, x, made, y, *constants = heads.split(" ", 4)
    dims, open_dims = (",".join(f"{k}{n}" for n in range(len(sizes))) for k in "nm")
    ends = f"({given}[{dims}] {x}) => ({made}[{open_dims}] {y})"
    text = f"{ends} {' '.join(constants)} {{ {nodes} }}"
    data = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]> g ' + text).SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    feeds: dict[str, Any] = {"x": content(DTYPES.get(given, given), sizes)}
    runs = {
        "ours": partial(anydml.load(data, threads=1).run, None, feeds),
        "theirs": partial(ort.InferenceSession(data, options).run, None, feeds),
    }
    times = medians(runs)
    return times["ours"] / times["theirs"]


def content(dtype: str, size: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(0)
    if "int" in dtype:
        return rng.integers(0, 100, size).astype(dtype)
    return (3 * rng.standard_normal(size)).astype(dtype)


if __name__ == "__main__":
    main()
