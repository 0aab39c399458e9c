"""Products of 8-bit integers are exact, on processors whose instructions for them are not, too."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import anydml
from anydml.onnx.partial_eval.annotate import read_typed
from anydml.onnx.providers.onnxruntime import OnnxRuntime
from anydml.onnx.providers.products_of_bytes import PRECISION, cuts_sums_off
from anydml.onnx.serde import byte_products
from anydml.onnx.serde.byte_products import right_byte_products
from anydml.onnx.serde.region_model import every_node

HEAD = '<ir_version: 9, opset_import: ["" : 19, "com.microsoft" : 1]> main '
RNG = np.random.default_rng(4)


@pytest.fixture(autouse=True, params=["here", "without VNNI"])
def processor(request, monkeypatch):
    """What is written for a processor that cuts sums off is right on every other one."""
    if request.param != "here":
        monkeypatch.setattr(byte_products, "cuts_sums_off", lambda: True)
        monkeypatch.setattr(byte_products, "_slow", lambda: True)


def model(text, **weights):
    made = onnx.parser.parse_model(HEAD + text)
    made.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    return made.SerializeToString()


def extreme(dtype, *sizes):
    """Numbers of which most products are large, and some small ones."""
    info = np.iinfo(dtype)
    far = RNG.choice([info.min, info.max], sizes)
    return np.where(RNG.random(sizes) < 0.7, far, RNG.integers(info.min, info.max, sizes)).astype(dtype)


def whole(x, zero):
    return x.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))


def windows(x, filters):
    """A convolution of whole numbers, without padding."""
    found = np.lib.stride_tricks.sliding_window_view(x, filters.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", found, filters)


def requantized(total, factor, zero):
    info = np.iinfo(zero.dtype)
    return np.clip(np.rint(total * factor) + zero, info.min, info.max)


KINDS = pytest.mark.parametrize(
    ("first", "second"), [("uint8", "int8"), ("int8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]
)
FED = pytest.mark.parametrize("fed", [False, True], ids=["constant", "fed"])


@KINDS
@FED
@pytest.mark.parametrize("zeros", ["none", "one", "both", "columns", "fed"])
def test_matrix_products_of_integers(first, second, fed, zeros):
    a, b = extreme(first, 9, 70), extreme(second, 70, 40)
    of_a = None if zeros == "none" else np.array(7, first)
    of_b = None if zeros in ("none", "one") else np.array(3, second)
    if zeros == "columns":
        of_b = RNG.integers(0, 50, 40).astype(second)
    given = {n: x for n, x in (("a0", of_a), ("b0", of_b)) if x is not None}
    names = ", ".join(["a", "b", *given])
    ends = [f"{first}[n,70] a", *([f"{second}[70,40] b"] if fed else [])]
    weights, feeds = ({} if fed else {"b": b}), {"a": a, **({"b": b} if fed else {})}
    if zeros == "fed":
        ends += [f"{first} a0", f"{second} b0"]
        feeds |= given
    else:
        weights |= given
    data = model(f"({', '.join(ends)}) => (int32[n,40] y) {{ y = MatMulInteger ({names}) }}", **weights)
    session = anydml.load(data, native=False)
    for _ in range(2):
        (y,) = session.run(None, feeds)
        np.testing.assert_array_equal(y, whole(a, of_a) @ whole(b, of_b))
    assert "NumPy" not in session.explain()


@KINDS
@FED
@pytest.mark.parametrize("zeros", [False, True])
def test_convolutions_of_integers(first, second, fed, zeros):
    x, w = extreme(first, 2, 6, 9, 8), extreme(second, 5, 6, 3, 3)
    given = {"x0": np.array(5, first), "w0": np.array(2, second)} if zeros else {}
    end = f"{first}[n,6,9,8] x" + (f", {second}[5,6,3,3] w" if fed else "")
    names = ", ".join(["x", "w", *given])
    data = model(
        f"({end}) => (int32[n,5,7,6] y) {{ y = ConvInteger ({names}) }}", **({} if fed else {"w": w}), **given
    )
    session = anydml.load(data, native=False)
    (y,) = session.run(None, {"x": x, **({"w": w} if fed else {})})
    wanted = windows(whole(x, given.get("x0")), whole(w, given.get("w0")))
    np.testing.assert_array_equal(y, wanted)
    assert "NumPy" not in session.explain()


SCALES = {"xs": np.float32(0.25), "ys": np.float32(128)}


@KINDS
@FED
@pytest.mark.parametrize("several", [False, True])
def test_quantized_products(first, second, fed, several):
    a, b = extreme(first, 9, 70), extreme(second, 70, 40)
    scale = RNG.uniform(0.2, 0.5, 40 if several else ()).astype(np.float32)
    zero = np.full(scale.shape, 3, second)
    given = {"x0": np.array(9, first), "bs": scale, "b0": zero, "y0": np.array(11, first)}
    ends = f"{first}[n,70] a" + (f", {second}[70,40] b" if fed else "")
    text = f"({ends}) => ({first}[n,40] y) {{ y = QLinearMatMul (a, xs, x0, b, bs, b0, ys, y0) }}"
    data = model(text, **SCALES, **given, **({} if fed else {"b": b}))
    session = anydml.load(data, native=False)
    (y,) = session.run(None, {"a": a, **({"b": b} if fed else {})})
    total = whole(a, given["x0"]) @ whole(b, zero)
    wanted = requantized(total, 0.25 * scale.astype(float) / 128, given["y0"])
    assert y.dtype == first
    assert np.abs(y - wanted).max() <= 1
    assert (y == wanted).mean() > 0.98
    assert "NumPy" not in session.explain()


@KINDS
@FED
@pytest.mark.parametrize("several", [False, True])
def test_quantized_convolutions(first, second, fed, several):
    x, w = extreme(first, 2, 6, 9, 8), extreme(second, 5, 6, 3, 3)
    scale = RNG.uniform(0.2, 0.5, 5 if several else ()).astype(np.float32)
    zero = np.full(scale.shape, 0 if second == "int8" else 128, second)
    given = {"x0": np.array(9, first), "ws": scale, "w0": zero, "y0": np.array(11, first)}
    ends = f"{first}[n,6,9,8] x" + (f", {second}[5,6,3,3] w" if fed else "")
    bias = np.arange(5, dtype=np.int32) * 1000
    text = f"({ends}) => ({first}[n,5,7,6] y) {{ y = QLinearConv (x, xs, x0, w, ws, w0, ys, y0, c) }}"
    data = model(text, **SCALES, **given, c=bias, **({} if fed else {"w": w}))
    session = anydml.load(data, native=False)
    (y,) = session.run(None, {"x": x, **({"w": w} if fed else {})})
    of_filters = [-1, 1, 1, 1]
    total = windows(whole(x, given["x0"]), whole(w, zero.reshape(of_filters) if several else zero))
    factor = 0.25 * scale.astype(float) / 128
    factor = factor.reshape(-1, 1, 1) if several else factor
    wanted = requantized(total + bias.reshape(-1, 1, 1), factor, given["y0"])
    assert y.dtype == first
    assert np.abs(y - wanted).max() <= 1
    assert (y == wanted).mean() > 0.98
    assert "NumPy" not in session.explain()


@KINDS
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_products_of_what_was_dequantized(first, second, turned, zero):
    """As torch's and onnxruntime's quantizers write them; weights are turned where a layer's are."""
    q = extreme(second, 40, 70) if turned else extreme(second, 70, 40)
    middle = np.array(0 if second == "int8" else 128, second)
    x0, y0 = (
        np.array(z, np.uint8 if first == "uint8" else np.int8)
        for z in ((130, 120) if first == "uint8" else (2, -8))
    )
    of_weights = "q, ws, w0" if zero else "q, ws"
    turn = "Transpose" if turned else "Identity"
    text = f"""(float[n,70] x) => (float[n,40] y, float[n,40] f) {{
        xq = QuantizeLinear (x, xs, x0)  xd = DequantizeLinear (xq, xs, x0)
        wd = DequantizeLinear ({of_weights})  w = {turn} (wd)
        p = MatMul (xd, w)  f = Neg (p)  yq = QuantizeLinear (p, ys, y0)  y = DequantizeLinear (yq, ys, y0) }}"""
    steps = {"xs": np.float32(0.02), "ws": np.float32(0.01), "ys": np.float32(0.5), "x0": x0, "y0": y0}
    data = model(text, q=q, **steps, **({"w0": middle} if zero else {}))
    session = anydml.load(data, native=False)
    x = RNG.choice([-2.5, 2.5], (4, 70)).astype(np.float32)
    rounded = (np.clip(np.rint(x / np.float32(0.02)) + 2, -128, 127) - 2) * 0.02
    w = whole(q, middle if zero else None) * 0.01
    wanted = rounded @ (w.T if turned else w)
    for _ in range(2):
        y, f = session.run(None, {"x": x})
        np.testing.assert_allclose(f, -wanted, atol=2e-3)
        np.testing.assert_allclose(y, np.clip(wanted, -60, 67.5), atol=0.26)


