"""Arrays bound to a compiled operator: which are taken, that they stay, and who may be given when."""

import gc
import os
import re
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import anydml as dml

IF_TENSORS = ("ConditionTensor", "ATensor", "BTensor", "OutputTensor")


def compiled_if(data_type="FLOAT32", sizes=(6,), threads=None, **changes):
    fields = {
        n: {"DataType": "UINT8" if n[0] == "C" else data_type, "Sizes": list(sizes)} for n in IF_TENSORS
    }
    desc = {"Type": "ELEMENT_WISE_IF", "Desc": {n: f | changes.get(n, {}) for n, f in fields.items()}}
    device = dml.Device(threads=threads)
    return device.compile_operator(device.create_operator(desc))


def compiled_is_infinity(n=6, data_type="FLOAT32"):
    tensors = {"InputTensor": dml.TensorDesc(data_type, (n,)), "OutputTensor": dml.TensorDesc("UINT8", (n,))}
    device = dml.Device()
    desc = dml.OperatorDesc("ELEMENT_WISE_IS_INFINITY", {**tensors, "InfinityMode": "EITHER"})
    return device.compile_operator(device.create_operator(desc))


def if_arrays(dtype=np.float32, n=6):
    inputs = {
        "ConditionTensor": (np.arange(n) % 2).astype(np.uint8),
        "ATensor": np.arange(n).astype(dtype),
        "BTensor": (np.arange(n) + 50).astype(dtype),
    }
    return inputs, {"OutputTensor": np.full(n, 99, dtype)}


def wanted(inputs):
    return np.where(inputs["ConditionTensor"] != 0, inputs["ATensor"], inputs["BTensor"]).ravel()


def refused(compiled, inputs, outputs, match=None):
    """The problems of arrays that must be refused, with nothing written."""
    before = {k: y.tobytes() for k, y in outputs.items() if isinstance(y, np.ndarray)}
    for attempt in (compiled.bind, compiled.dispatch):
        with pytest.raises(dml.InvalidInput) as raised:
            attempt(inputs, outputs)
        for k, y in before.items():
            assert outputs[k].tobytes() == y, "something was written"
        assert str(raised.value).splitlines() == [str(p) for p in raised.value.problems]
        if match:
            assert re.search(match, str(raised.value))
    return [str(p) for p in raised.value.problems]


def at_offset(array, offset):
    """The array's contents at an address that is `offset` past a multiple of 64."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    moved = memory[start : start + array.nbytes].view(array.dtype)
    moved[...] = array.ravel()
    return moved


# ---- which arrays are taken --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 2), (1, 6, 1), (6, 1, 1, 1, 1, 1, 1, 1, 1, 1)])
def test_the_arrays_own_shape_is_ignored(shape):
    compiled = compiled_if(sizes=(2, 3))
    inputs, outputs = if_arrays()
    outputs["OutputTensor"] = outputs["OutputTensor"].reshape(shape)
    compiled.dispatch({n: x.reshape(shape) for n, x in inputs.items()}, outputs)
    assert np.array_equal(outputs["OutputTensor"].ravel(), wanted(inputs))


def test_one_element_may_be_a_0d_array():
    y = np.array(9.0, np.float32)
    inputs = {"ConditionTensor": np.array(3, np.uint8), "ATensor": np.array(1.0, np.float32)}
    compiled_if(sizes=(1,)).dispatch(inputs | {"BTensor": np.array(2.0, np.float32)}, {"OutputTensor": y})
    assert y == 1


@pytest.mark.parametrize("name", IF_TENSORS)
@pytest.mark.parametrize("data_type", ["UINT8", "FLOAT16", "INT64"])
@pytest.mark.parametrize("strides", [None, [2], [3]])
def test_an_array_must_cover_exactly_the_reach(name, data_type, strides):
    """The last element's end counts, neither rounded up to 4 nor with the padding behind it."""
    n, step = 3, strides[0] if strides else 1
    compiled = compiled_if(data_type, (n,), **{name: {"Strides": strides}})
    inputs, outputs = if_arrays(np.dtype(data_type.lower()).type, n)
    given = inputs | outputs
    least = (n - 1) * step + 1
    given[name] = np.zeros(least, given[name].dtype)
    compiled.bind({k: given[k] for k in inputs}, {k: given[k] for k in outputs}).dispatch()
    given[name] = np.zeros(least + 7, given[name].dtype)
    compiled.dispatch({k: given[k] for k in inputs}, {k: given[k] for k in outputs})
    for length in (least - 1, 0):
        given[name] = np.zeros(length, given[name].dtype)
        problems = refused(compiled, {k: given[k] for k in inputs}, {k: given[k] for k in outputs})
        got = rf"{name}: expected at least {least * given[name].itemsize} bytes, but got {given[name].nbytes}"
        assert len(problems) == 1
        assert re.search(got, problems[0])


