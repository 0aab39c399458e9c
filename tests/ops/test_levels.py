"""What each feature level allows, and DirectML's enumerations, against tables written here."""

from enum import IntFlag
from itertools import pairwise

import pytest

import anydml as dml
from anydml.ops.catalog import BY_NAME
from anydml.ops.enums import TensorType, parse

_LEVELS = "1_0 2_0 2_1 3_0 3_1 4_0 4_1 5_0 5_1 5_2 6_0 6_1 6_2 6_3 6_4"
_DATA_TYPES = "UNKNOWN FLOAT32 FLOAT16 UINT32 UINT16 UINT8 INT32 INT16 INT8 FLOAT64 UINT64 INT64 UINT4 INT4"
_OPERATOR_TYPES = """
    INVALID ELEMENT_WISE_IDENTITY ELEMENT_WISE_ABS ELEMENT_WISE_ACOS ELEMENT_WISE_ADD ELEMENT_WISE_ASIN
    ELEMENT_WISE_ATAN ELEMENT_WISE_CEIL ELEMENT_WISE_CLIP ELEMENT_WISE_COS ELEMENT_WISE_DIVIDE
    ELEMENT_WISE_EXP ELEMENT_WISE_FLOOR ELEMENT_WISE_LOG ELEMENT_WISE_LOGICAL_AND
    ELEMENT_WISE_LOGICAL_EQUALS ELEMENT_WISE_LOGICAL_GREATER_THAN ELEMENT_WISE_LOGICAL_LESS_THAN
    ELEMENT_WISE_LOGICAL_NOT ELEMENT_WISE_LOGICAL_OR ELEMENT_WISE_LOGICAL_XOR ELEMENT_WISE_MAX
    ELEMENT_WISE_MEAN ELEMENT_WISE_MIN ELEMENT_WISE_MULTIPLY ELEMENT_WISE_POW ELEMENT_WISE_CONSTANT_POW
    ELEMENT_WISE_RECIP ELEMENT_WISE_SIN ELEMENT_WISE_SQRT ELEMENT_WISE_SUBTRACT ELEMENT_WISE_TAN
    ELEMENT_WISE_THRESHOLD ELEMENT_WISE_QUANTIZE_LINEAR ELEMENT_WISE_DEQUANTIZE_LINEAR ACTIVATION_ELU
    ACTIVATION_HARDMAX ACTIVATION_HARD_SIGMOID ACTIVATION_IDENTITY ACTIVATION_LEAKY_RELU
    ACTIVATION_LINEAR ACTIVATION_LOG_SOFTMAX ACTIVATION_PARAMETERIZED_RELU
    ACTIVATION_PARAMETRIC_SOFTPLUS ACTIVATION_RELU ACTIVATION_SCALED_ELU ACTIVATION_SCALED_TANH
    ACTIVATION_SIGMOID ACTIVATION_SOFTMAX ACTIVATION_SOFTPLUS ACTIVATION_SOFTSIGN ACTIVATION_TANH
    ACTIVATION_THRESHOLDED_RELU CONVOLUTION GEMM REDUCE AVERAGE_POOLING LP_POOLING MAX_POOLING
    ROI_POOLING SLICE CAST SPLIT JOIN PADDING VALUE_SCALE_2D UPSAMPLE_2D GATHER SPACE_TO_DEPTH
    DEPTH_TO_SPACE TILE TOP_K BATCH_NORMALIZATION MEAN_VARIANCE_NORMALIZATION
    LOCAL_RESPONSE_NORMALIZATION LP_NORMALIZATION RNN LSTM GRU ELEMENT_WISE_SIGN ELEMENT_WISE_IS_NAN
    ELEMENT_WISE_ERF ELEMENT_WISE_SINH ELEMENT_WISE_COSH ELEMENT_WISE_TANH ELEMENT_WISE_ASINH
    ELEMENT_WISE_ACOSH ELEMENT_WISE_ATANH ELEMENT_WISE_IF ELEMENT_WISE_ADD1 ACTIVATION_SHRINK
    MAX_POOLING1 MAX_UNPOOLING DIAGONAL_MATRIX SCATTER_ELEMENTS ONE_HOT RESAMPLE
    ELEMENT_WISE_BIT_SHIFT_LEFT ELEMENT_WISE_BIT_SHIFT_RIGHT ELEMENT_WISE_ROUND ELEMENT_WISE_IS_INFINITY
    ELEMENT_WISE_MODULUS_TRUNCATE ELEMENT_WISE_MODULUS_FLOOR FILL_VALUE_CONSTANT FILL_VALUE_SEQUENCE
    CUMULATIVE_SUMMATION REVERSE_SUBSEQUENCES GATHER_ELEMENTS GATHER_ND SCATTER_ND MAX_POOLING2 SLICE1
    TOP_K1 DEPTH_TO_SPACE1 SPACE_TO_DEPTH1 MEAN_VARIANCE_NORMALIZATION1 RESAMPLE1
    MATRIX_MULTIPLY_INTEGER QUANTIZED_LINEAR_MATRIX_MULTIPLY CONVOLUTION_INTEGER
    QUANTIZED_LINEAR_CONVOLUTION ELEMENT_WISE_BIT_AND ELEMENT_WISE_BIT_OR ELEMENT_WISE_BIT_XOR
    ELEMENT_WISE_BIT_NOT ELEMENT_WISE_BIT_COUNT ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL
    ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL ACTIVATION_CELU ACTIVATION_RELU_GRAD AVERAGE_POOLING_GRAD
    MAX_POOLING_GRAD RANDOM_GENERATOR NONZERO_COORDINATES RESAMPLE_GRAD SLICE_GRAD ADAM_OPTIMIZER ARGMIN
    ARGMAX ROI_ALIGN GATHER_ND1 ELEMENT_WISE_ATAN_YX ELEMENT_WISE_CLIP_GRAD
    ELEMENT_WISE_DIFFERENCE_SQUARE LOCAL_RESPONSE_NORMALIZATION_GRAD CUMULATIVE_PRODUCT
    BATCH_NORMALIZATION_GRAD ELEMENT_WISE_QUANTIZED_LINEAR_ADD DYNAMIC_QUANTIZE_LINEAR ROI_ALIGN1
    ROI_ALIGN_GRAD BATCH_NORMALIZATION_TRAINING BATCH_NORMALIZATION_TRAINING_GRAD ELEMENT_WISE_CLIP1
    ELEMENT_WISE_CLIP_GRAD1 PADDING1 ELEMENT_WISE_NEGATE ACTIVATION_GELU ACTIVATION_SOFTMAX1
    ACTIVATION_LOG_SOFTMAX1 ACTIVATION_HARDMAX1 RESAMPLE2 RESAMPLE_GRAD1 DIAGONAL_MATRIX1
    MULTIHEAD_ATTENTION LP_POOLING1 AVERAGE_POOLING1 ACTIVATION_SWISH ACTIVATION_HARD_SWISH
    QUANTIZED_LINEAR_AVERAGE_POOLING MATRIX_MULTIPLY_INTEGER_TO_FLOAT MEAN_VARIANCE_NORMALIZATION2
    MULTIHEAD_ATTENTION1 QUANTIZE DEQUANTIZE RESAMPLE3 FOLD UNFOLD
"""
LEVELS, DATA_TYPES, OPERATOR_TYPES = _LEVELS.split(), _DATA_TYPES.split(), _OPERATOR_TYPES.split()
LEVEL_NUMBERS = {name: int(name.replace("_", ""), 16) << 8 for name in LEVELS}  # 5_2 is 0x5200

