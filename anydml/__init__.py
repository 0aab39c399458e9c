"""anydml: DirectML's operators and ONNX models with control flow, on any machine that runs Python.

    import anydml as dml

    dml.if_(condition, a, b)                          an operator on arrays
    dml.Device(feature_level="5_0").create_operator   an operator by description, as DirectML validates it
    dml.load("model.onnx").run(None, {...})           an ONNX model, control flow included

Names are loaded when first used: importing the package imports neither onnx nor onnxruntime.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anydml.names import FUNCTIONS

if TYPE_CHECKING:
    from anydml.builder import GraphBuilder
    from anydml.check_report import CheckReport
    from anydml.checking import check_model
    from anydml.comparison import Comparison, compare
    from anydml.compilation import CompiledModel, compile_model
    from anydml.compiled_graph import CompiledGraph
    from anydml.device import (
        Binding,
        CompiledOperator,
        Device,
        DeviceOperator,
        OperatorInitializer,
        validate,
    )
    from anydml.directml.descriptions import OperatorDesc
    from anydml.directml.graph_desc import ConstantNode, GraphDesc, OperatorNode
    from anydml.directml.serialized import read_serialized_graph
    from anydml.errors import (
        AnyDMLError,
        ExecutionFailed,
        InvalidInput,
        InvalidModel,
        InvalidOperator,
        OutOfMemory,
        Problem,
        UnknownFieldWarning,
        Unsupported,
        VerificationFailed,
    )
    from anydml.expression import Expression
    from anydml.flatten_report import Report
    from anydml.flattening import flatten
    from anydml.functions import *  # noqa: F403
    from anydml.inspection import Inspection, inspect
    from anydml.onnx.inference_session import IOBinding
    from anydml.ops.attributes import ScaleBias
    from anydml.ops.enums import (
        AxisDirection,
        ConvolutionDirection,
        ConvolutionMode,
        DepthSpaceOrder,
        ExecutionFlags,
        Feature,
        FeatureLevel,
        InterpolationMode,
        IsInfinityMode,
        MatrixTransform,
        MultiheadAttentionMaskType,
        OperatorType,
        PaddingMode,
        QuantizationType,
        RandomGeneratorType,
        RecurrentNetworkDirection,
        ReduceFunction,
        RoundingMode,
        TensorDataType,
        TensorFlags,
    )
    from anydml.ops.tensor_desc import TensorDesc
    from anydml.session import InferenceSession, Session, load

__version__ = "0.1.0"

_HOME = {
    "anydml.builder": ("GraphBuilder",),
    "anydml.compiled_graph": ("CompiledGraph",),
    "anydml.compilation": ("CompiledModel", "compile_model"),
    "anydml.expression": ("Expression",),
    "anydml.device": (
        "Binding",
        "CompiledOperator",
        "Device",
        "DeviceOperator",
        "OperatorInitializer",
        "validate",
    ),
    "anydml.comparison": ("Comparison", "compare"),
    "anydml.check_report": ("CheckReport",),
    "anydml.checking": ("check_model",),
    "anydml.flatten_report": ("Report",),
    "anydml.flattening": ("flatten",),
    "anydml.functions": FUNCTIONS,
    "anydml.inspection": ("Inspection", "inspect"),
    "anydml.directml.descriptions": ("OperatorDesc",),
    "anydml.directml.graph_desc": ("ConstantNode", "GraphDesc", "OperatorNode"),
    "anydml.directml.serialized": ("read_serialized_graph",),
    "anydml.errors": (
        "AnyDMLError",
        "ExecutionFailed",
        "InvalidInput",
        "InvalidModel",
        "InvalidOperator",
        "OutOfMemory",
        "Problem",
        "UnknownFieldWarning",
        "Unsupported",
        "VerificationFailed",
    ),
    "anydml.onnx.inference_session": ("IOBinding",),
    "anydml.session": ("InferenceSession", "Session", "load"),
    "anydml.ops.attributes": ("ScaleBias",),
    "anydml.ops.enums": (
        "AxisDirection",
        "ConvolutionDirection",
        "ConvolutionMode",
        "DepthSpaceOrder",
        "ExecutionFlags",
        "Feature",
        "FeatureLevel",
        "InterpolationMode",
        "IsInfinityMode",
        "MatrixTransform",
        "MultiheadAttentionMaskType",
        "OperatorType",
        "PaddingMode",
        "QuantizationType",
        "RandomGeneratorType",
        "RecurrentNetworkDirection",
        "ReduceFunction",
        "RoundingMode",
        "TensorDataType",
        "TensorFlags",
    ),
    "anydml.ops.tensor_desc": ("TensorDesc",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "AnyDMLError",
    "AxisDirection",
    "Binding",
    "CheckReport",
    "Comparison",
    "CompiledGraph",
    "CompiledModel",
    "CompiledOperator",
    "ConstantNode",
    "ConvolutionDirection",
    "ConvolutionMode",
    "DepthSpaceOrder",
    "Device",
    "DeviceOperator",
    "ExecutionFailed",
    "ExecutionFlags",
    "Expression",
    "Feature",
    "FeatureLevel",
    "GraphBuilder",
    "GraphDesc",
    "IOBinding",
    "InferenceSession",
    "Inspection",
    "InterpolationMode",
    "InvalidInput",
    "InvalidModel",
    "InvalidOperator",
    "IsInfinityMode",
    "MatrixTransform",
    "MultiheadAttentionMaskType",
    "OperatorDesc",
    "OperatorInitializer",
    "OperatorNode",
    "OperatorType",
    "OutOfMemory",
    "PaddingMode",
    "Problem",
    "QuantizationType",
    "RandomGeneratorType",
    "RecurrentNetworkDirection",
    "ReduceFunction",
    "Report",
    "RoundingMode",
    "ScaleBias",
    "Session",
    "TensorDataType",
    "TensorDesc",
    "TensorFlags",
    "UnknownFieldWarning",
    "Unsupported",
    "VerificationFailed",
    "__version__",
    "check_model",
    "compare",
    "compile_model",
    "flatten",
    "inspect",
    "load",
    "read_serialized_graph",
    "validate",
    *FUNCTIONS,
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        typed = name.lower().removeprefix("element_wise_")
        guess = "" if name.startswith("_") else import_module("anydml.errors").nearest(typed, __all__)
        raise AttributeError(f"module 'anydml' has no attribute {name!r}" + (f"; {guess}" if guess else ""))
    collector = import_module("anydml.runtime.collector")
    new = module not in sys.modules
    with collector.collector_paused():  # which an import would wake in vain
        value = getattr(import_module(module), name)
        if new:
            collector.keep_for_good()
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
