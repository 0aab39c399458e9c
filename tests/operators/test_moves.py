"""Operators that only move elements, bit by bit against loops over coordinates."""

import math
from itertools import product

import numpy as np
import pytest

import anydml as dml

from .cases import snake
from .checking import random_bits

TYPES = "float64 float32 float16 int64 int32 int16 int8 uint64 uint32 uint16 uint8".split()
INDEX_TYPES = "int32 int64 uint32 uint64".split()
every_type = pytest.mark.parametrize("dtype", TYPES)
every_pair_of_types = pytest.mark.parametrize(("dtype", "kind"), list(product(TYPES, INDEX_TYPES)))


def bits(x):
    return np.array(x, order="C").view(f"u{x.dtype.itemsize}")


def drawn(rng, shape, dtype):
    """Any bits, NaNs with payloads among them, in any layout of memory between other bits."""
    order = rng.permutation(len(shape))
    room = random_bits(rng, dtype, math.prod(shape) << len(shape)).reshape([2 * shape[k] for k in order])
    steps = (slice(None, None, int(rng.choice([-2, 2]))) for _ in order)
    return room[(..., *steps)].transpose(np.argsort(order))


def sizes(rng, rank=None):
    return tuple(map(int, rng.integers(1, 5, rank or rng.integers(1, 6))))


def check(y, shape, source, x):
    """Every element is that of x at the coordinates that `source` gives, or a number of these bits."""
    assert y.shape == tuple(shape)
    found, given = bits(y), bits(x)
    for at in np.ndindex(*shape):
        there = source(at)
        assert found[at] == (there if isinstance(there, int) else given[there]), (at, there)


def replaced(at, axis, value):
    return (*at[:axis], value, *at[axis + 1 :])


def fenced(x):
    """A copy in the middle of bytes that nobody may write to: those of its base."""
    y = np.full(x.nbytes + 128, 0xA7, np.uint8)[64:-64].view(x.dtype).reshape(x.shape)
    y.view(f"u{x.dtype.itemsize}")[...] = bits(x)
    return y


@every_type
def test_join_and_split(dtype):
    rng = np.random.default_rng([31, *dtype.encode()])
    for count in (1, 2, 5):
        shape, lengths = sizes(rng), [int(n) for n in rng.integers(1, 4, count)]
        axis = int(rng.integers(len(shape)))
        parts = [drawn(rng, replaced(shape, axis, n), dtype) for n in lengths]
        whole = dml.join(parts, axis)
        assert whole.shape == replaced(shape, axis, sum(lengths))
        for k, x in enumerate(parts):
            for at in np.ndindex(*x.shape):
                assert bits(whole)[replaced(at, axis, at[axis] + sum(lengths[:k]))] == bits(x)[at]
        again = dml.split(whole, lengths, axis)
        assert [bits(x).tolist() for x in again] == [bits(x).tolist() for x in parts]


def check_each(y, places, x, value=0):
    """Along each dimension the elements of a list; the value where that has None."""

    def source(at):
        there = tuple(p[i] for p, i in zip(places, at, strict=True))
        return value if None in there else there

    check(y, [len(p) for p in places], source, x)


@every_type
def test_slice_and_tile(dtype):
    rng = np.random.default_rng([32, *dtype.encode()])
    for _ in range(4):
        x = drawn(rng, sizes(rng), dtype)
        begin, step = [int(rng.integers(n)) for n in x.shape], [int(v) for v in rng.integers(0, 4, x.ndim)]
        places = [range(b, n, s) if s else [b] * 3 for n, b, s in zip(x.shape, begin, step, strict=True)]
        places = [p[: rng.integers(1, 9)] for p in places]
        check_each(dml.slice(x, begin, [len(p) for p in places], step), places, x)
        if dtype != "float64":
            repeats = [int(n) for n in rng.integers(1, 4, x.ndim)]
            places = [list(range(n)) * m for n, m in zip(x.shape, repeats, strict=True)]
            check_each(dml.tile(x, repeats), places, x)


