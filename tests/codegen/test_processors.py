"""Kernels as code for processors that are not at hand: LLVM takes them, and they call no library unasked."""

import os
import platform
import re
import subprocess
import sys
from dataclasses import replace
from itertools import cycle

import llvmlite.binding as llvm
import numpy as np
import pytest

import anydml as dml
from anydml.codegen.best import BestSpec, BestWriter
from anydml.codegen.group import Access, Hold, KernelVariant
from anydml.codegen.jit import assembly, emit_object_file, host
from anydml.codegen.kernel import group
from anydml.codegen.kernel_body import kernel_body
from anydml.codegen.matrix import SUM, C, MatrixSpec, MatrixWriter, tile_of, tile_of_dots
from anydml.codegen.padded import PaddedSpec, PaddedWriter
from anydml.codegen.product import ProductSpec, ProductWriter
from anydml.codegen.row_writer import body_text
from anydml.codegen.running import RunningSpec, RunningWriter
from anydml.codegen.scattered import ScatteredSpec, ScatteredWriter
from anydml.codegen.taken import TakenSpec, TakenWriter
from anydml.codegen.target import PROCESSORS
from anydml.codegen.tuples import TuplesSpec, TuplesWriter
from anydml.codegen.turned import TurnedSpec, TurnedWriter
from anydml.codegen.windows import WindowWriter
from anydml.directml.descriptions import read_attribute
from anydml.onnx.ops import meanings
from anydml.ops import bfloat16
from anydml.ops.catalog import ELEMENT_WISE
from anydml.ops.dtypes import (
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
)
from anydml.ops.elementary import exp
from anydml.ops.enums import FeatureLevel
from anydml.ops.expr import add, constant, convert, div, mul, ne, read, rem, select, walk
from anydml.ops.reductions import row_index, row_max, row_sum
from anydml.runtime import window_kernels

VECTORS = {"aarch64": r"\b[qv]\d", "x86-64-v3": r"%ymm\d", "x86-64-v4": r"%zmm\d", "znver4": r"%[yz]mm\d"}
LIBRARY = {"fmodf", "fmod", "memcpy", "memset"}
"""What code may call: the remainders that no quotient serves have no instruction."""
OLD = {"fmaf", "fma", "floorf", "ceilf", "truncf", "rintf", "floor", "ceil", "trunc", "rint"}
"""What processors before AVX2 may call, too."""


def calls(text):
    """Names that assembly calls."""
    found = re.findall(r"^\s+(?:bl|callq?|jmp|b)\s+\*?([A-Za-z_][\w.]*)", text, re.M)
    return set(found) - set(re.findall(r"^([A-Za-z_][\w.]*):", text, re.M))


def code(spec, variant, processor):
    return taken(kernel_body(spec, variant, PROCESSORS[processor]), processor)


def taken(text, processor):
    made = assembly(text, processor)
    windows = os.name == "nt" and processor != "aarch64"
    assert emit_object_file(text, processor).startswith(b"d\x86" if windows else b"\x7fELF")
    assert calls(made) <= LIBRARY | (set() if processor in VECTORS else OLD) | (
        {"__chkstk"} if windows else set()
    )
    return made


def operator_kernels(operator):
    """Its kernel for each type of the first operand that the newest feature level has."""
    example, table = operator.example, operator.levels[max(operator.levels)]
    values = {a.name: a.default for a in operator.parameters}
    for a in operator.parameters:
        if a.parameter in example.attributes:
            values[a.name] = read_attribute(a, example.attributes[a.parameter], "", FeatureLevel.newest())
    first = operator.inputs[0].dtype
    for dtype in table.dtypes[first] if not example.types else [operator.example_type(first)]:
        chosen = {k: operator.example_type(k) for k in table.dtypes} | {first: dtype}
        if operator.name == "ELEMENT_WISE_QUANTIZE_LINEAR":
            chosen["C"] = FLOAT32 if dtype is INT32 else dtype
        given = [(s, x) for s, x in zip(operator.inputs, example.inputs, strict=True)]
        types = tuple(None if x is None else chosen[s.dtype] for s, x in given)
        meaning = operator.expression(types, chosen[operator.outputs[0].dtype], values, 2)
        yield group(tuple(t for t in types if t is not None), (meaning,))


