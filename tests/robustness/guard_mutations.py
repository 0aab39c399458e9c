"""Mistakes put into the library on purpose: each must be found, or the check is blind to its kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

# As Any: what is put in their places is none of the types' business.
blocks: Any = import_module("anydml.codegen.blocked_loop")
columns: Any = import_module("anydml.codegen.columns")
kernel: Any = import_module("anydml.codegen.kernel")
eager: Any = import_module("anydml.eager")
expression: Any = import_module("anydml.expression")
bind: Any = import_module("anydml.runtime.bind")
call: Any = import_module("anydml.runtime.call")
plan: Any = import_module("anydml.runtime.plan")
tensors: Any = import_module("anydml.ops.tensor_desc")
vector_loop: Any = import_module("anydml.codegen.vector_loop")


def arrays_may_be_too_short() -> None:
    """bind.py does not compare an array's bytes with what the description reaches."""
    check = bind._array_problems

    def forgiving(*args: Any) -> Iterator[Any]:
        return (p for p in check(*args) if not p.message.startswith("expected at least"))

    bind._array_problems = forgiving


def reach_ends_before_the_last_element() -> None:
    """tensors.py forgets that the last element has a width."""
    whole = tensors.TensorDesc.reach
    tensors.TensorDesc.reach = property(lambda desc: whole.fget(desc) - 1)


def views_may_reach_beyond() -> None:
    """expression.py lets `reinterpret` take any strides."""
    new = expression.TensorDesc

    def anything(e: Any, sizes: Any = None, strides: Any = None, data_type: Any = None) -> Any:
        seen = new(data_type or e.data_type, sizes or e.sizes, strides)
        return expression.Expression(e._builder, e._value, seen)

    expression.Expression.reinterpret = anything


def out_may_have_any_shape() -> None:
    """eager.py takes any `out`, so that inputs are read in its shape."""

    def unchecked(operator: Any, out: Any, *rest: Any) -> tuple[Any, None]:
        return out, None

    eager._target = unchecked


def one_element_more() -> None:
    """kernel.py tells the loop nest that the innermost dimension, and so the whole, is one longer."""
    words = kernel._words

    def more(group: Any, layout: Any, **rest: Any) -> Any:
        return words(group, replace(layout, inner=layout.inner + 1), **rest)

    kernel._words = more


def the_last_chunk_is_whole() -> None:
    """nest.ll does not cut the last chunk where the elements end."""
    words = kernel._words

    def more(group: Any, layout: Any, **rest: Any) -> Any:
        descriptor = words(group, layout, **rest)
        descriptor[2] = descriptor[0] * descriptor[1]
        return descriptor

    kernel._words = more


def rows_are_one_longer() -> None:
    """kernel.py tells functions of whole rows that a row has one more element."""
    lay_out = kernel._layout_of_rows

    def more(group: Any, *rest: Any) -> Any:
        layout = lay_out(group, *rest)
        addresses = list(layout.addresses)
        addresses[-1 - len(group.operands)] += 1  # the innermost size, before a stride for each operand
        return replace(layout, addresses=addresses)

    kernel._layout_of_rows = more


def backwards_begins_one_too_far() -> None:
    """kernel.py begins a negative stride one element too high."""
    make = kernel._layout

    def shifted(group: Any, sizes: Any, operands: Any) -> Any:
        moved = []
        for o in operands:
            back = [s for n, s in zip(sizes, o.strides, strict=True) if s < 0 and n > 1]
            moved.append(replace(o, address=o.address - back[-1]) if back else o)
        return make(group, sizes, moved)

    kernel._layout = shifted


def _in_rows(pattern: str, becomes: Callable[[re.Match[str]], str]) -> None:
    """Other code in the row functions."""
    write = kernel.kernel_body

    def otherwise(*args: Any) -> str:
        text: str = write(*args)
        return re.sub(pattern, becomes, text)

    kernel.kernel_body = otherwise