@every_type
def test_windows_and_their_gradients(dtype):
    """A negative stride begins at the window's last element; what nobody reads has a gradient of 0."""
    rng = np.random.default_rng([33, *dtype.encode()])
    for _ in range(4):
        x = drawn(rng, sizes(rng), dtype)
        begin = [int(rng.integers(n)) for n in x.shape]
        length = [int(rng.integers(1, n - b + 1)) for n, b in zip(x.shape, begin, strict=True)]
        step = [int(rng.choice([-9, -2, -1, 1, 2, 9])) for _ in x.shape]
        places = [range(b, b + n)[::s] for b, n, s in zip(begin, length, step, strict=True)]
        how = {"input_window_offsets": begin, "input_window_sizes": length, "input_window_strides": step}
        check_each(dml.slice1(x, **how), places, x)
        places = [p[: rng.integers(1, len(p) + 1)] for p in places]
        count = [len(p) for p in places]
        check_each(dml.slice1(x, count, **how), places, x)
        gradient = drawn(rng, count, dtype)
        back = dict(zip(product(*places), np.ndindex(*count), strict=True))
        made = dml.slice_grad(gradient, x.shape, **how)
        check(made, x.shape, lambda at, back=back: back.get(at, 0), gradient)


@every_type
@pytest.mark.parametrize("kind", ["uint32", "uint64"])
def test_reverse_subsequences(kind, dtype):
    rng = np.random.default_rng([41, *kind.encode(), *dtype.encode()])
    for repeated in (False, False, True):
        x = drawn(rng, sizes(rng), dtype)
        axis = int(rng.integers(x.ndim))
        lengths = rng.integers(0, x.shape[axis] + 2, replaced(x.shape, axis, 1)).astype(kind)
        lengths[rng.random(lengths.shape) < 0.2] = np.iinfo(kind).max
        lengths = np.broadcast_to(lengths.flat[0], lengths.shape) if repeated else lengths

        def source(at, axis=axis, lengths=lengths, size=x.shape[axis]):
            n, k = min(int(lengths[replaced(at, axis, 0)]), size), at[axis]
            return replaced(at, axis, n - 1 - k if k < n else k)

        check(dml.reverse_subsequences(x, lengths, axis), x.shape, source, x)


