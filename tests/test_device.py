"""Devices, operators and bindings against DirectML's rules for descriptions and arrays."""

import re

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import anydml as dml

E_INVALIDARG = 0x80070057
IF_TENSORS = ("ConditionTensor", "ATensor", "BTensor", "OutputTensor")


def if_desc(data_type="FLOAT32", sizes=(2, 3), **changes):
    """An ELEMENT_WISE_IF; `changes` maps a field to what its tensor has besides (or is instead)."""
    fields = {}
    for name in IF_TENSORS:
        fields[name] = {"DataType": "UINT8" if name[0] == "C" else data_type, "Sizes": list(sizes)}
        change = changes.pop(name, {})
        fields[name] = fields[name] | change if isinstance(change, dict) else change
    return {"Type": "DML_OPERATOR_ELEMENT_WISE_IF", "Desc": fields | changes}


def compiled_if(*args, level=None, **changes):
    device = dml.Device(level)
    return device.compile_operator(device.create_operator(if_desc(*args, **changes)))


def arrays(dtype=np.float32, n=6):
    """Inputs and outputs for `if_desc()`, packed."""
    inputs = {
        "ConditionTensor": np.arange(n, dtype=np.uint8) % 2,
        "ATensor": np.arange(n).astype(dtype),
        "BTensor": np.arange(n).astype(dtype) + dtype(50),
    }
    return inputs, {"OutputTensor": np.zeros(n, dtype)}


def refused(desc, level=None, match=None):
    """The problems of a description that must be refused, the same by both ways to ask."""
    with pytest.raises(dml.InvalidOperator) as raised:
        dml.Device(level).create_operator(desc)
    assert raised.value.hresult == E_INVALIDARG
    problems = list(raised.value.problems)
    assert problems == dml.validate(desc, feature_level=level)
    assert str(raised.value).splitlines() == [str(p) for p in problems]
    if match:
        assert re.search(match, str(raised.value))
    return problems


def accepted(desc, level=None):
    assert dml.validate(desc, feature_level=level) == []
    return dml.Device(level).create_operator(desc)


def bind_refused(compiled, inputs, outputs, match=None):
    before = {name: y.copy() for name, y in outputs.items() if isinstance(y, np.ndarray)}
    for attempt in (compiled.bind, compiled.dispatch):
        with pytest.raises(dml.InvalidInput, match=match) as raised:
            attempt(inputs, outputs)
    for name, y in before.items():
        assert np.array_equal(y, outputs[name]), "something was written"
    return list(raised.value.problems)


# ---- layouts -----------------------------------------------------------------------------------------

LAYOUTS = {
    "packed": None,
    "explicit": (12, 4, 1),
    "permuted": (1, 2, 6),
    "padded": (40, 9, 2),
    "padded rows": (20, 5, 1),
    "interleaved": (1, 12, 3),
}
BROADCASTS = {"all": (0, 0, 0), "rows": (0, 0, 1), "columns": (4, 1, 0), "overlapping": (1, 1, 1)}