@pytest.mark.parametrize("given", ["result", "body", "again"])
def test_quantized_values_that_others_read_stay_what_they_are(given):
    """As INT8 that is a result, or read by something that does more than dequantize."""
    q = extreme("int8", 70, 40)
    more = {
        "result": ("int8[n,70] u", ""),
        "body": (
            "int8[n,70] u",
            """u = If (yes) <then_branch = t () => (int8[n,70] v) { v = Identity (xq) },
                else_branch = e () => (int8[n,70] w0) { w0 = Max (xq, xq) }>""",
        ),
        "again": ("int8[n,35,2] u", "shape = Constant <value_ints = [0, 35, 2]> ()  u = Reshape (xq, shape)"),
    }
    end, nodes = more[given]
    name = "u = QuantizeLinear (x, xs, x0)  xd = DequantizeLinear (u, xs, x0)" if given == "result" else ""
    name = name or "xq = QuantizeLinear (x, xs, x0)  xd = DequantizeLinear (xq, xs, x0)"
    data = model(
        f"""(float[n,70] x, bool yes) => (float[n,40] y, {end}) {{
        {name} {nodes} wd = DequantizeLinear (q, ws)  y = MatMul (xd, wd) }}""",
        q=q,
        xs=np.float32(0.02),
        ws=np.float32(0.01),
        x0=np.array(2, np.int8),
    )
    x = RNG.choice([-2.5, 0.3, 2.5], (4, 70)).astype(np.float32)
    whole_x = np.clip(np.rint(x / np.float32(0.02)) + 2, -128, 127)
    y, u = anydml.load(data, native=False).run(None, {"x": x, "yes": np.array(True)})
    assert u.dtype == np.int8
    np.testing.assert_array_equal(u.reshape(4, 70), whole_x)
    np.testing.assert_allclose(y, (whole_x - 2) * 0.02 @ (q * 0.01), atol=2e-3)


