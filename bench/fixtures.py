"""Models with Ifs of the kinds that exporters leave behind, as texts: what flatteners are compared on.

PyTorch's own exports lie in tests/data (`python -m tools.export_fixtures`), the merged decoder is in
bench/decoder.py, and Silero VAD's three models come with the PyPI package silero-vad.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from bench.decoder import merged_decoder

DATA = Path(__file__).parent.parent / "tests" / "data"


@dataclass(frozen=True)
class Fixture:
    """A model; what to flatten it with; and how many Ifs must be left."""

    name: str
    model: bytes
    options: Mapping[str, Any] = field(default_factory=dict)
    left: int = 0


def fixtures() -> Iterator[Fixture]:
    yield Fixture("detection head, empty or not", _text(DETECTION))
    yield Fixture("detection head, sizes given", _text(DETECTION), {"shapes": {"boxes": (5, 4)}})
    yield Fixture("early exit", _text(_early_exit()), left=1)
    yield Fixture("early exit, always converted", _text(_early_exit()), {"convert": "always"})
    yield Fixture("an If in a Loop", _text(LOOP))
    yield Fixture("an If in a Scan in an If", _text(SCAN), left=1)
    yield Fixture("200 Ifs in a row", _text(_row(200)))
    yield Fixture("30 Ifs one in another", _text(_nest(30)), left=28)
    yield Fixture("30 Ifs one in another, always converted", _text(_nest(30)), {"convert": "always"})
    yield Fixture("equal branches", _text(EQUAL))
    yield Fixture("a sign by its data", _text(SIGN))
    yield Fixture("division by what may be 0", _text(DIVISION), {"convert": "always"})
    decoder = merged_decoder()
    yield Fixture("merged decoder", decoder, left=1)
    yield Fixture("merged decoder, with a cache", decoder, {"fixed": {"use_cache_branch": [True]}})
    yield Fixture("merged decoder, without", decoder, {"fixed": {"use_cache_branch": [False]}})
    for path in sorted(DATA.glob("torch_*.onnx")):
        squeeze = path.stem == "torch_squeeze"
        nested = path.stem == "torch_cond_nested"
        yield Fixture(path.stem.replace("_", " "), path.read_bytes(), left=int(squeeze or nested))
        if nested:
            yield Fixture("torch cond nested, always converted", path.read_bytes(), {"convert": "always"})
        if squeeze:  # without its sizes, it may give either of two ranks
            yield Fixture("torch squeeze, sizes given", path.read_bytes(), {"shapes": {"x": (2, 1, 3)}})


def _text(text: str) -> bytes:
    return bytes(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text).SerializeToString()
    )


DETECTION = """head (float[n, 4] boxes) => (float[k, 4] kept) <int64[1] last = {-1}, int64 none = {0}> {
    sizes = Shape (boxes)  count = Gather (sizes, none)  empty = Equal (count, none)
    areas = ReduceSum <keepdims = 1> (boxes, last)  zero = Constant <value_float = 0.0> ()
    large = Greater (areas, zero)
    kept = If (empty) <
        then_branch = nothing () => (float[0, 4] a) { a = Identity (boxes) },
        else_branch = some () => (float[m, 4] b) { b = Where (large, boxes, zero) }>
}"""
"""Whether there is a box at all is asked before a selection, which would not mind."""

LOOP = """looped (int64 n, float[3] x) => (float[3] y) {
    go = Constant <value_int = 1> ()  more = Cast <to = 9> (go)
    y = Loop (n, more, x) <body = b (int64 i, bool k, float[3] s) => (bool k1, float[3] s1) {
        two = Constant <value_int = 2> ()  odd = Mod (i, two)  c = Cast <to = 9> (odd)  k1 = Identity (k)
        s1 = If (c) <then_branch = t () => (float[3] p) { p = Add (s, x) },
                     else_branch = e () => (float[3] q) { q = Sub (x, s) }>
    }>
}"""

SCAN = """scanned (bool c, float[3] start, float[n, 3] xs) => (float[3] y) {
    y = If (c) <then_branch = t () => (float[3] p) {
        p, rows = Scan <num_scan_inputs = 1, body = b (float[3] s, float[3] x) => (float[3] s1, float[3] r) {
            sum = ReduceSum <keepdims = 0> (x)  zero = Constant <value_float = 0.0> ()
            up = Greater (sum, zero)
            s1 = If (up) <then_branch = u () => (float[3] g) { g = Add (s, x) },
                          else_branch = d () => (float[3] h) { h = Identity (s) }>
            r = Identity (s1) }> (start, xs)
    }, else_branch = e () => (float[3] q) {
        q, others = Scan <num_scan_inputs = 1, body = b2 (float[3] s2, float[3] x2)
            => (float[3] s3, float[3] r2) { s3 = Mul (s2, x2)  r2 = Identity (s3) }> (start, xs)
    }>
}"""

EQUAL = """equal (bool c, float[n] x) => (float[n] y) <float half = {0.5}, float again = {0.5}> {
    y = If (c) <then_branch = t () => (float[n] p) { a = Mul (x, half)  p = Relu (a) },
                else_branch = e () => (float[n] q) { b = Mul (x, again)  q = Relu (b) }>
}"""

SIGN = """sign (float[n] x) => (float[n] y) {
    sum = ReduceSum <keepdims = 0> (x)  zero = Constant <value_float = 0.0> ()  up = Greater (sum, zero)
    y = If (up) <then_branch = t () => (float[n] p) { a = Abs (x)  p = Sqrt (a) },
                 else_branch = e () => (float[n] q) { b = Abs (x)  l = Log (b)  q = Neg (l) }>
}"""

DIVISION = """division (bool c, int64[n] x, int64[n] d) => (int64[n] y) {
    y = If (c) <then_branch = t () => (int64[n] p) { p = Div (x, d) },
                else_branch = e () => (int64[n] q) { q = Neg (x) }>
}"""


def _early_exit() -> str:
    """Where a first look is sure enough, a heavy second one is left out."""
    layers = "  ".join(f"h{k} = MatMul (h{k - 1}, w)  r{k} = Relu (h{k})" for k in range(1, 9))
    return f"""exit (float[1, 64] x, float[64, 64] w) => (float[1, 64] y) {{
        first = ReduceMax <keepdims = 0> (x)  limit = Constant <value_float = 2.0> ()
        sure = Greater (first, limit)
        y = If (sure) <then_branch = t () => (float[1, 64] p) {{ p = Softmax (x) }},
                       else_branch = e () => (float[1, 64] r8) {{ h0 = Relu (x)  {layers} }}>
    }}"""


def _row(count: int) -> str:
    lines = []
    for k in range(count):
        before = f"y{k - 1}" if k else "x"
        lines.append(f"""y{k} = If (c{k % 2}) <
            then_branch = t{k} () => (float[4] p{k}) {{ p{k} = Neg ({before}) }},
            else_branch = e{k} () => (float[4] q{k}) {{ q{k} = Add ({before}, x) }}>""")
    return f"row (bool c0, bool c1, float[4] x) => (float[4] y{count - 1}) {{ {' '.join(lines)} }}"


def _nest(depth: int) -> str:
    def level(k: int, result: str) -> str:
        if k == depth:
            return f"{result} = Add (x, x)"
        inner = level(k + 1, f"v{k}")
        return f"""i{k} = Constant <value_int = {k}> ()  g{k} = Gather (cs, i{k})
            {result} = If (g{k}) <then_branch = t{k} () => (float[4] v{k}) {{ {inner} }},
                else_branch = e{k} () => (float[4] w{k}) {{
                    f{k} = Cast <to = 1> (i{k})  w{k} = Add (x, f{k}) }}>"""

    return f"nest (bool[{depth}] cs, float[4] x) => (float[4] y) {{ {level(0, 'y')} }}"
