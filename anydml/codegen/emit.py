"""A scalar expression as LLVM instructions on one element or on a vector of them.

Values travel as bits: a float is an integer of its width and becomes a float only inside the word that
computes with it. So selection copies NaN payloads and signs untouched, on every target.
"""

from __future__ import annotations

import numpy as np

from anydml.codegen.jit import Target
from anydml.spec.dtypes import FLOATING, NUMPY, SIGNED, SIZE
from anydml.spec.enums import TensorDataType
from anydml.spec.scalar import BOOL, Expr, ScalarType

_FLOAT = {2: "half", 4: "float", 8: "double"}


def bits_type(dtype: ScalarType, lanes: int) -> str:
    element = "i1" if dtype == BOOL else f"i{8 * SIZE[dtype]}"
    return element if lanes == 1 else f"<{lanes} x {element}>"


def _has_one_pattern(expr: Expr) -> bool:
    """A constant that equals a float exactly when their bits are equal: neither a zero nor a NaN."""
    return expr.word == "constant" and expr.value != 0 and expr.value == expr.value


class Emitter:
    """Appends instructions for expressions over `reads` (operand number -> register of its bits)."""

    def __init__(self, target: Target, lanes: int, reads: dict[int, str], prefix: str) -> None:
        self.target, self.lanes, self.prefix = target, lanes, prefix
        self.lines: list[str] = []
        self._reads = reads
        self._known: dict[Expr, str] = {}

    def bits(self, expr: Expr) -> str:
        """The register or literal that holds the expression's bits; equal expressions share one."""
        if expr not in self._known:
            self._known[expr] = getattr(self, f"_{expr.word}")(expr)
        return self._known[expr]

    # ---- words

    def _read(self, expr: Expr) -> str:
        return self._reads[int(expr.value)]

    def _constant(self, expr: Expr) -> str:
        assert expr.dtype != BOOL
        pattern = np.array(expr.value, NUMPY[expr.dtype]).view(f"u{SIZE[expr.dtype]}").item()
        return self._splat(pattern, f"i{8 * SIZE[expr.dtype]}")

    def _select(self, expr: Expr) -> str:
        condition, a, b = (self.bits(arg) for arg in expr.args)
        kind = bits_type(expr.dtype, self.lanes)
        return self._line(f"select {bits_type(BOOL, self.lanes)} {condition}, {kind} {a}, {kind} {b}")

    def _eq(self, expr: Expr) -> str:
        return self._compare(expr, "icmp eq", "fcmp oeq")

    def _ne(self, expr: Expr) -> str:
        return self._compare(expr, "icmp ne", "fcmp une")

    def _compare(self, expr: Expr, of_integers: str, of_floats: str) -> str:
        dtype = expr.args[0].dtype
        if dtype in FLOATING and not any(_has_one_pattern(arg) for arg in expr.args):
            (kind, a), (_, b) = (self._float(arg) for arg in expr.args)
            return self._line(f"{of_floats} {kind} {a}, {b}")
        a, b = (self.bits(arg) for arg in expr.args)
        return self._line(f"{of_integers} {bits_type(dtype, self.lanes)} {a}, {b}")

    def _absolute(self, expr: Expr) -> str:
        dtype, kind, value = expr.dtype, bits_type(expr.dtype, self.lanes), self.bits(expr.args[0])
        assert dtype != BOOL
        width = 8 * SIZE[dtype]
        if dtype in FLOATING:
            return self._line(f"and {kind} {value}, {self._splat(2 ** (width - 1) - 1, f'i{width}')}")
        if dtype in SIGNED:
            negative = self._line(f"icmp slt {kind} {value}, {self._splat(0, f'i{width}')}")
            opposite = self._line(f"sub {kind} {self._splat(0, f'i{width}')}, {value}")
            truth = bits_type(BOOL, self.lanes)
            return self._line(f"select {truth} {negative}, {kind} {opposite}, {kind} {value}")
        return value

    def _convert(self, expr: Expr) -> str:
        source = bits_type(BOOL, self.lanes)
        return self._line(f"zext {source} {self.bits(expr.args[0])} to {bits_type(expr.dtype, self.lanes)}")

    # ---- helpers

    def _float(self, expr: Expr) -> tuple[str, str]:
        """Type and register of the expression as a float that the target computes with."""
        dtype = expr.dtype
        assert isinstance(dtype, TensorDataType)
        kind = self._vector(_FLOAT[SIZE[dtype]])
        value = self._line(f"bitcast {bits_type(dtype, self.lanes)} {self.bits(expr)} to {kind}")
        if dtype is not TensorDataType.FLOAT16:
            return kind, value
        wide = self._vector("float")
        if self.target.converts_half:
            return wide, self._line(f"fpext {kind} {value} to {wide}")
        return wide, self._widened(self.bits(expr))

    def _widened(self, half: str) -> str:
        """float16 bits as float32 by integer arithmetic and one exact multiplication.

        Exponent and fraction moved into a float32's place mean the value times 2^-112; the multiplication
        mends normal and denormal numbers alike. Infinities and NaNs then only need their exponent.
        """
        h, w, f = self._vector("i16"), self._vector("i32"), self._vector("float")
        wide = self._line(f"zext {h} {half} to {w}")
        magnitude = self._line(f"and {w} {wide}, {self._splat(0x7FFF, 'i32')}")
        moved = self._line(f"shl {w} {magnitude}, {self._splat(13, 'i32')}")
        scaled = self._line(f"bitcast {w} {moved} to {f}")
        value = self._line(f"fmul {f} {scaled}, {self._splat('0x46F0000000000000', 'float')}")
        finite = self._line(f"bitcast {f} {value} to {w}")
        special = self._line(f"or {w} {moved}, {self._splat(0x7F800000, 'i32')}")
        is_finite = self._line(f"icmp ult {w} {magnitude}, {self._splat(0x7C00, 'i32')}")
        chosen = self._line(f"select {self._vector('i1')} {is_finite}, {w} {finite}, {w} {special}")
        sign = self._line(f"and {w} {wide}, {self._splat(0x8000, 'i32')}")
        high = self._line(f"shl {w} {sign}, {self._splat(16, 'i32')}")
        bits = self._line(f"or {w} {chosen}, {high}")
        return self._line(f"bitcast {w} {bits} to {f}")

    def _vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    def _splat(self, literal: int | str, element: str) -> str:
        if self.lanes == 1:
            return str(literal)
        return "<" + ", ".join([f"{element} {literal}"] * self.lanes) + ">"

    def _line(self, instruction: str) -> str:
        register = f"%{self.prefix}{len(self.lines)}"
        self.lines.append(f"  {register} = {instruction}")
        return register
