"""Clips of a word that hold no word, listed by their energy alone, so that no model has a say in what it is judged on.

A clip holds no word where its loudest tenth of a second is below QUIET, less than any speech into a microphone, or less
than STEADY above the clip's usual level: a word of some tenths of a second stands out of a second, a hum or noise does
not. The rule misses clips with a click, a breath or another word in them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE
from kws_edge.audio.pcm import as_float
from kws_export.data.splits import ArrayDataset

QUIET = -55.0
"""dB of full scale."""
STEADY = 5.0
"""dB, of the loudest tenth of a second over the median hundredth."""

_HUNDREDTH = SAMPLE_RATE // 100
_SILENT = 1e-10  # -100 dB, so that digital silence has a level


@dataclass(frozen=True, slots=True)
class Energy:
    """Of a clip, in dB: its loudest tenth of a second, over full scale and over the clip's median hundredth."""

    loudest: float
    contrast: float

    @property
    def holds_no_word(self) -> bool:
        """Whether the rule lists the clip."""
        return self.loudest < QUIET or self.contrast < STEADY


def energy(samples: F32) -> Energy:
    """Measure a clip, float32 [n], full scale ±1, without its constant part; n at least 1600."""
    whole = samples[: len(samples) // _HUNDREDTH * _HUNDREDTH]
    power = np.square(whole - whole.mean()).reshape(-1, _HUNDREDTH).mean(axis=1) + _SILENT
    loudest = np.convolve(power, np.full(10, 0.1), "valid").max()
    return Energy(10 * np.log10(loudest), 10 * np.log10(loudest / np.median(power)))


def energies(data: ArrayDataset) -> Iterator[Energy]:
    """Of every clip of a split, in its order."""
    for samples, length in zip(data.samples, data.lengths, strict=True):
        yield energy(as_float(samples[:length]))
