"""Whether onnxruntime multiplies UINT8 by INT8 exactly on this processor."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession  # whatever takes its place

from anydml.errors import by_a_handler
from anydml.onnx.protos import TensorProto, make_node, make_tensor_value_info, model_of_one

PRECISION = "session.x64quantprecision"
"""The option by which onnxruntime does without such products, where weights are constants."""

FLOAT_FACTORS = "session.qdq_matmulnbits_accuracy_level", "1"
"""Has products with weights of few bits take their other factor as it is, and not rounded to 8 bits."""


def allows_cut_off_sums(options: ort.SessionOptions) -> bool:
    """Whether a user's options say that sums may be cut off: by the option's default, told."""
    try:
        return bool(options.get_session_config_entry(PRECISION) == "0")
    except RuntimeError:  # they say nothing
        return False


@cache
def cuts_sums_off() -> bool:
    """Whether sums of two products are cut off at 16 bits: on x86 processors without VNNI."""
    sizes = {"x": (4, 8), "w": (8, 16), "y": (4, 16)}
    codes = {"x": TensorProto.UINT8, "w": TensorProto.INT8, "y": TensorProto.INT32}
    x, w, y = (make_tensor_value_info(n, codes[n], sizes[n]) for n in sizes)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        model = model_of_one(make_node("MatMulInteger", ["x", "w"], ["y"]), [x, w], y, 13)
        session = InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feeds = {"x": np.full(sizes["x"], 255, np.uint8), "w": np.full(sizes["w"], 127, np.int8)}
        (found,) = session.run(None, feeds)
    except Exception as error:  # one that has no such operator has no wrong one
        if by_a_handler(error):
            raise
        return False
    return bool((found != 8 * 255 * 127).any())
