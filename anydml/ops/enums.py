"""DirectML's enumerations, with its numeric values and names (DirectML.h, target 0x6400).

Every name is accepted with and without its prefix, in any case: `parse(TensorDataType, "float32")`,
`"FLOAT32"` and `"DML_TENSOR_DATA_TYPE_FLOAT32"` are one value.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum, IntFlag
from typing import TypeVar

from anydml.errors import InvalidOperator, Problem, nearest, short_repr


class FeatureLevel(IntEnum):
    """DML_FEATURE_LEVEL: what a device promises to support. Levels are ordered supersets."""

    FL_1_0 = 0x1000
    FL_2_0 = 0x2000
    FL_2_1 = 0x2100
    FL_3_0 = 0x3000
    FL_3_1 = 0x3100
    FL_4_0 = 0x4000
    FL_4_1 = 0x4100
    FL_5_0 = 0x5000
    FL_5_1 = 0x5100
    FL_5_2 = 0x5200
    FL_6_0 = 0x6000
    FL_6_1 = 0x6100
    FL_6_2 = 0x6200
    FL_6_3 = 0x6300
    FL_6_4 = 0x6400

    @property
    def label(self) -> str:
        """As the documents write it: `5_0`."""
        return self.name[3:]

    @classmethod
    def newest(cls) -> FeatureLevel:
        return max(cls)


class TensorDataType(IntEnum):
    """DML_TENSOR_DATA_TYPE."""

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13

    @property
    def label(self) -> str:
        """As NumPy and ONNX write it: `float32`."""
        return self.name.lower()


class TensorFlags(IntFlag):
    """DML_TENSOR_FLAGS."""

    NONE = 0
    OWNED_BY_DML = 1


class TensorType(IntEnum):
    """DML_TENSOR_TYPE."""

    INVALID = 0
    BUFFER = 1


class RoundingMode(IntEnum):
    """How a number is rounded (DML_ROUNDING_MODE)."""

    HALVES_TO_NEAREST_EVEN = 0
    TOWARD_ZERO = 1
    TOWARD_INFINITY = 2


class IsInfinityMode(IntEnum):
    """DML_IS_INFINITY_MODE: which infinities ELEMENT_WISE_IS_INFINITY looks for."""

    EITHER = 0
    POSITIVE = 1
    NEGATIVE = 2


class ReduceFunction(IntEnum):
    """What REDUCE and ROI_ALIGN make of many elements (DML_REDUCE_FUNCTION)."""

    ARGMAX = 0
    ARGMIN = 1
    AVERAGE = 2
    L1 = 3
    L2 = 4
    LOG_SUM = 5
    LOG_SUM_EXP = 6
    MAX = 7
    MIN = 8
    MULTIPLY = 9
    SUM = 10
    SUM_SQUARE = 11


class MatrixTransform(IntEnum):
    """What happens to a matrix before it is multiplied (DML_MATRIX_TRANSFORM)."""

    NONE = 0
    TRANSPOSE = 1


class ConvolutionMode(IntEnum):
    """Whether the filter is flipped (DML_CONVOLUTION_MODE)."""

    CONVOLUTION = 0
    CROSS_CORRELATION = 1


class ConvolutionDirection(IntEnum):
    """DML_CONVOLUTION_DIRECTION: BACKWARD is a transposed convolution."""

    FORWARD = 0
    BACKWARD = 1


class PaddingMode(IntEnum):
    """What stands beyond a tensor's edges (DML_PADDING_MODE)."""

    CONSTANT = 0
    EDGE = 1
    REFLECTION = 2
    SYMMETRIC = 3
    WRAP = 4


class InterpolationMode(IntEnum):
    """DML_INTERPOLATION_MODE."""

    NEAREST_NEIGHBOR = 0
    LINEAR = 1


class RecurrentNetworkDirection(IntEnum):
    """DML_RECURRENT_NETWORK_DIRECTION."""

    FORWARD = 0
    BACKWARD = 1
    BIDIRECTIONAL = 2


class AxisDirection(IntEnum):
    """Which way an axis is walked (DML_AXIS_DIRECTION)."""

    INCREASING = 0
    DECREASING = 1


