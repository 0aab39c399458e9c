"""The two oracles: onnxruntime without optimisation, and onnx.reference; for models and for single nodes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx.reference
import onnx.shape_inference
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from tests.robustness.values import Kind, parse_kind

Runner = Callable[[Mapping[str, Any]], list[Any]]

onnxruntime.set_default_logger_severity(4)


def _options(optimised: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


_PLAIN, _OPTIMISED = _options(False), _options(True)


def session(model: bytes, optimised: bool = False) -> Any:
    """onnxruntime's session; raises what it raises."""
    return onnxruntime.InferenceSession(
        model, _OPTIMISED if optimised else _PLAIN, providers=["CPUExecutionProvider"]
    )


def by_onnxruntime(model: bytes, optimised: bool = False) -> Runner:
    s = session(model, optimised)
    return lambda feeds: list(s.run(None, dict(feeds)))


def by_reference(model: ModelProto | bytes) -> Runner:
    """onnx.reference, which warns where NumPy does; nobody needs that here."""
    evaluator = onnx.reference.ReferenceEvaluator(model)

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return [tidy(v) for v in evaluator.run(None, dict(feeds))]

    return run


def tidy(value: Any) -> Any:
    """onnx.reference gives NumPy's scalars here and there."""
    if isinstance(value, list):
        return [tidy(v) for v in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def free_names(graph: GraphProto) -> list[str]:
    """The values that a subgraph takes from the graphs around it, in order of use."""
    own = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    found: dict[str, None] = {}
    for node in graph.node:
        for name in needed(node):
            if name not in own:
                found[name] = None
        own.update(node.output)
    found.update({o.name: None for o in graph.output if o.name not in own})
    return list(found)


def needed(node: NodeProto) -> list[str]:
    """All values that a node reads, captures of its subgraphs included."""
    names = dict.fromkeys(i for i in node.input if i)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names.update(dict.fromkeys(free_names(attribute.g)))
    return list(names)


def all_names(graph: GraphProto) -> set[str]:
    """Every name that a graph or one in it defines."""
    names = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    for node in graph.node:
        names.update(node.output)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names |= all_names(attribute.g)
    return names


def prune(graph: GraphProto) -> None:
    """Takes out nodes and initializers that no output needs, in subgraphs too."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                prune(attribute.g)
    wanted = {o.name for o in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= set(needed(node))
    nodes = list(reversed(kept))
    del graph.node[:]
    graph.node.extend(nodes)
    initializers = [i for i in graph.initializer if i.name in wanted]
    del graph.initializer[:]
    graph.initializer.extend(initializers)


def single(node: NodeProto, kinds: Mapping[str, Kind], opset: int) -> ModelProto:
    """A model of one node, whose inputs have these types and unknown shapes."""
    model = ModelProto(ir_version=10)
    model.opset_import.add(domain="", version=opset)
    model.graph.name = "single"
    model.graph.node.append(node)
    for name in needed(node):
        model.graph.input.add(name=name).type.CopyFrom(kinds[name].proto())
    model.graph.output.extend(ValueInfoProto(name=o) for o in node.output if o)
    return model


class NodeOracle:
    """One node in both oracles; `kinds` are the types of its outputs."""

    def __init__(self, node: NodeProto, kinds: Mapping[str, Kind], opset: int) -> None:
        model = self.model = single(node, kinds, opset)
        self.outputs = [o for o in node.output if o]
        self.kinds: list[Kind] = []
        self.first: Runner | None = None
        self.second: Runner | None = None
        try:
            s = session(model.SerializeToString())
            self.kinds = [parse_kind(o.type) for o in s.get_outputs()]
            self.first = lambda feeds: list(s.run(None, dict(feeds)))
        except Exception as error:
            self.why = str(error)
        try:
            self.second = by_reference(model)
        except Exception as error:
            self.why_second = str(error)

    def typed(self) -> bool:
        """Whether the schema allows the types; onnx.reference does not ask."""
        try:
            onnx.shape_inference.infer_shapes(self.model, check_type=True, strict_mode=True)
        except Exception:
            return False
        return True


def attempt(run: Runner | None, feeds: Mapping[str, Any]) -> list[Any] | None:
    """The outputs, or None where the oracle fails."""
    if run is None:
        return None
    try:
        return run(feeds)
    except Exception:
        return None


def op_types(graphs: Iterable[GraphProto]) -> list[str]:
    """The operators of graphs and their subgraphs, each once."""
    found: dict[str, None] = {}
    queue = list(graphs)
    while queue:
        for node in queue.pop().node:
            found[node.op_type] = None
            queue.extend(a.g for a in node.attribute if a.HasField("g"))
    return list(found)


def size_of(model: ModelProto) -> int:
    """How many nodes it has, those of subgraphs included."""

    def count(graph: GraphProto) -> int:
        return sum(1 + sum(count(a.g) for a in n.attribute if a.HasField("g")) for n in graph.node)

    return count(model.graph)