def reach(sizes, strides):
    return 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def seen(memory, sizes, strides):
    """The tensor in `memory` as a description sees it."""
    step = memory.itemsize
    return as_strided(memory, sizes, [s * step for s in strides])


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int32, np.float64])
@pytest.mark.parametrize("output", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("a", [*LAYOUTS.values(), *BROADCASTS.values()], ids=[*LAYOUTS, *BROADCASTS])
def test_strides_lead_to_the_elements_and_nothing_else_is_written(dtype, a, output):
    sizes, packed, rng = (2, 3, 4), (12, 4, 1), np.random.default_rng(1)
    other = BROADCASTS["columns"] if a is None else (1, 2, 6)
    strides = {"ConditionTensor": other, "ATensor": a, "BTensor": (30, 8, 1), "OutputTensor": output}
    changes = {name: {"Strides": s and list(s)} for name, s in strides.items()}
    memory = {}
    for name, s in strides.items():
        width = 1 if name[0] == "C" else np.dtype(dtype).itemsize
        memory[name] = rng.integers(0, 256, reach(sizes, s or packed) * width, np.uint8)
    memory["ConditionTensor"] &= 1
    typed = {n: m if n[0] == "C" else m.view(dtype) for n, m in memory.items()}
    bits = {n: m if n[0] == "C" else m.view(f"u{np.dtype(dtype).itemsize}") for n, m in memory.items()}
    wanted = bits["OutputTensor"].copy()
    c, x, y = (seen(bits[n], sizes, strides[n] or packed) for n in IF_TENSORS[:3])
    seen(wanted, sizes, output or packed)[...] = np.where(c != 0, x, y)

    compiled = compiled_if(np.dtype(dtype).name, sizes, **changes)
    compiled.dispatch({n: typed[n] for n in IF_TENSORS[:3]}, {"OutputTensor": typed["OutputTensor"]})
    assert np.array_equal(bits["OutputTensor"], wanted)


def test_memory_after_the_last_element_is_not_written():
    """Also not up to the rounded size: of 5 bytes of output, 5 are written."""
    compiled = compiled_if("UINT8", (5,))
    inputs, _ = arrays(np.uint8, 5)
    memory = np.full(32, 0xA5, np.uint8)
    compiled.dispatch(inputs, {"OutputTensor": memory[8:]})
    assert np.array_equal(memory[8:13], [50, 1, 52, 3, 54])
    assert (memory[:8] == 0xA5).all()
    assert (memory[13:] == 0xA5).all()


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((2, 3), (0, 1)),
        ((2, 3), (3, 0)),
        ((2, 3), (1, 1)),
        ((2, 3), (2, 1)),
        ((3, 3), (4, 2)),
        ((4, 3), (2, 3)),
    ],
)
def test_an_output_may_not_overlap_itself(sizes, strides):
    refused(if_desc("FLOAT32", sizes, OutputTensor={"Strides": list(strides)}), match="OutputTensor")
    for name in IF_TENSORS[:3]:
        accepted(if_desc("FLOAT32", sizes, **{name: {"Strides": list(strides)}}))


@pytest.mark.parametrize(
    ("sizes", "strides"),
    [
        ((2, 3), (3, 2)),
        ((3, 2), (2, 3)),
        ((1, 3), (0, 1)),
        ((1, 1), (0, 0)),
        ((3, 3), (3, 2)),
        ((2, 3), (1, 2)),
    ],
)
def test_an_output_may_have_any_layout_without_overlap(sizes, strides):
    offsets = {i * strides[0] + j * strides[1] for i in range(sizes[0]) for j in range(sizes[1])}
    distinct = len(offsets) == sizes[0] * sizes[1]
    desc = if_desc("FLOAT32", sizes, OutputTensor={"Strides": list(strides)})
    if distinct:
        accepted(desc)
    else:
        refused(desc)


# ---- the rules of a tensor description ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_type", "sizes", "strides", "least"),
    [
        ("UINT8", (1,), None, 4),
        ("UINT8", (3,), None, 4),
        ("UINT8", (4,), None, 4),
        ("UINT8", (5,), None, 8),
        ("FLOAT16", (3,), None, 8),
        ("FLOAT16", (1, 3), (100, 3), 16),
        ("INT32", (2, 3), None, 24),
        ("INT32", (2, 3), (0, 1), 12),
        ("INT32", (2, 3), (5, 1), 32),
        ("FLOAT64", (3,), (3,), 56),
        ("INT8", (70000, 60000), (60001, 1), 4200070000),
    ],
)
def test_total_size_is_at_least_the_last_elements_end_rounded_up_to_4(data_type, sizes, strides, least):
    tensor = {"Strides": strides and list(strides)}
    width = np.dtype(data_type.lower()).itemsize
    for total in (least, least + 1, least + 4, (2**32 - 1) * width, None):
        accepted(if_desc(data_type, sizes, ATensor=tensor | {"TotalTensorSizeInBytes": total}))
    for total in (least - 1, least - 4, 0):
        (problem,) = refused(if_desc(data_type, sizes, ATensor=tensor | {"TotalTensorSizeInBytes": total}))
        assert re.search(rf"ATensor: .*expected .*{least}.* but got {total}\b", str(problem))
    for total in ((2**32 - 1) * width + 4, 2**40, 2**64 - 4):
        (problem,) = refused(if_desc(data_type, sizes, ATensor=tensor | {"TotalTensorSizeInBytes": total}))
        assert f"at most 2^32-1 elements, {(2**32 - 1) * width}, but got {total}" in str(problem)


