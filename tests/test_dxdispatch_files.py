"""DxDispatch models: pictures, deferred buffers, verbose printing, and what the command line overrides."""

import json
import time

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from PIL import Image

from anydml.cli.main import cli
from anydml.dxdispatch.model import DispatchModel
from anydml.dxdispatch.timing import DispatchTiming
from anydml.errors import ExecutionFailed, InvalidModel


def identity(size, dtype="FLOAT32"):
    """The operator that copies."""
    tensor = {"DataType": dtype, "Sizes": [size]}
    return {
        "type": "DML_OPERATOR_ELEMENT_WISE_IDENTITY",
        "desc": {"InputTensor": tensor, "OutputTensor": tensor},
    }


def run(tmp_path, *, resources=(), dispatchables=(), commands=(), **options):
    path = tmp_path / "m.json"
    parts = {
        "resources": dict(resources),
        "dispatchables": dict(dispatchables),
        "commands": list(commands),
    }
    path.write_text(json.dumps(parts))
    model = DispatchModel(path, **options)
    said = []
    model.run(said.append)
    return model, said[1:]


def wrong(tmp_path, message, **parts):
    with pytest.raises(InvalidModel, match=message):
        run(tmp_path, **parts)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two pixels wide, one high: red, then half a blue, half transparent."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.uint8([[[255, 0, 0, 255], [0, 0, 128, 127]]])).save(tmp_path / "two.png")
    Image.new("RGB", (64, 48), (10, 200, 30)).save(tmp_path / "green.jpg")
    return tmp_path


def picture(name, dtype="FLOAT32", **more):
    return {"initialValuesDataType": dtype, "initialValues": {"sourcePath": name}, **more}


