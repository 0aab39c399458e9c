"""LSTM, GRU and RNN, which have no rule of ours."""

from __future__ import annotations

from math import prod

from anydml.onnx.ops import result_types
from anydml.onnx.ops.opinfo import KnownNode, OpInfo, Quirk
from anydml.onnx.ops.shared import assumed_sizes
from anydml.onnx.ops.speculation import if_run


def _flops(n: KnownNode, results: int) -> int:
    x, w, r = (assumed_sizes(n, k) for k in range(3))
    return 2 * x[0] * x[1] * (prod(w) + prod(r)) if len(x) == len(w) == 3 else results


_EMPTY = Quirk(
    "onnxruntime ends the process on an empty input", lambda n: n.may_be_empty(0), fatal=True, empty=True
)
_LENGTHS = ("ignores sequence_lens", lambda n: n.value(4) is not None)


def _no_batch(n: KnownNode) -> bool:
    return n.rank(0) not in (None, 3)


OPS = (
    OpInfo(
        "LSTM",
        result=result_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        quirks=(_EMPTY,),
        reference_error=_LENGTHS,
        moves_first=True,
    ),
    OpInfo(
        "GRU",
        result=result_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        quirks=(_EMPTY,),
        reference_error=_LENGTHS,
        moves_first=True,
    ),
    OpInfo(
        "RNN",
        result=result_types.recurrent,
        wrong_ranks=_no_batch,
        speculatable=if_run,
        flops=_flops,
        reference_error=_LENGTHS,
        moves_first=True,
    ),
)
