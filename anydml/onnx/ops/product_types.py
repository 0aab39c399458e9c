"""The types of products' outputs, and of windows': as in `result_types`."""

from __future__ import annotations

from collections.abc import Sequence

from anydml.ir.dims import Dim
from anydml.ir.graph import TensorType
from anydml.onnx.ops.opinfo import KnownNode
from anydml.onnx.ops.result_types import Sizes, Types, broadcast_sizes, only
from anydml.onnx.types import DTYPES


def multiplied(n: KnownNode) -> Types:
    """Of matrices, and of vectors as NumPy has them."""
    return only(n, n.dtype(), _product(n.sizes(0), n.sizes(1)))


def multiplied_integers(n: KnownNode) -> Types:
    return only(n, "int32", _product(n.sizes(0), n.sizes(1)))


def multiplied_quantized(n: KnownNode) -> Types:
    """Of the type of the result's zero point."""
    return only(n, n.dtype(7), _product(n.sizes(0), n.sizes(3)))


def _product(a: Sizes | None, b: Sizes | None) -> list[Dim] | None:
    if not a or not b:
        return None
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    inner, other = a[-1], b[-2] if len(b) > 1 else b[0]
    if isinstance(inner, int) and isinstance(other, int) and inner != other:
        return None
    batch = broadcast_sizes([a[:-2], b[:-2]]) if len(a) > 2 or len(b) > 2 else ()
    return None if batch is None else [*batch, *rows, *columns]


