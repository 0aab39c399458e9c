"""Which implementation an operator of whole tensors has: its definition's, a kernel, or a library's."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

from anydml.ir.graph import DirectMLGraph, DirectMLNode
from anydml.ops.call import Array, Implementation, fields
from anydml.ops.opdef import Operator
from anydml.ops.reductions import MIN_COLUMNS
from anydml.ops.row_expressions import OF_ROWS
from anydml.ops.tensor_desc import TensorDesc
from anydml.runtime.attention_kernels import ATTENTION, attention_kernel
from anydml.runtime.best_kernels import BEST, MAX_COUNT, best_kernel
from anydml.runtime.bind import Compiled
from anydml.runtime.constant_kernels import CONSTANTS, constant_kernel
from anydml.runtime.convolution_kernels import best_by_kernels, convolution_kernel
from anydml.runtime.gradient_kernels import GRADIENTS, gradient_kernel
from anydml.runtime.integer_kernels import CONVOLUTIONS, MATRICES, MAX_COLUMNS_BYTES, has_room, integer_kernel
from anydml.runtime.matrix_kernels import MIN_BLAS, matrix_kernel
from anydml.runtime.move_kernels import MOVES, move_kernel, view_kernel
from anydml.runtime.product_kernels import product_kernel
from anydml.runtime.quantizing_kernels import QUANTIZING, quantizing_kernel
from anydml.runtime.resample_kernels import RESAMPLING, resample_kernel
from anydml.runtime.row_kernels import row_kernel
from anydml.runtime.running_kernels import RUNNING, running_kernel
from anydml.runtime.threads import default_threads
from anydml.runtime.window_kernels import MAX_TAPS, POOLING, window_kernel


class _Kernels(NamedTuple):
    """Operators that kernels compute, and what makes these; None for calls whose definition is as good."""

    make: Callable[[Operator, Mapping[str, TensorDesc], Mapping[str, Any], int | None], Implementation | None]
    operators: Container[str]
    which: str = ""
    """Of their calls, in words; none where that is all of them, or nearly."""


KERNELS = (
    _Kernels(row_kernel, OF_ROWS, f"along last axes or of {MIN_COLUMNS} columns"),
    _Kernels(product_kernel, ("REDUCE",)),
    _Kernels(window_kernel, POOLING, f"windows up to {MAX_TAPS} or whole planes"),
    _Kernels(resample_kernel, RESAMPLING),
    _Kernels(move_kernel, MOVES),
    _Kernels(constant_kernel, CONSTANTS),
    _Kernels(best_kernel, BEST, f"up to {MAX_COUNT}"),
    _Kernels(running_kernel, RUNNING),
    _Kernels(matrix_kernel, ("GEMM",), f"up to {MIN_BLAS:,} multiply-adds, and more with AVX-512"),
    _Kernels(convolution_kernel, ("CONVOLUTION",), "forward"),
    _Kernels(gradient_kernel, GRADIENTS),
    _Kernels(attention_kernel, ATTENTION),
    _Kernels(integer_kernel, (*MATRICES, *CONVOLUTIONS), "8-bit integers"),
    _Kernels(quantizing_kernel, QUANTIZING),
)
"""Tried in this order."""
_VIEWS = _Kernels(view_kernel, ())


def _kernels_of(operator: Operator) -> list[_Kernels]:
    named = [kernels for kernels in KERNELS if operator.name in kernels.operators]
    return named if named or operator.view is None else [_VIEWS]


MIN_ELEMENTS = 1
"""Of the largest tensor, for a kernel. Without any there is nothing to launch."""
WORTH = 1 << 20
"""Multiply-adds from which a library pays: making it ready takes a millisecond, loading it a hundred."""
STEP = WORTH >> 4
"""As many take as long as what NumPy's calls add to a step of a recurrent layer."""


def implementation_of(
    operator: Operator,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, Any],
    threads: int | None,
) -> Implementation | None:
    """What computes a `Call` of tensors of these sizes; None: what the definition says, as it stands."""
    by_library = _work(operator, tensors) >= WORTH and not (
        _without_nan(operator, attributes)
        or (operator.name == "CONVOLUTION" and best_by_kernels(tensors, attributes))
    )
    largest = max(prod(t.sizes) for t in tensors.values())
    if largest >= MIN_ELEMENTS and not by_library:
        for kernels in _kernels_of(operator):
            if (kernel := kernels.make(operator, tensors, attributes, threads)) is not None:
                return kernel
    if not by_library:
        return None
    from anydml.onnx.from_directml.library import implementation  # which loads onnxruntime

    outputs = {s.name for s in operator.outputs}
    inputs, results = (
        tuple((n, t.data_type, t.sizes) for n, t in tensors.items() if (n in outputs) is given)
        for given in (False, True)
    )
    values = tuple((n, v) for n, v in attributes.items() if n != "FusedActivation")
    return implementation(operator, inputs, results, values, threads or default_threads())


