"""Calls of operators by function and by description, values to call them with, and checks of results."""

import numpy as np
from numpy.lib.stride_tricks import as_strided

import anydml as dml

from . import oracle_activations  # noqa: F401  # fills ORACLE
from .cases import snake
from .oracle import ORACLE, as_bits, real

# ---- calls -------------------------------------------------------------------------------------------


def keywords(attributes):
    """Attributes of a description as arguments of a function."""
    names = {"InfinityMode": "mode"}
    given = {names.get(n, snake(n)): v for n, v in attributes.items() if n not in ("AxisCount",)}
    if "scale_bias" in given:
        given["scale_bias"] = (given["scale_bias"]["Scale"], given["scale_bias"]["Bias"])
    return given


def expected(case, inputs, attributes, to):
    given = keywords(attributes)
    fused = given.get("fused_activation")
    if fused:
        given["fused_activation"] = {"type": fused["Type"], "attributes": keywords(fused.get("Desc", {}))}
    with np.errstate(all="ignore"):
        return ORACLE[case.name](*inputs, to=to, **given)


def apply(case, inputs, attributes, types, **options):
    """By the function on arrays."""
    decided = any(
        s.type_variable == case.output.type_variable and x is not None
        for s, x in zip(case.inputs, inputs, strict=True)
    )
    if not decided and len(case.types[case.output.type_variable].split()) > 1:
        options["output_data_type"] = types[case.output.type_variable].name.upper()
    return case.function(*inputs, **keywords(attributes), **options)


def dispatch(case, inputs, attributes, types, sizes, strides, out, device=None):
    """By description: flat memory seen through `strides[operand name]`."""
    device = device or dml.Device()
    desc = dict(attributes)
    if case.name.startswith("ELEMENT_WISE_CLIP") and case.name.endswith("1"):
        desc["MinMaxDataType"] = types["T"].name.upper()
    memory = {}
    for operand, x in zip(case.operands, [*inputs, out], strict=True):
        if x is not None:
            shape = [1] * len(sizes) if "one" in operand.kinds else list(sizes)
            desc[operand.name] = {"DataType": types[operand.type_variable].name.upper(), "Sizes": shape}
            if strides.get(operand.name) and "one" not in operand.kinds:
                desc[operand.name]["Strides"] = list(strides[operand.name])
            memory[operand.name] = x
    compiled = device.compile_operator(device.create_operator({"Type": case.name, "Desc": desc}))
    compiled.dispatch(memory, {case.output.name: memory.pop(case.output.name)})
    return out


def seen(memory, sizes, strides):
    """Flat memory as the tensor that a description sees in it."""
    return as_strided(memory, sizes, [s * memory.itemsize for s in strides])


# ---- values ------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 100.0, np.inf, -np.inf, np.nan]


def random_bits(rng, dtype, count):
    return rng.integers(0, 256, count * np.dtype(dtype).itemsize, np.uint8).view(dtype)


def edges(dtype):
    """The values of a type where something happens."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        limits = [s * v for v in (info.max, info.tiny, info.smallest_subnormal, info.eps) for s in (1, -1)]
        return np.array([*SPECIAL, *limits], dtype)
    info = np.iinfo(dtype)
    near = {v for at in (info.min, 0, info.max) for v in range(at - 3, at + 4) if info.min <= v <= info.max}
    powers = {s << k for k in range(info.bits - 1) for s in (1, -1) if info.min <= s << k}
    return np.array(sorted(near | powers), dtype)


def samples(rng, dtype, count, kinds=()):
    """Values of every sort: any bits, moderate ones, small whole ones (so that some are equal), edges."""
    dtype = np.dtype(dtype)
    if "scale" in kinds:
        return rng.uniform(0.01, 3, count).astype(dtype)
    if "flag" in kinds:
        return rng.choice(np.array([0, 0, 0, 1, 2, 255], dtype), count)
    if "moderate" in kinds:
        return (rng.normal(size=count) * 3).astype(dtype)
    low = -9 if dtype.kind != "u" else 0
    small = rng.integers(low, 70, count).astype(dtype)
    middle = (rng.normal(size=count) * 10).astype(dtype) if dtype.kind == "f" else small
    sorts = [random_bits(rng, dtype, count), middle, small, rng.choice(edges(dtype), count)]
    return np.choose(rng.integers(0, len(sorts), count), sorts)


# ---- checks ------------------------------------------------------------------------------------------


def spacing(x, dtype):
    """From one number of the type to the next at x, down to the denormals."""
    info = np.finfo(dtype)
    _, exponent = np.frexp(np.clip(np.abs(x), float(info.tiny), float(info.max)))
    return np.ldexp(1.0, exponent - 1 - info.nmant)


def distance(y, exact, dtype):
    """How far results lie from exact values; overflowed ones count as the power of 2 that is next."""
    limit = 2.0 ** np.finfo(dtype).maxexp
    return np.abs(np.clip(real(y), -limit, limit) - np.clip(exact, -limit, limit))


def tolerance(exact, ulps, slack, dtype):
    """In float32 `ulps` or the slack; a float16 result is a float32 one rounded once more."""
    inexact = np.maximum(ulps * spacing(exact, np.float32), slack)
    return inexact + (spacing(exact, np.float16) / 2 if dtype == np.float16 else 0)


def unequal(y, wanted):
    """Where results are not the wanted ones; NaN is NaN and 0 is -0."""
    return ~((y == wanted) | ((y != y) & (wanted != wanted)))


def wrong(case, y, inputs, attributes, exact):
    """Where results are not what the operator must compute."""
    with np.errstate(all="ignore"):
        defined = case.defined(inputs, attributes) if case.defined else True
        if y.dtype.kind != "f":
            if case.span and any(x is not None and x.dtype.kind == "f" for x in inputs):
                least, greatest = case.span(inputs, attributes, y.dtype)
                return defined & ((y < least) | (y > greatest))
            return defined & (y != exact)
        if case.bitwise:
            return as_bits(y) != as_bits(exact)
        exact_or_rounded = exact.astype(y.dtype)
        if case.ulps == 0 or y.dtype == np.float64:
            return defined & unequal(y, exact_or_rounded)
        slack = case.slack(inputs, attributes) if case.slack else 0.0
        near = distance(y, exact, y.dtype) <= tolerance(exact, case.ulps, slack, y.dtype)
        finite = np.isfinite(exact) & ~np.isnan(y)
        return defined & np.where(finite, ~near, unequal(y, exact_or_rounded))


def check(case, y, inputs, attributes):
    """A result against the exact one, everywhere."""
    exact = np.asarray(expected(case, inputs, attributes, y.dtype))
    bad = np.broadcast_to(wrong(case, y, inputs, attributes, exact), y.shape)
    if bad.any():
        where = np.argwhere(bad)
        lines = [f"{case.name} {attributes}: {len(where)} of {y.size} values of {y.dtype} are wrong"]
        for index in map(tuple, where[:8]):
            xs = ", ".join("-" if x is None else repr(np.broadcast_to(x, y.shape)[index]) for x in inputs)
            wanted = np.broadcast_to(exact, y.shape)[index]
            lines.append(f"  at {list(map(int, index))} of ({xs}): expected {wanted!r}, but got {y[index]!r}")
        raise AssertionError("\n".join(lines))
