"""The table of schemas says what the onnx package says."""

import onnx
import pytest

from anydml.ir.graph import OnnxOp
from anydml.onnx.schema import form_from, form_of, schema_of
from tools import generate_schemas

NAMES = sorted({s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain})


def test_the_table_is_what_is_generated():
    """`python -m tools.generate_schemas` has nothing to do."""
    table = generate_schemas.TARGET.read_text("utf-8")
    newest = int(table.split()[0])
    if newest != (installed := onnx.defs.onnx_opset_version()):
        pytest.skip(f"it is generated from an onnx package of opset {newest}, and this one has {installed}")
    assert table == generate_schemas.source()


@pytest.mark.parametrize("name", NAMES)
def test_at_every_opset(name):
    for version in range(1, onnx.defs.onnx_opset_version() + 1):
        op = OnnxOp("", name, version)
        schema = schema_of(op)
        assert form_of(op) == (None if schema is None else form_from(schema))


def test_other_domains_are_asked_of_the_package():
    form = form_of(OnnxOp("ai.onnx.ml", "Binarizer", 1))
    assert form is not None
    assert form.defaults == {"threshold": 0.0}
    assert form_of(OnnxOp("", "NoSuchOperator", 20)) is None
    assert form_of(OnnxOp("elsewhere", "Add", 1)) is None
