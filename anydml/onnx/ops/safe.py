"""Operands on which a node cannot fail: what it sees while the branch that it is of is not taken.

Each rule proves what else could go wrong, and answers None where it cannot. What it gives while the branch is
not taken is never chosen, and may have any sizes.
"""

from __future__ import annotations

from anydml.ir.dims import may_be_zero
from anydml.onnx.ops.opinfo import KnownNode, Safe, SafeOperands
from anydml.onnx.ops.speculation import broadcasts

MAX_MORE = 1024
"""Elements that are put behind an axis."""


def _axis(n: KnownNode, name: str = "axis") -> int | None:
    axis, rank = n.attribute(name), n.rank(0)
    return axis if isinstance(axis, int) and rank is not None and -rank <= axis < rank else None


def gathered(n: KnownNode, o: SafeOperands) -> Safe | None:
    """The first element, of an axis that has one."""
    axis, content = _axis(n), n.content(1)
    if axis is None or n.rank(1) is None:
        return None
    if content is None:
        least, operands = 1, {1: o.number(1, 0)}
    else:
        least, operands = max((int(k) + 1 if k >= 0 else -int(k) for k in content.reshape(-1)), default=0), {}
    size = n.size(0, axis)
    enough = size >= least if isinstance(size, int) else least < 2 and not (least and may_be_zero(size))
    if least > MAX_MORE:
        return None
    return Safe(operands if enough else {**operands, 0: o.nonempty(0, [axis], least)})


def gathered_elements(n: KnownNode, o: SafeOperands) -> Safe | None:
    """The first elements, of equally many lines."""
    axis, sizes, places = _axis(n), n.sizes(0), n.sizes(1)
    if axis is None or sizes is None or places is None or len(sizes) != len(places):
        return None
    if any(
        a is None or a != b
        for k, (a, b) in enumerate(zip(sizes, places, strict=True))
        if k != axis % len(sizes)
    ):
        return None
    operands = {1: o.number(1, 0)}
    return Safe(
        {**operands, 0: o.nonempty(0, [axis])}
        if n.may_be_empty(0, axis % len(sizes), axis % len(sizes) + 1)
        else operands
    )


def _depth(n: KnownNode) -> int | None:
    """How many axes of the first input the places of the second one name."""
    sizes, places = n.sizes(0), n.sizes(1)
    if sizes is None or not places or n.attribute("batch_dims"):
        return None
    depth = places[-1]
    return depth if isinstance(depth, int) and 0 < depth <= len(sizes) else None


def gathered_places(n: KnownNode, o: SafeOperands) -> Safe | None:
    """The first place of axes that have one; else no places."""
    depth = _depth(n)
    if depth is None:
        return None
    if not n.may_be_empty(0, 0, depth):
        return Safe({1: o.number(1, 0)})
    return Safe({1: o.no_rows(1)}) if (n.rank(1) or 0) > 1 else None


def scattered_places(n: KnownNode, o: SafeOperands) -> Safe | None:
    """No places, and nothing to be put there."""
    depth, sizes, places, updates = _depth(n), n.sizes(0), n.sizes(1), n.sizes(2)
    if depth is None or sizes is None or places is None or updates is None or len(places) < 2:
        return None
    expected = (*places[1:-1], *sizes[depth:])
    if len(updates) != len(expected) + 1 or None in expected or updates[1:] != expected:
        return None
    return Safe({1: o.no_rows(1), 2: o.no_rows(2)}, passes=True)


def reduced(n: KnownNode, o: SafeOperands) -> Safe | None:
    """At least one element, where there is none."""
    sizes, axes = n.sizes(0), n.axes()
    told = "axes" in n.given or n.value(1) is not None
    if sizes is None or (told and axes is None):
        return None
    if not axes:
        if n.attribute("noop_with_empty_axes"):
            return None
        axes = list(range(len(sizes)))
    if not all(-len(sizes) <= axis < len(sizes) for axis in axes):
        return None
    empty = [axis for axis in axes if may_be_zero(sizes[axis])]
    return Safe({0: o.nonempty(0, empty)} if empty else {})


def placed(n: KnownNode, o: SafeOperands) -> Safe | None:
    """At least one element to be the largest."""
    axis = _axis(n)
    if axis is None:
        return None
    return Safe({0: o.nonempty(0, [axis])} if may_be_zero(n.size(0, axis)) else {})


def padded(n: KnownNode, o: SafeOperands) -> Safe | None:
    """Nothing put around it."""
    rank = n.rank(0)
    if rank is None or n.sizes(1) != (2 * rank,) or n.value(3) is not None:
        return None
    if n.value(2) is not None and n.sizes(2) not in ((), (1,)):
        return None
    return Safe({1: o.number(1, 0)}, passes=True)


