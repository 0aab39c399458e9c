"""What other runtimes take: by tables, node by node."""

from __future__ import annotations

import json

import onnx
import onnx.inliner
import pytest
from click.testing import CliRunner
from onnx import ModelProto, parser

import anydml
from anydml.cli.main import cli
from anydml.ir.graph import OnnxOp
from anydml.onnx.schema import schema_of
from anydml.onnx.targets.tables import NAMES, registrations, supported
from anydml.ops.catalog import BY_NAME
from anydml.sample import sample_model


def model(text: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')


def one(built: ModelProto, target: str = "directml:6_4", **options: object) -> list[tuple[str, str, str]]:
    report = anydml.check_model(built, target, **options)  # type: ignore[arg-type]
    return [(n.operator, n.where, n.kind) for n in report.nodes]


# ---- the tables --------------------------------------------------------------------------------------


def test_registrations_are_of_revisions_and_types_that_exist() -> None:
    """As far as ONNX knows the operators: some are onnxruntime's own, or long gone."""
    seen = 0
    for name, rows in registrations().items():
        for row in rows:
            schema = None if "." in name else schema_of(OnnxOp("", name, row.since))
            assert all(d in BY_NAME for d in row.directml), name
            if schema is None or schema.since_version != row.since:
                continue
            seen += 1
            assert set(row.types) <= {c.type_param_str for c in schema.type_constraints}, (name, row.since)
            assert all(k <= schema.max_input for k in row.constants), (name, row.since)
    assert seen > 350


@pytest.mark.parametrize("target", [n for n in NAMES if n != "directml"])
def test_other_tables_are_of_operators_that_exist(target: str) -> None:
    table = supported(target)
    assert {"If", "Loop", "Scan", "Conv", "MatMul"} <= set(table)
    assert all(onnx.defs.has(name) for name in table)
    assert all(row.first is None or row.last is None or row.first <= row.last for row in table.values())


# ---- DirectML ----------------------------------------------------------------------------------------


def test_a_node_in_a_compiled_graph_and_what_it_becomes() -> None:
    report = anydml.check_model(model("(float[2] x, bool[2] c) => (float[2] y) { y = Where (c, x, x) }"))
    (node,) = report.nodes
    assert (node.where, node.becomes, node.since) == ("graph", ("ELEMENT_WISE_IF",), 16)
    assert report.ok
    assert report.verdict.splitlines() == [
        "control flow: none",
        "1 of 1 node (without Constants) on DirectML 5_0, 1 in a compiled graph",
    ]


@pytest.mark.parametrize(
    ("text", "opset", "expected"),
    [
        ("(float[2] x) => (y) { y = Det (x) }", 17, ("cpu", "operator")),
        ("(float[1, 1, 5] x, float[1, 1, 3] w) => (y) { y = Conv (x, w) }", 22, ("cpu", "revision")),
        ("(float[1, 1, 5] x, float[1, 1, 3] w) => (y) { y = Conv (x, w) }", 21, ("graph", "")),
        ("(double[2] x) => (y) { y = Relu (x) }", 17, ("cpu", "type")),
        ("(int32[2, 2] x) => (y) { y = MatMul (x, x) }", 17, ("cpu", "type")),
        ("(float[n] x) => (y) { y = Relu (x) }", 17, ("device", "sizes")),
        ("(float[2] x, int64[1] s) => (y) { y = Reshape (x, s) }", 17, ("device", "constants")),
        ("(float[2] x) => (y) <int64[1] s = {2}> { y = Reshape (x, s) }", 17, ("graph", "")),
    ],
)
def test_why_a_node_does_not_run_there(text: str, opset: int, expected: tuple[str, str]) -> None:
    (found,) = one(model(text, opset))
    assert found[1:] == expected


def test_a_level_decides() -> None:
    built = model("(int64[2] x) => (y) { y = Div (x, x) }")
    assert one(built, "directml:6_0")[0][1:] == ("graph", "")
    (node,) = anydml.check_model(built, "directml:5_0").nodes
    assert (node.where, node.kind) == ("refused", "level")
    assert node.because == "ELEMENT_WISE_DIVIDE takes int64 from feature level 6_0 on"
    softmax = model("(float[2] x) => (y) { y = Softmax (x) }")
    assert one(softmax, "directml:5_0")[0][2] == "level"
    assert one(softmax, "directml:5_1")[0][1] == "graph"


IF = """(bool c, float[2] x) => (float[2] y) {
    z = Neg (x)
    y = If (c) <then_branch = t () => (float[2] a) { a = Relu (z) }, else_branch = e () => (float[2] b) { b = Exp (z) }> }"""


def test_control_flow_keeps_what_is_beside_it_from_being_compiled() -> None:
    assert one(model(IF)) == [
        ("Neg", "device", "control flow"),
        ("If", "cpu", "control flow"),
        ("Relu", "graph", ""),
        ("Exp", "graph", ""),
    ]
    report = anydml.check_model(model(IF))
    assert report.remedy == "anydml flatten MODEL FLAT"
    assert "control flow: 1" in report.verdict
    assert one(model(IF), fixed={"c": True}) == [("Neg", "graph", ""), ("Relu", "graph", "")]
    flat, _ = anydml.flatten(model(IF))
    assert anydml.check_model(flat).ok


def test_a_remedy_is_one_that_helps() -> None:
    conv = model("(float[1, 1, 5] x, float[1, 1, 3] w) => (y) { z = Conv (x, w)  y = Relu (z) }", 22)
    report = anydml.check_model(conv)
    assert report.remedy == "anydml flatten MODEL FLAT --opset 21"
    lower, _ = anydml.flatten(conv, opset=21)
    assert anydml.check_model(lower).ok
    open_sizes = model("(float[n] x) => (y) { y = Relu (x) }")
    assert "--shape" in anydml.check_model(open_sizes).remedy
    assert anydml.check_model(open_sizes, shapes={"x": (3,)}).ok


# ---- others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "where"),
    [("tensorrt", "device"), ("openvino", "device"), ("qnn", "device"), ("coreml", "cpu"), ("webnn", "cpu")],
)
def test_an_if_elsewhere(target: str, where: str) -> None:
    report = anydml.check_model(model(IF), target)
    (node,) = [n for n in report.nodes if n.operator == "If"]
    assert node.where == where
    assert node.because
    assert "control flow: 1" in report.verdict


