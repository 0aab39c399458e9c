"""Rows that lie beside each other: every width and length, within a margin, by several threads."""

import numpy as np
import pytest

import anydml as dml
from anydml.codegen import kernel, kernel_body
from anydml.codegen.jit import assembly
from anydml.codegen.target import PROCESSORS
from anydml.runtime.reference import run_reference

WIDTHS = [8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 200, 515]
RESULTS = {
    "softmax": lambda x, a: dml.activation_softmax1(x, axes=a),
    "log_softmax": lambda x, a: dml.activation_log_softmax1(x, axes=a),
    "hardmax": lambda x, a: dml.activation_hardmax1(x, axes=a),
    "a group": lambda x, a: dml.activation_softmax1(x * 2.0, axes=a) + dml.abs(x),
}


@pytest.fixture(params=["alone", "shared"], autouse=True)
def sharing(request, share_all_work):
    if request.param == "shared":
        share_all_work()


def numbers(shape, dtype="float32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype) * 4
    x.reshape(-1)[:: 1 + x.size // 9] = [np.inf, -np.inf, np.nan, 3e4, -3e4, 0][x.size % 6]
    return x


def graph_of(function, x, axes):
    g = dml.GraphBuilder()
    graph = g.compile({"y": function(g.input("x", x.dtype.name.upper(), x.shape), axes)})
    for step in graph._plan.steps:
        step.group.rows.clear()
    return graph


def wanted(graph, x):
    y = np.zeros_like(x)
    with np.errstate(all="ignore"):
        run_reference(graph._graph, [x], [y])
    return y


def in_columns(graph):
    return [shape.columns for step in graph._plan.steps for shape in step.group.rows]


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.drawn
def test_every_width(name, width, dtype):
    for sizes, axes in (((3, 5, width), [1]), ((2, 40, 3, width), [0, 2]), ((130, width), [0])):
        x = numbers(sizes, dtype)
        graph = graph_of(RESULTS[name], x, axes)
        np.testing.assert_array_equal(graph({"x": x})["y"], wanted(graph, x))
        assert any(in_columns(graph))


@pytest.mark.parametrize("name", ["softmax", "hardmax"])
@pytest.mark.parametrize("width", [9, 40, 70, 300])
def test_nothing_beside_the_columns_is_touched(name, width):
    """Lines with gaps between them, in an array with a margin."""
    x = numbers((3, 7, width))
    tensor = {"DataType": "FLOAT32", "Sizes": [1, 3, 7, width]}
    pitch = width + 3
    gaps = tensor | {"Strides": [21 * pitch, 7 * pitch, pitch, 1]}
    form = {"InputTensor": tensor, "OutputTensor": gaps, "Axes": [2]}
    device = dml.Device()
    desc = {"Type": f"ACTIVATION_{name.upper()}1", "Desc": form}
    operator = device.compile_operator(device.create_operator(desc))
    memory = np.full(21 * pitch + 64, 7, np.float32)
    operator.bind({"InputTensor": x[None]}, {"OutputTensor": memory[32:-32]}).dispatch()
    got = memory[32:-32].reshape(3, 7, pitch)
    np.testing.assert_array_equal(got[..., :width], RESULTS[name](x, [1]))
    assert (got[..., width:] == 7).all()
    assert (memory[:32] == 7).all()
    assert (memory[-32:] == 7).all()


@pytest.mark.parametrize("width", [16, 33, 200])
def test_operands_that_are_the_same_across_columns(width):
    """A factor for each column's element, and one for each column."""
    x, down, across = numbers((30, width), seed=1), numbers((30, 1), seed=2), numbers((1, width), seed=3)

    def function(x, axes):
        return dml.activation_softmax1(x * np.broadcast_to(down, x.sizes), axes=axes) * np.broadcast_to(
            across, x.sizes
        )

    graph = graph_of(function, x, [0])
    np.testing.assert_array_equal(graph({"x": x})["y"], wanted(graph, x))


def test_where_the_input_is_to_stand():
    """The output is the input's memory: nothing is held there."""
    x = numbers((50, 70), seed=4)
    graph = graph_of(RESULTS["softmax"], x, [0])
    y = wanted(graph, x)
    np.testing.assert_array_equal(dml.activation_softmax1(x, axes=[0], out=x), y)


def test_bodies_for_other_processors():
    """LLVM takes them for every processor that there are targets of."""
    x = numbers((30, 70))
    graph = graph_of(RESULTS["log_softmax"], x, [0])
    graph({"x": x})
    (group,) = [step.group for step in graph._plan.steps]
    (variant,) = [v for v in group.rows if v.columns]
    for name, target in PROCESSORS.items():
        text = kernel_body.kernel_body(group, variant, target)
        assert "row" in assembly(text, name)


def test_few_columns_are_rows():
    x = numbers((600, kernel.MIN_COLUMNS - 1))
    graph = graph_of(RESULTS["softmax"], x, [0])
    np.testing.assert_array_equal(graph({"x": x})["y"], wanted(graph, x))
    assert not any(in_columns(graph))