@pytest.mark.parametrize(("data_type", "width"), [("UINT8", 1), ("FLOAT16", 2), ("INT32", 4), ("INT64", 8)])
def test_alignment_is_none_or_a_power_of_two_from_the_elements_size_on(data_type, width):
    for alignment in range(130):
        desc = if_desc(data_type, ATensor={"GuaranteedBaseOffsetAlignment": alignment})
        if alignment == 0 or (alignment >= width and alignment.bit_count() == 1):
            accepted(desc)
        else:
            refused(desc, match="GuaranteedBaseOffsetAlignment")


@pytest.mark.parametrize("flags", [[], ["OWNED_BY_DML"], ["DML_TENSOR_FLAG_OWNED_BY_DML", "NONE"], ("NONE",)])
def test_flags_in_a_list(flags):
    """As in DxDispatch's files."""
    accepted(if_desc(ATensor={"Flags": flags}))
    refused(if_desc(ATensor={"Flags": [*flags, "OWNED"]}), match="DML_TENSOR_FLAG name")


@pytest.mark.parametrize("alignment", [-1, -4, 2**32, 2**40, 2**64, 4.0, "4", True, [4]])
def test_alignment_is_an_unsigned_32_bit_number(alignment):
    refused(if_desc("UINT8", ATensor={"GuaranteedBaseOffsetAlignment": alignment}), match="Alignment")


@pytest.mark.parametrize("level", ["3_0", "6_4"])
def test_sizes_and_strides_are_unsigned_32_bit_numbers_and_no_size_is_zero(level):
    top = 2**32 - 1
    for sizes in ((0,), (2, 0), (0, 0, 0), (-1,), (2**32,), (2**64, 1), ()):
        assert len(refused(if_desc(sizes=sizes), level)) <= 4
    for strides in ((-1, 1), (2**32, 1), (2**64, 1)):
        refused(if_desc(ATensor={"Strides": list(strides)}), level, match="ATensor.*Strides")
    for strides in ((), (1,), (6, 3, 1)):
        refused(if_desc(ATensor={"Strides": list(strides)}), level, match="expected 2 Strides")
    accepted(if_desc(ATensor={"Strides": [top - 3, 1]}), level)
    for strides in ([top, 1], [top, top]):
        refused(if_desc(ATensor={"Strides": strides}), level, match=r"layout over at most 2\^32-1 elements")
    accepted(if_desc("UINT8", (top,)), level)
    accepted(if_desc("UINT8", (3, 5, 17, 257, 65537)), level)  # 2^32 - 1 elements exactly
    for sizes in ((top, 2), (65536, 65536), (2,) * 7 + (2**25,), (top,) * 8):
        refused(if_desc("UINT8", sizes), level, match=r"2\^32-1 elements")


def test_a_tensor_of_the_greatest_size_needs_memory_only_when_bound():
    compiled = compiled_if("UINT8", (2**31, 1), ATensor={"Strides": [0, 1]})
    inputs, outputs = arrays(np.uint8)
    problems = bind_refused(compiled, inputs, outputs)
    assert {str(p).split(":")[1].strip() for p in problems} == {"ConditionTensor", "BTensor", "OutputTensor"}


@pytest.mark.parametrize(
    "sizes",
    [[2**32 - 1] * 600, [2] * 2000, [10**5000], [1] * 100_000, [-(10**5000)] * 3],
    ids=["600 huge", "2000 small", "5000 digits", "100000 ones", "negative"],
)
@pytest.mark.parametrize("strides", [None, 1], ids=["packed", "ones"])
def test_absurd_sizes_are_refused_like_others(sizes, strides):
    tensor = {"Strides": strides and [strides] * len(sizes)}
    refused(if_desc("UINT8", sizes, OutputTensor=tensor))


