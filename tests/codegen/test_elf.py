"""Object files linked without LLVM: what it makes runs, and anything odd is left to it."""

import ctypes
import platform
import sys
from struct import pack_into, unpack_from

import pytest

from anydml.codegen import elf, jit
from anydml.codegen.compiling import compiling
from anydml.codegen.elf import NotLinkable

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="objects of another kind"
)
TEXT = """
@table = private constant [4 x i64] [i64 3, i64 5, i64 7, i64 11], align 64
declare i64 @given(i64)
define i64 @at(i64 %k) {
  %p = getelementptr i64, ptr @table, i64 %k
  %x = load i64, ptr %p
  ret i64 %x
}
define i64 @through(i64 %k) {
  %x = call i64 @at(i64 %k)
  %y = call i64 @given(i64 %x)
  ret i64 %y
}
"""


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
def given(x):
    return 10 * x


def address_of_given(name):
    return ctypes.cast(given, ctypes.c_void_p).value if name == "given" else None


def object_of(text):
    with compiling.lock:
        return bytes(jit._machine(2).emit_object(jit._verified(text)))


def test_code_runs_with_its_constants_and_what_it_calls():
    code = elf.link(object_of(TEXT), address_of_given)
    through = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("through"))
    assert [through(k) for k in range(4)] == [30, 50, 70, 110]


def test_unknown_functions_are_left():
    with pytest.raises(NotLinkable, match="given"):
        elf.link(object_of(TEXT), lambda name: None)


def test_variables_are_left():
    with pytest.raises(NotLinkable):
        elf.link(object_of("@v = global i64 1\ndefine ptr @f() { ret ptr @v }"), address_of_given)


def test_other_relocations_are_left():
    near = jit.emit_object_file(TEXT, None)  # for a linker that knows where all lies
    with pytest.raises(NotLinkable, match="relocation"):
        elf.link(near, address_of_given)


def test_llvm_takes_what_is_left():
    text = "@v = global i64 7\ndefine i64 @f() { %x = load i64, ptr @v ret i64 %x }"
    code = jit.load_code(text)
    assert isinstance(code, jit._CodeByLLVM)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("f"))() == 7


def test_damaged_files_are_not_linked():
    """Cut anywhere they are refused, or link to what is all there; nothing outside of the file is read."""
    whole = object_of(TEXT)
    for length in range(0, len(whole), 7):
        with pytest.raises(NotLinkable):
            elf.link(whole[:length], address_of_given)


def test_relocations_outside_of_their_section_are_refused():
    whole = bytearray(object_of(TEXT))
    (at,) = unpack_from("<Q", whole, 40)
    (count,) = unpack_from("<H", whole, 60)
    for k in range(count):
        section = at + 64 * k
        (kind,) = unpack_from("<I", whole, section + 4)
        offset, size = unpack_from("<QQ", whole, section + 24)
        (target,) = unpack_from("<I", whole, section + 44)
        (flags,) = unpack_from("<Q", whole, at + 64 * target + 8)
        (length,) = unpack_from("<Q", whole, at + 64 * target + 32)
        if kind == 4 and flags & 4 and size:
            for wrong in (length - 7, length, 2**40, 2**64 - 8):
                harmed = bytearray(whole)
                pack_into("<Q", harmed, offset, wrong)
                with pytest.raises(NotLinkable):
                    elf.link(bytes(harmed), address_of_given)
            return
    pytest.fail("no relocations of code")
