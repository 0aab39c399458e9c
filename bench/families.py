"""Models whose sessions are measured, a folder for each: `python -m bench.families FOLDER`.

    ordinary    eight models without control flow, by PyTorch's exporter (needs torch, of `.[bench]`)
    exporters   those of tests/data/exporters: control flow as six exporters write it
    ifs         1, 10, 100 and 300 Ifs in a row that only the data decides, with products in their branches
    chain       ten element-wise operators on 2^20 floats behind a computed condition
    decoder     a merged decoder that says 30 words
    large       400 MB of weights

Each model is a folder with model.onnx and feed_LABEL.npz; a file `generate` stands for the decoder's words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.decoder import merged_decoder
from bench.processes import run

EXPORTERS = Path(__file__).parents[1] / "tests" / "data" / "exporters"
_HEAD = '<ir_version: 8, opset_import: ["": 17]> m '
_TEN = """a1 = Add (x, h)  a2 = Mul (a1, x)  a3 = Relu (a2)  a4 = Sub (a3, h)  a5 = Abs (a4)  a6 = Max (a5, x)
    a7 = Neg (a6)  a8 = Min (a7, h)  a9 = Mul (a8, x)  a10 = Add (a9, h)"""
SIDE, MATRICES = 2048, 24


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.families", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, make in FAMILIES.items():
        print(f"{name}: {make(folder / name) or 'not made'}")


def ordinary(folder: Path) -> Path | None:
    done = run("bench.ordinary", str(folder))
    if done.returncode:
        print(f"ordinary models are not made: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return folder


def exporters(folder: Path) -> Path:
    return EXPORTERS


def ifs(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    eye = np.eye(16, dtype=np.float32)
    weights = {"w": 0.9 * eye + 0.02 * rng.standard_normal((16, 16)), "u": 0.95 * eye, "zero": 0, "k": 1.01}
    for count in (1, 10, 100, 300):
        lines, x = [], "x"
        for k in range(count):
            lines.append(f"""s{k} = ReduceSum <keepdims = 0> ({x})  c{k} = Greater (s{k}, zero)
                y{k} = If (c{k}) <then_branch = t () => (float[n, 16] t{k}) {{
                    p{k} = MatMul ({x}, w) t{k} = Mul (p{k}, k)
                }}, else_branch = e () => (float[n, 16] e{k}) {{
                    q{k} = MatMul ({x}, u) e{k} = Mul (q{k}, k)
                }}>""")
            x = f"y{k}"
        model = onnx.parser.parse_model(
            f"{_HEAD}(float[n, 16] x) => (float[n, 16] {x}) {{ {' '.join(lines)} }}"
        )
        for name, content in weights.items():
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(content, np.float32), name))
        _write(folder / f"ifs{count:03}", model, x=rng.standard_normal((1, 16)).astype(np.float32))
    return folder


def chain(folder: Path) -> Path:
    text = f"""{_HEAD}(float t, float[n] x) => (float[n] y) {{
        h = Constant <value_float = 0.5> ()  c = Greater (t, h)
        y = If (c) <then_branch = a () => (float[n] a10) {{ {_TEN} }},
                    else_branch = b () => (float[n] w) {{ w = Mul (x, x) }}> }}"""
    x = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    _write(folder / "chain", onnx.parser.parse_model(text), t=np.float32(1), x=x)
    return folder


def decoder(folder: Path) -> Path:
    place = folder / "decoder"
    place.mkdir(parents=True, exist_ok=True)
    (place / "model.onnx").write_bytes(merged_decoder())
    (place / "generate").touch()
    return folder


def large(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for k in range(MATRICES):
        w = rng.standard_normal((SIDE, SIDE), np.float32) * np.float32(0.02)
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes += [
            helper.make_node("MatMul", [x, f"w{k}"], [f"m{k}"]),
            helper.make_node("Relu", [f"m{k}"], [f"r{k}"]),
        ]
        x = f"r{k}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", SIDE]) for n in ("x", x)]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    _write(folder / "large", model, x=np.ones((1, SIDE), np.float32))
    return folder


def _write(place: Path, model: onnx.ModelProto, **feeds: Any) -> None:
    place.mkdir(parents=True, exist_ok=True)
    onnx.save(model, place / "model.onnx")
    np.savez(place / "feed_0.npz", **feeds)


FAMILIES: dict[str, Callable[[Path], Path | None]] = {
    f.__name__: f for f in (ordinary, exporters, ifs, chain, decoder, large)
}

if __name__ == "__main__":
    main()