class DepthSpaceOrder(IntEnum):
    """How depth is made of space and back (DML_DEPTH_SPACE_ORDER)."""

    DEPTH_COLUMN_ROW = 0
    COLUMN_ROW_DEPTH = 1


class RandomGeneratorType(IntEnum):
    """DML_RANDOM_GENERATOR_TYPE."""

    PHILOX_4X32_10 = 0


class MultiheadAttentionMaskType(IntEnum):
    """What MaskTensor says (DML_MULTIHEAD_ATTENTION_MASK_TYPE)."""

    NONE = 0
    KEY_SEQUENCE_LENGTH = 1
    KEY_SEQUENCE_END_START = 2
    KEY_QUERY_SEQUENCE_LENGTH_START_END = 3
    BOOLEAN = 4


class QuantizationType(IntEnum):
    """Which tensors quantization goes by (DML_QUANTIZATION_TYPE)."""

    NONE = 0
    SCALE = 1
    SCALE_ZERO_POINT = 2


class OperatorType(IntEnum):
    """DML_OPERATOR_TYPE: every operator that DirectML has, implemented here or not."""

    INVALID = 0
    ELEMENT_WISE_IDENTITY = 1
    ELEMENT_WISE_ABS = 2
    ELEMENT_WISE_ACOS = 3
    ELEMENT_WISE_ADD = 4
    ELEMENT_WISE_ASIN = 5
    ELEMENT_WISE_ATAN = 6
    ELEMENT_WISE_CEIL = 7
    ELEMENT_WISE_CLIP = 8
    ELEMENT_WISE_COS = 9
    ELEMENT_WISE_DIVIDE = 10
    ELEMENT_WISE_EXP = 11
    ELEMENT_WISE_FLOOR = 12
    ELEMENT_WISE_LOG = 13
    ELEMENT_WISE_LOGICAL_AND = 14
    ELEMENT_WISE_LOGICAL_EQUALS = 15
    ELEMENT_WISE_LOGICAL_GREATER_THAN = 16
    ELEMENT_WISE_LOGICAL_LESS_THAN = 17
    ELEMENT_WISE_LOGICAL_NOT = 18
    ELEMENT_WISE_LOGICAL_OR = 19
    ELEMENT_WISE_LOGICAL_XOR = 20
    ELEMENT_WISE_MAX = 21
    ELEMENT_WISE_MEAN = 22
    ELEMENT_WISE_MIN = 23
    ELEMENT_WISE_MULTIPLY = 24
    ELEMENT_WISE_POW = 25
    ELEMENT_WISE_CONSTANT_POW = 26
    ELEMENT_WISE_RECIP = 27
    ELEMENT_WISE_SIN = 28
    ELEMENT_WISE_SQRT = 29
    ELEMENT_WISE_SUBTRACT = 30
    ELEMENT_WISE_TAN = 31
    ELEMENT_WISE_THRESHOLD = 32
    ELEMENT_WISE_QUANTIZE_LINEAR = 33
    ELEMENT_WISE_DEQUANTIZE_LINEAR = 34
    ACTIVATION_ELU = 35
    ACTIVATION_HARDMAX = 36
    ACTIVATION_HARD_SIGMOID = 37
    ACTIVATION_IDENTITY = 38
    ACTIVATION_LEAKY_RELU = 39
    ACTIVATION_LINEAR = 40
    ACTIVATION_LOG_SOFTMAX = 41
    ACTIVATION_PARAMETERIZED_RELU = 42
    ACTIVATION_PARAMETRIC_SOFTPLUS = 43
    ACTIVATION_RELU = 44
    ACTIVATION_SCALED_ELU = 45
    ACTIVATION_SCALED_TANH = 46
    ACTIVATION_SIGMOID = 47
    ACTIVATION_SOFTMAX = 48
    ACTIVATION_SOFTPLUS = 49
    ACTIVATION_SOFTSIGN = 50
    ACTIVATION_TANH = 51
    ACTIVATION_THRESHOLDED_RELU = 52
    CONVOLUTION = 53
    GEMM = 54
    REDUCE = 55
    AVERAGE_POOLING = 56
    LP_POOLING = 57
    MAX_POOLING = 58
    ROI_POOLING = 59
    SLICE = 60
    CAST = 61
    SPLIT = 62
    JOIN = 63
    PADDING = 64
    VALUE_SCALE_2D = 65
    UPSAMPLE_2D = 66
    GATHER = 67
    SPACE_TO_DEPTH = 68
    DEPTH_TO_SPACE = 69
    TILE = 70
    TOP_K = 71
    BATCH_NORMALIZATION = 72
    MEAN_VARIANCE_NORMALIZATION = 73
    LOCAL_RESPONSE_NORMALIZATION = 74
    LP_NORMALIZATION = 75
    RNN = 76
    LSTM = 77
    GRU = 78
    ELEMENT_WISE_SIGN = 79
    ELEMENT_WISE_IS_NAN = 80
    ELEMENT_WISE_ERF = 81
    ELEMENT_WISE_SINH = 82
    ELEMENT_WISE_COSH = 83
    ELEMENT_WISE_TANH = 84
    ELEMENT_WISE_ASINH = 85
    ELEMENT_WISE_ACOSH = 86
    ELEMENT_WISE_ATANH = 87
    ELEMENT_WISE_IF = 88
    ELEMENT_WISE_ADD1 = 89
    ACTIVATION_SHRINK = 90
    MAX_POOLING1 = 91
    MAX_UNPOOLING = 92
    DIAGONAL_MATRIX = 93
    SCATTER = 94
    SCATTER_ELEMENTS = 94
    ONE_HOT = 95
    RESAMPLE = 96
    ELEMENT_WISE_BIT_SHIFT_LEFT = 97
    ELEMENT_WISE_BIT_SHIFT_RIGHT = 98
    ELEMENT_WISE_ROUND = 99
    ELEMENT_WISE_IS_INFINITY = 100
    ELEMENT_WISE_MODULUS_TRUNCATE = 101
    ELEMENT_WISE_MODULUS_FLOOR = 102
    FILL_VALUE_CONSTANT = 103
    FILL_VALUE_SEQUENCE = 104
    CUMULATIVE_SUMMATION = 105
    REVERSE_SUBSEQUENCES = 106
    GATHER_ELEMENTS = 107
    GATHER_ND = 108
    SCATTER_ND = 109
    MAX_POOLING2 = 110
    SLICE1 = 111
    TOP_K1 = 112
    DEPTH_TO_SPACE1 = 113
    SPACE_TO_DEPTH1 = 114
    MEAN_VARIANCE_NORMALIZATION1 = 115
    RESAMPLE1 = 116
    MATRIX_MULTIPLY_INTEGER = 117
    QUANTIZED_LINEAR_MATRIX_MULTIPLY = 118
    CONVOLUTION_INTEGER = 119
    QUANTIZED_LINEAR_CONVOLUTION = 120
    ELEMENT_WISE_BIT_AND = 121
    ELEMENT_WISE_BIT_OR = 122
    ELEMENT_WISE_BIT_XOR = 123
    ELEMENT_WISE_BIT_NOT = 124
    ELEMENT_WISE_BIT_COUNT = 125
    ELEMENT_WISE_LOGICAL_GREATER_THAN_OR_EQUAL = 126
    ELEMENT_WISE_LOGICAL_LESS_THAN_OR_EQUAL = 127
    ACTIVATION_CELU = 128
    ACTIVATION_RELU_GRAD = 129
    AVERAGE_POOLING_GRAD = 130
    MAX_POOLING_GRAD = 131
    RANDOM_GENERATOR = 132
    NONZERO_COORDINATES = 133
    RESAMPLE_GRAD = 134
    SLICE_GRAD = 135
    ADAM_OPTIMIZER = 136
    ARGMIN = 137
    ARGMAX = 138
    ROI_ALIGN = 139
    GATHER_ND1 = 140
    ELEMENT_WISE_ATAN_YX = 141
    ELEMENT_WISE_CLIP_GRAD = 142
    ELEMENT_WISE_DIFFERENCE_SQUARE = 143
    LOCAL_RESPONSE_NORMALIZATION_GRAD = 144
    CUMULATIVE_PRODUCT = 145
    BATCH_NORMALIZATION_GRAD = 146
    ELEMENT_WISE_QUANTIZED_LINEAR_ADD = 147
    DYNAMIC_QUANTIZE_LINEAR = 148
    ROI_ALIGN1 = 149
    ROI_ALIGN_GRAD = 150
    BATCH_NORMALIZATION_TRAINING = 151
    BATCH_NORMALIZATION_TRAINING_GRAD = 152
    ELEMENT_WISE_CLIP1 = 153
    ELEMENT_WISE_CLIP_GRAD1 = 154
    PADDING1 = 155
    ELEMENT_WISE_NEGATE = 156
    ACTIVATION_GELU = 157
    ACTIVATION_SOFTMAX1 = 158
    ACTIVATION_LOG_SOFTMAX1 = 159
    ACTIVATION_HARDMAX1 = 160
    RESAMPLE2 = 161
    RESAMPLE_GRAD1 = 162
    DIAGONAL_MATRIX1 = 163
    MULTIHEAD_ATTENTION = 164
    LP_POOLING1 = 165
    AVERAGE_POOLING1 = 166
    ACTIVATION_SWISH = 167
    ACTIVATION_HARD_SWISH = 168
    QUANTIZED_LINEAR_AVERAGE_POOLING = 169
    MATRIX_MULTIPLY_INTEGER_TO_FLOAT = 170
    MEAN_VARIANCE_NORMALIZATION2 = 171
    MULTIHEAD_ATTENTION1 = 172
    QUANTIZE = 173
    DEQUANTIZE = 174
    RESAMPLE3 = 175
    FOLD = 176
    UNFOLD = 177


