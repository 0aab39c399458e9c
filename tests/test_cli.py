"""The command line as a user types it."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from anydml.cli.main import cli, main
from anydml.errors import InvalidInput
from anydml.ops.catalog import CATALOG
from tests.test_dxdispatch import model as dispatch_model
from tests.test_dxdispatch import written


@pytest.fixture
def model(tmp_path):
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        m (bool cond, float[n] x) => (float[n] y, int64[1] size) {
            y = If (cond) <then_branch = t () => (float[n] a) { a = Neg (x) },
                           else_branch = e () => (float[n] b) { b = Abs (x) }>
            size = Shape (x)
        }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def run(*arguments):
    return CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)


def test_run_prints_and_saves(model, tmp_path):
    np.save(tmp_path / "x.npy", np.float32([1, -2, 3]))
    result = run(
        "run",
        model,
        "--feed",
        "cond=true",
        "--feed",
        f"x=@{tmp_path / 'x.npy'}",
        "--output",
        tmp_path / "out",
    )
    assert result.exit_code == 0
    assert "y: float32[3]\n[-1.  2. -3.]" in result.stdout
    assert "size: int64[1]\n[3]" in result.stdout
    assert np.load(tmp_path / "out" / "y.npy").tolist() == [-1, 2, -3]
    assert np.load(tmp_path / "out" / "size.npy").tolist() == [3]


@pytest.mark.parametrize(
    ("type", "literal", "told"),
    [
        ("bfloat16", "[1,2.5]", "y: bfloat16[2]\n[1 2.5]"),
        ("float8e4m3fn", "[1,2]", "y: float8_e4m3fn[2]\n[1 2]"),
        ("int4", "[1,-8]", "y: int4[2]\n[1 -8]"),
        (
            "int4",
            "[1,20]",
            "input 'x': expected a literal of int4, but got [1, 20]; int4 does not hold 20",
        ),
        (
            "uint4",
            "[1,0.5]",
            "input 'x': expected a literal of uint4, but got [1, 0.5]; uint4 does not hold 0.5",
        ),
    ],
)
def test_literals_of_types_that_numpy_has_not_itself(tmp_path, type, literal, told):
    path = tmp_path / "model.onnx"
    text = f'<ir_version: 10, opset_import: ["": 21]> m ({type}[2] x) => ({type}[2] y) {{ y = Identity (x) }}'
    onnx.save(onnx.parser.parse_model(text), path)
    if told.startswith("input"):
        with pytest.raises(InvalidInput, match=re.escape(told)):
            run("run", path, "--feed", f"x={literal}")
    else:
        result = run("run", path, "--feed", f"x={literal}", "-o", tmp_path)
        assert result.stdout.strip() == told
        assert run("run", path, "--feed", f"x=@{tmp_path / 'y.npy'}").stdout.strip() == told


def test_literals_take_the_type_of_the_input(model):
    assert "y: float32[2]\n[1. 2.]" in run("run", model, "--feed", "cond=false", "--feed", "x=[1, -2]").stdout
    assert "y: float32[1]\n[5.]" in run("run", model, "--feed", "cond=false", "--feed", "x=-5").stdout


def test_explain(model):
    assert (
        "plan for cond bool[]"
        in run("run", model, "--feed", "cond=true", "--feed", "x=[1]", "--explain").stdout
    )


def test_output_names_cannot_leave_the_folder(tmp_path):
    names = ["../evil", "a/b", "a_b", ".hidden"]
    nodes = [onnx.helper.make_node("Identity", ["x"], [n]) for n in names]
    info = [onnx.helper.make_tensor_value_info(n, 1, [1]) for n in ["x", *names]]
    graph = onnx.helper.make_graph(nodes, "g", info[:1], info[1:])
    onnx.save(
        onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]),
        tmp_path / "m.onnx",
    )
    assert run("run", tmp_path / "m.onnx", "--feed", "x=[2]", "-o", tmp_path / "out").exit_code == 0
    assert len(list((tmp_path / "out").iterdir())) == 4
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", "out"}


def test_dispatch_model(tmp_path):
    result = run("run", written(tmp_path, dispatch_model()))
    assert result.stdout.splitlines()[-1] == "Resource 'Out': 1, -inf, 2, nan"


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        (["cond=maybe", "x=[1]"], "input 'cond': expected a JSON literal or @file.npy, but got 'maybe'"),
        (["cond=2", "x=[1]"], "input 'cond': expected a literal of bool, but got 2"),
        (["cond=True", "x=[1]"], "write true"),
        (["cond=true", "x=[[1, 2], [3]]"], "its lists differ in length"),
        (["cond=true", "x=@test_cli.py"], "input 'x': expected a NumPy file, but got test_cli.py"),
        (["cond=true", 'x=["a"]'], "input 'x': expected a literal of float32"),
        (["cond=true", "x=@nowhere.npy"], "input 'x': expected a NumPy file, but got nowhere.npy"),
        (["cond=true"], "input 'x': expected tensor(float), but it is missing"),
        (["cond=true", "x=[1]", "z=1"], "expected a name of an input, but got 'z'"),
        (["cond=true", "x=[[1]]"], "input 'x': expected rank 1, but got shape (1, 1)"),
    ],
)
def test_errors_go_to_stderr_without_traceback(model, feeds, message, monkeypatch, capsys):
    arguments = ["anydml", "run", str(model), *(a for f in feeds for a in ("--feed", f))]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr()
    assert left.value.code == 1
    assert message in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


def test_wrong_usage_is_2(model, tmp_path):
    assert run("run").exit_code == 2
    assert run("run", model, "--feed", "cond").exit_code == 2
    assert run("run", model, "--feed", "cond=true", "--feed", "x=[1]", "--relaxed").exit_code == 2
    assert run("run", written(tmp_path, dispatch_model()), "--feed", "x=1").exit_code == 2


def test_help_shows_an_example():
    assert "anydml run model.onnx --feed cond=true" in run("run", "--help").stdout


def test_python_dash_m():
    said = subprocess.run(
        [sys.executable, "-m", "anydml", "--version"], capture_output=True, text=True, check=True
    )
    assert said.stdout.startswith("anydml, version ")


def test_strings_and_sequences(tmp_path):
    """A bare word is a string where the input takes strings; sequences are lists, saved item by item."""
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        m (bool cond, string[1] s, seq(float[N]) q) => (string[1] word, seq(float[N]) all) {
            word = Identity (s)
            all = If (cond) <then_branch = t () => (seq(float[N]) a) { a = Identity (q) },
                             else_branch = e () => (seq(float[N]) b) { b = SequenceEmpty <dtype = 1> () }>
        }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    common = (
        "run",
        tmp_path / "m.onnx",
        "--feed",
        "s=hello there",
        "--feed",
        "q=[[1, 2], [3]]",
        "-o",
        tmp_path / "out",
    )
    taken = run(*common, "--feed", "cond=true")
    assert "word: string[1]\n['hello there']" in taken.stdout
    assert "all: sequence of 2\nall[0]: float32[2]\n[1. 2.]\nall[1]: float32[1]\n[3.]" in taken.stdout
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["all.0.npy", "all.1.npy", "word.npy"]
    assert np.load(tmp_path / "out" / "word.npy").tolist() == ["hello there"]
    assert "all: sequence of 0" in run(*common, "--feed", "cond=false").stdout


def test_files_are_saved_though_nobody_reads_what_is_printed(model, tmp_path):
    arguments = [
        "-m",
        "anydml",
        "run",
        str(model),
        "--feed",
        "cond=true",
        "--feed",
        "x=[1]",
        "-o",
        str(tmp_path / "out"),
    ]
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        process.wait(60)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["size.npy", "y.npy"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_ctrl_c_ends_a_run_that_a_library_is_busy_with(tmp_path):
    text = """
        <ir_version: 8, opset_import: ["": 17]>
        m (float[64, 64] x) => (float[64, 64] y) {
            n = Constant <value_int = 100000000> ()
            go = Constant <value = bool {1}> ()
            y = Loop (n, go, x) <body = b (int64 k, bool c, float[64, 64] s) => (bool d, float[64, 64] t) {
                d = Identity (c)
                t = MatMul (s, s)
            }>
        }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "slow.onnx")
    np.save(tmp_path / "x.npy", np.zeros((64, 64), np.float32))
    arguments = ["-m", "anydml", "run", str(tmp_path / "slow.onnx"), "--feed", f"x=@{tmp_path / 'x.npy'}"]
    with subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE) as process:
        time.sleep(5)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0