def packed(spec, **more):
    rows = {"dims": 1, "hold": Hold.SCRATCH, "long": True} if spec.axes is not None else {}
    return KernelVariant((Access.PACKED,) * len(spec.operands), **rows | more)


@pytest.mark.parametrize("processors", [["aarch64"], ["x86-64-v3", "x86-64-v4", "znver4"]], ids=",".join)
@pytest.mark.parametrize("part", range(8))
@pytest.mark.drawn
def test_every_operator_of_every_type(processors, part):
    """Each kernel for ARM, and for one of the others, which take turns."""
    turns, made = cycle(processors), 0
    for operator in ELEMENT_WISE[part::8]:
        for spec in operator_kernels(operator):
            processor = next(turns)
            text = code(spec, packed(spec), processor)
            made += 1
            if FLOAT32 in spec.operands:
                assert re.search(VECTORS[processor], text), operator.name
    assert made > 20


def test_vectors_of_processors_that_halve_them():
    """Cheap kernels have theirs of 32 bytes, others of 64."""
    for spec, narrow in [(PLAIN, True), (COPY, True), (BLOCKS, False), (SOFTMAX, False)]:
        assert ("zmm" not in code(spec, packed(spec), "znver4")) is narrow
        assert "zmm" in code(spec, packed(spec), "x86-64-v4")


@pytest.mark.parametrize("processor", PROCESSORS)
def test_what_onnx_has_beside(processor):
    """Casts, bfloat16, quantization, functions of float64, division by a known number: no calls of libraries."""
    integers = [INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64]
    bits, double = read(0, UINT16), read(0, FLOAT64)
    found = [meanings.CAST.scalar(read(0, t), to) for t in (FLOAT16, FLOAT32, FLOAT64) for to in integers]
    found += [
        bfloat16.widen(bits),
        bfloat16.narrow(read(0, FLOAT32)),
        bfloat16.narrow(exp(bfloat16.widen(bits))),
    ]
    found += [meanings.QUANTIZE.scalar(read(0, t), read(0, t), None) for t in (FLOAT16, FLOAT32)]
    found += [
        meanings.DEQUANTIZE.scalar(read(0, t), constant(0.5, FLOAT32), read(0, t)) for t in integers[:2]
    ]
    found += [f(read(0, t), constant(7, t)) for t in integers for f in (div, rem)]
    found += [m.scalar(double) for m in (meanings.EXP, meanings.LOG, meanings.TANH, meanings.SIGMOID)]
    for expr in [*found, meanings.SOFTPLUS.scalar(double)]:
        leaf = next(e for e in walk(expr, deep=True) if e.opcode == "read")
        code(group((leaf.dtype,), (expr,)), packed(group((leaf.dtype,), (expr,))), processor)


