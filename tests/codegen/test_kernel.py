"""Kernels below the public API: collapsed dimensions, launch descriptors, and the kernel bodies' code."""

import ctypes
import multiprocessing
import os
import threading
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from anydml.codegen import kernel
from anydml.codegen.emit import Emitter
from anydml.codegen.group import Access, KernelVariant
from anydml.codegen.jit import compile_ir, driver, host
from anydml.codegen.kernel import MemoryOperand, group, make_descriptor
from anydml.codegen.kernel_body import kernel_body
from anydml.codegen.llvm_types import value_type
from anydml.codegen.loop_dims import collapse
from anydml.ops.dtypes import FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT64, NUMPY, UINT8
from anydml.ops.expr import absolute, convert, eq, ne, read, select
from anydml.runtime.addresses import address
from anydml.runtime.launch import launch, threads_for
from anydml.runtime.threads import pool

INF = float("inf")


def run(descriptor):
    driver().run(descriptor.buffer_info()[0])


def selection(dtype):
    return group((UINT8, dtype, dtype), (select(ne(read(0, UINT8), 0), read(1, dtype), read(2, dtype)),))


def selected(c, a, b):
    return np.where(c != 0, a, b)


def random_bits(rng, dtype, shape):
    dtype = np.dtype(dtype)
    return (
        rng.integers(0, 256, prod(shape) * dtype.itemsize, np.uint8).view(f"u{dtype.itemsize}").reshape(shape)
    )


class Memory:
    """A strided operand amid guard bytes: `view` is what the kernel sees, `untouched` what it must leave."""

    def __init__(self, rng, dtype, sizes, order, pads, flips, broadcast=(), offset=0):
        width = np.dtype(dtype).itemsize
        strides, step = [0] * len(sizes), width
        for d in order:
            if d not in broadcast:
                strides[d] = step
                step = step * sizes[d] + pads[d] * width
        self.bytes = rng.integers(0, 256, step + 256, np.uint8)
        start = -self.bytes.ctypes.data % 64 + 64 + offset
        for d in flips:
            start += (sizes[d] - 1) * strides[d]
            strides[d] = -strides[d]
        first = np.ndarray((), f"u{width}", self.bytes, start)
        self.view = as_strided(first, sizes, strides)
        self.operand = MemoryOperand(address(first), tuple(strides))

    def bytes_after(self, values):
        """All bytes as they must be once `values` have been written through the view."""
        changed = self.bytes.copy()
        start = self.operand.address - self.bytes.ctypes.data
        first = np.ndarray((), self.view.dtype, changed, start)
        as_strided(first, self.view.shape, self.view.strides)[...] = values
        return changed


def random_memory(rng, dtype, sizes, *, output=False):
    rank = len(sizes)
    broadcast = [] if output else [d for d in range(rank) if rng.random() < 0.2]
    order = rng.permutation(rank) if rng.random() < 0.5 else range(rank)[::-1]
    pads = rng.integers(0, 3, rank) * (rng.random() < 0.5)
    flips = [d for d in range(rank) if rng.random() < 0.15]
    offset = int(rng.choice([0, 0, 1, 2, 4, 24]))
    return Memory(rng, dtype, sizes, order, pads, flips, broadcast, offset)


def check_selection(rng, dtype, sizes, *, threads=1):
    types = (UINT8, dtype, dtype, dtype)
    memory = [random_memory(rng, NUMPY[t], sizes, output=k == 3) for k, t in enumerate(types)]
    c, a, b, y = memory
    c.bytes[rng.random(len(c.bytes)) < 0.5] = 0
    expected = y.bytes_after(selected(c.view, a.view, b.view))
    descriptor = make_descriptor(
        selection(dtype), sizes, [m.operand for m in memory], pool=pool.address, threads=threads_for(threads)
    )
    run(descriptor)
    assert np.array_equal(y.bytes, expected), (sizes, [m.operand.strides for m in memory])


@pytest.fixture
def split_small_jobs(monkeypatch):
    """Cut every launch descriptor of more than 1024 elements into chunks, and wake sleeping workers for it."""
    monkeypatch.setattr(kernel, "MIN_SPLIT_BYTES", 0)
    monkeypatch.setattr(kernel, "MIN_WAKE_BYTES", 0)


@pytest.fixture
def stream_small_jobs(monkeypatch):
    monkeypatch.setattr(kernel, "MIN_STREAMED_BYTES", 0)


# ---- collapse ----------------------------------------------------------------------------------------


def visited(dims):
    """The offsets of all operands at every index, as a sorted list."""
    sizes, strides = [n for n, _ in dims], [s for _, s in dims]
    count = len(strides[0])
    return sorted(
        tuple(sum(i * s[k] for i, s in zip(index, strides, strict=True)) for k in range(count))
        for index in product(*map(range, sizes))
    )