@every_type
@pytest.mark.parametrize("order", [None, "DEPTH_COLUMN_ROW", "COLUMN_ROW_DEPTH"])
def test_blocks(order, dtype):
    rng = np.random.default_rng([35, *dtype.encode()])
    for b in (1, 2, 3):
        n, c, h, w = sizes(rng, 4)
        x = drawn(rng, (n, c, h * b, w * b), dtype)

        def source(at, b=b, c=c):
            i, depth, y, x = at
            k, place = divmod(depth, b * b) if order == "COLUMN_ROW_DEPTH" else (depth % c, depth // c)
            return (i, k, y * b + place // b, x * b + place % b)

        y = dml.space_to_depth1(x, b, order) if order else dml.space_to_depth(x, b)
        check(y, (n, c * b * b, h, w), source, x)
        back = dml.depth_to_space1(y, b, order) if order else dml.depth_to_space(y, b)
        assert bits(back).tolist() == bits(x).tolist()


def inside(i, n, mode):
    """Where padding comes from, fold by fold."""
    if mode == "CONSTANT":
        return i if 0 <= i < n else None
    if mode == "EDGE" or n == 1:
        return min(max(i, 0), n - 1)
    edge = mode == "SYMMETRIC"
    while not 0 <= i < n:
        mirrored = -i - edge if i < 0 else 2 * (n - 1) + edge - i
        i = mirrored if mode != "WRAP" else i + n if i < 0 else i - n
    return i


@every_type
@pytest.mark.parametrize("mode", "CONSTANT EDGE REFLECTION SYMMETRIC WRAP".split())
def test_padding(mode, dtype):
    rng = np.random.default_rng([36, *mode.encode(), *dtype.encode()])
    value = {"uint64": 2**64 - 1, "int64": -(2**63)}.get(dtype, 3)
    wanted = int(bits(np.array([value], dtype))[0])
    for most in (0, 2, 9):
        x = drawn(rng, sizes(rng, int(rng.integers(1, 4))), dtype)
        start, end = ([int(v) for v in rng.integers(0, most + 1, x.ndim)] for _ in "ab")
        lines = [(n, range(-a, n + b)) for a, n, b in zip(start, x.shape, end, strict=True)]
        places = [[inside(i, n, mode) for i in line] for n, line in lines]
        check_each(dml.padding1(x, mode, value, start, end), places, x, wanted)
        if value == 3:  # which is what integers make of a fraction
            given = 3.0 if dtype.startswith("f") else 3.9
            check_each(dml.padding(x, mode, given, start, end), places, x, wanted)


def indices(rng, shape, size, kind):
    """In range from either end, and, one of three, as far out as the type goes."""
    signed = kind.startswith("i")
    found = rng.integers(-size if signed else 0, size, shape).astype(kind)
    info = np.iinfo(kind)
    far = [size, size + 1, 2**31 - 1, info.max, info.max - 1]
    far += [-size - 1, info.min, info.min + 1] if signed else []
    return np.where(rng.random(shape) < 1 / 3, rng.choice(np.array(far, kind), shape), found)


def place(index, size):
    """Beyond an end it is the element at that end."""
    i = int(index)
    return min(max(i + size if i < 0 else i, 0), size - 1)


def padded(shape, rank):
    return (1,) * (rank - len(shape)) + shape


def run(name, tensors, attributes, shape, **asked):
    """By function and by description, all tensors between fences, in memory that they just fit in."""
    given = {n: fenced(x) for n, x in tensors.items()}
    before = [x.base.tobytes() for x in given.values()]
    x = tensors.get("InputTensor", tensors.get("ValuesTensor"))
    outs = [fenced(np.zeros(shape, x.dtype)) for _ in "ab"]
    arguments = {snake(n.removesuffix("Tensor")): x for n, x in (given | attributes).items()}
    getattr(dml, name.lower())(**arguments, **asked, out=outs[0])
    described, device = given | {"OutputTensor": outs[1]}, dml.Device()
    desc = {n: dml.TensorDesc(x.dtype.name.upper(), x.shape) for n, x in described.items()}
    operator = device.create_operator({"Type": name, "Desc": desc | attributes})
    device.compile_operator(operator).dispatch(given, {"OutputTensor": outs[1]})
    assert before == [x.base.tobytes() for x in given.values()]
    assert all((end == 0xA7).all() for y in outs for end in (y.base[:64], y.base[-64:]))
    assert bits(outs[0]).tolist() == bits(outs[1]).tolist()
    return outs[0]


@every_pair_of_types
def test_gather(dtype, kind):
    rng = np.random.default_rng([37, *dtype.encode(), *kind.encode()])
    for many in (0, 1, 2):
        shape = (1,) * many + sizes(rng, int(rng.integers(1, 4)))
        axis, rank = int(rng.integers(many, len(shape))), len(shape)
        chosen = indices(rng, sizes(rng, 2)[:many], shape[axis], kind)
        x, wanted = drawn(rng, shape, dtype), (*shape[:axis], *chosen.shape, *shape[axis + 1 :])
        aligned = padded(wanted, rank)[-rank:]
        tensors = {"InputTensor": x, "IndicesTensor": chosen.reshape(padded(chosen.shape, rank))}
        y = run("GATHER", tensors, {"Axis": axis, "IndexDimensions": many}, aligned)

        def source(at, axis=axis, end=axis + many, chosen=chosen, n=shape[axis]):
            return (*at[:axis], place(chosen[at[axis:end]], n), *at[end:])

        check(y.reshape(wanted), wanted, source, x)


@every_pair_of_types
def test_gather_and_scatter_elements_and_one_hot(dtype, kind):
    """Of updates of the same element one stays; beyond the ends there is no hot one."""
    rng = np.random.default_rng([38, *dtype.encode(), *kind.encode()])
    shape = sizes(rng)
    axis, x = int(rng.integers(len(shape))), drawn(rng, shape, dtype)
    size = shape[axis]
    chosen = indices(rng, replaced(shape, axis, int(rng.integers(1, 5))), size, kind)
    where = {at: replaced(at, axis, place(chosen[at], size)) for at in np.ndindex(*chosen.shape)}
    tensors = {"InputTensor": x, "IndicesTensor": chosen}
    y = run("GATHER_ELEMENTS", tensors, {"Axis": axis}, chosen.shape)
    check(y, chosen.shape, where.get, x)
    updates = drawn(rng, chosen.shape, dtype)
    tensors["UpdatesTensor"] = updates
    check_scattered(run("SCATTER", tensors, {"Axis": axis}, shape), x, updates, where)
    chosen, ones = chosen.take([0], axis), (1,) * (len(shape) - 1)
    tensors = {"IndicesTensor": chosen, "ValuesTensor": drawn(rng, (*ones, 3), dtype)}
    y = run("ONE_HOT", tensors, {"Axis": axis}, shape, output_length=size)
    for at in np.ndindex(*shape):
        index = int(chosen[replaced(at, axis, 0)])
        hot = int(at[axis] in (index, index + size))
        assert bits(y)[at] == bits(tensors["ValuesTensor"]).flat[hot]


def check_scattered(y, x, updates, where):
    """The input, but where updates go one of these."""
    given = {}
    for at, target in where.items():
        given.setdefault(target, set()).add(int(bits(updates)[at]))
    for at in np.ndindex(*y.shape):
        assert int(bits(y)[at]) in given.get(at, {int(bits(x)[at])})


@every_pair_of_types
def test_tuples_of_indices(dtype, kind):
    rng = np.random.default_rng([39, *dtype.encode(), *kind.encode()])
    for batches in (0, 1, 2):
        outer, many, rest = (sizes(rng, 2)[: int(n)] for n in (batches, rng.integers(3), rng.integers(3)))
        named = sizes(rng, int(rng.integers(1, 3)))
        own, found, tuples = (*outer, *named, *rest), (*outer, *many, *rest), (*outer, *many, len(named))
        rank = max(len(own), len(found), len(tuples)) + int(rng.integers(2))
        x = drawn(rng, own, dtype)
        columns = [indices(rng, tuples[:-1], size, kind) for size in named]
        q, where = len(outer + many), {}
        for at in np.ndindex(*found):
            index = (place(c[at[:q]], n) for c, n in zip(columns, named, strict=True))
            where[at] = (*at[:batches], *index, *at[q:])
        tensors = {"InputTensor": x.reshape(padded(own, rank))}
        tensors["IndicesTensor"] = np.stack(columns, -1).reshape(padded(tuples, rank))
        counts = {"InputDimensionCount": len(own), "IndicesDimensionCount": len(tuples)}
        y = run("GATHER_ND1", tensors, counts | {"BatchDimensionCount": batches}, padded(found, rank))
        check(y.reshape(found), found, where.get, x)
        if not batches:
            assert bits(run("GATHER_ND", tensors, counts, y.shape)).tolist() == bits(y).tolist()
            updates = drawn(rng, found, dtype)
            tensors["UpdatesTensor"] = updates.reshape(y.shape)
            made = run("SCATTER_ND", tensors, counts, padded(own, rank))
            check_scattered(made.reshape(own), x, updates, where)
