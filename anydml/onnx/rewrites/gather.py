"""One slice that is taken along an axis, and then gets that axis back, is taken with it.

%a: [1,128] = Gather(%x: [2,1,128], 0); %b: [1,1,128] = Reshape(%a)   ->   %b = Gather(%x, [0])
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anydml.onnx.ops.opinfo import NodeView
from anydml.onnx.rewrites.matcher import Match, Result


def keep_gathered_axis(match: Match) -> Result:
    x, place, gather = match["x"], match["place"], match.producers[match["gathered"]]
    sizes, wanted = x.known_sizes, match.output.known_sizes
    axis = NodeView(gather).int("axis")
    if sizes is None or place.known_sizes != ():
        return None
    if wanted != tuple(1 if k == axis % len(sizes) else n for k, n in enumerate(sizes)):
        return None
    content = np.array([match.constants[place].content.item()], np.int64)
    index = match.make_constant(f"{match.output.name}~index", content)
    return [replace(gather, inputs=(x, index), outputs=(match.output,))]
