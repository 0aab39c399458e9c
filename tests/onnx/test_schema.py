"""The table of schemas says what the onnx package says."""

import json

import onnx
import pytest

from anydml.ir.graph import OnnxOp
from anydml.onnx.schema import ML_DOMAIN, form_from, form_of, schema_of
from tools import generate_schemas

NEWEST = {"": onnx.defs.onnx_opset_version(), ML_DOMAIN: onnx.defs.onnx_ml_opset_version()}
OPERATORS = sorted(
    {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history() if s.domain in NEWEST}
)


def test_the_table_is_what_is_generated():
    """`python -m tools.generate_schemas` has nothing to do."""
    table = generate_schemas.TARGET.read_text("utf-8")
    newest = json.loads(table.split()[0])
    if newest != NEWEST:
        pytest.skip(f"it is generated from an onnx package of opsets {newest}, and this one has {NEWEST}")
    assert table == generate_schemas.source()


@pytest.mark.parametrize(("domain", "name"), OPERATORS)
def test_at_every_opset(domain, name):
    for version in range(1, NEWEST[domain] + 1):
        op = OnnxOp(domain, name, version)
        schema = schema_of(op)
        assert form_of(op) == (None if schema is None else form_from(schema))


def test_other_domains_are_asked_of_the_package():
    form = form_of(OnnxOp("ai.onnx.preview.training", "Momentum", 1))
    assert form is not None
    assert "alpha" in form.attributes
    for name in ("Add [[1", "Add\nSub", "ai.onnx.ml:Scaler", ""):
        assert form_of(OnnxOp("", name, 20)) is None
    assert form_of(OnnxOp("", "NoSuchOperator", 20)) is None
    assert form_of(OnnxOp("elsewhere", "Add", 1)) is None
