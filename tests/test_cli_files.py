"""Files as they are named on the command line: pipes, devices, links, standard input and output."""

import errno
import io
import json
import os
import stat
import subprocess
import sys

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import anydml
from anydml import files
from anydml.cli.main import cli, main
from anydml.errors import InvalidInput, InvalidModel
from anydml.onnx.serde.serialize import save
from tests.ir.test_files import device, drained, header, npy, pipe, poured  # noqa: F401
from tests.test_dxdispatch import model as dispatch_model
from tests.test_dxdispatch import written

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes, devices and modes are POSIX's")
TEXT = """<ir_version: 8, opset_import: ["": 17]> m (bool c, float[n, 3] x) => (float[n, 3] y) {
    y = If (c) <then_branch = t () => (float[n, 3] p) { p = Neg (x) },
                else_branch = e () => (float[n, 3] q) { q = Abs (x) }> }"""
FEEDS = ("--feed", "c=true", "--feed", "x=[[1, 2, 3]]")
QUICK = ("--no-verify",)


@pytest.fixture
def path(tmp_path):
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def invoke(*arguments, **options):
    return CliRunner().invoke(cli, [str(a) for a in arguments], **options)


def ends_with(code, message, *arguments, **options):
    """As a shell sees it: an exit code, a message, and nothing on standard output."""
    done = shell(*arguments, **options)
    assert (done.returncode, done.stdout) == (code, b"")
    assert message in " ".join(done.stderr.decode().split())
    assert b"Traceback" not in done.stderr


def shell(*arguments, **options):
    command = [sys.executable, "-m", "anydml", *(str(a) for a in arguments)]
    return subprocess.run(command, capture_output=True, timeout=120, **options)


def is_flat(content):
    proto = onnx.load_model_from_string(content)
    return [n.op_type for n in proto.graph.node] == ["Neg", "Abs", "Where"]


