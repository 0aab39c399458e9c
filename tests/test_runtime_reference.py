"""Three readings of a record agree: kernel, NumPy reference, and a formula written here."""

import numpy as np
import pytest

import anydml as dml
from anydml.directml.descriptions import read_desc, to_graph
from anydml.runtime.reference import empty_buffer, run_reference


@pytest.mark.parametrize("strides", [None, [1, 3], [0, 1], [8, 2]])
def test_reference_and_kernel_agree_on_strided_tensors(strides):
    rng = np.random.default_rng(0)
    a = {"DataType": "INT16", "Sizes": [4, 3], "Strides": strides}
    plain = {"DataType": "INT16", "Sizes": [4, 3], "Strides": [1, 4]}
    desc = {
        "Type": "ELEMENT_WISE_IF",
        "ConditionTensor": {"DataType": "UINT8", "Sizes": [4, 3]},
        "ATensor": a,
        "BTensor": plain,
        "OutputTensor": plain,
    }
    checked, problems = read_desc(desc, dml.FeatureLevel.FL_5_0)
    assert not problems
    graph = to_graph(checked)
    buffers = {v.name: empty_buffer(v) for v in (*graph.inputs, *graph.outputs)}
    for value in graph.inputs:
        buffers[value.name][:] = rng.integers(0, 3, buffers[value.name].size)
    run_reference(graph, *([buffers[v.name] for v in ends] for ends in (graph.inputs, graph.outputs)))
    expected = buffers["OutputTensor"].copy()
    buffers["OutputTensor"][:] = -1
    device = dml.Device()
    compiled = device.compile_operator(device.create_operator(desc))
    compiled.dispatch(
        {k: v for k, v in buffers.items() if k != "OutputTensor"}, {"OutputTensor": buffers["OutputTensor"]}
    )
    assert (buffers["OutputTensor"] == expected).all()
    c = buffers["ConditionTensor"].reshape(4, 3)
    row, column = strides or [3, 1]
    for i in range(4):
        for j in range(3):
            source = buffers["ATensor"][i * row + j * column] if c[i, j] else buffers["BTensor"][i + 4 * j]
            assert buffers["OutputTensor"][i + 4 * j] == source
