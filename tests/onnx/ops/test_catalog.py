"""The catalog of ONNX's operators says which module knows each, and those modules say the same."""

import subprocess
import sys
from pathlib import Path

import pytest

from anydml.ir.graph import OnnxOp
from anydml.onnx import ops
from anydml.onnx.ops import catalog
from anydml.onnx.schema import ML_DOMAIN

FOLDER = Path(ops.__file__).parent
LISTED = catalog._MODULES | catalog._MODULES_OF_MACHINE_LEARNING


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