@pytest.mark.parametrize("seed", range(60))
def test_collapse_visits_the_same_elements(seed):
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.choice([1, 1, 2, 3, 5, 17], rng.integers(0, 5))]
    packed = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
    choices = [packed, [0] * len(sizes), [int(s) for s in rng.integers(-9, 10, len(sizes))]]
    strides = [[s * 4 for s in choices[rng.integers(0, 3)]] for _ in range(rng.integers(1, 4))]
    dims = collapse(sizes, strides)
    assert 1 <= len(dims) <= max(1, sum(n > 1 for n in sizes))
    assert visited(dims) == visited(list(zip(sizes, zip(*strides, strict=True), strict=True)) or dims)


@pytest.mark.parametrize(
    ("sizes", "strides", "wanted"),
    [
        ((), [(), ()], [(1, (0, 0))]),
        ((1, 1), [(7, 7), (3, 3)], [(1, (0, 0))]),
        ((2, 3, 4), [(48, 16, 4), (12, 4, 1)], [(24, (4, 1))]),
        ((2, 3, 4), [(4, 8, 24), (1, 2, 6)], [(24, (4, 1))]),
        ((2, 1, 4), [(16, 99, 4), (4, 99, 1)], [(8, (4, 1))]),
        ((30, 40), [(0, 4), (40, 1)], [(30, (0, 40)), (40, (4, 1))]),
        ((30, 40), [(-160, -4), (-40, -1)], [(1200, (-4, -1))]),
        ((20, 30), [(4, 80), (30, 1)], [(20, (4, 30)), (30, (80, 1))]),
    ],
)
def test_collapse_joins_what_one_stride_passes(sizes, strides, wanted):
    assert collapse(sizes, strides) == wanted


# ---- launch descriptors over strided memory ----------------------------------------------------------


@pytest.mark.parametrize("dtype", [INT8, FLOAT16, FLOAT32, INT64])
@pytest.mark.parametrize("seed", range(25))
def test_random_shapes_and_strides(dtype, seed):
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.choice([1, 2, 3, 4, 7, 16, 33], rng.integers(0, 6))]
    while prod(sizes) > 40_000:
        sizes.pop()
    check_selection(rng, dtype, sizes)


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes_and_strides_in_chunks(split_small_jobs, seed):
    """Chunks begin and end in the middle of rows."""
    rng = np.random.default_rng(seed)
    for sizes in ((3, 1031), (1031, 3), (700, 2), (2, 700), (9, 10, 11, 12), (1, 5000), (2,) * 12, (1025,)):
        check_selection(rng, (INT8, FLOAT16, FLOAT32, INT64)[seed % 4], sizes, threads=2 + seed % 3)


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_job_has_no_more_chunks_than_the_ticket_counts(split_small_jobs, monkeypatch, most):
    monkeypatch.setattr(kernel, "MAX_CHUNKS", most)
    operands = [MemoryOperand(0, (width,)) for width in (1, 4, 4, 4)]
    assert 1 <= make_descriptor(selection(FLOAT32), (10_007,), operands, threads=4)[0] <= most
    for n in (1024, 1025, 10_007):
        check_selection(np.random.default_rng(n), FLOAT32, (n,), threads=4)


@pytest.mark.parametrize("inner", [1, 2, 3, 5, 15, 16, 17])
@pytest.mark.parametrize("outer", [1, 2, 63, 64, 65, 1000])
def test_a_tiny_inner_dimension(inner, outer):
    rng = np.random.default_rng(inner)
    for sizes in ((outer, inner), (inner, outer), (2, outer, inner), (inner, outer, inner)):
        check_selection(rng, FLOAT32, sizes)