class TestPictures:
    @pytest.mark.parametrize(("dtype", "full"), [("FLOAT32", 255), ("FLOAT16", 255), ("UINT8", 1)])
    def test_read(self, folder, dtype, full):
        """Planes one after the other; floats from 0 to 1."""
        model, _ = run(folder, resources={"P": picture("two.png", dtype)})
        values = model.resources["P"].values
        expected = np.array([[255, 0], [0, 0], [0, 128], [255, 127]]).reshape(1, 4, 1, 2) / full
        assert values.shape == (1, 4, 1, 2)
        assert np.allclose(values, expected, atol=1e-3)

    def test_resampled(self, folder):
        more = {"resampleSize": [1, 3, 20, 10], "resampleMode": "scale"}
        model, _ = run(folder, resources={"P": picture("green.jpg", **more)})
        values = model.resources["P"].values
        assert values.shape == (1, 3, 20, 10)
        assert np.allclose(values * 255, np.array([10, 200, 30]).reshape(1, 3, 1, 1), atol=2)
        grey, _ = run(folder, resources={"P": picture("green.jpg", resampleSize=[1, 1, 4, 4])})
        assert np.allclose(grey.resources["P"].values * 255, 0.299 * 10 + 0.587 * 200 + 0.114 * 30, atol=2)

    @pytest.mark.parametrize("suffix", [".png", ".jpg"])
    def test_written_as_read(self, folder, suffix):
        """By an operator's result, in the dimensions that the command gives."""
        source = "green.jpg"
        run(
            folder,
            resources={
                "P": picture(source),
                "Out": {
                    "initialValuesDataType": "FLOAT32",
                    "initialValues": {"valueCount": 9216, "value": 0},
                },
            },
            dispatchables={"copy": identity(9216)},
            commands=[
                {
                    "type": "dispatch",
                    "dispatchable": "copy",
                    "bindings": {"InputTensor": "P", "OutputTensor": "Out"},
                },
                {
                    "type": "writeFile",
                    "resource": "Out",
                    "targetPath": f"deep/er/out{suffix}",
                    "dimensions": [1, 3, 48, 64],
                },
            ],
        )
        with Image.open(f"deep/er/out{suffix}") as out, Image.open(source) as given:
            assert out.size == (64, 48)
            assert np.allclose(
                np.asarray(out, int), np.asarray(given, int), atol=0 if suffix == ".png" else 3
            )

    def test_values_beyond_a_pixel(self, folder):
        values = ["nan", -3, 0.5, 7]
        parts = {"resources": {"P": {"initialValuesDataType": "FLOAT16", "initialValues": values}}}
        command = {"type": "writeFile", "resource": "P", "targetPath": "p.png", "dimensions": [1, 1, 2, 2]}
        run(folder, **parts, commands=[command])
        with Image.open("p.png") as image:
            assert np.asarray(image).tolist() == [[0, 0], [128, 255]]

    @pytest.mark.parametrize(
        ("resource", "message"),
        [
            (picture("two.png", "INT32"), "initialValuesDataType: expected FLOAT32, FLOAT16"),
            (picture("two.png", "UNKNOWN"), "expected the data type of 'two.png'"),
            (picture("two.png", resampleSize=[1, 2, 4, 4]), r"resampleSize: expected \[1, channels"),
            (picture("two.png", resampleSize=[3, 4]), r"resampleSize: expected \[1, channels"),
            (picture("two.png", resampleSize=[1, 3, -1, 4]), "resampleSize: expected four sizes"),
            (
                picture("two.png", resampleSize=[1, 3, 10**9, 10**9]),
                "resampleSize: expected a reasonable size",
            ),
            (picture("two.png", resampleMode="crop"), "resampleMode: expected \"scale\", but got 'crop'"),
            (picture("broken.png"), "expected a picture, but 'broken.png' cannot be read"),
        ],
    )
    def test_what_is_no_picture(self, folder, resource, message):
        (folder / "broken.png").write_bytes((folder / "two.png").read_bytes()[:-30])
        wrong(folder, message, resources={"P": resource})

    def test_a_picture_too_large_to_be_meant(self, folder, monkeypatch):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
        wrong(folder, "cannot be read", resources={"P": picture("green.jpg")})

    @pytest.mark.parametrize(
        ("target", "dimensions", "dtype", "message"),
        [
            ("p.png", None, "FLOAT32", r"dimensions: expected \[1, channels .* but got \[16\]"),
            ("p.png", [1, 2, 2, 4], "FLOAT32", "dimensions: expected"),
            ("p.png", [1, 3, 4, 4], "FLOAT32", "dimensions: expected at most 16 elements"),
            ("p.npy", [5, 5], "FLOAT32", "dimensions: expected at most 16 elements"),
            ("p.npy", [5, "a"], "FLOAT32", "dimensions: expected sizes"),
            ("p.jpg", [1, 4, 2, 2], "FLOAT32", "JPEG has no transparency"),
            ("p.png", [1, 1, 4, 4], "INT64", "resource: expected FLOAT32, FLOAT16"),
        ],
    )
    def test_what_cannot_be_written(self, folder, target, dimensions, dtype, message):
        resource = {"initialValuesDataType": dtype, "initialValues": {"valueCount": 16, "value": 0}}
        command = {"type": "writeFile", "resource": "P", "targetPath": target, "dimensions": dimensions}
        wrong(folder, message, resources={"P": resource}, commands=[command])
        assert not (folder / target).exists()


def test_dimensions_of_an_array_file(folder):
    resource = {
        "initialValuesDataType": "INT16",
        "initialValues": {"valueCount": 6, "valueStart": 0, "valueDelta": 1},
    }
    commands = [
        {"type": "writeFile", "resource": "P", "targetPath": "a.npy", "dimensions": [2, 3]},
        {"type": "writeFile", "resource": "P", "targetPath": "b.npy"},
    ]
    run(folder, resources={"P": resource}, commands=commands)
    assert np.load("a.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.load("b.npy").tolist() == [0, 1, 2, 3, 4, 5]


def test_values_that_begin_later(tmp_path):
    resource = {
        "initialValuesDataType": "FLOAT32",
        "initialValues": [1, 2],
        "initialValuesOffsetInBytes": 8,
        "sizeInBytes": 20,
    }
    out = {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 5, "value": 9}}
    model, said = run(
        tmp_path,
        resources={"P": resource, "Out": out},
        dispatchables={"copy": identity(5)},
        commands=[
            {"type": "print", "resource": "P"},
            {
                "type": "dispatch",
                "dispatchable": "copy",
                "bindings": {"InputTensor": "P", "OutputTensor": "Out"},
            },
        ],
    )
    assert said[0] == "Resource 'P': 1, 2"
    assert model.resources["Out"].values.tolist() == [0, 0, 1, 2, 0]
    wrong(
        tmp_path, "sizeInBytes: expected a number from 16 on", resources={"P": resource | {"sizeInBytes": 12}}
    )
    wrong(tmp_path, "OffsetInBytes: expected", resources={"P": resource | {"initialValuesOffsetInBytes": -4}})


