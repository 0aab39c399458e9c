"""Row functions that reduce: row lengths around blocks and batches, held values, streaming stores."""

import numpy as np
import pytest

import anydml as dml
from anydml.codegen import kernel
from anydml.codegen.group import Access, Hold, KernelVariant
from anydml.codegen.jit import host
from anydml.codegen.stages import lanes_of
from anydml.ops import angles, elementary
from anydml.ops.activation import ACTIVATION_LOG_SOFTMAX, ACTIVATION_SOFTMAX
from anydml.ops.dtypes import FLOAT32
from anydml.ops.expr import read
from anydml.runtime.reference import run_reference

LENGTHS = [1, 2, 5, 16, 31, 32, 33, 64, 77, 128, 511, 512, 600, 1024, 1030, 5000, 40_000]
RESULTS = {
    "softmax": dml.activation_softmax,
    "log_softmax": dml.activation_log_softmax,
    "hardmax": dml.activation_hardmax,
    "a group": lambda x: dml.activation_softmax(x * 2.0) + dml.abs(x),
}


def compiled(function, shape, dtype="float32"):
    g = dml.GraphBuilder()
    x = g.input("x", dtype.upper(), shape)
    return g.compile({"y": function(x)})


def shapes_of(graph):
    return [shape for step in graph._plan.steps for shape in step.group.rows]


def wanted(graph, x):
    y = np.zeros_like(x)
    with np.errstate(all="ignore"):
        run_reference(graph._graph, [x], [y])
    return y


