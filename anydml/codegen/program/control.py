"""Branches and loops: an `If` is a branch instruction, a `Loop` is a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anydml.codegen.llvm_types import value_type
from anydml.codegen.program.builder import ProgramBuilder
from anydml.codegen.program.refusal import NotNative
from anydml.codegen.program.values import Bounded, Known, Memory, Register, Tensor
from anydml.dataclass import dataclass, replace
from anydml.ops.dtypes import BOOL, INT64
from anydml.ops.tensor_desc import packed_strides

MAX_OPEN_ELEMENTS = 1 << 14
"""Of rows that the data may end early: there is room for all of them in every run, and all are copied."""
POLL_WORK = 1 << 18
"""Elements computed between two looks for Ctrl-C, about: some 50 us."""


class BranchesDiffer(NotNative):
    """Two branches give other shapes."""


class BranchesBound(NotNative):
    """Two branches give results that are as long as the data decides, and at most so long."""

    def __init__(self, rooms: Sequence[Room | None]) -> None:
        super().__init__("branches of which the data decides how long their results are")
        self.rooms = rooms


@dataclass(frozen=True)
class Room:
    """For results of branches that differ along one axis: the sizes of the longest."""

    sizes: tuple[int, ...]
    axis: int


def choose(
    b: ProgramBuilder,
    condition: Tensor,
    branches: Sequence[Callable[[], Sequence[Tensor]]],
    last: bool = False,
    rooms: Sequence[Room | None] | None = None,
) -> list[Tensor]:
    """What one of two branches gives, which write their code when called.

    Small results are chosen by the block that they come from; large ones are written to the same memory by
    both.

    Args:
        last: whether each branch is the last one to read what it reads, so that it may free that.
        rooms: for each result, if branches give some that are as long as the data decides.

    Raises:
        BranchesDiffer: they do not agree in sizes.
        BranchesBound: there is no room for what is as long as the data decides, or too little.
    """
    then, other, join = (b.code.fresh(word) for word in ("then", "else", "join"))
    b.code.effect(f"br i1 {b.scalar(condition)}, label %{then}, label %{other}")
    arms: list[tuple[list[Tensor], str]] = []
    mark = len(b.held)
    homes: list[Memory | None] = []
    taken, room = b.arena.taken, b.room_of_its_own if last else b.room
    for label, write in zip((then, other), branches, strict=True):
        b.code.begin(label)
        given = list(write())
        if not arms:
            first, told = given, [*(rooms or [None] * len(given))]
            homes = [
                room(t.dtype, r.sizes) if r else None if t.small else room(t.dtype, t.sizes)
                for t, r in zip(given, told, strict=True)
            ]
            b.held += [h for h in homes if h is not None]
            if last:  # the other branch finds what this one may have freed
                b.arena.return_to([*taken, *(x for h in homes if h is not None for x in h.buffers)])
        else:
            needed = [_room(x, y) for x, y in zip(first, given, strict=True)]
            if not all(_has_room(r, n, x) for r, n, x in zip(told, needed, first, strict=True)):
                raise BranchesBound(needed)
        arms.append(([_result(b, t, h, r) for t, h, r in zip(given, homes, told, strict=True)], b.code.block))
        b.code.effect(f"br label %{join}")
    del b.held[mark:]
    b.code.begin(join)
    chosen: list[Tensor] = []
    (these, from_one), (those, from_other) = arms
    for x, y, r, home in zip(these, those, told, homes, strict=True):
        if r is not None and home is not None:
            length = b.phi(
                INT64, 1, [(str(b.length(t, r.axis)), block) for t, block in ((x, from_one), (y, from_other))]
            )
            chosen.append(Bounded.of(home, r.axis, length))
        elif isinstance(x, Register) and isinstance(y, Register):
            name = b.phi(x.dtype, x.count, [(x.name, from_one), (y.name, from_other)])
            chosen.append(Register(x.dtype, x.sizes, name))
        else:
            chosen.append(x)
    return [_here(b, t) for t in chosen]


def _here(b: ProgramBuilder, tensor: Tensor) -> Tensor:
    if isinstance(tensor, Bounded):
        return replace(tensor, whole=_here(b, tensor.whole))
    return b.here(tensor) if isinstance(tensor, Memory) else tensor


def _result(b: ProgramBuilder, tensor: Tensor, home: Memory | None, room: Room | None) -> Tensor:
    """What a branch gives, where it is to be; what has a room is as long as it was."""
    if home is None:
        return b.register(tensor)
    if room is None:
        return b.memory(tensor, b.here(home))
    if tensor.count:
        b.memory(tensor, replace(b.here(home), sizes=tensor.sizes))
    return tensor


def _room(x: Tensor, y: Tensor) -> Room | None:
    """What two branches' results need, if one is as long as the data decides, or has no elements."""
    if x.dtype != y.dtype:
        raise NotNative("branches of different types")
    differ = BranchesDiffer(f"branches of different shapes, {list(x.sizes)} and {list(y.sizes)}")
    if not any(isinstance(t, Bounded) or not t.count for t in (x, y)):
        if x.sizes != y.sizes:
            raise differ
        return None
    axes = {t.axis for t in (x, y) if isinstance(t, Bounded)}
    if len(x.sizes) != len(y.sizes):
        raise differ
    axes |= {k for k, (m, n) in enumerate(zip(x.sizes, y.sizes, strict=True)) if m != n}
    if len(axes) != 1:
        raise differ if axes else NotNative("branches that give no elements")
    return Room(tuple(map(max, x.sizes, y.sizes)), *axes)


