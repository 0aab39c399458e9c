"""Which operators of sums, norms, products, quantization, windows and resizing have a rule."""

import pytest

from anydml.ir.graph import OnnxOp
from anydml.onnx.ops.fold import has_rule

RULES = """
ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceSumSquare ArgMax ArgMin
Softmax LogSoftmax Hardmax
BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization
LpNormalization MeanVarianceNormalization LRN Dropout
MatMul Gemm MatMulInteger Einsum Det
QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearMatMul ConvInteger QLinearConv
Conv ConvTranspose MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool
Resize Upsample
""".split()


@pytest.mark.parametrize("name", RULES)
def test_there_is_a_rule(name):
    assert has_rule(OnnxOp("", name, 13))
    assert not has_rule(OnnxOp("elsewhere", name, 13))
