"""What the table says of onnxruntime: that it is so, and that sessions answer rightly all the same.

onnxruntime runs in child processes, which some nodes end. That each entry is needed is tested with the
version that was searched: others may be better.
"""

import multiprocessing
import os
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

import anydml as dml
from anydml.ir.graph import Constant, Node, OnnxOp, TensorType, Value
from anydml.onnx.ops.arithmetic import _fails_at_zero
from anydml.onnx.ops.catalog import OPS
from anydml.onnx.ops.quirks import SEEN, quirk_of, quirks_of, reference_error
from anydml.onnx.types import of_content
from tools import search_provider_quirks as search
from tools.quirk_cases import Case
from tools.quirk_worker import model

QUIRKS = {name: info.quirks for name, info in OPS.items() if info.quirks}
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tools.quirk_worker", __name__])
NEWEST = 24
"""An opset that every onnxruntime of the searched version knows."""
F, I, U, B = np.float32, np.int64, np.uint8, np.bool_  # noqa: E741


def none(*shape, dtype=F):
    return np.zeros(shape, dtype)


def some(*shape, dtype=F):
    return (np.arange(np.prod(shape, dtype=int)) % 5 + 1).astype(dtype).reshape(shape)


def f(x, dtype=F):
    return np.array(x, dtype)


def case(op, *inputs, opset=NEWEST, outputs=1, **attributes):
    return Case(op, opset, "float32", "plain", "", inputs, attributes, outputs)