def test_what_another_runtime_refuses() -> None:
    report = anydml.check_model(model("(float[2, 2] x) => (y) { y = Det (x) }"), "tensorrt")
    assert (report.count("refused"), report.ok) == (1, False)
    assert "refused" in report.verdict


RANKS = """(bool c, float[2, 1] x) => (y) {
    y = If (c) <then_branch = t () => (a) { a = Squeeze (x) }, else_branch = e () => (b) { b = Neg (x) }> }"""


@pytest.mark.parametrize(
    ("text", "target", "where"),
    [  # nothing but the condition's content helps where ranks differ
        (RANKS, "openvino", "refused"),
        (RANKS, "tensorrt", "refused"),
        (RANKS, "qnn", "cpu"),
        (RANKS.replace("Squeeze (x)", "Concat <axis = 0> (x, x)"), "openvino", "device"),
        (RANKS.replace("Squeeze (x)", "Concat <axis = 0> (x, x)"), "qnn", "cpu"),
        (RANKS.replace("Squeeze (x)", "Abs (x)"), "qnn", "device"),
        (RANKS.replace("float[2, 1] x", "float[n, 1] x").replace("Squeeze", "Abs"), "qnn", "unknown"),
        (
            RANKS.replace("Squeeze (x)", "Reshape (x, s)").replace("x)", "x, int64[k] s)", 1),
            "openvino",
            "unknown",
        ),
    ],
)
def test_what_the_branches_of_an_if_give(text: str, target: str, where: str) -> None:
    report = anydml.check_model(model(text), target)
    (node,) = [n for n in report.nodes if n.operator == "If"]
    assert node.where == where
    assert ("the branches give" in node.because) == (where != "device")
    assert report.ok == (where == "device") == (report.remedy == "")
    if text == RANKS:
        assert report.remedy == "anydml flatten MODEL FLAT --set c=true"


def test_an_if_that_is_decided_by_known_sizes_is_folded_before() -> None:
    """As in the sample, whose squeezes are sure: OpenVINO takes it."""
    assert anydml.check_model(sample_model(), "openvino").ok
    squeeze = """(float[SIZES] x) => (y) <int64 k = {1}, int64 one = {1}> {
        s = Shape (x)  n = Gather (s, k)  q = Equal (n, one)
        y = If (q) <then_branch = t () => (a) { a = Squeeze (x) }, else_branch = e () => (b) { b = Neg (x) }> }"""
    known, free = (
        anydml.check_model(model(squeeze.replace("SIZES", n)), "openvino") for n in ("2, 1", "2, m")
    )
    assert (known.ok, free.ok) == (True, False)


def test_an_optional_from_branches() -> None:
    built = model("""(bool c, optional(float[2]) x, optional(float[2]) z) => (optional(float[2]) y) {
        y = If (c) <then_branch = t () => (optional(float[2]) a) { a = Identity (x) },
                    else_branch = e () => (optional(float[2]) b) { b = Identity (z) }> }""")
    (node,) = [n for n in anydml.check_model(built, "openvino").nodes if n.operator == "If"]
    assert (node.where, node.because.endswith("expected tensors")) == ("refused", True)


# ---- what to do next ---------------------------------------------------------------------------------

LOOP = """(int64 n, float[2] x) => (float[2] y) <bool go = {1}> {
    y = Loop (n, go, x) <body = b (int64 k, bool c, float[2] s) => (bool d, float[2] t) { d = Identity (c)  t = Neg (s) }> }"""
"""As often as it is told in the run."""


def test_flatten_is_proposed_where_it_helps() -> None:
    report = anydml.check_model(model(LOOP))
    assert report.remedy == ""
    assert report.verdict.startswith("control flow: 1 (Loop), which `anydml flatten` does not remove")
    known = anydml.check_model(model(LOOP), fixed={"n": 3})
    assert known.remedy == "anydml flatten MODEL FLAT"
    assert "does not remove" not in known.verdict


