"""DirectML's rules for one operator description at one feature level, as its documents state them.

Every broken rule is told, one line each. Tensors that break a rule in the same way share a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from anydml.errors import Problem, counted, short_repr
from anydml.ops.attributes import Activation
from anydml.ops.call import Call, described, field, fields_of
from anydml.ops.dtypes import BITS, listed
from anydml.ops.enums import FeatureLevel, TensorDataType, TensorFlags
from anydml.ops.opdef import ONE, Operand, Operator, Table
from anydml.ops.rules import ROWS_ONLY
from anydml.ops.shapes import shape_in_words
from anydml.ops.tensor_desc import (
    MAX_ELEMENTS,
    MAX_RANK,
    TensorDesc,
    TooIntricate,
    last_element,
    overlaps_itself,
)

V = TypeVar("V")


def check(
    operator: Operator,
    tensors: Mapping[str, TensorDesc],
    attributes: Mapping[str, Any],
    level: FeatureLevel,
) -> list[Problem]:
    """The problems of `operator` with these tensors and attributes, by field name.

    What is missing, or could not be read, is told elsewhere.
    """
    table = operator.table(level)
    if table is None:
        return [
            Problem(
                operator.name,
                f"expected a feature level of {operator.introduced.label} or newer, but got {level.label}",
                f"the operator exists from {operator.introduced.label} on; raise the device's feature level",
            )
        ]
    present = {s: d for o in operator.tensors for s, d in _given(o, tensors)}
    first = [p.under(operator.name) for s, desc in present.items() for p in check_tensor(s, desc)]
    first += _ranks(operator, present, table, level)
    types = [
        *_types(operator, present, table, level),
        *_equal(operator, present, "data types", lambda s: s.dtype, lambda d: d.data_type, str_type),
    ]
    problems = list(_sizes(operator, present))
    problems += _values_by_level(operator, attributes, level)
    problems += _fused(operator, tensors, attributes, level)
    call, missing = None, False
    if operator.compute is not None:
        has_inputs = all(s.optional is not None or _given(s, tensors) for s in operator.inputs)
        is_whole = has_inputs and all(a.name in attributes for a in operator.attributes)
        if first or problems or not is_whole:
            return [*first, *types, *problems]
        problems += _lengths(operator, present, attributes)
        if problems:
            return [*types, *problems]
        missing = any(not _given(s, tensors) and s.optional is None for s in operator.outputs)
        call = described(operator, tensors, attributes)
    for rule in table.rules:
        later = min(
            (lv for lv, t in operator.levels.items() if lv > level and rule not in t.rules), default=None
        )
        try:
            breaches = list(rule.broken(call) if rule.of_call else rule.broken(tensors, attributes))
        except _UNANSWERABLE:
            if not (first or types or problems or missing):
                problems.append(_do_not_go_together(operator, tensors))
            continue
        for message, remedy in breaches:
            since = f"not asked from {later.label} on" if later and not remedy else remedy
            problems.append(Problem(operator.name, message, since))
    if call is not None and not problems and not missing and operator.sizes is not None:
        try:
            problems += _computed_sizes(operator, call)
        except _UNANSWERABLE:
            if not types:
                problems.append(_do_not_go_together(operator, tensors))
    return [*first, *types, *problems]


def _do_not_go_together(operator: Operator, tensors: Mapping[str, TensorDesc]) -> Problem:
    """What no rule has words for: tensors of ranks that a rule does not expect, for one."""
    got = "; ".join(f"{name} {str_sizes(desc.sizes)}" for name, desc in tensors.items())
    return Problem(operator.name, f"expected tensors and attributes that go together, but got {got}")


_UNANSWERABLE = (AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError)
"""What a rule runs into that looks at what another one has found broken, or at an output that is missing."""


def _given(operand: Operand, tensors: Mapping[str, TensorDesc]) -> list[tuple[Operand, TensorDesc]]:
    """The tensors of an operand; of several behind one field each under a name of its own."""
    if not operand.array:
        return [(operand, tensors[operand.name])] if operand.name in tensors else []
    return [(operand.nth(k), tensors[n]) for k, n in enumerate(fields_of(operand.name, tensors))]


def _values_by_level(
    operator: Operator, attributes: Mapping[str, Any], level: FeatureLevel
) -> Iterable[Problem]:
    """Values of enumerations that came later than the operator."""
    for a in operator.attributes:
        value: Any = attributes.get(a.name)
        since = a.since.get(value) if a.since and value is not None else None
        if since is not None and since > level:
            message = f"{a.name}: expected a value of feature level {level.label}, but got {value.name}"
            yield Problem(operator.name, message, f"allowed from {since.label}")


def _fused(
    operator: Operator, tensors: Mapping[str, TensorDesc], attributes: Mapping[str, Any], level: FeatureLevel
) -> Iterable[Problem]:
    """What a fused activation asks of the tensor that it is applied to, the first output.

    Softmax is fused into products of any stack of matrices, though alone it takes one.
    """
    fused, name = attributes.get("FusedActivation"), operator.outputs[0].name
    if not isinstance(fused, Activation) or name not in tensors or not tensors[name].sizes:
        return
    table = fused.operator.table(level)
    if table is None:  # told where it was read
        return
    applied = {s.name: tensors[name] for s in fused.operator.tensors}
    for rule in (r for r in table.rules if r is not ROWS_ONLY):
        for message, remedy in rule.broken(applied, fused.attributes):
            where = f"{operator.name}: FusedActivation: {fused.operator.name}"
            yield Problem(where, message.replace("InputTensor", name), remedy)


def _lengths(
    operator: Operator, tensors: Mapping[Operand, TensorDesc], attributes: Mapping[str, Any]
) -> Iterable[Problem]:
    """Lists with an entry for each dimension have as many as that."""
    rank = rank_of(operator, {s.name: d for s, d in tensors.items()})
    for a in operator.attributes:
        wanted = {"dimension": rank, "spatial": rank - 2}.get(a.per)
        values = attributes[a.name]
        if wanted is not None and values is not None and len(values) != wanted:
            which = "each dimension" if a.per == "dimension" else "each dimension behind the first two"
            many = counted(wanted, "value")
            yield Problem(operator.name, f"{a.name}: expected {many}, one for {which}, but got {len(values)}")


def rank_of(operator: Operator, tensors: Mapping[str, TensorDesc]) -> int:
    """The dimensions that lists are about: of the first input or output, whichever has more."""
    firsts = [side[0].name for side in (operator.inputs, operator.outputs) if side]
    found = [len(d.sizes) for name, d in tensors.items() if name.partition("[")[0] in firsts]
    return max(found, default=0)


def _computed_sizes(operator: Operator, call: Call) -> Iterable[Problem]:
    """The outputs' sizes, which follow from all else."""
    assert operator.sizes is not None
    made = operator.sizes(call)
    parts = made if len(operator.outputs) > 1 else (made,)
    for operand, wanted in zip(operator.outputs, parts, strict=True):
        found = getattr(call, operand.parameter)
        if wanted is None or found is None:
            continue
        many = operand.array
        names = [field(operand.name, k) for k in range(len(found))] if many else [operand.name]
        for name, one, sizes in zip(
            names, found if many else [found], wanted if many else [wanted], strict=True
        ):
            if one.shape != tuple(sizes):
                message = f"expected sizes {str_sizes(tuple(sizes))}, but got {str_sizes(one.shape)}"
                shape = operator.shapes.get(operand.parameter)
                remedy = f"it is {shape_in_words(shape)}" if shape else ""
                yield Problem(f"{operator.name}: {name}", message, remedy)


