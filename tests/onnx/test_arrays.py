"""Numbers as arrays of ONNX's types: nothing is lost but what rounding loses."""

import numpy as np
import pytest
from onnx import numpy_helper

from anydml.onnx.arrays import of_numbers, to_array
from anydml.onnx.protos import TensorProto

LARGE = 2**63 - 1


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        ("int64", [LARGE, 1.0], [LARGE, 1]),
        ("uint64", [2 * LARGE + 1, 0.0], [2 * LARGE + 1, 0]),
        ("uint64", [], []),
        ("int4", [[7, -8.0]], [[7, -8]]),
        ("bool", [1, 0.0, True], [True, False, True]),
        ("float32", 2**70, 2.0**70),
        ("float16", [0.1, float("inf")], [np.float16(0.1), float("inf")]),
        ("bfloat16", [3, True], [3, 1]),
        ("complex64", [1 + 2j], [1 + 2j]),
    ],
)
def test_what_fits(dtype, value, wanted):
    assert of_numbers(value, dtype).tolist() == wanted


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int64", [0, 1.5], r"int64 does not hold 1\.5"),
        ("int64", [1 << 63], f"int64 does not hold {1 << 63}"),
        ("int64", [1 << 63, 1 << 70], "int64 does not hold it"),
        ("int64", [float("nan")], "int64 does not hold it"),
        ("uint8", -1, "uint8 does not hold -1"),
        ("int4", [8], "int4 does not hold 8"),
        ("bool", [2], "bool does not hold 2"),
        ("float16", [1, 70000], "float16 does not hold 70000"),
        ("bfloat16", [1e300], r"bfloat16 does not hold 1e\+300"),
        ("float32", [10**400], "float32 does not hold it"),
        ("float32", [1j], "it is complex128"),
        ("float32", ["1"], "it is str"),
        ("float32", [1, None], "None is no number"),
        ("float32", [[1], [1, 2]], "its lists differ in length"),
    ],
)
def test_what_does_not(dtype, value, message):
    with pytest.raises(ValueError, match=message):
        of_numbers(value, dtype)


def test_texts_are_what_the_onnx_package_makes_of_them():
    texts = np.array([["a", "é"], ["", "b\0c"]], object)
    tensor = numpy_helper.from_array(texts, "t")
    assert to_array(tensor).tolist() == texts.tolist()
    assert to_array(tensor).dtype == object
    with pytest.raises(ValueError, match="utf-8"):
        to_array(TensorProto(data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"]))