class TestOutput:
    @pytest.mark.parametrize("name", ["-", "/dev/stdout"])
    @pytest.mark.parametrize("options", [(), ("--json",)])
    def test_standard_output(self, path, name, options):
        """The report goes to standard error then, so that the model arrives alone."""
        done = invoke("flatten", path, name, *QUICK, *options)
        assert done.exit_code == 0
        assert is_flat(done.stdout_bytes)
        if options:
            assert json.loads(done.stderr)["after"]["ifs"] == 0
        else:
            assert done.stderr.endswith("written to standard output\n")

    def test_standard_output_that_is_a_file(self, path, tmp_path):
        """What the shell's > has opened is written to, not replaced."""
        out = tmp_path / "flat.onnx"
        with out.open("wb") as file:
            command = [sys.executable, "-m", "anydml", "flatten", str(path), "/dev/stdout", *QUICK]
            subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=True, timeout=120)
            assert os.path.samestat(os.fstat(file.fileno()), out.stat())
        assert is_flat(out.read_bytes())

    def test_a_device_stays(self, path, device):  # noqa: F811
        done = invoke("flatten", path, device, *QUICK)
        assert done.exit_code == 0
        assert f"written to {device}" in done.stdout
        assert stat.S_ISCHR(os.stat(device).st_mode)

    def test_a_pipe(self, path, pipe):  # noqa: F811
        thread, got = drained(pipe)
        assert invoke("flatten", path, pipe, *QUICK).exit_code == 0
        thread.join(60)
        assert is_flat(got[0])
        assert stat.S_ISFIFO(os.stat(pipe).st_mode)

    def test_links_and_modes(self, path, tmp_path):
        (tmp_path / "flat.onnx").write_bytes(b"old")
        (tmp_path / "flat.onnx").chmod(0o640)
        (tmp_path / "link").symlink_to("flat.onnx")
        (tmp_path / "dangling").symlink_to("new.onnx")
        for name, target in (("link", "flat.onnx"), ("dangling", "new.onnx")):
            assert invoke("flatten", path, tmp_path / name, *QUICK).exit_code == 0
            assert (tmp_path / name).is_symlink()
            assert is_flat((tmp_path / target).read_bytes())
        assert stat.S_IMODE((tmp_path / "flat.onnx").stat().st_mode) == 0o640

    def test_what_cannot_be_written_is_told_before_the_work(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr("anydml.cli.flatten.flatten", lambda *a, **k: pytest.fail("too late"))
        assert "is a directory" in invoke("flatten", path, tmp_path).stderr
        (tmp_path / "link").symlink_to(tmp_path)
        assert "is a directory" in invoke("flatten", path, tmp_path / "link").stderr
        for name, message in (
            (f"{tmp_path}/new/", "expected a file to write, but got a folder"),
            (tmp_path / "no" / "flat.onnx", "there is no such folder to write to"),
            (tmp_path / ("x" * 300), "File name too long"),
        ):
            error = invoke("flatten", path, name).exception
            assert isinstance(error, OSError)
            assert message in str(error)

    def test_the_model_itself_by_other_names(self, path, tmp_path):
        """Its file is not written over; names that only look alike are fine."""
        before = path.read_bytes()
        (tmp_path / "link").symlink_to(path)
        os.link(path, tmp_path / "hard")
        for output in (path, tmp_path / "link", tmp_path / "hard"):
            ends_with(2, "expected another file than the model itself", "flatten", path, output)
        with path.open("rb") as file:
            ends_with(2, "expected another file than the model itself", "flatten", "-", path, stdin=file)
        assert path.read_bytes() == before

    def test_names_with_brackets(self, path, tmp_path):
        out = tmp_path / "flat[bold].onnx"
        assert "flat[bold].onnx" in invoke("flatten", path, out, *QUICK).stdout

    def test_closed_standard_output(self, path):
        command = f"{sys.executable} -m anydml flatten {path} - --no-verify >&-"
        done = subprocess.run(command, shell=True, capture_output=True, timeout=120, text=True)
        assert (done.returncode, done.stderr) == (1, "anydml: standard output: it is closed\n")

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")
    def test_a_full_disk(self, path):
        for output in ("/dev/full", "-"):
            with open("/dev/full", "wb") as full:
                command = [sys.executable, "-m", "anydml", "flatten", str(path), output, *QUICK]
                done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120)
            assert done.returncode == 1
            assert b"no space left on device" in done.stderr.lower()
            assert b"Traceback" not in done.stderr

    def test_pages_and_pictures(self, path, tmp_path):
        page = invoke("inspect", path, "--html", "-")
        assert page.stdout.startswith("<!doctype html>")
        assert "1 If" in page.stderr
        assert (
            json.loads(invoke("inspect", path, "--html", "-", "--json").stderr.split("\n", 1)[1])["ifs"] == 1
        )
        picture = invoke("bench", path, "-i", 3, "--alone", "--plot", "-", "--json")
        assert picture.stdout_bytes.startswith(b"\x89PNG")
        assert json.loads(picture.stderr.split("\n", 1)[1])[0]["runs"] == 3
        (tmp_path / "link.svg").symlink_to("times.svg")
        assert invoke("bench", path, "-i", 3, "--alone", "--plot", tmp_path / "link.svg").exit_code == 0
        assert b"<svg" in (tmp_path / "times.svg").read_bytes()
        ends_with(2, "expected .png, .svg or .pdf", "bench", path, "--plot", "x.txt")


