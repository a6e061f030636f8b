"""Estimate what the counted work takes on boards, from their published figures.

A hop takes as long as its arithmetic at a share of the core's peak, and the cycles of everything that is not
arithmetic (calling operators, Python), which a smaller core needs more of:

    t = (multiply_adds / (macs_per_cycle · SHARE) + slowness · (calls · CALL + HOP)) / clock

SHARE, CALL and HOP are of this package on a core of EPYC's 3rd generation (docs/measurements/speed.md), on which
slowness is 1. Expect the truth between half and twice the estimate.
"""

from dataclasses import dataclass
from typing import Final

from kws_edge.bench.count import Work

SHARE: Final = 0.5
"""Of the peak, what convolutions of this size reach: 85 % those of one point, 11 to 46 % the depthwise."""

CALL: Final = 3_000
"""Cycles that one operator call takes besides its arithmetic."""

HOP: Final = 350_000
"""Cycles of Python around a decision: cutting frames, the front end's calls, evidence, the decision."""


@dataclass(frozen=True, slots=True)
class Board:
    """A board, by what is published about it.

    Attributes
    ----------
    clock : in Hz, of one core.
    macs_per_cycle : float32 multiply-adds of one core: 4 for each 128-bit unit that multiplies and adds.
    slowness : cycles that it needs for the same program, as a multiple of those of the core that was measured.
    memory_mb : of the smallest that is sold.
    """

    name: str
    core: str
    clock: float
    macs_per_cycle: int
    slowness: float
    memory_mb: int

    @property
    def peak(self) -> float:
        """Multiply-adds a second of one core."""
        return self.clock * self.macs_per_cycle

    def least_seconds(self, work: Work) -> float:
        """No program can be faster than this: the arithmetic at the peak."""
        return work.total / self.peak

    def seconds(self, work: Work) -> float:
        """The estimate, on one core."""
        arithmetic = work.total / (self.macs_per_cycle * SHARE)
        return (arithmetic + self.slowness * (work.calls * CALL + HOP)) / self.clock


BOARDS: Final = (
    Board("Raspberry Pi Zero 2 W", "Cortex-A53", 1.0e9, 4, 3.5, 512),
    Board("Raspberry Pi 3 B", "Cortex-A53", 1.2e9, 4, 3.5, 1024),
    Board("Raspberry Pi 4 B", "Cortex-A72", 1.5e9, 4, 2.0, 1024),
    Board("Raspberry Pi 5", "Cortex-A76", 2.4e9, 8, 1.4, 2048),
)
"""Clocks and memory: the boards' own. Multiply-adds a cycle: our reading of the
cores' designs (one 128-bit fused multiply-add a cycle, two on the A76). Slowness: how much slower a core is at the
same clock, the least certain of these. None of it is checked against a board."""
