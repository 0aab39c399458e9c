"""DxDispatch's command lines, typed at `anydml run`: every option of that tool is taken."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from anydml.cli.main import cli
from anydml.dxdispatch.no_effect import NO_EFFECT
from anydml.errors import InvalidModel
from tests.test_dxdispatch import model, written

LAST = "Resource 'Out': 1, -inf, 2, nan"


def shell(*arguments):
    return CliRunner().invoke(cli, ["run", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return written(tmp_path, model())


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = '<ir_version: 8, opset_import: ["": 17]> m (float[N, 2] x) => (float[N, 2] y) { y = Neg (x) }'
    proto = onnx.parser.parse_model(text)
    proto.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    onnx.save(proto, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.mark.parametrize("option", NO_EFFECT, ids=lambda o: o.names[0])
def test_what_means_nothing_here_is_said(path, option):
    """In one line, under every name; and the model runs."""
    for name in option.names:
        done = shell(path, name, *(["a:1"] if option.takes_value else []))
        assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, LAST)
        assert done.stderr == f"anydml: {option.names[0]}: nothing is done: {option.why}\n"


def test_the_tools_options(path):
    """As its help lists them; those that act on something here, act."""
    known = {o for p in cli.get_command(None, "run").params for o in p.opts}
    theirs = """
        -m --model -h --help -S --show_dependencies --input_path --output_path --print_commands
        -i --dispatch_iterations -r --dispatch_repeat -t --milliseconds_to_run -I --dispatch_interval
        -w --warmup_samples -v --timing_verbosity --max_gpu_time_measurements
        -d --debug -a --adapter -s --show_adapters -q --queue_type --disable_custom_heaps --clear_shader_caches
        --disable_gpu_timeout --enable_dred --disable_background_processing --set_stable_power_state
        --disable_agility_sdk --print_hlsl_disassembly --post_dispatch_barriers --dml_feature_level
        --xbox_allow_precompile -c --pix_capture_type -o --pix_capture_name --present_separator
        -f --onnx_free_dim_name_override -F --onnx_free_dim_denotation_override -e --onnx_session_config_entry
        -b --binding_shape -l --onnx_graph_optimization_level -L --onnx_logging_level -p --print_onnx_bindings
        -x --enable_ort_extensions --enable_onnx_profiling
        """.split()
    assert set(theirs) - known == {"-h", "--help"}
    assert "Run MODEL" in shell("-h").stdout


def test_several_at_once(path):
    done = shell("-m", path, "-d", "-e", "a:1", "-e", "b:2", "-o", "name", "-c", "gpu", "-i", 2)
    assert done.exit_code == 0
    assert "Dispatch 'if': 2 iterations" in done.stdout
    options = ["--debug", "--onnx_session_config_entry", "--pix_capture_type", "-o"]
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == options
    assert not path.with_name("name").exists()


@pytest.mark.parametrize("level", ["5.0", "5_0", "5", "5.0f", "DML_FEATURE_LEVEL_5_0"])
@pytest.mark.parametrize("option", ["--dml_feature_level", "--feature-level"])
def test_feature_levels(path, option, level):
    assert shell(path, option, level).stdout.splitlines()[0] == "Running on 'anydml, feature level 5_0'"


def test_an_older_level_has_fewer_operators(tmp_path, path):
    with pytest.raises(ValueError, match="at feature level 2_0"):
        shell(path, "--dml_feature_level", "2.0")
    done = shell(path, "--dml_feature_level", "7.0")
    assert (done.exit_code, "6_4, but got '7.0'" in " ".join(done.stderr.split())) == (2, True)


@pytest.mark.parametrize("option", ["-m", "--model"])
def test_another_way_to_give_the_model(path, option):
    assert shell(option, path).stdout.splitlines()[-1] == LAST
    done = shell(option, path, path)
    assert (done.exit_code, "expected MODEL or -m, but got both" in " ".join(done.stderr.split())) == (
        2,
        True,
    )
    done = shell(option, path.with_name("none.json"))
    assert (done.exit_code, "does not exist" in " ".join(done.stderr.split())) == (2, True)
    assert CliRunner().invoke(cli, ["run", option, "-"], input=path.read_bytes()).exit_code == 0


def test_no_model(path):
    """Is wrong usage, unless something is asked for that needs none."""
    assert "Missing argument 'MODEL'" in shell("-i", 2).stderr
    for option in ("-s", "--show_adapters"):
        done = shell(option)
        assert (done.exit_code, done.stderr) == (0, "")
        (line,) = done.stdout.splitlines()
        assert line.startswith("anydml: this machine's CPU (")
    done = shell("-S")
    assert (done.exit_code, done.stdout) == (0, "")
    said = shell(path, "-s").stdout.splitlines()
    assert (said[0], said[-1]) == (line, LAST)


def test_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    np.save("in/a.npy", np.float32([1, 2, 3, 4]))
    parts = model()
    parts["resources"]["A"] = {"initialValues": {"sourcePath": "a.npy"}}
    parts["commands"].append({"type": "writeFile", "resource": "Out", "targetPath": "o.npy"})
    (tmp_path / "m.json").write_text(json.dumps(parts))
    (tmp_path / "in" / "n.json").write_text(json.dumps(parts))
    for name in ("m.json", "n.json"):
        done = shell(name, "--input_path", "in", "--output_path", "out")
        assert done.stdout.splitlines()[-1] == f"Resource 'Out' written to '{Path('out/o.npy')}'"
        assert np.load("out/o.npy").tolist()[::2] == [1, 3]
        (tmp_path / "out" / "o.npy").unlink()
    with (tmp_path / "m.json").open("rb") as stdin:
        done = CliRunner().invoke(
            cli, ["run", "-", "--input_path", "in", "--output_path", "out"], input=stdin
        )
    assert (done.exit_code, np.load("out/o.npy").tolist()[::2]) == (0, [1, 3])


def test_printed_commands(path):
    said = shell(path, "--print_commands").stdout.splitlines()
    assert said[1].startswith('[StartCmd][0000]\t: {"type":"dispatch","dispatchable":"if","bindings":')
    assert said[3:7] == [
        "[EndCmd][0000]\t: hr=0x00000000 ",
        "",
        '[StartCmd][0001]\t: {"type":"print","resource":"Out"}',
        LAST,
    ]


def test_relaxed(tmp_path):
    parts = model()
    parts["dispatchables"]["if"]["desc"]["ATensor"] = {
        "DataType": "FLOAT32",
        "Sizes": [2, 2],
        "TotalTensorSizeInBytes": 20,
    }
    path = written(tmp_path, parts)
    with pytest.raises(InvalidModel, match=r"ATensor: expected at least 20 bytes, but got 16; .*--relaxed"):
        shell(path)
    assert shell(path, "--relaxed").stdout.splitlines()[-1] == LAST


class TestOnnxModels:
    @pytest.mark.parametrize(
        "options",
        [["-p"], ["-d", "-F", "DATA_BATCH:3"], ["--dml_feature_level", "5.0"], ["--print_commands"]],
    )
    def test_dispatched_on_zeros(self, network, options):
        """By any option that is DxDispatch's alone."""
        done = shell(network, *options)
        assert done.exit_code == 0
        assert "Dispatch 'net.onnx': 1 iterations, " in done.stdout

    def test_fed(self, network):
        """What has no effect has none on that either."""
        options = "--feature-level", "5_0", "--output_path", "there", "-o", "out"
        done = shell(network, "--feed", "x=[[1, 2]]", "-d", *options)
        assert "y: float32[1,2]" in done.stdout
        told = [line.split(": ")[1] for line in done.stderr.splitlines()[:3]]
        assert told == ["--debug", "--feature-level", "--output_path"]
        assert np.load("out/y.npy").tolist() == [[-1, -2]]

    def test_denotations(self, network):
        assert shell(network, "--feed", "x=[[1, 2]]", "-F", "data_batch:1").stderr == ""
        done = shell(network, "--feed", "x=[[1, 2]]", "-F", "DATA_TIME:3")
        assert done.stderr == "anydml: warning: -F DATA_TIME: no free dimension of an input denotes it\n"
        with pytest.raises(ValueError, match=r"input 'x'.*3"):
            shell(network, "--feed", "x=[[1, 2]]", "-F", "DATA_BATCH:3")
        assert "-F N: expected one number" in shell(network, "-F", "N:1,2").stderr