def test_verbose_print(tmp_path):
    resources = {
        "F": {"initialValuesDataType": "FLOAT32", "initialValues": [6, -2, "nan"]},
        "I": {"initialValuesDataType": "INT8", "initialValues": [1, -1] * 6},
        "H": {"initialValuesDataType": "FLOAT16", "initialValues": [1.5]},
    }
    commands = [{"type": "print", "resource": name, "verbose": True} for name in resources]
    _, said = run(tmp_path, resources=resources, commands=commands)
    assert said[:4] == ["Resource 'F':", "[0] 6 (0x40C00000)", "[1] -2 (0xC0000000)", "[2] nan (0x7FC00000)"]
    assert said[4:7] == ["Resource 'I':", "[ 0] 1 (0x01)", "[ 1] -1 (0xFF)"]
    assert said[-2:] == ["Resource 'H':", "[0] 1.5 (0x3E00)"]
    wrong(
        tmp_path,
        "verbose: expected true or false",
        resources=resources,
        commands=[{"type": "print", "resource": "F", "verbose": 1}],
    )


def test_a_tensor_owned_by_its_operator(tmp_path):
    """Its bindings may stand with the dispatchable, which is initialized before the first command."""
    operator = identity(3)
    operator["desc"]["InputTensor"] = operator["desc"]["InputTensor"] | {"Flags": "OWNED_BY_DML"}
    operator["bindings"] = {"InputTensor": "A"}
    resources = {
        "A": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3]},
        "Out": {"initialValuesDataType": "FLOAT32", "initialValues": [0, 0, 0]},
    }
    commands = [
        {"type": "dispatch", "dispatchable": "copy", "bindings": {"OutputTensor": "Out"}},
        {"type": "print", "resource": "Out"},
    ]
    _, said = run(tmp_path, resources=resources, dispatchables={"copy": operator}, commands=commands)
    assert said[-1] == "Resource 'Out': 1, 2, 3"
    operator["bindings"] = {"InputTensor": "B"}
    wrong(
        tmp_path,
        r"dispatchables\.copy\.bindings\.InputTensor\.name: expected the name",
        resources=resources,
        dispatchables={"copy": operator},
        commands=commands,
    )


# ---- ONNX models ----------------------------------------------------------------------------------------


@pytest.fixture
def network(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17]> m (float[N] x) => (float[M] y, bool[N] z) {
        y = Concat <axis = 0> (x, x)
        zero = Constant <value_float = 0.0> ()
        z = Greater (x, zero) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "net.onnx")
    return {"net": {"type": "onnx", "sourcePath": "net.onnx"}}


RESOURCES = {
    "X": {"initialValuesDataType": "FLOAT32", "initialValues": [1, -2, 3]},
    "Y": {"initialValues": "deferred"},
    "Z": {"initialValues": "deferred"},
}


def test_deferred_results(tmp_path, network, monkeypatch):
    """A deferred buffer takes the size that the model's result has."""
    monkeypatch.chdir(tmp_path)
    commands = [
        {
            "type": "dispatch",
            "dispatchable": "net",
            "bindings": {"x": {"name": "X", "shape": [3]}, "y": "Y", "z": "Z"},
        },
        {"type": "print", "resource": "Y"},
        {"type": "print", "resource": "Z"},
        {"type": "writeFile", "resource": "Y", "targetPath": "y.npy"},
    ]
    _, said = run(tmp_path, resources=RESOURCES, dispatchables=network, commands=commands)
    assert said[1:3] == ["Resource 'Y': 1, -2, 3, 1, -2, 3", "Resource 'Z': 1, 0, 1"]
    assert np.load("y.npy").tolist() == [1, -2, 3, 1, -2, 3]
    with pytest.raises(ExecutionFailed, match="resource 'Y': expected a command that wrote it"):
        run(tmp_path, resources=RESOURCES, dispatchables=network, commands=commands[1:])


def test_deferred_buffers_are_for_results(tmp_path, network):
    command = {"type": "dispatch", "dispatchable": "net", "bindings": {"x": "Y"}}
    parts = {"resources": RESOURCES, "dispatchables": network, "commands": [command]}
    wrong(tmp_path, "x: expected a buffer, but it is deferred", **parts)
    command = {"type": "dispatch", "dispatchable": "c", "bindings": {"InputTensor": "X", "OutputTensor": "Y"}}
    parts = {"resources": RESOURCES, "dispatchables": {"c": identity(3)}, "commands": [command]}
    wrong(tmp_path, "OutputTensor: expected a buffer, but it is deferred", **parts)


