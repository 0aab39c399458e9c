"""Operators with bodies, which run them any number of times."""

from __future__ import annotations

from dataclasses import replace

from anydml.ir.dims import Dim, may_be_zero
from anydml.ir.graph import Body, If, Node, OptionalType, SequenceType, TensorType, Type, Value
from anydml.ir.transforms import replace_values
from anydml.onnx.ops.opinfo import KnownNode, NodeView, OpInfo, Quirk
from anydml.onnx.ops.result_types import Types
from anydml.onnx.ops.safe import looped, scanned
from anydml.onnx.types import leaf, without_sizes


def _loop_parameter(node: Node, k: int) -> Type | None:
    if k < 2:
        return TensorType("bool") if k else TensorType("int64", ())  # some pass on a condition of shape [1]
    given = node.inputs[k] if k < len(node.inputs) else None
    return None if given is None else given.type


def _scan_parameter(node: Node, k: int) -> Type | None:
    place = k + (node.op.version < 9)  # the first input has the lengths of sequences then
    given = node.inputs[place] if place < len(node.inputs) else None
    if given is None or given.type is None:
        return None
    return given.type if k in _scan_states(node) else _row_type(node, k, given.type)


def _row_type(node: Node, k: int, type: Type) -> Type:
    """The type of what a Scan's body reads of input k."""
    view = NodeView(node)
    if node.op.version < 9:
        return without_sizes(type)
    axes = view.ints("scan_input_axes")
    axis = axes[k - len(node.inputs) + view.int("num_scan_inputs")] if axes else 0
    return _without_axis(node.inputs[k], axis) or without_sizes(type)


def _loop_states(node: Node) -> dict[int, int]:
    return {k: k - 1 for k in range(2, len(node.inputs))}


def _scan_states(node: Node) -> dict[int, int]:
    count = len(node.inputs) - (node.op.version < 9) - NodeView(node).int("num_scan_inputs")
    return {k: k for k in range(count)}


def _loop_row(node: Node, k: int) -> Type | None:
    return None if k <= len(_loop_states(node)) else _without_axis(node.outputs[k - 1], 0)


def _scan_row(node: Node, k: int) -> Type | None:
    states = len(_scan_states(node))
    if node.op.version < 9 or k < states:
        return None
    axes = NodeView(node).ints("scan_output_axes")
    return _without_axis(node.outputs[k], axes[k - states] if axes else 0)


def _without_axis(value: Value | None, axis: int) -> Type | None:
    """The type of a part of a tensor along an axis."""
    rank = None if value is None else value.rank
    if value is None or rank is None or not -rank <= axis < rank:
        return None
    sizes = tuple(n for j, n in enumerate(value.sizes or ()) if j != axis % rank)
    return TensorType(value.tensor.dtype, sizes)


def _looped(n: KnownNode) -> Types:
    """States are of the types that they begin with, and of any sizes, as those may change."""
    body, states = n.bodies.get("body"), n.count - 2
    if body is None or states < 0:
        return None
    given = [None if (v := n.value(k)) is None else v.type for k in range(2, n.count)]
    types = [None if type is None else _changeable(type) for type in given]
    types += [_row(n, body, 1 + states + k, 0, None) for k in range(len(n.outputs) - states)]
    return None if None in types else types


def _changeable(type: Type) -> Type:
    """What stays of a type from one iteration to the next."""
    bare = without_sizes(type)
    return replace(bare, empty=False) if isinstance(bare, SequenceType | OptionalType) else bare


def _scanned(n: KnownNode) -> Types:
    """As of a Loop, but states keep their sizes, and there are as many rows as are gone over."""
    body = n.bodies.get("body")
    if n.version < 9 or body is None:
        return None
    states = len(_scan_states(n.node))
    axes, inputs = n.ints("scan_output_axes") or [], n.ints("scan_input_axes") or []
    lengths = [n.size(k, inputs[k - states] if inputs else 0) for k in range(states, n.count)]
    length = next((size for size in lengths if isinstance(size, int)), lengths[0] if lengths else None)
    types = [None if (v := n.value(k)) is None else v.type for k in range(states)]
    for k in range(len(n.outputs) - states):
        types.append(_row(n, body, states + k, axes[k] if axes else 0, length))
    return None if None in types else types


def _row(n: KnownNode, body: Body, place: int, axis: int, length: Dim) -> TensorType | None:
    """The type of what a body gives a row of each time, stacked along an axis: as far as it has types, and by
    the file's word where those say nothing, as libraries take it."""
    row, told = body.outputs[place], body.returns[place]
    if not isinstance(row.type, TensorType):
        return TensorType(told.dtype) if row.type is None and isinstance(told, TensorType) else None
    said = told.known_sizes if isinstance(told, TensorType) else None
    sizes = row.sizes if row.sizes is not None else said
    if sizes is None or not -len(sizes) - 1 <= axis <= len(sizes):
        return TensorType(row.type.dtype)
    around = {s for v in n.node.reads for s in v.sizes or ()}
    kept: list[Dim] = [s if isinstance(s, int) or s in around else None for s in sizes]
    if said is not None and len(said) == len(kept):
        kept = [other if s is None else s for s, other in zip(kept, said, strict=True)]
    kept.insert(axis % (len(kept) + 1), length)
    return TensorType(row.type.dtype, tuple(kept))


def _map_parameter(node: Node, k: int) -> Type | None:
    given = node.inputs[k] if k < len(node.inputs) else None
    if given is None or given.type is None:
        return None
    return given.type.element if isinstance(given.type, SequenceType) else without_sizes(given.type)


