"""Names of values, nodes, graphs and symbols: ordinary ones, and such as a careless program trips over."""

from __future__ import annotations

from collections.abc import Container

from tests.robustness.values import Rng

ORDINARY = ["{}", "v{}", "x_{}", "/model/layer.{}/Add_output_0", "node_{}:0", "onnx::Add_{}", "h{}", "t{}"]
"""Styles of a whole model; the number restarts in each subgraph, so that siblings use the same names."""

ODD = """x y x~2 x~3 q~early q~late z~condition m~2 m v~inner v~outer y~sizes y~matrix y~1 region region0 v0 v1 v2
0 1 2 0.0 1.0 {x.0} {n} unused out out~then out~else cond~1 then else then_branch x_1 x_2 x_1_1 %x %0 @x $x ä é
/model/layer.0/Add_output_0 /model/layer.0/Add_output_0_1 a/b a//b .. . * ? # ~ - + None none null true True
nan inf -1 __init__ self lambda x.y x[0] x:0 x; (x) <x> Add If Loop Identity Constant input output main graph
shape Shape_1 const const_1 c one zero choose value result anydml in out0 in0 y0 b0 s0 k0 arg0 tmp""".split()
ODDER = [
    "a b",
    'q"uote',
    "it's",
    "back\\slash",
    "new\nline",
    "tab\t",
    "trailing ",
    " leading",
    "日本",
    "x" * 90,
]

SYMBOLS = [
    "n",
    "batch",
    "{x.0}",
    "{y.1}",
    "n+1",
    "2*n",
    "batch size",
    "N",
    "seq",
    "x",
    "unk__0",
    "?",
    "-1",
    "n~2",
]
SYMBOLS += ["0", "1", "None", "n - 1", "n*m", "m", "s0", "{n}", "(n)", "min(n, 4)"]


class Names:
    """What a model calls its values.

    Attributes:
        odd: the share of odd names.
        style: of the others.
    """

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.odd = float(rng.choice([0.0, 0.15, 0.5]))
        self.style = str(rng.choice(ORDINARY))

    def fresh(self, taken: Container[str], count: int) -> str:
        """A name that is not taken; `count` numbers the ordinary ones."""
        for _ in range(8):
            name = self._odd() if self.rng.random() < self.odd else self.style.format(count)
            if name not in taken:
                return name
            count += 1
        while (name := self.style.format(count)) in taken:
            count += 1
        return name

    def loose(self) -> str:
        """A name for a node or a graph, which may be used again or be empty."""
        choice = self.rng.random()
        if choice < 0.3:
            return ""
        return self._odd() if choice < 0.3 + self.odd else self.style.format(int(self.rng.integers(5)))

    def _odd(self) -> str:
        pool = ODDER if self.rng.random() < 0.1 else ODD
        return pool[int(self.rng.integers(len(pool)))]
