"""Whether a node has the form that ONNX's schema of its operator asks for.

Checked while a model is read, so that no later layer, and no library, meets a node with an input too few or
an attribute of another kind: some of them end the process on one. Unknown attributes are left to whoever
compiles the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from anydml.errors import InvalidModel, Problem, counted, nearest
from anydml.ir.graph import Node, OnnxOp
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.ops.opinfo import OpInfo
from anydml.onnx.protos import AttributeProto, GraphProto
from anydml.onnx.schema import MAX_VARIADIC, Form, form_of, wrong_type

_KINDS = {code: name.lower() for name, code in AttributeProto.AttributeType.items()}
_INTEGERS = (AttributeProto.INT, AttributeProto.INTS)
_ITERATE = ("Loop", "Scan", "SequenceMap")


def check_types(node: Node) -> None:
    """ONNX's own types of inputs, for a node that no compiler of a library has looked at.

    Raises:
        InvalidModel: an input of a type that the operator does not have; an EyeLike that is no matrix.
    """
    info = info_of(node.op)
    if info is not None and info.matrix_only:  # of a vector of n, onnx.reference would make n * n
        for sizes in (v.sizes for v in node.reads):
            if sizes is not None and len(sizes) != 2:
                message = f"expected an input of rank 2 of {node.op}, but got {len(sizes)}"
                raise InvalidModel(Problem(node.label, message))
    problem = wrong_type(node.op, node)
    if problem is not None:
        raise InvalidModel(Problem(node.label, problem))


def inputs_given(names: list[str], op: OnnxOp) -> list[str]:
    """The names of a node's inputs without those left out at the end, on which onnxruntime can crash."""
    if names and not names[-1] and (form := form_of(op)) is not None:
        while len(names) > form.inputs[0] and not names[-1]:
            names = names[:-1]
    return names


def problems(attributes: Sequence[AttributeProto], op: OnnxOp, given: list[str], made: int) -> Iterator[str]:
    """What is wrong with a node, in words; `given` are its inputs as `inputs_given` tells them, `made` is how
    many outputs it has."""
    form, info = form_of(op), info_of(op)
    if attributes:
        yield from _attribute_problems(attributes, op, form, info)
    if form is None:
        if not op.domain and op.name in _ITERATE:
            yield f"expected an operator of opset {op.version}, but {op.name} is none"
        return
    for word, count, (least, most) in (("input", len(given), form.inputs), ("output", made, form.outputs)):
        if not least <= count <= most:
            more = f"{least} to {most}" if most < MAX_VARIADIC else f"{least} or more"
            number = counted(least, word) if least == most else f"{more} {word}s"
            yield f"expected {number} of {op.name}, but got {count}"
    last = len(form.names) - 1
    for k, name in enumerate(given if "" in given else ()):
        if not name and last >= 0 and not form.optional[min(k, last)]:
            yield f"expected input {form.names[min(k, last)]} of {op.name}, but it is missing"
    there = {a.name: a for a in attributes}
    for required in form.required:
        if required not in there:
            yield f"expected attribute {required} of {op.name}, but it is missing"
    parts = there["num_outputs"].i if op.name == "Split" and "num_outputs" in there else made
    if parts != made:  # ONNX's own inference ends the process on it
        yield f"expected as many outputs of Split as num_outputs, {parts}, but got {made}"
    if info is not None and info.form_error is not None and (wrong := info.form_error(there)) is not None:
        yield wrong
    if op.name in _ITERATE:
        yield from _body_problems(len(given), made, op, there)


def _attribute_problems(
    attributes: Iterable[AttributeProto], op: OnnxOp, form: Form | None, info: OpInfo | None
) -> Iterator[str]:
    """What is wrong with attributes that are there."""
    types = {} if form is None else form.attributes
    minimums = {} if info is None or op.domain else info.minimums
    short = not op.domain and not (info is not None and info.long_integers)
    for attribute in attributes:
        name, kind = attribute.name, attribute.type
        if kind not in _KINDS or kind == AttributeProto.UNDEFINED:
            yield f"expected a type of attribute {name!r}, but got number {kind}"
        if attribute.ref_attr_name:
            yield f"expected a value of attribute {name!r}, but it refers to a function's"
        wanted = types.get(name)
        known = wanted is not None or form is None or not isinstance(name, str)  # bytes if it is damaged
        if not known and not name.startswith("__"):  # which are for tools
            hint = nearest(name, types) if types else f"{op.name} has none"
            yield f"expected no attribute {name!r} of {op.name}" + (f"; {hint}" if hint else "")
        if wanted is not None and kind in _KINDS and kind != wanted:
            kinds = f"{_KINDS[wanted]}, but got {_KINDS[kind]}"
            yield f"expected attribute {name} of {op.name} to be of type {kinds}"
        elif name in minimums and attribute.i < minimums[name]:
            least = minimums[name]
            yield f"expected attribute {name} of {op.name} to be at least {least}, but got {attribute.i}"
        elif wanted in _INTEGERS and short:
            large = [n for n in (attribute.i, *attribute.ints) if not -(2**31) <= n < 2**31]
            if large:
                yield f"expected attribute {name} of {op.name} to fit 32 bits, but got {large[0]}"


def _body_problems(
    given: int, taken: int, op: OnnxOp, attributes: dict[str, AttributeProto]
) -> Iterator[str]:
    """What is wrong with the number of inputs and outputs of a body, which no schema says."""
    body = attributes["body"].g if "body" in attributes else GraphProto()
    if op.domain or op.name not in _ITERATE or "body" not in attributes:
        return
    if op.name == "Loop":
        carried = given - 2
        inputs, outputs = 2 + carried, 1 + taken
        fits = carried >= 0 and taken >= carried
    elif op.name == "Scan":
        scanned = attributes["num_scan_inputs"].i if "num_scan_inputs" in attributes else 0
        inputs = given - (op.version < 9)  # which has lengths of sequences in front
        outputs = taken
        fits = 1 <= scanned <= inputs and taken >= inputs - scanned
    else:
        inputs, outputs, fits = given, taken, given > 0
    if not fits:
        yield f"expected inputs and outputs of a {op.name}, but got {given} and {taken}"
    elif op.name == "Scan":
        scanned = attributes["num_scan_inputs"].i
        yield from _scan_problems(scanned, taken - (inputs - scanned), attributes)
    if fits and (len(body.input), len(body.output)) != (inputs, outputs):
        got = f"{len(body.input)} and {len(body.output)}"
        wanted = f"{counted(inputs, 'input')} and {counted(outputs, 'output')}"
        yield f"expected a body with {wanted}, but got {got}"


def _scan_problems(sequences: int, rows: int, attributes: Mapping[str, AttributeProto]) -> Iterator[str]:
    """What is wrong with the attributes that tell something of each sequence, or each output of rows."""
    told = {
        "directions": sequences,
        "scan_input_axes": sequences,
        "scan_input_directions": sequences,
        "scan_output_axes": rows,
        "scan_output_directions": rows,
    }
    for name, count in told.items():
        given = list(attributes[name].ints) if name in attributes else []
        if given and len(given) != count:
            yield f"expected {counted(count, 'number')} in {name} of Scan, but got {len(given)}"
        if name.endswith("directions") and not {0, 1}.issuperset(given):
            yield f"expected 0 (forwards) or 1 (backwards) in {name} of Scan, but got {given}"
