"""A decoder as exporters merge it: one If on `use_cache_branch`, whose branches share all weights.

    input_ids, past.0.key, ..., use_cache_branch  ->  logits, present.0.key, ...

Without a cache, the branch reads a whole prompt and masks what is later; with one, it reads what is new
and appends to the cache, so the branches' caches differ in length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

LAYERS, WIDTH, HEADS, WORDS, LONGEST = 4, 256, 4, 1000, 256
_DEPTH = WIDTH // HEADS
_CACHES = [f"{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]


def merged_decoder() -> bytes:
    """The model: 4 layers, width 256."""
    cache = f"float[batch, {HEADS}, past, {_DEPTH}]"
    grown = f"float[batch, {HEADS}, total, {_DEPTH}]"
    given = ", ".join(f"{cache} past_{_name(c)}" for c in _CACHES)
    results = ", ".join(f"{grown} present_{_name(c)}" for c in _CACHES)
    text = f"""<ir_version: 8, opset_import: ["": 17]> decoder
        (int64[batch, new] input_ids, {given}, bool[1] use_cache_branch)
        => (float[batch, new, {WORDS}] logits, {results}) {{
        logits, {", ".join("present_" + _name(c) for c in _CACHES)} = If (use_cache_branch)
            <then_branch = {_branch(True)}, else_branch = {_branch(False)}>
    }}"""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in _weights(rng))
    return bytes(model.SerializeToString())


def generate(run: Any, prompt: int = 8, tokens: int = 24) -> list[int]:
    """Words that the model finds likeliest, one at a time: `run` is a session's, of this model."""
    found = [int(w) for w in np.random.default_rng(1).integers(0, WORDS, prompt)]
    ids, past, cached = np.array([found]), _no_past(), False
    for _ in range(tokens):
        feeds = {"input_ids": ids, **past, "use_cache_branch": np.array([cached])}
        logits, *caches = run(None, feeds)
        past = {"past_" + _name(c): x for c, x in zip(_CACHES, caches, strict=True)}
        found.append(int(logits[0, -1].argmax()))
        ids, cached = np.array([[found[-1]]]), True
    return found[prompt:]


def feeds(past: int) -> Mapping[str, NDArray[Any]]:
    """Inputs for one token after `past` others."""
    caches = {n: np.ones((1, HEADS, past, _DEPTH), np.float32) for n in _no_past()}
    return {"input_ids": np.array([[3]]), **caches, "use_cache_branch": np.array([True])}


def _name(cache: str) -> str:
    return cache.replace(".", "_")


def _no_past() -> dict[str, NDArray[Any]]:
    return {"past_" + _name(c): np.zeros((1, HEADS, 0, _DEPTH), np.float32) for c in _CACHES}


def _weights(rng: np.random.Generator) -> Iterator[tuple[str, NDArray[Any]]]:
    def drawn(*sizes: int) -> NDArray[Any]:
        return np.asarray(rng.standard_normal(sizes) / sizes[0] ** 0.5, np.float32)

    yield "words", drawn(WORDS, WIDTH) * 30
    yield "positions", drawn(LONGEST, WIDTH) * 15
    yield "to_words", drawn(WIDTH, WORDS)
    for i in range(LAYERS):
        yield f"qkv{i}", drawn(WIDTH, 3 * WIDTH)
        yield f"out{i}", drawn(WIDTH, WIDTH)
        yield f"up{i}", drawn(WIDTH, 4 * WIDTH)
        yield f"down{i}", drawn(4 * WIDTH, WIDTH)
    for norm in [*(f"{n}{i}" for i in range(LAYERS) for n in "ab"), "last"]:
        yield f"scale_{norm}", np.ones(WIDTH, np.float32)
        yield f"bias_{norm}", np.zeros(WIDTH, np.float32)