def test_a_declared_total_size_does_not_make_the_array_larger():
    compiled = compiled_if("UINT8", (5,), ATensor={"TotalTensorSizeInBytes": 64})
    inputs, outputs = if_arrays(np.uint8, 5)
    compiled.dispatch(inputs, outputs)
    assert np.array_equal(outputs["OutputTensor"], wanted(inputs))


@pytest.mark.parametrize("name", IF_TENSORS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x[::-1],
        lambda x: np.asfortranarray(x.reshape(2, 3)),
        lambda x: np.broadcast_to(x[:1], (6,)),
    ],
    ids=["sliced", "reversed", "fortran", "broadcast"],
)
def test_memory_that_is_not_c_contiguous_is_refused(name, spoil):
    inputs, outputs = if_arrays()
    side = outputs if name == "OutputTensor" else inputs
    side[name] = spoil(side[name])
    assert refused(compiled_if(), inputs, outputs, match=f"{name}: .*C-contiguous")


@pytest.mark.parametrize("name", IF_TENSORS)
@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "int32", "uint32", "int8", ">f4", "complex64", "O", "S4"]
)
def test_another_data_type_is_refused(name, dtype):
    inputs, outputs = if_arrays()
    side = outputs if name == "OutputTensor" else inputs
    side[name] = np.zeros(32, dtype)
    problems = refused(compiled_if(), inputs, outputs, match=rf"{name}: expected (float32|uint8), but got")
    assert len(problems) == 1


@pytest.mark.parametrize("name", IF_TENSORS)
@pytest.mark.parametrize("thing", [[0.0] * 6, b"\0" * 24, None, 1.0, np.float32(1), memoryview(bytes(24))])
def test_what_is_no_array_is_refused(name, thing):
    inputs, outputs = if_arrays()
    (outputs if name == "OutputTensor" else inputs)[name] = thing
    assert len(refused(compiled_if(), inputs, outputs, match=f"{name}: expected")) == 1


def test_a_read_only_output_is_refused_and_a_read_only_input_taken():
    inputs, outputs = if_arrays()
    for x in inputs.values():
        x.flags.writeable = False
    compiled_if().dispatch(inputs, outputs)
    assert np.array_equal(outputs["OutputTensor"], wanted(inputs))
    outputs["OutputTensor"].flags.writeable = False
    refused(compiled_if(), inputs, outputs, match="OutputTensor: .*writable")
    outputs["OutputTensor"] = np.frombuffer(bytes(24), np.float32)
    refused(compiled_if(), inputs, outputs, match="OutputTensor: .*writable")


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 5, 7, 16, 31])
def test_any_address_will_do_if_no_alignment_is_declared(offset):
    inputs, outputs = if_arrays()
    y = at_offset(outputs["OutputTensor"], offset)
    compiled_if().dispatch({n: at_offset(x, offset) for n, x in inputs.items()}, {"OutputTensor": y})
    assert np.array_equal(y, wanted(inputs))


@pytest.mark.parametrize("name", IF_TENSORS)
@pytest.mark.parametrize("alignment", [4, 16, 32, 64])
def test_a_declared_alignment_is_checked(name, alignment):
    compiled = compiled_if(**{name: {"GuaranteedBaseOffsetAlignment": alignment}})
    for offset in (0, 1, 4, 8, 16, 32, 48):
        inputs, outputs = if_arrays()
        side = outputs if name == "OutputTensor" else inputs
        side[name] = at_offset(side[name], offset)
        if offset % alignment:
            refused(compiled, inputs, outputs, match=f"{name}: .*multiple of {alignment}")
        else:
            compiled.dispatch(inputs, outputs)
            assert np.array_equal(outputs["OutputTensor"], wanted(inputs))