def test_the_command_line_comes_first(tmp_path, network):
    network["net"]["freeDimensionNameOverrides"] = {"N": 7}
    bindings = {"x": {"name": "X", "shape": [5]}, "y": "Y"}
    commands = [
        {"type": "dispatch", "dispatchable": "net", "bindings": bindings},
        {"type": "print", "resource": "Y"},
    ]
    parts = {"resources": RESOURCES, "dispatchables": network, "commands": commands}
    _, said = run(tmp_path, **parts, dims={"N": 2}, shapes={"x": [2]})
    assert said[-1] == "Resource 'Y': 1, -2, 1, -2"


def shell(*arguments):
    return CliRunner().invoke(cli, ["run", *map(str, arguments)])


def test_an_onnx_model_alone(tmp_path, network):
    """Given DxDispatch's options, it is dispatched on zeros."""
    path = tmp_path / "net.onnx"
    done = shell(path, "-b", "x:4", "-i", 3)
    assert done.exit_code == 0
    assert "Dispatch 'net.onnx': 3 iterations, " in done.stdout
    assert "expected an input or output of the model, but" not in done.stdout
    assert "expected 12 bytes" not in shell(path, "-f", "N:3", "-v", 1).stdout
    assert "y: float32[6]" in shell(path, "-f", "N:3", "--feed", "x=[1, 2, 3]").stdout
    with pytest.raises(InvalidModel, match="q: expected an input or output"):
        CliRunner().invoke(cli, ["run", str(path), "-b", "q:4"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-b", "x=4"], "expected NAME:N,N,..., but got 'x=4'"),
        (["-f", "x=4"], "inputs are given by --feed NAME=VALUE"),
        (["-f", "N:1,2"], "-f N: expected one number"),
        (["-i", "2", "--feed", "x=1"], "--feed: not with -b to -v"),
        (["-i", "2", "--threads", "1"], "ANYDML_NUM_THREADS"),
    ],
)
def test_options_that_make_no_sense(tmp_path, network, options, message):
    done = shell(tmp_path / "net.onnx", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())


def test_interval(tmp_path):
    out = {"initialValuesDataType": "FLOAT32", "initialValues": [0]}
    command = {"type": "dispatch", "dispatchable": "c", "bindings": {"InputTensor": "A", "OutputTensor": "B"}}
    start = time.perf_counter()
    timing = DispatchTiming(dispatch_iterations=4, dispatch_interval=30)
    run(
        tmp_path,
        resources={"A": out, "B": out},
        dispatchables={"c": identity(1)},
        commands=[command],
        timing=timing,
    )
    assert time.perf_counter() - start > 0.09  # three pauses, which are no measurement but a promise


class TestWhereFilesAreWritten:
    """A model may come from a stranger: it writes to one folder, whatever it says."""

    PARTS = {"resources": {"A": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2]}}}  # noqa: RUF012

    def parts(self, target):
        return self.PARTS | {"commands": [{"type": "writeFile", "resource": "A", "targetPath": target}]}

    @pytest.mark.parametrize("inside", [None, "out"])
    @pytest.mark.parametrize(
        "target", ["../precious.txt", "deep/../../precious.txt", "{above}/precious.txt", "link/x"]
    )
    def test_outside(self, folder, inside, target):
        place = folder / "here"
        (place / "out").mkdir(parents=True)
        (folder / "precious.txt").write_text("kept")
        for at in (place, place / "out"):
            (at / "link").symlink_to(folder)
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(place)
            output = None if inside is None else place / inside
            with pytest.raises(
                InvalidModel, match="targetPath: expected a file in the folder that is written to"
            ):
                run(place, output_path=output, **self.parts(target.format(above=folder)))
        assert (folder / "precious.txt").read_text() == "kept"
        assert not (folder / "x").exists()

    @pytest.mark.parametrize("target", ["a.npy", "deep/er/a.npy", "deep/../a.npy", "{here}/a.npy"])
    def test_inside(self, folder, target):
        target = target.format(here=folder / "out")
        run(folder, output_path=folder / "out", **self.parts(target))
        assert np.load(folder / "out" / target).tolist() == [1, 2]