LOWEST = np.iinfo(I).min
WORDS = np.array([["ab", "cd"], ["ef", "gh"]], object)
TRUTHS = np.array([False, True, False])
RECURRENT = {"hidden_size": 4}
OF_WEIGHTS = {"axis": 0, "block_size": 2}
NEEDED: dict[str, tuple[Case, list[np.ndarray] | None]] = {
    "attention without heads": (case("Attention", none(2, 0, 3, 4), none(2, 0, 3, 4), none(2, 0, 3, 3)), [none(2, 0, 3, 3)]),
    "attention by nothing": (case("Attention", none(0, 2, 3, 4), none(0, 2, 3, 4), none(0, 2, 3, 3)), [none(0, 2, 3, 3)]),
    "the greatest of nothing": (case("ArgMax", none(0, 3, 4), axis=-1), [none(0, 3, 1, dtype=I)]),
    "the least of nothing": (case("ArgMin", none(0, 3, 4), axis=-1, keepdims=0), [none(0, 3, dtype=I)]),
    "an average of no channels": (case("AveragePool", none(2, 0, 5, 5), kernel_shape=[2, 2]), [none(2, 0, 4, 4)]),
    "convolution of no channels": (case("Conv", none(2, 0, 5), none(4, 0, 3)), [none(2, 4, 3)]),
    "a padded convolution of no channels": (case("Conv", none(1, 0, 5, 5), none(4, 0, 3, 3), pads=[1, 1, 1, 1]), [none(1, 4, 5, 5)]),
    "integer convolution of no channels": (case("ConvInteger", none(1, 0, 5, 5, dtype=U), none(4, 0, 3, 3, dtype=U)), [none(1, 4, 3, 3, dtype=np.int32)]),
    "zero points of channels": (case("ConvInteger", some(1, 1, 1, 1, dtype=U), some(2, 1, 1, 1, dtype=U), f(0, U), f([1, 0], U)), [f([[[[0]], [[2]]]], np.int32)]),
    "transposed convolution of nothing": (case("ConvTranspose", none(2, 4, 0, 3, 3), some(4, 4, 3, 2, 2)), [none(2, 4, 2, 4, 4)]),
    "division": (case("Div", f([LOWEST], I), f([-1], I)), [f([LOWEST], I)]),
    "remainder": (case("Mod", f([LOWEST], I), f([-1], I)), [f([0], I)]),
    "remainder of 32 bits": (case("Mod", f([-(2**31)], np.int32), f([-1], np.int32)), [f([0], np.int32)]),
    "a product without heads": (case("Einsum", none(1, 0, 2, 3), none(1, 0, 4, 3), equation="bhid,bhjd->bhij"), [none(1, 0, 2, 4)]),
    "texts": (case("Gather", WORDS, f([1], I)), [WORDS[1:]]),
    "texts in slices": (case("Gather", WORDS.reshape(2, 1, 2), f([0], I), axis=1), [WORDS.reshape(2, 1, 2)]),
    "a factor before C": (case("Gemm", none(2, 0), none(0, 2), f([1, 2]), beta=2.0), [f([[2, 4], [2, 4]])]),
    "the average of no channels": (case("GlobalAveragePool", none(2, 0, 5)), [none(2, 0, 1)]),
    "the largest of no channels": (case("GlobalMaxPool", none(2, 0, 5)), [none(2, 0, 1)]),
    "the norm of no channels": (case("GlobalLpPool", none(2, 0, 5), opset=21), [none(2, 0, 1)]),
    "groups of nothing": (case("GroupNormalization", none(0, 4, 3), some(4), some(4), num_groups=2), [none(0, 4, 3)]),
    "GRU of no batch": (case("GRU", none(3, 0, 3), some(1, 12, 3), some(1, 12, 4), outputs=2, **RECURRENT), [none(3, 1, 0, 4), none(1, 0, 4)]),
    "GRU of no features": (case("GRU", none(3, 2, 0), none(1, 12, 0), some(1, 12, 4), outputs=2, **RECURRENT), [none(3, 1, 2, 4), none(1, 2, 4)]),
    "GRU of no steps": (case("GRU", none(0, 2, 3), some(1, 12, 3), some(1, 12, 4), None, None, some(1, 2, 4), outputs=2, **RECURRENT), [none(0, 1, 2, 4), some(1, 2, 4)]),
    "LSTM of no steps": (case("LSTM", none(0, 2, 3), some(1, 16, 3), some(1, 16, 4), None, None, some(1, 2, 4), none(1, 2, 4), outputs=3, **RECURRENT), [none(0, 1, 2, 4), some(1, 2, 4), none(1, 2, 4)]),
    "RNN of no steps": (case("RNN", none(0, 2, 3), some(1, 4, 3), some(1, 4, 4), None, None, some(1, 2, 4), outputs=2, **RECURRENT), [none(0, 1, 2, 4), some(1, 2, 4)]),
    "LSTM of no batch": (case("LSTM", none(3, 0, 3), some(1, 16, 3), some(1, 16, 4), outputs=3, **RECURRENT), [none(3, 1, 0, 4), none(1, 0, 4), none(1, 0, 4)]),
    "instances of nothing": (case("InstanceNormalization", none(2, 3, 0), some(3), some(3)), [none(2, 3, 0)]),
    "normalized nothing": (case("LayerNormalization", none(3, 0), none(0)), [none(3, 0)]),
    "root mean square of nothing": (case("RMSNormalization", none(3, 0), none(0)), [none(3, 0)]),
    "norms of no channels": (case("LpPool", none(2, 0, 5), kernel_shape=[2]), [none(2, 0, 4)]),
    "the largest in no channels": (case("MaxPool", none(2, 0, 5), kernel_shape=[2]), [none(2, 0, 4)]),
    "products with an empty vector": (case("MatMul", none(3, 0), none(0)), [none(3)]),
    "no matrices by a vector": (case("MatMul", none(0, 4, 5), some(5)), [none(0, 4)]),
    "stacks of empty matrices": (case("MatMul", none(2, 1, 4, 0), none(3, 0, 2)), [none(2, 3, 4, 2)]),
    "integer products of nothing": (case("MatMulInteger", none(3, 0, dtype=U), none(0, 2, dtype=U)), [none(3, 2, dtype=np.int32)]),
    "no rows by integers": (case("MatMulInteger", none(0, 4, dtype=U), some(4, dtype=U)), [none(0, dtype=np.int32)]),
    "zero points of rows": (case("MatMulInteger", some(2, 1, dtype=U), f([[1]], U), f([1, 0], U)), [f([[0], [2]], np.int32)]),
    "indices of a scalar": (case("NonZero", f(3)), [none(0, 1, dtype=I)]),
    "quantized convolution of no channels": (
        case("QLinearConv", none(1, 0, 3, dtype=U), f(0.5), f(1, U), none(2, 0, 3, dtype=U), f(0.5), f(1, U), f(0.5), f(7, U)),
        [np.full((1, 2, 1), 7, U)],
    ),
    "quantized products of nothing": (
        case("QLinearMatMul", none(3, 0, dtype=U), f(0.5), f(1, U), none(0, 2, dtype=U), f(0.5), f(1, U), f(0.5), f(7, U)),
        [np.full((3, 2), 7, U)],
    ),
    "no rows by quantized numbers": (
        case("QLinearMatMul", none(0, 2, dtype=U), f(0.5), f(1, U), some(2, dtype=U), f(0.5), f(1, U), f(0.5), f(7, U)),
        [none(0, dtype=U)],
    ),
    "scales of rows": (
        case("QLinearMatMul", some(2, 1, dtype=U), f([1, 2]), f([0, 0], U), f([[1]], U), f(1), f(0, U), f(1), f(0, U)),
        [f([[1], [4]], U)],
    ),
    "blocks of nothing": (case("QuantizeLinear", none(0, 3), none(0, 3), none(0, 3, dtype=U), **OF_WEIGHTS), [none(0, 3, dtype=U)]),
    "empty blocks": (case("QuantizeLinear", none(4, 0), none(2, 0), none(2, 0, dtype=U), **OF_WEIGHTS), [none(4, 0, dtype=U)]),
    "the largest of no truths": (case("ReduceMax", none(0, 3, dtype=B), f([0], I)), [none(1, 3, dtype=B)]),
    "the smallest of no truths": (case("ReduceMin", none(0, 3, dtype=B), f([0], I)), [~none(1, 3, dtype=B)]),
    "by rounded sizes": (
        case("Resize", f([[[[0, 1, 2, 3]]]]), None, f([1, 1, 1, 1.6]), mode="linear", coordinate_transformation_mode="align_corners"),
        None,
    ),
    "regions of no image": (case("RoiAlign", none(1, 4, 0, 6), f([[2.25, 1, 2.375, 2.25]]), f([0], I), opset=21), None),
    "few angles": (
        case("RotaryEmbedding", some(1, 2, 3, 4), some(1, 2), some(1, 2), none(1, 3, dtype=I)),
        None,
    ),
    "the largest truth": (case("ScatterElements", TRUTHS, f([0], I), f([True], B), reduction="max"), [f([True, True, False], B)]),
    "the smallest truth": (case("ScatterND", TRUTHS, f([[1]], I), none(1, dtype=B), reduction="min"), [none(3, dtype=B)]),
    "local responses along a line": (case("LRN", some(2, 4, 5), size=3, alpha=0.0), [some(2, 4, 5)]),
    "no variance": (case("MeanVarianceNormalization", f([[[[2, 2]], [[5, 5]]]])), [np.zeros((1, 2, 1, 2), F)]),
    "long remainders": (case("Mod", f([2**62 + 3], I), f([4], I), fmod=1), [f([3], I)]),
    "long powers": (case("Pow", f([3], I), f([39], I)), [f([3**39], I)]),
    "long integers": (case("Shrink", f([2**62 + 1], I), bias=0.0), [f([2**62 + 1], I)]),
    "interpolation along a line": (case("Resize", f([1, 3]), None, f([2]), mode="linear"), [f([1, 1.5, 2.5, 3])]),
    "an aspect kept": (
        case("Resize", some(1, 1, 5, 6), None, None, f([3, 9], I), axes=[2, -1], keep_aspect_ratio_policy="not_larger"),
        [f([[[[1, 3, 4, 1], [3, 5, 1, 3], [5, 2, 3, 5]]]])],
    ),
    "backwards to the end": (case("Slice", some(4), f([-1], I), f([2**63 - 1], I), f([0], I), f([-1], I)), [none(0)]),
    "no loss": (case("SoftmaxCrossEntropyLoss", none(0, 4, 5), none(0, 5, dtype=I), reduction="none"), [none(0, 5)]),
    "halves of nothing": (case("Split", none(0, 3), num_outputs=2, outputs=2), [none(0, 3)] * 2),
    "chunks": (case("SplitToSequence", some(4, 3), f(2, I), keepdims=0), [[some(4, 3)[:2], some(4, 3)[2:]]]),
    "different slices of nothing": (case("Unique", none(2, 0, 4), axis=0), [none(1, 0, 4)]),
}  # fmt: skip
for _name in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split():
    NEEDED[f"{_name} over the last axis of nothing"] = (
        case(f"Reduce{_name}", none(0, 3, 4), f([-1], I)),
        [none(0, 3, 1)],
    )