def test_weights_that_several_nodes_and_a_body_share():
    b = extreme("int8", 70, 70)
    text = """(uint8[n,70] a, int64 count) => (int32[n,70] y, int32[n,70] z, int32[n,70] u) {
        y = MatMulInteger (a, b)  z = MatMulInteger (a, b, three)
        u = Loop (count, yes, z) <body = loop (int64 i, bool c, int32[n,70] s) => (bool d, int32[n,70] t) {
            d = Identity (c)  m = MatMulInteger (a, b)  t = Add (s, m) }> }"""
    data = model(text, b=b, three=np.array(3, np.uint8), yes=np.array(True))
    a = extreme("uint8", 4, 70)
    y, z, u = anydml.load(data, native=False).run(None, {"a": a, "count": np.int64(3)})
    product = whole(a, None) @ whole(b, None)
    moved = whole(a, np.uint8(3)) @ whole(b, None)
    np.testing.assert_array_equal(y, product)
    np.testing.assert_array_equal(z, moved)
    np.testing.assert_array_equal(u, moved + 3 * product)


FOREIGN = {
    "MatMulIntegerToFloat": "(uint8[n,70] a) => (float[n,40] y) { y = com.microsoft.MatMulIntegerToFloat (a, b, s, s) }",
    "with zero points": """(uint8[n,70] a) => (float[n,40] y) {
        y = com.microsoft.MatMulIntegerToFloat (a, b, s, s, a0, b0, bias) }""",
    "DynamicQuantizeMatMul": """(uint8[n,70] a) => (float[n,40] y) {
        f = Cast <to = 1> (a)  y = com.microsoft.DynamicQuantizeMatMul (f, b, s, b0, bias) }""",
    "QGemm": "(uint8[n,70] a) => (float[n,40] y) { y = com.microsoft.QGemm (a, s, a0, b, s, b0, c) }",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_operators_of_onnxruntimes_own(name):
    """Beside onnxruntime with the option by which it is exact, where no node shares its weights."""
    constants = {
        "b": extreme("int8", 70, 40),
        "s": np.float32(0.5),
        "a0": np.array(5, np.uint8),
        "b0": np.array(0, np.int8),
        "bias": np.linspace(-1, 1, 40, dtype=np.float32),
        "c": np.arange(40, dtype=np.int32),
    }
    data = model(
        FOREIGN[name], **{n: c for n, c in constants.items() if n in FOREIGN[name].replace("(", " ")}
    )
    feeds = {"a": extreme("uint8", 5, 70)}
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(PRECISION, "1")
    (wanted,) = onnxruntime.InferenceSession(data, options).run(None, feeds)
    (y,) = anydml.load(data, native=False).run(None, feeds)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-3)


