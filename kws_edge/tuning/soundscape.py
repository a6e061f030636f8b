"""Streams whose words are known: clips set into silence or into a background, at times that a seed decides.

Levels are RMS over full scale, as `level.measure` gives them. Without a background, words keep the level at which they
were recorded, over the faint noise of a quiet room. With one, every word is brought to `WORD_LEVEL` and every
recording of the background to so many decibels below it: the ratio is then that of the word while it is spoken, to
the whole of the recording that it falls in.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kws_edge.arrays import F32
from kws_edge.audio.level import SAMPLE_RATE, SILENCE_PEAK
from kws_edge.errors import AudioError, SettingError
from kws_edge.files import read_text
from kws_edge.text import is_one_line, shown

WORD_LEVEL: Final = 10 ** (-26 / 20)
"""-26 dBFS, usual for speech: its peaks stay below full scale."""
ROOM_LEVEL: Final = 10 ** (-66 / 20)
"""White noise, where there is no background: no microphone gives digital silence between words."""
FADE: Final = 0.01
"""Seconds, at both ends of every recording: a step between two of them would be a click."""

LONGEST: Final = 1e9
"""Seconds, 30 years: no recording is longer."""

_FRAME = 160  # samples, 10 ms, over which `speech_bounds` measures amplitudes


@dataclass(frozen=True, slots=True)
class Word:
    """A word that was said, and where: seconds of the stream."""

    label: str
    start: float
    end: float

    def __post_init__(self) -> None:
        """Refuse, with a SettingError, an end before the start, and times that are no times."""
        if not 0 <= self.start <= self.end <= LONGEST:
            raise SettingError(
                f"word {shown(self.label)} from {self.start} to {self.end} s; expected 0 <= start <= end <= {LONGEST:g}"
            )


def compose(
    clips: Iterable[tuple[str, F32]],
    *,
    seed: int,
    gap: tuple[float, float] = (1.0, 3.0),
    background: Sequence[F32] | None = None,
    snr: float = 10.0,
) -> Iterator[tuple[F32, Word | None]]:
    """Say the words of clips one after the other, with pauses before, between and after them.

    Parameters
    ----------
    clips : (label, float32 [n]) each, mono at 16 kHz, one word in each.
    seed : of the pauses, the noise and the order of the background. The same seed gives the same stream.
    gap : the shortest and longest pause, s; between them every length is as likely.
    background : recordings, float32 [m], that follow each other in changing order for as long as the words last; they
        may be decoded when they are asked for. None for the room noise.
    snr : how far the words are above the background, dB.

    Yields
    ------
    Stretches of the stream: float32 [k], a pause and a clip, and where in the stream its word is. The last one is a
    pause alone, and its word is None.

    Raises
    ------
    SettingError : the gap is not 0 <= shortest <= longest, or the background has no recordings.
    """
    if not 0 <= gap[0] <= gap[1] < float("inf"):
        raise SettingError(f"gap={gap}; expected 0 <= shortest <= longest, in seconds")
    if background is not None and not len(background):
        raise SettingError("a background of no recordings; expected at least one, or None for none")
    return _compose(clips, seed, gap, background, WORD_LEVEL / 10 ** (snr / 20))


def _compose(
    clips: Iterable[tuple[str, F32]],
    seed: int,
    gap: tuple[float, float],
    background: Sequence[F32] | None,
    level: float,
) -> Iterator[tuple[F32, Word | None]]:
    pauses, noise = (np.random.default_rng([seed, stream]) for stream in range(2))
    fill = _Fill(_room(noise) if background is None else _endless(background, level, noise))
    position = 0  # samples, where the last clip ended

    def pause() -> int:
        return round(pauses.uniform(*gap) * SAMPLE_RATE)

    for label, clip in clips:
        first, last = speech_bounds(clip)
        onset = position + pause()
        samples = fill.take(onset + len(clip) - position)
        gain = 1.0 if background is None else _gain(clip[first:last], WORD_LEVEL)
        samples[onset - position :] += _faded(clip) * np.float32(gain)
        position += len(samples)
        yield samples, Word(label, (onset + first) / SAMPLE_RATE, (onset + last) / SAMPLE_RATE)
    yield fill.take(pause()), None


def speech_bounds(samples: F32) -> tuple[int, int]:
    """Where the word is in a clip: between which samples the sum of its amplitudes rises from 2 to 98 %.

    An amplitude is the RMS of a frame of 10 ms above the clip's noise, which is twice that of the quietest tenth of the
    frames. (By energy instead, the vowel would be all of the word: in "stop" half of it.) [n] → (start, end),
    0 <= start < end <= n; the whole clip where it is silent or shorter than a frame.
    """
    frames = samples[: len(samples) // _FRAME * _FRAME].reshape(-1, _FRAME)
    if not len(frames):
        return 0, len(samples)
    amplitude = frames.std(axis=1, dtype=np.float64)
    risen = np.cumsum(np.maximum(amplitude - 2 * np.quantile(amplitude, 0.1), 0))
    if risen[-1] == 0:
        return 0, len(samples)
    first, last = np.searchsorted(risen, risen[-1] * np.array([0.02, 0.98]))
    return int(first) * _FRAME, (int(last) + 1) * _FRAME


def faded(blocks: Iterable[F32]) -> Iterator[F32]:
    """A recording that comes in blocks, float32 [n] each, faded in and out; the blocks are some other ones."""
    n, held, begun = round(FADE * SAMPLE_RATE), np.empty(0, np.float32), False
    for block in blocks:
        if min(len(held), len(block)) < 2 * n:  # too short to be the first, or the last one
            held = np.concatenate([held, block])
            continue
        yield held if begun else _faded(held, end=False)
        held, begun = block, True
    if len(held):
        yield _faded(held, start=not begun)


def joined(recordings: Iterable[F32]) -> Iterator[F32]:
    """Recordings one after the other, at their own levels, each faded in and out."""
    return map(_faded, recordings)


def read_labels(path: Path) -> list[Word]:
    """Read where the words of a recording are: start, end and word on each line, in seconds, separated by tabs.

    That is the format in which Audacity exports a label track. Empty lines, and those that begin with # (a comment) or
    a backslash (Audacity's frequency range), say nothing.

    Raises
    ------
    AudioError : the file cannot be read, a line is something else, or there is no word.
    """
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise AudioError(f"{path}: {error}; expected lines of start, end and word, separated by tabs") from None
    words = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith(("#", "\\")):
            continue
        try:
            start, end, label = (part.strip() for part in line.split("\t"))
            if not is_one_line(label):
                raise SettingError("a word that cannot be shown on a line")
            words.append(Word(label, float(start), float(end)))
        except ValueError as error:  # a SettingError is one
            reason = f" ({error})" if isinstance(error, SettingError) else ""
            raise AudioError(
                f"{path}, line {number}: {shown(line)}{reason}; expected start, end and word, separated by tabs"
            ) from None
    if not words:
        raise AudioError(f"{path}: no words; expected lines of start, end and word, separated by tabs")
    return sorted(words, key=lambda word: word.start)


def words_beside(recording: Path) -> list[Word]:
    """The words in a recording by the label track beside it, NAME.labels.txt; none where there is no such file.

    Raises
    ------
    AudioError : as `read_labels`.
    """
    track = recording.with_suffix(".labels.txt")
    return read_labels(track) if track.is_file() else []


class _Fill:
    """Takes any number of samples from blocks of any length."""

    def __init__(self, blocks: Iterator[F32]) -> None:
        self._blocks, self._rest = blocks, np.empty(0, np.float32)

    def take(self, n: int) -> F32:
        parts = [self._rest]
        ready = len(self._rest)
        while ready < n:
            parts.append(next(self._blocks))
            ready += len(parts[-1])
        samples = np.concatenate(parts)
        self._rest = samples[n:].copy()  # a view would keep all the blocks in memory
        return samples[:n]


def _endless(recordings: Sequence[F32], level: float, rng: np.random.Generator) -> Iterator[F32]:
    while True:
        for i in rng.permutation(len(recordings)):
            recording = recordings[i]
            yield _faded(recording) * np.float32(_gain(recording, level))


def _room(rng: np.random.Generator) -> Iterator[F32]:
    while True:
        yield np.float32(ROOM_LEVEL) * rng.standard_normal(SAMPLE_RATE, np.float32)


def _faded(samples: F32, *, start: bool = True, end: bool = True) -> F32:
    n = min(round(FADE * SAMPLE_RATE), len(samples) // 2)
    faded, ramp = samples.copy(), np.linspace(0, 1, n, endpoint=False, dtype=np.float32)
    if start:
        faded[:n] *= ramp
    if end:
        faded[len(faded) - n :] *= ramp[::-1]
    return faded


def _gain(samples: F32, level: float) -> float:
    """What brings samples to an RMS, of the deviation from the mean; silence stays as it is."""
    rms = float(np.std(samples, dtype=np.float64))
    return level / rms if rms > SILENCE_PEAK else 1.0