class TestDryRun:
    def test_all_but_writing(self, path, tmp_path):
        out = tmp_path / "flat.onnx"
        for arguments in ((), (out,)):
            done = invoke("flatten", path, *arguments, "--dry-run")
            assert done.exit_code == 0
            for told in ("converted", "verified on 24 random inputs", "nothing was written (--dry-run)"):
                assert told in done.stdout
        assert json.loads(invoke("flatten", path, "--dry-run", "--json", *QUICK).stdout)["after"]["ifs"] == 0
        assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]

    def test_what_would_go_wrong_goes_wrong(self, path, tmp_path):
        assert invoke("flatten", path, tmp_path, "--dry-run").exit_code == 2
        assert invoke("flatten", path, path, "--dry-run").exit_code == 2
        kept = invoke("flatten", path, "--dry-run", "--convert", "never", "--require-none", *QUICK)
        assert kept.exit_code == 2
        assert isinstance(invoke("flatten", path, tmp_path / "no" / "x", "--dry-run").exception, OSError)

    def test_an_output_is_needed_otherwise(self, path):
        done = invoke("flatten", path)
        assert done.exit_code == 2
        assert "Missing argument 'OUTPUT'; --dry-run does without" in done.stderr


VERBS = [
    ("flatten", ("--dry-run", *QUICK), "written"),
    ("run", FEEDS, "y: float32[1,3]"),
    ("run", ("-i", "2"), "Dispatch 'stdin.onnx': 2 iterations"),
    ("inspect", (), "1 If"),
    ("bench", ("-i", "3", "--alone"), "median"),
]


class TestModel:
    @pytest.mark.parametrize(("verb", "options", "told"), VERBS)
    def test_standard_input(self, path, verb, options, told):
        done = invoke(verb, "-", *options, input=path.read_bytes(), catch_exceptions=False)
        assert done.exit_code == 0
        assert told in done.stdout

    @pytest.mark.parametrize(("verb", "options", "told"), VERBS)
    def test_a_pipe(self, path, pipe, verb, options, told):  # noqa: F811
        """Which can be read once, though some verbs look at the model again."""
        thread = poured(pipe, path.read_bytes())
        done = invoke(verb, pipe, *options, catch_exceptions=False)
        thread.join(60)
        assert done.exit_code == 0
        assert told in done.stdout

    def test_a_dispatch_model(self, tmp_path):
        """Told from an ONNX model by how it begins; the files that it names are in the current folder."""
        text = "\ufeff \n// a comment\n" + json.dumps(dispatch_model())
        done = invoke("run", "-", input=text.encode(), catch_exceptions=False)
        assert done.stdout.splitlines()[-1] == "Resource 'Out': 1, -inf, 2, nan"
        assert invoke("bench", "-", input=b'{"a": 1}').exit_code == 2
        error = invoke("run", "-", input=b"{").exception
        assert isinstance(error, InvalidModel)
        assert "stdin.json: expected JSON" in str(error)

    def test_from_stdin_to_stdout(self, path):
        with path.open("rb") as file:
            done = shell("flatten", "-", "-", *QUICK, stdin=file)
        assert done.returncode == 0
        assert is_flat(done.stdout)

    @pytest.mark.parametrize("verb", ["run", "flatten", "inspect", "bench"])
    def test_what_is_no_file(self, tmp_path, verb):
        """At once, also where it would never end."""
        options = ("--dry-run",) if verb == "flatten" else ()
        ends_with(2, "is a directory", verb, tmp_path, *options)
        ends_with(1, "/dev/zero: expected a file or a pipe, but got a device", verb, "/dev/zero", *options)
        with open("/dev/zero", "rb") as zeros:
            message = "standard input: expected a file or a pipe, but got a device, which may never end"
            ends_with(1, message, verb, "-", *options, stdin=zeros)
        ends_with(1, "expected an ONNX model, but got", verb, "-", *options, input=b"nothing")

    def test_no_more_than_a_limit(self, monkeypatch, pipe):  # noqa: F811
        monkeypatch.setattr("anydml.cli.files.MAX_MODEL", 1000)
        thread = poured(pipe, b"x" * 1_000_000)
        for name, options in (("-", {"input": b"x" * 1001}), (pipe, {})):
            error = invoke("inspect", name, **options).exception
            assert isinstance(error, OSError)
            assert (error.errno, error.strerror) == (
                errno.EFBIG,
                "expected at most 1,000 bytes, but got more",
            )
        thread.join(60)

    def test_a_closed_standard_input(self):
        command = f"{sys.executable} -m anydml inspect - <&-"
        done = subprocess.run(command, shell=True, capture_output=True, timeout=120, text=True)
        assert (done.returncode, done.stderr) == (1, "anydml: standard input: it is closed\n")

    def test_in_python(self, tmp_path):
        with pytest.raises(IsADirectoryError, match="expected a file, but got a folder"):
            anydml.load(tmp_path)
        for source in ("/dev/zero", "/dev/null"):
            with pytest.raises(OSError, match="expected a file or a pipe, but got a device"):
                anydml.load(source)


