"""Two models side by side; and models at an older opset."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import ModelProto, parser

import anydml
from anydml.cli.main import cli
from anydml.sample import sample_model


def model(text: str, opset: int = 17) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}')


IF = """(bool c, float[n] x) => (float[n] y) {
    y = If (c) <then_branch = t () => (float[n] a) { a = Relu (x) }, else_branch = e () => (float[n] b) { b = Exp (x) }> }"""


def test_a_model_whose_nodes_stand_in_no_order() -> None:
    ordered = model("(float[n] x) => (float[n] y) { a = Relu (x)  y = Exp (a) }")
    turned = ModelProto.FromString(ordered.SerializeToString())
    del turned.graph.node[:]
    turned.graph.node.extend(reversed(ordered.graph.node))
    for first, second in ((ordered, turned), (turned, ordered), (turned, turned)):
        assert anydml.compare(first, second).same is True


def test_models_that_do_the_same() -> None:
    flat, _ = anydml.flatten(model(IF))
    found = anydml.compare(model(IF), flat)
    assert found.same is True
    assert found.verified is not None
    assert found.verified.agreed == 24
    assert (found.first.ifs, found.second.ifs) == (1, 0)
    assert found.second.operators["Where"] == 1
    assert found.first.inputs == {"c": "bool[]", "x": "float32[n]"}


def test_models_that_do_not() -> None:
    one, other = (model(f"(float[n] x) => (float[n] y) {{ y = {op} (x) }}") for op in ("Relu", "Abs"))
    found = anydml.compare(one, other)
    assert found.same is False
    assert "seed 0" in found.difference
    assert anydml.compare(one, other, run=False).same is None


def scaled(factor: str) -> ModelProto:
    return model(
        f"(float[n,4] x) => (float[n,4] y) {{ c = Constant <value_float = {factor}> ()  s = Softmax (x) y = Mul (s, c) }}"
    )


@pytest.mark.parametrize(
    ("first", "second", "tolerance", "same"),
    [
        ("1e-6", "-1e-6", {}, True),  # the largest counts as 1
        ("1e-6", "-1e-6", {"rtol": 1e-3}, False),
        ("1e-6", "-1e-6", {"atol": 1e-5}, True),
        ("1.0", "1.01", {}, False),
        ("1.0", "1.01", {"rtol": 0.02}, True),
        ("1.0", "1.01", {"rtol": 0.001, "atol": 0.02}, True),
        ("1.0", "1.0000005", {"rtol": 0, "atol": 0}, False),
        ("1.0", "1.0", {"rtol": 0, "atol": 0}, True),
    ],
)
def test_how_far_floats_may_be_apart(
    first: str, second: str, tolerance: dict[str, float], same: bool
) -> None:
    found = anydml.compare(scaled(first), scaled(second), **tolerance)
    assert found.same is same, found.verdict
    if not same and tolerance:
        assert (
            f"rtol {tolerance.get('rtol', 0):g} and atol {tolerance.get('atol', 0):g} are allowed"
            in found.verdict
        )


def test_tolerances_are_looked_at_and_asked_for_in_the_shell(tmp_path: Path) -> None:
    with pytest.raises(anydml.InvalidInput, match="rtol: expected a finite number from 0 on, but got -1"):
        anydml.compare(scaled("1.0"), scaled("1.0"), rtol=-1)
    with pytest.raises(anydml.InvalidInput, match="atol: expected a finite number from 0 on, but got nan"):
        anydml.flatten(model(IF), atol=float("nan"))
    files = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    for name, factor in zip(files, ("1.0", "1.01"), strict=True):
        onnx.save(scaled(factor), name)
    for options, code in (([], 2), (["--rtol", "0.02"], 0), (["--rtol", "0.001", "--atol", "0.001"], 2)):
        assert CliRunner().invoke(cli, ["diff", *files, *options]).exit_code == code


def test_flatten_compares_as_close_as_is_asked_for() -> None:
    _, report = anydml.flatten(model(IF), rtol=0, atol=0)  # Exp and Relu give the same bits alone
    assert report.left == 0
    assert report.verified is not None
    assert report.verified.conclusive


def test_an_input_that_one_lacks() -> None:
    flat, _ = anydml.flatten(model(IF), fixed={"c": True})
    with pytest.raises(anydml.InvalidInput, match=r"inputs \['c'\] differ"):
        anydml.compare(model(IF), flat)
    assert anydml.compare(model(IF), flat, fixed={"c": True}).same is True
    assert anydml.compare(model(IF), flat, fixed={"c": False}).same is False


def test_diff_as_a_command(tmp_path) -> None:
    names = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    onnx.save(model(IF), names[0])
    flat, _ = anydml.flatten(model(IF))
    onnx.save(flat, names[1])
    result = CliRunner().invoke(cli, ["diff", *names])
    assert result.exit_code == 0, result.output
    assert "the same on 24 random inputs" in result.output
    assert "Where" in result.output
    onnx.save(model("(bool c, float[n] x) => (float[n] y) { y = Neg (x) }"), names[1])
    result = CliRunner().invoke(cli, ["diff", *names])
    assert result.exit_code == 2
    assert "they differ" in result.output
    report = json.loads(CliRunner().invoke(cli, ["diff", *names, "--json", "--no-run"]).output)
    assert report["same"] is None


LARGE = """(float[n, m] x) => (float[a, b] y) <int64[2] s = {2, 350}> { z = Reshape (x, s)  y = OP (z) }"""
"""Takes sizes that nobody draws at random."""


def test_sizes_that_are_given() -> None:
    one, other = (model(LARGE.replace("OP", op)) for op in ("Neg", "Exp"))
    found = anydml.compare(one, other)
    assert found.same is None
    assert "nothing was compared: of 480 random inputs, none was accepted" in found.verdict
    assert "--shape x=n,m (with numbers)" in found.verdict
    assert anydml.compare(one, other, shapes={"x": (2, 350)}).same is False
    assert anydml.compare(one, one, shapes={"x": (2, 350)}).same is True
    with pytest.raises(anydml.InvalidInput, match="expected 2 sizes"):
        anydml.compare(one, other, shapes={"x": (2,)})


def test_models_that_were_run_on_nothing() -> None:
    """Inputs without elements, which both take, tell nothing of what they do."""
    text = LARGE.replace("{2, 350}", "{-1, 700}")
    one, other = (model(text.replace("OP", op)) for op in ("Neg", "Exp"))
    found = anydml.compare(one, other)
    assert found.same is None
    assert "accepted have no elements; give sizes that fit: --shape x=n,m" in found.verdict
    assert anydml.compare(one, other, shapes={"x": (2, 350)}).same is False
    nothing = model("(float[0] x, float[n] z) => (y) { y = Concat <axis = 0> (x, z) }")
    assert anydml.compare(nothing, nothing).same is True


def test_a_verdict_without_a_run(tmp_path) -> None:
    one, other = model(LARGE.replace("OP", "Neg")), model(LARGE.replace("OP", "Exp"), 18)
    for a, b, told in (
        (one, one, "not run; they have the same operators, inputs, outputs and opsets"),
        (one, other, "not run; they have other operators, opsets"),
        (one, model("(float[n, m] x) => (float[a, m] y) { y = Neg (x) }"), "other operators, outputs"),
    ):
        found = anydml.compare(a, b, run=False)
        assert told in found.verdict
        assert str(found) == found.verdict == found.as_dict()["verdict"]
    names = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    onnx.save(one, names[0])
    onnx.save(other, names[1])
    assert (
        "not run; they have other operators" in CliRunner().invoke(cli, ["diff", *names, "--no-run"]).output
    )
    shaped = CliRunner().invoke(cli, ["diff", *names, "--shape", "x=2,350"])
    assert (shaped.exit_code, "they differ" in shaped.output) == (2, True)


# ---- older opsets ------------------------------------------------------------------------------------


def opset_of(built: ModelProto) -> int:
    return next(o.version for o in built.opset_import if not o.domain)


@pytest.mark.parametrize(
    ("text", "opset", "wanted"),
    [
        ("(float[2, 3] x) => (y) { y = Relu (x) }", 22, 13),
        ("(float[2, 3] x) => (y) <int64[2] s = {3, 2}> { y = Reshape <allowzero = 0> (x, s) }", 23, 13),
        ("(float[2, 3] x) => (y) <int64[1] a = {1}> { y = ReduceMax (x, a) }", 20, 13),
        ("(float[2, 3] x) => (y) { y = ReduceMean <keepdims = 0> (x) }", 18, 13),
        ("(float[2, 3] x) => (y) { z = Shape (x)  y = Cast <to = 1> (z) }", 21, 15),
        (
            "(bool c, float[2] x) => (y) { y = If (c) <then_branch = t () => (a) { a = Neg (x) },"
            " else_branch = e () => (b) { b = Unsqueezed (x) }> }".replace("Unsqueezed", "Abs"),
            21,
            13,
        ),
    ],
)
def test_a_model_at_an_older_opset(text: str, opset: int, wanted: int) -> None:
    """Verified by running both."""
    built = model(text, opset)
    for convert in ("never", "auto"):
        lower, report = anydml.flatten(built, opset=wanted, convert=convert)  # type: ignore[arg-type]
        assert opset_of(lower) == wanted
        assert report.verified is not None
        assert report.verified.agreed
        assert anydml.compare(built, lower).same


@pytest.mark.parametrize(
    ("text", "opset", "wanted", "told"),
    [
        (
            "(float[2, 3] x) => (y) <float[3] s = {1, 1, 1}> { y = LayerNormalization (x, s) }",
            17,
            13,
            "does not exist at opset 13",
        ),
        ("(float[2, 3] x) => (y) { y = Relu (x) }", 17, 18, "expected 13 to 17"),
        ("(float[2, 3] x) => (y) { y = Relu (x) }", 17, 12, "expected 13 to 17"),
        ("(float[2, 3] x) => (y) { y = Gelu (x) }", 20, 19, "opset 19"),
    ],
)
def test_a_model_that_has_no_older_form(text: str, opset: int, wanted: int, told: str) -> None:
    with pytest.raises(anydml.AnyDMLError) as caught:
        anydml.flatten(model(text, opset), opset=wanted)
    assert told in str(caught.value)


# ---- verdicts ----------------------------------------------------------------------------------------


def test_a_verdict_says_what_to_do_next() -> None:
    built = model("""(int64 rate, float[n] x) => (y) <int64 wide = {16000}> {
        c = Equal (rate, wide)
        y = If (c) <then_branch = t () => (a) { u, v, w, z = Unique (x)  a = Neg (u) }, else_branch = e () => (b) { b = Exp (x) }> }""")
    _, report = anydml.flatten(built)
    assert report.verdict.splitlines() == [
        "the If remains:",
        "  y on Equal(rate, 16000)",
        "try --set rate=16000, or --convert always",
    ]
    assert report.ifs[0].remedies == ("--set rate=16000", "--convert always")
    _, report = anydml.flatten(built, fixed={"rate": 16000})
    assert report.verdict == "the If is gone"
    assert max(map(len, report.verdict.splitlines())) <= 80


@pytest.mark.parametrize(
    ("condition", "remedies"),
    [
        (
            "k = NonZero (x) s = Shape (k) i = Constant <value_int = 1> () n = Gather (s, i) c = Equal (n, zero)",
            (),
        ),
        ("k = NonZero (x) t = Transpose (k) g = GatherND (x, t) n = Size (g) c = Equal (n, zero)", ()),
        ("k = NonZero (x) h = Relu (x) n = Size (h) c = Equal (n, zero)", ("--shape x=n (with numbers)",)),
        (
            "k = NonZero (x) m = Size (k) h = Size (x) n = Sub (m, h) c = Equal (n, zero)",
            ("--shape x=n (with numbers)",),
        ),
        ("n = Identity (rate) c = Equal (n, zero)", ("--set rate=0",)),
        ("two = Add (rate, rate) c = Equal (two, zero)", ("--set rate=...",)),  # 0 is not what decides
        ("n = Cast <to = 6> (rate) small = Cast <to = 6> (zero) c = Equal (n, small)", ("--set rate=0",)),
    ],
)
def test_what_helps_is_what_decides(condition: str, remedies: tuple[str, ...]) -> None:
    built = model(f"""(int64 rate, float[n] x) => (y) <int64 zero = {{0}}> {{
        {condition}
        y = If (c) <then_branch = t () => (a) {{ u, v, w, z = Unique (x)  a = Neg (u) }}, else_branch = e () => (b) {{ b = Exp (x) }}> }}""")
    _, report = anydml.flatten(built)
    assert report.ifs[0].remedies == (*remedies, "--convert always")


def test_a_verdict_of_sizes() -> None:
    built = model("""(float[b, c] x) => (y) <int64[1] k = {1}, int64[1] one = {1}> {
        s = Shape (x)  n = Gather (s, k)  q = Equal (n, one)
        y = If (q) <then_branch = t () => (a) { a = Squeeze (x, k) }, else_branch = e () => (d) { d = Identity (x) }> }""")
    _, report = anydml.flatten(built)
    assert "--shape x=b,c (with numbers)" in report.verdict
    _, report = anydml.flatten(built, shapes={"x": (None, 3)})
    assert report.left == 0


@pytest.mark.parametrize(
    ("shapes", "declared"),
    [
        ({"x": (None, 5)}, ["b", 5]),
        ({"x": ("rows", 5)}, ["rows", 5]),
        ({"x": ("k", "k")}, ["k", "k"]),
        ({"x": ("b", "b")}, ["b", "b"]),
    ],
)
def test_partial_shapes(shapes: dict, declared: list) -> None:
    built = model("(float[b, c] x) => (float[b, c] y) { y = Relu (x) }")
    flat, _ = anydml.flatten(built, shapes=shapes)
    found = flat.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in found] == declared


def test_partial_shapes_that_contradict() -> None:
    built = model("(float[b, 3] x, float[b] z) => (y) { y = Relu (x) }")
    for shapes, told in (
        ({"x": (2, 3), "z": (4,)}, "expected 2"),
        ({"x": ("n", "n"), "z": (2,)}, "expected 3"),
        ({"x": (2.5, 3)}, "expected sizes, names of sizes or None"),
        ({"x": (2,)}, "expected 2 sizes"),
    ):
        with pytest.raises(anydml.InvalidInput) as caught:
            anydml.flatten(built, shapes=shapes)
        assert told in str(caught.value)


def test_sizes_that_the_second_model_declares():
    """`flatten --shape` fixes them: it takes fewer inputs, and does the same on them."""
    model = sample_model()
    flat, _ = anydml.flatten(model, fixed={"sr": 16000}, shapes={"sound": (1, 1600)})
    found = anydml.compare(model, flat, fixed={"sr": 16000})
    assert found.same, found.difference


def test_what_only_the_second_model_compares_with():
    head = '<ir_version: 8, opset_import: ["": 17]> m (int64 k, float[2] x) => (float[2] y)'
    first = parser.parse_model(f"{head} {{ y = Neg (x) }}")
    second = parser.parse_model(f"""{head} <int64 odd = {{ 70123 }}> {{
        c = Equal (k, odd)
        y = If (c) <then_branch = t () => (float[2] p) {{ p = Abs (x) }},
                    else_branch = e () => (float[2] q) {{ q = Neg (x) }}>
    }}""")
    assert not anydml.compare(first, second).same
    assert not anydml.compare(second, first).same


def test_each_model_has_its_own_folder(tmp_path):
    """External weights of one file name, of which each model has its own."""
    paths = []
    for name, factor in (("a", 1.0), ("b", 5.0)):
        proto = onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["": 17]>
            g (float[n,4] x) => (float[n,4] y) { y = Mul (x, w) }""")
        w = np.full((1, 4), factor, np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "m.onnx")
        onnx.save(proto, paths[-1], save_as_external_data=True, location="w.bin", size_threshold=0)
    assert not anydml.compare(*paths).same
    assert anydml.compare(paths[1], paths[1]).same
