"""What a kernel computes (`KernelSpec`) and the circumstances that its code is made for (`KernelVariant`)."""

from __future__ import annotations

from enum import Enum

from anydml.cached import cached_property
from anydml.codegen.descriptor import DescriptorTemplate
from anydml.codegen.division import branches
from anydml.dataclass import dataclass
from anydml.ops.dtypes import BOOL, FLOAT64, SIZE
from anydml.ops.enums import TensorDataType
from anydml.ops.expr import Expr, walk
from anydml.ops.reductions import REDUCTIONS, Axes

MAX_VECTOR_LOOP_OPS = 32
"""Ops of expressions up to which a kernel body is plain."""


class Access(Enum):
    """How an operand advances along the innermost dimension."""

    PACKED = "packed"  # to the next element
    SPLAT = "splat"  # not at all
    STRIDED = "strided"  # by any number of bytes


class Hold(Enum):
    """Where values of a row are held from one stage to the next."""

    NOWHERE = "nowhere"  # they are computed again
    SCRATCH = "scratch"  # on the stack
    OUTPUT = "output"  # where the first output is to stand, which is apart from the inputs


@dataclass(frozen=True)
class KernelVariant:
    """What a kernel body is made for, beside its expressions."""

    access: tuple[Access, ...]
    stream: bool = False
    """Stores go past the caches."""
    dims: int = 0
    """Reduced dimensions."""
    hold: Hold = Hold.NOWHERE
    single: bool = False
    """Outputs are one element for each row."""
    long: bool = False
    """Rows are many long blocks, or whole ones: they are served best by these."""
    turned: tuple[int, ...] = ()
    """Operands that are brought into the output's order, tile by tile."""
    direct: bool = False
    """A copy turns its tiles where they are to stand: best as long as that stays in a cache."""
    short: bool = False
    """An element is a row, which is short."""
    staged: bool = False
    """Rows, which follow each other, are computed on the stack; from there a batch at a time is streamed."""
    registers: int = 0
    """Vectors of FLOAT32 of a row, the last one of which need not be whole: a row stays in registers."""
    columns: int = 0
    """Vectors of FLOAT32 of reduced rows that lie beside each other and go together; `access` is how operands
    advance from one to the next."""


class KernelSpec:
    """Expressions over one iteration space, an output each; operands are the inputs, then the outputs.

    Made by `kernel.group`, which gives one object for equal expressions: it carries their compiled code.
    """

    def __init__(self, inputs: tuple[TensorDataType, ...], outputs: tuple[Expr, ...]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.operands = (*inputs, *(e.dtype for e in outputs if e.dtype is not BOOL))
        assert len(inputs) + len(outputs) == len(self.operands)
        self.widths = tuple(SIZE[t] for t in self.operands)
        self.width = sum(self.widths)
        self.packed: dict[tuple[int, int, int], DescriptorTemplate] = {}
        """Launch descriptors over packed operands, without their addresses, by size, pool and threads."""
        self.rows: dict[KernelVariant, int] = {}
        """Addresses of the kernel bodies made so far."""

    @cached_property
    def words(self) -> list[Expr]:
        """Every op that is computed, functions written out."""
        return list(walk(*self.outputs, deep=True))

    @cached_property
    def axes(self) -> Axes | None:
        """The axes of its rows, if rows are reduced."""
        found = {e.value for e in self.words if e.opcode in REDUCTIONS or e.opcode == "row_index"}
        assert len(found) <= 1, "one kernel reduces over one set of axes"
        return found.pop() if found else None

    @cached_property
    def cost(self) -> int:
        """How many bytes take about as long to move as one element to compute; of FLOAT64, vectors have half
        as many."""
        return self.width + sum(2 if e.dtype is FLOAT64 else 1 for e in self.words) // 4

    @cached_property
    def plain(self) -> bool:
        return (
            self.axes is None
            and len(self.words) <= MAX_VECTOR_LOOP_OPS
            and not any(e.opcode in ("select_lazy", "rem") or branches(e) for e in self.words)
        )