def gemm(n: KnownNode) -> Types:
    a, b = n.sizes(0), n.sizes(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return None
    return only(n, n.dtype(), [a[1] if n.int("transA") else a[0], b[0] if n.int("transB") else b[1]])


def summed(n: KnownNode) -> Types:
    """By an equation, in which sizes of 1 broadcast as everywhere: ONNX's inference takes those that it sees
    first."""
    left, arrow, right = n.text("equation").replace(" ", "").partition("->")
    terms, dims = left.split(","), dict[str, list[Dim]]()
    broadcast: list[Sizes] = []
    if len(terms) != n.count:
        return None
    for k, term in enumerate(terms):
        sizes = n.sizes(k)
        front, dots, back = term.partition("...")
        if sizes is None or len(sizes) < len(front) + len(back):
            return None
        rest = sizes[len(front) : len(sizes) - len(back)]
        if rest and not dots:
            return None
        broadcast.append(rest)
        own = sizes[: len(front)] + sizes[len(sizes) - len(back) :]
        for letter, size in zip(front + back, own, strict=True):
            dims.setdefault(letter, []).append(size)
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        right = "..." * ("..." in left) + "".join(sorted(c for c in dims if letters.count(c) == 1))
    front, dots, back = right.partition("...")
    if not dims.keys() >= {*front, *back}:
        return None
    parts = [(letter, broadcast_sizes([(size,) for size in found])) for letter, found in dims.items()]
    sizes_of, between = dict(parts), broadcast_sizes(broadcast) if dots else ()
    made = [*(sizes_of[c] for c in front), between, *(sizes_of[c] for c in back)]
    if None in made:
        return None
    return only(n, n.dtype(), [size for some in made for size in some or ()])


def convolved(n: KnownNode) -> Types:
    return only(n, n.dtype(), _convolution(n, 1))


def convolved_integers(n: KnownNode) -> Types:
    return only(n, "int32", _convolution(n, 1))


def convolved_quantized(n: KnownNode) -> Types:
    """Of the type of the result's zero point."""
    return only(n, n.dtype(7), _convolution(n, 3))


def _convolution(n: KnownNode, weight: int) -> list[Dim] | None:
    x, w = n.sizes(0), n.sizes(weight)
    if x is None or w is None or len(x) != len(w) or len(x) < 3:
        return None
    places = _windows(n, x[2:], n.ints("kernel_shape") or list(w[2:]))
    return None if places is None else [x[0], w[0], *places]


def convolved_backwards(n: KnownNode) -> Types:
    """Sizes as ONNX has them where nothing else is told."""
    x, w = n.sizes(0), n.sizes(1)
    if x is None or w is None or len(x) != len(w) or len(x) < 3 or "output_shape" in n.given:
        return None
    axes = len(x) - 2
    kernel = n.ints("kernel_shape") or list(w[2:])
    pads, strides = n.ints("pads") or [0] * 2 * axes, n.ints("strides") or [1] * axes
    dilations, more = n.ints("dilations") or [1] * axes, n.ints("output_padding") or [0] * axes
    if n.mode("auto_pad") not in ("", "NOTSET") or len(pads) != 2 * axes:
        return None
    if not len(kernel) == len(strides) == len(dilations) == len(more) == axes:
        return None
    found: list[Dim] = []
    for k, (size, taps) in enumerate(zip(x[2:], kernel, strict=True)):
        if not isinstance(taps, int):
            return None
        around = (taps - 1) * dilations[k] + 1 + more[k] - pads[k] - pads[k + axes]
        found.append(strides[k] * (size - 1) + around if isinstance(size, int) else None)
    channels = w[1] * n.int("group") if isinstance(w[1], int) else None
    return only(n, n.dtype(), [x[0], channels, *found])


def pooled(n: KnownNode) -> Types:
    x, kernel = n.sizes(0), n.ints("kernel_shape")
    if x is None or len(x) < 3 or kernel is None or ("ceil_mode" in n.given and n.int("ceil_mode")):
        return None
    places = _windows(n, x[2:], kernel)
    return None if places is None else only(n, n.dtype(), [*x[:2], *places])


def _windows(n: KnownNode, sizes: Sequence[Dim], kernel: Sequence[Dim]) -> list[Dim] | None:
    """How many windows there are along each axis."""
    axes = len(sizes)
    pads, strides = n.ints("pads") or [0] * 2 * axes, n.ints("strides") or [1] * axes
    dilations = (n.ints("dilations") if "dilations" in n.given else None) or [1] * axes
    if n.mode("auto_pad") not in ("", "NOTSET") or len(pads) != 2 * axes:
        return None
    if not len(kernel) == len(strides) == len(dilations) == axes or min(strides) < 1:
        return None
    found: list[Dim] = []
    for k, (size, taps) in enumerate(zip(sizes, kernel, strict=True)):
        if not isinstance(taps, int):
            return None
        if not isinstance(size, int):
            found.append(None)
            continue
        left = size + pads[k] + pads[k + axes] - (dilations[k] * (taps - 1) + 1)
        if left < 0:
            return None
        found.append(left // strides[k] + 1)
    return found


def pooled_as_a_whole(n: KnownNode) -> Types:
    x = n.sizes(0)
    return None if x is None or len(x) < 3 else only(n, n.dtype(), [*x[:2], *[1] * (len(x) - 2)])


def recurrent(n: KnownNode) -> Types:
    """Of each step, and of the last one, for each direction; of an LSTM, its cells, too."""
    x, dtype, hidden = n.sizes(0), n.dtype(), n.attribute("hidden_size")
    if x is None or len(x) != 3 or dtype is None or not isinstance(hidden, int) or n.attribute("layout"):
        return None
    ways = 2 if n.mode("direction") == "bidirectional" else 1
    last = TensorType(dtype, (ways, x[1], hidden))
    return [TensorType(dtype, (x[0], ways, x[1], hidden)), last, last][: len(n.outputs)]


def quantized(n: KnownNode) -> Types:
    """Of the zero point's type, of one that is told, or of bytes."""
    code = n.attribute("output_dtype")
    if code:
        return None if n.value(2) is not None else only(n, DTYPES.get(code), n.sizes(0))
    return only(n, n.dtype(2) if n.value(2) is not None else "uint8", n.sizes(0))


def dequantized(n: KnownNode) -> Types:
    """Of the scale's type, as soon as that may be another one than float32."""
    if n.attribute("output_dtype"):
        return None
    return only(n, n.dtype(1) if n.version >= 19 else "float32", n.sizes(0))


def quantized_as_it_is(n: KnownNode) -> Types:
    """The bytes, their scale and zero point."""
    sizes = n.sizes(0)
    if sizes is None:
        return None
    return [TensorType("uint8", sizes), TensorType("float32", ()), TensorType("uint8", ())][: len(n.outputs)]