def _branch(cached: bool) -> str:
    """One branch, in ONNX's text; its values are called by the branch, its outputs by the cache."""
    p = "t_" if cached else "e_"
    start = "Shape <start = 2, end = 3> (past_0_key)" if cached else "Constant <value_ints = [0]> ()"
    lines = [
        f"{p}start = {start}",
        f"{p}new = Shape <start = 1, end = 2> (input_ids)",
        f"{p}end = Add ({p}start, {p}new)",
        f"{p}one = Constant <value_int = 1> ()",
        f"{p}first = Squeeze ({p}start)",
        f"{p}behind = Squeeze ({p}end)",
        f"{p}places = Range ({p}first, {p}behind, {p}one)",
        f"{p}w = Gather (words, input_ids)",
        f"{p}p = Gather (positions, {p}places)",
        f"{p}x0 = Add ({p}w, {p}p)",
        f"{p}heads = Constant <value_ints = [0, 0, {HEADS}, {_DEPTH}]> ()",
        f"{p}flat = Constant <value_ints = [0, 0, {WIDTH}]> ()",
        f"{p}scale = Constant <value_float = {_DEPTH**-0.5}> ()",
        f"{p}half = Constant <value_float = 0.5> ()",
        f"{p}unit = Constant <value_float = 1.0> ()",
        f"{p}root = Constant <value_float = 1.41421354> ()",
    ]
    if not cached:  # what is later is masked
        lines += [
            f"{p}square = Concat <axis = 0> ({p}new, {p}new)",
            f"{p}least = Constant <value_float = -10000.0> ()",
            f"{p}full = Expand ({p}least, {p}square)",
            f"{p}mask = Trilu <upper = 1> ({p}full, {p}one)",
        ]
    for i in range(LAYERS):
        lines += _layer(p, i, cached)
    lines += [
        f"{p}last = LayerNormalization <axis = -1> ({p}x{LAYERS}, scale_last, bias_last)",
        f"{p}logits = MatMul ({p}last, to_words)",
    ]
    declared = [f"float[batch, new, {WORDS}] {p}logits"]
    declared += [f"float[batch, {HEADS}, total, {_DEPTH}] {p}{_name(c)}" for c in _CACHES]
    return f"{p}g () => ({', '.join(declared)}) {{ {' '.join(lines)} }}"


def _layer(p: str, i: int, cached: bool) -> Iterator[str]:
    q = f"{p}{i}_"
    yield f"{q}n = LayerNormalization <axis = -1> ({p}x{i}, scale_a{i}, bias_a{i})"
    yield f"{q}qkv = MatMul ({q}n, qkv{i})"
    yield f"{q}qf, {q}kf, {q}vf = Split <axis = -1> ({q}qkv)"
    for part in "qkv":
        yield f"{q}{part}r = Reshape ({q}{part}f, {p}heads)"
        yield f"{q}{part} = Transpose <perm = [0, 2, 1, 3]> ({q}{part}r)"
    for part, name in (("k", "key"), ("v", "value")):
        grown = f"Concat <axis = 2> (past_{i}_{name}, {q}{part})" if cached else f"Identity ({q}{part})"
        yield f"{q}{name} = {grown}"
    yield f"{q}kt = Transpose <perm = [0, 1, 3, 2]> ({q}key)"
    yield f"{q}s = MatMul ({q}q, {q}kt)"
    yield f"{q}scaled = Mul ({q}s, {p}scale)"
    masked = f"{q}scaled"
    if not cached:
        masked = f"{q}masked"
        yield f"{masked} = Add ({q}scaled, {p}mask)"
    yield f"{q}a = Softmax <axis = -1> ({masked})"
    yield f"{q}o = MatMul ({q}a, {q}value)"
    yield f"{q}ot = Transpose <perm = [0, 2, 1, 3]> ({q}o)"
    yield f"{q}of = Reshape ({q}ot, {p}flat)"
    yield f"{q}out = MatMul ({q}of, out{i})"
    yield f"{q}y = Add ({p}x{i}, {q}out)"
    yield f"{q}m = LayerNormalization <axis = -1> ({q}y, scale_b{i}, bias_b{i})"
    yield f"{q}u = MatMul ({q}m, up{i})"
    yield f"{q}g1 = Div ({q}u, {p}root)"
    yield f"{q}g2 = Erf ({q}g1)"
    yield f"{q}g3 = Add ({q}g2, {p}unit)"
    yield f"{q}g4 = Mul ({q}u, {q}g3)"
    yield f"{q}g = Mul ({q}g4, {p}half)"
    yield f"{q}down = MatMul ({q}g, down{i})"
    yield f"{p}x{i + 1} = Add ({q}y, {q}down)"