class TestArrays:
    def of(self, path, file, verb="run"):
        """How each verb is told that x is in a file."""
        options = {"run": ("--feed", "c=true", "--feed"), "flatten": ("--dry-run", "--set")}
        return verb, path, *options.get(verb, ("-i", "2", "--alone", "--feed")), f"x=@{file}"

    @pytest.mark.parametrize("verb", ["run", "flatten", "bench"])
    def test_that_lie(self, path, tmp_path, verb):
        """One message in all verbs; nothing is allocated that is not there."""
        (tmp_path / "x.npy").write_bytes(npy(header("(100000000000,)")))
        where = {"run": "input 'x'", "flatten": "--set x", "bench": "--feed x"}[verb]
        error = invoke(*self.of(path, tmp_path / "x.npy", verb)).exception
        assert isinstance(error, InvalidInput)
        told = "its header tells float32[100000000000], 400,000,000,000 bytes, but 0 bytes follow"
        assert str(error) == f"{where}: expected a NumPy file, but got {tmp_path / 'x.npy'}: {told}"

    @pytest.mark.parametrize("verb", ["run", "flatten", "bench"])
    def test_what_is_no_file(self, path, tmp_path, verb):
        for file, message in ((tmp_path, "but got a folder"), ("/dev/zero", "but got a device")):
            error = invoke(*self.of(path, file, verb)).exception
            assert isinstance(error, InvalidInput)
            assert message in str(error)

    def test_a_pipe(self, path, pipe):  # noqa: F811
        """As the shell's <(...) gives one."""
        array = io.BytesIO()
        np.save(array, np.float32([[1, -2, 3]]))
        thread = poured(pipe, array.getvalue())
        assert "[[-1.  2. -3.]]" in invoke(*self.of(path, pipe)).stdout
        thread.join(60)

    @pytest.mark.parametrize("kind", ["lie", "folder", "device", "pipe"])
    def test_in_dispatch_models(self, tmp_path, kind):
        """Which may name regular files only: a pipe would wait for somebody to write to it."""
        sources = {"lie": "a.npy", "folder": "folder.npy", "device": "/dev/zero", "pipe": "pipe.npy"}
        (tmp_path / "a.npy").write_bytes(npy(header("(100000000000,)")))
        (tmp_path / "folder.npy").mkdir()
        os.mkfifo(tmp_path / "pipe.npy")
        resource = {"initialValues": {"sourcePath": sources[kind]}}
        parts = {"resources": {"A": resource}, "dispatchables": {}, "commands": []}
        error = invoke("run", written(tmp_path, parts)).exception
        assert isinstance(error, InvalidModel)
        told = "400,000,000,000 bytes, but 0 bytes follow" if kind == "lie" else f"' is a {kind}"
        assert told in str(error)
        assert "m.json: resources.A: initialValues.sourcePath: expected a " in str(error)


def named(tmp_path, names):
    """A model with these outputs, each of which is its number."""
    nodes = [
        helper.make_node("Constant", [], [n], value=onnx.numpy_helper.from_array(np.int64(k)))
        for k, n in enumerate(names)
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.INT64, []) for n in names]
    graph = helper.make_graph(nodes, "g", [], outputs)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opset), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


