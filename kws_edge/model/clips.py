"""Cut audio of any length into what the network sees: one window for a clip, many for a recording.

A clip that fits the network's input is one window, however short. A longer recording becomes windows of
`WINDOW_SECONDS` or of a whole input (`window_frames`), `STEP_SECONDS` apart. Each frame depends on its own samples
alone, so the frames of a recording are computed once and shared by the windows that they fall in.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE, Level, measure
from kws_edge.model.features import FrontEnd, MFCCStream
from kws_edge.model.metadata import Metadata

WINDOW_SECONDS: Final = 1.0
"""The length of clip that the networks are trained on."""

STEP_SECONDS: Final = 0.1
"""A word of half a second is whole in at least four windows."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A stretch of audio.

    Attributes
    ----------
    start, end : seconds from the start of the audio.
    frames : float32 [m, n_mfcc], at most `FrontEnd.frames` of them.
    level : of the samples behind the frames; None where they are no usable audio, and there are no frames.
    """

    start: float
    end: float
    frames: F32
    level: Level | None

    @property
    def is_clipped(self) -> bool:
        """Clipped badly enough to be a reason for a wrong answer."""
        return self.level is not None and self.level.is_clipped


def window_frames(metadata: Metadata) -> int:
    """How many frames of sound a window of a recording has: those of a clip, or all that the network takes in."""
    fe = metadata.front_end
    return fe.frames if metadata.padding == "valid" else fe.frame_count(round(WINDOW_SECONDS * SAMPLE_RATE))


def cut(blocks: Iterable[F32], front_end: FrontEnd, length: int) -> Iterator[Window]:
    """Cut a recording that comes in blocks; no more than a window and a block of it is held.

    Parameters
    ----------
    blocks : float32 [n] each, mono at 16 kHz, in order, of any length.
    length : frames of a window of what does not fit the network's input, at most `FrontEnd.frames`.

    Yields
    ------
    The windows, starts rising. The last one ends with the last frame, also where that is off the grid of steps.
    Nothing where there is less than one frame.
    """
    fe = front_end
    step = max(1, round(STEP_SECONDS * SAMPLE_RATE / fe.hop))
    stream = MFCCStream(fe)
    samples, frames = np.empty(0, np.float32), np.empty((0, fe.n_mfcc), np.float32)
    first = 0  # the frame, counted from the start of the audio, with which `frames` and `samples` start
    ahead = 0  # the frame with which the next window starts
    total = 0

    def window(start: int) -> Window:
        begin, end = start * fe.hop, (start + length - 1) * fe.hop + fe.window
        level = measure(samples[begin - first * fe.hop : end - first * fe.hop])
        return Window(begin / SAMPLE_RATE, end / SAMPLE_RATE, frames[start - first : start - first + length], level)

    for block in blocks:
        samples, frames = np.concatenate([samples, block]), np.concatenate([frames, stream.push(block)])
        total += len(block)
        if total <= fe.max_samples:
            continue
        while ahead + length <= first + len(frames):
            yield window(ahead)
            ahead += step
        drop = ahead - step + 1 - first  # the last window may start as early as one frame after the one just given
        samples, frames, first = samples[drop * fe.hop :], frames[drop:], first + drop
    if total > fe.max_samples and first + len(frames) > ahead - step + length:
        yield window(first + len(frames) - length)
    elif total <= fe.max_samples and len(frames):
        yield whole(samples, frames)


def whole(samples: F32, frames: F32) -> Window:
    """A clip as one window: samples float32 [n], n at least 1, and their frames."""
    return Window(0.0, len(samples) / SAMPLE_RATE, frames, measure(samples))