def test_absurd_literals(model):
    for literal in ("9" * 5000, "[" * 5000):
        with pytest.raises(InvalidInput, match=r"input 'x': expected a (JSON )?literal"):
            run("run", model, "--feed", "cond=true", "--feed", f"x={literal}")


# ---- operators ---------------------------------------------------------------------------------------


def test_operators_lists_every_operator():
    result = run("operators")
    lines = result.output.splitlines()
    assert lines[0].split("\t") == [
        "operator",
        "function",
        "since",
        "types (of the first tensor, newest level)",
        "in place",
    ]
    assert len(lines) == 178
    assert "ACTIVATION_SWISH\tdml.activation_swish\t6_2\tfloat16 | float32\tyes" in lines
    older = run("operators", "--level", "1_0").output.splitlines()
    assert len(older) == 79
    assert not any(line.startswith("ELEMENT_WISE_IF\t") for line in older)


@pytest.mark.parametrize("name", ["ELEMENT_WISE_IF", "DML_OPERATOR_ELEMENT_WISE_IF", "if_", "if", "IF"])
def test_operators_shows_one(name):
    page = run("operators", name).output
    assert page.startswith("# ELEMENT_WISE_IF\n")
    assert "**Formula:** `output = condition != 0 ? a : b`" in page
    assert "| 2_0 | 4 | uint8 | float16 |" in page
    assert "ATensor, BTensor, OutputTensor: the same data type." in page
    assert "dml.if_(np.uint8([[1, 0], [1, 1]])" in page