def vectors_to_the_end() -> None:
    """vector_loop.py rounds the vector loop's end up to a whole vector."""

    def rounded(match: re.Match[str]) -> str:
        lanes = int(match[1])
        return f"%longer{lanes} = add i64 %span{lanes}, {lanes - 1}\n  %full{lanes} = and i64 %longer{lanes}, {-lanes}"

    _in_rows(r"%full(\d+) = and i64 %span\1, -\1", rounded)


def ends_are_whole_vectors() -> None:
    """vector_loop.py leaves out no lanes before and behind the whole vectors."""
    first = vector_loop.first_lanes
    vector_loop.first_lanes = lambda name, count, lanes: first(name, str(lanes), lanes)


def blocks_are_always_whole() -> None:
    """blocks.py copies a whole block where fewer elements are left."""
    moves = blocks.BlockedLoopEmitter._moves

    def whole(self: Any, b: str, size: str, operands: Sequence[int], *, inward: bool) -> None:
        moves(self, b, str(self.lanes), operands, inward=inward)

    blocks.BlockedLoopEmitter._moves = whole


def columns_are_always_whole() -> None:
    """columns.py leaves out no lanes behind the last whole vectors."""
    first = columns.first_lanes
    columns.first_lanes = lambda name, count, lanes: first(name, str(lanes), lanes)


def streams_do_not_wait_for_alignment() -> None:
    """writer.py lets streaming stores begin at the first element."""
    _in_rows(r"%head\.n = .*", lambda match: "%head.n = add i64 0, 0")


def staged_rows_end_with_a_whole_vector() -> None:
    """reduction.py leaves out no lanes behind the last whole vector of a batch on the stack."""
    _in_rows(r"%(b\d+)\.left = sub i64 %\1\.count.*", lambda match: f"%{match[1]}.left = add i64 0, 16")


def rows_in_registers_are_whole() -> None:
    """register_rows.py reads and writes whole vectors at the end of a row."""
    _in_rows(r"%given\.m = trunc i64 %rest to i32", lambda match: "%given.m = trunc i64 64 to i32")


def scratch_is_too_small() -> None:
    """plan.py counts 64 bytes too few for intermediate values."""
    arena = plan._arena

    def less(*args: Any) -> tuple[dict[str, int], int]:
        offsets, size = arena(*args)
        return offsets, max(size - 64, 0)

    plan._arena = less


def known_calls_take_any_sizes() -> None:
    """call.ll compares each array's sizes with its own."""
    _in_call("icmp eq i64 %t.mine, %t.its", "icmp eq i64 %t.mine, %t.mine")
    _in_call("icmp eq i64 %l.n, %l.wn", "icmp eq i64 %l.n, %l.n")


def known_calls_take_any_strides() -> None:
    """call.ll compares each array's strides with its own."""
    _in_call("icmp eq i64 %l.s, %l.ws", "icmp eq i64 %l.s, %l.s")


def _in_call(right: str, wrong: str) -> None:
    text = call._text
    assert right in text()
    call._text = lambda: text().replace(right, wrong)


MUTATIONS: Mapping[str, Callable[[], None]] = {
    mutate.__name__.replace("_", "-"): mutate
    for mutate in (
        arrays_may_be_too_short,
        reach_ends_before_the_last_element,
        views_may_reach_beyond,
        out_may_have_any_shape,
        one_element_more,
        the_last_chunk_is_whole,
        rows_are_one_longer,
        backwards_begins_one_too_far,
        vectors_to_the_end,
        ends_are_whole_vectors,
        blocks_are_always_whole,
        columns_are_always_whole,
        streams_do_not_wait_for_alignment,
        staged_rows_end_with_a_whole_vector,
        rows_in_registers_are_whole,
        scratch_is_too_small,
        known_calls_take_any_sizes,
        known_calls_take_any_strides,
    )
}
