"""Cut takes of a word out of a stream at its pauses, trim them, and refuse bad ones.

Speech is where frames of 10 ms are well above the quietest of the last seconds; a take is what lies between two pauses.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE, measure

ABOVE_NOISE: Final = 10.0
"""dB that speech is above the noise."""
PAUSE: Final = 0.45
"""Seconds without speech that end a take; between the words of one, pauses are shorter."""
MARGIN: Final = 0.15
"""Seconds kept before and after the speech: soft sounds begin and end a word."""
SHORTEST: Final = 0.2
LONGEST: Final = 2.5
"""Seconds of speech in a take."""
CLIPPED: Final = 0.001
"""The largest part of a take that may be clipped."""
QUIET: Final = -45.0
"""dBFS, at its loudest, from which on a take is loud enough."""
LOST_IN: Final = "samples were lost in it, as on a busy system: say it again"
LOST_BEFORE: Final = "samples were lost just before it, as on a busy system: say it again"
"""Why a take is refused that is not whole."""

_FRAME: Final = SAMPLE_RATE // 100
_MEMORY: Final = 1_000  # frames over which the noise is looked for
_FLOOR: Final = -75.0  # dBFS: the noise counts as no quieter, since digital silence is no measure of anything
_ONSET: Final = 3  # of 5 frames above the noise, or a click would be a take


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """What was said between two pauses.

    Attributes
    ----------
    samples : float32 [n], mono at 16 kHz, with `MARGIN` around the speech as far as there is sound.
    start : seconds from the start of the stream.
    refused : why it is not good enough, in words; None where it is.
    """

    samples: F32
    start: float
    refused: str | None


class TakeCutter:
    """Finds the takes in a stream.

    Attributes
    ----------
    level, noise : of the last frame, and the noise, dBFS.
    speaking : whether a take has begun and not ended.
    """

    def __init__(self) -> None:
        """Start a stream."""
        self.level = self.noise = _FLOOR
        self.speaking = False
        self._samples = np.empty(0, np.float32)
        self._origin = 0  # of the frames: the sample of the stream at the start, or after the last loss
        self._first = self._seen = 0  # the frame with which the samples start, and how many frames there were
        self._levels: deque[float] = deque(maxlen=_MEMORY)
        self._loud: deque[bool] = deque(maxlen=5)
        self._begin = self._last = 0  # of the take, in frames: its first, and the last one with speech
        self._until_pause = False  # what goes on after a take that was too long is none

    def push(self, samples: F32) -> list[Take]:
        """Take the next samples, float32 [n]; the takes that end in them."""
        self._samples = np.concatenate([self._samples, samples])
        takes = []
        while (self._seen + 1 - self._first) * _FRAME <= len(self._samples):
            at = (self._seen - self._first) * _FRAME
            if (take := self._hear(self._samples[at : at + _FRAME])) is not None:
                takes.append(take)
        return takes

    def gap(self, samples: int) -> list[Take]:
        """Tell that so many samples were lost before the next push; the take that had begun, refused.

        Sound is not joined across a loss, and what is left of a word after it is refused too.
        """
        takes = [self._cut(LOST_IN)] if self.speaking else []
        self._origin += self._first * _FRAME + len(self._samples) + samples
        self._samples, self._first, self._seen = self._samples[:0], 0, 0
        self.speaking, self._until_pause, self._begin, self._last = False, False, 0, 0
        self._loud.clear()
        return takes

    def finish(self) -> list[Take]:
        """The take that the end of the stream ends, if one had begun."""
        if not self.speaking:
            return []
        self.speaking = False
        return [self._cut()]

    def _hear(self, frame: F32) -> Take | None:
        power = float(np.mean(np.square(frame - frame.mean(), dtype=np.float64)))
        self.level = max(_FLOOR, 10 * float(np.log10(max(power, 1e-12))))
        self._levels.append(self.level)
        self.noise = float(np.quantile(np.array(self._levels), 0.1))
        loud = self.level > max(self.noise + ABOVE_NOISE, _FLOOR + 2 * ABOVE_NOISE)
        self._loud.append(loud)
        self._seen += 1
        if not (self.speaking or self._until_pause) and sum(self._loud) >= _ONSET:
            self.speaking, self._begin = True, self._seen - len(self._loud)
        if loud:
            self._last = self._seen
        pause = self._seen - self._last >= PAUSE * 100
        if pause and self._until_pause:
            self._until_pause = False
            self._loud.clear()
        if self.speaking and (pause or self._seen - self._begin > (LONGEST + 2 * PAUSE) * 100):
            self.speaking, self._until_pause = False, not pause
            self._loud.clear()
            take = self._cut()
            self._forget(self._last)
            return take
        if not self.speaking:
            self._forget(self._seen - round((MARGIN + 0.1) * 100))
        return None

    def _cut(self, refused: str | None = None) -> Take:
        """The take that ends here; `refused` says why it is bad where that is known."""
        margin = round(MARGIN * 100)
        if refused is None and self._origin and self._begin < margin:
            refused = LOST_BEFORE
        start, end = max(self._first, self._begin - margin), min(self._seen, self._last + margin)
        samples = self._samples[(start - self._first) * _FRAME : (end - self._first) * _FRAME].copy()
        refused = refused or self._judge(samples, (self._last - self._begin) / 100)
        return Take(samples, self._origin / SAMPLE_RATE + start / 100, refused)

    def _judge(self, samples: F32, seconds: float) -> str | None:
        level = measure(samples)
        peak = 20 * float(np.log10(max(level.peak, 1e-6)))
        if seconds < SHORTEST:
            return f"{seconds:.2f} s of sound, too short for a word; expected {SHORTEST} s or more"
        if seconds > LONGEST:
            return f"{seconds:.1f} s without a pause; expected one word or phrase of at most {LONGEST} s"
        if level.clipped > CLIPPED:
            return f"clipped ({100 * level.clipped:.1f} % of it): speak softer, or lower the input's gain"
        if peak < QUIET:
            return f"too quiet ({peak:.0f} dBFS at most): come nearer, or raise the input's gain"
        return None

    def _forget(self, before: int) -> None:
        drop = max(0, min(before, self._seen) - self._first)
        self._samples, self._first = self._samples[drop * _FRAME :], self._first + drop
