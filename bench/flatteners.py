"""What other tools leave of the Ifs: `python -m bench.flatteners`, a table for docs/flatten.md.

Each tool works on each model in a process of its own, as some crash. Fixed inputs are given to the others
as initializers, and sizes as declared shapes, which is what they can make use of. "right" means that
the result was compared with the original on random inputs, and that onnxruntime loads it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper
from rich.console import Console

from bench.fixtures import Fixture, fixtures
from bench.processes import asked, tell
from tests.onnx.patterns import PATTERNS

ROOT = Path(__file__).parents[1]


def tools() -> Mapping[str, Callable[[ModelProto, Mapping[str, Any]], ModelProto]]:
    """Each tool as its users call it."""

    def anydml(model: ModelProto, options: Mapping[str, Any]) -> ModelProto:
        import anydml

        return anydml.flatten(model, verify=False, **options)[0]

    def onnxsim(model: ModelProto, options: Mapping[str, Any]) -> ModelProto:
        result: ModelProto = import_module("onnxsim").simplify(prepared(model, options))[0]
        return result

    def onnxslim(model: ModelProto, options: Mapping[str, Any]) -> ModelProto:
        result: ModelProto = import_module("onnxslim").slim(prepared(model, options))
        return result

    def onnxoptimizer(model: ModelProto, options: Mapping[str, Any]) -> ModelProto:
        tool = import_module("onnxoptimizer")
        passes = tool.get_fuse_and_elimination_passes()
        result: ModelProto = tool.optimize(prepared(model, options), passes, fixed_point=True)
        return result

    def onnxscript(model: ModelProto, options: Mapping[str, Any]) -> ModelProto:
        result: ModelProto = import_module("onnxscript.optimizer").optimize(prepared(model, options))
        return result

    return {f.__name__: f for f in (anydml, onnxsim, onnxslim, onnxoptimizer, onnxscript)}


def prepared(model: ModelProto, options: Mapping[str, Any]) -> ModelProto:
    """The model with fixed inputs as initializers, and sizes as they are given."""
    changed = ModelProto()
    changed.CopyFrom(model)
    inputs = {i.name: i for i in changed.graph.input}
    for name, value in options.get("fixed", {}).items():
        dtype = onnx.helper.tensor_dtype_to_np_dtype(inputs[name].type.tensor_type.elem_type)
        changed.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        changed.graph.input.remove(inputs[name])
    told: dict[str, int] = {}
    for name, sizes in options.get("shapes", {}).items():
        shape = inputs[name].type.tensor_type.shape
        told |= {d.dim_param: n for d, n in zip(shape.dim, sizes, strict=False) if d.dim_param}
        del shape.dim[:]
        for size in sizes:
            shape.dim.add(dim_value=size)
    for given in changed.graph.input:
        for dim in given.type.tensor_type.shape.dim:
            if dim.dim_param in told:
                dim.dim_value = told[dim.dim_param]
    return changed


def models() -> Iterator[Fixture]:
    from demo.speech import model_path

    silero = model_path()
    whole = {"input": (1, 576), "state": (2, 1, 128)}
    yield Fixture("Silero VAD", silero.read_bytes(), {})
    yield Fixture("Silero VAD, always converted", silero.read_bytes(), {"convert": "always"})
    yield Fixture("Silero VAD, 16 kHz", silero.read_bytes(), {"fixed": {"sr": 16000}})
    yield Fixture(
        "Silero VAD, 16 kHz, sizes given", silero.read_bytes(), {"fixed": {"sr": 16000}, "shapes": whole}
    )
    for name in ("silero_vad_16k_op15", "silero_vad_half"):
        yield Fixture(name, silero.with_name(f"{name}.onnx").read_bytes(), {})
        yield Fixture(
            f"{name}, sizes given", silero.with_name(f"{name}.onnx").read_bytes(), {"shapes": whole}
        )
    yield from fixtures()
    for pattern in PATTERNS:
        yield Fixture(pattern.name, pattern.path.read_bytes(), {})
        yield Fixture(f"{pattern.name}, always", pattern.path.read_bytes(), {"convert": "always"})
        known: dict[str, Any] = {"shapes": pattern.shapes}
        if pattern.fixed is not None:
            known["fixed"] = pattern.fixed
        yield Fixture(f"{pattern.name}, known", pattern.path.read_bytes(), known)
    for path in sorted((ROOT / "tests" / "data" / "exporters").glob("*/model.onnx")):
        if ifs(onnx.load(path)):
            yield Fixture(path.parent.name, path.read_bytes(), {})
            yield Fixture(f"{path.parent.name}, always", path.read_bytes(), {"convert": "always"})


def main() -> None:
    console = Console(stderr=True)
    names = list(tools())
    print("| model | Ifs |", " | ".join(names), "|\n| :-- | --: |", " | ".join([":--"] * len(names)), "|")
    with tempfile.TemporaryDirectory() as folder:
        for k, model in enumerate(models()):
            path = Path(folder) / f"{k}.onnx"
            path.write_bytes(model.model)
            before = ifs(onnx.load_model_from_string(model.model))
            cells = []
            for name in names:
                console.print(f"{model.name}: {name}")
                cells.append(asked("bench.flatteners", name, str(path), json.dumps(model.options)))
            print(f"| {model.name} | {before} |", " | ".join(cells), "|", flush=True)


def one(tool: str, path: Path, options: Mapping[str, Any]) -> str:
    """One cell of the table."""
    from anydml import AnyDMLError
    from anydml.onnx.closeness import DEFAULT
    from anydml.onnx.model_pair import ModelPair
    from anydml.onnx.serde.deserialize import read
    from anydml.onnx.verification import verify

    model = onnx.load(path)
    run = tools()[tool]
    run(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> m (float x) => (float y) { y = Neg (x) }'
        ),
        {},
    )
    start = time.perf_counter()
    result = run(model, options)
    seconds = time.perf_counter() - start
    shown = prepared(model, {"shapes": options.get("shapes", {})})
    fixed = {n: np.asarray(v) for n, v in options.get("fixed", {}).items()}
    for i in shown.graph.input:
        if i.name in fixed:
            fixed[i.name] = fixed[i.name].astype(
                onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
            )
    try:
        model_read = read(shown)
        pair = ModelPair(shown, result, model_read.graph, model_read.opsets, (None, None), DEFAULT)
        found = verify(pair, fixed, 0, 24, 60.0)
        right = "right" if found.agreed else "not run"
    except AnyDMLError as error:
        right = "wrong" if "differs" in str(error) or "only" in str(error) else "does not load"
    return f"**{ifs(result)}**, {seconds:.2f} s, {right}"


def ifs(model: ModelProto) -> int:
    def inside(nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(
            (n.op_type == "If") + sum(inside(a.g.node) for a in n.attribute if a.HasField("g")) for n in nodes
        )

    return inside(model.graph.node) + sum(inside(f.node) for f in model.functions)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        tell(one(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])))
    else:
        main()