def resized(n: KnownNode, o: SafeOperands) -> Safe | None:
    """As large as it is."""
    rank, mode = n.rank(0), n.mode("mode")
    ranks = {"nearest": range(1, 9), "linear": range(2, 6), "cubic": (2, 4)}.get(mode, ())
    if rank not in ranks or n.mode("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    if n.ints("axes") is not None or n.attribute("antialias") or n.attribute("exclude_outside"):
        return None
    if n.value(3) is not None:
        return Safe({3: o.sizes_of(3, 0)}, passes=True) if n.sizes(3) == (rank,) else None
    return Safe({2: o.number(2, 1.0)}, passes=True) if n.sizes(2) == (rank,) else None


def ranged(n: KnownNode, o: SafeOperands) -> Safe | None:
    """From a number to itself."""
    if any(n.sizes(k) not in ((), (1,)) for k in range(3)):
        return None
    step = n.content(2)
    by = {} if step is not None and step.any() else {2: o.number(2, 1)}
    return Safe({1: o.same_as(1, 0), **by})


def filled(n: KnownNode, o: SafeOperands) -> Safe | None:
    """Nothing of it."""
    sizes = n.sizes(0)
    return (
        Safe({0: o.number(0, 0)})
        if sizes is not None and len(sizes) == 1 and isinstance(sizes[0], int)
        else None
    )


def expanded(n: KnownNode, o: SafeOperands) -> Safe | None:
    """To what it is."""
    rank, sizes = n.rank(0), n.sizes(1)
    if rank is None or sizes is None or len(sizes) != 1 or not isinstance(sizes[0], int):
        return None
    return Safe({1: o.number(1, 1)}, passes=sizes[0] <= rank)


def tiled(n: KnownNode, o: SafeOperands) -> Safe | None:
    """Once."""
    rank = n.rank(0)
    if n.version < 6 or rank is None or n.sizes(1) != (rank,):
        return None
    return Safe({1: o.number(1, 1)}, passes=True)


def best(n: KnownNode, o: SafeOperands) -> Safe | None:
    """As many elements as are asked for, or none asked for."""
    axis, count = _axis(n), n.integers(1)
    if axis is None or n.version < 10:
        return None
    if count is not None and len(count) == 1 and 0 < count[0] <= MAX_MORE:
        return Safe({0: o.nonempty(0, [axis], count[0])})
    return Safe({1: o.number(1, 0)}) if n.sizes(1) == (1,) else None


def reshaped(n: KnownNode, o: SafeOperands) -> Safe | None:
    """Of one axis that is not 1."""
    sizes = n.sizes(1)
    if n.version < 5 or sizes is None or len(sizes) != 1 or not isinstance(sizes[0], int) or not sizes[0]:
        return None
    return Safe({1: o.number(1, [-1, *[1] * (sizes[0] - 1)])})


def squeezed(n: KnownNode, o: SafeOperands) -> Safe | None:
    """One element of the axes that go."""
    rank, axes = n.rank(0), n.axes()
    if rank is None or not axes or not all(-rank <= axis < rank for axis in axes):
        return None
    if len({axis % rank for axis in axes}) < len(axes):
        return None
    x = o.nonempty(0, axes) if any(may_be_zero(n.size(0, axis)) for axis in axes) else n.value(0)
    return None if x is None else Safe({0: o.at_most(x, axes, 1)})


def divided(n: KnownNode, o: SafeOperands) -> Safe | None:
    """By 1."""
    return Safe({1: o.number(1, 1)}) if broadcasts(n) else None


def one_hot(n: KnownNode, o: SafeOperands) -> Safe | None:
    """Of one class."""
    axis, rank = n.attribute("axis"), n.rank(0)
    if rank is None or not isinstance(axis, int) or not -rank - 1 <= axis <= rank or n.sizes(2) != (2,):
        return None
    return Safe({1: o.number(1, 1)}) if n.sizes(1) in ((), (1,)) else None


def scanned(n: KnownNode, o: SafeOperands) -> Safe | None:
    """One row."""
    if n.version < 9:
        return None
    first, axes = n.count - n.int("num_scan_inputs"), n.ints("scan_input_axes")
    operands = {}
    for k in range(first, n.count):
        axis, rank = axes[k - first] if axes else 0, n.rank(k)
        if rank is None or not -rank <= axis < rank:
            return None
        rows = o.nonempty(k, [axis]) if may_be_zero(n.size(k, axis)) else n.value(k)
        if rows is not None:
            operands[k] = o.at_most(rows, [axis], 1)
    return Safe(operands, runs_body=True)


def looped(n: KnownNode, o: SafeOperands) -> Safe | None:
    """No iteration; of no rows, libraries do not agree on the sizes."""
    if any(v is not None for v in n.node.outputs[n.count - 2 :]):
        return None
    if n.value(0) is None:
        return Safe({0: o.one_of((1 << 63) - 1, 0)})
    return Safe({0: o.number(0, 0)}) if n.sizes(0) in ((), (1,)) else None
