"""Expressions as LLVM instructions on one element or on a vector of them.

A value is an LLVM value of its own type, except that a FLOAT16 travels as its 16 bits: it is widened
where an op computes with it. Selection, loads and stores copy bits, so NaN payloads and signs stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from anydml.codegen.division import quotient, remainder
from anydml.codegen.llvm_types import element_type, literal, mangle, value_type, vector
from anydml.codegen.target import Target
from anydml.ops.dtypes import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FLOATING,
    INT32,
    NUMPY,
    SIGNED,
    SIZE,
    UNSIGNED,
    ScalarType,
)
from anydml.ops.expr import Expr, convert, inline_calls


def _beside_zero(expr: Expr) -> str:
    """A comparison without a sign as it is beside 0, less than which nothing is.

    LLVM takes the smaller of 0 and a float as an integer for one of no bits, and ends the process.
    """
    zeros = [arg.opcode == "constant" and arg.value == 0 for arg in expr.args]
    if (expr.opcode == "lt" and zeros[1]) or (expr.opcode == "gt" and zeros[0]):
        return "false"
    if (expr.opcode == "le" and zeros[1]) or (expr.opcode == "ge" and zeros[0]):
        return "eq"
    return expr.opcode


class Emitter:
    """Appends instructions for expressions, whose leaves (`known`) are in registers already."""

    def __init__(self, target: Target, lanes: int, known: Mapping[Expr, str], prefix: str) -> None:
        self.target, self.lanes, self.prefix = target, lanes, prefix
        self.lines: list[str] = []
        self.declared: set[str] = set()
        """Declarations of the intrinsics that the lines call."""
        self.some: dict[Expr, str] = {}
        """Registers that tell whether any lane of a bool is true, where that is known already."""
        self._known: dict[Expr, str] = dict(known)
        self._count = 0

    def value(self, expr: Expr) -> str:
        """The register or literal that holds the expression's value; equal expressions share one."""
        stack = [expr]
        while expr not in self._known:
            last = stack[-1]
            needed = last.args if last.opcode != "select_lazy" else (last.args[0], last.args[2])
            missing = [arg for arg in needed if arg not in self._known]
            if missing:
                stack += reversed(missing)
                continue
            if last not in self._known:
                self._known[last] = _WORDS.get(last.opcode, Emitter._plain)(self, last)
            stack.pop()
        return self._known[expr]

    @property
    def known(self) -> Mapping[Expr, str]:
        """What is in registers by now."""
        return self._known

    def line(self, instruction: str) -> str:
        self._count += 1
        register = f"%{self.prefix}{self._count}"
        self.lines.append(f"  {register} = {instruction}")
        return register

    def type(self, dtype: ScalarType) -> str:
        return value_type(dtype, self.lanes)

    def splat(self, literal: int | str, element: str) -> str:
        return str(literal) if self.lanes == 1 else f"splat ({element} {literal})"

    def intrinsic(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """A call of `llvm.<name>` on (type, value) arguments."""
        kinds = ", ".join(kind for kind, _ in args)
        self.declared.add(f"declare {result} @llvm.{name}({kinds})")
        return self.line(f"call {result} @llvm.{name}({', '.join(map(' '.join, args))})")

    def any_lane(self, condition: str) -> str:
        """Whether a bool is true in any lane."""
        if self.lanes == 1:
            return condition
        return self.intrinsic(f"vector.reduce.or.v{self.lanes}i1", "i1", (self.type(BOOL), condition))

    # ---- ops

    def _plain(self, expr: Expr) -> str:
        """Ops that are one instruction or intrinsic on operands of the result's type."""
        dtype, kind = expr.dtype, self.type(expr.dtype)
        args = [self.value(arg) for arg in expr.args]
        family = "f" if dtype in FLOATING else "u" if dtype in UNSIGNED else "s"
        instruction = _INSTRUCTIONS.get((expr.opcode, family)) or _INSTRUCTIONS.get((expr.opcode, ""))
        if instruction is not None:
            return self.line(f"{instruction} {kind} {', '.join(args)}")
        name = f"{_INTRINSICS[expr.opcode]}.{mangle(element_type(dtype), self.lanes)}"
        return self.intrinsic(name, kind, *((kind, a) for a in args))

    def _constant(self, expr: Expr) -> str:
        return self.splat(literal(expr.value, expr.dtype), element_type(expr.dtype))

    def _select(self, expr: Expr) -> str:
        condition, a, b = (self.value(arg) for arg in expr.args)
        kind = self.type(expr.dtype)
        return self.line(f"select {self.type(BOOL)} {condition}, {kind} {a}, {kind} {b}")

    def _select_lazy(self, expr: Expr) -> str:
        rare, usual = (partial(self.value, arg) for arg in expr.args[1:])
        return self.lazily(expr.args[0], rare, usual(), self.type(expr.dtype))

    def lazily(self, unlikely: Expr, rare: Callable[[], str], usual: str, kind: str) -> str:
        """Branch past the rare value where no lane needs it."""
        condition = self.value(unlikely)
        some = self.some.get(unlikely)
        if some is None:
            some = self.some[unlikely] = self.any_lane(condition)
        self._count += 1
        mark = f"{self.prefix}{self._count}"
        self.lines += [f"  br label %{mark}.here", f"{mark}.here:"]
        self.lines += [f"  br i1 {some}, label %{mark}.rare, label %{mark}.join", f"{mark}.rare:"]
        outside = dict(self._known), dict(self.some)  # what is computed in there is unknown out here
        chosen = self.line(f"select {self.type(BOOL)} {condition}, {kind} {rare()}, {kind} {usual}")
        self._known, self.some = outside
        self.lines += [
            f"  br label %{mark}.done",
            f"{mark}.done:",
            f"  br label %{mark}.join",
            f"{mark}.join:",
        ]
        return self.line(f"phi {kind} [ {usual}, %{mark}.here ], [ {chosen}, %{mark}.done ]")

    def _compare(self, expr: Expr) -> str:
        dtype = expr.args[0].dtype
        if dtype in FLOATING:
            exact = dtype is FLOAT16 and expr.opcode in ("eq", "ne") and any(map(_one_pattern, expr.args))
            if not exact:
                a, b = (self.value(convert(arg, FLOAT32) if dtype is FLOAT16 else arg) for arg in expr.args)
                kind = self.type(FLOAT32 if dtype is FLOAT16 else dtype)
                order = "une" if expr.opcode == "ne" else f"o{expr.opcode}"
                return self.line(f"fcmp {order} {kind} {a}, {b}")
        opcode = expr.opcode if dtype in SIGNED else _beside_zero(expr)
        if opcode == "false":
            return self.splat("false", "i1")
        a, b = (self.value(arg) for arg in expr.args)
        sign = "" if opcode in ("eq", "ne") else "s" if dtype in SIGNED else "u"
        return self.line(f"icmp {sign}{opcode} {self.type(dtype)} {a}, {b}")

    def _not(self, expr: Expr) -> str:
        ones = self.splat("true" if expr.dtype is BOOL else -1, element_type(expr.dtype))
        return self.line(f"xor {self.type(expr.dtype)} {self.value(expr.args[0])}, {ones}")

    def _absolute(self, expr: Expr) -> str:
        dtype, kind, value = expr.dtype, self.type(expr.dtype), self.value(expr.args[0])
        assert dtype is not BOOL
        if dtype in UNSIGNED:
            return value
        if dtype is FLOAT16:
            return self.line(f"and {kind} {value}, {self.splat(0x7FFF, 'i16')}")
        suffix = mangle(element_type(dtype), self.lanes)
        if dtype in FLOATING:
            return self.intrinsic(f"fabs.{suffix}", kind, (kind, value))
        zero = self.splat(0, element_type(dtype))
        negative = self.line(f"icmp slt {kind} {value}, {zero}")
        opposite = self.line(f"sub {kind} {zero}, {value}")
        return self.line(f"select {self.type(BOOL)} {negative}, {kind} {opposite}, {kind} {value}")

    def _neg(self, expr: Expr) -> str:
        dtype, kind, value = expr.dtype, self.type(expr.dtype), self.value(expr.args[0])
        if dtype is FLOAT16:
            return self.line(f"xor {kind} {value}, {self.splat(-0x8000, 'i16')}")
        if dtype in FLOATING:
            return self.line(f"fneg {kind} {value}")
        return self.line(f"sub {kind} {self.splat(0, element_type(dtype))}, {value}")

    def _div(self, expr: Expr) -> str:
        return self._plain(expr) if expr.dtype in FLOATING else quotient(self, expr)

    def _rem(self, expr: Expr) -> str:
        return self._plain(expr) if expr.dtype in FLOATING else remainder(self, expr)

    def _shift(self, expr: Expr) -> str:
        dtype, kind = expr.dtype, self.type(expr.dtype)
        assert dtype is not BOOL
        instruction = "shl" if expr.opcode == "shl" else "ashr" if dtype in SIGNED else "lshr"
        a, count = (self.value(arg) for arg in expr.args)
        width, element = 8 * SIZE[dtype], element_type(dtype)
        if expr.args[1].opcode == "constant" and 0 <= expr.args[1].value < width:
            return self.line(f"{instruction} {kind} {a}, {count}")
        fits = self.line(f"icmp ult {kind} {count}, {self.splat(width, element)}")
        zero = self.splat(0, element)
        safe = self.line(f"select {self.type(BOOL)} {fits}, {kind} {count}, {kind} {zero}")
        shifted = self.line(f"{instruction} {kind} {a}, {safe}")
        return self.line(f"select {self.type(BOOL)} {fits}, {kind} {shifted}, {kind} {zero}")

    def _bitcast(self, expr: Expr) -> str:
        (arg,) = expr.args
        if element_type(arg.dtype) == element_type(expr.dtype):
            return self.value(arg)
        return self.line(f"bitcast {self.type(arg.dtype)} {self.value(arg)} to {self.type(expr.dtype)}")

    def _call(self, expr: Expr) -> str:
        if expr.value.scales and self.target.scales and self.lanes % 16 == 0:
            return self._scale(self.lanes, *(self.value(a) for a in expr.args[:2]))
        return self.value(inline_calls(expr))

    def _scale(self, lanes: int, x: str, n: str) -> str:
        """x * 2^n by AVX-512, which rounds once, whatever 2^n is."""
        kind, half = vector("float", lanes), lanes // 2
        if lanes == 16:
            rest = ((kind, "zeroinitializer"), ("i16", "-1"), ("i32", "4"))  # all lanes, rounded as usual
            return self.intrinsic("x86.avx512.mask.scalef.ps.512", kind, (kind, x), (kind, n), *rest)

        def picked(a: str, b: str, kind: str, lanes: range) -> str:
            order = ", ".join(f"i32 {k}" for k in lanes)
            return self.line(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{order}>")

        halves = [[picked(v, v, kind, range(k, k + half)) for v in (x, n)] for k in (0, half)]
        low, high = (self._scale(half, *parts) for parts in halves)
        return picked(low, high, vector("float", half), range(lanes))

    def _convert(self, expr: Expr) -> str:
        (arg,) = expr.args
        source, target = arg.dtype, expr.dtype
        value, ours, its = self.value(arg), self.type(target), self.type(source)
        if source is FLOAT16:
            return self._widen(value)
        if target is FLOAT16:
            return self._narrow(value)
        if target in FLOATING:
            if source in FLOATING:
                opcode = "fpext" if target is FLOAT64 else "fptrunc"
            else:
                opcode = "sitofp" if source in SIGNED else "uitofp"
            return self.line(f"{opcode} {its} {value} to {ours}")
        if source in FLOATING:
            return self._saturate(value, source, target)
        if source is BOOL:
            return self.line(f"zext {its} {value} to {ours}")
        if SIZE[source] == SIZE[target]:
            return value
        opcode = "trunc" if SIZE[source] > SIZE[target] else "sext" if source in SIGNED else "zext"
        return self.line(f"{opcode} {its} {value} to {ours}")

    def _saturate(self, value: str, source: ScalarType, target: ScalarType) -> str:
        """A float as an integer. Without hardware it is clamped first: LLVM would go lane by lane."""
        its, ours = self.type(source), self.type(target)
        instruction = "fptosi" if target in SIGNED else "fptoui"
        if self.lanes == 1 or self.target.saturates:
            name = f"{instruction}.sat.{mangle(element_type(target), self.lanes)}"
            return self.intrinsic(f"{name}.{mangle(element_type(source), self.lanes)}", ours, (its, value))
        info = np.iinfo(NUMPY[target])

        def float_(number: float) -> str:
            return self.splat(literal(number, source), element_type(source))

        def chosen(condition: str, a: str, b: str) -> str:
            truth = self.line(f"fcmp {condition}")
            return self.line(f"select {self.type(BOOL)} {truth}, {its} {a}, {its} {b}")

        low, high, zero = float_(float(info.min)), float_(float(info.max)), float_(0.0)
        if float(info.max) == info.max and info.max < 2 ** np.finfo(NUMPY[source]).nmant:
            number = value if info.min == 0 else chosen(f"ord {its} {value}, {zero}", value, zero)
            above = chosen(f"ogt {its} {number}, {low}", number, low)
            within = chosen(f"olt {its} {above}, {high}", above, high)
            if SIZE[target] >= 4:
                return self.line(f"{instruction} {its} {within} to {ours}")
            whole = self.line(f"fptosi {its} {within} to {self.type(INT32)}")
            return self.line(f"trunc {self.type(INT32)} {whole} to {ours}")
        beyond = float_(float(info.max + 1))
        number = chosen(f"olt {its} {value}, {beyond}", value, zero)
        above = chosen(f"ogt {its} {number}, {low}", number, low)
        whole = self.line(f"{instruction} {its} {above} to {ours}")
        huge = self.line(f"fcmp oge {its} {value}, {beyond}")
        most = self.splat(info.max, element_type(target))
        return self.line(f"select {self.type(BOOL)} {huge}, {ours} {most}, {ours} {whole}")

    def _widen(self, half: str) -> str:
        """float16 bits as float32; without hardware by integer arithmetic and one exact multiplication.

        Exponent and fraction moved into a float32's place mean the value times 2^-112; the multiplication
        mends normal and denormal numbers alike. Infinities and NaNs then only need their exponent.
        """
        h, w, f = self.type(FLOAT16), self.type(INT32), self.type(FLOAT32)
        if self.target.converts_half:
            as_half = self.line(f"bitcast {h} {half} to {vector('half', self.lanes)}")
            return self.line(f"fpext {vector('half', self.lanes)} {as_half} to {f}")
        wide = self.line(f"zext {h} {half} to {w}")
        magnitude = self.line(f"and {w} {wide}, {self.splat(0x7FFF, 'i32')}")
        moved = self.line(f"shl {w} {magnitude}, {self.splat(13, 'i32')}")
        scaled = self.line(f"bitcast {w} {moved} to {f}")
        value = self.line(f"fmul {f} {scaled}, {self.splat(literal(2.0**112, FLOAT32), 'float')}")
        finite = self.line(f"bitcast {f} {value} to {w}")
        special = self.line(f"or {w} {moved}, {self.splat(0x7F800000, 'i32')}")
        is_finite = self.line(f"icmp ult {w} {magnitude}, {self.splat(0x7C00, 'i32')}")
        chosen = self.line(f"select {self.type(BOOL)} {is_finite}, {w} {finite}, {w} {special}")
        sign = self.line(f"and {w} {wide}, {self.splat(0x8000, 'i32')}")
        high = self.line(f"shl {w} {sign}, {self.splat(16, 'i32')}")
        bits = self.line(f"or {w} {chosen}, {high}")
        return self.line(f"bitcast {w} {bits} to {f}")

    def _narrow(self, single: str) -> str:
        """A float32 as float16 bits, rounded to nearest even; without hardware by integer arithmetic.

        Normal numbers round by adding half of what falls away (and the last kept bit); for denormal ones
        adding 0.5 leaves the rounded fraction in the low bits of the float.
        """
        h, w, f = self.type(FLOAT16), self.type(INT32), self.type(FLOAT32)
        if self.target.converts_half:
            as_half = self.line(f"fptrunc {f} {single} to {vector('half', self.lanes)}")
            return self.line(f"bitcast {vector('half', self.lanes)} {as_half} to {h}")

        def number(n: int) -> str:
            return self.splat(n, "i32")

        bits = self.line(f"bitcast {f} {single} to {w}")
        magnitude = self.line(f"and {w} {bits}, {number(0x7FFFFFFF)}")
        shifted = self.line(f"lshr {w} {magnitude}, {number(13)}")
        last = self.line(f"and {w} {shifted}, {number(1)}")
        biased = self.line(f"add {w} {magnitude}, {number(0x0FFF - (112 << 23))}")
        rounded = self.line(f"add {w} {biased}, {last}")
        normal = self.line(f"lshr {w} {rounded}, {number(13)}")
        as_float = self.line(f"bitcast {w} {magnitude} to {f}")
        added = self.line(f"fadd {f} {as_float}, {self.splat(literal(0.5, FLOAT32), 'float')}")
        added_bits = self.line(f"bitcast {f} {added} to {w}")
        tiny = self.line(f"sub {w} {added_bits}, {number(0x3F000000)}")
        truth = self.type(BOOL)
        is_tiny = self.line(f"icmp ult {w} {magnitude}, {number(0x38800000)}")
        small = self.line(f"select {truth} {is_tiny}, {w} {tiny}, {w} {normal}")
        is_large = self.line(f"icmp uge {w} {magnitude}, {number(0x47800000)}")
        finite = self.line(f"select {truth} {is_large}, {w} {number(0x7C00)}, {w} {small}")
        payload = self.line(f"and {w} {shifted}, {number(0x3FF)}")
        quiet = self.line(f"or {w} {payload}, {number(0x7E00)}")
        is_nan = self.line(f"icmp ugt {w} {magnitude}, {number(0x7F800000)}")
        value = self.line(f"select {truth} {is_nan}, {w} {quiet}, {w} {finite}")
        high = self.line(f"lshr {w} {bits}, {number(16)}")
        sign = self.line(f"and {w} {high}, {number(0x8000)}")
        signed = self.line(f"or {w} {value}, {sign}")
        return self.line(f"trunc {w} {signed} to {h}")


def _one_pattern(expr: Expr) -> bool:
    """A constant that equals a float exactly when their bits are equal: neither a zero nor a NaN."""
    return expr.opcode == "constant" and expr.value != 0 and expr.value == expr.value


_INSTRUCTIONS = {  # by op and kind of the result: float, signed, unsigned, or any
    ("add", "f"): "fadd",
    ("sub", "f"): "fsub",
    ("mul", "f"): "fmul",
    ("div", "f"): "fdiv",
    ("rem", "f"): "frem",
    ("add", ""): "add",
    ("sub", ""): "sub",
    ("mul", ""): "mul",
    ("and", ""): "and",
    ("or", ""): "or",
    ("xor", ""): "xor",
}
_INTRINSICS = {n: n for n in ("fma", "sqrt", "floor", "ceil", "trunc", "rint")} | {"popcount": "ctpop"}
_WORDS: dict[str, Callable[[Emitter, Expr], str]] = {
    "constant": Emitter._constant,
    "select": Emitter._select,
    "select_lazy": Emitter._select_lazy,
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), Emitter._compare),
    "not": Emitter._not,
    "absolute": Emitter._absolute,
    "neg": Emitter._neg,
    "div": Emitter._div,
    "rem": Emitter._rem,
    **dict.fromkeys(("shl", "shr"), Emitter._shift),
    "bitcast": Emitter._bitcast,
    "call": Emitter._call,
    "convert": Emitter._convert,
}
