"""Tensors to compute with, in odd places of memory, and checks of results."""

from fractions import Fraction

import numpy as np

BYTES = ("uint8", "int8")


def scattered(rng, x):
    """The same elements in memory of another layout: every second one, backwards, axes in another order."""
    order = rng.permutation(x.ndim)
    room = np.full([2 * x.shape[k] for k in order], 77, x.dtype)
    y = room[tuple(slice(None, None, int(rng.choice([-2, 2]))) for _ in order)].transpose(np.argsort(order))
    y[...] = x
    return y


def layouts(x):
    """The same values elsewhere in memory: with turned axes, between others, backward."""
    yield np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1)
    spread = np.zeros([2 * n for n in x.shape], x.dtype)
    spread[tuple(slice(1, None, 2) for _ in x.shape)] = x
    yield spread[tuple(slice(1, None, 2) for _ in x.shape)]
    yield np.flip(np.flip(x).copy())


def anything(rng, dtype, shape):
    """Every value of an integer type."""
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def exact(x):
    """Python's integers, or fractions: nothing is ever rounded."""
    convert = Fraction if x.dtype.kind == "f" else int
    return np.array([convert(v) for v in x.ravel().tolist()], object).reshape(x.shape)


def check_floats(y, dtype, wanted, slack):
    """Within the slack, and for float16 half of its step more."""
    assert y.dtype == dtype
    assert y.shape == wanted.shape
    if y.dtype == np.float16:
        slack = slack + np.spacing(np.abs(wanted).astype(np.float16)).astype(np.float64) * 0.501
    assert (np.abs(y.astype(np.float64) - wanted) <= slack).all()


def quantized(real, zero_point, dtype):
    """Rounded, halves to even, moved and limited: of fractions."""
    info = np.iinfo(dtype)
    whole = np.vectorize(round, otypes=[object])(real) + zero_point
    return np.clip(whole, info.min, info.max).astype(dtype)


def scales(rng, powers, shape):
    """Powers of 2, with which there are halves to round, or any."""
    return np.float32(2.0 ** rng.integers(-3, 3, shape) if powers else rng.uniform(0.01, 2, shape))


def derivative(function, x, g, step):
    """Of the sum of g times the function, by each element; central, which is exact between kinks."""
    made = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        above, below = (function(v).astype(np.float64) for v in moved)
        made[place] = ((above - below) * g).sum() / (2 * step)
    return made