# ---- names -------------------------------------------------------------------------------------------


def test_missing_and_unknown_names_are_told_together():
    inputs, outputs = if_arrays()
    inputs["Atensor"] = inputs.pop("ATensor")
    problems = refused(compiled_if(), inputs, {"Output": outputs["OutputTensor"]})
    assert len(problems) == 4
    for pattern in ("ATensor: .*missing", "'Atensor'.*'ATensor'", "OutputTensor: .*missing", "'Output'"):
        assert any(re.search(pattern, p) for p in problems), pattern


@pytest.mark.parametrize("key", ["ATensor", "OutputTensor", "InfinityMode", "", 0, None])
def test_a_name_on_the_wrong_side_or_of_no_tensor_is_refused(key):
    inputs, outputs = if_arrays()
    if key != "OutputTensor":
        refused(compiled_if(), inputs, outputs | {key: np.zeros(6, np.float32)})
    if key != "ATensor":
        refused(compiled_if(), inputs | {key: np.zeros(6, np.float32)}, outputs)


@pytest.mark.parametrize("thing", [None, [], (), "ATensor", 3])
def test_arrays_come_in_dictionaries(thing):
    inputs, outputs = if_arrays()
    with pytest.raises(dml.InvalidInput):
        compiled_if().bind(thing, outputs)
    with pytest.raises(dml.InvalidInput):
        compiled_if().bind(inputs, thing)


def test_every_wrong_array_is_told():
    inputs = {n: np.zeros(2, np.int8) for n in IF_TENSORS[:3]}
    problems = refused(compiled_if(), inputs, {"OutputTensor": np.zeros(3, np.float32)})
    assert [p.split(": ")[1] for p in problems] == list(IF_TENSORS)


# ---- overlap -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", IF_TENSORS[:3])
def test_no_input_may_be_the_output_or_touch_it(name):
    """Neither operator works in place, not even element upon element."""
    compiled = compiled_if("UINT8")
    memory = np.zeros(64, np.uint8)
    inputs, _ = if_arrays(np.uint8)
    for shift in range(-8, 9):
        x, y = memory[20 : 20 + 6], memory[20 + shift : 26 + shift]
        if abs(shift) < 6:
            refused(compiled, inputs | {name: x}, {"OutputTensor": y}, match=f"OutputTensor.*{name}")
        else:
            compiled.bind(inputs | {name: x}, {"OutputTensor": y})
    refused(compiled, inputs | {name: memory[20:26]}, {"OutputTensor": memory[20:30]}, match="apart|overlap")


def test_is_infinity_may_not_write_over_its_input():
    x = np.zeros(6, np.float32)
    for start in (0, 3, 18):
        y = x.view(np.uint8)[start : start + 6]
        refused(compiled_is_infinity(), {"InputTensor": x}, {"OutputTensor": y}, match="overlap|apart")


def test_only_what_the_description_reaches_counts_as_overlap():
    memory = np.arange(12).astype(np.float32)
    inputs, _ = if_arrays()
    compiled_if().dispatch(inputs | {"ATensor": memory}, {"OutputTensor": memory[6:]})
    assert np.array_equal(memory[6:], wanted(inputs | {"ATensor": memory[:6]}))


def test_inputs_may_share_memory():
    inputs, outputs = if_arrays(np.uint8)
    shared = inputs["ATensor"]
    compiled_if("UINT8").dispatch(dict.fromkeys(inputs, shared), outputs)
    assert np.array_equal(outputs["OutputTensor"], shared)


# ---- the life of a binding ---------------------------------------------------------------------------


def test_a_binding_sees_the_arrays_as_they_are_at_each_dispatch():
    inputs, outputs = if_arrays()
    bound = compiled_if().bind(inputs, outputs)
    for k in range(5):
        inputs["ATensor"] += k
        inputs["ConditionTensor"][k] ^= 1
        bound.dispatch()
        assert np.array_equal(outputs["OutputTensor"], wanted(inputs))