def test_operators_shows_one_by_its_other_name():
    assert run("operators", "SCATTER_ELEMENTS").output == run("operators", "SCATTER").output


def test_operators_emits_code():
    assert "output = max(input, 0)" in run("operators", "relu", "--emit", "text").output
    assert "define void @row" in run("operators", "relu", "--emit", "llvm").output
    assert "row:" in run("operators", "relu", "--emit", "asm").output


def test_operators_emits_the_kernels_of_whole_tensors():
    assert run("operators", "average_pooling", "--emit", "llvm").output.count("define void @row") == 1
    assert "row:" in run("operators", "gemm", "--emit", "asm").output
    assert run("operators", "LSTM", "--emit", "llvm").output == "; step 1: LSTM, computed by NumPy\n"


@pytest.mark.parametrize("part", range(8))
def test_operators_emits_all_of_them(part):
    for operator in CATALOG[part::8]:
        told = run("operators", operator.name, "--emit", "llvm").output
        assert "define void @row" in told or "computed by NumPy" in told or "computed by onnxruntime" in told


def test_an_unknown_operator_is_told():
    with pytest.raises(InvalidInput, match=r"did you mean 'GELU'\?"):
        run("operators", "gleu")
    for options, message in (
        (["--level", "9"], "6_3 | 6_4, but got '9'"),
        (["gelu", "--level", "1_0"], "exists from feature level 5_1 on"),
    ):
        result = run("operators", *options)
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())
    result = run("operators", "--emit", "asm")
    assert result.exit_code == 2
    assert "name an operator" in result.output


def test_a_dispatch_models_kernels(tmp_path):
    result = run("run", written(tmp_path, dispatch_model()), "--emit", "text")
    assert "OutputTensor = ConditionTensor != 0 ? ATensor : BTensor" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert "_ANYDML_COMPLETE" in run("completion", shell).stdout


def test_completion_of_operators():
    complete = {
        "_ANYDML_COMPLETE": "bash_complete",
        "COMP_WORDS": "anydml operators activation_g",
        "COMP_CWORD": "2",
    }
    code = "import sys; sys.argv = ['anydml']; from anydml.cli.main import cli; cli(prog_name='anydml')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **complete},
        timeout=120,
    )
    assert done.stdout.splitlines() == ["plain,ACTIVATION_GELU"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_ctrl_c_outside_of_libraries(tmp_path):
    """The shell's exit code, one line and no traceback."""
    code = """
import os, signal
import anydml.cli.inspect as verb
from anydml.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may ignore it
verb.inspect = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)
main()
"""
    (tmp_path / "m.onnx").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(tmp_path / "m.onnx")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "anydml: interrupted"


def test_an_operator_at_a_level():
    assert "float64" in run("operators", "dml.if_").stdout
    older = run("operators", "if", "--level", "3_0").stdout
    assert "float64" not in older
    assert "5_0" not in older


def python(code, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, **options
    )


def test_a_reader_that_has_seen_enough():
    """As `anydml operators | head -1`."""
    done = subprocess.run(
        [f"{sys.executable} -m anydml operators gelu --emit llvm | head -1; exit ${{PIPESTATUS[0]}}"],
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_standard_output():
    done = subprocess.run(
        [f"{sys.executable} -m anydml operators >&-"],
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr


def test_verbs_are_loaded_when_they_are_asked_for():
    """The shell's completion waits for what is loaded."""
    code = "import sys; from anydml.cli.main import cli; cli(['--version'], standalone_mode=False); print('onnx' in sys.modules, 'numpy' in sys.modules)"
    assert python(code).stdout.split()[-2:] == ["False", "False"]


def test_ctrl_c_while_loading():
    """It waits until nothing is imported: libraries would make errors of it, or crash."""
    code = """
import os, signal, sys
from anydml.__main__ import main
os.dup2(os.pipe()[0], 0)  # a model that never comes
sys.argv = ["anydml", "inspect", "-"]
class Finder:
    def find_spec(self, name, *rest):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
main()
"""
    done = python(code)
    assert (done.returncode, done.stderr.strip()) == (130, "anydml: interrupted")


def test_signs_that_a_terminal_lacks(model):
    options = {"env": {**os.environ, "PYTHONIOENCODING": "ascii"}}
    done = python(
        "import sys; sys.argv[0] = 'anydml'; from anydml.cli.main import main; main()",
        "bench",
        str(model),
        "-i",
        "3",
        "--alone",
        **options,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "?s of a run" in done.stdout


def test_a_verb_that_there_is_not():
    result = CliRunner().invoke(cli, ["runn", "model.json"])
    assert result.exit_code == 2
    assert "No such command 'runn'; did you mean 'run'?" in result.output