# Where DirectML writes more, or else, than `DML_`, the words of the name, and `_`.
_PREFIXES: dict[type[Enum], tuple[str, ...]] = {
    FeatureLevel: ("DML_FEATURE_LEVEL_", "FEATURE_LEVEL_", "FL_"),
    TensorFlags: ("DML_TENSOR_FLAG_",),
    OperatorType: ("DML_OPERATOR_",),
}


def _prefixes(cls: type[Enum]) -> tuple[str, ...]:
    words = re.findall(r"[A-Z][a-z]+", cls.__name__)
    return _PREFIXES.get(cls) or (f"DML_{'_'.join(words).upper()}_",)


E = TypeVar("E", bound=Enum)


def short_name(cls: type[Enum], text: str) -> str:
    """`text` in upper case without the prefix that DirectML writes before the values of `cls`."""
    name = text.strip().upper()
    for prefix in _prefixes(cls):
        if name.startswith(prefix):
            name = name[len(prefix) :]
            break
    if cls is FeatureLevel:
        name = "FL_" + re.sub(r"[._]", "_", name)
    return name


def parse(cls: type[E], value: object, where: str = "") -> E:
    """The member of `cls` that `value` names: a member, a number, or a name with or without prefix.

    Raises:
        InvalidOperator: no member is called so; the error lists near or all names.
    """
    if isinstance(value, cls):
        return value
    members = cls.__members__
    if isinstance(value, str):
        parts = (
            [short_name(cls, p) for p in value.split("|")]
            if issubclass(cls, IntFlag)
            else [short_name(cls, value)]
        )
        if all(p in members for p in parts):
            result = members[parts[0]]
            for part in parts[1:]:
                result = cls(result.value | members[part].value)
            return result
    elif isinstance(value, int) and not isinstance(value, bool) and not isinstance(value, Enum):
        if issubclass(cls, IntFlag):
            if 0 <= value <= max(m.value for m in members.values()):
                return cls(value)
        elif value in {m.value for m in members.values()}:
            return cls(value)
    names = [n.removeprefix("FL_") if cls is FeatureLevel else n for n in members]
    close = isinstance(value, str) and cls is not FeatureLevel  # any level is close to any other
    guess = nearest(short_name(cls, str(value)) if close else "", names)
    raise InvalidOperator(
        Problem(where, f"expected a {_prefixes(cls)[0].rstrip('_')} name, but got {short_repr(value)}", guess)
    )
