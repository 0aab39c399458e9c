"""All operators that something is known of: which module knows it, read when it is first asked for.

A model has few of the operators that there are. Who adds one writes its name here, behind its module's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anydml.codegen.reading import read_module
from anydml.ir.graph import OnnxOp
from anydml.onnx.ops.opinfo import OpInfo
from anydml.onnx.schema import ML_DOMAIN

_MODULES = {
    "activation": """
        Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Gelu HardSigmoid HardSwish IsInf
        IsNaN LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid Sin Sinh Softplus Softsign Swish Tan
        Tanh ThresholdedRelu
    """,
    "arithmetic": """
        Abs Add BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Div Exp Floor Log Mod Mul
        Neg Pow Reciprocal Round Sign Sqrt Sub
    """,
    "attention": "Attention RotaryEmbedding",
    "cast": "BitCast Cast CastLike",
    "control_flow": "Loop Scan SequenceMap",
    "convolution": "Conv ConvTranspose DeformConv",
    "cumulative": "CumProd CumSum",
    "detection": "NonMaxSuppression RoiAlign GridSample",
    "generator": """
        Constant ConstantOfShape EyeLike Range RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike Multinomial Bernoulli
    """,
    "indexing": "Compress Gather GatherElements GatherND NonZero OneHot TopK Unique",
    "layout": "DepthToSpace SpaceToDepth Tile Transpose Trilu",
    "linalg": "MatMul Gemm MatMulInteger Einsum Det",
    "logical": "And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Where Xor",
    "normalization": """
        BatchNormalization InstanceNormalization GroupNormalization LayerNormalization
        RMSNormalization LpNormalization MeanVarianceNormalization LRN Dropout
    """,
    "padding": "Pad",
    "pooling": "MaxPool AveragePool LpPool GlobalMaxPool GlobalAveragePool GlobalLpPool MaxUnpool",
    "quantization": """
        QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearMatMul ConvInteger QLinearConv
    """,
    "recurrent": "LSTM GRU RNN",
    "reduction": """
        ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSum
        ReduceLogSumExp ReduceSumSquare ArgMax ArgMin
    """,
    "resize": "Resize Upsample",
    "scattering": "Scatter ScatterElements ScatterND TensorScatter",
    "sequence": """
        ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt
        SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence
    """,
    "several": "Clip Max Mean Min Sum",
    "shape": "Expand Flatten Identity Reshape Shape Size Squeeze Unsqueeze",
    "signal": "DFT STFT",
    "slicing": "Concat ReverseSequence Slice Split",
    "softmax": "Softmax LogSoftmax Hardmax SoftmaxCrossEntropyLoss",
    "text": "StringConcat StringNormalizer StringSplit",
}
_MODULES_OF_MACHINE_LEARNING = {
    "machine_learning": """
        ArrayFeatureExtractor Binarizer CategoryMapper FeatureVectorizer Imputer LabelEncoder
        LinearClassifier LinearRegressor Normalizer OneHotEncoder Scaler SVMClassifier SVMRegressor
        TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor ZipMap
    """,
}
_MODULES_OF_MICROSOFT = {
    "foreign": """
        BiasGelu DynamicQuantizeLSTM DynamicQuantizeMatMul FastGelu FusedConv FusedGemm FusedMatMul Gelu
        MatMulIntegerToFloat QAttention QGemm QuickGelu
    """,
}


class _Operators(Mapping[str, OpInfo]):
    """What is known of operators, by their names, as the modules have it that were needed."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._module_of = {name: module for module, names in modules.items() for name in names.split()}
        self._known: dict[str, OpInfo] = {}

    def find(self, name: str) -> OpInfo | None:
        """As `get`, without the detour by an exception: most nodes are asked for several times."""
        found = self._known.get(name)
        return self[name] if found is None and name in self._module_of else found

    def __getitem__(self, name: str) -> OpInfo:
        if name not in self._known:
            home = read_module(f"anydml.onnx.ops.{self._module_of[name]}")
            self._known |= {info.name: info for info in home.OPS}
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._module_of)

    def __len__(self) -> int:
        return len(self._module_of)


OPS = _Operators(_MODULES)
_OF_MACHINE_LEARNING = _Operators(_MODULES_OF_MACHINE_LEARNING)
_OF_MICROSOFT = _Operators(_MODULES_OF_MICROSOFT)


def info_of(op: OnnxOp) -> OpInfo | None:
    """What is known of an operator; None for those of other domains than ONNX's own two."""
    if op.domain:
        return _OF_MACHINE_LEARNING.find(op.name) if op.domain == ML_DOMAIN else None
    return OPS.find(op.name)


def known_of(op: OnnxOp) -> OpInfo | None:
    """As `info_of`; of onnxruntime's own operators, too, what it does wrong with them, and when they cannot
    fail."""
    return _OF_MICROSOFT.find(op.name) if op.domain == "com.microsoft" else info_of(op)
