"""Resample to 16 kHz, piece by piece, with soxr.

n samples at rate r become n * 16000 / r samples, rounded to the nearest, with the first at time 0. The filter of soxr's
HQ setting passes up to 0.9 of the lower Nyquist frequency and removes what would alias.
"""

from typing import Any, Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE

MIN_RATE: Final = 4_000
MAX_RATE: Final = 192_000
"""Hz, of a source."""


class Resampler:
    """A stream of mono samples at one rate; those at 16 kHz pass through."""

    def __init__(self, rate: int) -> None:
        """Start a stream at so many Hz."""
        self.rate = rate
        self.reset()

    def reset(self) -> None:
        """Forget what came before, as after a loss."""
        self._stream: Any = None
        if self.rate != SAMPLE_RATE:
            import soxr  # not needed by a source at 16 kHz

            self._stream = soxr.ResampleStream(self.rate, SAMPLE_RATE, 1)

    def push(self, samples: F32) -> F32:
        """Take float32 [n], give what is ready, float32 [m]."""
        return self._stream.resample_chunk(samples) if self._stream else samples

    def finish(self) -> F32:
        """What the filter still holds at the end of the stream, float32 [m]."""
        empty = np.empty(0, np.float32)
        return self._stream.resample_chunk(empty, last=True) if self._stream else empty