def _without_false_sizes(node: Node) -> Node:
    """A Scan whose body says nothing of its parameters' sizes that those of the node's inputs contradict.

    Libraries run such a Scan where they do not know, and refuse it where they do.
    """
    body, view = node.bodies.get("body"), NodeView(node)
    if node.op.version < 9 or body is None or "num_scan_inputs" not in view.given:
        return node
    first, takes = len(node.inputs) - view.int("num_scan_inputs"), list(body.takes)
    axes = view.ints("scan_input_axes") or []
    for k, (value, told) in enumerate(zip(node.inputs, body.takes, strict=False)):
        sizes, said = None if value is None else value.sizes, Value("", told).sizes
        if sizes is None or said is None or told is None:
            continue
        if k >= first and sizes:
            axis = axes[k - first] if k - first < len(axes) else 0
            sizes = tuple(n for j, n in enumerate(sizes) if j != axis % len(sizes))
        if len(said) != len(sizes) or any(
            isinstance(n, int) and isinstance(m, int) and m != n for n, m in zip(sizes, said, strict=True)
        ):
            takes[k] = without_sizes(told)
    if tuple(takes) == body.takes:
        return node
    right = {v: Value(v.name, t) for v, t in zip(body.parameters, takes, strict=True)}
    return replace(node, bodies={"body": replace(replace_values(body, right), takes=tuple(takes))})


def _rows_by_if(n: KnownNode) -> bool:
    """Whether an If gives rows of sizes that the file does not tell; an Identity behind it is taken away."""
    body = n.bodies.get("body")
    if body is None:
        return False
    makers = {v: node for node in body.nodes for v in node.writes}
    for value, told in list(zip(body.outputs, body.returns, strict=True))[len(_scan_states(n.node)) :]:
        maker = makers.get(value)
        while isinstance(maker, Node) and maker.is_onnx("Identity"):
            maker = makers.get(maker.inputs[0]) if maker.inputs[0] is not None else None
        if isinstance(maker, If) and Value("", told).known_sizes is None:
            return True
    return False


def _turns_nothing(n: KnownNode) -> bool:
    """Whether it reads or writes along another axis than the first, of what may have no elements."""
    body = n.bodies.get("body")
    if n.version < 9 or body is None:
        return False
    reads, writes = n.ints("scan_input_axes") or [], n.ints("scan_output_axes") or []
    if not any(reads) and not any(writes):
        return False
    states = len(_scan_states(n.node))
    rows = [Value("", t).sizes for t in body.returns[states:]]
    return any(n.may_be_empty(states + k) for k, axis in enumerate(reads) if axis) or any(
        sizes is None or any(map(may_be_zero, sizes))
        for sizes, axis in zip(rows, writes, strict=False)
        if axis
    )


def _goes_over_nothing(n: KnownNode) -> bool:
    """Whether what it goes over is known to have no rows."""
    if n.version < 9:
        return False
    states = len(_scan_states(n.node))
    axes = n.ints("scan_input_axes") or [0] * (n.count - states)
    return any(n.size(k, axis) == 0 for k, axis in enumerate(axes, states))


_NOTHING = Quirk("onnxruntime refuses to go over no rows", _goes_over_nothing)
_TURNED = Quirk(
    "onnxruntime ends the process on rows along other axes, where there are none", _turns_nothing, fatal=True
)
_ROWS = Quirk("onnxruntime fails on rows of unknown sizes that an If gives", _rows_by_if)


def _gives_back_lists(n: KnownNode) -> bool:
    """Whether a state that is a sequence stays what it was."""
    body = n.bodies.get("body")
    if body is None:
        return False
    told = dict(zip(body.parameters, body.takes, strict=True))
    return any(
        v in told and isinstance(v.type or told[v], SequenceType) for v in body.outputs[1 : n.count - 1]
    )


_LISTS = Quirk(
    "onnxruntime takes the items out of a sequence that its body returns as it got it",
    _gives_back_lists,
    mended=True,
)


def _passes_texts_on(n: KnownNode) -> bool:
    """Whether a row is texts that its body only hands on, of a state or from outside."""
    body = n.bodies.get("body")
    if body is None:
        return False
    makers = {v: node for node in body.nodes for v in node.writes}
    first = 1 + len(_loop_states(n.node))
    for value, told in list(zip(body.outputs, body.returns, strict=True))[first:]:
        maker, types = makers.get(value), [told, value.type]
        while isinstance(maker, Node) and maker.is_onnx("Identity") and maker.inputs[0] is not None:
            types.append(maker.inputs[0].type)
            maker = makers.get(maker.inputs[0])
        texts = any(t is not None and leaf(t).dtype == "string" for t in types)
        if texts and (maker is None or isinstance(maker, If)):
            return True
    return False


_TEXTS = Quirk(
    "onnxruntime takes the texts out of what its body hands on as a row", _passes_texts_on, unrolled=True
)
OPS = (
    OpInfo(
        "Loop",
        result=_looped,
        resizes_states=True,
        parameter=_loop_parameter,
        row=_loop_row,
        states=_loop_states,
        safe=looped,
        quirks=(_LISTS, _TEXTS),
    ),
    OpInfo(
        "Scan",
        result=_scanned,
        parameter=_scan_parameter,
        row=_scan_row,
        states=_scan_states,
        agreed=_without_false_sizes,
        safe=scanned,
        quirks=(_ROWS, _NOTHING, _TURNED),
    ),
    OpInfo("SequenceMap", parameter=_map_parameter, makes_container=True),
)
