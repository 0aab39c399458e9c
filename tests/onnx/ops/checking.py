"""One node computed by its operator's rule, and by onnxruntime without its optimisations."""

from functools import cache, partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from anydml.ir.graph import Node, OnnxOp, SequenceType, TensorType, Type, Value
from anydml.onnx.ops.fold import fold
from anydml.onnx.ops.opinfo import NodeFailed, NotFoldable
from anydml.onnx.providers.onnxruntime import newest_opset
from anydml.onnx.types import dtype_name, to_proto


@cache
def newest() -> int:
    """The newest opset that onnxruntime knows."""
    return newest_opset()


def strings(*texts: Any) -> np.ndarray:
    """A tensor of strings."""
    return np.array(texts, object)


def folded(op: str, inputs, version: int | None = None, outputs=1, **attributes) -> list[Any]:
    """What the rule says. `outputs`: how many, or for each whether it is wanted."""
    inputs = _tensors(inputs)
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    node = Node(
        OnnxOp("", op, version or newest()),
        tuple(None if x is None else Value(f"x{k}", _type(x)) for k, x in enumerate(inputs)),
        tuple(Value(f"y{k}") if there else None for k, there in enumerate(wanted)),
        {a.name: a for a in helper.make_node(op, [], [], **attributes).attribute},
    )
    return fold(node, inputs)


def computed(op: str, inputs, version: int | None = None, outputs=1, **attributes) -> list[Any]:
    """What onnxruntime says, None for outputs that are not wanted."""
    inputs = _tensors(inputs)
    wanted = [True] * outputs if isinstance(outputs, int) else outputs
    names = ["" if x is None else f"x{k}" for k, x in enumerate(inputs)]
    results = [f"y{k}" if there else "" for k, there in enumerate(wanted)]
    declared = [
        helper.make_value_info(name, to_proto(_type(x)))
        for name, x in zip(names, inputs, strict=True)
        if name
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attributes)],
        "one",
        declared,
        [onnx.ValueInfoProto(name=r) for r in results if r],
    )
    imports = [helper.make_opsetid("", version or newest())]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = iter(session.run(None, {n: x for n, x in zip(names, inputs, strict=True) if n}))
    return [next(found) if there else None for there in wanted]


def check(
    op: str,
    inputs,
    version: int | None = None,
    outputs=1,
    tolerance: float = 0,
    expected: Any = None,
    **attributes,
) -> None:
    """The rule's outputs are those of onnxruntime, or those `expected` (one array, or a tuple of them).

    `tolerance` is in units in the last place; 0 means the same bits, but for those of NaN.
    """
    inputs = _tensors(inputs)
    before = [_copied(x) for x in inputs]
    found = folded(op, inputs, version, outputs, **attributes)
    for k, (x, old) in enumerate(zip(inputs, before, strict=True)):
        assert_same(x, old, 0, f"input {k} after the call")
    if expected is None:
        expected = computed(op, inputs, version, outputs, **attributes)
    elif not isinstance(expected, tuple):
        expected = (expected,)
    assert len(found) == len(expected)
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        if isinstance(outputs, int) or outputs[k]:
            assert_same(a, b, tolerance, f"output {k}")


def check_fails(op: str, inputs, version: int | None = None, outputs=1, alone=False, **attributes) -> None:
    """The node fails: by its rule, and in onnxruntime (unless `alone`)."""
    with pytest.raises(NodeFailed):
        folded(op, inputs, version, outputs, **attributes)
    if not alone:
        with pytest.raises(Exception) as error:  # noqa: PT011 - onnxruntime raises a dozen classes
            computed(op, inputs, version, outputs, **attributes)
        assert "NOT_IMPLEMENTED" not in str(error.value), error.value


def check_open(op: str, inputs, version: int | None = None, outputs=1, **attributes) -> None:
    """The rule leaves the node to others."""
    with pytest.raises(NotFoldable):
        folded(op, inputs, version, outputs, **attributes)


def case(op: str, *inputs, **how):
    """A row of a table: `op`, `inputs` and `how` (what `check` takes beside them)."""
    return pytest.param(op, inputs, how, id=op)


table = partial(pytest.mark.parametrize, ("op", "inputs", "how"))
"""@table([case(...), ...]) over a test of op, inputs and how."""


def _tensors(inputs) -> list[Any]:
    """NumPy's scalars are taken as tensors, too."""
    return [
        _tensors(x) if isinstance(x, list) else np.asarray(x) if isinstance(x, np.generic) else x
        for x in inputs
    ]


def _type(content: Any) -> Type:
    """An input's type as models declare it: without sizes, but with a rank."""
    if isinstance(content, list):
        return SequenceType(TensorType(dtype_name(content[0].dtype) if content else "float32"))
    return TensorType(dtype_name(content.dtype), (None,) * content.ndim)


def _copied(content: Any) -> Any:
    if isinstance(content, list):
        return [_copied(x) for x in content]
    return None if content is None else content.copy()


def assert_same(found: Any, expected: Any, tolerance: float, what: str) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list), f"{what} is no sequence: {found!r}"
        assert len(found) == len(expected), what
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_same(a, b, tolerance, f"{what}[{k}]")
        return
    if expected is None:
        assert found is None, what
        return
    assert isinstance(found, np.ndarray), f"{what} is no tensor: {found!r}"
    shown = f"{what} is\n{found!r}, and not\n{expected!r}"
    assert dtype_name(found.dtype) == dtype_name(np.asarray(expected).dtype), shown
    assert found.shape == np.shape(expected), shown
    assert same_elements(found, np.asarray(expected), tolerance), shown


def same_elements(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether no element is farther off than the tolerance; zeros have signs, and NaN is NaN."""
    if a.dtype.kind in "OUbiu" or not _is_float(a.dtype):
        return a.tolist() == b.tolist()
    with np.errstate(all="ignore"):
        one, other = a.astype(np.float64), b.astype(np.float64)
        equal = (one == other) & (np.signbit(one) == np.signbit(other)) | np.isnan(one) & np.isnan(other)
        if tolerance:
            largest = np.maximum(np.abs(a), np.abs(b))
            near = np.abs(one - other) <= tolerance * np.spacing(largest).astype(np.float64)
            equal |= near & ((one != 0) | (other != 0))
    return bool(equal.all())


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or "float" in dtype.name