class TestOutputNames:
    def test_names_that_files_cannot_have(self, tmp_path):
        """Each output in a file of its own, all in the folder, and a line for each that says which."""
        long, wide = "x" * 1000, "ä" * 200
        names = [f"{long}1", f"{long}2", wide, f"{wide}ö", "/", "..", ".", "../../up", "a/b", "a_b", "A_B"]
        names += ["a\0b", "a\nb", "\x1b[2J", "C:\\x", "a b", "-o", "y", "y-2", "Y", "💡" * 80]
        out = tmp_path / "out"
        done = invoke("run", named(tmp_path, names), "-o", out, catch_exceptions=False)
        assert done.exit_code == 0
        lines = done.stderr.splitlines()
        files = [line.rpartition(": saved to ")[2] for line in lines]
        assert [int(np.load(file)) for file in files] == list(range(len(names)))
        assert sorted(p.name.lower() for p in out.iterdir()) == sorted(
            {os.path.basename(f).lower() for f in files}
        )
        assert len(files) == len(names)
        assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", "out"}
        assert all(line.isprintable() for line in lines)
        assert lines[8] == f"a/b: saved to {out / 'a_b.npy'}"
        assert lines[11].startswith(r"'a\x00b': saved to ")

    def test_links_that_lead_to_one_file(self, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "b.npy").symlink_to("a.npy")
        assert invoke("run", named(tmp_path, ["a", "b"]), "-o", tmp_path / "out").exit_code == 0
        assert int(np.load(tmp_path / "out" / "a.npy")) == 0
        assert int(np.load(tmp_path / "out" / "b-2.npy")) == 1

    def test_what_is_in_the_way(self, tmp_path):
        """A folder is an error, a pipe is written to."""
        model, out = named(tmp_path, ["a"]), tmp_path / "out"
        (out / "a.npy").mkdir(parents=True)
        with pytest.raises(IsADirectoryError, match=r"a\.npy"):
            invoke("run", model, "-o", out, catch_exceptions=False)
        (out / "a.npy").rmdir()
        os.mkfifo(out / "a.npy")
        thread, got = drained(out / "a.npy")
        assert invoke("run", model, "-o", out).exit_code == 0
        thread.join(60)
        assert np.load(io.BytesIO(got[0])) == 0
        ends_with(2, "is a file", "run", model, "-o", model)


def test_write_file_of_a_dispatch_model(tmp_path, monkeypatch, pipe):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.npy").symlink_to("real.npy")
    (tmp_path / "pipe.bin").symlink_to(pipe)
    commands = [
        {"type": "writeFile", "resource": "A", "targetPath": name} for name in ("link.npy", "pipe.bin")
    ]
    thread, got = drained(pipe)
    done = invoke("run", written(tmp_path, dispatch_model(commands=commands)), catch_exceptions=False)
    thread.join(60)
    assert done.exit_code == 0
    assert (tmp_path / "link.npy").is_symlink()
    assert np.load(tmp_path / "real.npy").tolist() == [1, 1.5, 2, 2.5]
    assert got == [np.float32([1, 1.5, 2, 2.5]).tobytes()]


