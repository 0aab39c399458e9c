"""Two models side by side: what each consists of, and whether they do the same.

print(compare("model.onnx", "flat.onnx").same)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anydml.dataclass import asdict, dataclass, replace
from anydml.display import page, table
from anydml.errors import InvalidInput, Problem, VerificationFailed, counted, translate_memory_error
from anydml.flatten_report import Size, not_compared, size_of
from anydml.ir.graph import Graph, TensorType, Value
from anydml.ir.transforms import replace_values
from anydml.onnx.closeness import Tolerance
from anydml.onnx.if_conversion.cost import graph_flops
from anydml.onnx.input_shapes import Shapes, check_request
from anydml.onnx.model_pair import ModelPair
from anydml.onnx.partial_eval.annotate import read_typed
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.random_inputs import compared_with
from anydml.onnx.serde.parse import ModelSource
from anydml.onnx.verification import Verified, verify


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two models.

    Attributes:
        first, second: what they consist of.
        opsets: of both, by domain.
        verified: on how many random inputs they gave the same; None if that was not tried.
        difference: on which input they did not; nothing where they did.
    """

    first: Size
    second: Size
    opsets: tuple[Mapping[str, int], Mapping[str, int]]
    verified: Verified | None
    difference: str

    @property
    def same(self) -> bool | None:
        """Whether they gave the same; None if that was not tried, or on no input that has elements."""
        if self.difference:
            return False
        return True if self.verified is not None and self.verified.conclusive else None

    @property
    def verdict(self) -> str:
        """Whether they do the same; where they were not run, in what their files differ."""
        if self.difference:
            return f"they differ: {self.difference}"
        if self.verified is not None and self.verified.conclusive:
            return f"the same on {self.verified}"
        if self.verified is not None:
            return not_compared(self.verified, self.first.inputs)
        sides = (self.first, self.opsets[0]), (self.second, self.opsets[1])
        first, second = ({**asdict(size), "opsets": dict(opsets)} for size, opsets in sides)
        apart = [word for word in ("operators", "inputs", "outputs", "opsets") if first[word] != second[word]]
        found = f"other {', '.join(apart)}" if apart else "the same operators, inputs, outputs and opsets"
        return f"not run; they have {found}"

    def as_dict(self) -> dict[str, Any]:
        """In types that JSON has."""
        return {**asdict(self), "same": self.same, "verdict": self.verdict}

    def __str__(self) -> str:
        return self.verdict

    def __repr__(self) -> str:
        told = {True: "the same", False: self.difference, None: "not compared"}[self.same]
        return f"<Comparison: {told}; {self.first.nodes:,} and {counted(self.second.nodes, 'node')}>"

    def _repr_html_(self) -> str:
        sizes = self.first, self.second
        rows = [
            (word, *(f"{getattr(s, word):,}" for s in sizes)) for word in ("ifs", "nodes", "bytes", "work")
        ]
        for name in sorted({*self.first.operators, *self.second.operators}):
            rows.append((name, *(f"{s.operators.get(name, 0):,}" for s in sizes)))
        return page(repr(self)[1:-1], table(("", "first", "second"), rows))


def _as_both_take(first: Graph, second: Graph) -> Graph:
    """The first graph, its inputs of the sizes that the second declares where it leaves them open."""
    declared = {v.name: v.type for v in second.inputs}
    narrower: dict[Value, Value] = {}
    for value in first.inputs:
        mine, its = value.type, declared.get(value.name)
        if not isinstance(mine, TensorType) or not isinstance(its, TensorType):
            continue
        if mine.sizes is None or its.sizes is None or len(mine.sizes) != len(its.sizes):
            continue
        sizes = tuple(b if isinstance(b, int) else a for a, b in zip(mine.sizes, its.sizes, strict=True))
        narrower[value] = Value(value.name, replace(mine, sizes=sizes))
    return replace_values(first, narrower)


@translate_memory_error
def compare(
    first: ModelSource,
    second: ModelSource,
    *,
    fixed: Mapping[str, Any] | None = None,
    shapes: Shapes | None = None,
    run: bool = True,
    seed: int = 0,
    trials: int = 24,
    seconds: float = 2.0,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Two models, compared by what is in them, and on random inputs.

    Args:
        first: a path, a file's bytes, or an `onnx.ModelProto`.
        second: likewise; it may lack inputs of the first whose contents are `fixed`.
        fixed: contents of inputs of the first model, by name.
        shapes: sizes of its inputs, by name, where random ones would fit no model.
        run: whether to run both on random inputs of the first.
        seed: of these inputs.
        trials: how many of them, if that takes no more than `seconds`.
        rtol, atol: how far floats of outputs may be apart, `atol + rtol * abs(second)` as in NumPy; if one is
            given, the other is 0. None of both: 1e-5 of an output's largest element, or of 1 if that is less;
            0.01 in models of 16-bit floats and in quantized ones.
        progress: is told how many trials of how many are done.

    Raises:
        InvalidInput: they have other outputs, or the second one has inputs that the first has not; `fixed` or
            `shapes` do not fit the first model; a tolerance is below 0.
        InvalidModel, Unsupported, OSError: as `load` does.
    """
    close = Tolerance(rtol, atol)
    provider = OnnxRuntime()
    _, a, folder, read, graph = read_typed(first, provider)
    _, b, its_folder, other, changed = read_typed(second, provider)
    sizes = [size_of(a, graph_flops(graph)), size_of(b, graph_flops(changed))]
    opsets = (dict(read.opsets), dict(other.opsets))
    contents, types = check_request(read, fixed or {}, shapes or {}, {}, "never")
    if not run:
        return Comparison(sizes[0], sizes[1], opsets, None, "")
    known = {v.name: c.content for v, c in contents.items()}
    left = {v.name for v in read.graph.inputs} - set(known)
    missing = left ^ {v.name for v in other.graph.inputs}
    outputs = [o.name for o in read.outputs], [o.name for o in other.outputs]
    if missing or outputs[0] != outputs[1]:
        told = f"inputs {sorted(missing)}" if missing else f"outputs {outputs[0]} and {outputs[1]}"
        message = f"expected the same inputs and outputs, but {told} differ"
        remedy = "tell the contents of inputs that one lacks (`fixed`), or do not run them"
        raise InvalidInput(Problem("models", message, remedy))
    asked = replace_values(read.graph, {v: Value(v.name, types.get(v, v.type)) for v in read.graph.inputs})
    given = _as_both_take(asked, other.graph)
    try:
        pair = ModelPair(a, b, given, read.opsets, (folder, its_folder), close)
        done = verify(pair, known, seed, trials, seconds, progress, others=compared_with(changed))
    except VerificationFailed as failure:
        return Comparison(sizes[0], sizes[1], opsets, None, failure.problems[0].message)
    return Comparison(sizes[0], sizes[1], opsets, done, "")
