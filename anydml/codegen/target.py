"""What code generation must know of a processor."""

from __future__ import annotations

from anydml.dataclass import dataclass, replace


@dataclass(frozen=True)
class Target:
    """What code generation must know of the machine."""

    vector_bytes: int
    converts_half: bool  # float16 <-> float32 in hardware; without it LLVM would call a library
    streams: bool  # non-temporal vector stores
    scales: bool  # multiplies by powers of two, 64 bytes at a time
    masks: bool  # vector loads of some lanes only, of 4 and 8 bytes
    saturates: bool  # floats become integers with saturation in hardware
    scratch: int  # bytes that a function may take of the stack
    halves: bool = False  # vectors of 64 bytes are two of 32 to it, which memory takes sooner
    fours: bool = False  # one instruction for sums of four products of integers of 8 bits
    ends: bool = False  # vector loads and stores of the first lanes only, of elements of any size


SCRATCH = 1 << 17

_V4 = Target(
    64, converts_half=True, streams=True, scales=True, masks=True, saturates=False, scratch=SCRATCH, ends=True
)
PROCESSORS = {
    "x86-64": Target(
        16, converts_half=False, streams=True, scales=False, masks=False, saturates=False, scratch=SCRATCH
    ),
    "x86-64-v2": Target(
        16, converts_half=False, streams=True, scales=False, masks=False, saturates=False, scratch=SCRATCH
    ),
    "x86-64-v3": Target(
        32, converts_half=True, streams=True, scales=False, masks=True, saturates=False, scratch=SCRATCH
    ),
    "x86-64-v4": _V4,
    "znver4": replace(_V4, halves=True, fours=True),
    "aarch64": Target(
        16, converts_half=True, streams=False, scales=False, masks=False, saturates=True, scratch=SCRATCH
    ),
}
"""What code can be made for beside the processor at hand, by LLVM's names."""