def test_a_quantized_recurrence_of_onnxruntimes_own():
    rng = np.random.default_rng(0)
    w, r = extreme("int8", 1, 6, 32), extreme("int8", 1, 8, 32)
    scale, zero = np.full((1,), 0.002, np.float32), np.zeros((1,), np.int8)
    text = """(float[t,2,6] x) => (float[t,1,2,8] y, float[1,2,8] h, float[1,2,8] c) {
        y, h, c = com.microsoft.DynamicQuantizeLSTM <hidden_size = 8> (x, w, r, , , , , , s, z, s, zr) }"""
    data = model(text, w=w, r=r, s=scale, z=zero, zr=zero)
    feeds = {"x": rng.uniform(-3, 3, (4, 2, 6)).astype(np.float32)}
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(PRECISION, "1")
    wanted = onnxruntime.InferenceSession(data, options).run(None, feeds)
    for y, other in zip(anydml.load(data, native=False).run(None, feeds), wanted, strict=True):
        np.testing.assert_allclose(y, other, rtol=1e-4, atol=1e-5)


def instead(data, cut_off=True):
    """What is written in a region for the nodes of a model."""
    _, _, _, _, graph = read_typed(data, OnnxRuntime())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_products, "cuts_sums_off", lambda: cut_off)
        return right_byte_products(every_node(graph.nodes), graph.outputs, graph.constants, {})


@pytest.mark.parametrize(("largest", "same"), [(64, True), (65, False)])
def test_weights_of_seven_bits_stay(largest, same):
    b = np.full((70, 40), -largest, np.int8)
    data = model("(uint8[n,70] a) => (int32[n,40] y) { y = MatMulInteger (a, b) }", b=b)
    written = instead(data)
    assert (not written.instead) is same
    if not same:
        assert [c.content.dtype for c in written.constants.values()] == [np.uint8, np.uint8]


@pytest.mark.parametrize("largest", [64, 65])
def test_explain_says_that_products_are_written_otherwise(largest, monkeypatch):
    monkeypatch.setattr(byte_products, "cuts_sums_off", lambda: True)
    b = np.full((70, 40), -largest, np.int8)
    data = model("(uint8[n,70] a) => (int32[n,40] y) { y = MatMulInteger (a, b) }", b=b)
    session = anydml.load(data, native=False)
    session.run(None, {"a": extreme("uint8", 3, 70)})
    told = "(1 node changed so that products of 8-bit integers are exact and fast)"
    assert (told in session.explain()) is (largest > 64)


def test_nothing_changes_where_sums_are_whole():
    data = model("(uint8[n,70] a) => (int32[n,40] y) { y = MatMulInteger (a, b) }", b=extreme("int8", 70, 40))
    assert not instead(data, cut_off=False).instead


@pytest.mark.skipif(not cuts_sums_off(), reason="a processor whose sums are whole")
def test_who_tells_the_options_default_gets_onnxruntimes_sums():
    b, a = np.full((70, 40), 127, np.int8), np.full((3, 70), 255, np.uint8)
    data = model("(uint8[n,70] a) => (int32[n,40] y) { y = MatMulInteger (a, b) }", b=b)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry(PRECISION, "0")
    (y,) = anydml.load(data, options, native=False).run(None, {"a": a})
    assert (y < 70 * 127 * 255).all()