def _has_room(room: Room | None, needed: Room | None, x: Tensor) -> bool:
    """Whether a room is enough: it may be for longer ones, or for some that differ where these do not."""
    if room is None:
        return needed is None
    return wider(room, needed or Room(x.sizes, room.axis)) == room


def wider(a: Room | None, b: Room | None) -> Room | None:
    """Room for both, or for that which there is.

    Raises:
        NotNative: there is no such.
    """
    if a is None or b is None:
        return a or b
    alike = len(a.sizes) == len(b.sizes) and a.axis == b.axis
    if not alike or any(m != n for k, (m, n) in enumerate(zip(a.sizes, b.sizes, strict=True)) if k != a.axis):
        raise NotNative("an If of results of which it is not known how long they are, in several ways")
    return Room(tuple(map(max, a.sizes, b.sizes)), a.axis)


@dataclass(frozen=True)
class Iterated:
    """What a body gives: whether to go on (None: it does not say), its states, a part of each row."""

    going: Tensor | None
    states: Sequence[Tensor]
    rows: Sequence[Tensor]


def repeat(
    b: ProgramBuilder,
    count: Tensor | None,
    going: Tensor | None,
    states: Sequence[Tensor],
    body: Callable[[Register, Register, list[Tensor]], Iterated],
) -> tuple[list[Tensor], list[Tensor]]:
    """A loop: its last states, and its rows, which are `Bounded` where the data may end it before `count`.

    Small states are handed on in registers; large ones stand in two buffers by turns.

    Args:
        count: of iterations, at most; None: no limit.
        going: whether to begin.
        body: writes its code: (number, going, states) -> what it gives.

    Raises:
        NotNative: a state changes its type or size; rows of which it is not known how many they are at most.
    """
    code, mark = b.code, len(b.held)
    limit = str((1 << 63) - 1) if count is None else b.scalar(count)
    begins = "true" if going is None else b.scalar(going)
    _fixed(states)
    carried = [_Small(b, s) if s.small else _Large(b, s) for s in states]
    head, inside, end = code.fresh("repeat"), code.fresh("inside"), code.fresh("done")
    before = code.block
    code.fall_into(head)
    place = len(code.lines)
    number, on = f"%{head}.number", f"%{head}.on"
    current = [c.enter(f"%{head}.s{k}") for k, c in enumerate(carried)]
    code.lines += [""] * (2 + sum(c.words for c in carried))
    more = code.line(f"icmp slt i64 {number}, {limit}")
    code.effect(f"br i1 {code.line(f'and i1 {more}, {on}')}, label %{inside}, label %{end}")
    code.begin(inside)
    work = b.work
    made = body(Register(INT64, (), number), Register(BOOL, (), on), current)
    _fixed([*made.states, *made.rows])
    for c, new in zip(carried, made.states, strict=True):
        c.leave(new)
    rows = [_row(b, part, number, count) for part in made.rows]
    on_next = "true" if made.going is None else b.scalar(made.going)
    following = code.line(f"add i64 {number}, 1")
    iterations = count.integers[0] if isinstance(count, Known) else 1 << 63
    if b.may_poll and iterations * max(b.work - work, 1) > POLL_WORK:
        _poll(b, following, b.work - work)
    phis = [("i64", number, "0", following), ("i1", on, begins, on_next)]
    phis += [phi for c in carried for phi in c.phis()]
    code.enter(place, phis, before)
    code.effect(f"br label %{head}")
    code.begin(end)
    del b.held[mark:]
    gathered = [b.here(r) for r in rows]
    if going is None and made.going is None:
        return current, [*gathered]
    if any(r.count > MAX_OPEN_ELEMENTS for r in rows):
        raise NotNative("rows of which there may be many, or few")
    return current, [Bounded.of(r, 0, number) for r in gathered]