BY_THE_SUITE = frozenset("Bernoulli DFT Dropout MaxUnpool STFT".split())
"""Of which the onnx package's suite, run in test_backend.py, has the cases, or nothing is right or wrong."""
RANDOM = frozenset("RandomNormal RandomNormalLike RandomUniform RandomUniformLike".split())
INVALID = {"ConcatFromSequence", "OneHot", "Tile"}
"""Of which the cases are no valid models: tensors of different ranks, negative lengths."""
OF_PARTS_OF_BYTES = {"Cast", "CastLike"}
"""Of which the cases, whose results onnxruntime gives nobody, are in test_casts.py."""
WITH_BODIES = {"Loop", "Scan"}
"""Of which the cases are in test_loop_ifs.py and test_minimal_cases.py."""
NO_RULE = {"regions of no image", "transposed convolution of nothing"}
"""Cases that nothing runs rightly: a session says so."""

MENDED = {"the greatest of nothing", "the least of nothing", "no variance"}
if _fails_at_zero():
    MENDED |= {"division", "remainder", "remainder of 32 bits"}
"""Cases that are rewritten, so that onnxruntime runs them rightly."""

USUAL = [
    case("ArgMax", some(2, 3), axis=-1),
    case("Attention", some(1, 2, 3, 4), some(1, 2, 3, 4), some(1, 2, 3, 4)),
    case("Conv", some(1, 2, 5), some(4, 2, 3)),
    case("Conv", none(0, 2, 5), some(4, 2, 3)),
    case("ConvTranspose", none(2, 4, 0), some(4, 4, 3)),
    case("Div", some(3), some(3)),
    case("Div", some(3, dtype=np.int8), some(3, dtype=np.int8)),
    case("Einsum", some(2, 3), some(3, 4), equation="ij,jk->ik"),
    case("Gather", WORDS[0], f([1], I)),
    case("Gather", some(2, 2), f([1], I)),
    case("Gemm", none(2, 0), none(0, 2), f([1, 2])),
    case("Gemm", some(2, 3), some(3, 2), f([1, 2]), beta=2.0),
    case("GRU", some(3, 1, 3), some(1, 12, 3), some(1, 12, 4), outputs=2, **RECURRENT),
    case("InstanceNormalization", none(0, 3, 4), some(3), some(3)),
    case("LayerNormalization", none(0, 3), some(3)),
    case("MatMul", none(3, 0), none(0, 2)),
    case("MatMul", some(2, 3, 4), some(4)),
    case("MatMul", none(2, 3, 0), none(2, 0, 4)),
    case("MatMulInteger", some(2, 1, dtype=U), some(1, 2, dtype=U), f([1], U), f([1, 0], U)),
    case("MaxPool", none(0, 2, 5), kernel_shape=[2]),
    case("QuantizeLinear", none(0, 3), f(1), f(0, U)),
    case("RandomNormal", shape=[2]),
    case("RandomUniform", shape=[2], low=-1.0),
    case("ReduceMax", none(0, 3), opset=17, axes=[1], keepdims=0),
    case("Resize", some(3, 4), None, f([2, 2]), mode="cubic"),
    case("LRN", some(1, 2, 3, 4), size=3),
    case("Mod", some(2, dtype=np.int32), some(2, dtype=np.int32), fmod=1),
    case("ReduceSum", none(0, 3), f([1], I)),
    case("ReduceSum", none(0, 3)),
    case("Resize", some(1, 1, 2, 2), None, f([1, 1, 2, 2]), mode="linear"),
    case("RNN", none(3, 0, 3), some(1, 4, 3), some(1, 4, 4), outputs=2, **RECURRENT),
    case("RoiAlign", some(1, 4, 5, 6), none(0, 4), none(0, dtype=I), opset=21),
    case("Slice", some(4), f([-1], I), f([-9], I), f([0], I), f([-1], I)),
    case("Slice", some(4), f([0], I), f([2**63 - 1], I)),
    case("Split", none(0, 3), f([0, 0], I), outputs=2),
    case("SplitToSequence", some(2, 3), f([1, 1], I), keepdims=0),
    case("Unique", none(0, 3, 4), axis=0),
]  # fmt: skip


