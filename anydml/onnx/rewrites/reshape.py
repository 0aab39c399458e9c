"""Nodes that keep all elements in their order: they go, or one Reshape stands for a chain of them.

%b: [1,3] = Squeeze(%a: [1,3,1]); %c: [1,1,3] = Unsqueeze(%b); %d: [1,3,1] = Cast(...); %e = Neg(%d)
    ->   %e = Neg(%a)

Where sizes are known, that is.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from anydml.ir.dims import may_be_zero
from anydml.ir.graph import Value
from anydml.onnx.ops.speculation import same_count
from anydml.onnx.rewrites.matcher import Match, Result


def has_same_elements(value: Value, output: Value) -> bool:
    """Whether two values have as many elements of one type, and surely some."""
    sizes, wanted = value.known_sizes, output.known_sizes
    if sizes is None or wanted is None or value.tensor.dtype != output.tensor.dtype:
        return False
    return prod(sizes) == prod(wanted) and 0 not in wanted


def keeps_elements(match: Match) -> bool:
    """Whether the output can have the elements of x; of what a Reshape makes of it, too."""
    reshaped = match.values.get("reshaped", match["x"])
    return has_same_elements(match["x"], reshaped) and has_same_elements(reshaped, match.output)


def is_no_mask(match: Match) -> bool:
    """Whether all sizes are known, and it is no Unsqueeze of a matrix of integers, as a mask is: libraries
    know attention by how its mask is unsqueezed."""
    if not keeps_elements(match):
        return False
    x = match["x"]
    masks = x.tensor.dtype in ("int32", "int64", "bool") and x.rank not in (0, 1)
    return not (masks and match.root.is_onnx("Unsqueeze"))


def keeps_sizes(match: Match) -> bool:
    return keeps_elements(match) and match["x"].sizes == match.output.sizes


def keeps_floats(match: Match) -> bool:
    """A mean over one integer need not be that integer."""
    return keeps_elements(match) and match.output.tensor.dtype.startswith("float")


def is_whole_slice(match: Match) -> bool:
    """A Slice of everything without negative steps."""
    steps = match.root.inputs[4] if len(match.root.inputs) > 4 else None
    if not keeps_sizes(match) or steps is None:
        return keeps_sizes(match)
    return steps in match.constants and bool((match.constants[steps].content > 0).all())


def keeps_order(match: Match) -> bool:
    """A Transpose that moves dimensions of size 1 only, the others staying in their order."""
    if not keeps_elements(match):
        return False
    sizes, perm = match["x"].tensor.static_sizes, match.root.attributes.get("perm")
    moved = [k for k in (reversed(range(len(sizes))) if perm is None else perm.ints) if sizes[k] != 1]
    return moved == sorted(moved)


def reshape(match: Match) -> Result:
    """x itself, or a Reshape of it."""
    x, output = match["x"], match.output
    if x.sizes == output.sizes:
        return x
    if not output.sizes and match.root.op.name == "Squeeze":
        return None  # an empty list of sizes is none to some runtimes
    return [match.make_reshape(x, output)] if match.opset >= 5 else None  # before, sizes were an attribute


def can_find_sizes(match: Match) -> bool:
    """Whether a size of -1 can be found out: of nothing it cannot, and then the node fails."""
    after, told = match.output.sizes, match.root.inputs[1] if len(match.root.inputs) > 1 else None
    content = [] if told is None or told not in match.constants else match.constants[told].content.tolist()
    if after is None or (content and len(content) != len(after)):
        return False
    return not any(may_be_zero(n) for k, n in enumerate(after) if not content or content[k] != -1)


def reshape_by_constants(match: Match) -> Result:
    """To sizes that are numbers or those of the input, which need not be computed, nor found out."""
    before, after = match["x"].sizes, match.output.sizes
    if before is None or after is None or match.output.known_sizes is not None:
        return None
    if not same_count(before, after):
        return None
    told = match.root.inputs[1] if len(match.root.inputs) > 1 else None
    content = None if told is None or told not in match.constants else match.constants[told].content
    sizes: list[int] = []
    for k, size in enumerate(after):
        if k < len(before) and before[k] == size:
            sizes.append(0)
        elif isinstance(size, int) and size:
            sizes.append(size)
        else:
            return None
    flag = match.root.attributes.get("allowzero")
    if (flag is not None and flag.i) or (content is not None and -1 not in content):
        return None
    shape = match.make_constant(f"{match.output.name}~sizes", np.array(sizes, np.int64))
    return [match.make("Reshape", (match["x"], shape), match.output)]


def reshape_afterwards(match: Match) -> Result:
    """What is computed element by element comes first: others may then be merged with the Reshape."""
    x, output = match["x"], match.output
    early = Value(f"{output.name}~early", replace(output.tensor, sizes=x.sizes))
    return [replace(match.root, inputs=(x,), outputs=(early,)), match.make_reshape(early, output)]
