"""Sizes on which a branch cannot fail: what it is shown while the other branch is the one that counts.

A branch for 8000 Hz fails on a window of 16000 Hz. To run both in place of an If, the one that is not taken
sees an array of other sizes, its witness, on which ONNX's rules prove that nothing in it can fail.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from math import prod

from anydml.dataclass import dataclass
from anydml.ir.dims import Affine
from anydml.ir.graph import Constant, Graph, If, TensorType, Type, Value
from anydml.onnx.if_conversion.speculation import no_sizes_help, speculation_hazard
from anydml.onnx.partial_eval.evaluator import specialize
from anydml.onnx.partial_eval.shape_inference import ShapeInference

SIZES = (256, 64, 512, 16, 1024, 8, 128, 32, 2048, 4, 2, 4096, 3, 10, 100, 224)
"""What is tried for a size that is not known."""
MAX_WITNESS_ELEMENTS = 1 << 20
"""Of all that a branch is shown while it is not taken, which takes memory."""
MAX_TRIED_NODES = 20_000
"""Of all guesses at a branch's sizes."""


@dataclass(frozen=True)
class Placeholder:
    """Sizes for captured values of a branch."""

    sizes: Mapping[Value, tuple[int, ...]]

    def __str__(self) -> str:
        return ", ".join(f"{v.name} of sizes {list(s)}" for v, s in self.sizes.items())


def safe_placeholders(
    branch: Graph,
    oracle: ShapeInference,
    witnesses: Mapping[Value, tuple[int, ...]],
    around: Mapping[Value, Constant],
    conditions: Collection[Value] = (),
) -> Placeholder | None:
    """Sizes for the branch's captures on which it cannot fail; None if none are found.

    Args:
        conditions: those that decide whether it is taken, which stay what they are.
        witnesses: sizes that the user gives for values.
        around: constants of the graphs around.
    """
    captured = [v for v in branch.inputs if v not in conditions]
    free = [v for v in captured if v.sizes is not None and v.known_sizes is None]
    symbols = list(dict.fromkeys(n for v in free for n in (v.sizes or ()) if isinstance(n, Affine)))
    if not symbols:
        return None
    count = max(MAX_TRIED_NODES // max(sum(1 for _ in branch.walk()), 1), 2)
    for guess in islice(_guesses(symbols), count):
        chosen = {
            v: witnesses.get(
                v, tuple(n if isinstance(n, int) else guess[n] for n in (v.sizes or ()) if n is not None)
            )
            for v in free
        }
        if any(len(s) != len(v.sizes or ()) for v, s in chosen.items()):
            return None
        if sum(map(prod, chosen.values())) > MAX_WITNESS_ELEMENTS:
            continue
        types: dict[Value, Type] = {
            v: TensorType(v.type.dtype, s) for v, s in chosen.items() if isinstance(v.type, TensorType)
        }
        special = specialize(branch, types, {}, oracle.opsets, oracle.provider, deep=True).graph
        constants = {**around, **special.constants}
        if not any(speculation_hazard(n, constants) for n in special.nodes):
            return Placeholder(chosen)
        if _is_hopeless(special, constants):
            return None
    return None


def _is_hopeless(branch: Graph, constants: Mapping[Value, Constant]) -> bool:
    """Whether a node that its outputs need, whichever way Ifs go, may fail whatever the sizes."""
    needed = set(branch.outputs)
    for node in reversed(branch.nodes):
        if isinstance(node, If):
            needed.add(node.condition)
        elif not needed.isdisjoint(node.writes):
            if no_sizes_help(node, constants):
                return True
            needed.update(node.reads)
    return False


def _guesses(symbols: list[Affine]) -> Iterator[dict[Affine, int]]:
    """Numbers for symbols: first one of them varies while all others are 1, then all are the same."""
    yield dict.fromkeys(symbols, 1)
    for size in SIZES:
        for varied in symbols:
            yield {**dict.fromkeys(symbols, 1), varied: size}
    for size in SIZES:
        yield dict.fromkeys(symbols, size)