def numbers(shape, dtype="float32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape).astype(dtype) * 4
    x.reshape(-1)[:: 1 + x.size // 5] = [np.inf, -np.inf, np.nan, 3e4, -3e4, 0][x.size % 6]
    return x


@pytest.mark.drawn
@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_row_lengths(name, length, dtype):
    """19 rows: a batch and a part of one, where rows are short."""
    x = numbers((19, length), dtype)
    graph = compiled(RESULTS[name], x.shape, dtype)
    np.testing.assert_array_equal(graph({"x": x})["y"], wanted(graph, x))


@pytest.mark.parametrize("length", [5, 64, 77, 600, 40_000])
def test_nothing_beyond_the_rows_is_touched(length):
    """Rows with gaps between them, in an array with a margin."""
    x = numbers((4, 5, length))
    tensor = {"DataType": "FLOAT32", "Sizes": [1, 4, 5, length]}
    pitch = length + 3
    gaps = tensor | {"Strides": [20 * pitch, 5 * pitch, pitch, 1]}
    desc = {"Type": "ACTIVATION_SOFTMAX1", "Desc": {"InputTensor": tensor, "OutputTensor": gaps, "Axes": [3]}}
    device = dml.Device(threads=1)
    operator = device.compile_operator(device.create_operator(desc))
    memory = np.full(20 * pitch + 64, 7, np.float32)
    inside = memory[32 : 32 + 20 * pitch]
    operator.bind({"InputTensor": x[None]}, {"OutputTensor": inside}).dispatch()
    got = inside.reshape(4, 5, pitch)
    np.testing.assert_array_equal(got[..., :length], dml.activation_softmax1(x, axes=[2]))
    assert (got[..., length:] == 7).all()
    assert (memory[:32] == 7).all()
    assert (memory[-32:] == 7).all()


STREAMED = [(length, 0, True) for length in (64, 80, 1040, 32_768)]
"""Lengths of rows, how many elements behind a cache line they begin, and whether they stream as they are."""
STAGED = [(length, 0, False) for length in (1, 2, 5, 77, 1030)]
STAGED += [(length, shift, False) for length in (1, 3, 24, 64, 100, 1024, 16_384) for shift in (1, 4, 15)]
"""These stream by way of the stack."""
HELD = [(40_000, 0, None), (32_768, 4, None)]
"""These are too long for it."""


@pytest.mark.drawn
@pytest.mark.parametrize(("length", "shift", "direct"), [*STREAMED, *STAGED, *HELD])
@pytest.mark.parametrize("name", RESULTS)
def test_streaming(monkeypatch, name, length, shift, direct):
    """Rows are streamed if all begin on a vector, or follow each other, and if the stack can hold them."""
    monkeypatch.setattr(kernel, "MIN_STREAMED_BYTES", 0)
    x = numbers((19, length), seed=1)
    graph = compiled(RESULTS[name], x.shape)
    for step in graph._plan.steps:
        step.group.rows.clear()
    memory = np.full(x.size + 64, 7, np.float32)
    start = -memory.ctypes.data // 4 % 16 + 16 + shift
    y = memory[start : start + x.size].reshape(x.shape)
    graph.bind({"x": x}, {"y": y}).dispatch()
    np.testing.assert_array_equal(y, wanted(graph, x))
    assert (memory[:start] == 7).all()
    assert (memory[start + x.size :] == 7).all()
    host = kernel.host()
    staged = direct is False and host.streams and host.masks
    assert [s.stream for s in shapes_of(graph)] == [bool(direct and host.streams) or staged]
    assert [s.staged for s in shapes_of(graph)] == [staged]


def test_streaming_of_rows_with_gaps(monkeypatch):
    """Of rows that do not follow each other none is written beyond."""
    monkeypatch.setattr(kernel, "MIN_STREAMED_BYTES", 0)
    test_nothing_beyond_the_rows_is_touched(77)


@pytest.mark.parametrize(("length", "vectors"), [(1, 1), (16, 1), (40, 3), (77, 5), (197, 13), (250, 16)])
def test_rows_in_registers(length, vectors):
    """Where a vector is 64 bytes long; of shorter ones fewer go."""
    graph = compiled(RESULTS["softmax"], (7, length))
    for step in graph._plan.steps:
        step.group.rows.clear()
    x = numbers((7, length))
    np.testing.assert_array_equal(graph({"x": x})["y"], wanted(graph, x))
    host = kernel.host()
    if host.masks and host.vector_bytes == 64:
        assert [s.registers for s in shapes_of(graph)] == [vectors]
    elif host.masks:
        assert [s.registers for s in shapes_of(graph)] == [n if (n := -(-length // 8)) <= 4 else 0]


def test_where_values_are_held():
    for length, near in ((64, True), (40_000, False)):
        graph = compiled(RESULTS["softmax"], (3, length))
        for step in graph._plan.steps:
            step.group.rows.clear()
        graph({"x": numbers((3, length))})
        (shape,) = shapes_of(graph)
        assert shape.hold is (Hold.SCRATCH if near and kernel.host().scratch else Hold.OUTPUT)


def test_joint_axes_that_do_not_collapse():
    x = numbers((6, 5, 70))
    g = dml.GraphBuilder()
    e = g.input("x", "FLOAT32", x.shape)
    graph = g.compile({"y": dml.activation_softmax1(e, axes=[0, 2])})
    np.testing.assert_array_equal(graph({"x": x})["y"], wanted(graph, x))


@pytest.mark.parametrize("most", [0, 1e10, 3e38, -3e38])
def test_log_softmax_beside_a_large_maximum(most):
    """The sum's logarithm is not lost in it."""
    got = dml.activation_log_softmax(np.full((3, 8), most, np.float32))
    np.testing.assert_allclose(got, -np.log(8), rtol=1e-6)


@pytest.mark.parametrize(
    ("scalar", "vectors"),
    [
        (angles.sin, 2),  # which is reduced by integers of 64 bits, within the function
        (elementary.exp, 4),
        (ACTIVATION_SOFTMAX.scalar, 4),  # sums are wide, but a number for each row
        (ACTIVATION_LOG_SOFTMAX.scalar, 4),
    ],
)
def test_vectors_of_a_block(scalar, vectors):
    """Two where elements are of 64 bits on the way, or registers would not do; four else."""
    spec = kernel.group((FLOAT32,), (scalar(read(0, FLOAT32)),))
    variant = KernelVariant((Access.PACKED, Access.PACKED), False)
    assert lanes_of(spec, variant, host()) == vectors * host().vector_bytes // 4