@pytest.mark.parametrize(
    "field", ["TotalTensorSizeInBytes", "GuaranteedBaseOffsetAlignment", "DataType", "Flags"]
)
def test_an_absurd_number_is_refused_like_others(field):
    refused(if_desc(ATensor={field: 10**5000}))


@pytest.mark.parametrize(
    "change",
    [
        {"Sizes": None},
        {"Sizes": 6},
        {"Sizes": "2,3"},
        {"Sizes": [2.0, 3.0]},
        {"Sizes": [True, 3]},
        {"Sizes": [[2, 3]]},
        {"Sizes": {"0": 2}},
        {"Sizes": b"\x02\x03"},
        {"Strides": "packed"},
        {"Strides": [None, 1]},
        {"Strides": 1},
        {"DataType": None},
        {"DataType": "FLOAT"},
        {"DataType": 99},
        {"DataType": ["FLOAT32"]},
        {"Flags": "OWNED"},
        {"Flags": 2},
        {"Flags": 1.0},
        {"TotalTensorSizeInBytes": "24"},
        {"TotalTensorSizeInBytes": 24.0},
        {"TotalTensorSizeInBytes": -4},
        {"TotalTensorSizeInBytes": 2**64},
        {"DimensionCount": 3},
        {"DimensionCount": "2"},
        {"DimensionCount": 2.0},
        {"DimensionCount": -2},
        {"Type": "DML_TENSOR_TYPE_INVALID"},
        {"Shape": [2, 3]},
        {"sizes": [2, 3]},
        {3: 4},
        7,
        [],
        "FLOAT32",
    ],
    ids=str,
)
def test_a_tensor_field_of_the_wrong_kind_is_refused(change):
    for problem in refused(if_desc(ATensor=change)):
        assert str(problem).startswith("ELEMENT_WISE_IF: ")


def test_a_count_of_dimensions_may_be_given_if_it_is_right():
    accepted(if_desc(ATensor={"DimensionCount": 2}))
    refused(if_desc(sizes=(3,), ATensor={"DimensionCount": True}), match="DimensionCount")


@pytest.mark.parametrize("name", IF_TENSORS)
def test_a_missing_field_is_named(name):
    desc = if_desc()
    del desc["Desc"][name]
    refused(desc, match=rf"expected field {name}\b.*missing")
    refused(if_desc(**{name: None}), match=rf"expected field {name}\b.*missing")


@pytest.mark.parametrize("key", ["Atensor", "CTensor", "InfinityMode", "", 1, None, ("ATensor",)])
def test_an_unknown_field_is_refused(key):
    desc = if_desc()
    desc["Desc"][key] = desc["Desc"]["ATensor"]
    refused(desc)


@pytest.mark.parametrize(
    "desc",
    [None, 1, "ELEMENT_WISE_IF", [], {}, {"Desc": {}}, {"Type": "ELEMENT_WISE_IF", "Desc": []}]
    + [if_desc() | {"Type": t} for t in (None, 1.5, [], "ELEMENT_WISE_FI", 1000)],
    ids=str,
)
def test_what_is_no_operator_description_is_refused(desc):
    refused(desc)


@pytest.mark.parametrize("mode", [None, "BOTH", 3, -1, True, 0.0, ["EITHER"], "missing"])
def test_the_infinity_mode_is_checked(mode):
    fields = {"InputTensor": {"DataType": "FLOAT32", "Sizes": [2]}, "InfinityMode": mode}
    fields["OutputTensor"] = {"DataType": "UINT8", "Sizes": [2]}
    if mode == "missing":
        del fields["InfinityMode"]
    refused({"Type": "ELEMENT_WISE_IS_INFINITY", "Desc": fields}, match="InfinityMode")


