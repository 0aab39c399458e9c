"""What a prompt and a notebook show of the objects that people hold: short, and nothing that is not escaped."""

import re
from html.parser import HTMLParser

import numpy as np
import onnx
import pytest

import anydml as dml
from anydml.errors import counted
from anydml.sample import sample_model

EVIL = '<script>alert("x")</script>'


def objects():
    model = sample_model()
    flat, report = dml.flatten(model, fixed={"sr": 16000})
    session = dml.load(model)
    session.run(None, {"sound": np.ones((1, 160), np.float32), "sr": np.array(16000)})
    g = dml.GraphBuilder(dml.Device("5_0"))
    x = g.input("x", "FLOAT32", [2, 3])
    yield report, "<Report: 6 -> 0 Ifs, 36 -> 8 nodes>", "what became of it"
    yield (
        dml.inspect(model),
        "<Inspection: 36 nodes, 6 Ifs, (sound float32[n,samples], sr int64[]) -> ",
        "opset",
    )
    yield dml.check_model(flat), "<CheckReport: directml takes 8 of 8 nodes>", "its sizes are not all known"
    yield dml.compare(model, model), "<Comparison: the same; 36 and 36 nodes>", "Conv"
    yield (
        session,
        "<Session (sound float32[n,samples], sr int64[]) -> (level float32[n,stretches])>",
        "folded: node",
    )
    yield g.compile({"y": x + 1}), "<CompiledGraph (x float32[2,3]) -> (y float32[2,3])>", "1 kernel"
    yield g, "<GraphBuilder: 1 node on <x: float32 [2, 3]>>", None
    yield dml.Device("5_0"), "Device(feature_level='5_0')", None


@pytest.mark.parametrize(("thing", "shown", "told"), list(objects()), ids=lambda x: type(x).__name__)
def test_what_is_shown(thing, shown, told):
    assert repr(thing).startswith(shown)
    assert len(repr(thing)) < 200
    if told is not None:
        page = thing._repr_html_()
        assert told in page
        assert re.match(r"<div><b>.*</div>$", page, re.DOTALL)


def test_code_is_not_shown():
    compiled = dml.compile_model(sample_model(), shapes={"sound": (1, 160)}, fixed={"sr": 16000})
    assert "object_file" not in repr(compiled)


def test_a_report_prints_its_verdict():
    _, report = dml.flatten(sample_model(), fixed={"sr": 16000})
    assert str(report) == report.verdict == "no If remains of 6"
    assert str(dml.check_model(sample_model())).startswith("control flow: 6 (If)")


def test_one_is_no_plural():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (bool c, float[2] x) => (float[2] y) {'
        "y = If (c) <then_branch = t () => (float[2] x) {}, else_branch = e () => (float[2] x) {}> }"
    )
    one = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[2] x) => (float[2] y) { y = Relu (x) }'
    )
    told = "".join(repr(dml.inspect(m)) + dml.inspect(m)._repr_html_() for m in (model, one))
    told += f"{dml.flatten(one)[1]!r}{dml.check_model(one)!r}{dml.compare(one, one)!r}"
    assert "1 node" in told
    assert "1 If" in told
    assert not re.search(r"\b1 [A-Za-z]+s\b", told)
    assert counted(2000, "node") == "2,000 nodes"


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)


def test_names_cannot_be_markup():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (bool c, float[2] x) => (float[2] y) {'
        "y = If (c) <then_branch = t () => (float[2] a) { a = Neg (x) }, else_branch = e () => (float[2] b) { b = Abs (x) }> }"
    )
    model.graph.node[0].name = model.graph.input[1].name = EVIL
    for branch in model.graph.node[0].attribute:
        branch.g.node[0].input[0] = EVIL
    session = dml.load(model)
    session.run(None, {"c": np.array(True), EVIL: np.ones(2, np.float32)})
    for thing in (dml.flatten(model)[1], dml.inspect(model), dml.check_model(model), session):
        found = Tags()
        found.feed(thing._repr_html_())
        assert found.seen <= {"div", "b", "table", "thead", "tbody", "tr", "th", "td", "pre"}