@pytest.mark.parametrize("dtype", [INT8, FLOAT16, FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_lengths_around_vector_widths(dtype, offset):
    rng, npy = np.random.default_rng(5), NUMPY[dtype]
    lengths = {1, 2, 3, 1023, 1024, 1025, 2049}
    lengths |= {lanes * k + d for lanes in (8, 16, 32, 64, 128, 256) for k in (1, 2) for d in (-1, 0, 1)}
    for n in sorted(lengths):
        c, a, b, y = (
            Memory(rng, t, (n,), [0], [0], [], broadcast=hide, offset=offset)
            for t, hide in ((np.uint8, []), (npy, []), (npy, [0] if n % 3 == 0 else []), (npy, []))
        )
        c.bytes &= 1
        expected = y.bytes_after(selected(c.view, a.view, b.view))
        run(make_descriptor(selection(dtype), (n,), [m.operand for m in (c, a, b, y)]))
        assert np.array_equal(y.bytes, expected), n


@pytest.mark.parametrize("n", [127, 128, 4096, 65_537])
def test_several_outputs_of_one_group(n):
    """Also of different widths, and with an operand that is read twice."""
    rng = np.random.default_rng(n)
    x, z = read(0, FLOAT32), read(1, INT16)
    outputs = (
        convert(eq(absolute(x), INF), UINT8),
        absolute(z),
        select(ne(x, x), z, 7),
        convert(ne(z, 0), INT64),
    )
    a, b = random_bits(rng, np.float32, (n,)).view(np.float32), rng.integers(-2, 3, n, np.int16)
    a[::3] = rng.choice(np.float32([INF, -INF, np.nan, 0]), len(a[::3]))
    results = [np.full(n + 64, 99, t) for t in (np.uint8, np.int16, np.int16, np.int64)]
    launch(group((FLOAT32, INT16), outputs), [a, b, *(r[:n] for r in results)], threads=3)
    for result, wanted in zip(
        results, (np.isinf(a), abs(b), np.where(np.isnan(a), b, 7), b != 0), strict=True
    ):
        assert np.array_equal(result[:n], wanted)
        assert (result[n:] == 99).all()


@pytest.mark.parametrize("dtype", [INT8, INT16, INT64])
def test_the_smallest_integer_has_itself_as_magnitude(dtype):
    info = np.iinfo(NUMPY[dtype])
    x = np.array([info.min, info.min + 1, -1, 0, 1, info.max] * 50, NUMPY[dtype])
    y = np.zeros_like(x)
    launch(group((dtype,), (absolute(read(0, dtype)),)), [x, y])
    assert y[:6].tolist() == [info.min, info.max, 1, 0, 1, info.max]
    assert np.array_equal(y, np.resize(y[:6], len(y)))


# ---- streaming stores --------------------------------------------------------------------------------


@pytest.mark.skipif(not host().streams, reason="this machine has no non-temporal vector stores")
@pytest.mark.parametrize("dtype", [INT8, FLOAT16, FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_streaming_stores(stream_small_jobs, split_small_jobs, dtype, threads):
    rng, npy = np.random.default_rng(11), NUMPY[dtype]
    kernels = selection(dtype)
    kernels.rows.clear()
    for n in (4096, 4097, 4160, 9999, 70_001):
        for offset in sorted({0, npy.itemsize, 8, 24, 56, 63 - 63 % npy.itemsize}):
            operands = [Memory(rng, t, (n,), [0], [0], [], offset=offset) for t in (np.uint8, npy, npy, npy)]
            c, a, b, y = operands
            c.bytes &= 1
            expected = y.bytes_after(selected(c.view, a.view, b.view))
            descriptor = make_descriptor(
                kernels, (n,), [m.operand for m in operands], pool=pool.address, threads=threads_for(threads)
            )
            run(descriptor)
            assert np.array_equal(y.bytes, expected), (n, offset)
    assert [shape.stream for shape in kernels.rows] == [True]


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32, FLOAT64], ids=str)
def test_an_output_off_its_elements_alignment_is_not_streamed(stream_small_jobs, split_small_jobs, dtype):
    rng, npy = np.random.default_rng(12), NUMPY[dtype]
    kernels = selection(dtype)
    kernels.rows.clear()
    for offset in range(1, npy.itemsize):
        operands = [Memory(rng, t, (5000,), [0], [0], [], offset=offset) for t in (np.uint8, npy, npy, npy)]
        c, a, b, y = operands
        expected = y.bytes_after(selected(c.view, a.view, b.view))
        run(make_descriptor(kernels, (5000,), [m.operand for m in operands]))
        assert np.array_equal(y.bytes, expected), offset
    assert [shape.stream for shape in kernels.rows] == [False]


@pytest.mark.parametrize("seed", range(6))
def test_streaming_rows_with_padding_between(stream_small_jobs, split_small_jobs, seed):
    rng = np.random.default_rng(seed)
    for sizes in ((3, 4097), (2, 5, 4099), (4096, 2)):
        check_selection(rng, (INT8, FLOAT32)[seed % 2], sizes, threads=1 + seed % 3)


# ---- float16 without hardware ------------------------------------------------------------------------

HALF_WORDS = {
    "x == inf": (lambda x, y: eq(x, INF), lambda x, y: x == np.inf),
    "x == -inf": (lambda x, y: eq(x, -INF), lambda x, y: x == -np.inf),
    "|x| == inf": (lambda x, y: eq(absolute(x), INF), lambda x, y: np.isinf(x)),
    "x != x": (lambda x, y: ne(x, x), lambda x, y: np.isnan(x)),
    "x == 0": (lambda x, y: eq(x, 0.0), lambda x, y: x == 0),
    "x == 1.5": (lambda x, y: eq(x, 1.5), lambda x, y: x == 1.5),
    "x == 2^-24": (lambda x, y: eq(x, 2.0**-24), lambda x, y: x == np.float16(2.0**-24)),
    "x == 0, rounded": (lambda x, y: eq(x, 1e-10), lambda x, y: x == np.float16(1e-10)),
    "x == y": (lambda x, y: eq(x, y), lambda x, y: x == y),
    "|x| == |y|": (lambda x, y: eq(absolute(x), absolute(y)), lambda x, y: abs(x) == abs(y)),
}
ALL_HALVES = np.arange(65536).astype(np.uint16)


@pytest.mark.parametrize("words", HALF_WORDS)
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("hardware", [False, host().converts_half])
def test_all_float16_patterns(words, vector_bytes, hardware):
    """The conversion by integer arithmetic, against what NumPy's float16 says of the same bits."""
    expression, oracle = HALF_WORDS[words]
    g = group((FLOAT16, FLOAT16), (convert(expression(read(0, FLOAT16), read(1, FLOAT16)), UINT8),))
    target = replace(host(), vector_bytes=vector_bytes, converts_half=hardware, streams=False)
    text = kernel_body(g, KernelVariant((Access.PACKED,) * 3), target)
    assert hardware or "fpext" not in text
    (entry,) = compile_ir(text, ["row"])
    row = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(entry)
    x = ALL_HALVES.view(np.float16)
    for y_bits in (ALL_HALVES, ALL_HALVES ^ 0x8000, ALL_HALVES ^ 1, np.roll(ALL_HALVES, 1024)):
        y, out = np.ascontiguousarray(y_bits).view(np.float16), np.full(65536 + 64, 0xA5, np.uint8)
        operands = np.array([a.ctypes.data for a in (x, y, out)], np.uint64)
        row(operands.ctypes.data, None, 65536)
        assert np.array_equal(out[:65536], oracle(x, y))
        assert (out[65536:] == 0xA5).all()


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_widening_float16_by_integer_arithmetic_gives_its_value(lanes):
    x = read(0, FLOAT16)
    emitter = Emitter(replace(host(), vector_bytes=16, converts_half=False), lanes, {x: "%x"}, "v")
    kind, value = value_type(FLOAT32, lanes), emitter.value(convert(x, FLOAT32))
    body = [
        "define void @widen(ptr %from, ptr %to) {",
        f"  %x = load {value_type(FLOAT16, lanes)}, ptr %from, align 1",
        *emitter.lines,
        f"  store {kind} {value}, ptr %to, align 1",
        "  ret void",
        "}",
    ]
    (entry,) = compile_ir("\n".join(body) + "\n", ["widen"])
    widen = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(entry)
    result = np.zeros(65536, np.float32)
    for k in range(0, 65536, lanes):
        widen(ALL_HALVES.ctypes.data + 2 * k, result.ctypes.data + 4 * k)
    with np.errstate(invalid="ignore"):  # of NaNs that signal, on ARM
        wanted = ALL_HALVES.view(np.float16).astype(np.float32)
    assert np.array_equal(np.isnan(result), np.isnan(wanted))
    numbers = ~np.isnan(wanted)
    assert np.array_equal(result.view(np.uint32)[numbers], wanted.view(np.uint32)[numbers])


# ---- processes ---------------------------------------------------------------------------------------


def large_dispatch():
    n = 400_003
    c, a = (np.arange(n) % 3).astype(np.uint8), np.arange(n).astype(np.float32)
    y = np.zeros(n, np.float32)
    for _ in range(5):
        y[:] = 0
        launch(selection(FLOAT32), [c, a, -a, y], threads=4)
        assert np.array_equal(y, np.where(c != 0, a, -a))


def in_child():
    large_dispatch()
    assert sum(t.name.startswith("anydml-worker") for t in threading.enumerate()) == 3


def dispatch_until(done):
    while not done.is_set():
        large_dispatch()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_working_threads_of_its_own():
    """Also if the parent was in the middle of a dispatch."""
    large_dispatch()
    done = threading.Event()
    busy = threading.Thread(target=dispatch_until, args=(done,))
    busy.start()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=in_child) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    done.set()
    busy.join()
    stuck = [child for child in children if child.is_alive()]
    for child in stuck:
        child.kill()
    assert not stuck, "a child hangs"
    assert [child.exitcode for child in children] == [0] * 4
    large_dispatch()
