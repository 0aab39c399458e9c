"""The cases of the onnx package's own test suite that are one node, computed by rules."""

import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

from anydml.ir.graph import Node, OnnxOp, Value
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.fold import fold, has_rule
from anydml.onnx.ops.opinfo import NotFoldable
from tests.onnx.ops.checking import assert_same

LEFT_OPEN = re.compile(
    # floats that parts of a byte do not have, which saturate here, and are undefined by ONNX's text
    r"test_cast(like)?_(e8m0_)?FLOAT(16)?_to_(UINT4|INT4|FLOAT4E2M1|UINT2|INT2|FLOAT8E8M0)(_\w+)?"
    r"|test_(de)?quantizelinear_float4e2m1"
    r"|test_(batchnorm|training_dropout|lstm|gru|rnn|simple_rnn)_?\w*"
    r"|test_convtranspose_(autopad_same|output_shape)|test_maxpool_with_argmax_2d_precomputed_strides"
    r"|test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True"
    r"|test_resize_\w*(cubic|antialias|tf_crop|scales_linear|not_smaller)\w*"
)


def content(given):
    """What the suite has as rules know it."""
    if isinstance(given, list | tuple):
        return [content(x) for x in given]
    if isinstance(given, onnx.TensorProto):
        given = numpy_helper.to_array(given)
    return None if given is None else text(np.asarray(given))


def text(array):
    """Strings as str."""
    if array.dtype.kind not in "OSU":
        return array
    found = [t.decode() if isinstance(t, bytes) else t for t in array.reshape(-1).tolist()]
    return np.array(found, object).reshape(array.shape)


def cases():
    """For each its name, the node, its inputs and outputs."""
    with np.errstate(all="ignore"):
        suite = collect_testcases(None)
    for case in suite:
        graph = case.model.graph
        version = next((o.version for o in case.model.opset_import if not o.domain), 0)
        proto = graph.node[0]
        if len(graph.node) != 1 or proto.domain or not has_rule(OnnxOp("", proto.op_type, version)):
            continue
        if OPS[proto.op_type].draws:
            continue
        node = Node(
            OnnxOp("", proto.op_type, version),
            tuple(Value(name) if name else None for name in proto.input),
            tuple(Value(name) if name else None for name in proto.output),
            {a.name: a for a in proto.attribute},
        )
        for inputs, outputs in case.data_sets:
            given = dict(zip((v.name for v in graph.input), inputs, strict=True))
            yield case.name, node, [given.get(name) for name in proto.input], outputs


def wrong(node, inputs, outputs):
    """What is wrong with a rule's outputs, if anything."""
    found = fold(node, [content(x) for x in inputs])
    results = [x for x, value in zip(found, node.outputs, strict=True) if value is not None]
    for k, (a, b) in enumerate(zip(results, outputs, strict=True)):
        try:
            same(a, content(b), f"output {k}")
        except AssertionError as error:
            return str(error)
    return None


def same(found, expected, what):
    """Exact but for floats, whose sums the suite has in another order, or printed with five digits."""
    if isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=what)
    else:
        assert_same(found, expected, 0, what)


@pytest.mark.filterwarnings("ignore")
def test_the_suite_of_the_onnx_package():
    """All at once: to make the suite takes longer than to compute it."""
    problems, right, left_open = {}, set(), set()
    for name, node, inputs, outputs in cases():
        try:
            problem = wrong(node, inputs, outputs)
        except NotFoldable:
            left_open.add(name)
            continue
        if problem is None:
            right.add(name)
        else:
            problems[name] = problem
    assert not problems
    assert {name for name in left_open if not LEFT_OPEN.fullmatch(name)} == set()
    assert len(right) > 1000
