"""Which operators have rules; and which module knows each: the catalog and these modules say the same."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from anydml.ir.graph import OnnxOp
from anydml.onnx import ops
from anydml.onnx.ops import catalog
from anydml.onnx.ops.fold import has_rule
from anydml.onnx.schema import ML_DOMAIN

FOLDER = Path(ops.__file__).parent
LISTED = catalog._MODULES | catalog._MODULES_OF_MACHINE_LEARNING | catalog._MODULES_OF_MICROSOFT

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
    named = " ".join(catalog._MODULES.values()).split()
    assert len(named) == len(catalog.OPS)
    assert set(named) <= known | {"BitCast", "CumProd", "Swish", "TensorScatter"}  # unknown to older onnx


def test_all_modules_of_operators_are_listed():
    with_operators = {p.stem for p in FOLDER.glob("*.py") if "\nOPS = (" in p.read_text("utf-8")}
    assert with_operators == set(LISTED)


@pytest.mark.parametrize("module", LISTED)
def test_a_module_knows_what_the_catalog_says(module):
    known = __import__(f"anydml.onnx.ops.{module}", fromlist=["OPS"]).OPS
    assert [info.name for info in known] == LISTED[module].split()


def test_operators_are_found_by_domain():
    assert catalog.info_of(OnnxOp("", "Relu", 14)).name == "Relu"
    assert catalog.info_of(OnnxOp(ML_DOMAIN, "Scaler", 1)).name == "Scaler"
    for op in (OnnxOp("", "Scaler", 1), OnnxOp(ML_DOMAIN, "Relu", 1), OnnxOp("com.microsoft", "Relu", 1)):
        assert catalog.info_of(op) is None
    assert catalog.known_of(OnnxOp("com.microsoft", "FusedConv", 1)).name == "FusedConv"
    assert catalog.known_of(OnnxOp("", "FusedConv", 1)) is None
    assert len(catalog.OPS) == len({*catalog.OPS})


def test_what_a_model_does_not_need_is_not_read():
    """A session without element-wise groups reads neither what makes kernels nor operators that it has not."""
    code = """
import sys
import numpy as np
import onnx.parser
import anydml

text = '<ir_version: 8, opset_import: ["": 17]> main (float[n,4] x) => (float[n,4] y) { y = Softmax(x) }'
session = anydml.load(onnx.parser.parse_model(text))
session.run(None, {"x": np.ones((2, 4), np.float32)})
names = "codegen.kernel", "codegen.program.values", "runtime.prepared", "onnx.ops.recurrent", "onnx.ops.softmax"
print(*[f"anydml.{name}" in sys.modules for name in names])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False"] * 4 + ["True"]