X, Y = read(0, FLOAT32), read(1, FLOAT32)
PLAIN = group((FLOAT32, FLOAT32), (add(mul(X, 2.0), Y),))
BLOCKS = group((FLOAT32, FLOAT32), (exp(div(exp(X), exp(Y))),))
MIXED = group(
    (UINT8, FLOAT16, FLOAT64),
    (convert(select(ne(read(0, UINT8), 0), read(1, FLOAT16), 1.0), FLOAT16), read(2, FLOAT64)),
)
COPY = group((FLOAT32,), (X,))
SOFTMAX = group((FLOAT32,), (div(exp(X), convert(row_sum(convert(exp(X), FLOAT64), (-1,)), FLOAT32)),))
LARGEST = group((FLOAT32,), (row_max(X, (-2, -1)), convert(row_index((-2, -1)), INT32)))
P, S, T = Access.PACKED, Access.SPLAT, Access.STRIDED
KINDS = {
    "packed": (PLAIN, KernelVariant((P, P, P))),
    "a number for all": (PLAIN, KernelVariant((P, S, P))),
    "strided inputs": (PLAIN, KernelVariant((T, P, P))),
    "strided outputs": (PLAIN, KernelVariant((P, P, T))),
    "past the caches": (PLAIN, KernelVariant((P, P, P), stream=True)),
    "blocks": (BLOCKS, KernelVariant((P, P, P))),
    "blocks of strided inputs": (BLOCKS, KernelVariant((T, S, P))),
    "blocks to strided outputs": (BLOCKS, KernelVariant((P, P, T))),
    "blocks past the caches": (BLOCKS, KernelVariant((P, P, P), stream=True)),
    "several widths": (MIXED, KernelVariant((P,) * 5)),
    "tiles": (PLAIN, KernelVariant((P, P, P), turned=(0,))),
    "tiles of both": (BLOCKS, KernelVariant((P, P, P), turned=(0, 1))),
    "a turned copy": (COPY, KernelVariant((P, P), turned=(0,), direct=True)),
    "a turned copy by way of tiles": (COPY, KernelVariant((P, P), turned=(0,))),
    "rows": (SOFTMAX, KernelVariant((P, P), dims=1, hold=Hold.SCRATCH)),
    "long rows": (SOFTMAX, KernelVariant((P, P), dims=1, hold=Hold.OUTPUT, long=True)),
    "rows past the caches": (SOFTMAX, KernelVariant((P, P), stream=True, dims=1, hold=Hold.SCRATCH, long=True)),
    "strided rows": (SOFTMAX, KernelVariant((T, T), dims=2)),
}  # fmt: skip


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.drawn
def test_every_kind_of_loop(processor, kind):
    spec, variant = KINDS[kind]
    if variant.stream and not PROCESSORS[processor].streams:
        return
    code(spec, variant, processor)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_windows(processor):
    for word, dtype, stride in [
        ("MAX", FLOAT32, 2),
        ("MAX", INT8, 5),
        ("AVERAGE", FLOAT32, 1),
        ("LP", FLOAT32, 3),
    ]:
        spec = window_kernels.window_spec(word, dtype, 2, [2, 3, 3], [1, 2, stride], [1, 1, 2])
        made = taken(body_text(WindowWriter, spec, PROCESSORS[processor]), processor)
        if processor in VECTORS:
            assert re.search(VECTORS[processor], made), word


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("rows", [False, True])
def test_taken_elements(processor, rows):
    for spec in [
        TakenSpec(FLOAT32, INT32, terms=2, weighted=True, rows=rows),
        TakenSpec(UINT8, UINT64, rows=rows),
        TakenSpec(UINT16, INT64, rows=rows),
        TakenSpec(UINT32, INT32, rows=rows, own=True),
    ]:
        taken(body_text(TakenWriter, spec, PROCESSORS[processor]), processor)


