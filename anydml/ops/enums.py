"""DirectML's enumerations, with its numeric values and names (DirectML.h, target 0x6400).

Every name is accepted with and without its prefix, in any case: `parse(TensorDataType, "float32")`,
`"FLOAT32"` and `"DML_TENSOR_DATA_TYPE_FLOAT32"` are one value.
"""

from __future__ import annotations

import re
from enum import Enum, IntEnum, IntFlag
from typing import TypeVar

import numpy as np

from anydml.errors import InvalidOperator, Problem, nearest, short_repr
from anydml.ops.operator_type import OperatorType as OperatorType


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


class Feature(IntEnum):
    """What a device can be asked for (DML_FEATURE)."""

    TENSOR_DATA_TYPE_SUPPORT = 0
    FEATURE_LEVELS = 1


class ExecutionFlags(IntFlag):
    """DML_EXECUTION_FLAGS. They allow a device to be quicker or less exact; here none changes a result."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


# Where DirectML writes more, or else, than `DML_`, the words of the name, and `_`.
_PREFIXES: dict[type[Enum], tuple[str, ...]] = {
    FeatureLevel: ("DML_FEATURE_LEVEL_", "FEATURE_LEVEL_", "FL_"),
    TensorFlags: ("DML_TENSOR_FLAG_",),
    ExecutionFlags: ("DML_EXECUTION_FLAG_",),
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
    """The member of `cls` that `value` names: a member, a number, or a name with or without prefix; of flags
    several names with | between them, or in a list; of types NumPy's, too.

    Raises:
        InvalidOperator: no member is called so; the error lists near or all names.
    """
    if isinstance(value, cls):
        return value
    members = cls.__members__
    if cls is TensorDataType and isinstance(value, np.dtype):
        value = value.name
    elif cls is TensorDataType and isinstance(value, type) and issubclass(value, np.generic):
        value = value.__name__
    if issubclass(cls, IntFlag) and isinstance(value, list | tuple):
        value = "|".join(map(str, value)) or "NONE"
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
            if 0 <= value <= sum(m.value for m in members.values()):
                return cls(value)
        elif value in {m.value for m in members.values()}:
            return cls(value)
    names = [n.removeprefix("FL_") if cls is FeatureLevel else n for n in members]
    close = isinstance(value, str) and cls is not FeatureLevel  # any level is close to any other
    guess = nearest(short_name(cls, str(value)) if close else "", names)
    raise InvalidOperator(
        Problem(where, f"expected a {_prefixes(cls)[0].rstrip('_')} name, but got {short_repr(value)}", guess)
    )