def node_of(this: Case) -> tuple[Node, dict[Value, Constant]]:
    """The case's node, and its inputs as constants."""
    inputs = [None if x is None else Value(f"i{k}", of_content(x)) for k, x in enumerate(this.inputs)]
    proto = this.node()
    node = Node(
        OnnxOp("", this.op, this.opset),
        tuple(inputs),
        tuple(Value(name) for name in proto.output),
        {a.name: a for a in proto.attribute},
    )
    return node, {v: Constant(x) for v, x in zip(inputs, this.inputs, strict=True) if v is not None}


# ---- that it is so -----------------------------------------------------------------------------------


class Seen(search.Report):
    """What came of each case."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[int, list] = {}

    def add(self, case, answers) -> None:
        self.answers[id(case)] = answers[2:]


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[int, list]]:
    """onnxruntime's answers, in each way in which it runs a case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SECONDS", 3.0)
        patch.setitem(os.environ, "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")
        child, report = search.Child(CONTEXT), Seen()
        try:
            search.run([child], (this for this, _ in NEEDED.values()), report, lambda: None)
        finally:
            child.end()
    return report.answers


@pytest.mark.skipif(not ort.__version__.startswith(f"{SEEN}."), reason="another onnxruntime may be better")
@pytest.mark.parametrize("name", NEEDED)
def test_it_is_needed(name, seen):
    this, right = NEEDED[name]
    wrong = [
        kind in ("crash", "hang", "unstable", "refused", "not loaded")
        or (kind == "ok" and right is not None and search.difference(got, right) is not None)
        for kind, got in seen[id(this)]
    ]
    assert any(wrong) or right is None, seen[id(this)]


