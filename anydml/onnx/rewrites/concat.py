"""A Concat without what adds nothing: some runtimes do not read tensors without elements.

%y = Concat(%a: [2,n], %e: [2,0], axis 1)   ->   %y = %a
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydml.ir.dims import Dim
from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.rewrites.matcher import Match, Result


def concat_some(match: Match) -> Result:
    """What an input proves of the others' sizes, one that stays has to prove, too."""
    inputs, axis = match.root.inputs, NodeView(match.root).attribute("axis")
    sizes = [None if v is None else v.sizes for v in inputs]
    ranks = {None if s is None else len(s) for s in sizes}
    rank = ranks.pop() if len(ranks) == 1 else None
    if not rank or not isinstance(axis, int) or not -rank <= axis < rank:
        return None

    def others(s: Sequence[Dim] | None) -> list[Dim]:
        return [n for k, n in enumerate(s or ()) if k != axis % rank]

    kept = [v for v, s in zip(inputs, sizes, strict=True) if s and s[axis] != 0]
    told = [others(v.sizes) for v in kept if v is not None]
    if not kept or len(kept) == len(inputs) or any(None in s for s in told):
        return None
    if any(others(s) not in told for s in sizes):
        return None
    if len(kept) == 1:
        return kept[0]
    return [replace(match.root, inputs=tuple(kept))]
