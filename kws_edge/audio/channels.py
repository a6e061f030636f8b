"""Mix several channels down to one.

Channels are averaged, leaving out those that are silent by the rule of `Level.is_silent`: a word that is in one of two
channels keeps its level. Where channels are of opposite polarity, as those of a balanced line or of a microphone with
crossed wires, an average destroys what they hold: a mix that is far quieter than its channels is not used, but the
strongest of them, and that is said. A noisy second channel is averaged in. Whoever knows better names a channel, or
"mix" for the average whatever comes of it.
"""

import math
from typing import Final, Literal, TypeAlias

import numpy as np

from kws_edge.arrays import F32, Bools
from kws_edge.audio.level import SILENCE_PEAK
from kws_edge.errors import SettingError

Channel: TypeAlias = int | Literal["mix"]
"""A channel by its number, the first being 1, or the average of those that sound."""

CANCELLED: Final = 0.5
"""Channels cancel each other where their mix has less than this part of the power that the mix of as many unrelated
ones would have: two channels of equal power at a correlation below -0.5. The two sides of a room, or two microphones of
an array, are at -0.2 or above over a word."""
_RECOVERED: Final = 0.9  # and no longer where it has this, so that a stream does not flutter between the two


def check_channel(channel: Channel | None) -> None:
    """Raise SettingError unless it is None, a whole number of at least 1, or "mix"."""
    if channel is None or (isinstance(channel, str) and channel == "mix"):
        return
    if isinstance(channel, bool) or not isinstance(channel, int) or channel < 1:
        raise SettingError(f"channel={channel!r}; expected a number from 1, or mix")


class DownMix:
    """What is known of the channels so far, and which of them to average.

    Attributes
    ----------
    cancelled : how many dB the mix is below the strongest channel where they cancel each other, else 0.
    """

    def __init__(self, channels: int, channel: Channel | None = None, memory: float = math.inf) -> None:
        """For so many channels, of which `channel` is wanted; of what came `memory` frames ago, 1/e still counts."""
        self.channels, self.channel, self._memory = channels, channel, memory
        self._range = np.zeros(channels)  # the widest of a piece, fading: a slow drift is no sound
        self._products, self._sums, self._frames = np.zeros((channels, channels)), np.zeros(channels), 0.0
        self.cancelled = 0.0

    def add(self, frames: F32) -> None:
        """Take the next frames, float32 [n, channels], n at least 1, finite."""
        if self.channels == 1 or isinstance(self.channel, int):
            return
        kept, x = math.exp(-len(frames) / self._memory), frames.astype(np.float64)
        self._range = np.maximum(kept * self._range, frames.max(axis=0) - frames.min(axis=0))
        self._products = kept * self._products + x.T @ x
        self._sums = kept * self._sums + x.sum(axis=0)
        self._frames = kept * self._frames + len(frames)

    def mix(self, frames: F32) -> F32:
        """Frames float32 [n, channels] → float32 [n], by what was heard up to now."""
        return frames[:, self._chosen()].mean(axis=1)

    def _chosen(self) -> list[int]:
        if self.channels == 1:
            return [0]
        if isinstance(self.channel, int):
            return [self.channel - 1]
        sounding = self._sounding()
        keep = np.flatnonzero(sounding if sounding.any() else ~sounding)
        self.cancelled = 0.0 if self.channel == "mix" else self._cancellation(keep)
        if self.cancelled:
            keep = keep[[int(np.argmax(self._covariance()[keep, keep]))]]
        return [int(i) for i in keep]

    def _sounding(self) -> Bools:
        return np.asarray(self._range / 2 >= SILENCE_PEAK)

    def _covariance(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        mean = self._sums / max(self._frames, 1.0)
        return self._products - np.outer(mean, self._sums)

    def _cancellation(self, keep: np.ndarray[tuple[int], np.dtype[np.intp]]) -> float:
        covariance = self._covariance()[np.ix_(keep, keep)]
        powers = np.diag(covariance)
        if len(keep) < 2 or not powers.sum() > 0:
            return 0.0
        mix = float(covariance.sum())
        if mix >= (_RECOVERED if self.cancelled else CANCELLED) * powers.sum():
            return 0.0
        ratio = mix / len(keep) ** 2 / powers.max()
        return max(0.1, -10 * math.log10(max(ratio, 1e-12)))

    def warning(self) -> str | None:
        """What is to be said of channels that cancel each other, in a line."""
        if not self.cancelled:
            return None
        return (
            f"the channels cancel each other: their mix is {self.cancelled:.0f} dB quieter than channel "
            f"{self._chosen()[0] + 1}, which is taken alone; --channel (channel=) names another, or mix"
        )