def check_tensor(operand: Operand, desc: TensorDesc) -> list[Problem]:
    """The rules that hold for any tensor: sizes, strides, total size, alignment, flags."""
    problems: list[Problem] = []

    def broken(message: str, remedy: str = "") -> None:
        problems.append(Problem(operand.name, message, remedy))

    sizes, strides = desc.sizes, desc.strides
    if not sizes:
        broken("expected at least 1 dimension, but got Sizes ()", "a scalar has Sizes (1,)")
    legal = all(0 < n < 2**32 for n in sizes)
    if not legal:
        broken(f"expected Sizes between 1 and 2^32-1, but got {str_sizes(sizes)}")
    if strides is not None:
        if len(strides) != len(sizes):
            broken(f"expected {len(sizes)} Strides, one for each size, but got {len(strides)}")
            return problems
        if not all(0 <= s < 2**32 for s in strides):
            broken(f"expected Strides between 0 and 2^32-1, but got {str_sizes(strides)}")
            legal = False
    if not legal or not sizes:
        return problems
    if desc.element_count > MAX_ELEMENTS:
        broken(f"expected at most 2^32-1 elements, but got {short_repr(desc.element_count)}")
    if operand.kind == "output" and len(sizes) <= MAX_RANK:
        try:
            if overlaps_itself(sizes, desc.effective_strides):
                broken(
                    "expected Strides that give every element its own place, "
                    f"but got {str_sizes(desc.effective_strides)}",
                    "an output cannot be broadcast or overlap itself",
                )
        except TooIntricate:
            broken(
                f"expected Strides that provably do not overlap, but got {str_sizes(desc.effective_strides)}",
                "order the dimensions so that each stride passes all smaller ones",
            )
        if desc.flags & TensorFlags.OWNED_BY_DML:
            broken("expected flags NONE on an output, but got OWNED_BY_DML", "only inputs can be owned")
    if desc.data_type not in BITS:
        return problems  # the tables refuse it by name
    last, most = last_element(sizes, desc.effective_strides), MAX_ELEMENTS * BITS[desc.data_type] // 8
    if desc.element_count <= MAX_ELEMENTS <= last:
        broken(f"expected a layout over at most 2^32-1 elements, but got {short_repr(last + 1)}")
    total = desc.total_tensor_size_in_bytes
    if total is not None and total > max(most, desc.minimum_size):
        got = short_repr(total)
        broken(f"expected TotalTensorSizeInBytes of at most 2^32-1 elements, {most}, but got {got}")
    elif total is not None and desc.minimum_size > total:
        least = short_repr(desc.minimum_size)
        broken(
            f"expected TotalTensorSizeInBytes of at least {least}, but got {short_repr(total)}",
            "it is the last element's end, rounded up to 4",
        )
    alignment = desc.guaranteed_base_offset_alignment
    width = max(BITS[desc.data_type] // 8, 1)
    if alignment != 0 and (not width <= alignment < 2**32 or alignment & (alignment - 1)):
        broken(
            "expected GuaranteedBaseOffsetAlignment of 0 or a power of two "
            f"from {width} to 2^31, but got {short_repr(alignment)}"
        )
    return problems


def _ranks(
    operator: Operator, tensors: Mapping[Operand, TensorDesc], table: Table, level: FeatureLevel
) -> Iterable[Problem]:
    bounds = {s: table.rank_of(s) for s in tensors}
    found = dict.fromkeys((bounds[s], len(d.sizes)) for s, d in tensors.items())
    for (low, high), rank in found:
        operands = [s for s, d in tensors.items() if bounds[s] == (low, high) and len(d.sizes) == rank]
        if low <= rank <= high or rank == 0:
            continue
        wanted = f"rank {low}" if low == high else f"rank {low} to {high}"
        later = min(
            (
                lv
                for lv, t in operator.levels.items()
                if all(t.rank_of(s)[0] <= rank <= t.rank_of(s)[1] for s in operands)
            ),
            default=None,
        )
        remedy = f"allowed from {later.label}" if later else ""
        got = f"rank {rank}" + (f" ({remedy})" if remedy else "")
        yield Problem(
            operator.name,
            f"{_join(operands)}: expected {wanted} at feature level {level.label}, but got {got}",
            _how_to_add_dimensions(operator, operands) if rank < low else "",
        )


def _how_to_add_dimensions(operator: Operator, operands: Sequence[Operand]) -> str:
    """To tensors of too few: where they stand is said of those of operators that do not broadcast."""
    said = [operator.shapes[s.parameter] for s in operands if s.parameter in operator.shapes]
    return f"it is {shape_in_words(said[0])}" if len(said) == 1 else "put sizes of 1 in front"


def _types(
    operator: Operator, tensors: Mapping[Operand, TensorDesc], table: Table, level: FeatureLevel
) -> Iterable[Problem]:
    for type_variable in dict.fromkeys(s.dtype for s in tensors):
        tied = {s: d for s, d in tensors.items() if s.dtype == type_variable}
        for dtype, operands in group_by(tied, lambda d: d.data_type).items():
            if dtype in table.dtypes[type_variable]:
                continue
            later = operator.allowed_from(type_variable, dtype)
            allowed = listed(table.dtypes[type_variable])
            got = dtype.label + (f" (allowed from {later.label})" if later else "")
            yield Problem(
                operator.name,
                f"{_join(operands)}: expected {allowed} at feature level {level.label}, but got {got}",
            )


def _sizes(operator: Operator, tensors: Mapping[Operand, TensorDesc]) -> Iterable[Problem]:
    """Equal sizes behind a letter, one element behind ONE, and as many dimensions everywhere.

    Operators of whole tensors have tensors without a letter, too, of which rules and computed sizes tell.
    """
    if operator.compute is not None:
        lettered = {s: d for s, d in tensors.items() if s.sizes}
        yield from _equal(operator, lettered, "sizes", lambda s: s.sizes, lambda d: d.sizes, str_sizes)
        return
    several = {s: d for s, d in tensors.items() if s.sizes != ONE}
    yield from _equal(operator, several, "sizes", lambda s: s.sizes, lambda d: d.sizes, str_sizes)
    if len(several) == len(tensors):
        return
    for sizes, operands in group_by(
        {s: d for s, d in tensors.items() if s.sizes == ONE}, lambda d: d.sizes
    ).items():
        if any(n != 1 for n in sizes):
            yield Problem(
                operator.name, f"{_join(operands)}: expected one element, but got {str_sizes(sizes)}"
            )
    ranks = group_by(tensors, lambda d: len(d.sizes))
    if len(ranks) > 1:
        got = "; ".join(f"{_join(operands)} {rank}" for rank, operands in ranks.items())
        yield Problem(operator.name, f"expected equal numbers of dimensions, but got {got}")


def _equal(
    operator: Operator,
    tensors: Mapping[Operand, TensorDesc],
    what: str,
    type_variable_of: Callable[[Operand], str],
    value_of: Callable[[TensorDesc], V],
    show: Callable[[Any], str],
) -> Iterable[Problem]:
    """Operands that share a type variable must have equal values: one line that groups them."""
    for type_variable in dict.fromkeys(type_variable_of(s) for s in tensors):
        groups = group_by(
            {s: d for s, d in tensors.items() if type_variable_of(s) == type_variable}, value_of
        )
        if len(groups) > 1:
            got = "; ".join(f"{_join(operands)} {show(value)}" for value, operands in groups.items())
            remedy = _BROADCAST_HINT if what == "sizes" and _broadcast(list(groups)) else ""
            yield Problem(operator.name, f"expected equal {what}, but got {got}", remedy)


_BROADCAST_HINT = "to broadcast, give the full Sizes and a Stride of 0"


def _broadcast(several: Sequence[Any]) -> bool:
    """Whether sizes of one rank differ only where some of them are 1."""
    return len({len(sizes) for sizes in several}) == 1 and all(
        len({*column} - {1}) <= 1 for column in zip(*several, strict=True)
    )


def group_by(tensors: Mapping[Operand, TensorDesc], key: Callable[[TensorDesc], V]) -> dict[V, list[Operand]]:
    groups: dict[V, list[Operand]] = {}
    for operand, desc in tensors.items():
        groups.setdefault(key(desc), []).append(operand)
    return groups


def _join(operands: Iterable[Operand]) -> str:
    return ", ".join(s.name for s in operands)


def str_sizes(sizes: tuple[int, ...]) -> str:
    return short_repr(tuple(sizes))


def str_type(dtype: TensorDataType) -> str:
    return dtype.label
