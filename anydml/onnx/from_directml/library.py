"""Heavy operators of DirectML by onnxruntime: those whose work is worth a session of their own.

A session is made for sizes and attributes, and lives as long as somebody has what computes with it. Values
are those of the definition up to the order in which they are summed, and in recurrent layers up to
onnxruntime's tanh and sigmoid, which err by 1e-7 of 1 where the value itself is small, too; float16 is
computed in float32, as everywhere.
"""

from __future__ import annotations

from threading import Lock
from typing import Any
from weakref import WeakValueDictionary, ref

import numpy as np

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
from anydml.runtime.addresses import over_memory
from anydml.runtime.launch import packed

Tensor = tuple[str, TensorDataType, tuple[int, ...]]


_in_use: WeakValueDictionary[Any, _Heavy] = WeakValueDictionary()


def implementation(
    operator: Operator,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    attributes: tuple[tuple[str, Any], ...],
    threads: int,
) -> Implementation | None:
    """What computes the operator's `Call` on tensors of these sizes: what is in use already, or made now.

    None where ONNX has no words for it, or onnxruntime no kernel.
    """
    key = operator, inputs, outputs, attributes, threads
    if (known := _in_use.get(key)) is not None:
        return known
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
    present = [s.name in wide for s in operator.outputs]
    targets = [(s.parameter, IN_ARRAYS[wide[s.name].data_type]) for s in operator.outputs if s.name in wide]
    heavy = _in_use[key] = _Heavy(RunInto(run), _places(operator, inputs), targets, present, threads)
    return heavy


class _Heavy:
    holds_session = True

    def __init__(
        self,
        run: RunInto,
        places: list[tuple[str, int | None]],
        targets: list[tuple[str, np.dtype[Any]]],
        present: list[bool],
        threads: int,
    ) -> None:
        self._run, self._places, self._targets = run, places, targets
        self._present, self._threads = present, threads

    def __call__(self, call: Call) -> Any:
        found = [getattr(call, name) if k is None else getattr(call, name)[k] for name, k in self._places]
        outputs = [empty(getattr(call, parameter), dtype) for parameter, dtype in self._targets]
        results = iter(self._run([packed(x, self._threads) for x in found], outputs))
        parts = tuple(next(results) if there else None for there in self._present)
        return parts if len(parts) > 1 else parts[0]


class RunInto:
    """Runs of a region into memory that the caller has.

    Arrays that come a second time are those of a dispatch, which comes again and again: they are bound, since
    the library would copy its own outputs out. For others that takes longer than the copy. What is bound
    keeps no array alive, and goes with the first that does.
    """

    def __init__(self, run: Any) -> None:
        self._run, self._busy = run, Lock()
        self._last: tuple[list[ref[Array]], Any] = [], None
        """The arrays of the last call, and a run on them if they are bound. NumPy resizes none of which there
        is a weak reference."""
        me = ref(self)

        def forget(_: ref[Array]) -> None:
            if (here := me()) is not None:
                here._last = [], None

        self._forget = forget

    def __call__(self, inputs: list[Array], outputs: list[Array]) -> list[Array]:
        arrays, (seen, bound) = [*inputs, *outputs], self._last
        again = len(seen) == len(arrays) and all(s() is x for s, x in zip(seen, arrays, strict=True))
        if not again:
            self._last = [ref(x, self._forget) for x in arrays], None
        elif bound is None:
            bound = self._run.bind(*([over_memory(x) for x in side] for side in (inputs, outputs)))
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