ENUMS = [
    (dml.FeatureLevel, "DML_FEATURE_LEVEL_", LEVEL_NUMBERS),
    (dml.TensorDataType, "DML_TENSOR_DATA_TYPE_", {name: k for k, name in enumerate(DATA_TYPES)}),
    (dml.TensorFlags, "DML_TENSOR_FLAG_", {"NONE": 0, "OWNED_BY_DML": 1}),
    (TensorType, "DML_TENSOR_TYPE_", {"INVALID": 0, "BUFFER": 1}),
    (dml.IsInfinityMode, "DML_IS_INFINITY_MODE_", {"EITHER": 0, "POSITIVE": 1, "NEGATIVE": 2}),
    (
        dml.OperatorType,
        "DML_OPERATOR_",
        {name: k for k, name in enumerate(OPERATOR_TYPES)} | {"SCATTER": 94},
    ),
]

SMALL = {"FLOAT32", "FLOAT16", "INT32", "INT16", "INT8", "UINT32", "UINT16", "UINT8"}
IF_FROM = {  # level: ranks, types of A, B and Output
    "2_0": ({4}, {"FLOAT16"}),
    "3_0": (set(range(1, 9)), SMALL),
    "5_0": (set(range(1, 9)), SMALL | {"FLOAT64", "INT64", "UINT64"}),
}
IS_INFINITY_FROM = {
    "2_1": ({4}, {"FLOAT32", "FLOAT16"}),
    "3_0": (set(range(1, 9)), {"FLOAT32", "FLOAT16"}),
}


def allowed(rows, level):
    """Ranks and types at a level: the row of the last level that is not newer."""
    reached = [name for name in rows if LEVELS.index(name) <= LEVELS.index(level)]
    return rows[reached[-1]] if reached else (set(), set())


def tensor(data_type, rank=4, size=2):
    return {"DataType": data_type, "Sizes": [size] * rank}