def test_a_binding_keeps_its_arrays_alive():
    inputs, outputs = if_arrays(n=100_000)
    compiled = compiled_if(sizes=(100_000,))
    expected, y = wanted(inputs), outputs["OutputTensor"]
    bound = compiled.bind(inputs, outputs)
    alive = [weakref.ref(x) for x in inputs.values()]
    inputs.clear()
    del compiled, outputs
    gc.collect()
    trash = [np.full(100_000, 7, np.float32) for _ in range(8)]
    bound.dispatch()
    assert np.array_equal(y, expected)
    assert all(ref() is not None for ref in alive)
    del bound, trash
    gc.collect()
    assert all(ref() is None for ref in alive)


@pytest.mark.drawn
@pytest.mark.parametrize("name", IF_TENSORS)
@pytest.mark.parametrize(
    "bind_as",
    [lambda x: x, lambda x: x[:6], lambda x: x[:6].reshape(2, 3)[:], lambda x: x.view(np.ndarray)],
    ids=["itself", "slice", "view of view", "view"],
)
def test_a_bound_array_cannot_be_resized(name, bind_as):
    inputs, outputs = if_arrays(n=6)
    side = outputs if name == "OutputTensor" else inputs
    owner = side[name].copy()
    side[name] = bind_as(owner)
    bound = compiled_if().bind(inputs, outputs)
    del side[name], side
    with pytest.raises(ValueError, match="resize"):
        owner.resize(1_000_000, refcheck=False)
    bound.dispatch()
    del bound
    gc.collect()
    owner.resize(10, refcheck=False)


def test_a_binding_is_dispatched_by_many_python_threads_at_once():
    inputs, _ = if_arrays(n=200_000)
    compiled = compiled_if(sizes=(200_000,))
    results = [np.zeros(200_000, np.float32) for _ in range(8)]

    def work(y):
        bound = compiled.bind(inputs, {"OutputTensor": y})
        for _ in range(20):
            y[:] = 0
            bound.dispatch()

    threads = [threading.Thread(target=work, args=(y,)) for y in results]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for y in results:
        assert np.array_equal(y, wanted(inputs))


@pytest.mark.parametrize("axes", [[1], [0]])
@pytest.mark.parametrize("threads", [1, 2])
def test_one_binding_is_dispatched_by_many_python_threads_at_once(axes, threads):
    """Also where outputs hold, on the way, what is no result yet."""
    x = np.random.default_rng(3).standard_normal((8, 200_000), np.float32)
    tensor = {"DataType": "FLOAT32", "Sizes": [8, 200_000]}
    description = {"Type": "ACTIVATION_SOFTMAX1", "InputTensor": tensor, "OutputTensor": tensor, "Axes": axes}
    device = dml.Device(threads=threads)
    compiled = device.compile_operator(device.create_operator(description))
    y = np.empty_like(x)
    bound = compiled.bind({"InputTensor": x}, {"OutputTensor": y})
    bound.dispatch()
    once = y.copy()
    with ThreadPoolExecutor(3) as pool:
        for _ in range(20):
            list(pool.map(lambda _: bound.dispatch(), range(3)))
            assert np.array_equal(y, once)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_the_number_of_threads_does_not_change_the_result(threads):
    inputs, outputs = if_arrays(n=300_001)
    compiled_if(sizes=(300_001,), threads=threads).dispatch(inputs, outputs)
    assert np.array_equal(outputs["OutputTensor"], wanted(inputs))


# ---- OWNED_BY_DML ------------------------------------------------------------------------------------

OWNED = {"Flags": "OWNED_BY_DML"}


@pytest.mark.parametrize("flags", ["OWNED_BY_DML", "DML_TENSOR_FLAG_OWNED_BY_DML", 1, dml.TensorFlags(1)])
def test_an_owned_input_is_given_once(flags):
    compiled = compiled_if(BTensor={"Flags": flags})
    inputs, outputs = if_arrays()
    expected, owned = wanted(inputs), inputs.pop("BTensor")
    refused(compiled, inputs, outputs, match="BTensor.*initialize")
    compiled.initialize({"BTensor": owned})
    owned[:] = -1  # the contents were taken over
    for _ in range(2):
        outputs["OutputTensor"][:] = 0
        compiled.dispatch(inputs, outputs)
        assert np.array_equal(outputs["OutputTensor"], expected)
    refused(compiled, inputs | {"BTensor": owned}, outputs, match="BTensor.*OWNED_BY_DML")