def arrange(graph: DirectMLGraph, threads: int | None, maxima: bool = True) -> DirectMLGraph:
    """The graph as it is to run: convolutions that follow each other are run by the library as a whole.

    `maxima`: whether together with maximum pooling, for inputs that make no NaN.
    """

    def is_heavy(node: DirectMLNode) -> bool:
        if not isinstance(node.op, Operator) or node.op.name not in LIBRARY:
            return False
        ends = zip(names_of_node(node), (*node.inputs, *node.outputs), strict=True)
        seen = {n: node.views.get(k) or v.tensor for k, (n, v) in enumerate(ends) if v is not None}
        tensors = {n: TensorDesc(t.data_type, t.static_sizes) for n, t in seen.items()}
        return _work(node.op, tensors) >= WORTH

    if sum(isinstance(n, DirectMLNode) and is_heavy(n) for n in graph.nodes) < 2:
        return graph
    from anydml.onnx.from_directml.regions_of_graphs import with_regions  # which loads onnxruntime

    def compiled(part: DirectMLGraph) -> Callable[[list[Array], list[Array]], list[Array]]:
        return _without_maxima(part, threads)

    return with_regions(graph, is_heavy, threads or default_threads(), compiled if maxima else None)


def _without_maxima(
    part: DirectMLGraph, threads: int | None
) -> Callable[[list[Array], list[Array]], list[Array]]:
    """What runs a part of a graph with its maximum pooling outside of what the library runs."""
    values = {f"{k}": v for k, v in enumerate((*part.inputs, *part.outputs))}
    tensors = {name: TensorDesc(v.data_type, v.tensor.static_sizes) for name, v in values.items()}
    names = [*tensors]
    given, made = names[: len(part.inputs)], names[len(part.inputs) :]
    graph = Compiled(
        "part",
        part,
        {name: tensors[name] for name in given},
        {name: tensors[name] for name in made},
        threads,
        values=values,
        implement=implementation_of,
        arrange=partial(arrange, maxima=False),
    )

    def run(inputs: list[Array], outputs: list[Array]) -> list[Array]:
        graph.dispatch(dict(zip(given, inputs, strict=True)), dict(zip(made, outputs, strict=True)))
        return outputs

    return run


def names_of_node(node: DirectMLNode) -> list[str]:
    """The field names of a node's inputs and outputs."""
    assert isinstance(node.op, Operator)
    return [*fields(node.op.inputs, len(node.inputs)), *fields(node.op.outputs, len(node.outputs))]


def how_computed(operator: Operator) -> str:
    """What computes the operator, in words, for the documentation."""
    if operator.scalar is not None:
        return "kernel"
    way = "NumPy"
    if kernels := _kernels_of(operator):
        way = f"kernel ({kernels[0].which}), else NumPy" if kernels[0].which else "kernel, else NumPy"
    if operator.name in RECURRENT:
        return f"{way}; from {WORTH:,} multiply-adds or {WORTH // STEP} steps on, onnxruntime"
    if operator.name in CONVOLUTIONS and operator.name in LIBRARY:
        return f"{way}; of windows that see more than {MAX_COLUMNS_BYTES:,} bytes, onnxruntime"
    if operator.name in LIBRARY:
        return f"{way}; from {WORTH:,} multiply-adds on, onnxruntime"
    return way


def _without_nan(operator: Operator, attributes: Mapping[str, Any]) -> bool:
    """Whether the library's values differ: its recurrent layers' RELU makes 0 of NaN."""
    functions = attributes.get("ActivationDescs") or ()
    return operator.name in RECURRENT and any(f.operator.name == "ACTIVATION_RELU" for f in functions)


RECURRENT = ("RNN", "GRU", "LSTM")
LIBRARY = ("CONVOLUTION", "CONVOLUTION_INTEGER", *RECURRENT)
"""Operators that a library computes where that is worth it."""


def _work(operator: Operator, tensors: Mapping[str, TensorDesc]) -> int:
    """Multiply-adds, about, of the operators that the library does faster; 0 of all others."""
    if operator.name == "CONVOLUTION_INTEGER" and has_room(tensors):
        return 0
    if operator.name in ("CONVOLUTION", "CONVOLUTION_INTEGER"):
        return prod(tensors["OutputTensor"].sizes) * prod(tensors["FilterTensor"].sizes[1:])
    if operator.name in RECURRENT:
        _, steps, batch, _ = tensors["InputTensor"].sizes
        return steps * (batch * prod(tensors["RecurrenceTensor"].sizes) + STEP)
    return 0
