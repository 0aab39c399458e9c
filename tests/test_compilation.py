"""Models as C functions: what they compute, what the header says, and what a user types."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import anydml as dml
from anydml.cli.main import cli
from anydml.sample import sample_model

PAGE = (Path(__file__).parent.parent / "docs" / "howto" / "c-function.md").read_text(encoding="utf-8")
GATE = re.search(r'parse_model\("""(.*?)"""\)', PAGE, re.DOTALL)[1]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
PICK = """<ir_version: 8, opset_import: ["": 17]> m (float[n, 3] x, int64 k, bool c) => (float[3] y) {
    p = Gather (x, k)
    y = If (c) <then_branch = t () => (float[3] a) { a = Exp (p) }, else_branch = e () => (float[3] b) { b = Neg (p) }> }"""


def library(compiled, folder):
    """The function, linked and loaded."""
    (folder / "made.o").write_bytes(compiled.object_file)
    subprocess.run(["cc", "-shared", "-o", folder / "made.so", folder / "made.o", "-lm"], check=True)
    return getattr(ctypes.CDLL(str(folder / "made.so")), compiled.name)


def call(function, compiled, inputs):
    outputs = [np.empty(p.sizes, p.dtype) for p in compiled.outputs]
    guarded = np.full(compiled.memory + 64, 0xA7, np.uint8)
    result = function(*(ctypes.c_void_p(a.ctypes.data) for a in (*inputs, *outputs, guarded)))
    assert (guarded[compiled.memory :] == 0xA7).all()
    return result, outputs, guarded


@needs_compiler
@pytest.mark.parametrize("cpu", [None, "x86-64", "x86-64-v2"])
def test_as_a_session(tmp_path, cpu):
    if cpu is not None and "x86" not in __import__("platform").machine():
        pytest.skip("needs an x86 processor")
    model = onnx.parser.parse_model(GATE)
    compiled = dml.compile_model(model, name="gate", cpu=cpu)
    function, session = library(compiled, tmp_path), dml.load(model, threads=1)
    for scale in (0.1, 1, 1000):
        x, limit = np.arange(4, dtype=np.float32) * scale, np.array(0.25, np.float32)
        result, found, _ = call(function, compiled, [x, limit])
        assert result == 0
        for y, wanted in zip(found, session.run(None, {"x": x, "limit": limit}), strict=True):
            np.testing.assert_array_equal(y, wanted)


@needs_compiler
def test_sizes_contents_and_failures(tmp_path):
    model = onnx.parser.parse_model(PICK)
    compiled = dml.compile_model(model, shapes={"x": (5, 3)}, fixed={"c": False}, name="pick")
    assert [str(p) for p in compiled.inputs] == ["x float32[5,3]", "k int64[]"]
    function = library(compiled, tmp_path)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for k in (0, 4, -5):
        result, (y,), _ = call(function, compiled, [x, np.array(k)])
        assert result == 0
        np.testing.assert_array_equal(y, -x[k])
    result, _, memory = call(function, compiled, [x, np.array(7)])
    assert result == 1
    assert memory[:8].view(np.int64)[0] == 7
    assert "Gather" in compiled.failures[0]
    assert "1: node 'p' (Gather): expected an index from -5 to 4" in compiled.header()


@needs_compiler
def test_the_page(tmp_path, monkeypatch):
    """Its program in C says what it says."""
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(GATE), "gate.onnx")
    result = CliRunner().invoke(cli, ["compile", "gate.onnx", "-o", "gate.o"])
    assert result.exit_code == 0, result.output
    assert "written to gate.o and gate.h" in result.output
    Path("main.c").write_text(re.search(r"```c\n(.*?)```", PAGE, re.DOTALL)[1])
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "main.c", "gate.o", "-lm"], check=True)
    done = subprocess.run(["./a.out"], capture_output=True, text=True, check=True)
    assert f"    {done.stdout.strip()}\n" in PAGE


@needs_compiler
def test_a_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(PICK), "model.onnx")
    options = ["--shape", "x=2,3", "--set", "k=1", "--set", "c=true"]
    result = CliRunner().invoke(cli, ["compile", "model.onnx", "-o", "libpick.so", *options])
    assert result.exit_code == 0, result.output
    x, y = np.ones((2, 3), np.float32), np.zeros(3, np.float32)
    memory = np.zeros(1 << 12, np.uint8)
    function = ctypes.CDLL("./libpick.so").pick
    assert function(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, memory))) == 0
    np.testing.assert_allclose(y, np.e, rtol=1e-6)
    assert "int32_t pick(const float *x, float *y, void *memory);" in Path("libpick.h").read_text()


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"])
def test_code_for_other_processors(cpu):
    compiled = dml.compile_model(onnx.parser.parse_model(GATE), name="gate", cpu=cpu)
    assert (
        compiled.object_file[:4] in (b"\x7fELF", b"\xcf\xfa\xed\xfe")
        or compiled.object_file[:2] == b"\x64\x86"
    )


def test_no_compiler_for_a_library(tmp_path, monkeypatch):
    onnx.save(onnx.parser.parse_model(GATE), tmp_path / "gate.onnx")
    monkeypatch.setenv("CC", "no-such-compiler")
    result = CliRunner().invoke(
        cli, ["compile", str(tmp_path / "gate.onnx"), "-o", str(tmp_path / "gate.so")]
    )
    assert result.exit_code == 2
    assert "a library needs a C compiler; write an object file, like model.o" in result.output
    assert not (tmp_path / "gate.so").exists()


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            {},
            dml.Unsupported,
            r"cannot be one function: 'x' has no fixed sizes; `shapes` fixes sizes",
        ),
        (
            {"shapes": {"x": (5, 3)}, "name": "a b"},
            dml.InvalidInput,
            "expected a name that C has, but got 'a b'",
        ),
        ({"shapes": {"x": (5, 3)}, "cpu": "x86-64-v5"}, dml.InvalidInput, "did you mean 'x86-64-v"),
        ({"shapes": {"z": (5, 3)}}, dml.InvalidInput, "expected a name of an input, but got 'z'"),
        ({"shapes": {"x": (5, 4)}}, dml.InvalidInput, "expected 3, but got 4"),
    ],
)
def test_what_is_wrong(asked, error, message):
    with pytest.raises(error, match=message):
        dml.compile_model(onnx.parser.parse_model(PICK), **asked)


def test_names_that_c_has_not():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> m (float[2] "int", float[2] "a/b", float[2] "a.b") => (float[2] "3", float[2] a_b)'
        ' { "3" = Add ("int", "a/b") a_b = Sub ("a.b", "a/b") }'
    )
    compiled = dml.compile_model(model)
    assert [p.name for p in (*compiled.inputs, *compiled.outputs)] == ["v_int", "a_b", "a_b_", "v_3", "a_b__"]


@pytest.mark.parametrize("name", ["int", "main", "return", "2nd"])
def test_words_of_c_are_no_names(name):
    with pytest.raises(dml.InvalidInput, match="expected a name that C has"):
        dml.compile_model(sample_model(), shapes={"sound": (1, 160)}, fixed={"sr": 16000}, name=name)


def test_a_source_file_is_not_what_is_written(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(sample_model(), path)
    result = CliRunner().invoke(cli, ["compile", str(path), "-o", str(tmp_path / "model.c")])
    assert result.exit_code == 2
    assert "expected a name like model.o" in result.output
    assert not (tmp_path / "model.c").exists()