@pytest.mark.parametrize("mode", ["EITHER", "DML_IS_INFINITY_MODE_POSITIVE", 2, dml.IsInfinityMode.EITHER])
def test_dispatch_of_is_infinity(mode):
    tensors = {"InputTensor": dml.TensorDesc("FLOAT16", (5,)), "OutputTensor": dml.TensorDesc("UINT8", (5,))}
    device = dml.Device("3_0")
    operator = device.create_operator(
        dml.OperatorDesc("ELEMENT_WISE_IS_INFINITY", {**tensors, "InfinityMode": mode})
    )
    assert operator.type is dml.OperatorType.ELEMENT_WISE_IS_INFINITY
    assert operator.tensors == tensors
    y = np.full(5, 9, np.uint8)
    x = np.array([np.inf, -np.inf, np.nan, 65504, -0.0], np.float16)
    device.compile_operator(operator).dispatch({"InputTensor": x}, {"OutputTensor": y})
    positive, negative = mode != 2, mode in ("EITHER", 2, dml.IsInfinityMode.EITHER)
    assert y.tolist() == [positive, negative, 0, 0, 0]


# ---- the texts of errors -----------------------------------------------------------------------------


def test_a_wrong_type_is_told_with_the_level_that_allows_it():
    (problem,) = refused(if_desc("INT64"), "3_0")
    found = re.fullmatch(
        r"ELEMENT_WISE_IF: ATensor, BTensor, OutputTensor: expected ([\w |]+) at feature level 3_0, "
        r"but got int64 \(allowed from 5_0\)",
        str(problem),
    )
    assert sorted(found[1].split(" | ")) == sorted(
        ["float16", "float32", "int16", "int32", "int8", "uint16", "uint32", "uint8"]
    )
    text = str(refused(if_desc(ATensor={"DataType": "INT64"}), "3_0")[0])
    assert text.startswith("ELEMENT_WISE_IF: ATensor: expected float")
    assert text.endswith(" at feature level 3_0, but got int64 (allowed from 5_0)")


def test_unequal_sizes_are_told_once_and_grouped():
    (problem,) = refused(if_desc(sizes=(2, 2), ConditionTensor={"Sizes": [2, 1]}))
    text = "expected equal sizes, but got ConditionTensor (2, 1); ATensor, BTensor, OutputTensor (2, 2)"
    remedy = "to broadcast, give the full Sizes and a Stride of 0"
    assert str(problem) == f"ELEMENT_WISE_IF: {text}; {remedy}"


def test_all_problems_are_told_at_once_a_line_each():
    problems = refused(
        if_desc(
            "INT64",
            (2, 2),
            ConditionTensor={"Sizes": [2, 1], "DataType": "INT8"},
            ATensor={"TotalTensorSizeInBytes": 4},
            BTensor={"GuaranteedBaseOffsetAlignment": 3},
            OutputTensor={"Strides": [0, 1]},
            Unknown=1,
        ),
        "3_0",
    )
    lines = [str(p) for p in problems]
    assert all("\n" not in line for line in lines)
    wanted = ["Unknown", "TotalTensorSize", "Alignment", "OutputTensor.*Strides that", "equal sizes"]
    wanted += ["ConditionTensor: expected uint8.*got int8", "ATensor, BTensor, OutputTensor: .*got int64"]
    for pattern in wanted:
        assert sum(bool(re.search(pattern, line)) for line in lines) == 1, (pattern, lines)
    assert len(lines) == len(wanted)


def test_a_misspelt_name_gets_its_correction():
    refused(if_desc(Atensor={"DataType": "UINT8", "Sizes": [1]}), match="did you mean 'ATensor'")
    refused(if_desc(ATensor={"DataType": "FLOAT23"}), match="FLOAT32")
    refused(if_desc() | {"Type": "DML_OPERATOR_ELEMENT_WISE_FI"}, match="ELEMENT_WISE_IF")


def test_the_errors_are_a_family():
    for name in ("InvalidOperator", "InvalidModel", "InvalidInput", "ExecutionFailed", "Unsupported"):
        assert issubclass(getattr(dml, name), dml.AnyDMLError)
    assert dml.InvalidOperator.hresult == E_INVALIDARG


@pytest.mark.parametrize("threads", [0, -1, "2", 1.5])
def test_threads_are_a_positive_integer(threads):
    with pytest.raises(dml.InvalidInput, match="threads"):
        dml.Device(threads=threads)
