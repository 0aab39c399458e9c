"""Heavy operators of DirectML by onnxruntime: those whose work is worth a session of their own.

A session is made for sizes and attributes, and kept. Values are those of the definition up to the order in
which they are summed, and in recurrent layers up to onnxruntime's tanh and sigmoid, which err by 1e-7 of 1
where the value itself is small, too; float16 is computed in float32, as everywhere.
"""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import ref

from anydml.errors import Unsupported
from anydml.onnx.from_directml.model import lowered
from anydml.onnx.from_directml.nodes import IR_VERSION, OPSET, OnnxNodes, code_of
from anydml.onnx.protos import ModelProto, make_opsetid, make_tensor_value_info
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.provider import Region
from anydml.ops.call import Array, Call, Implementation, empty, fields_of
from anydml.ops.dtypes import FLOAT16, FLOAT32, IN_ARRAYS
from anydml.ops.enums import TensorDataType
from anydml.ops.opdef import Operator
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.launch import packed

Tensor = tuple[str, TensorDataType, tuple[int, ...]]


@lru_cache(maxsize=128)
def implementation(
    operator: Operator,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    attributes: tuple[tuple[str, Any], ...],
    threads: int,
) -> Implementation | None:
    """What computes the operator's `Call` on tensors of these sizes; None where ONNX has no words for it, or
    onnxruntime no kernel."""
    wide = {n: TensorDesc(FLOAT32 if t is FLOAT16 else t, sizes) for n, t, sizes in (*inputs, *outputs)}
    names = {n: f"t{k}" for k, (n, _, _) in enumerate(inputs)}
    o = OnnxNodes()
    made = lowered(operator, wide, dict(attributes), names, o)
    if made is None:
        return None
    results = {s.name: edge for s, edge in zip(operator.outputs, made, strict=True) if s.name in wide}
    if None in results.values():
        return None
    wanted = {name: str(edge) for name, edge in results.items()}
    model = ModelProto(ir_version=IR_VERSION)
    model.opset_import.append(make_opsetid("", OPSET))
    model.graph.name = operator.name
    model.graph.node.extend(o.nodes)
    model.graph.initializer.extend(o.constants)
    for side, ends in ((model.graph.input, names.items()), (model.graph.output, wanted.items())):
        for name, edge in ends:
            desc = wide[name]
            side.append(make_tensor_value_info(edge, code_of(desc.data_type), desc.sizes))
    region = Region(model.SerializeToString(), tuple(names.values()), tuple(wanted.values()))
    try:
        run = OnnxRuntime().compile(region, threads, alone=False)
    except Unsupported:
        return None
    places = _places(operator, inputs)
    present = [s.name in wide for s in operator.outputs]
    targets = [(s.parameter, IN_ARRAYS[wide[s.name].data_type]) for s in operator.outputs if s.name in wide]
    into = RunInto(run)

    def compute(call: Call) -> Any:
        found = [getattr(call, name) if k is None else getattr(call, name)[k] for name, k in places]
        outputs = [empty(getattr(call, parameter), dtype) for parameter, dtype in targets]
        results = iter(into([packed(x, threads) for x in found], outputs))
        parts = tuple(next(results) if there else None for there in present)
        return parts if len(parts) > 1 else parts[0]

    return compute


class RunInto:
    """Runs of a region into memory that the caller has.

    Arrays that come a second time are those of a dispatch, which comes again and again: they are bound, since
    the library would copy its own outputs out. For others that takes longer than the copy.
    """

    def __init__(self, run: Any) -> None:
        self._run, self._busy = run, Lock()
        self._last: tuple[list[Any], Any] = [], None
        """Weak references to the arrays of the last call, and a run on them if they are bound."""

    def __call__(self, inputs: list[Array], outputs: list[Array]) -> list[Array]:
        arrays, (seen, bound) = [*inputs, *outputs], self._last
        again = len(seen) == len(arrays) and all(s() is x for s, x in zip(seen, arrays, strict=True))
        if not again:
            self._last = [*map(ref, arrays)], None
        elif bound is None:
            bound = self._run.bind(inputs, outputs)
            self._last = seen, bound
        if again and bound is not None and self._busy.acquire(False):  # a binding is for one thread at a time
            try:
                if bound():
                    return outputs
            finally:
                self._busy.release()
        results: list[Array] = self._run(inputs)
        return results


def _places(operator: Operator, inputs: tuple[Tensor, ...]) -> list[tuple[str, int | None]]:
    """Where a `Call` has each input: its name, and which of several."""
    found: dict[str, tuple[str, int | None]] = {}
    given = {n: None for n, _, _ in inputs}
    for operand in operator.inputs:
        if operand.array:
            found |= {n: (operand.parameter, k) for k, n in enumerate(fields_of(operand.name, given))}
        else:
            found[operand.name] = operand.parameter, None
    return [found[n] for n, _, _ in inputs]
