"""Random descriptions and arrays: an error of ours, or exactly the right bytes; never anything else.

Two kinds of description are thrown at devices of random levels. The first has well-formed fields with values
near the edges of the rules; a model of the rules, written here, says which of them are legal. The second
is broken anywhere, down to fields of another kind.
"""

import copy
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import anydml as dml

LEVELS = [
    "1_0",
    "2_0",
    "2_1",
    "3_0",
    "3_1",
    "4_0",
    "4_1",
    "5_0",
    "5_1",
    "5_2",
    "6_0",
    "6_1",
    "6_2",
    "6_3",
    "6_4",
]
WIDTHS = {"FLOAT32": 4, "FLOAT16": 2, "UINT8": 1, "INT8": 1, "INT16": 2, "UINT16": 2, "INT32": 4, "UINT32": 4}
WIDTHS |= {"FLOAT64": 8, "INT64": 8, "UINT64": 8}
UP_TO_32_BIT = {name for name, width in WIDTHS.items() if width <= 4}
IF = ("ConditionTensor", "ATensor", "BTensor", "OutputTensor")
IS_INFINITY = ("InputTensor", "OutputTensor")
INFINITIES = {2: (0x7C00, 0xFC00), 4: (0x7F800000, 0xFF800000)}
CAPPED = settings(
    max_examples=250,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# ---- the rules, once more ----------------------------------------------------------------------------


def table(kind, level):
    """Ranks and types at a level, or None below the operator's introduction."""
    if kind == "ELEMENT_WISE_IF":
        if level < "2_0":
            return None
        if level < "3_0":
            return (4, 4), {"FLOAT16"}
        return (1, 8), set(WIDTHS) if level >= "5_0" else UP_TO_32_BIT
    if level < "2_1":
        return None
    return (4, 4) if level < "3_0" else (1, 8), {"FLOAT32", "FLOAT16"}


def packed(sizes):
    return [prod(sizes[k + 1 :]) for k in range(len(sizes))]


def layout(tensor):
    """Sizes, strides and the number of elements up to the last one that they reach."""
    sizes = tensor["Sizes"]
    strides = packed(sizes) if tensor.get("Strides") is None else tensor["Strides"]
    return sizes, strides, 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def overlaps_itself(tensor):
    sizes, strides, _ = layout(tensor)
    offsets = [sum(map(int.__mul__, index, strides)) for index in product(*map(range, sizes))]
    return len(set(offsets)) < len(offsets)


def legal_tensor(tensor, *, output):
    sizes, strides = tensor["Sizes"], tensor.get("Strides")
    if not sizes or 0 in sizes or (strides is not None and len(strides) != len(sizes)):
        return False
    width = WIDTHS.get(tensor["DataType"])
    if width is None:
        return False
    least = -(-layout(tensor)[2] * width // 4) * 4
    alignment = tensor.get("GuaranteedBaseOffsetAlignment", 0)
    return (
        tensor.get("TotalTensorSizeInBytes", least) >= least
        and (alignment == 0 or (alignment >= width and alignment.bit_count() == 1))
        and not (output and (tensor.get("Flags") == "OWNED_BY_DML" or overlaps_itself(tensor)))
    )


def legal(kind, fields, level):
    row = table(kind, level)
    if row is None:
        return False
    (low, high), types = row
    names = IF if kind == "ELEMENT_WISE_IF" else IS_INFINITY
    tensors = [fields[name] for name in names]
    tied = tensors[1:] if kind == "ELEMENT_WISE_IF" else tensors[:1]
    bytes_ = tensors[0] if kind == "ELEMENT_WISE_IF" else tensors[1]
    return (
        all(legal_tensor(t, output=name == "OutputTensor") for name, t in zip(names, tensors, strict=True))
        and len({tuple(t["Sizes"]) for t in tensors}) == 1
        and low <= len(tensors[0]["Sizes"]) <= high
        and len({t["DataType"] for t in tied}) == 1
        and tied[0]["DataType"] in types
        and bytes_["DataType"] == "UINT8"
    )


# ---- what is thrown ----------------------------------------------------------------------------------


def rarely(common, *rare):
    return st.integers(0, 15).flatmap(lambda k: common if k else st.one_of(*rare))


@st.composite
def strides_for(draw, sizes):
    """Mostly a layout without overlap: packed in some order, with some padding; else anything."""
    if draw(st.booleans()):
        return None
    strides, step = [0] * len(sizes), 1
    for k in draw(st.permutations(range(len(sizes)))):
        strides[k] = step
        step = step * max(sizes[k], 1) + draw(st.sampled_from([0, 0, 1, 3]))
    for k in range(len(sizes)):
        strides[k] = draw(rarely(st.just(strides[k]), st.just(0), st.integers(0, 12)))
    return draw(rarely(st.just(strides), st.just(strides[1:]), st.just([*strides, 1])))


@st.composite
def tensors(draw, data_type, sizes):
    sizes = list(draw(rarely(st.just(sizes), st.lists(st.integers(0, 4), max_size=4))))
    data_type = draw(rarely(st.just(data_type), st.sampled_from([*WIDTHS, "UINT4", "INT4", "UNKNOWN"])))
    strides = draw(strides_for(sizes))
    tensor = {"DataType": data_type, "Sizes": sizes, "Strides": strides}
    width = WIDTHS.get(data_type, 1)
    if draw(st.booleans()) and (strides is None or len(strides) == len(sizes)):
        end = max(layout(tensor)[2], 0) * width
        tensor["TotalTensorSizeInBytes"] = max(
            0, -(-end // 4) * 4 + draw(rarely(st.just(0), st.integers(-4, 9)))
        )
    if draw(st.booleans()):
        sensible = st.sampled_from([0, width, 2 * width, 8, 16])
        tensor["GuaranteedBaseOffsetAlignment"] = draw(rarely(sensible, st.integers(0, 64)))
    tensor["Flags"] = draw(rarely(st.just("NONE"), st.just("OWNED_BY_DML")))
    return tensor


@st.composite
def descs(draw):
    kind = draw(st.sampled_from(["ELEMENT_WISE_IF", "ELEMENT_WISE_IS_INFINITY"]))
    sizes = draw(
        rarely(st.lists(st.integers(1, 4), min_size=4, max_size=4), st.lists(st.integers(1, 3), max_size=9))
    )
    if draw(st.booleans()):
        sizes = sizes[: draw(st.integers(1, 4))]
    if kind == "ELEMENT_WISE_IF":
        data_type = draw(st.sampled_from([*WIDTHS, "FLOAT16", "FLOAT16"]))
        types = dict.fromkeys(IF, data_type) | {"ConditionTensor": "UINT8"}
    else:
        types = {"InputTensor": draw(st.sampled_from(["FLOAT16", "FLOAT32"])), "OutputTensor": "UINT8"}
    fields = {name: draw(tensors(t, sizes)) for name, t in types.items()}
    if kind == "ELEMENT_WISE_IS_INFINITY":
        fields["InfinityMode"] = draw(st.sampled_from(["EITHER", "POSITIVE", "NEGATIVE"]))
    return kind, fields


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 12),
    st.sampled_from([2**31, 2**32 - 1, 2**32, 2**63, 2**64, -(2**63), 10**30]),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["FLOAT32", "UINT8", "OWNED_BY_DML", "EITHER", "ELEMENT_WISE_IF", "GEMM", "nan", "[1]"]),
    st.lists(st.one_of(st.integers(-1, 5), st.none(), st.floats(), st.text(max_size=2)), max_size=5),
    st.lists(st.just(1), min_size=9, max_size=60),
    st.dictionaries(
        st.sampled_from(["Sizes", "DataType", "Type", "Desc", "x"]), st.integers(0, 3), max_size=2
    ),
    st.sampled_from(
        [
            dml.TensorDesc("FLOAT32", (2,)),
            dml.TensorFlags.OWNED_BY_DML,
            dml.FeatureLevel.FL_2_0,
            b"\1",
            {1, 2},
            object,
        ]
    ),
)


