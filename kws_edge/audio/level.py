"""Measure the level of sound: peak, RMS, offset and clipping."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import Bools
from kws_edge.errors import AudioError

SAMPLE_RATE = 16_000
SILENCE_PEAK = 10 ** (-70 / 20)
"""A peak below this (-70 dBFS, ten steps of a 16-bit sample), mean removed, is silence."""
CLIP_LEVEL, CLIP_RUN = 0.98, 3
"""A sample is clipped where it is one of at least so many in a row at or beyond this level.

Not 1.0, since resampling makes the flat top of a clipped wave ripple by some percent."""
CLIP_FRACTION = 0.01
"""More clipped samples than this spoil a clip. Speech driven 12 dB into clipping has 7 % of them; of the public Speech
Commands recordings, many of which touch full scale, fewer than one in a hundred is over it."""


@dataclass(frozen=True, slots=True)
class Level:
    """How loud a clip or block is, relative to a full scale of 1.0.

    Attributes
    ----------
    peak : largest deviation from the mean.
    rms : root mean square of the deviation from the mean.
    dc : the mean.
    clipped : fraction of samples, 0 to 1, in runs of `CLIP_RUN` or more at or beyond `CLIP_LEVEL`.
    """

    peak: float
    rms: float
    dc: float
    clipped: float

    @property
    def is_silent(self) -> bool:
        """Nothing but a constant, to within `SILENCE_PEAK`."""
        return self.peak < SILENCE_PEAK

    @property
    def is_clipped(self) -> bool:
        """Clipped badly enough to be a reason for a wrong answer: over `CLIP_FRACTION`."""
        return self.clipped > CLIP_FRACTION


def measure(samples: npt.ArrayLike) -> Level:
    """Measure the level of samples [n], floating point, full scale ±1.

    Raises
    ------
    AudioError : no samples, more than one dimension, integers, or a sample that is NaN or infinite.
    """
    x = np.asarray(samples)
    if x.ndim != 1 or not x.size or x.dtype.kind != "f":
        raise AudioError(f"samples of shape {x.shape}, {x.dtype}; expected floating point [n], n at least 1")
    with np.errstate(invalid="ignore"):
        dc = float(np.mean(x, dtype=np.float64))
    if not np.isfinite(dc):
        raise AudioError("samples that are NaN or infinite; expected finite numbers, full scale ±1")
    ac = x.astype(np.float64) - dc
    return Level(
        peak=float(np.abs(ac).max()),
        rms=float(np.sqrt(np.mean(np.square(ac)))),
        dc=dc,
        clipped=_fraction_in_runs(np.abs(x) >= CLIP_LEVEL, CLIP_RUN),
    )


def _fraction_in_runs(mask: Bools, run: int) -> float:
    """The fraction of a mask [n] that is in runs of at least so many True."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    lengths = edges[1::2] - edges[::2]
    return float(lengths[lengths >= run].sum() / len(mask))
