"""A stream, hop by hop: samples of any chunking in, one row of numbers per hop out, ready for the decision.

Windows end one hop apart, the first of them with the first hop. Nothing depends on how the samples were chunked,
because work happens only where a hop is complete, on buffers whose place and size never change. While nothing is heard
above the noise, neither features nor network run.

Before the start
----------------
What came before a stream, or before the end of a gap, is taken to be quiet: faint noise at the level of the noise
floor. So the first windows are whole, a word with which a stream begins is seen as one after a pause, and no window
joins what lies on the two sides of a loss.

The gate
--------
The level of a hop is the RMS of its last `LEVEL_SPAN` (or of the whole hop where that is longer), mean removed, in
dBFS. The noise floor is the lowest level lately: it falls at once and rises by `FLOOR_RISE`. A window is heard where
some level in it is `GATE` above the floor. A room at rest, or steady noise, is not; words that reach a few decibels out
of the noise are.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kws_edge.arrays import F32, F64
from kws_edge.audio.level import CLIP_LEVEL, SAMPLE_RATE, measure
from kws_edge.errors import SettingError
from kws_edge.model.clips import window_frames
from kws_edge.model.features import FrameMFCC, FrontEnd
from kws_edge.model.metadata import Metadata
from kws_edge.text import shortened

DEFAULT_HOP: Final = 0.1
MIN_HOP, MAX_HOP = 0.01, 1.0  # seconds

LEVEL_SPAN: Final = 0.1  # s
LOWEST: Final = -100.0
"""dBFS; what digital silence counts as."""
FLOOR_START: Final = -60.0
"""dBFS, the noise of a quiet room: a word with which a stream starts is then above it."""
FLOOR_MIN: Final = -65.0
"""dBFS; below it lies what no microphone gives, so the noise after digital silence must not pass for speech."""
FLOOR_RISE: Final = 3.0
"""dB per second. Pauses between syllables hold the floor down; a fan that starts is the floor some seconds later."""
GATE: Final = 3.0
"""dB above the floor: steady noise varies by less, over spans of 0.1 s."""


class Hop(NamedTuple):
    """One hop before the network.

    Attributes
    ----------
    time : stream time of its last sample, s.
    level, noise : of the sound and of the noise floor, dBFS.
    clipped : whether its samples are clipped badly enough to spoil a word.
    frames : float32 [window_frames, n_mfcc] of the window that ends here, valid until the next hop; None where nothing
        is heard.
    new : how many of them, at their end, came since the last hop with frames.
    """

    time: float
    level: float
    noise: float
    clipped: bool
    frames: F32 | None
    new: int


class HopStream:
    """Cut a stream into hops, with the features of their windows where there is something to hear.

    Attributes
    ----------
    position : samples, of the stream's time.
    warming_up : whether no hop was complete since the start or the last gap.
    """

    def __init__(self, metadata: Metadata, hop: float = DEFAULT_HOP) -> None:
        """Start a stream at time 0, for a model with these metadata.

        Raises
        ------
        SettingError : a hop that is no multiple of the front end's (10 ms), or outside `MIN_HOP` to `MAX_HOP`.
        """
        self.front_end = front_end = metadata.front_end
        self._step = check_hop(hop, front_end)  # samples
        self._n = window_frames(metadata)
        self._window = (self._n - 1) * front_end.hop + front_end.window
        self._span = max(self._step, round(LEVEL_SPAN * SAMPLE_RATE))
        self._keep = max(self._window, self._span)
        self._samples = _Tail(self._keep, self._step, np.float64)
        self._cut = np.lib.stride_tricks.sliding_window_view(self._samples.rows, front_end.window)
        self._frames = _Tail(self._n, self.frames_per_hop, np.float32, front_end.n_mfcc)
        self._mfcc = FrameMFCC(front_end)
        self.reset()

    def reset(self) -> None:
        """Start again, at time 0."""
        self.position = 0
        self._floor = FLOOR_START
        self._restart()

    def gap(self, samples: int) -> None:
        """Let time pass without samples: what comes after it is heard as after a pause.

        Raises SettingError for less than 0.
        """
        check_gap(samples)
        self.position += int(samples)
        self._restart()

    def _restart(self) -> None:
        self._since = 0  # samples since the start or the last gap
        # The first hop is as short as it takes for windows, and their frames, to begin at multiples of a hop.
        self._filled = self._step - ((self._window - 1) % self._step + 1)
        self.warming_up = True  # until the first hop is complete
        self._missing = self._n  # frames at the end of the window that are not computed yet
        self._last_loud = -math.inf  # where a hop last was above the noise, in samples since the restart

    @property
    def frames_per_hop(self) -> int:
        """How many frames each hop brings."""
        return self._step // self.front_end.hop

    def push(self, samples: F32) -> Iterator[Hop]:
        """Take samples, float32 [n], and give the hops that they complete. The generator must be run to its end."""
        done = 0
        while done < len(samples):
            part = samples[done : done + self._step - self._filled]
            self._samples.append(len(part))[:] = part
            self._filled += len(part)
            self.position += len(part)
            self._since += len(part)
            done += len(part)
            if self._filled == self._step:
                yield self._complete()

    def _complete(self) -> Hop:
        self._filled = 0
        recent = self._samples.last(min(self._span, self._since))
        power = float(recent @ recent) / len(recent) - (float(np.add.reduce(recent)) / len(recent)) ** 2
        level = max(LOWEST, 10 * math.log10(max(power, 0) + 1e-20))
        rise = FLOOR_RISE * self._step / SAMPLE_RATE
        self._floor = max(FLOOR_MIN, min(level, self._floor + rise))
        if level > self._floor + GATE:
            self._last_loud = self._since
        hop = self._samples.last(min(self._step, self._since))
        clipped = bool(np.maximum.reduce(np.abs(hop)) >= CLIP_LEVEL) and measure(hop).is_clipped
        frames, new = None, 0
        self._frames.append(self.frames_per_hop)
        self._missing = min(self._n, self._missing + self.frames_per_hop)
        if self.warming_up:
            past = self._samples.last(self._keep)[: self._keep - self._since]
            past[:] = quiet(len(past)) * 10 ** (self._floor / 20)
            self.warming_up = False
        if self._since - self._last_loud < self._window:
            fe, new, self._missing = self.front_end, self._missing, 0
            end = self._samples.end - fe.window + 1
            self._frames.last(new)[:] = self._mfcc(self._cut[end - (new - 1) * fe.hop - 1 : end : fe.hop])
            frames = self._frames.last(self._n)
        return Hop(self.position / SAMPLE_RATE, level, self._floor, clipped, frames, new)


class _Tail:
    """The last rows of a sequence that grows, as one stretch of memory; it is moved back only now and then.

    Attributes
    ----------
    rows : [many, width] or [many], where the sequence lies; it stays in place.
    end : where in `rows` the sequence ends.
    """

    def __init__(self, keep: int, most: int, dtype: type, *width: int) -> None:
        """Keep so many rows, at first zeros; `most` is how many are appended at a time."""
        self.rows: npt.NDArray[Any] = np.zeros((2 * (keep + most), *width), dtype)
        self._keep = self.end = keep

    def append(self, n: int) -> npt.NDArray[Any]:
        """Make room for n more rows and give the room, to be filled."""
        if self.end + n > len(self.rows):
            self.rows[: self._keep] = self.last(self._keep)
            self.end = self._keep
        self.end += n
        return self.last(n)

    def last(self, n: int) -> npt.NDArray[Any]:
        """The last n rows, at most as many as are kept."""
        return self.rows[self.end - n : self.end]


def check_gap(samples: int) -> None:
    """Raise SettingError unless it is a number of samples that can have been lost."""
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or not 0 <= samples < 2**53:
        raise SettingError(f"a gap of {shortened(repr(samples))} samples; expected a whole number, 0 or more")


def check_hop(hop: float, front_end: FrontEnd) -> int:
    """A hop in samples. Raises SettingError where it is no multiple of the front end's, or outside its range."""
    unit = front_end.hop / SAMPLE_RATE
    is_number = isinstance(hop, int | float) and not isinstance(hop, bool)
    frames = round(hop / unit) if is_number and MIN_HOP <= hop <= MAX_HOP else 0
    if not frames or abs(frames * unit - hop) > 1e-9:
        raise SettingError(f"hop={hop!r} s; expected a multiple of {unit:g} s from {MIN_HOP:g} to {MAX_HOP:g}")
    return frames * front_end.hop


@lru_cache(maxsize=4)
def quiet(n: int) -> F64:
    """White noise with an RMS of 1, float64 [n], always the same, to the last bit.

    Source: the finaliser of MurmurHash3 (A. Appleby, public domain), which makes uniform bits of 1, 2, ...
    """
    k = np.arange(1, n + 1, dtype=np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        k = (k ^ (k >> np.uint32(shift))) * np.uint32(factor)
    noise = (k / 2**31 - 1) * math.sqrt(3)
    noise.flags.writeable = False
    return noise


def window_seconds(metadata: Metadata) -> float:
    """From the first to the last sample that a window's frames see: 0.995 or 1.295 s."""
    fe = metadata.front_end
    return ((window_frames(metadata) - 1) * fe.hop + fe.window) / SAMPLE_RATE
