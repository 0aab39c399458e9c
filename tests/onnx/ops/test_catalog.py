"""Which operators have rules."""

import onnx
import pytest

from anydml.ir.graph import OnnxOp
from anydml.onnx.ops.catalog import _FAMILIES, OPS
from anydml.onnx.ops.fold import has_rule

WITH_RULES = """
Abs Acos Acosh Add And Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
Cast CastLike Ceil Celu Clip Compress Concat ConcatFromSequence Constant ConstantOfShape Cos Cosh CumProd CumSum
DepthToSpace Div Elu Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu Greater
GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod
Mul Neg NonZero Not OneHot Optional OptionalGetElement OptionalHasElement Or PRelu Pad Pow Range Reciprocal Relu
Reshape ReverseSequence Round Scatter ScatterElements ScatterND Selu SequenceAt SequenceConstruct SequenceEmpty
SequenceErase SequenceInsert SequenceLength Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softplus Softsign
SpaceToDepth Split SplitToSequence Sqrt Squeeze StringConcat StringNormalizer StringSplit Sub Sum Swish Tan Tanh
TensorScatter ThresholdedRelu Tile TopK Transpose Trilu Unique Unsqueeze Where Xor
""".split()


@pytest.mark.parametrize("name", WITH_RULES)
def test_the_operator_has_a_rule(name):
    assert has_rule(OnnxOp("", name, 26))
    assert not has_rule(OnnxOp("com.microsoft", name, 1))


def test_every_name_is_an_operator_of_one_family():
    known = {s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain}
    named = [info.name for family in _FAMILIES for info in family]
    assert len(named) == len(OPS)
    assert set(named) <= known | {"BitCast", "CumProd", "Swish", "TensorScatter"}  # unknown to older onnx
