"""What older releases of onnxruntime do wrong with valid nodes, and the installed one may not any more.

onnxruntime-directml ends with 1.24, and programs pin what they were tested with. Found with the onnx
package's suite and with the cases of `python -m tools.search_provider_quirks`, as sessions ran them with
1.20, 1.24 and 1.32, and then release by release. Left out is what becomes of NaN (Erf before 1.27 makes 1 of
it), and of indices that are out of range (RoiAlign before 1.24).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anydml.ir.dims import may_be_zero
from anydml.ir.graph import Graph, If, Node
from anydml.onnx.ops.opinfo import KnownNode, Quirk
from anydml.onnx.ops.releases import onnxruntime_since

MAX_NESTED = 8
"""Graphs in each other that releases before 1.29 open: each one more doubles the time, which is 5 ms then."""


def nests_too_deep(node: Node | If) -> bool:
    """Whether the installed release would take very long to open what has graphs in graphs."""
    return not onnxruntime_since(1, 29) and _depth(node.subgraphs) > MAX_NESTED


def _depth(graphs: Iterable[Graph]) -> int:
    """How many graphs stand in each other, but no more than matters."""
    depth, here = 0, list(graphs)
    while here and depth <= MAX_NESTED:
        depth, here = depth + 1, [inner for graph in here for n in graph.nodes for inner in n.subgraphs]
    return depth


def _wraps(n: KnownNode) -> bool:
    return n.mode("mode") == "wrap"


def _may_stay(n: KnownNode) -> bool:
    """Whether a sequence may have no length."""
    lengths = n.integers(1)
    return lengths is None or 0 in lengths


def _counts_pads_of_more(n: KnownNode) -> bool:
    """Whether the mean of a window that ends beyond the padding counts that."""
    return bool(n.attribute("ceil_mode")) and bool(n.attribute("count_include_pad"))


def _has_wide_zero_point(n: KnownNode) -> bool:
    known = n.integers(2)
    return n.dtype() == "int32" and n.value(2) is not None and (known is None or any(known))


def _reduces_nothing(n: KnownNode) -> bool:
    return bool(n.attribute("noop_with_empty_axes")) and (n.value(1) is None or n.size(1, 0) == 0)


def _repeats_scale(n: KnownNode) -> bool:
    """Whether a scale or bias is known to have other sizes than what is normalized."""
    sizes, axis = n.sizes(0), n.attribute("axis")
    if sizes is None or not isinstance(axis, int):
        return False
    wanted = sizes[axis:]
    for given in (n.sizes(1), n.sizes(2)):
        if given is None:
            continue
        known = (p for p in zip(given, wanted, strict=False) if all(isinstance(size, int) for size in p))
        if len(given) != len(wanted) or any(a != b for a, b in known):
            return True
    return False


def _gives_weights(n: KnownNode) -> bool:
    return n.outputs[3:4] == (True,)


def _caps(n: KnownNode) -> bool:
    return bool(n.attribute("softcap")) and (n.value(3) is not None or _gives_weights(n))


def _may_hide_all(n: KnownNode) -> bool:
    return n.value(3) is not None and n.dtype(3) in ("bool", None)


def _has_no_rows(n: KnownNode) -> bool:
    return may_be_zero(n.size(0, n.int("axis")))


def _dies(reason: str, before: tuple[int, int], first: int = 0) -> Quirk:
    """Of what has no elements, by axes from `first` on."""
    return Quirk(reason, lambda n: n.may_be_empty(0, first), fatal=True, empty=True, before=before)


_NOTHING_REDUCED = (
    Quirk(
        "onnxruntime reduces an empty tensor without axes to one element",
        lambda n: _reduces_nothing(n) and n.may_be_empty(0),
        empty=True,
        before=(1, 30),
    ),
    Quirk("onnxruntime does not take empty axes", _reduces_nothing, before=(1, 24)),
)
_BEST_OF_NOTHING = Quirk(
    "onnxruntime has no extreme of nothing", lambda n: n.may_be_empty(0), empty=True, before=(1, 27)
)
_OTHER_REDUCTIONS = "L1 L2 LogSum LogSumExp Mean Prod Sum SumSquare"

OLDER: Mapping[str, tuple[Quirk, ...]] = {
    "Attention": (
        Quirk("onnxruntime caps scores after the mask, and those that it gives", _caps, before=(1, 27)),
        Quirk("onnxruntime makes NaN of what a mask hides all keys from", _may_hide_all, before=(1, 28)),
        Quirk(
            "onnxruntime rounds weights that it gives otherwise",
            lambda n: _gives_weights(n) and n.attribute("qk_matmul_output_mode") == 3,
            before=(1, 28),
        ),
        Quirk(
            "onnxruntime counts padded keys among those that a query may see",
            lambda n: n.value(6) is not None and bool(n.attribute("is_causal")),
            before=(1, 28),
        ),
    ),
    "AveragePool": (
        Quirk(
            "onnxruntime counts what is beyond the padding",
            lambda n: n.version < 19 and _counts_pads_of_more(n),
            before=(1, 29),
        ),
        Quirk("onnxruntime counts what is beyond the padding", _counts_pads_of_more, before=(1, 23)),
    ),
    "ConvTranspose": (_dies("onnxruntime ends the process on an empty tensor", (1, 31), first=2),),
    "DequantizeLinear": (
        Quirk("onnxruntime takes no zero point of 32 bits but 0", _has_wide_zero_point, before=(1, 24)),
    ),
    "GatherND": (_dies("onnxruntime reads beyond the memory of an empty tensor", (1, 26)),),
    "LayerNormalization": (
        Quirk("onnxruntime does not repeat a scale or bias", _repeats_scale, before=(1, 24)),
    ),
    "LpNormalization": (
        Quirk(
            "onnxruntime ends the process on rows of nothing",
            _has_no_rows,
            fatal=True,
            empty=True,
            before=(1, 30),
        ),
    ),
    "MatMul": (
        Quirk(
            "onnxruntime does not multiply one matrix by none",
            lambda n: n.rank(0) == 2 and n.may_be_empty(1, 0, -2),
            empty=True,
            before=(1, 32),
        ),
    ),
    "MaxUnpool": (
        Quirk("onnxruntime writes wherever an index leads", lambda n: True, fatal=True, before=(1, 25)),
    ),
    "OneHot": (_dies("onnxruntime ends the process without indices", (1, 27)),),
    "Pad": (
        Quirk(
            "onnxruntime reads beyond the memory of what it wraps around",
            _wraps,
            fatal=True,
            before=(1, 31),
        ),
    ),
    "Resize": (
        Quirk(
            "onnxruntime takes axes that are counted from the end for places in its memory",
            lambda n: any(axis < 0 for axis in n.ints("axes") or ()),
            fatal=True,
            before=(1, 27),
        ),
    ),
    "ReverseSequence": (
        Quirk("onnxruntime does not write rows of which nothing is reversed", _may_stay, before=(1, 28)),
    ),
    "StringNormalizer": (
        Quirk("onnxruntime wants a locale that many machines have not", lambda n: True, before=(1, 27)),
    ),
    "Trilu": (
        Quirk(
            "onnxruntime writes beyond the memory of a matrix for the lowest int64 as its diagonal",
            lambda n: n.value(1) is not None and n.integers(1) in (None, [-(2**63)]),
            fatal=True,
            before=(1, 30),
        ),
    ),
    "TopK": (_dies("onnxruntime ends the process on an empty input", (1, 31)),),
    "ReduceMax": (*_NOTHING_REDUCED, _BEST_OF_NOTHING),
    "ReduceMin": (*_NOTHING_REDUCED, _BEST_OF_NOTHING),
} | {f"Reduce{name}": _NOTHING_REDUCED for name in _OTHER_REDUCTIONS.split()}
