"""Operators of ai.onnx.ml: the types that are told of them are those of what onnxruntime gives, and its results
are ours."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import anydml
from anydml.ir.graph import MapType, OnnxOp, SequenceType, TensorType
from anydml.onnx.ops.catalog import info_of
from anydml.onnx.schema import ML_DOMAIN, form_of, schema_of
from anydml.onnx.types import of_content

FLOATS, INTEGERS, TEXTS = np.float32, np.int64, object
TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}


def leaves(kind, targets):
    """Both leaves say something of each target or class."""
    count = 2 * targets
    return {
        f"{kind}_treeids": [0] * count,
        f"{kind}_nodeids": [1 + k // targets for k in range(count)],
        f"{kind}_ids": [k % targets for k in range(count)],
        f"{kind}_weights": [0.25 * (1 + k) for k in range(count)],
    }


def svm(classes, probabilities):
    machines = classes * (classes - 1) // 2
    given = {
        "classlabels_ints": [*range(classes)],
        "coefficients": [0.5 * (1 + k) for k in range(classes * (classes - 1))],
        "kernel_params": [0.1, 0.0, 3.0],
        "kernel_type": "RBF",
        "rho": [0.1] * machines,
        "support_vectors": [0.3 * k for k in range(3 * classes)],
        "vectors_per_class": [1] * classes,
    }
    return given | ({"prob_a": [0.5] * machines, "prob_b": [0.1] * machines} if probabilities else {})


CASES = {
    "extractor": ("ArrayFeatureExtractor", FLOATS, {}, {"places": [2, 0]}),
    "extractor of a matrix": ("ArrayFeatureExtractor", FLOATS, {}, {"places": [[2, 0], [1, 1], [0, 2]]}),
    "binarizer": ("Binarizer", FLOATS, {"threshold": 0.5}, {}),
    "mapper to texts": ("CategoryMapper", INTEGERS, {"cats_int64s": [0, 1], "cats_strings": ["a", "b"]}, {}),
    "mapper of texts": ("CategoryMapper", TEXTS, {"cats_int64s": [0, 1], "cats_strings": ["a", "b"]}, {}),
    "vectorizer": ("FeatureVectorizer", FLOATS, {"inputdimensions": [3]}, {}),
    "vectorizer of two": ("FeatureVectorizer", FLOATS, {"inputdimensions": [3, 3]}, {"again": 1}),
    "imputer": ("Imputer", FLOATS, {"imputed_value_floats": [1.0], "replaced_value_float": 0.0}, {}),
    "encoder": ("LabelEncoder", TEXTS, {"keys_strings": ["a", "b"], "values_int64s": [7, 8]}, {}),
    "encoder of floats": ("LabelEncoder", FLOATS, {"keys_floats": [0.0], "values_strings": ["zero"]}, {}),
    "encoder to floats": ("LabelEncoder", INTEGERS, {"keys_int64s": [1], "values_floats": [0.5]}, {}),
    "classifier": (
        "LinearClassifier",
        FLOATS,
        {"classlabels_ints": [4, 5, 6], "coefficients": [0.1 * k for k in range(9)], "intercepts": [0.0] * 3},
        {},
    ),
    "classifier of two": (
        "LinearClassifier",
        FLOATS,
        {"classlabels_strings": ["n", "y"], "coefficients": [0.1, 0.2, 0.3], "intercepts": [0.5]},
        {},
    ),
    "regressor": ("LinearRegressor", FLOATS, {"coefficients": [1.0, 2.0, 3.0], "intercepts": [1.0]}, {}),
    "regressor of two": ("LinearRegressor", FLOATS, {"coefficients": [1.0] * 6, "targets": 2}, {}),
    "normalizer": ("Normalizer", FLOATS, {"norm": "L2"}, {}),
    "normalizer of integers": ("Normalizer", INTEGERS, {"norm": "L1"}, {}),
    "one hot": ("OneHotEncoder", INTEGERS, {"cats_int64s": [0, 1, 2, 3]}, {}),
    "one hot of texts": ("OneHotEncoder", TEXTS, {"cats_strings": ["a", "b"]}, {}),
    "scaler": ("Scaler", FLOATS, {"offset": [1.0], "scale": [0.5]}, {}),
    "scaler of integers": ("Scaler", INTEGERS, {"offset": [1.0, 2.0, 3.0], "scale": [0.5] * 3}, {}),
    "machine of two": ("SVMClassifier", FLOATS, svm(2, False), {}),
    "machine": ("SVMClassifier", FLOATS, svm(3, False), {}),
    "machine of chances": ("SVMClassifier", FLOATS, svm(3, True), {}),
    "machine that predicts": (
        "SVMRegressor",
        FLOATS,
        {
            "coefficients": [1.0, -1.0],
            "kernel_params": [0.1, 0.0, 3.0],
            "kernel_type": "RBF",
            "n_supports": 2,
            "rho": [0.2],
            "support_vectors": [0.1 * k for k in range(6)],
        },
        {},
    ),
    "tree": (
        "TreeEnsembleClassifier",
        FLOATS,
        {**TREE, **leaves("class", 3), "classlabels_int64s": [1, 2, 3]},
        {},
    ),
    "tree of two": (
        "TreeEnsembleClassifier",
        FLOATS,
        {**TREE, **leaves("class", 1), "classlabels_strings": ["n", "y"]},
        {},
    ),
    "tree that predicts": (
        "TreeEnsembleRegressor",
        FLOATS,
        {**TREE, **leaves("target", 2), "n_targets": 2},
        {},
    ),
    "zip": ("ZipMap", FLOATS, {"classlabels_strings": ["a", "b", "c"]}, {}),
    "zip of integers": ("ZipMap", FLOATS, {"classlabels_int64s": [1, 2, 3]}, {}),
}
MADE = {"classifier": 2, "classifier of two": 2, "machine": 2, "machine of two": 2, "machine of chances": 2}
MADE |= {"tree": 2, "tree of two": 2}


def model(name, sizes):
    """One node on x."""
    operator, kind, attributes, others = CASES[name]
    inputs = ["x", *(["x"] if "again" in others else ["places"] if "places" in others else [])]
    outputs = [f"y{k}" for k in range(MADE.get(name, 1))]
    constants = [
        helper.make_tensor(n, TensorProto.INT64, np.shape(c), np.ravel(c))
        for n, c in others.items()
        if n != "again"
    ]
    types = {FLOATS: TensorProto.FLOAT, INTEGERS: TensorProto.INT64, TEXTS: TensorProto.STRING}
    infos = [helper.make_tensor_value_info("x", types[kind], sizes)]
    ends = [helper.make_empty_tensor_value_info(n) for n in outputs]
    node = helper.make_node(operator, inputs, outputs, domain=ML_DOMAIN, **attributes)
    graph = helper.make_graph([node], "g", infos, ends, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML_DOMAIN, 1 if "mapper" in name else 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def content(kind, rng, *sizes):
    if kind is TEXTS:
        return rng.choice(np.array(["a", "b", "else"], object), sizes)
    return rng.integers(0, 4, sizes).astype(kind)


def fits(type, value):
    """Whether a value is of a type, of which sizes may be unknown."""
    match type:
        case TensorType():
            found = of_content(value, None)
            return type.dtype == found.dtype and (
                type.sizes is None
                or (
                    len(type.sizes) == value.ndim
                    and all(
                        n == m or not isinstance(n, int) for n, m in zip(type.sizes, value.shape, strict=True)
                    )
                )
            )
        case SequenceType(MapType() as inner):
            kinds = {"string": str, "int64": int}
            return all(isinstance(k, kinds[inner.key]) for item in value for k in item)
        case _:
            return False


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [["n", 3], [2, 3], [1, 3]])
def test_types_and_results(name, sizes):
    file = model(name, sizes)
    session, peer = anydml.load(file, threads=1), ort.InferenceSession(file)
    rng = np.random.default_rng(0)
    for count in (1, 3, 3, 5, 2) if sizes[0] == "n" else [sizes[0]] * 2:
        feed = {"x": content(CASES[name][1], rng, count, 3)}
        wanted, found = peer.run(None, feed), session.run(None, feed)
        types = session._program.output_types([feed["x"]])
        for type, theirs, ours in zip(types, wanted, found, strict=True):
            assert fits(type, theirs), f"{type} of {theirs}"
            if isinstance(theirs, list):
                assert ours == theirs
            else:
                assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
                np.testing.assert_array_equal(ours, theirs)


def test_no_rows_of_several_inputs():
    """Which end the process in onnxruntime: by sizes, and by what is computed."""
    session = anydml.load(model("vectorizer of two", ["n", 3]), threads=1)
    chosen = onnx.load_from_string(model("vectorizer of two", ["n", 3]))
    chosen.graph.input.append(helper.make_tensor_value_info("rows", TensorProto.BOOL, ["n"]))
    chosen.graph.node[0].input[:] = ["some", "some"]
    chosen.graph.node.insert(0, helper.make_node("Compress", ["x", "rows"], ["some"], axis=0))
    computed = anydml.load(chosen, threads=1)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for count in (2, 0, 2, 0):
        wanted = np.concatenate([x[:count], x[:count]], axis=1)
        rows = np.arange(2) < count
        for got in (session.run(None, {"x": x[:count]})[0], computed.run(None, {"x": x, "rows": rows})[0]):
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", CASES)
def test_no_less_than_inference_tells(name):
    """Nor anything else."""
    file = onnx.load_from_string(model(name, [2, 3]))
    inferred = onnx.shape_inference.infer_shapes(file).graph.output
    types = anydml.load(file)._program.output_types([content(CASES[name][1], np.random.default_rng(0), 2, 3)])
    for type, output in zip(types, inferred, strict=True):
        told = output.type.tensor_type
        if output.type.WhichOneof("value") == "tensor_type" and told.elem_type:
            assert helper.tensor_dtype_to_np_dtype(told.elem_type) == of_type(type)
            sizes = [d.dim_value if d.HasField("dim_value") else None for d in told.shape.dim]
            if told.HasField("shape") and type.sizes is not None:
                assert all(n is None or n == m for n, m in zip(sizes, type.sizes, strict=True))


def of_type(type):
    return np.dtype(object if type.dtype == "string" else type.dtype)


def test_rows_of_a_vector():
    """Of which one place after the other is taken."""
    session = anydml.load(model("extractor", [3]))
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [[3, 1]])


def test_every_operator_that_onnxruntime_has_is_told():
    """But for those of dictionaries, and the newest one."""
    names = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == ML_DOMAIN}
    told = {n for n in names if info_of(OnnxOp(ML_DOMAIN, n, 5)) is not None}
    assert names - told == {"CastMap", "DictVectorizer"}
    assert told - {operator for operator, *_ in CASES.values()} == {"TreeEnsemble"}


def test_the_package_is_not_asked(monkeypatch):
    """Its registry of all operators takes longer to make than a small model runs."""

    def asked(op):
        raise AssertionError(op)

    monkeypatch.setattr("anydml.onnx.partial_eval.shape_inference.schema_of", asked)
    for name in CASES:
        feed = {"x": content(CASES[name][1], np.random.default_rng(0), 4, 3)}
        assert anydml.load(model(name, ["n", 3])).run(None, feed)
    assert schema_of(OnnxOp(ML_DOMAIN, "Scaler", 1)) is not None
    assert form_of(OnnxOp(ML_DOMAIN, "Scaler", 1)).attributes