@pytest.mark.skipif(not ort.__version__.startswith(f"{SEEN}."), reason="another onnxruntime may be better")
@pytest.mark.parametrize("name", NEEDED)
def test_what_ends_the_process_is_marked(name, seen):
    ended = any(kind in ("crash", "hang") for kind, _ in seen[id(NEEDED[name][0])])
    assert not ended or ends_the_process(*node_of(NEEDED[name][0]))


def ends_the_process(node, constants=MappingProxyType({})):
    return any(q.fatal for q in quirks_of(node, constants))


def test_every_entry_has_a_case():
    elsewhere = BY_THE_SUITE | RANDOM | INVALID | OF_PARTS_OF_BYTES | WITH_BODIES
    assert {this.op for this, _ in NEEDED.values()} | elsewhere == set(QUIRKS)
    reasons = {q.reason for quirks in QUIRKS.values() for q in quirks}
    assert all(r.startswith("onnxruntime ") and not r.endswith(".") for r in reasons)


# ---- that sessions answer rightly --------------------------------------------------------------------


def answered(this: Case, connection) -> None:
    """In a process of its own, which a mistake may end."""
    try:
        fed = {f"i{k}": x for k, x in enumerate(this.inputs) if x is not None}
        proto = model(this, False, False)
        if this.op == "Slice":  # what stands in its constants decides
            del proto.graph.input[1:]
            names = [name for name in fed if name != "i0"]
            proto.graph.initializer.extend(numpy_helper.from_array(fed.pop(name), name) for name in names)
        session = dml.load(proto)
        connection.send((session.run(None, fed), session.explain()))
    except Exception as error:
        connection.send((None, f"{type(error).__name__}: {error}"))


