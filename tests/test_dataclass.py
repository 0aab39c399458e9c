"""Dataclasses whose methods are made late do what the standard ones do."""

import copy
import dataclasses
import inspect
import itertools
import pickle
import threading

import pytest

from anydml import dataclass as ours

BOTH = [dataclasses.dataclass, ours.dataclass]


def classes(dataclass):
    """The same classes by either decorator."""

    @dataclass
    class Plain:
        a: int
        b: str = "b"

    @dataclass(frozen=True)
    class Frozen:
        """With a docstring."""

        a: int
        items: list = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=3, repr=False)
        aside: object = dataclasses.field(default=None, compare=False)
        unhashed: list = dataclasses.field(default=(), hash=False)

        @property
        def twice(self):
            return 2 * self.a

    @dataclass(frozen=True)
    class Derived(Frozen):
        more: int = 7

    class Undecorated(Frozen):
        pass

    class WithInit(Frozen):
        def __init__(self, one):
            super().__init__(one)

    @dataclass(frozen=True, eq=False)
    class Identity:
        a: int = 1

    @dataclass(eq=False)
    class Mutable:
        a: int = 1

    @dataclass(frozen=True, repr=False)
    class Shown:
        a: int

        def __repr__(self):
            return "shown"

    @dataclass(frozen=True, init=False)
    class Own:
        a: int

        def __init__(self, *numbers):
            object.__setattr__(self, "a", sum(numbers))

    @dataclass(frozen=True)
    class OwnEq:
        a: int

        def __eq__(self, other):
            return True

    @dataclass
    class OwnHash:
        a: int

        def __hash__(self):
            return 5

    @dataclass(frozen=True)
    class Numbered:
        a: int
        number: int = dataclasses.field(default_factory=lambda: 11, init=False)

    @dataclass(frozen=True)
    class Checked:
        a: int

        def __post_init__(self):
            if self.a == 2:
                raise ValueError("2")

    @dataclass
    class Nothing:
        pass

    found = [Plain, Frozen, Derived, Undecorated, WithInit, Identity, Mutable, Shown, Own, OwnEq, OwnHash]
    return {c.__name__: c for c in (*found, Numbered, Checked, Nothing)}


NAMES = list(classes(dataclasses.dataclass))
CALLS = [((), {}), ((1,), {}), ((1, [2]), {}), ((), {"a": 1}), ((1,), {"a": 2}), ((1,), {"x": 2})]
CALLS += [((1, [2], 3, 4, (5,)), {}), ((1,), {"aside": 2}), ((1,), {"unhashed": [1]}), ((2,), {"hidden": 4})]


def outcome(call):
    try:
        return call()
    except Exception as error:
        text = str(error).replace("classes.<locals>.", "")
        return type(error), text


def made(c, arguments):
    positional, named = arguments
    return outcome(lambda: c(*positional, **named))


@pytest.mark.parametrize("few", [0, 3, 10**6])
@pytest.mark.parametrize("name", NAMES)
def test_as_the_standard_one(name, few, monkeypatch):
    monkeypatch.setattr(ours, "FEW", few)
    theirs, mine = (classes(d)[name] for d in BOTH)
    assert [f.name for f in dataclasses.fields(mine)] == [f.name for f in dataclasses.fields(theirs)]
    assert mine.__match_args__ == theirs.__match_args__
    assert str(inspect.signature(mine)) == str(inspect.signature(theirs))
    assert mine.__doc__ == (theirs.__doc__ if name in ("Frozen",) else None)
    pairs = [(made(theirs, c), made(mine, c)) for c in CALLS]
    objects = [(a, b) for a, b in pairs if not isinstance(a, tuple)]
    assert all(a == b for a, b in pairs if isinstance(a, tuple))
    for (a, b), (c, d) in itertools.product(objects, objects):
        assert (a == c) == (b == d)
    for a, b in objects:
        compare(a, b)


def compare(a, b):
    """Two objects of the same fields, of either kind of class."""
    assert repr(a) == repr(b)
    assert dataclasses.asdict(a) == dataclasses.asdict(b)
    assert vars(a) == vars(b)
    if type(a).__hash__ is not object.__hash__:
        assert outcome(lambda: hash(a)) == outcome(lambda: hash(b))
    assert type(b).__eq__(b, a) == type(a).__eq__(a, b)
    assert outcome(lambda: dataclasses.replace(a, a=9).a) == outcome(lambda: dataclasses.replace(b, a=9).a)
    for name in ("a", "new"):
        assert outcome(lambda: setattr(a, name, 8)) == outcome(lambda: setattr(b, name, 8))  # noqa: B023
        assert outcome(lambda: delattr(a, name)) == outcome(lambda: delattr(b, name))  # noqa: B023


@ours.dataclass(frozen=True)
class Record:
    a: int
    b: list = ours.field(default_factory=list)


def test_copies_and_pickles():
    record = Record(1, [2])
    for other in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert other == record
        assert other is not record
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        record.a = 2


def test_one_that_holds_itself():
    record = Record(1)
    record.b.append(record)
    assert repr(record) == "Record(a=1, b=[...])"


def called_by_threads():
    @ours.dataclass(frozen=True)
    class Shared:
        a: int
        b: int = 2

    made, barrier = [], threading.Barrier(8)

    def work():
        barrier.wait()
        made.append((Shared(1), hash(Shared(1)), Shared(1) == Shared(1, 2), repr(Shared(1))))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return made


def test_threads_that_call_it_first():
    for _ in range(50):
        made = called_by_threads()
        assert len(made) == 8
        assert len(set(made)) == 1
        assert made[0][2]
