"""Graphs that were compiled: arrays in, arrays out, or the same memory again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from anydml.display import page, signature, text
from anydml.errors import InvalidInput, Problem, translate_memory_error
from anydml.heavy import arrange, implementation_of
from anydml.ir.graph import DirectMLGraph, TensorType, Value
from anydml.ops.dtypes import IN_BUFFERS, INT4, NUMPY
from anydml.ops.tensor_desc import TensorDesc, packed_strides
from anydml.runtime.bind import Binding, Compiled
from anydml.runtime.tensor_step import pack, unpacked

if TYPE_CHECKING:
    from anydml.onnx.protos import ModelProto

Array = NDArray[Any]
MAX_COPIED_BYTES = 1 << 20
"""Of a call's arrays, inputs and outputs: to copy so much is quicker than to bind memory anew."""


class CompiledGraph(Compiled):
    """A graph that can run. Called with arrays it gives arrays; bound to memory it allocates nothing.

    It is pickled by its graph, with what `initialize` was given, and compiled again.
    """

    def __init__(
        self,
        graph: DirectMLGraph,
        inputs: Mapping[str, TensorDesc],
        unread: Set[str],
        outputs: Mapping[str, TensorDesc],
        threads: int | None,
        values: Mapping[str, Value],
    ) -> None:
        self._unread = unread
        self._idle: list[_OwnMemory] = []
        """Bindings that no call is using."""
        super().__init__(
            "graph",
            graph,
            inputs,
            outputs,
            threads,
            values=values,
            implement=implementation_of,
            arrange=arrange,
        )
        self._copies = sum(map(self._reach, self.tensors)) <= MAX_COPIED_BYTES and all(
            t.data_type in NUMPY
            and t.effective_strides == packed_strides(t.sizes)
            and self._reach(name) == t.reach
            and not (t.flags or t.guaranteed_base_offset_alignment)
            for name, t in self.tensors.items()
        )
        """Whether calls go by memory of the graph's own."""

    def __reduce__(self) -> tuple[Any, ...]:
        parts = self._graph, self._inputs, self._unread, self._outputs, self._threads, self._values
        return _compile_parts, (parts, self.owned)

    def __repr__(self) -> str:
        ends = ({n: _type_text(d) for n, d in e.items()} for e in (self._inputs, self._outputs))
        return f"<CompiledGraph {signature(*ends)}>"

    def _repr_html_(self) -> str:
        return page(repr(self)[1:-1], text(self.explain()))

    def bind(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Binding:
        """Fix the arrays of many dispatches; inputs of the builder that no output needs may be given, too.

        Raises:
            InvalidInput: with everything that is wrong with the arrays.
        """
        if isinstance(inputs, Mapping):
            inputs = {name: x for name, x in inputs.items() if name not in self._unread}
        return super().bind(inputs, outputs)

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run once.

        Args:
            inputs: arrays by name, of the declared types; C-contiguous, or of the declared sizes. Elements
                of 4 bits are one in a byte where an array has the declared sizes.

        Returns:
            New arrays of the outputs' sizes, by name.

        Raises:
            InvalidInput: with everything that is wrong with the arrays.
        """
        if self._copies and (results := self._by_own_memory(inputs)) is not None:
            return results
        return self._by_new_memory(inputs)

    @translate_memory_error
    def _by_new_memory(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if isinstance(inputs, Mapping):
            problems = [p for name, x in inputs.items() for p in self._misshapen(name, x)]
            if problems:
                raise InvalidInput(*problems)
            inputs = {name: self._contiguous(name, x) for name, x in inputs.items()}
        memory = {
            name: np.empty(-(-self._reach(name) // IN_BUFFERS[t.data_type].itemsize), IN_BUFFERS[t.data_type])
            for name, t in self._outputs.items()
        }
        self.bind(inputs, memory).dispatch()
        return {name: _seen(x, self._outputs[name]) for name, x in memory.items()}

    def _by_own_memory(self, inputs: Mapping[str, Array]) -> dict[str, Array] | None:
        """The results of exactly the inputs that are expected; None of any others."""
        if type(inputs) is not dict or len(inputs) != len(self._inputs):
            return None
        for name, tensor in self._inputs.items():
            x = inputs.get(name)
            if type(x) is not np.ndarray or x.dtype != NUMPY[tensor.data_type] or x.shape != tensor.sizes:
                return None
        try:
            own = self._idle.pop()
        except IndexError:
            own = _OwnMemory(self, self._inputs, self._outputs)
        for name, memory in own.inputs.items():
            memory[...] = inputs[name]
        own.dispatch()
        results = {name: memory.copy() for name, memory in own.outputs.items()}
        self._idle.append(own)
        return results

    def to_onnx(self) -> ModelProto:
        """The graph as an ONNX model (opset 21), with inputs and outputs of the same names: another opinion
        on its results, and a way out of DirectML. `onnx.save` writes it.

        ONNX leaves some things open that DirectML's documents fix, and libraries differ there: division of
        integers by 0, floats out of an integer's range, indices out of range (which are bounded here), NaN in
        what a maximum is sought of.

        Raises:
            Unsupported: a node that ONNX has no words for, with its name; a tensor read as another type.
        """
        from anydml.onnx.from_directml.model import to_model  # which loads onnx

        names = {value: name for name, value in self._values.items()}
        inputs = {v: names[v] for v in self._graph.inputs if v in names and names[v] in self._inputs}
        return to_model(self._graph, inputs, {v: names[v] for v in self._graph.outputs})

    def _misshapen(self, name: str, x: Any) -> Iterator[Problem]:
        """An array that is neither of the declared sizes nor flat memory."""
        tensor = self._inputs.get(name)
        if tensor is not None and isinstance(x, np.ndarray) and self._is_of_other_sizes(tensor, x):
            message = f"expected shape {tensor.sizes}, but got {x.shape}"
            flat = "or flat memory, of one dimension" if len(tensor.sizes) > 1 else ""
            yield Problem(f"graph: {name}", message, flat)
        elif tensor is not None and self._is_unpacked(tensor, x):
            wanted, low = ("int8", -8) if tensor.data_type is INT4 else ("uint8", 0)
            if x.dtype != wanted or ((x < low) | (x > low + 15)).any():
                got = x.dtype if x.dtype != wanted else f"{x.min()} to {x.max()}"
                message = f"expected {wanted} from {low} to {low + 15}, but got {got}"
                yield Problem(f"graph: {name}", message, f"each is one {tensor.data_type.label}")

    def _is_of_other_sizes(self, tensor: TensorDesc, x: Array) -> bool:
        """Flat memory of a tensor of one dimension is no larger than described, or it is another one."""
        if x.ndim != 1 or x.shape == tensor.sizes:
            return x.shape != tensor.sizes
        described = max(tensor.minimum_size, tensor.total_tensor_size_in_bytes or 0)
        return len(tensor.sizes) == 1 and x.nbytes > described

    def _is_unpacked(self, tensor: TensorDesc, x: Any) -> bool:
        """Whether elements of 4 bits are given one in a byte."""
        return tensor.data_type not in NUMPY and isinstance(x, np.ndarray) and x.shape == tensor.sizes

    def _contiguous(self, name: str, x: Any) -> Any:
        """An array of another layout but the declared sizes, as packed memory."""
        tensor = self._inputs.get(name)
        if tensor is not None and self._is_unpacked(tensor, x):
            memory = np.zeros(self._reach(name), np.uint8)  # given one in a byte
            pack(
                x,
                memory,
                TensorType(tensor.data_type.label, tensor.sizes, tensor.effective_strides),
            )
            return memory
        if tensor is None or not isinstance(x, np.ndarray) or x.flags.c_contiguous or x.shape != tensor.sizes:
            return x
        return x if tensor.effective_strides != packed_strides(tensor.sizes) else np.ascontiguousarray(x)


class _OwnMemory:
    """A graph bound to memory of its own, which calls copy into and out of."""

    def __init__(
        self, graph: CompiledGraph, inputs: Mapping[str, TensorDesc], outputs: Mapping[str, TensorDesc]
    ) -> None:
        self.inputs, self.outputs = (
            {name: np.empty(t.sizes, NUMPY[t.data_type]) for name, t in tensors.items()}
            for tensors in (inputs, outputs)
        )
        self.dispatch = graph.bind(self.inputs, self.outputs).dispatch


def _seen(flat: Array, desc: TensorDesc) -> Array:
    """A tensor's elements in its memory; those of 4 bits one in a byte."""
    if desc.data_type not in NUMPY:
        return unpacked(flat, TensorType(desc.data_type.label, desc.sizes, desc.effective_strides)).copy()
    if desc.effective_strides == packed_strides(desc.sizes):
        return flat[: desc.element_count].reshape(desc.sizes)
    return as_strided(flat, desc.sizes, [s * flat.itemsize for s in desc.effective_strides])


def _compile_parts(parts: tuple[Any, ...], owned: Mapping[str, Array]) -> CompiledGraph:
    compiled = CompiledGraph(*parts)
    if owned:
        compiled.initialize(owned)
    return compiled


def _type_text(desc: TensorDesc) -> str:
    return f"{desc.data_type.label}[{','.join(map(str, desc.sizes))}]"