def test_a_session_of_a_program_is_exact_as_well():
    b, a = extreme("int8", 70, 40), extreme("uint8", 3, 70)
    data = model("(uint8[3,70] a) => (int32[3,40] y) { y = MatMulInteger (a, b) }", b=b)
    session = anydml.load(data, native=True)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, {"a": a})[0], whole(a, None) @ whole(b, None))


BODIES = {
    "Loop": """(float[1,1,2] f, int8[1,2] t, uint8[1,2] x, int64 n) => (int32 y, int32 z) {
        y, z = Loop (n, yes) <body = b (int64 i, bool c) => (bool d, int32[1,1,1] p, int32[1,1] q) {
            v = QuantizeLinear (f, one, zero)  p = ConvInteger (v, w)
            u = Transpose <perm = [1, 0]> (t)  q = MatMulInteger (x, u)  d = Identity (c) }> }""",
    "Scan": """(float[1,1,2] f, int8[1,2] t, uint8[1,2] x) => (int32 y, int32 z) {
        y, z = Scan <num_scan_inputs = 1, body = b (bool c) => (int32[1,1,1] p, int32[1,1] q) {
            v = QuantizeLinear (f, one, zero)  p = ConvInteger (v, w)
            u = Transpose <perm = [1, 0]> (t)  q = MatMulInteger (x, u) }> (many) }""",
}


@pytest.mark.parametrize("name", BODIES)
def test_factors_that_a_body_computes(name):
    """Whose types the file does not tell."""
    constants = {"w": np.full((1, 1, 2), 127, np.int8), "one": np.float32(1), "zero": np.int8(0)}
    more = {"yes": np.array(True)} if name == "Loop" else {"many": np.array([True])}
    session = anydml.load(model(BODIES[name], **constants, **more), native=False)
    for v in (100, -100, 127, -128):
        feeds = {
            "f": np.full((1, 1, 2), v, np.float32),
            "t": np.full((1, 2), v, np.int8),
            "x": np.full((1, 2), 255, np.uint8),
            "n": np.array(1),
        }
        y, z = session.run(None, {n: x for n, x in feeds.items() if n != "n" or name == "Loop"})
        assert y.ravel().tolist() == [254 * v]
        assert z.ravel().tolist() == [510 * v]