BITS = (UINT8, UINT16, UINT32, UINT64)
MOVES = [
    *((PaddedWriter, PaddedSpec(t, constant)) for t in BITS for constant in (False, True)),
    *((TurnedWriter, TurnedSpec(t)) for t in BITS),
    *(
        (TuplesWriter, TuplesSpec(t, INT32, 2, long, put))
        for t in BITS
        for long in (False, True)
        for put in (False, True)
    ),
    *((ScatteredWriter, ScatteredSpec(t, INT64)) for t in BITS),
    *((ScatteredWriter, ScatteredSpec(t, UINT32, added=True)) for t in (FLOAT32, FLOAT64)),
    *(
        (ProductWriter, ProductSpec(t, beside))
        for t in (FLOAT32, INT32, INT64, UINT64)
        for beside in (False, True)
    ),
]


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("writer", [PaddedWriter, TurnedWriter, TuplesWriter, ScatteredWriter, ProductWriter])
def test_what_moves_and_multiplies_elements_of_every_width(writer, processor):
    """Two of 64 bits are a vector of the narrowest processors."""
    for spec in (s for w, s in MOVES if w is writer):
        taken(body_text(writer, spec, PROCESSORS[processor]), processor)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_the_best(processor):
    for dtype, place in [(FLOAT32, UINT32), (UINT32, UINT64), (INT8, UINT32)]:
        taken(body_text(BestWriter, BestSpec(dtype, place, 3, True), PROCESSORS[processor]), processor)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_products_of_matrices(processor):
    target = PROCESSORS[processor]
    specs = [
        MatrixSpec(*tile_of(100, 100, target), SUM),
        MatrixSpec(*tile_of(5, 3, target), add(SUM, C), turned=True, c=True),
        MatrixSpec(1, 7, add(SUM, C), c=True, c_repeats=True),
        MatrixSpec(*tile_of_dots(9, 9), SUM, dots=True),
        MatrixSpec(*tile_of_dots(9, 1), SUM, dots=True),
        MatrixSpec(*tile_of(100, 100, target), read(0, INT32), parts=2),
        MatrixSpec(3, 1, read(0, INT32), parts=2),
        MatrixSpec(1, 7, read(0, INT32), parts=2),
        MatrixSpec(*tile_of(100, 100, target), read(0, INT32), parts=4, terms=2),
        MatrixSpec(1, 20, read(0, INT32), parts=4, terms=1),
        MatrixSpec(*tile_of_dots(9, 1), read(0, INT32), parts=4, dots=True, terms=2),
        MatrixSpec(3, 1, read(0, INT32), parts=4, terms=1),
    ]
    for spec in specs:
        text = body_text(MatrixWriter, spec, target)
        taken(text, processor)
        if spec.parts == 4 and max(spec.columns, 8 * spec.dots) > 3:
            assert ("vpdpbusd" in assembly(text, processor)) is target.fours


def test_products_of_bytes_without_avx512():
    """Processors with AVX2 have the instruction for fours, too, if they are new."""
    emit_object_file("define void @f() {\n  ret void\n}\n", "x86-64-v3")  # LLVM knows its targets then
    target = replace(PROCESSORS["x86-64-v3"], fours=True)
    made = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu="alderlake", opt=2)
    for spec in (
        MatrixSpec(*tile_of(100, 100, target), read(0, INT32), parts=4, terms=2, a_signed=True),
        MatrixSpec(*tile_of_dots(9, 1), read(0, INT32), parts=4, dots=True),
        MatrixSpec(1, 20, read(0, INT32), parts=4),
    ):
        text = made.emit_assembly(llvm.parse_assembly(body_text(MatrixWriter, spec, target)))
        assert "vpdpbusd" in text
        assert "%zmm" not in text


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("beside", [False, True])
def test_running_sums(processor, beside):
    for dtype, product, exclusive in [(FLOAT32, False, True), (INT64, True, False), (INT8, False, False)]:
        taken(
            body_text(RunningWriter, RunningSpec(dtype, product, exclusive, beside), PROCESSORS[processor]),
            processor,
        )