def _fixed(tensors: Sequence[Tensor]) -> None:
    if any(isinstance(t, Bounded) or not t.count for t in tensors):
        raise NotNative("states or rows of which it is not known how long they are")


class _Small:
    """A state in a register."""

    words = 1

    def __init__(self, b: ProgramBuilder, state: Tensor) -> None:
        self.b, self.first = b, b.register(state)

    def enter(self, name: str) -> Tensor:
        self.current = Register(self.first.dtype, self.first.sizes, name)
        return self.current

    def leave(self, new: Tensor) -> None:
        _unchanged(self.first, new)
        self.new = self.b.register(new)

    def phis(self) -> list[tuple[str, str, str, str]]:
        kind = value_type(self.first.dtype, self.first.count)
        return [(kind, self.current.name, self.first.name, self.new.name)]


class _Large:
    """A state in memory: read from one buffer, written to the other."""

    words = 2

    def __init__(self, b: ProgramBuilder, state: Tensor) -> None:
        self.b = b
        self.one, self.other = b.room(state.dtype, state.sizes), b.room(state.dtype, state.sizes)
        b.held += [self.one, self.other]
        b.memory(state, self.one)

    def enter(self, name: str) -> Tensor:
        self.here, self.there = name, f"{name}.next"
        return replace(self.one, pointer=name, lies_in=(*self.one.lies_in, *self.other.lies_in))

    def leave(self, new: Tensor) -> None:
        _unchanged(self.one, new)
        self.b.memory(new, replace(self.one, pointer=self.there))

    def phis(self) -> list[tuple[str, str, str, str]]:
        return [
            ("ptr", self.here, self.one.pointer, self.there),
            ("ptr", self.there, self.other.pointer, self.here),
        ]


def _unchanged(state: Tensor, new: Tensor) -> None:
    if new.dtype != state.dtype:
        raise NotNative("a state that changes its type")
    if new.sizes != state.sizes:
        raise NotNative(f"a state that changes its shape, from {list(state.sizes)} to {list(new.sizes)}")


def _row(b: ProgramBuilder, part: Tensor, number: str, count: Tensor | None) -> Memory:
    """Write a part of a row to its place, in memory that no iteration uses otherwise."""
    if not isinstance(count, Known) or count.integers[0] < 1:
        raise NotNative("rows of which it is not known how many they are at most")
    room = b.room_of_its_own(part.dtype, (count.integers[0], *part.sizes))
    at = b.code.at(room.pointer, b.code.times(number, part.count), part.dtype)
    b.memory(part, Memory(part.dtype, part.sizes, at, packed_strides(part.sizes), room.lies_in))
    return room


def _poll(b: ProgramBuilder, number: str, work: int) -> None:
    """Every so many iterations, look whether the user has pressed Ctrl-C, and let other threads run."""
    interval = 1 << max((POLL_WORK // max(work, 16)).bit_length() - 1, 0)
    b.polls = True
    asks, ended, on = (b.code.fresh(word) for word in ("asks", "ended", "on"))
    due = b.code.line(f"icmp eq i64 {b.code.line(f'and i64 {number}, {interval - 1}')}, 0")
    b.code.effect(f"br i1 {due}, label %{asks}, label %{on}")
    b.code.begin(asks)
    wants = b.code.line("call i32 @poll()")
    b.code.effect(f"br i1 {b.code.line(f'icmp ne i32 {wants}, 0')}, label %{ended}, label %{on}")
    b.code.begin(ended)
    b.code.effect("ret i32 -1")
    b.code.begin(on)
