"""Random cases: one operator on a device, or one function on arrays, in guarded memory.

Cases come in tens that share a *recipe*: operator, types, attributes, and so the kernels. Sizes, layouts,
places and contents are a case's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

import anydml as dml
from anydml.device import DeviceOperator
from anydml.directml.descriptions import to_graph
from anydml.eager import read_parameters
from anydml.ops.dtypes import NUMPY, SIZE
from anydml.ops.interpret import evaluate
from anydml.ops.opdef import ONE, Operand, Operator
from anydml.ops.tensor_desc import TensorDesc, packed_strides
from anydml.runtime.reference import run_reference
from tests.robustness import guard_draw as draw
from tests.robustness.guard_memory import Array, Held, Layout, Memory

templates: Any = import_module("anydml.templates")

CHEAP = 3000
"""Elements up to which the NumPy reference is asked, too."""


class Wrong(Exception):
    """A case found something that must not be."""


@dataclass
class Case:
    """Where a case takes its chances from."""

    recipe: np.random.Generator
    """Begins anew for each case of a recipe, so that they draw alike from it."""
    own: np.random.Generator
    memory: Memory
    operator: Operator
    facts: set[str] = field(default_factory=set)
    """What it was about, to be counted."""

    def held(self, dtype: np.dtype, layout: Layout, *, short: int = 0) -> Held:
        self.facts.add(f"type {dtype}")
        return Held(self.memory, self.own, dtype, layout, short=short)


def look_after(held: Mapping[str, Held], outputs: set[str]) -> None:
    """Nothing but outputs was written, and of them nothing but their elements."""
    for name, x in held.items():
        if found := x.damage(written=name in outputs):
            raise Wrong(f"{name}: {found}")


def same(name: str, got: Array, wanted: Array, *, summed: bool = False) -> None:
    """Equal, but for NaN payloads and the sign of a zero.

    `summed`: and but for the order in which NumPy and a kernel add up a row in float64, which shows where a
    logarithm is close to 0.
    """
    unequal = (got != wanted) & ~((got != got) & (wanted != wanted))
    if summed and unequal.any():
        unequal &= ~np.isclose(got, wanted, rtol=2 * float(np.finfo(got.dtype).eps), atol=1e-14)
    if unequal.any():
        at = tuple(np.argwhere(unequal)[0].tolist())
        count = np.count_nonzero(unequal)
        raise Wrong(f"{name}: {count} of {got.size} differ, first at {at}: {got[at]!r}, not {wanted[at]!r}")


# ---- operators ---------------------------------------------------------------------------------------


def operator_case(case: Case) -> None:
    """create_operator, compile_operator, bind, dispatch."""
    operator, recipe, rng = case.operator, case.recipe, case.own
    types = draw.types_for(recipe, operator)
    fields = draw.attributes_for(recipe, operator, types)
    left_out = {s.name for s in operator.inputs if s.optional is not None and draw.chance(recipe, 0.3)}
    axes = draw.axes_for(recipe) if operator.has_axes else (-1,)
    device = dml.Device(threads=draw.choice(recipe, (1, 2)))
    rank = int(rng.integers(max(1, -min(axes)), 9))
    packed = draw.chance(rng, 0.15)
    sizes = draw.sizes_for(rng, operator, rank, draw.budget_for(rng, packed))
    if operator.has_axes:
        fields["Axes"] = [a + rank for a in axes]
    (output,) = operator.outputs
    layouts = {output.name: draw.layout_for(rng, sizes, repeats=False, packed=packed)}
    for operand in operator.inputs:
        if operand.name not in left_out:
            own = (1,) * rank if operand.sizes == ONE else sizes
            layouts[operand.name] = draw.layout_for(rng, own, repeats=True, packed=packed)
    shared = _in_place(case, operator, types, left_out)
    if shared:
        case.facts.add("in place")
        layouts[shared] = layouts[output.name]
    tensors = {
        s.name: _desc(rng, types[s.dtype], layouts[s.name], owned=s.kind == "input" and s.name != shared)
        for s in operator.tensors
        if s.name not in left_out
    }
    desc = {"Type": operator.name, "Desc": {**fields, **tensors}}
    made = device.create_operator(desc)
    compiled = device.compile_operator(made)
    short = draw.choice(rng, [n for n in layouts if n != shared]) if draw.chance(rng, 0.1) else ""
    held = {
        name: case.held(
            NUMPY[tensors[name].data_type], layout, short=int(rng.integers(1, 4)) * (name == short)
        )
        for name, layout in layouts.items()
        if name != shared
    }
    arrays = {name: x.flat for name, x in held.items()}
    if shared:
        arrays[shared] = arrays[output.name]
    copies = {name: x.copy() for name, x in arrays.items()}
    owned = {n for n, t in tensors.items() if t.flags & dml.TensorFlags.OWNED_BY_DML}
    given = {s.name: arrays[s.name] for s in operator.inputs if s.name in arrays and s.name not in owned}
    try:
        compiled.initialize({n: arrays[n] for n in owned})
        bound = compiled.bind(given, {output.name: arrays[output.name]})
    except dml.InvalidInput:
        if short:
            case.facts.add("refused")
            return
        raise
    bound.dispatch()
    if not shared and draw.chance(rng, 0.1):
        bound.dispatch()
    if short:
        raise Wrong(f"{short}: taken, though it is too short")
    look_after(held, {output.name})
    if prod(sizes) <= CHEAP:
        case.facts.add("compared")
        _as_reference(made, held[output.name], output, copies)


def _in_place(case: Case, operator: Operator, types: draw.Types, left_out: set[str]) -> str:
    """The input whose memory the output takes, or none."""
    (output,) = operator.outputs
    possible = [
        s.name
        for s in operator.inputs
        if s.name in operator.in_place and s.name not in left_out and types[s.dtype] == types[output.dtype]
    ]
    return draw.choice(case.own, possible) if possible and draw.chance(case.own, 0.25) else ""


def _desc(rng: draw.Rng, dtype: dml.TensorDataType, layout: Layout, *, owned: bool) -> TensorDesc:
    """A description; its total size and alignment promise what holds, and need not be given."""
    sizes, width = layout.sizes, SIZE[dtype]
    packed = layout.strides == packed_strides(sizes) and draw.chance(rng, 0.5)
    least = -(-layout.span * width // 4) * 4
    return TensorDesc(
        dtype,
        sizes,
        None if packed else layout.strides,
        dml.TensorFlags.OWNED_BY_DML if owned and draw.chance(rng, 0.05) else dml.TensorFlags.NONE,
        draw.choice(rng, (None, least, least + 4, least + 8192)),
    )


def _as_reference(made: DeviceOperator, result: Held, output: Operand, copies: dict[str, Array]) -> None:
    buffers = {name: x.copy() for name, x in copies.items()}
    with np.errstate(all="ignore"):
        graph = to_graph(made._checked)
        run_reference(graph, *([buffers[v.name] for v in ends] for ends in (graph.inputs, graph.outputs)))
    wanted = np.ndarray(
        result.layout.sizes,
        result.dtype,
        buffers[output.name],
        0,
        [s * result.dtype.itemsize for s in result.layout.strides],
    )
    same(output.name, result.seen(), wanted, summed="SOFTMAX" in made.type.name)


# ---- functions ---------------------------------------------------------------------------------------


def function_case(case: Case) -> None:
    """A function on views of guarded memory, twice: what a first call was like is known to the second."""
    states = [rng.bit_generator.state for rng in (case.recipe, case.own)]
    _function_call(case)
    for rng, state in zip((case.recipe, case.own), states, strict=True):
        rng.bit_generator.state = state
    ordinary = _Counted.calls
    _function_call(case)
    if _Counted.calls == ordinary:
        case.facts.add("known call")


class _Counted:
    """Calls that went the ordinary way."""

    calls = 0

    @staticmethod
    def watch() -> None:
        compute = templates.compute

        def counted(*args: Any) -> Any:
            _Counted.calls += 1
            return compute(*args)

        templates.compute = counted


_Counted.watch()


def _function_call(case: Case) -> None:
    """On views that are turned, backwards, repeated, of any rank, or empty."""
    operator, recipe, rng = case.operator, case.recipe, case.own
    types = draw.types_for(recipe, operator)
    fields = draw.attributes_for(recipe, operator, types)
    left_out = {s.name for s in operator.inputs if s.optional is not None and draw.chance(recipe, 0.3)}
    if operator.has_axes:
        fields["Axes"] = draw.axes_for(recipe)
    rows = operator.has_axes or operator.name in draw.TWO_DIMENSIONS
    least = -min(fields.get("Axes", (-1,))) if rows else 0
    rank = int(rng.integers(least, 21 if draw.chance(rng, 0.1) else 7))
    packed = draw.chance(rng, 0.15)
    sizes = draw.sizes_for(rng, operator, rank, draw.budget_for(rng, packed))
    if rank and draw.chance(rng, 0.03):
        sizes = (*sizes[:-1], 0)
    (output,) = operator.outputs
    shared = _in_place(case, operator, types, left_out)
    held: dict[str, Held] = {}
    given: list[Any] = []
    for operand in operator.inputs:
        dtype = NUMPY[types[operand.dtype]]
        if operand.name in left_out:
            given.append(None)
        elif operand.name != shared and _may_be_number(operator, operand, held) and draw.chance(rng, 0.1):
            given.append(2 if dtype.kind in "iu" else 0.5)
        else:
            own = _own_shape(rng, operator, operand, sizes, whole=operand.name == shared or not held)
            layout = draw.layout_for(rng, own, repeats=operand.name != shared, signed=True, packed=packed)
            held[operand.name] = case.held(dtype, layout)
            given.append(held[operand.name].seen())
    several = [x for s, x in zip(operator.inputs, given, strict=True) if s.sizes != ONE]
    shape = np.broadcast_shapes(*(np.shape(x) for x in several if x is not None))
    wanted = None
    if prod(shape) <= CHEAP:
        wanted = _by_numpy(operator, types, fields, given)
    out, misfit = _out(case, held, shared, NUMPY[types[output.dtype]], shape, packed)
    options: dict[str, Any] = {"out": out}
    table = operator.table(draw.NEWEST)
    if operator.free_output and table and len(table.dtypes[operator.free_output]) > 1:
        options["output_data_type"] = types[output.dtype]
    for a in operator.parameters:
        value = fields[a.name]
        both = isinstance(value, dict) and "Scale" in value
        options[a.parameter] = (value["Scale"], value["Bias"]) if both else value
    try:
        result = getattr(dml, operator.function)(*given, **options)
    except dml.InvalidInput:
        if misfit:
            case.facts.add("refused")
            return
        raise
    if misfit:
        raise Wrong("out: taken, though its shape is another one")
    look_after(held, {shared or "out"})
    if wanted is not None:
        case.facts.add("compared")
        same("result", np.asarray(result), wanted, summed=rows)


def _may_be_number(operator: Operator, operand: Operand, held: Mapping[str, Held]) -> bool:
    """Whether an array that is there already gives a number its type."""
    return any(s.dtype == operand.dtype and s.name in held for s in operator.inputs)


def _own_shape(
    rng: draw.Rng, operator: Operator, operand: Operand, sizes: tuple[int, ...], *, whole: bool
) -> tuple[int, ...]:
    """A shape that broadcasts to the others."""
    if operand.sizes == ONE:
        return (1,) * int(rng.integers(0, 3))
    if whole or len(operator.inputs) == 1 or draw.chance(rng, 0.6):
        return sizes
    own = tuple(1 if draw.chance(rng, 0.3) else n for n in sizes)
    return own[int(rng.integers(0, len(own) + 1)) :]


def _out(
    case: Case,
    held: dict[str, Held],
    shared: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    packed: bool,
) -> tuple[Array | None, bool]:
    """Where to write to: nowhere in particular, in place, or a view; and whether its shape is wrong."""
    if shared:
        case.facts.add("in place")
        return held[shared].seen(), False
    if draw.chance(case.own, 0.25):
        return None, False
    misfit = bool(shape) and draw.chance(case.own, 0.05)
    if misfit:
        d = int(case.own.integers(len(shape)))
        shape = tuple(n + (k == d) * int(case.own.integers(1, 70)) for k, n in enumerate(shape))
    layout = draw.layout_for(case.own, shape, repeats=False, signed=True, packed=packed)
    out = held["out"] = case.held(dtype, layout)
    return out.seen(), misfit


def _by_numpy(operator: Operator, types: draw.Types, fields: Mapping[str, Any], given: list[Any]) -> Array:
    """The result as the record has it, from copies."""
    inputs, kinds = [], []
    for operand, x in zip(operator.inputs, given, strict=True):
        kinds.append(None if x is None else types[operand.dtype])
        if x is not None:
            array = np.array(x, NUMPY[types[operand.dtype]])
            inputs.append(array.reshape(()) if operand.sizes == ONE else array)
    shape = np.broadcast_shapes(*(x.shape for x in inputs))
    if not prod(shape):
        (output,) = operator.outputs
        return np.empty(shape, NUMPY[types[output.dtype]])
    read = read_parameters(operator, [fields[a.name] for a in operator.parameters])
    values = {a.name: v for a, v in zip(operator.parameters, read, strict=True)}
    (output,) = operator.outputs
    meaning = operator.expression(tuple(kinds), types[output.dtype], values, max(inputs[0].ndim, 1))
    with np.errstate(all="ignore"):
        return np.broadcast_to(evaluate(meaning, inputs), shape)