@st.composite
def broken_descs(draw):
    """A description with junk in one to four places, at any depth; fields removed, added or renamed."""
    kind, fields = draw(descs())
    desc = {"Type": kind, "Desc": copy.deepcopy(fields)}
    for _ in range(draw(st.integers(1, 4))):
        place = desc
        while draw(st.integers(0, 3)):
            inner = [v for v in place.values() if isinstance(v, dict)]
            if not inner:
                break
            place = draw(st.sampled_from(inner))
        keys = [*place, "Sizes", "Unknown", "", 0]
        key = draw(st.sampled_from(keys))
        action = draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
        if action == "replace":
            place[key] = draw(JUNK)
        elif key in place:
            value = place.pop(key)
            if action == "rename":
                place[draw(st.sampled_from([str(key).lower(), f"{key}s", "Type", 7]))] = value
    return draw(st.one_of(st.just(desc), st.just(desc), st.just(desc), JUNK))


# ---- running what was accepted -----------------------------------------------------------------------


def filled(rng, data_type, length, offset):
    """Random memory with the special values strewn in, starting `offset` bytes after a multiple of 64."""
    width = WIDTHS[data_type]
    memory = np.empty(length * width + 192, np.uint8)
    start = -memory.ctypes.data % 64 + 64 + offset
    array = memory[start : start + length * width].view(f"u{width}")
    array[...] = rng.integers(0, 1 << 8 * width, length, f"u{width}")
    if data_type == "UINT8":
        array &= rng.choice(np.array([0, 255], np.uint8), length)
    elif width in INFINITIES:
        array[::2] = rng.choice(np.array([*INFINITIES[width], 0x7FFF], array.dtype), len(array[::2]))
    return memory, array