class TestExternalData:
    """Beside the model, where there is a place beside it; else inside of it."""

    @pytest.fixture
    def stored(self, tmp_path):
        folder = tmp_path / "here"
        folder.mkdir()
        text = (
            '<ir_version: 8, opset_import: ["": 17]> m (float[3000] x) => (float[3000] y) { y = Add (x, w) }'
        )
        proto = onnx.parser.parse_model(text)
        external = TensorProto(name="w", data_type=1, dims=[3000], data_location=TensorProto.EXTERNAL)
        external.external_data.add(key="location", value="weights.bin")
        external.external_data.add(key="offset", value="4")
        proto.graph.initializer.append(external)
        (folder / "weights.bin").write_bytes(np.arange(3001, dtype=np.float32).tobytes())
        (folder / "m.onnx").write_bytes(proto.SerializeToString())
        return folder / "m.onnx"

    def runs(self, model):
        (y,) = anydml.load(model).run(None, {"x": np.zeros(3000, np.float32)})
        return y.tolist() == list(range(1, 3001))

    def test_on_standard_output(self, stored):
        done = invoke("flatten", stored, "-")
        assert done.exit_code == 0
        assert self.runs(done.stdout_bytes)

    def test_in_a_pipe(self, stored, pipe):  # noqa: F811
        thread, got = drained(pipe)
        assert invoke("flatten", stored, pipe).exit_code == 0
        thread.join(60)
        assert self.runs(got[0])
        assert [p.name for p in pipe.parent.iterdir() if p.is_file()] == []

    def test_too_much_of_it(self, stored, tmp_path, monkeypatch):
        monkeypatch.setattr("anydml.onnx.serde.serialize.MAX_MODEL", 50)
        with pytest.raises(anydml.Unsupported, match="expected at most 50 bytes for a model in one piece"):
            save(onnx.load(stored, load_external_data=False), stored.parent, io.BytesIO())

    def test_beside_what_a_link_leads_to(self, stored, tmp_path):
        (tmp_path / "there").mkdir()
        (tmp_path / "link.onnx").symlink_to("there/flat.onnx")
        assert invoke("flatten", stored, tmp_path / "link.onnx").exit_code == 0
        assert sorted(p.name for p in (tmp_path / "there").iterdir()) == ["flat.onnx", "flat.onnx.data"]
        assert self.runs(tmp_path / "link.onnx")

    def test_not_over_the_data_that_it_comes_from(self, stored, tmp_path):
        """The model's own data may have the name that the copy would get."""
        inner = stored.parent / "in"
        inner.mkdir()
        (stored.parent / "weights.bin").rename(inner / "flat.onnx.data")
        proto = onnx.load(stored, load_external_data=False)
        proto.graph.initializer[0].external_data[0].value = "in/flat.onnx.data"
        stored.write_bytes(proto.SerializeToString())
        assert invoke("flatten", stored, inner / "flat.onnx").exit_code == 0
        assert sorted(p.name for p in inner.iterdir()) == ["flat.onnx", "flat.onnx.2.data", "flat.onnx.data"]
        assert self.runs(stored)
        assert self.runs(inner / "flat.onnx")

    def test_both_files_or_neither(self, stored, tmp_path, monkeypatch):
        """An older model keeps the data that belongs to it."""
        out = tmp_path / "flat.onnx"
        assert invoke("flatten", stored, out).exit_code == 0
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
        assert set(before) == {"flat.onnx", "flat.onnx.data"}
        (stored.parent / "weights.bin").write_bytes(np.zeros(3001, np.float32).tobytes())
        made = []

        def full(folder, mode):
            made.append(folder)
            if len(made) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return new_file(folder, mode)

        new_file = files._new_file
        monkeypatch.setattr(files, "_new_file", full)
        proto = onnx.load(stored, load_external_data=False)
        with pytest.raises(OSError, match=r"No space left on device: '.*/flat.onnx'"):
            save(proto, stored.parent, out)
        assert len(made) == 2
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before


def test_errors_are_told_in_one_line(tmp_path, monkeypatch, capsys):
    """The file first, as all messages do."""
    monkeypatch.setattr(sys, "argv", ["anydml", "inspect", "/dev/zero"])
    with pytest.raises(SystemExit):
        main()
    expected = "anydml: /dev/zero: expected a file or a pipe, but got a device, which may never end\n"
    assert capsys.readouterr().err == expected


def test_a_reader_of_a_model_that_has_seen_enough(path):
    """As `anydml flatten model.onnx - | head -c 1`."""
    command = f"{sys.executable} -m anydml flatten {path} - --no-verify | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        [command], shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
