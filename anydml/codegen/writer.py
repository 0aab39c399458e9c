"""What the writers of kernel bodies have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from anydml.codegen.emit import Emitter
from anydml.codegen.group import Access, KernelSpec, KernelVariant
from anydml.codegen.llvm_types import element_type, value_type
from anydml.codegen.target import Target
from anydml.ops.dtypes import SIZE, ScalarType
from anydml.ops.expr import Expr, walk


def stream_alignment(dtype: ScalarType, lanes: int) -> int:
    return min(64, SIZE[dtype] * lanes)


class LoopEmitter(ABC):
    """What the writers of loops have in common."""

    lanes: int

    def __init__(self, group: KernelSpec, shape: KernelVariant, target: Target) -> None:
        self.group, self.shape, self.target = group, shape, target
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.count = len(group.inputs)
        self._labels = 0

    @abstractmethod
    def write(self) -> None:
        """Write the body."""

    def emit_lines(self, *lines: str) -> None:
        self.lines += [line if line.endswith(":") else f"  {line}" for line in lines]

    def label(self) -> str:
        """A fresh prefix for labels and registers."""
        self._labels += 1
        return f"b{self._labels}"

    def emitter(self, known: Mapping[Expr, str], lanes: int | None = None) -> Emitter:
        return Emitter(self.target, lanes or self.lanes, known, f"{self.label()}.v")

    def flush(self, emitter: Emitter) -> None:
        self.lines += emitter.lines
        emitter.lines.clear()
        self.declared |= emitter.declared

    def word(self, name: str, array: str, index: int, kind: str = "i64") -> None:
        """%name = array[index], of 8-byte words."""
        self.emit_lines(
            f"%{name}.p = getelementptr i64, ptr {array}, i64 {index}",
            f"%{name} = load {kind}, ptr %{name}.p",
        )

    def operands(self, indices: Iterable[int]) -> None:
        """%p<k>: addresses."""
        for k in indices:
            self.word(f"p{k}", "%operands", k, "ptr")

    def is_(self, k: int, access: Access) -> bool:
        return self.shape.access[k] is access

    def broadcast(self, value: str, dtype: ScalarType, name: str, lanes: int | None = None) -> str:
        """A register with `value` in every lane."""
        lanes = lanes or self.lanes
        element, kind = element_type(dtype), value_type(dtype, lanes)
        self.emit_lines(
            f"%{name}.i = insertelement {kind} poison, {element} {value}, i32 0",
            f"%{name} = shufflevector {kind} %{name}.i, {kind} poison, <{lanes} x i32> zeroinitializer",
        )
        return f"%{name}"

    def of_splats(self, load: Callable[[int], str]) -> dict[Expr, str]:
        """What the outputs need of operands that are one element for all: computed once, as scalars.

        `load`: gives the register with such an operand's element.
        """
        varies: dict[Expr, bool] = {}
        words = list(walk(*self.group.outputs))
        for e in words:
            if e.opcode == "read":
                varies[e] = not self.is_(e.value, Access.SPLAT)
            else:
                varies[e] = not e.args or any(varies[a] for a in e.args if a.opcode != "constant")
        wanted = [a for e in words if varies[e] for a in e.args if not varies[a]]
        wanted += [e for e in self.group.outputs if not varies[e]]
        wanted = [e for e in dict.fromkeys(wanted) if e.opcode != "read"]
        reads = [e for e in walk(*wanted) if e.opcode == "read"]
        emitter = self.emitter({e: load(e.value) for e in reads}, 1)
        found = {e: emitter.value(e) for e in wanted}
        self.flush(emitter)
        return found

    def until_aligned(self, lanes: int) -> None:
        """%head.n: elements until the first output is aligned for streaming stores."""
        k = self.count
        dtype = self.group.operands[k]
        self.emit_lines(
            f"%address = ptrtoint ptr %p{k} to i64",
            "%negated = sub i64 0, %address",
            f"%ahead = and i64 %negated, {stream_alignment(dtype, lanes) - 1}",
            f"%ahead.n = sdiv i64 %ahead, {SIZE[dtype]}",
            "%ahead.fits = icmp slt i64 %ahead.n, %n",
            "%head.n = select i1 %ahead.fits, i64 %ahead.n, i64 %n",
        )