def expected_bits(kind, fields, given):
    """The output's bytes after a dispatch, by NumPy alone."""
    seen = {}
    bits = {name: x.view(f"u{x.itemsize}").copy() for name, x in given.items()}
    for name, x in bits.items():
        sizes, strides, _ = layout(fields[name])
        seen[name] = as_strided(x, sizes, [s * x.itemsize for s in strides])
    if kind == "ELEMENT_WISE_IF":
        result = np.where(seen["ConditionTensor"] != 0, seen["ATensor"], seen["BTensor"])
    else:
        x = seen["InputTensor"]
        positive, negative = INFINITIES[x.itemsize]
        mode = fields["InfinityMode"]
        result = ((x == positive) & (mode != "NEGATIVE")) | ((x == negative) & (mode != "POSITIVE"))
    seen["OutputTensor"][...] = result
    return bits["OutputTensor"].tobytes()


def check_runs(data, kind, fields, device, desc):
    """Bind arrays of random length, address and sharing; the model says whether they are legal."""
    compiled = device.compile_operator(device.create_operator(desc))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    names = IF if kind == "ELEMENT_WISE_IF" else IS_INFINITY
    memory, arrays = {}, {}
    for name in names:
        tensor = fields[name]
        length = layout(tensor)[2] + data.draw(rarely(st.just(0), st.integers(-1, 5)), label=f"{name} extra")
        offset = data.draw(rarely(st.just(0), st.integers(0, 33)), label=f"{name} offset")
        memory[name], array = filled(rng, tensor["DataType"], length, offset)
        arrays[name] = array.view(tensor["DataType"].lower())
    fits = True
    if kind == "ELEMENT_WISE_IF" and data.draw(st.integers(0, 9), label="share") == 0:
        arrays["OutputTensor"], memory["OutputTensor"] = arrays["BTensor"], memory["BTensor"]
        fits = fields["BTensor"]["Flags"] == "OWNED_BY_DML"  # else it would be in place
    if data.draw(st.integers(0, 15), label="read-only") == 0:
        arrays["OutputTensor"].flags.writeable = fits = False
    for name, x in arrays.items():
        alignment = fields[name].get("GuaranteedBaseOffsetAlignment", 0)
        fits &= len(x) >= layout(fields[name])[2] and not (alignment and x.ctypes.data % alignment)
    output = arrays["OutputTensor"]
    before = memory["OutputTensor"].tobytes()
    owned = {n: x for n, x in arrays.items() if fields[n]["Flags"] == "OWNED_BY_DML"}
    inputs = {n: x for n, x in arrays.items() if n not in owned and n != "OutputTensor"}
    try:
        wanted = expected_bits(kind, fields, arrays) if fits else b""
        compiled.initialize(owned)
        compiled.dispatch(inputs, {"OutputTensor": output})
    except dml.InvalidInput as error:
        note(str(error))
        assert not fits
        assert memory["OutputTensor"].tobytes() == before, "something was written"
        return
    assert fits
    event("ran")
    assert output.tobytes() == wanted
    start = output.ctypes.data - memory["OutputTensor"].ctypes.data
    after = memory["OutputTensor"].tobytes()
    assert after[:start] == before[:start]
    assert after[start + output.nbytes :] == before[start + output.nbytes :]


@CAPPED
@given(data=st.data(), level=st.sampled_from([*LEVELS, "3_0", "5_0", "6_4", "6_4", "6_4"]))
def test_a_device_takes_exactly_what_the_rules_allow(data, level):
    kind, fields = data.draw(descs(), label="desc")
    device, desc = dml.Device(level, threads=2), {"Type": f"DML_OPERATOR_{kind}", "Desc": fields}
    problems = dml.validate(desc, feature_level=level)
    note("\n".join(map(str, problems)))
    if not legal(kind, fields, level):
        with pytest.raises(dml.InvalidOperator) as raised:
            device.create_operator(desc)
        assert list(raised.value.problems) == problems
        return
    assert problems == []
    event("accepted")
    check_runs(data, kind, fields, device, desc)


@CAPPED
@given(desc=broken_descs(), level=st.sampled_from(["2_1", "3_0", "6_4"]))
def test_a_broken_description_gets_an_error_of_ours(desc, level):
    """Or it is taken, where the junk happened to be legal; then it can be compiled."""
    problems = dml.validate(desc, feature_level=level)
    device = dml.Device(level)
    if not problems:
        device.compile_operator(device.create_operator(desc))
        return
    assert all(str(p) and "\n" not in str(p) for p in problems)
    with pytest.raises((dml.InvalidOperator, dml.Unsupported)) as raised:
        device.create_operator(desc)
    assert list(raised.value.problems) == problems