@pytest.mark.parametrize("outputs", ["y", "y, p"])
@pytest.mark.parametrize("fed", ["w", "z", ""])
def test_attention_of_bytes(outputs, fed):
    """onnxruntime's own, with what it keeps of the past; beside what floats give."""
    rng = np.random.default_rng(3)
    x, w = rng.integers(0, 255, (2, 3, 8)).astype(np.uint8), rng.choice([-128, 127], (8, 12)).astype(np.int8)
    given = {"w": w, "z": np.array(5, np.int8)}
    ends = {"w": "int8[8,12] w", "z": "int8 z"}
    text = f"""(uint8[b,s,8] x{", " + ends[fed] if fed else ""}) => (float[b,s,4] y) {{
        {outputs} = com.microsoft.QAttention <num_heads = 2> (x, w, b, xs, ws, , x0, z) }}"""
    scales = {"xs": np.float32(0.01), "ws": np.float32(0.002), "x0": np.array(3, np.uint8)}
    constants = {n: c for n, c in given.items() if n != fed}
    session = anydml.load(model(text, b=np.zeros(12, np.float32), **scales, **constants), native=False)
    feeds = {"x": x} | ({fed: given[fed]} if fed else {})
    (y,) = session.run(["y"], feeds)
    q, k, v = np.split((whole(x, scales["x0"]) @ whole(w, given["z"])) * 0.01 * 0.002, 3, axis=-1)
    q, k, v = (t.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3) for t in (q, k, v))
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(2))
    mixed = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(y, mixed.transpose(0, 2, 1, 3).reshape(2, 3, 4), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("fed", [(), ("w",), ("r",), ("w", "r"), ("z",), ("zr",)])
@pytest.mark.parametrize("largest", [127, 60])
def test_weights_of_a_recurrence_are_of_one_type(fed, largest):
    w = np.full((1, 32, 16), 127, np.int8)
    w[:, :, ::3] = 40
    r = np.minimum(extreme("int8", 1, 4, 16), largest)
    r = np.maximum(r, -largest).astype(np.int8)
    zero = np.zeros(1, np.int8)
    given = {"w": w, "r": r, "z": zero, "zr": zero}
    constants = {n: c for n, c in given.items() if n not in fed}
    ends = "".join(f", int8[{','.join(map(str, given[n].shape))}] {n}" for n in fed)
    steps = {"s": np.full(1, 2.0**-12, np.float32), "sr": np.full(1, 2.0**-9, np.float32)}
    text = f"""(float[t,2,32] x{ends}) => (float[t,1,2,4] y, float[1,2,4] h) {{
        y, h = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (x, w, r, , , , , , s, z, sr, zr) }}"""
    x = np.random.default_rng(0).uniform(0.5, 1, (3, 2, 32)).astype(np.float32)
    floats = """(float[t,2,32] x) => (float[t,1,2,4] y, float[1,2,4] h) {
        y, h = LSTM <hidden_size = 4> (x, w, r) }"""
    turned = {"w": w * steps["s"], "r": r * steps["sr"]}
    turned = {n: np.ascontiguousarray(t.transpose(0, 2, 1)) for n, t in turned.items()}
    wanted = onnxruntime.InferenceSession(model(floats, **turned)).run(None, {"x": x})
    session = anydml.load(model(text, **steps, **constants), native=False)
    found = session.run(None, {"x": x, **{n: given[n] for n in fed}})
    for y, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(y, other, atol=0.01)


@pytest.mark.parametrize(("first", "result"), [("int8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("second", ["int8", "uint8"])
def test_results_of_another_type_than_factors(first, second, result):
    a, b, v = extreme(first, 3, 70), extreme(second, 70, 4), np.array([[1], [2], [3], [4]], np.uint8)
    zero = np.array(7, result)
    constants = {"b": b, "a0": np.array(3, first), "b0": np.array(1, second), "y0": zero, "v": v}
    text = f"""({first}[n,70] a) => ({result}[n,4] q, int32[n,1] y) {{
        q = QLinearMatMul (a, xs, a0, b, xs, b0, ys, y0)  y = MatMulInteger (q, v) }}"""
    session = anydml.load(model(text, **SCALES, **constants), native=False)
    q, y = session.run(None, {"a": a})
    total = whole(a, constants["a0"]) @ whole(b, constants["b0"])
    assert np.abs(q - requantized(total, 0.25 * 0.25 / 128, zero)).max() <= 1
    np.testing.assert_array_equal(y, whole(q, None) @ whole(v, None))


NOT_ROUNDED = {
    "a bias": "d = DequantizeLinear <axis = 1> (w, s2, w0)  p = MatMul (a, d)  y = Add (p, c)",
    "a shape": "r = Reshape (a, sh)  d = DequantizeLinear <axis = 1> (w, s2, w0)  y = MatMul (r, d)",
    "an activation": "r = Relu (a)  d = DequantizeLinear <axis = 1> (w, s2, w0)  y = MatMul (r, d)",
}


@KINDS
@pytest.mark.parametrize("name", NOT_ROUNDED)
@pytest.mark.parametrize("open_sizes", [False, True])
def test_factors_are_not_rounded_again(first, second, name, open_sizes):
    """onnxruntime would, where it does not see that they are quantized."""
    sizes = "n,3,32" if open_sizes else "1,3,32"
    w = extreme(second, 32, 2)
    constants = {"w": w, "s2": np.full(2, 2.0**-7, np.float32), "w0": np.zeros(2, second)}
    constants |= {"s": np.float32(2.0**-7), "x0": np.array(3, first)}
    constants |= {"c": np.float32([1, 2])} if name == "a bias" else {}
    constants |= {"sh": np.array([0, 0, -1])} if name == "a shape" else {}
    text = f"""({first}[{sizes}] x) => (float[{sizes[:-2]}2] y) {{
        a = DequantizeLinear (x, s, x0)  {NOT_ROUNDED[name]} }}"""
    session = anydml.load(model(text, **constants), native=False)
    for _ in range(3):
        x = extreme(first, 1, 3, 32)
        a = whole(x, constants["x0"]) / 128
        a = np.maximum(a, 0) if name == "an activation" else a
        wanted = a @ (w / 128) + (constants["c"] if name == "a bias" else 0)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-5, atol=1e-4)


def test_first_factors_that_are_turned():
    text = """(int8[2,2] x, int8[2,2] w) => (float[2,2] y) {
        d = DequantizeLinear (x, s, z)  a = Transpose <perm = [1, 0]> (d)
        b = DequantizeLinear (w, s, z)  y = MatMul (a, b) }"""
    session = anydml.load(model(text, s=np.float32(1), z=np.int8(0)), native=False)
    full = np.full((2, 2), 127, np.int8)
    assert (session.run(None, {"x": full, "w": full})[0] == 2 * 127 * 127).all()


@pytest.mark.parametrize("first", ["int8", "uint8"])
@pytest.mark.parametrize("second", ["int8", "uint8"])
@pytest.mark.parametrize("zero", [False, True])
def test_matrices_of_weights_with_scales_for_columns(first, second, zero):
    w = extreme(second, 1, 8, 4)
    constants = {"w": w, "s": np.float32(0.5), "x0": np.array(3, first), "ss": np.float32([0.5, 0.25, 1, 2])}
    points = {"zz": np.array([1, 2, 3, 4], second)} if zero else {}
    text = f"""(float[n,3,8] x) => (float[n,3,4] y) {{
        q = QuantizeLinear (x, s, x0)  a = DequantizeLinear (q, s, x0)
        b = DequantizeLinear <axis = 2> (w, ss{", zz" if zero else ""})  y = MatMul (a, b) }}"""
    x = RNG.integers(0, 40, (2, 3, 8)).astype(np.float32)
    (y,) = anydml.load(model(text, **constants, **points), native=False).run(None, {"x": x})
    np.testing.assert_allclose(y, x @ (whole(w, points.get("zz")) * constants["ss"]), rtol=1e-5)


def test_filters_with_zero_points_of_their_own():
    """Of single channels onnxruntime takes the first for all; of several it says that they differ."""
    w = np.full((2, 1, 2), -128, np.int8)
    zeros = {"w0": np.array([0, 1], np.int8), "y0": np.array(200, np.uint8), "x0": np.array(0, np.uint8)}
    scales = {"s": np.float32(1), "ys": np.float32(500), "ws": np.float32([1, 1])}
    text = """(uint8[n,2,2] x) => (uint8[n,2,1] y) {
        y = QLinearConv <group = 2> (x, s, x0, w, ws, w0, ys, y0) }"""
    session = anydml.load(model(text, w=w, **scales, **zeros), native=False)
    (y,) = session.run(None, {"x": np.full((1, 2, 2), 255, np.uint8)})
    wanted = [200 + round(-128 * 510 / 500), 200 + round(-129 * 510 / 500)]
    assert y.ravel().tolist() == wanted


SUMS_OF_NOTHING = {
    "QDQ": "a = DequantizeLinear (x, s, x0)  b = DequantizeLinear (w, s, w0)  c = MatMul (a, b)",
    "float": "c = com.microsoft.MatMulIntegerToFloat (x, w, s, s, x0, w0)",
    "QGemm": "c = com.microsoft.QGemm (x, s, x0, w, s, w0)",
}


@pytest.mark.parametrize("name", SUMS_OF_NOTHING)
def test_nothing_to_sum(name):
    """Zeros, or an error that says why; never memory that nobody wrote."""
    text = f"(uint8[n,k] x, int8[k,64] w) => (float[n,64] c) {{ {SUMS_OF_NOTHING[name]} }}"
    constants = {"s": np.float32(0.5), "x0": np.array(3, np.uint8), "w0": np.array(1, np.int8)}
    session = anydml.load(model(text, **constants), native=False)
    feeds = {"x": np.zeros((2, 0), np.uint8), "w": np.zeros((0, 64), np.int8)}
    for _ in range(3):
        junk = [np.full(n, 7e8, np.float32) for n in (64, 128, 33, 99)]
        del junk
        if name != "QDQ":
            with pytest.raises(anydml.Unsupported, match="nothing to sum"):
                session.run(None, feeds)
            continue
        assert not session.run(None, feeds)[0].any()
    (c,) = session.run(None, {"x": np.full((2, 1), 5, np.uint8), "w": np.full((1, 64), 3, np.int8)})
    assert (c == 2 * 2 * 0.25).all()


@KINDS
@pytest.mark.parametrize("result", ["int8", "uint8"])
def test_filters_of_single_channels(first, second, result):
    x, w = extreme(first, 1, 4, 6, 6), extreme(second, 4, 1, 3, 3)
    zeros = {"x0": np.array(3, first), "w0": np.array(0, second), "y0": np.array(7, result)}
    text = f"""({first}[n,4,6,6] x) => ({result}[n,4,4,4] y) {{
        y = QLinearConv <group = 4> (x, xs, x0, w, xs, w0, ys, y0) }}"""
    (y,) = anydml.load(model(text, w=w, **SCALES, **zeros), native=False).run(None, {"x": x})
    each = [windows(whole(x, zeros["x0"])[:, k : k + 1], whole(w, None)[k : k + 1]) for k in range(4)]
    wanted = requantized(np.concatenate(each, 1), 0.25 * 0.25 / 128, zeros["y0"])
    assert y.dtype == result
    assert np.abs(y - wanted).max() <= 1


@pytest.mark.parametrize("beside", [False, True], ids=["in the file", "beside it"])
def test_large_weights_are_made_when_they_are_read(tmp_path, beside):
    """Each of its own content, at a place of its own; in forked children and reopened plans, too."""
    sizes = [(70, 130), (130, 33), (33, 257)]
    given = {f"w{k}": extreme("int8", *s) for k, s in enumerate(sizes)}
    text = """(uint8[n,70] a) => (int32[n,130] y0, int32[m,33] y1, int32[k,257] y2) {
        y0 = MatMulInteger (a, w0)  c0 = Cast <to = 2> (y0)  y1 = MatMulInteger (c0, w1, a0, b0)
        c1 = Cast <to = 2> (y1)  y2 = MatMulInteger (c1, w2) }"""
    made = onnx.load_from_string(model(text, **given, a0=np.array(3, np.uint8), b0=np.array(1, np.int8)))
    onnx.save(made, str(tmp_path / "m.onnx"), save_as_external_data=beside, size_threshold=0)
    session = anydml.load(str(tmp_path / "m.onnx"), native=False)
    for n in (3, 1, 3):
        a = extreme("uint8", n, 70)
        found = session.run(None, {"a": a})
        wanted = whole(a, None) @ whole(given["w0"], None)
        np.testing.assert_array_equal(found[0], wanted)
        wanted = whole(wanted.astype(np.uint8), np.uint8(3)) @ whole(given["w1"], np.int8(1))
        np.testing.assert_array_equal(found[1], wanted)
        np.testing.assert_array_equal(
            found[2], whole(wanted.astype(np.uint8), None) @ whole(given["w2"], None)
        )


def test_weights_behind_a_long_chain():
    chain = " ".join(f"w{k + 1} = Identity (w{k})" for k in range(3000))
    text = f"""(uint8[n,70] x) => (float[n,40] y) {{
        a = DequantizeLinear (x, s, z)  w0 = DequantizeLinear (q, s)  {chain}  y = MatMul (a, w3000) }}"""
    q = extreme("int8", 70, 40)
    given = instead(model(text, q=q, s=np.float32(1), z=np.array(3, np.uint8)))
    assert len(given.instead) == 1


@pytest.mark.parametrize("operator", ["MatMulInteger", "ConvInteger"])
@pytest.mark.parametrize("types", ["int8 uint8 int8 int8", "int8 int8 int8 uint8", "uint8 uint8 int8 uint8"])
def test_a_zero_point_of_another_type_is_refused(operator, types):
    """What is turned to UINT8 would take the zero point with it, as if it were of its type."""
    a, az, w, wz = types.split()
    sizes = "2,2" if operator == "MatMulInteger" else "1,1,2,2"
    built = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 17]>
        m ({a}[{sizes}] a, {az} az, {w}[{sizes}] w, {wz} wz) => (int32[{sizes}] y) {{ y = {operator} (a, w, az, wz) }}"""
    )
    shape = tuple(map(int, sizes.split(",")))
    feeds = {"a": np.ones(shape, a), "az": np.array(0, az), "w": np.ones(shape, w), "wz": np.array(0, wz)}
    with pytest.raises(anydml.InvalidModel, match="to be of one type"):
        anydml.load(built).run(None, feeds)
