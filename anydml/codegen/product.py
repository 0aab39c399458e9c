"""Kernel bodies of products along an axis, in any order without loss.

    product = mantissa * 2^exponent         of floats: what is on the way is never too large or too small

An "element" of the iteration space is a line along the axis. Lines whose elements lie side by side go as
vectors; of others, each is read as vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from anydml.codegen.llvm_types import element_type, literal, value_type
from anydml.codegen.row_writer import RowWriter
from anydml.codegen.target import Target
from anydml.dataclass import dataclass
from anydml.ops.dtypes import FLOAT64, FLOATING, INT64, SIZE, ScalarType
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import add, and_, bitcast, convert, mul, ne, or_, read, select, shr, sub

MAX_FACTORS = 4
"""That are multiplied before the power of two is taken out: of float32 they are within float64."""
CHAINS = 4
"""Products of one line that go beside each other, so that none waits for another."""
_EXPONENT, _BIAS, _FRACTION_BITS = 0x7FF, 0x3FF, 52


@dataclass(frozen=True)
class ProductSpec:
    dtype: TensorDataType
    beside: bool
    """Lines lie side by side."""

    @property
    def wide(self) -> ScalarType:
        return FLOAT64 if self.floating else self.dtype

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATING

    @property
    def names(self) -> list[str]:
        """The words of a launch descriptor: the arrays; then of a line how many elements it has, and how many
        bytes lie from one to the next."""
        return ["source", "target", *(["exponents"] if self.floating else []), "length", "along"]


class ProductWriter(RowWriter):
    def __init__(self, spec: ProductSpec, target: Target) -> None:
        super().__init__(target)
        self.spec = spec
        self.lanes = target.vector_bytes // SIZE[spec.wide]

    def write(self) -> None:
        names = self.spec.names
        self.base, self.step = self.words(names, len(names) - 2)
        if self.spec.beside:
            self.all_of("0", "%n", (8 * self.lanes, self.lanes // 2, 1), self._lines)
        else:
            self.loop(0, "%n", 1, self._line)

    def _lines(self, index: str, lanes: int) -> None:
        """Neighbouring lines, all of each."""
        here = self._here(index)
        first, values = self._over(here["source"], "0", 1, MAX_FACTORS, lanes, self._nothing(lanes))
        _, values = self._over(here["source"], first, 1, 1, lanes, values)
        self._finish(here, values, lanes)

    def _line(self, index: str, _: list[str]) -> list[str]:
        """One line: many vectors at a time, then one, then single elements."""
        here, lanes = self._here(index), self.lanes
        first, values = self._over(
            here["source"], "0", CHAINS, MAX_FACTORS, lanes, self._nothing(lanes) * CHAINS
        )
        count = len(values) // CHAINS
        first, head = self._over(here["source"], first, 1, 1, lanes, values[:count])
        whole = self._together([*head, *values[count:]])
        self._finish(here, self._over(here["source"], first, 1, 1, 1, whole)[1], 1)
        return []

    def _here(self, index: str) -> dict[str, str]:
        return {n: self.pointer(word) for n, word in self.here(index, self.base, self.step).items()}

    def _over(
        self, source: str, first: str, chains: int, factors: int, lanes: int, values: Sequence[str]
    ) -> tuple[str, list[str]]:
        """As many steps along the line from `first` on as fit: where they end, and the chains' products."""
        spec, count = self.spec, len(values) // chains
        apart, pitch = (1, self.base["along"]) if spec.beside else (lanes, SIZE[spec.dtype])
        size = chains * factors * apart
        left = self.number("sub", self.base["length"], first)
        end = self.number("sub", self.base["length"], self.number("urem", left, size))

        def step(index: str, carried: list[str]) -> list[str]:
            made: list[str] = []
            for c in range(chains):
                loaded = []
                for k in range(c * factors, (c + 1) * factors):
                    offset = self.number("mul", self.number("add", index, k * apart), pitch)
                    loaded.append(self.load(self.at(source, offset), spec.dtype, lanes))
                made += self._times(carried[c * count : (c + 1) * count], loaded, lanes)
            return made

        kinds = [value_type(dtype, lanes) for dtype in self._types] * chains
        return end, self.loop(first, end, size, step, list(zip(kinds, values, strict=True)))

    @property
    def _types(self) -> list[ScalarType]:
        """Of what is carried."""
        return [FLOAT64, INT64] if self.spec.floating else [self.spec.wide]

    def _nothing(self, lanes: int) -> list[str]:
        """A product of nothing."""
        ones = [literal(1 - k, dtype) for k, dtype in enumerate(self._types)]
        if lanes == 1:
            return ones
        return [f"splat ({element_type(t)} {one})" for t, one in zip(self._types, ones, strict=True)]

    def _times(self, carried: Sequence[str], values: Sequence[str], lanes: int) -> list[str]:
        """A product so far, times values; of floats, the power of two is taken out."""
        wide, dtype = self.spec.wide, self.spec.dtype
        so_far, exponents = read(0, wide), read(1, INT64)
        factors = [read(2 + k, dtype) for k in range(len(values))]
        before = [so_far, exponents][: len(carried)]
        known = dict(zip([*before, *factors], [*carried, *values], strict=True))
        whole = mul(so_far, reduce(mul, [convert(x, wide) for x in factors]))
        if not self.spec.floating:
            return [self.evaluate(whole, lanes, known)]
        bits = bitcast(whole, INT64)
        power = and_(shr(bits, _FRACTION_BITS), _EXPONENT)
        finite = and_(ne(power, 0), ne(power, _EXPONENT))  # nor 0
        rest = or_(and_(bits, ~(_EXPONENT << _FRACTION_BITS)), _BIAS << _FRACTION_BITS)
        mantissa = select(finite, bitcast(rest, FLOAT64), whole)
        total = select(finite, add(exponents, sub(power, _BIAS)), exponents)
        return [self.evaluate(e, lanes, known) for e in (mantissa, total)]

    def _together(self, values: Sequence[str]) -> list[str]:
        """The lanes of all chains as one product; mantissas are so few that theirs is not too large."""
        found, types = [], self._types
        for k, dtype in enumerate(types):
            a, b = read(0, dtype), read(1, dtype)
            both = add(a, b) if k else mul(a, b)
            vector, *others = values[k :: len(types)]
            for other in others:
                vector = self.evaluate(both, self.lanes, {a: vector, b: other})
            element, kind = element_type(dtype), value_type(dtype, self.lanes)
            word = "add" if k else "fmul" if self.spec.floating else "mul"
            start = f"{element} {literal(1, dtype)}, " if word == "fmul" else ""
            name = f"@llvm.vector.reduce.{word}.v{self.lanes}{'f64' if word == 'fmul' else element}"
            first = f"{element}, " if start else ""
            self.declared.add(f"declare {element} {name}({first}{kind})")
            found.append(self.line(f"call {element} {name}({start}{kind} {vector})"))
        return found

    def _finish(self, here: dict[str, str], values: Sequence[str], lanes: int) -> None:
        for name, value, dtype in zip(self.spec.names[1:], values, self._types, strict=False):
            self.store(value, here[name], dtype, lanes)
