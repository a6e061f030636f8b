"""Training-time augmentation, numpy only: on the samples of a clip, and on its MFCC.

The design's set is the shift, the white noise, SpecAugment and SpecCutout. Gain, DC offset and recorded background
noise are there because a microphone has them; each can be switched off in the recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from kws_edge.arrays import F32
from kws_edge.errors import SettingError
from kws_edge.tuning.soundscape import speech_bounds

_WHITE_NOISE = 960_000

WORD_MARGIN = 1_280
"""Samples, 80 ms: what `speech_bounds` may miss of a word's quiet beginning and end."""


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How much of what. Pairs are (low, high) of a uniform draw; dB are relative to full scale, SNR to the clip.

    Attributes
    ----------
    speed, speed_probability : a factor on the speed and pitch, for some clips and some windows without a word.
    shift_ms : a clip moves by up to this much either way, zeros come in.
    white_noise_db : RMS of the Gaussian noise that every clip gets.
    gain_db, gain_probability : a change of level, for some clips.
    dc, dc_probability : a constant offset of up to ±dc, for some clips.
    background_snr_db, background_probability : a stretch of a recorded noise, for some clips.
    pad_probability : how often a clip shorter than 1 s is put at a random place in a whole second of silence, as a
        stream shows it, instead of being taken at its own length, as a short file shows it.
    stream_probability : how often a clip is shown as a stream shows it (`in_stream`), not as a file of a second does.
    neighbour_probability : of those, how often other sound comes right before and after the word.
    time_masks, time_width : SpecAugment's masks over frames, and the widest.
    band_masks, band_width : SpecAugment's masks over coefficients, and the widest.
    cutouts : SpecCutout's rectangles, of at most the same widths.
    """

    speed: tuple[float, float] = (0.9, 1.1)
    speed_probability: float = 0.0
    shift_ms: float = 100.0
    white_noise_db: tuple[float, float] = (-90.0, -46.0)
    gain_db: tuple[float, float] = (-30.0, 6.0)
    gain_probability: float = 0.3
    dc: float = 0.3
    dc_probability: float = 0.1
    background_snr_db: tuple[float, float] = (5.0, 30.0)
    background_probability: float = 0.3
    pad_probability: float = 0.5
    stream_probability: float = 0.0
    neighbour_probability: float = 0.0
    time_masks: int = 2
    time_width: int = 25
    band_masks: int = 2
    band_width: int = 15
    cutouts: int = 5

    def __post_init__(self) -> None:
        """Refuse what cannot be meant. TOML gives lists for pairs; they become tuples."""
        for name in ("speed", "white_noise_db", "gain_db", "background_snr_db"):
            pair = tuple(getattr(self, name))
            if len(pair) != 2 or pair[0] > pair[1]:
                raise SettingError(f"{name}={pair}; expected two numbers, the lower first")
            object.__setattr__(self, name, pair)
        if self.speed[0] <= 0:
            raise SettingError(f"speed={self.speed}; expected above 0")
        for name in (f.name for f in fields(self) if f.name.endswith("_probability")):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"{name}={getattr(self, name)}; expected 0 to 1")
        for name in ("shift_ms", "dc", "time_masks", "time_width", "band_masks", "band_width", "cutouts"):
            if getattr(self, name) < 0:
                raise SettingError(f"{name}={getattr(self, name)}; expected at least 0")


def augment_samples(
    samples: F32,
    length: int,
    noises: Sequence[F32],
    settings: Augmentation,
    rng: np.random.Generator,
    *,
    sample_rate: int = 16_000,
) -> F32:
    """One clip, changed at random.

    Parameters
    ----------
    samples : float32 [n], full scale ±1, of which the first `length` were recorded and the rest is zero.
    noises : recordings of at least n samples each, mono at the same rate; may be empty.

    Returns
    -------
    float32 [n] or [length], a new array, within ±1 as a recorder would clip it.
    """
    s = settings
    n = len(samples)
    if length < n and rng.random() < s.pad_probability:
        x = np.zeros_like(samples)
        start = rng.integers(0, n - length + 1)
        x[start : start + length] = samples[:length]
    else:
        x = samples[:length].copy()
    most = int(s.shift_ms * sample_rate / 1000)
    x = _shift(x, int(rng.integers(-most, most + 1)))
    if noises and rng.random() < s.background_probability:
        noise = noises[int(rng.integers(len(noises)))]
        start = rng.integers(0, len(noise) - len(x) + 1)
        x += scale_to_snr(noise[start : start + len(x)], x, rng.uniform(*s.background_snr_db))
    if rng.random() < s.gain_probability:
        x *= np.float32(10 ** (rng.uniform(*s.gain_db) / 20))
    start = rng.integers(0, _WHITE_NOISE - len(x) + 1)
    x += np.float32(10 ** (rng.uniform(*s.white_noise_db) / 20)) * _white_noise()[start : start + len(x)]
    if rng.random() < s.dc_probability:
        x += np.float32(rng.uniform(-s.dc, s.dc))
    return np.clip(x, -1, 1, out=x)


def at_speed(clip: F32, factor: float, most: int) -> F32:
    """A clip played `factor` times as fast, its pitch as much higher: float32 [n] → [n / factor], at most `most`.

    By linear interpolation: that it dulls the highest frequencies is one more change of the kind that microphones make.
    """
    n = min(most, int(len(clip) / factor))
    return np.interp(np.arange(n) * factor, np.arange(len(clip)), clip).astype(np.float32)


def in_stream(clip: F32, n: int, rng: np.random.Generator, neighbours: F32 | None = None) -> F32:
    """A clip's word, whole, anywhere in a window that is longer than the clip.

    Parameters
    ----------
    clip : float32 [m], m at most n.
    neighbours : float32 [n], what else the window holds up to `WORD_MARGIN` before and after the word; None for
        silence around the clip.

    Returns
    -------
    float32 [n], a new array.
    """
    start, end = speech_bounds(clip)
    margin = min(WORD_MARGIN, (n - (end - start)) // 2)
    at = int(rng.integers(margin, n - (end - start) - margin + 1))  # where the word begins in the window
    if neighbours is None:
        out = np.zeros(n, np.float32)
        first, last = 0, len(clip)
    else:
        out = neighbours.copy()
        first, last = max(0, start - WORD_MARGIN), min(len(clip), end + WORD_MARGIN)
    first, last = max(first, start - at), min(last, start - at + n)
    out[at - start + first : at - start + last] = clip[first:last]
    return out


def augment_mfcc(mfcc: F32, settings: Augmentation, rng: np.random.Generator) -> F32:
    """SpecAugment and SpecCutout, in place: masked cells are zero. float32 [coefficients, frames] → the same array."""
    s = settings
    bands, frames = mfcc.shape
    for _ in range(s.time_masks):
        mfcc[:, _span(frames, s.time_width, rng)] = 0
    for _ in range(s.band_masks):
        mfcc[_span(bands, s.band_width, rng)] = 0
    for _ in range(s.cutouts):
        mfcc[_span(bands, s.band_width, rng), _span(frames, s.time_width, rng)] = 0
    return mfcc


def scale_to_snr(noise: F32, speech: F32, snr_db: float) -> F32:
    """Scale a noise so that the power ratio of the whole clips is `snr_db`. [n], [n] → [n]."""
    noise_power = float(np.mean(np.square(noise, dtype=np.float64)))
    speech_power = float(np.mean(np.square(speech, dtype=np.float64)))
    if noise_power == 0:
        return noise
    return noise * np.float32(np.sqrt(speech_power / noise_power) * 10 ** (-snr_db / 20))


@cache
def _white_noise() -> F32:
    """A minute of Gaussian noise of unit variance, of which every clip takes a stretch: drawing it anew costs more."""
    return np.random.default_rng(0).standard_normal(_WHITE_NOISE, dtype=np.float32)


def _shift(x: F32, by: int) -> F32:
    out = np.zeros_like(x)
    if abs(by) < len(x):
        out[max(by, 0) : len(x) + min(by, 0)] = x[max(-by, 0) : len(x) - max(by, 0)]
    return out


def _span(size: int, widest: int, rng: np.random.Generator) -> Any:
    width = int(rng.integers(0, min(widest, size) + 1))
    start = int(rng.integers(0, size - width + 1))
    return slice(start, start + width)