def test_unrolling_is_proposed_for_loops_of_known_counts() -> None:
    long = model(LOOP.replace("int64 n, ", "").replace("bool go = {1}", "bool go = {1}, int64 n = {40}"))
    _, report = anydml.flatten(long)
    assert report.verdict.splitlines()[-1] == "1 loop remains; try --unroll 40"
    assert anydml.check_model(long).remedy == "anydml flatten MODEL FLAT --unroll 40"
    flat, report = anydml.flatten(long, unroll=40)
    assert anydml.check_model(flat).control_flow == report.loops_left == report.unroll == 0
    _, report = anydml.flatten(model(LOOP))
    assert report.verdict.splitlines()[-1] == "1 loop remains, of no known count"


COSTLY = """(int64 rate, float[n] x) => (y) <int64 wide = {16000}> {
    c = Equal (rate, wide)
    y = If (c) <then_branch = t () => (a) { u, v, w, z = Unique (x)  a = Neg (u) }, else_branch = e () => (b) { b = Exp (x) }> }"""


def test_what_is_proposed_was_not_done() -> None:
    """Where flatten left an If, it is proposed with what helps, if anything does."""
    flat, report = anydml.flatten(model(COSTLY))
    assert report.left == 1
    found = anydml.check_model(flat)
    assert found.remedy == "anydml flatten MODEL FLAT --set rate=16000"
    flat, report = anydml.flatten(model(COSTLY), fixed={"rate": 16000})
    assert anydml.check_model(flat).flattening is None


def test_sizes_are_proposed_for_inputs_that_have_free_ones() -> None:
    open_sizes = model("(float[n, 3] x, float[3] z) => (y) { y = Add (x, z) }")
    assert "anydml check MODEL --shape x=n,3 (" in anydml.check_model(open_sizes).remedy
    computed = model("(float[2] x) => (y) { y = NonZero (x) }")
    assert anydml.check_model(computed).remedy == ""


# ---- what cannot be asked ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("tensort", "did you mean 'tensorrt'"),
        ("directml:9_9", "expected 5_0 | 5_1"),
        ("directml:4_0", "asks for 5_0 at least"),
        ("openvino:5_0", "only DirectML has feature levels"),
    ],
)
def test_targets_that_are_none(target: str, told: str) -> None:
    with pytest.raises(anydml.InvalidInput, match=r".") as caught:
        anydml.check_model(model(IF), target)
    assert told in str(caught.value)


# ---- the command line --------------------------------------------------------------------------------


def invoke(*arguments: object) -> object:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_check_as_a_command(tmp_path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(IF), path)
    result = CliRunner().invoke(cli, ["check", str(path), "--directml", "5_1", "--all"])
    assert result.exit_code == 0, result.output
    for told in ("the processor runs it", "1 If", "ACTIVATION_RELU", "next: anydml flatten", "source:"):
        assert told in result.output
    report = json.loads(CliRunner().invoke(cli, ["check", str(path), "--json"]).output)
    assert [n["operator"] for n in report["nodes"]] == ["Neg", "If", "Relu", "Exp"]
    assert CliRunner().invoke(cli, ["check", str(path), "--require"]).exit_code == 2
    fine = ["check", str(path), "--require", "--set", "c=true"]
    assert CliRunner().invoke(cli, fine).exit_code == 0
    (tmp_path / "sub").mkdir()
    onnx.save(model(IF), tmp_path / "sub" / "model.onnx")
    several = [str(path), str(tmp_path / "sub" / "model.onnx")]
    found = json.loads(CliRunner().invoke(cli, ["check", *several, "--json"]).output)
    assert {name: len(report["nodes"]) for name, report in found.items()} == dict.fromkeys(several, 4)
    told_of_both = CliRunner().invoke(cli, ["check", *several, "--require"])
    assert (told_of_both.exit_code, told_of_both.output.count("control flow: 1 (If)")) == (2, 2)
    assert f"next: anydml flatten {several[1]} flat.onnx" in told_of_both.output
    shaped = CliRunner().invoke(cli, ["check", str(path), "--shape", "x=2"])
    assert "on DirectML 5_0" in shaped.output
    assert f"next: anydml flatten {path} flat.onnx --shape x=2\n" in shaped.output
    both = CliRunner().invoke(cli, ["check", str(path), "--directml", "5_0", "--target", "webnn"])
    assert both.exit_code == 2


def test_functions_of_a_models_own_elsewhere() -> None:
    """OpenVINO has no rule for what calls them; others put them in its place."""
    built = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[n] x) => (float[n] y) { y = my.act (x) }
        <opset_import: ["": 17], domain: "my"> act (a) => (b) { b = Relu (a) }"""
    )
    report = anydml.check_model(built, "openvino")
    assert not report.ok
    (node,) = [n for n in report.nodes if n.where == "refused"]
    assert (node.operator, "onnx.inliner" in node.because) == ("my.act", True)
    assert anydml.check_model(built, "tensorrt").ok
    assert anydml.check_model(onnx.inliner.inline_local_functions(built), "openvino").ok