def if_desc(a, b, output, *, condition="UINT8", ranks=(4, 4, 4, 4), sizes=(2, 2, 2, 2)):
    names = ("ConditionTensor", "ATensor", "BTensor", "OutputTensor")
    rows = zip(names, (condition, a, b, output), ranks, sizes, strict=True)
    return {"Type": "ELEMENT_WISE_IF", "Desc": {name: tensor(t, r, n) for name, t, r, n in rows}}


def is_infinity_desc(x, y="UINT8", *, ranks=(4, 4), sizes=(2, 2)):
    fields = {"InputTensor": tensor(x, ranks[0], sizes[0]), "OutputTensor": tensor(y, ranks[1], sizes[1])}
    return {"Type": "ELEMENT_WISE_IS_INFINITY", "Desc": fields | {"InfinityMode": "EITHER"}}


def accepts(device, desc):
    try:
        device.create_operator(desc)
    except dml.InvalidOperator:
        return False
    return True


@pytest.mark.parametrize("level", LEVELS)
def test_if_takes_exactly_its_ranks_and_types(level):
    device, (ranks, types) = dml.Device(level), allowed(IF_FROM, level)
    for rank in range(10):
        for name in DATA_TYPES:
            wanted = rank in ranks and name in types
            assert accepts(device, if_desc(name, name, name, ranks=(rank,) * 4)) is wanted, (rank, name)


@pytest.mark.parametrize("level", LEVELS)
def test_if_ties_the_types_of_a_b_and_output(level):
    device, (_, types) = dml.Device(level), allowed(IF_FROM, level)
    for one in DATA_TYPES:
        for other in DATA_TYPES:
            wanted = one == other and one in types
            for types_of_three in ((one, other, other), (other, one, other), (other, other, one)):
                assert accepts(device, if_desc(*types_of_three)) is wanted, types_of_three
    assert not accepts(device, if_desc("FLOAT32", "FLOAT16", "INT8"))


@pytest.mark.parametrize("level", LEVELS)
def test_if_takes_only_a_uint8_condition(level):
    device, (_, types) = dml.Device(level), allowed(IF_FROM, level)
    for name in DATA_TYPES:
        for condition in DATA_TYPES:
            desc = if_desc(name, name, name, condition=condition)
            assert accepts(device, desc) is (condition == "UINT8" and name in types), (condition, name)


@pytest.mark.parametrize("level", LEVELS)
def test_is_infinity_takes_exactly_its_ranks_and_types(level):
    device, (ranks, types) = dml.Device(level), allowed(IS_INFINITY_FROM, level)
    for rank in range(10):
        for name in DATA_TYPES:
            wanted = rank in ranks and name in types
            assert accepts(device, is_infinity_desc(name, ranks=(rank, rank))) is wanted, (rank, name)
    for name in DATA_TYPES:
        for output in DATA_TYPES:
            wanted = name in types and output == "UINT8"
            assert accepts(device, is_infinity_desc(name, output)) is wanted, (name, output)


def float16_if(**layout):
    return if_desc("FLOAT16", "FLOAT16", "FLOAT16", **layout)


def float16_is_infinity(**layout):
    return is_infinity_desc("FLOAT16", **layout)


@pytest.mark.parametrize("level", ["2_1", "3_0", "5_0", "6_4"])
@pytest.mark.parametrize(("make", "count"), [(float16_if, 4), (float16_is_infinity, 2)])
def test_ranks_and_sizes_are_tied(level, make, count):
    """Equal sizes mean equal ranks; a size of 1 is not broadcast."""
    device = dml.Device(level)
    assert accepts(device, make(ranks=(4,) * count, sizes=(3,) * count))
    for k in range(count):
        for rank in (1, 3, 5, 8):
            ranks = [4] * count
            ranks[k] = rank
            assert not accepts(device, make(ranks=ranks)), ranks
        for size in (1, 3):
            sizes = [2] * count
            sizes[k] = size
            assert not accepts(device, make(sizes=sizes)), sizes


@pytest.mark.parametrize(
    ("desc", "introduced"),
    [(float16_if(), "2_0"), (float16_is_infinity(), "2_1")],
    ids=["if", "is_infinity"],
)
def test_an_operator_above_the_level_names_the_level_that_has_it(desc, introduced):
    for level in LEVELS:
        problems = dml.validate(desc, feature_level=level)
        if LEVELS.index(level) >= LEVELS.index(introduced):
            assert problems == []
            continue
        with pytest.raises(dml.InvalidOperator) as raised:
            dml.Device(level).create_operator(desc)
        assert introduced in str(raised.value)
        assert level in str(raised.value)
        assert raised.value.hresult == 0x80070057


