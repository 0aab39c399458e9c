"""Operators of the domain ai.onnx.ml, which converters of classical machine learning write.

onnxruntime runs them. Their types are told here, so that a first run needs not wait for the onnx package to
make its registry of all operators.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from anydml.ir.dims import Dim, as_affine, as_dim, whole
from anydml.ir.graph import MapType, SequenceType, TensorType
from anydml.onnx.ops.opinfo import Content, KnownNode, NodeView, NotFoldable, OpInfo, Quirk
from anydml.onnx.ops.result_types import Types, same


def _per_sample(n: KnownNode, dtype: str, *sizes: Dim) -> TensorType:
    """Something of these sizes for each sample, if these are the rows of a matrix."""
    samples = n.sizes(0)
    return TensorType(dtype, (samples[0], *sizes) if samples is not None and len(samples) == 2 else None)


def _as_float(n: KnownNode) -> Types:
    return [TensorType("float32", n.sizes(0))]


def _classified(integers: str) -> Callable[[KnownNode], Types]:
    """A label for each sample, and a number for each label, which are texts or these integers."""

    def result(n: KnownNode) -> Types:
        texts, count = n.attribute("classlabels_strings"), 0
        if n.op.name != "SVMClassifier":  # whose scores are of classes, or of pairs of them
            count = len(texts or n.ints(integers) or ())
        labels = _per_sample(n, "string" if texts else "int64")
        return [labels, _per_sample(n, "float32", count if count > 1 else None)][: len(n.outputs)]

    return result


def _predicted(n: KnownNode) -> Types:
    targets = {"LinearRegressor": "targets", "SVMRegressor": None}.get(n.op.name, "n_targets")
    count = 1 if targets is None else n.attribute(targets)
    dtype = n.dtype() if n.op.name == "TreeEnsemble" else "float32"
    known = isinstance(count, int) and count > 0
    return None if dtype is None else [_per_sample(n, dtype, count if known else None)]


def _looked_up(n: KnownNode) -> Types:
    """Of the type of the values, one for each key."""
    if n.version == 1 or n.op.name == "CategoryMapper":
        other = {"string": "int64", "int64": "string"}.get(n.dtype() or "")
        return None if other is None else [TensorType(other, n.sizes(0))]
    for name, dtype in (("strings", "string"), ("int64s", "int64"), ("floats", "float32")):
        if n.attribute(f"values_{name}"):
            return [TensorType(dtype, n.sizes(0))]
    return None


def _one_hot(n: KnownNode) -> Types:
    sizes, count = n.sizes(0), len(n.attribute("cats_strings") or n.attribute("cats_int64s") or ())
    return [TensorType("float32", None if sizes is None else (*sizes, count))]


def _extracted(n: KnownNode) -> Types:
    """The elements at some places along the last axis, as many as there are places; of a vector, in a row."""
    sizes, places, dtype = n.sizes(0), n.sizes(1), n.dtype()
    if not sizes or places is None or dtype is None:
        return None
    count = whole(1)
    for size in places:
        count *= as_affine(size)
    return [TensorType(dtype, (*(sizes[:-1] or [1]), as_dim(count)))]


def _joined(n: KnownNode) -> Types:
    """As many columns as all inputs are told to have."""
    told = n.ints("inputdimensions")
    return [_per_sample(n, "float32", sum(told) if told else None)]


def _several_of_no_rows(n: KnownNode) -> bool:
    return n.value(1) is not None and n.may_be_empty(0)


def _joined_of_no_rows(node: NodeView, *inputs: Content) -> Content:
    first = np.asarray(inputs[0])
    if first.ndim != 2 or len(first):
        raise NotFoldable("a matrix with rows")
    return np.zeros((0, sum(node.ints("inputdimensions") or ())), np.float32)


def _zipped(n: KnownNode) -> Types:
    """A dictionary for each sample."""
    key = "string" if n.attribute("classlabels_strings") else "int64"
    return [SequenceType(MapType(key, TensorType("float32", ())))]


OPS = (
    OpInfo("ArrayFeatureExtractor", result=_extracted),
    OpInfo("Binarizer", result=same),
    OpInfo("CategoryMapper", result=_looked_up),
    OpInfo(
        "FeatureVectorizer",
        result=_joined,
        fold=_joined_of_no_rows,
        quirks=(
            Quirk(
                "onnxruntime ends the process on several inputs without rows",
                _several_of_no_rows,
                fatal=True,
                empty=True,
            ),
        ),
    ),
    OpInfo("Imputer", result=same),
    OpInfo("LabelEncoder", result=_looked_up),
    OpInfo("LinearClassifier", result=_classified("classlabels_ints")),
    OpInfo("LinearRegressor", result=_predicted),
    OpInfo("Normalizer", result=_as_float),
    OpInfo("OneHotEncoder", result=_one_hot),
    OpInfo("Scaler", result=_as_float),
    OpInfo("SVMClassifier", result=_classified("classlabels_ints")),
    OpInfo("SVMRegressor", result=_predicted),
    OpInfo("TreeEnsemble", result=_predicted),
    OpInfo("TreeEnsembleClassifier", result=_classified("classlabels_int64s")),
    OpInfo("TreeEnsembleRegressor", result=_predicted),
    OpInfo("ZipMap", result=_zipped),
)