@pytest.mark.parametrize("name", NEEDED)
def test_sessions_answer(name):
    this, right = NEEDED[name]
    connection, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=answered, args=(this, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        assert connection.poll(60), "no answer"
        results, explained = connection.recv()
    except EOFError:
        results, explained = None, "the process ended"
    finally:
        process.kill()
        process.join()
    if name in NO_RULE:
        assert explained.startswith(("ExecutionFailed", "Unsupported")), explained
        return
    assert results is not None, explained
    ours = name in MENDED or "program:" in explained
    assert ours or any(q.reason in explained for q in QUIRKS[this.op]), explained
    if right is not None:
        assert search.difference(results, right) is None, results


@pytest.mark.parametrize(("how", "reduce"), [("add", np.add), ("max", np.maximum), ("mul", np.multiply)])
def test_no_update_of_many_is_lost(how, reduce):
    """onnxruntime's threads do not wait for each other: it loses some, more often than not."""
    rng = np.random.default_rng(0)
    x, u = (rng.uniform(0.99, 1.01, (n, 64)).astype(np.float32) for n in (10, 5000))
    i = rng.integers(0, 10, (5000, 1))
    session = dml.load(model(case("ScatterND", x, i, u, reduction=how), False, False))
    wanted = x.astype(np.float64)
    reduce.at(wanted, i[:, 0], u)
    (y,) = session.run(None, {"i0": x, "i1": i, "i2": u})
    np.testing.assert_allclose(y, wanted, 1e-3)
    assert "onnxruntime loses updates" in session.explain()
    assert quirk_of(*node_of(case("ScatterND", x, i[:9], u[:9], reduction=how))) is None


# ---- what it is decided by ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "this", USUAL, ids=lambda c: f"{c.op}-{c.attributes or (c.inputs and c.inputs[0].shape)}"
)
def test_usual_nodes_stay(this):
    assert quirk_of(*node_of(this)) is None


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_divisors(op):
    x, y = (Value(n, TensorType("int64", (2,))) for n in "xy")
    node = Node(OnnxOp("", op, 17), (x, y), (Value("z"),))
    assert ends_the_process(node)
    assert ends_the_process(node, {y: Constant(f([2, -1], I))})
    assert ends_the_process(node, {y: Constant(f([2, 0], I))}) is not _fails_at_zero()
    assert quirk_of(node, {y: Constant(f([2, 3], I))}) is None
    assert ends_the_process(node, {x: Constant(f([LOWEST, 0], I))})
    assert quirk_of(node, {x: Constant(f([5, 6], I))}) is None


@pytest.mark.parametrize(("scale", "bad"), [(0.0, True), (1.0, False), (float("nan"), True)])
def test_distributions(scale, bad):
    assert ends_the_process(node_of(case("RandomNormal", shape=[2], scale=scale))[0]) is bad


@pytest.mark.parametrize(
    ("low", "high", "bad"), [(1.0, 0.0, True), (0.0, 1.0, False), (0.0, float("inf"), True)]
)
def test_ranges(low, high, bad):
    node, _ = node_of(case("RandomUniform", shape=[2], low=low, high=high))
    assert ends_the_process(node) is bad


# ---- onnx.reference ----------------------------------------------------------------------------------


def test_where_onnx_reference_is_wrong_it_is_not_asked():
    """A rule that leaves a case open does not hand it to a library that is known to be wrong there."""
    text = """<ir_version: 10, opset_import: ["": 7]> m (double[1, 1, n] x) => (double[a, b, c] y) {
        y = MaxPool <kernel_shape = [2], pads = [PADS]> (x) }"""
    x = {"x": np.arange(4.0).reshape(1, 1, 4)}
    session = dml.load(parser.parse_model(text.replace("PADS", "0, 0")))
    assert session.run(None, x)[0].tolist() == [[[1, 2, 3]]]
    assert "NumPy: MaxPool" in session.explain()
    with pytest.raises(dml.ExecutionFailed, match=r"onnx.reference is wrong but for two dimensions"):
        dml.load(parser.parse_model(text.replace("PADS", "2, 0"))).run(None, x)
    node, _ = node_of(case("MaxPool", some(1, 1, 4), kernel_shape=[2]))
    assert reference_error(node) == "onnx.reference is wrong but for two dimensions and equal pads"
    assert reference_error(node_of(case("MaxPool", some(1, 1, 4, 4), kernel_shape=[2, 2]))[0]) is None
    assert reference_error(node_of(case("Neg", some(3)))[0]) is None
