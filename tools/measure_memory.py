"""How much memory a model's weights take: `python -m tools.measure_memory`. Each row is a process of its own.

A model of six matrices of 2048 x 2048 floats (96 MiB), run on batches of 1 and 64: with its weights inside,
and in a file beside it. What onnxruntime adds when it packs matrices for its kernels is the difference
between the rows with and without packing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIDE, COUNT = 2048, 6
STEPS = {
    "onnxruntime": "s = ort.InferenceSession(path, o, providers=['CPUExecutionProvider'])",
    "onnxruntime, without packing": "o.add_session_config_entry('session.disable_prepacking', '1'); "
    "s = ort.InferenceSession(path, o, providers=['CPUExecutionProvider'])",
    "anydml": "s = anydml.load(path, threads=1)",
}
PROGRAM = """
import gc, sys, numpy as np, onnxruntime as ort, anydml, anydml.session
from onnx import helper
def anonymous():
    gc.collect()
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("RssAnon")) / 1024
path = sys.argv[1]
o = ort.SessionOptions(); o.intra_op_num_threads = 1
x = np.ones((1, {side}), np.float32)
anydml.load(helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
    [helper.make_tensor_value_info("x", 1, [1])], [helper.make_tensor_value_info("y", 1, [1])]),
    opset_imports=[helper.make_opsetid("", 17)], ir_version=8)).run(None, {{"x": np.ones(1, np.float32)}})
before = anonymous()
{load}
loaded = anonymous() - before
s.run(None, {{"x": x}})
first = anonymous() - before
for n in (2, 3, 5, 64):
    s.run(None, {{"x": np.repeat(x, n, 0)}})
print(f"{{loaded:.0f}} {{first:.0f}} {{anonymous() - before:.0f}}")
"""


def main() -> None:
    print("| MiB | loaded | run once | run on five shapes |\n| :-- | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        for where, path in _models(Path(folder)):
            for who, load in STEPS.items():
                program = PROGRAM.format(side=SIDE, load=load)
                command = [sys.executable, "-c", program, str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                print(f"| {who}, weights {where} | {' | '.join(done.stdout.split())} |")


def _models(folder: Path) -> list[tuple[str, Path]]:
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for k in range(COUNT):
        weights.append(numpy_helper.from_array(rng.standard_normal((SIDE, SIDE)).astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{k}"], [f"h{k}"]))
        x = f"h{k}"
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", SIDE])
    graph = helper.make_graph(
        nodes, "g", [given], [helper.make_tensor_value_info(x, onnx.TensorProto.FLOAT, None)], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inside, beside = folder / "inside.onnx", folder / "beside.onnx"
    onnx.save(model, inside)
    onnx.save(model, beside, save_as_external_data=True, location="weights.bin")
    return [("in the file", inside), ("beside it", beside)]


if __name__ == "__main__":
    main()