def test_each_level_takes_what_the_one_before_took():
    descs = [if_desc(n, n, n, ranks=(r,) * 4) for n in DATA_TYPES for r in range(10)]
    descs += [is_infinity_desc(n, ranks=(r, r)) for n in DATA_TYPES for r in range(10)]
    before = set()
    for level in LEVELS:
        device = dml.Device(level)
        now = {k for k, desc in enumerate(descs) if accepts(device, desc)}
        assert before <= now, level
        before = now
    assert before


# ---- enumerations ------------------------------------------------------------------------------------


def name_of(cls, name):
    return f"FL_{name}" if cls is dml.FeatureLevel else name


@pytest.mark.parametrize(("cls", "prefix", "numbers"), ENUMS, ids=[e[0].__name__ for e in ENUMS])
def test_numeric_values_are_directmls(cls, prefix, numbers):
    assert {name: int(member) for name, member in cls.__members__.items()} == {
        name_of(cls, name): number for name, number in numbers.items()
    }


@pytest.mark.parametrize(("cls", "prefix", "numbers"), ENUMS, ids=[e[0].__name__ for e in ENUMS])
def test_every_name_is_read_with_and_without_prefix_in_any_case(cls, prefix, numbers):
    for name, number in numbers.items():
        member = cls(number)
        full = prefix + name
        for text in (name, full, name.lower(), full.lower(), name.title(), full.title()):
            assert parse(cls, text) is member, text
        assert parse(cls, number) is member
        assert parse(cls, member) is member


@pytest.mark.parametrize(("cls", "prefix", "numbers"), ENUMS, ids=[e[0].__name__ for e in ENUMS])
@pytest.mark.parametrize(
    "wrong", ["", "NONSENSE", "DML_", -1, 178, 0x7000, 1.0, True, False, None, [], {}, b"NONE", float("nan")]
)
def test_what_is_no_name_is_refused(cls, prefix, numbers, wrong):
    if wrong == [] and issubclass(cls, IntFlag):
        assert parse(cls, wrong) == 0  # DxDispatch lists them
        return
    with pytest.raises(dml.InvalidOperator):
        parse(cls, wrong)
    with pytest.raises(dml.InvalidOperator):
        parse(cls, prefix)


def test_another_enums_member_is_no_value():
    """Numbers coincide, meanings do not."""
    for cls, _, _ in ENUMS:
        for other, _, _ in ENUMS:
            if other is not cls:
                with pytest.raises(dml.InvalidOperator):
                    parse(cls, max(other))


def test_flags_combine():
    owned = dml.TensorFlags.OWNED_BY_DML
    assert parse(dml.TensorFlags, "DML_TENSOR_FLAG_NONE|DML_TENSOR_FLAG_OWNED_BY_DML") == owned
    assert parse(dml.TensorFlags, "NONE | owned_by_dml") == owned
    with pytest.raises(dml.InvalidOperator):
        parse(dml.TensorFlags, "NONE|NONSENSE")


def test_levels_are_ordered():
    ordered = [dml.FeatureLevel[f"FL_{name}"] for name in LEVELS]
    assert sorted(dml.FeatureLevel) == ordered
    assert all(low < high for low, high in pairwise(ordered))
    assert dml.Device().feature_level is dml.FeatureLevel.FL_6_4


@pytest.mark.parametrize("level", LEVELS)
def test_a_device_takes_a_level_in_every_form(level):
    member = dml.FeatureLevel[f"FL_{level}"]
    for form in (member, level, f"FL_{level}", f"DML_FEATURE_LEVEL_{level}", LEVEL_NUMBERS[level]):
        assert dml.Device(feature_level=form).feature_level is member


@pytest.mark.parametrize("wrong", ["1_1", "2_2", "6_5", "7_0", "0_9", "", "newest", 5, 5.0, True, [5, 0]])
def test_a_device_of_no_such_level_is_refused(wrong):
    with pytest.raises(dml.InvalidOperator):
        dml.Device(feature_level=wrong)
    (problem,) = dml.validate(float16_if(), feature_level=wrong)
    assert problem.where == "feature_level"


def test_every_operator_of_directml_is_here():
    names = {"SCATTER" if n == "SCATTER_ELEMENTS" else n for n in OPERATOR_TYPES[1:]}
    assert set(BY_NAME) == names
    for name in ("SCATTER", "SCATTER_ELEMENTS"):
        (*_, problem) = dml.validate({"Type": name, "Desc": {}})
        assert problem.where == "SCATTER"


@pytest.mark.parametrize("kind", ["DML_OPERATOR_INVALID", "INVALID", 0, 178, -1, "DML_OPERATOR_NONSENSE", ""])
def test_what_directml_does_not_have_is_invalid(kind):
    with pytest.raises(dml.InvalidOperator):
        dml.Device().create_operator({"Type": kind, "Desc": {}})
    assert dml.validate({"Type": kind, "Desc": {}})