def test_initialize_takes_the_owned_inputs_and_no_others():
    compiled = compiled_if(ATensor=OWNED, BTensor=OWNED)
    inputs, outputs = if_arrays()
    a, b = inputs["ATensor"], inputs["BTensor"]
    for wrong in (
        {},
        {"ATensor": a},
        inputs,
        {"ATensor": a, "BTensor": b, "OutputTensor": outputs["OutputTensor"]},
        {"ATensor": a, "BTensor": b[:5]},
        {"ATensor": a, "BTensor": b.astype(np.float64)},
        {"ATensor": a, "BTensor": b[::-1]},
        None,
    ):
        with pytest.raises(dml.InvalidInput):
            compiled.initialize(wrong)
        refused(compiled, {"ConditionTensor": inputs["ConditionTensor"]}, outputs, match="initialize")
    compiled.initialize({"ATensor": a, "BTensor": b})
    compiled.dispatch({"ConditionTensor": inputs["ConditionTensor"]}, outputs)
    assert np.array_equal(outputs["OutputTensor"], wanted(inputs))


def test_without_owned_inputs_there_is_nothing_to_initialize():
    compiled = compiled_if()
    inputs, outputs = if_arrays()
    compiled.initialize({})
    with pytest.raises(dml.InvalidInput, match="ATensor"):
        compiled.initialize({"ATensor": inputs["ATensor"]})
    compiled.dispatch(inputs, outputs)


def test_an_owned_input_may_lie_where_the_output_is_written():
    """It was copied at initialize, so it is not the memory that dispatch reads."""
    compiled = compiled_if(ATensor=OWNED)
    inputs, _ = if_arrays()
    expected, memory = wanted(inputs), inputs.pop("ATensor")
    compiled.initialize({"ATensor": memory})
    compiled.dispatch(inputs, {"OutputTensor": memory})
    assert np.array_equal(memory, expected)


def test_a_binding_keeps_the_owned_contents_it_was_made_with():
    compiled = compiled_if(ATensor=OWNED)
    inputs, outputs = if_arrays()
    expected, a = wanted(inputs), inputs.pop("ATensor")
    compiled.initialize({"ATensor": a})
    bound = compiled.bind(inputs, outputs)
    compiled.initialize({"ATensor": a + 1000})
    gc.collect()
    bound.dispatch()
    assert np.array_equal(outputs["OutputTensor"], expected)


def test_an_output_cannot_be_owned():
    with pytest.raises(dml.InvalidOperator, match=r"OutputTensor.*OWNED_BY_DML"):
        compiled_if(OutputTensor=OWNED)


def test_an_array_seen_through_a_memoryview_stays_in_place():
    a = np.zeros(6, np.float32)
    inputs, outputs = if_arrays()
    bound = compiled_if().bind({**inputs, "ATensor": np.asarray(memoryview(a))}, outputs)
    with pytest.raises(ValueError, match="cannot resize"):
        a.resize(100_000, refcheck=False)
    bound.dispatch()


def test_a_masked_array_is_not_bound():
    inputs, outputs = if_arrays()
    inputs["ATensor"] = np.ma.masked_array(inputs["ATensor"])
    with pytest.raises(dml.InvalidInput, match="without mask"):
        compiled_if().bind(inputs, outputs)


def test_the_method_alone_keeps_its_binding():
    """`dispatch` without the binding that it came from still has its job and its arrays."""
    inputs, outputs = if_arrays()
    dispatch = compiled_if().bind(inputs, outputs).dispatch
    kept = outputs["OutputTensor"]
    expected = np.where(inputs["ConditionTensor"], inputs["ATensor"], inputs["BTensor"])
    del inputs, outputs
    gc.collect()
    junk = [np.full(64, -1, np.int64) for _ in range(1000)]
    dispatch()
    assert len(junk) == 1000
    assert np.array_equal(kept, expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_a_kernel_is_made_makes_its_own():
    code = """
import os, signal, threading, numpy as np, anydml as dml
from anydml.codegen.compiling import compiling
dml.if_
held, go = threading.Event(), threading.Event()
def hold():
    with compiling.lock:
        held.set()
        go.wait(0.5)
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    one = np.ones(3, np.int16)
    os._exit(int(dml.if_(np.ones(3, np.uint8), one, one).sum()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert said.stdout.strip() == "3", said.stderr