@pytest.mark.parametrize("f", [dml.divide, dml.modulus_truncate], ids=["div", "rem"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integers_of_64_bits_are_divided_exactly(dtype, f):
    """Near 0 by float64: at its ends, beside whole quotients; and beside numbers that are far from it."""
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    ends = [0, 1, 2, 3, 2**31, 2**32 - 1, *(2**51 + k for k in (-2, -1, 0, 1)), 2**52, 2**53 + 1, info.max]
    ends = np.array([*ends, *(-e for e in ends if info.min), info.min], dtype)
    a, b = (m.ravel() for m in np.meshgrid(ends, ends))
    factors, others = rng.integers(1, 2**25, (2, 2000), dtype=dtype)
    products = factors * others
    beside = np.concatenate([products - 1, products, products + 1])
    some_far = np.where(np.arange(len(beside)) % 97, beside, info.max - 5)
    drawn = rng.integers(info.min, info.max, (2, 2000), dtype=dtype, endpoint=True)
    for x, y in [(a, b), (beside, np.tile(others, 3)), (some_far, np.tile(others, 3)), drawn]:
        safe = np.where(y == 0, dtype(1), y)
        with np.errstate(over="ignore"):  # the least number divided by -1 is itself
            rest = np.where(y == 0, dtype(0), np.fmod(x, safe))
            whole = np.where(y == 0, dtype(0), (x - np.fmod(x, safe)) // safe)
        np.testing.assert_array_equal(f(x, y), whole if f is dml.divide else rest)


ONE_BY_ONE = r"\bv?cvtts[sd]2u?si|\bfcvtz[us]\s+[wx]"


@pytest.mark.parametrize("processor", VECTORS)
@pytest.mark.parametrize("source", [FLOAT16, FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("target", [INT8, UINT8, INT16, UINT16, INT32, UINT32], ids=str)
def test_floats_become_integers_in_vectors(source, target, processor):
    """But for the few before an aligned address and at the end."""
    spec = group((source,), (convert(read(0, source), target),))
    alone = 2 if (processor, source) != ("aarch64", FLOAT64) else 10  # it has no such vectors of 2
    assert len(re.findall(ONE_BY_ONE, code(spec, packed(spec), processor))) <= alone


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_from_floats_saturate(source, target):
    """Around the ends of the type, and of every exponent; NaN becomes 0."""
    info, float_ = np.iinfo(target), np.finfo(source)
    with np.errstate(over="ignore"):
        ends = np.array([info.min, info.max, 0, 1, 2.5, -0.5, 0.999, np.inf, -np.inf, np.nan], source)
        around = [ends, np.nextafter(ends, source(np.inf)), np.nextafter(ends, source(-np.inf))]
        powers = np.array([s * 2.0**k for k in range(-3, 70) for s in (1, -1)], source)
        x = np.concatenate([*around, powers, np.nextafter(powers, source(0)), [float_.max, -float_.max]])
    x = np.tile(x.astype(source), 3)

    def exact(value):
        if np.isnan(value):
            return 0
        return (
            max(info.min, min(info.max, int(value)))
            if np.isfinite(value)
            else info.max
            if value > 0
            else info.min
        )

    wanted = np.array([exact(v) for v in x], target)
    assert np.array_equal(dml.cast(x, output_data_type=target.upper()), wanted)


LEVELS = """
import numpy as np, anydml as dml
g = dml.GraphBuilder()
x = g.input("x", "FLOAT32", (1, 1, 1, 1000))
graph = g.compile({"y": dml.tanh(x) * 2 + x})
text = graph.emit("asm")
given = np.linspace(-3, 3, 1000, dtype=np.float32).reshape(1, 1, 1, 1000)
print("zmm" in text, "ymm" in text, graph({"x": given})["y"].tobytes().hex()[:2000])
for length in (5, 20, 33, 64, 77, 197, 1000):
    rows = np.sin(np.arange(30 * length, dtype=np.float32)).reshape(30, length) * 4
    for f in (dml.activation_softmax, dml.activation_log_softmax):
        print(f(rows).tobytes().hex())
    print(dml.reduce(rows * rows + 1, "SUM", [1]).tobytes().hex())
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
def test_code_for_older_processors(tmp_path):
    """What is on disk is apart, too."""
    found = {}
    for level in ("", "x86-64-v3", "x86-64-v2", "x86-64-v3"):
        env = os.environ | {"ANYDML_PROCESSOR": level, "ANYDML_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", LEVELS], env=env, capture_output=True, text=True, check=True
        )
        found[level] = done.stdout.split()
    assert found["x86-64-v3"][0] == "False"
    assert found["x86-64-v2"][:2] == ["False", "False"]
    assert found["x86-64-v3"][1] == str(host().vector_bytes >= 32)
    assert found[""][2:] == found["x86-64-v3"][2:]
    env = os.environ | {"ANYDML_PROCESSOR": "x86-64-v4"}
    done = subprocess.run([sys.executable, "-c", LEVELS], env=env, capture_output=True, text=True)
    assert "$ANYDML_PROCESSOR: expected x86-64-v3 | x86-64-v2, but got 'x86-64-v4'" in done.stderr
